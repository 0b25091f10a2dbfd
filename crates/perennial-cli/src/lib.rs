//! The `perennial` command: look at durable executions, reach them, and see them survive.
//!
//! Payloads that a codec encoded are shown as markers, since the command as it is installed has no codec. A program of two
//! lines has one:
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
//! `arguments` is the command line; `looking`, `acting`, `watching`, `doctor`, `verify`, `bench` and `demo` are what the commands do;
//! `output`, `timeline` and `waiting` how things are shown; `remedy` what is said about blocked instances; `exit` what the exit codes mean.

mod acting;
mod arguments;
mod attempts;
mod bench;
mod demo;
mod doctor;
mod exit;
mod looking;
mod output;
mod remedy;
mod repairing;
mod store;
mod timeline;
mod verify;
mod watching;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use perennial::codec::Codecs;
use perennial::{Action, EventId, StartOptions};

use acting::{Verb, act};
use arguments::{Arguments, Attempt, Change, Command};
use exit::Failure;
use store::StoreAt;

/// Runs the command with the arguments of this process, and tells its exit code. Payloads are read and written with these
/// codecs, which are those of the runtime.
pub fn run(codecs: Codecs) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && std::env::args().any(|argument| argument == "--json") => {
            let failure = Failure::usage(error.render().to_string().trim().trim_start_matches("error: "));
            failure.report(true);
            return ExitCode::from(failure.code());
        }
        Err(error) => error.exit(),
    };
    let as_json = arguments.json;
    let outcome =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::from).and_then(
            |tokio| {
                let outcome = tokio.block_on(run_command(arguments, codecs));
                // A read of standard input that nobody waits for must not hold the command up.
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

async fn run_command(arguments: Arguments, codecs: Codecs) -> Result<(), Failure> {
    let Arguments { store: url, json: as_json, command } = arguments;
    let store = StoreAt { url, codecs };
    match command {
        Command::Demo { orders, kills, keep } => {
            let (orders, kills) = (orders as usize, kills as usize);
            demo::run(demo::Demo { orders, kills, keep, as_json }).await
        }
        Command::DemoWorker { ledger } => {
            demo::run_worker(store.url.as_deref().unwrap_or_default(), &ledger).await
        }
        Command::Bench { instances } => bench::run(instances, as_json).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "perennial", &mut script);
            output::line(String::from_utf8_lossy(&script).trim_end())
        }
        Command::List { filter, limit, after } => {
            let client = store.open()?;
            let filter = store::filter(&client, &filter).await?;
            looking::list(&client, filter, limit as usize, after.as_deref(), as_json).await
        }
        Command::Show { id } => looking::show(&store.open()?, &id, as_json).await,
        Command::History { id, execution, timeline } => {
            looking::history(&store.open()?, &id, execution, as_json, timeline).await
        }
        Command::Tree { id } => looking::tree(&store.open()?, &id, as_json).await,
        Command::Export { ids, filter, .. } if !ids.is_empty() && filter.is_given() => {
            Err(Failure::usage("name instances or use a filter, not both"))
        }
        Command::Export { ids, filter, output } => {
            let client = store.open()?;
            let filter = store::filter(&client, &filter).await?;
            looking::export(&client, &ids, filter, output.as_deref()).await
        }
        Command::Top { every, once } => watching::top(&store.open()?, every, once, as_json).await,
        Command::Doctor => doctor::run(&store, as_json).await,
        Command::Verify => verify::run(&store.open()?, as_json).await,
        Command::Change(change) => run_change(&store, change, as_json).await,
    }
}

/// Commands that change something.
async fn run_change(store: &StoreAt, change: Change, as_json: bool) -> Result<(), Failure> {
    let client = store.open()?;
    match change {
        Change::Start { name, id, input, at_version, on_existing, attributes, delay, timeout, wait } => {
            let mut options = StartOptions::default().on_existing(on_existing.into());
            options = at_version.into_iter().fold(options, StartOptions::version);
            options = delay.into_iter().fold(options, StartOptions::delay);
            options = timeout.into_iter().fold(options, StartOptions::timeout);
            for (name, value) in attributes {
                options = options.attribute(name, value);
            }
            let input = acting::read_input(&input)?;
            acting::start(&client, &name, &id, input, options, wait, as_json).await
        }
        Change::Raise { id, event, input, key } => {
            let input = acting::read_input(&input)?;
            let raise = client.raise_event(&id, &event, input);
            match key {
                Some(key) => raise.once(key).await?,
                None => raise.await?,
            }
            acting::done(as_json, &id, "raised")
        }
        Change::Query { id, query, input, patience } => {
            let input = acting::read_input(&input)?;
            let answer = client.patience(patience).query(&id, &query, input).await?;
            acting::answer(as_json, &id, &answer)
        }
        Change::Update { id, update, input, key, or_start, start_input, patience } => {
            let (client, input) = (client.patience(patience), acting::read_input(&input)?);
            let mut update = client.update(&id, &update, input);
            if let Some(orchestration) = or_start {
                update = update.or_start(orchestration, acting::text_input(start_input.as_deref())?);
            }
            if let Some(key) = key {
                update = update.once(key);
            }
            let answer = update.await;
            acting::answer(as_json, &id, &answer.map_err(perennial::Error::from)?)
        }
        Change::Cancel { which, reason, grace } => {
            let verb =
                Verb { action: Action::Cancel { reason, grace }, name: "cancel", done: "cancel requested" };
            act(&client, &verb, &which, as_json).await
        }
        Change::Terminate { which, reason } => {
            let verb = Verb {
                action: Action::Terminate { reason },
                name: "terminate",
                done: "termination requested",
            };
            act(&client, &verb, &which, as_json).await
        }
        Change::Retry { which } => {
            let verb = Verb { action: Action::Retry, name: "retry", done: "retry requested" };
            act(&client, &verb, &which, as_json).await
        }
        Change::Skip { id, event, message } => {
            if let Some(event) = event {
                client.skip_event(&id, EventId(event)).await?;
                acting::skipped(as_json, &id, "event", event)?;
            }
            if let Some(number) = message {
                client.skip_message(&id, number).await?;
                acting::skipped(as_json, &id, "message", number)?;
            }
            Ok(())
        }
        Change::Activity(attempt) => {
            let outcome = match attempt {
                Attempt::Complete { token, result } => {
                    client.complete_activity(&token, result).await.map(|()| "completed")
                }
                Attempt::Fail { token, error } => {
                    client.fail_activity(&token, error).await.map(|()| "failed")
                }
                Attempt::Heartbeat { token, details } => {
                    client.heartbeat_activity(&token, details).await.map(|()| "under way")
                }
            };
            acting::said(as_json, outcome?)
        }
        Change::Pause { which, orchestration: None, why } => {
            let action = Action::Pause { why: why.into_why() };
            act(&client, &Verb { action, name: "pause", done: "pause requested" }, &which, as_json).await
        }
        Change::Resume { which, orchestration: None, why } => {
            let action = Action::Resume { why: why.into_why() };
            act(&client, &Verb { action, name: "resume", done: "resume requested" }, &which, as_json).await
        }
        Change::Pause { which, orchestration: Some(name), why } => {
            repairing::pause_orchestration(&client, &which, &name, why.into_why(), as_json).await
        }
        Change::Resume { which, orchestration: Some(name), why } => {
            repairing::resume_orchestration(&client, &which, &name, why.into_why(), as_json).await
        }
        Change::Reset { id, to_turn, at_version, why, patience } => {
            let client = client.patience(patience);
            let reset = client.reset(&id).to_turn(to_turn);
            repairing::reset(reset, at_version, why.into_why(), &id, as_json).await
        }
        Change::Rerun { id, at_version, why, patience } => {
            let client = client.patience(patience);
            repairing::reset(client.rerun(&id), at_version, why.into_why(), &id, as_json).await
        }
        Change::Delete { which, force } => {
            let verb = Verb { action: Action::Delete { force }, name: "delete", done: "deleted" };
            act(&client, &verb, &which, as_json).await
        }
        Change::Prune { filter, older_than, keep, yes } => {
            let filter = store::filter(&client, &filter).await?;
            let filter = store::ended(&client, filter, older_than).await?;
            acting::prune(&client, filter, keep, yes, as_json).await
        }
    }
}
