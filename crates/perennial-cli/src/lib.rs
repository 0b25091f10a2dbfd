//! The `perennial` command: inspects and manages durable executions, and demonstrates that they survive
//! crashes.
//!
//! Payloads that a codec has encoded are shown as markers, since the installed command has no codec. A
//! program of two lines builds a command with codecs:
//!
//! ```no_run
//! use perennial::codec::{BlobDirectory, Codecs, Offload};
//!
//! fn main() -> std::process::ExitCode {
//!     let blobs = BlobDirectory::open("blobs").expect("a directory");
//!     perennial_cli::run(Codecs::default().with(Offload::above(64 << 10, blobs)))
//! }
//! ```
//!
//! `arguments` is the command line. A file for each group of commands: `instances` (list, show, tree),
//! `histories` (history, export), `top`, `doctor` (and `doctor_postgres`), `verify`, `moving` (move),
//! `requests` (start, raise, query, update, skip, activity), `bulk` (cancel, terminate, retry, pause, resume,
//! delete), `repair` (reset, rerun, pausing orchestrations), `prune`, `serve` (serve, token), `bench` and `demo`;
//! `changes` dispatches commands that change something. `output`, `timeline` and `attempts` format output; `remedy`
//! is the advice for blocked instances; `exit` has the exit codes.

mod arguments;
mod attempts;
mod bench;
mod bulk;
mod changes;
mod demo;
mod doctor;
mod doctor_postgres;
mod exit;
mod filters;
mod histories;
mod instances;
mod moving;
mod nodes;
mod output;
mod prune;
mod remedy;
mod repair;
mod requests;
mod serve;
mod store;
mod timeline;
mod top;
mod traces;
mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use perennial::codec::Codecs;

use arguments::{Arguments, Command};
use exit::{ExitKind, Failure};
use store::{StoreAt, is_postgres};

/// Runs the command with the arguments of this process and returns its exit code. Payloads are decoded and
/// encoded with these codecs; use the same ones as the runtime.
pub fn run(codecs: Codecs) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            let failure = Failure::usage(error.render().to_string().trim().trim_start_matches("error: "));
            failure.report(true);
            return ExitCode::from(failure.code());
        }
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            // Colours are for texts that contain nothing but what clap and this program wrote.
            if text.lines().all(|line| output::visible(line) == line) {
                error.exit();
            }
            output::complain(text.trim_end());
            return ExitCode::from(ExitKind::Usage as u8);
        }
        Err(error) => error.exit(),
    };
    let as_json = arguments.json;
    let outcome =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::from).and_then(
            |tokio| {
                let outcome = tokio.block_on(run_command(arguments, codecs));
                // A pending read of standard input must not delay the exit.
                tokio.shutdown_background();
                outcome
            },
        );
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(as_json);
            ExitCode::from(failure.code())
        }
    }
}

/// Parses arguments as [`run`] does, and returns what it would complain about. For fuzzing.
#[doc(hidden)]
pub fn parsed(words: impl IntoIterator<Item = OsString>) -> Result<(), String> {
    let words = std::iter::once(OsString::from("perennial")).chain(words);
    match Arguments::try_parse_from(words) {
        Ok(_) => Ok(()),
        Err(error) if !error.use_stderr() => Ok(()),
        Err(error) => {
            let text = error.render().to_string();
            Err(text.lines().map(|line| output::visible(line).into_owned() + "\n").collect())
        }
    }
}

async fn run_command(arguments: Arguments, codecs: Codecs) -> Result<(), Failure> {
    let Arguments { store: url, json: as_json, command } = arguments;
    let store = StoreAt { url, codecs };
    match command {
        Command::Demo { orders, kills, nodes, keep, serve, listen } => {
            let (orders, kills) = (orders as usize, kills as usize);
            let server = store.url.filter(|url| is_postgres(url));
            let nodes = nodes.map(|nodes| nodes as usize);
            let listen = serve.then_some(listen);
            demo::run(demo::Demo { orders, kills, server, nodes, keep, listen, as_json }).await
        }
        Command::DemoWorker { ledger, node } => {
            demo::run_worker(store.url.as_deref().unwrap_or_default(), &ledger, node).await
        }
        Command::Bench { instances } => bench::run(instances, as_json).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "perennial", &mut script);
            output::raw(&String::from_utf8_lossy(&script))
        }
        Command::List { filter, limit, after } => {
            let client = store.open_to_look()?;
            let filter = store::filter(&client, &filter).await?;
            instances::list(&store, &client, filter, limit as usize, after.as_deref(), as_json).await
        }
        Command::Show { id } => instances::show(&store, &id, as_json).await,
        Command::History { id, execution, timeline } => {
            histories::history(&store.open_to_look()?, &id, execution, as_json, timeline).await
        }
        Command::Tree { id } => instances::tree(&store.open_to_look()?, &id, as_json).await,
        Command::Export { ids, filter, .. } if !ids.is_empty() && filter.is_given() => {
            Err(Failure::usage("name instances or use a filter, not both"))
        }
        Command::Export { ids, filter, output } => {
            let client = store.open_to_look()?;
            let filter = store::filter(&client, &filter).await?;
            histories::export(&store, &client, &ids, filter, output.as_deref()).await
        }
        Command::Top { every, once } => top::top(&store.open_to_look()?, every, once, as_json).await,
        Command::Nodes => nodes::run(&store.open_to_look()?, as_json).await,
        Command::Doctor => doctor::run(&store, as_json).await,
        Command::Move { reopen: Some(url), .. } => moving::reopen(&url, as_json).await,
        Command::Move { from: Some(from), to: Some(to), .. } => moving::run(&from, &to, as_json).await,
        Command::Move { .. } => Err(Failure::usage("pass --from URL and --to URL, or --reopen URL")),
        Command::Serve(arguments) => serve::serve(&store, arguments, as_json).await,
        Command::Token(token) => serve::token(&token, as_json),
        Command::Verify => verify::run(&store, as_json).await,
        Command::Change(change) => changes::run(&store, change, as_json).await,
    }
}
