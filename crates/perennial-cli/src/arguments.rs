//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use perennial::{OnExisting, Payload, Why};

use crate::exit::AFTER_HELP;
use crate::filters::{FILTERS, Filters, attribute};
use crate::serve::{Serve, Token};

/// The environment variable with the URL of the store.
pub(crate) const STORE_VARIABLE: &str = "PERENNIAL_STORE";

/// Durable execution for Rust: inspect instances, manage them, and see them survive crashes.
///
/// Commands that only read work while another process runs the store. Changes reach that process through the
/// store and are durable when the command returns.
#[derive(Debug, Parser)]
#[command(name = "perennial", version, after_help = AFTER_HELP, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// The store, such as sqlite:shop.db or postgres://localhost/shop
    #[arg(long, global = true, env = STORE_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Print one JSON object per line, errors included
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run orders while their worker is killed repeatedly, then count lost and duplicated effects
    Demo {
        /// Number of orders
        #[arg(long, default_value_t = 300, value_parser = number(1, 5_000))]
        orders: u64,
        /// Number of times that a worker is killed
        #[arg(long, default_value_t = 5, value_parser = number(0, 50))]
        kills: u64,
        /// Number of workers, more than one with --store postgres://… [default: 1, or 3 on PostgreSQL]
        #[arg(long, value_parser = number(1, 16))]
        nodes: Option<u64>,
        /// Keep the files, in this directory, which must not exist, and the schema on PostgreSQL
        #[arg(long, value_name = "PATH")]
        keep: Option<PathBuf>,
        /// Serve the dashboard, and repeat until Ctrl-C: start orders, kill their worker
        #[arg(long)]
        serve: bool,
        /// The address of the dashboard; port 0 takes a free one
        #[arg(long, default_value = "127.0.0.1:7370", value_name = "ADDRESS", requires = "serve")]
        listen: SocketAddr,
    },
    /// The process that the demo kills
    #[command(hide = true)]
    DemoWorker {
        #[arg(long)]
        ledger: PathBuf,
        #[arg(long)]
        node: String,
    },
    /// List instances
    List {
        #[command(flatten)]
        filter: Filters,
        /// Maximum number of instances
        #[arg(long, default_value_t = 50, value_parser = number(1, 10_000))]
        limit: u64,
        /// Start after the instance with this key, the last of the previous page
        #[arg(long, value_name = "KEY")]
        after: Option<String>,
    },
    /// Show one instance
    Show {
        /// The instance
        id: String,
    },
    /// Show the recorded history of an instance
    History {
        /// The instance
        id: String,
        /// The execution: 1, 2, 3, … with each continue-as-new, or `all` that are still stored [default: the
        /// current one]
        #[arg(long, value_name = "NUMBER|all", value_parser = executions)]
        execution: Option<Executions>,
        /// Draw the history as a timeline
        #[arg(long, conflicts_with = "json")]
        timeline: bool,
    },
    /// Show an instance and its descendants
    Tree {
        /// The instance
        id: String,
    },
    #[command(flatten)]
    Change(Change),
    /// Write histories as JSON Lines, one instance per line
    Export {
        /// Instances by id [default: all that match the filter]
        ids: Vec<String>,
        #[command(flatten)]
        filter: Filters,
        /// The file to write [default: standard output]
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Show live counts
    Top {
        /// Interval between refreshes
        #[arg(long, default_value = "1s", value_parser = duration)]
        every: Duration,
        /// Print the counts once
        #[arg(long)]
        once: bool,
    },
    /// List the processes that work on the store, and what each owns
    Nodes,
    /// Check a store and suggest remedies: schema, owner, files, lag, messages, stuck and blocked instances
    ///
    /// Each finding is marked: `ok`; `note` for what may be intended, such as paused instances, requests in
    /// progress, or files that other users can read; and `look` for a problem. Exits with 1 if there is a problem:
    /// an unusable schema, a runtime that ended without a shutdown, work that is due while no runtime is running or
    /// that is late, blocked instances, code that is not registered, activities that fail repeatedly, damage, a
    /// clock that was set back, or a write-ahead log that only grows.
    Doctor,
    /// Move all instances of a stopped store to an empty one, such as from SQLite to PostgreSQL
    Move {
        /// The store to move, which no process may use. It is kept, and marked so that nobody uses it
        #[arg(long, value_name = "URL", requires = "to")]
        from: Option<String>,
        /// The store to move it to: a new file, or a new schema. If a move was interrupted, the same one again
        #[arg(long, value_name = "URL", requires = "from")]
        to: Option<String>,
        /// Remove the mark from a store that was moved, to use it again instead of the other one
        #[arg(long, value_name = "URL", conflicts_with_all = ["from", "to"])]
        reopen: Option<String>,
    },
    /// Serve the HTTP API of a store, beside the process that runs it or without one
    ///
    /// Prints its URL as the first line. On a loopback address without --tokens, everybody is an operator. SIGTERM and
    /// SIGINT end it after the requests in progress; a second signal ends it at once.
    Serve(Serve),
    /// Make a token for `serve`, add its hash to a file, and print it once
    Token(Token),
    /// Read the whole store and list damaged rows, histories, messages and tasks
    Verify,
    /// Measure how many small orchestrations this machine completes per second
    Bench {
        /// Number of instances
        #[arg(long, default_value_t = 5_000, value_parser = number(1, 1_000_000))]
        instances: u64,
    },
    /// Print completions for a shell
    Completions { shell: Shell },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Change {
    /// Start an instance
    Start {
        /// The orchestration
        name: String,
        /// The id of the new instance
        id: String,
        #[command(flatten)]
        input: Input,
        /// The exact version [default: the latest registered one]
        #[arg(long = "version", value_name = "VERSION")]
        at_version: Option<String>,
        /// What to do if the id exists
        #[arg(long, value_enum, default_value_t = Existing::Reject)]
        on_existing: Existing,
        /// An attribute of the instance; VALUE is JSON or text
        #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
        attributes: Vec<(String, Payload)>,
        /// Start after a delay, such as 90s, 15m, 2h, 7d
        #[arg(long, value_parser = duration)]
        delay: Option<Duration>,
        /// Time the instance out if it takes longer
        #[arg(long, value_parser = duration)]
        timeout: Option<Duration>,
        /// Wait for the end and print the result; after some seconds, print what the instance waits for
        #[arg(long)]
        wait: bool,
    },
    /// Raise an event at an instance
    Raise {
        /// The instance
        id: String,
        /// The event's name
        event: String,
        #[command(flatten)]
        input: Input,
        /// Idempotency key: a second event with this key is dropped
        #[arg(long)]
        key: Option<String>,
    },
    /// Query an instance; nothing is recorded
    Query {
        /// The instance
        id: String,
        /// The query's name
        query: String,
        #[command(flatten)]
        input: Input,
        /// Maximum time to wait for a runtime to answer
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Update an instance and wait for the result
    Update {
        /// The instance
        id: String,
        /// The update's name
        update: String,
        #[command(flatten)]
        input: Input,
        /// Idempotency key: an update that is sent again with this key returns the first result
        #[arg(long)]
        key: Option<String>,
        /// Start an instance of this orchestration first if the id does not exist
        #[arg(long, value_name = "ORCHESTRATION")]
        or_start: Option<String>,
        /// Input of the started instance: JSON, or plain text that becomes a string [default: null]
        #[arg(long, value_name = "INPUT", requires = "or_start")]
        start_input: Option<String>,
        /// Maximum time to wait for a runtime to answer
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Request the cancellation of instances; their code can clean up first
    Cancel {
        #[command(flatten)]
        which: Which,
        /// The reason to record
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
        /// Time for their code to clean up before they are terminated, such as 5m [default: 30s]
        #[arg(long, value_parser = duration)]
        grace: Option<Duration>,
    },
    /// End instances without running their code
    Terminate {
        #[command(flatten)]
        which: Which,
        /// The reason to record
        #[arg(long, default_value = "terminated from the command line")]
        reason: String,
    },
    /// Retry blocked instances, or activities that wait for their next attempt
    Retry {
        #[command(flatten)]
        which: Which,
        /// Make the next attempt of this activity now; the number of its event, as `show` prints it
        #[arg(long, value_name = "EVENT", conflicts_with = "activities")]
        activity: Option<u64>,
        /// Make the next attempts of all activities that wait for one now
        #[arg(long)]
        activities: bool,
    },
    /// Let a blocked instance continue without an event or a message that cannot be read
    Skip {
        /// The instance
        id: String,
        /// The number of the event, as `show` and `doctor` print it
        #[arg(required_unless_present = "message")]
        event: Option<u64>,
        /// The number of the message in the inbox, as `show` and `doctor` print it
        #[arg(long, value_name = "NUMBER", conflicts_with = "event")]
        message: Option<u64>,
    },
    /// Complete, fail or extend an attempt of an activity with its completion token
    #[command(subcommand)]
    Activity(Attempt),
    /// Pause instances, or an orchestration: they take no turns until they are resumed
    Pause(Pausing),
    /// Resume paused instances, or a paused orchestration
    Resume(Pausing),
    /// Reset an instance to one of its turns; it continues from there with the code registered now
    Reset {
        /// The instance
        id: String,
        /// The last turn to keep, as `history` numbers them; 0 starts over
        #[arg(long, value_name = "TURN")]
        to_turn: u64,
        /// Continue with this version of the code [default: the version of the instance]
        #[arg(long = "version", value_name = "VERSION")]
        at_version: Option<String>,
        #[command(flatten)]
        why: WhyArguments,
        /// Maximum time to wait for a runtime to do it
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Rerun an instance that failed, timed out, or was cancelled or terminated, from its end
    Rerun {
        /// The instance
        id: String,
        /// Continue with this version of the code [default: the version of the instance]
        #[arg(long = "version", value_name = "VERSION")]
        at_version: Option<String>,
        #[command(flatten)]
        why: WhyArguments,
        /// Maximum time to wait for a runtime to do it
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Delete instances that have ended, with their children
    Delete {
        #[command(flatten)]
        which: Which,
        /// Terminate instances that are still running, and delete them too
        #[arg(long)]
        force: bool,
    },
    /// Delete instances that ended long ago, or old executions of all instances
    Prune {
        #[command(flatten)]
        filter: Filters,
        /// Delete executions that were continued as new, and no instances; current executions are always kept
        #[arg(long, requires = "older_than", conflicts_with_all = FILTERS, conflicts_with = "keep")]
        executions: bool,
        /// Only those that ended, or continued as new, at least this long ago, such as 7d
        #[arg(long, value_parser = duration)]
        older_than: Option<Duration>,
        /// Keep this many of the newest
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        keep: usize,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

/// The executions of an instance to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executions {
    One(u64),
    All,
}

fn executions(text: &str) -> Result<Executions, String> {
    match text {
        "all" => Ok(Executions::All),
        number => match number.parse() {
            Ok(execution @ 1..) => Ok(Executions::One(execution)),
            _ => Err("expected a number from 1, or all".to_owned()),
        },
    }
}

/// The instances or orchestration to pause or resume, and the reason.
#[derive(Args, Debug)]
pub(crate) struct Pausing {
    #[command(flatten)]
    pub(crate) which: Which,
    /// All instances of this orchestration, including those started later, except instances paused
    /// individually
    #[arg(long, value_name = "NAME")]
    pub(crate) orchestration: Option<String>,
    #[command(flatten)]
    pub(crate) why: WhyArguments,
}

/// The recorded reason and author of an intervention.
#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    /// The reason to record
    #[arg(long, default_value = "from the command line")]
    reason: String,
    /// The author to record
    #[arg(long, value_name = "WHO", env = "USER")]
    by: Option<String>,
}

impl WhyArguments {
    pub(crate) fn into_why(self) -> Why {
        Why { reason: self.reason, by: self.by.filter(|who| !who.is_empty()) }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Instances by id
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filters,
    /// Do not ask for confirmation before changing several instances
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Calls with a completion token.
#[derive(Debug, Subcommand)]
pub(crate) enum Attempt {
    /// Complete the activity with a result
    Complete {
        /// The token
        token: String,
        /// The result: JSON, or plain text that becomes a string
        #[arg(long, value_name = "JSON", default_value = "null", value_parser = payload)]
        result: Payload,
    },
    /// Fail the attempt; the retry policy of the activity applies
    Fail {
        /// The token
        token: String,
        /// The error: JSON, or plain text that becomes a string
        #[arg(long, value_name = "TEXT", value_parser = payload)]
        error: Payload,
    },
    /// Record a heartbeat, which restarts the heartbeat timeout
    Heartbeat {
        /// The token
        token: String,
        /// The progress to record: JSON, or plain text that becomes a string
        #[arg(long, value_name = "JSON", default_value = "null", value_parser = payload)]
        details: Payload,
    },
}

/// The input of a request.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// JSON, or plain text that becomes a string [default: null]
    #[arg(conflicts_with = "input_file")]
    pub(crate) input: Option<String>,
    /// A file with the JSON; - is standard input
    #[arg(long, value_name = "PATH")]
    pub(crate) input_file: Option<PathBuf>,
}

/// See [`OnExisting`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Existing {
    /// Refuse the start
    Reject,
    /// Return the existing instance
    Use,
    /// Replace an instance that has ended
    ReplaceEnded,
    /// Terminate a running instance, and replace it
    TerminateAndReplace,
}

impl From<Existing> for OnExisting {
    fn from(existing: Existing) -> OnExisting {
        match existing {
            Existing::Reject => OnExisting::Reject,
            Existing::Use => OnExisting::Use,
            Existing::ReplaceEnded => OnExisting::ReplaceEnded,
            Existing::TerminateAndReplace => OnExisting::TerminateAndReplace,
        }
    }
}

fn number(from: u64, to: u64) -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(from..=to)
}

/// Parses JSON, or else takes plain text. Text that starts like JSON must be JSON, so that a typing error
/// does not become a string.
pub(crate) fn payload(text: &str) -> Result<Payload, String> {
    Payload::from_json(text).or_else(|error| {
        if text.starts_with(['{', '[', '"']) {
            Err(format!("invalid JSON: {error}"))
        } else {
            Ok(Payload::from(text))
        }
    })
}

/// Parses a number with a unit: 500ms, 90s, 15m, 2h, 7d.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("expected a number with a unit: 500ms, 90s, 15m, 2h, 7d".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number before the unit".to_owned())?;
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| "the duration is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Arguments, duration, payload};
    use clap::CommandFactory;
    use std::time::Duration;

    #[test]
    fn p8_the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn p8_inputs_are_json_or_text_and_never_broken_json() {
        assert_eq!(payload("42").unwrap().as_json(), "42");
        assert_eq!(payload("a rose").unwrap().as_json(), r#""a rose""#);
        assert_eq!(payload(r#"{"a":1}"#).unwrap().as_json(), r#"{"a":1}"#);
        assert!(payload(r#"{"a":1"#).is_err());
    }

    #[test]
    fn p8_durations_have_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for bad in ["", "s", "90", "1.5h", "2w", "99999999999999999999d", "9999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
