//! Commands on standard input, one for each line: words, or an array of JSON whose first element is the command. Words are
//! read as JSON where they can be. Every command answers with one line of JSON.

use perennial::{OnExisting, Payload, StartOptions};
use serde_json::{Value, json};

use crate::Failure;
use crate::code::{CARD_SERVICE, Code, IMPORTS_END};
use crate::seed::{self, until_blocked, until_turn};
use crate::stage::Stage;

/// What is printed for `help`.
const HELP: &[&str] = &[
    "start NAME ID [INPUT] [ATTRIBUTES]",
    "start-many COUNT [NAME] [PREFIX] [INPUT]",
    "replace NAME ID [INPUT]: terminates the instance that has the id",
    "raise ID EVENT [PAYLOAD]",
    "raise-many COUNT EVENT PREFIX",
    "cancel ID REASON",
    "terminate ID REASON",
    "delete ID",
    "wait ID ended | blocked | TURN",
    "wait-many COUNT PREFIX blocked | TURN",
    "damage ID TURN: makes a turn unreadable, in a SQLite file",
    "history ID: turns and kinds of events, from the store",
    "card-service on | off: whether payments succeed",
    "imports end | go: whether imports end",
    "kill-runtime, stop-runtime, start-runtime",
    "deploy good | bad: other code for checkout",
    "stop-server, kill-server, start-server",
    "now",
    "quit",
];

/// The words of a line.
pub(crate) fn words(line: &str) -> Result<Vec<Value>, Failure> {
    match line.trim_start().starts_with('[') {
        true => Ok(serde_json::from_str(line)?),
        false => {
            let word = |word: &str| serde_json::from_str(word).unwrap_or_else(|_| Value::from(word));
            Ok(line.split_whitespace().map(word).collect())
        }
    }
}

struct Given<'a>(&'a [Value]);

impl Given<'_> {
    fn text(&self, place: usize) -> Result<String, Failure> {
        match self.0.get(place) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Ok(other.to_string()),
            None => Err(format!("argument {place} is missing").into()),
        }
    }

    fn text_or(&self, place: usize, otherwise: &str) -> String {
        self.text(place).unwrap_or_else(|_| otherwise.to_owned())
    }

    fn number(&self, place: usize) -> Result<u64, Failure> {
        Ok(self.text(place)?.parse()?)
    }

    fn payload(&self, place: usize) -> Payload {
        self.0.get(place).cloned().map_or_else(Payload::null, Payload::from)
    }
}

/// Carries out a command and returns what it answers.
pub(crate) async fn run(stage: &mut Stage, words: &[Value]) -> Result<Value, Failure> {
    let given = Given(words);
    match given.text(0)?.as_str() {
        "help" => return Ok(json!({ "commands": HELP })),
        "now" => return Ok(json!({ "now_ms": crate::now_ms() })),
        "card-service" => CARD_SERVICE.store(given.text(1)? == "on", std::sync::atomic::Ordering::SeqCst),
        "imports" => IMPORTS_END.store(given.text(1)? == "end", std::sync::atomic::Ordering::SeqCst),
        "kill-runtime" => stage.kill_runtime(),
        "stop-runtime" => stage.stop_runtime().await?,
        "start-runtime" => stage.start_runtime_again().await?,
        "deploy" => {
            let code = if given.text(1)? == "bad" { Code::Bad } else { Code::Good };
            stage.stop_runtime().await?;
            stage.start_runtime(code).await?;
        }
        "stop-server" => stage.stop_server().await?,
        "kill-server" => stage.kill_server().await?,
        "start-server" => return Ok(json!({ "url": stage.start_server().await? })),
        command => return on_instances(stage, command, &given).await,
    }
    Ok(json!({}))
}

async fn on_instances(stage: &Stage, command: &str, given: &Given<'_>) -> Result<Value, Failure> {
    let client = stage.client()?;
    match command {
        "start" | "replace" => {
            let policy =
                if command == "start" { OnExisting::Reject } else { OnExisting::TerminateAndReplace };
            let mut options = StartOptions::default().on_existing(policy);
            for (name, value) in given.0.get(4).and_then(Value::as_object).into_iter().flatten() {
                options = options.attribute(name, value);
            }
            let (name, id) = (given.text(1)?, given.text(2)?);
            client.start_with(name.as_str(), &id, given.payload(3), options).await?;
            return Ok(json!({ "key": client.status(&id).await?.key.to_string() }));
        }
        "start-many" => {
            let (name, prefix) = (given.text_or(2, "hello"), given.text_or(3, "many-"));
            let input = if given.0.len() > 4 { given.payload(4) } else { Payload::from("somebody") };
            seed::start_many(stage.runtime()?, &name, &prefix, &input, given.number(1)?).await?;
        }
        "raise" => client.raise_event(&given.text(1)?, given.text(2)?.as_str(), given.payload(3)).await?,
        "raise-many" => {
            for number in 1..=given.number(1)? {
                let id = format!("{}{number}", given.text(3)?);
                client.raise_event(&id, given.text(2)?.as_str(), Payload::null()).await?;
            }
        }
        "cancel" => client.cancel(&given.text(1)?, &given.text_or(2, "")).await?,
        "terminate" => client.terminate(&given.text(1)?, &given.text_or(2, "")).await?,
        "delete" => return Ok(json!({ "deleted": client.delete(&given.text(1)?, true).await? })),
        "damage" => damage(stage.url(), &given.text(1)?, given.number(2)?)?,
        "wait" => wait(&client, &given.text(1)?, &given.text(2)?).await?,
        "wait-many" => {
            for number in 1..=given.number(1)? {
                wait(&client, &format!("{}{number}", given.text(2)?), &given.text(3)?).await?;
            }
        }
        "history" => {
            let history = client.history(&given.text(1)?).await?;
            let turn = |turn: &perennial::history::Turn| {
                let events = turn.events.iter().map(|event| json!([event.id.0, event.kind.name()]));
                json!({ "turn": turn.number, "events": events.collect::<Vec<_>>() })
            };
            return Ok(json!({ "turns": history.turns.iter().map(turn).collect::<Vec<_>>() }));
        }
        unknown => return Err(format!("no such command: {unknown}").into()),
    }
    Ok(json!({}))
}

/// Changes a byte of a turn, as a failing disk would.
fn damage(url: &str, id: &str, turn: u64) -> Result<(), Failure> {
    let path = url.strip_prefix("sqlite:").ok_or("only a sqlite: store can be damaged")?;
    let connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(30))?;
    let changed = connection.execute(
        "UPDATE turns SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB)
         WHERE number = ?2 AND key = (SELECT key FROM instances WHERE id = ?1)",
        (id, i64::try_from(turn)?),
    )?;
    if changed == 0 { Err("no such turn".into()) } else { Ok(()) }
}

async fn wait(client: &perennial::Client, id: &str, what: &str) -> Result<(), Failure> {
    match what {
        "ended" => Ok(client.wait(id).await.map(drop)?),
        "blocked" => until_blocked(client, id).await,
        turn => until_turn(client, id, turn.parse()?).await,
    }
}
