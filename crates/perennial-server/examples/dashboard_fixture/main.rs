//! A server with a full store, for looking at the dashboard and for its tests.
//!
//! ```sh
//! cargo run -p perennial-server --example dashboard_fixture
//! ```
//!
//! Prints one line of JSON with the URL of the server, then reads commands from standard input (`help` lists them) and
//! prints one line of JSON for each that has finished. Ends at the end of its input.
//!
//! | option | |
//! |---|---|
//! | `--store URL` | `sqlite:PATH`, `memory:`, `postgres://…`, `postgres` for its own server; otherwise a new SQLite file |
//! | `--empty` | leaves the store empty |
//! | `--as-is` | adds nothing to what the store has |
//! | `--children N` | the children of the instance `fan`; 12 if not given |
//! | `--events N` | the events of the instance `long`, which there is only with this option |
//! | `--instances N` | so many further instances, as rows of a SQLite file |
//! | `--link NAME=TEMPLATE` | a link into another tool; may be repeated |
//! | `--nodes N` | so many runtimes on one PostgreSQL store |
//! | `--no-runtime` | stops the runtime before the server starts |
//! | `--port N` | listens there instead of on a free port |
//! | `--prefix PATH` | mounts the router in an application with a runtime, under a prefix |
//! | `--tokens`, `--read-only`, `--hide-payloads` | who may do what |

mod code;
mod commands;
mod hostile;
mod many;
mod seed;
mod stage;

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use seed::Sizes;
use stage::Stage;

/// Why a command or the whole program failed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug)]
struct Arguments {
    store: Option<String>,
    is_empty: bool,
    is_as_is: bool,
    sizes: Sizes,
    links: Vec<(String, String)>,
    nodes: usize,
    without_runtime: bool,
    port: u16,
    prefix: Option<String>,
    with_tokens: bool,
    read_only: bool,
    hide_payloads: bool,
}

impl Arguments {
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
        let mut arguments = Arguments {
            store: None,
            is_empty: false,
            is_as_is: false,
            sizes: Sizes { children: 12, events: 0, instances: 0 },
            links: Vec::new(),
            nodes: 1,
            without_runtime: false,
            port: 0,
            prefix: None,
            with_tokens: false,
            read_only: false,
            hide_payloads: false,
        };
        while let Some(option) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--store" => arguments.store = Some(value()?),
                "--empty" => arguments.is_empty = true,
                "--as-is" => arguments.is_as_is = true,
                "--children" => arguments.sizes.children = value()?.parse()?,
                "--events" => arguments.sizes.events = value()?.parse()?,
                "--instances" => arguments.sizes.instances = value()?.parse()?,
                "--link" => {
                    let link = value()?;
                    let (name, template) = link.split_once('=').ok_or("--link needs NAME=TEMPLATE")?;
                    arguments.links.push((name.to_owned(), template.to_owned()));
                }
                "--nodes" => arguments.nodes = value()?.parse()?,
                "--no-runtime" => arguments.without_runtime = true,
                "--port" => arguments.port = value()?.parse()?,
                "--prefix" => arguments.prefix = Some(value()?),
                "--tokens" => arguments.with_tokens = true,
                "--read-only" => arguments.read_only = true,
                "--hide-payloads" => arguments.hide_payloads = true,
                unknown => return Err(format!("unknown option {unknown}").into()),
            }
        }
        Ok(arguments)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn print(line: &Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let mut stage = Stage::new(arguments.clone())?;
    match arguments.is_empty || arguments.is_as_is {
        true => stage.start_runtime(code::Code::Good).await?,
        false => seed::fill(&mut stage, arguments.sizes).await?,
    }
    if arguments.without_runtime {
        stage.stop_runtime().await?;
    }
    let url = stage.start_server().await?;
    let [reader, operator] = stage.tokens.clone().map_or([None, None], |tokens| tokens.map(Some));
    let store = stage.url();
    print(&json!({"url": url, "store": store, "reader": reader, "operator": operator, "now_ms": now_ms()}))?;

    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        let words = match commands::words(&line) {
            Ok(words) => words,
            Err(error) => {
                print(&json!({"ok": false, "error": error.to_string()}))?;
                continue;
            }
        };
        if words.first() == Some(&Value::from("quit")) {
            break;
        }
        let answer = match commands::run(&mut stage, &words).await {
            Ok(Value::Object(mut members)) => {
                members.insert("ok".to_owned(), true.into());
                Value::Object(members)
            }
            Ok(other) => json!({"ok": true, "answer": other}),
            Err(error) => json!({"ok": false, "error": error.to_string()}),
        };
        print(&answer)?;
    }
    // The store is temporary, or survives a kill: nothing needs to be waited for.
    let _ = stage.kill_server().await;
    stage.kill_runtime();
    Ok(())
}
