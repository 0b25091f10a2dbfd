//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use perennial::{Condition, Filter, OnExisting, Payload, Status, Why};

use crate::exit::AFTER_HELP;

/// Durable execution for Rust: see it survive, look at instances, reach them.
///
/// Looking works while another process runs the store; changes reach that process through the store and are durable when
/// the command returns.
#[derive(Debug, Parser)]
#[command(name = "perennial", version, after_help = AFTER_HELP, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// The store, such as sqlite:shop.db
    #[arg(long, global = true, env = "PERENNIAL_STORE", hide_env_values = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// One JSON object per line, for programs; errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a fleet of orders whose worker is killed again and again, and count what was lost: nothing
    Demo {
        /// How many orders
        #[arg(long, default_value_t = 300, value_parser = number(1, 5_000))]
        orders: u64,
        /// How often the worker is killed
        #[arg(long, default_value_t = 5, value_parser = number(0, 50))]
        kills: u64,
        /// Keep the files in this new directory
        #[arg(long, value_name = "PATH")]
        keep: Option<PathBuf>,
    },
    /// The process that the demo kills
    #[command(hide = true)]
    DemoWorker {
        #[arg(long)]
        ledger: PathBuf,
    },
    /// List instances
    List {
        #[command(flatten)]
        filter: Filters,
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = number(1, 10_000))]
        limit: u64,
        /// Go on behind the instance with this key, which is the last one of the page before
        #[arg(long, value_name = "KEY")]
        after: Option<String>,
    },
    /// Show one instance
    Show {
        /// The instance
        id: String,
    },
    /// What is recorded of an instance
    History {
        /// The instance
        id: String,
        /// Which execution: 1, 2, 3, … with each continue-as-new, or `all` that are still recorded [default: the current one]
        #[arg(long, value_name = "NUMBER|all", value_parser = executions)]
        execution: Option<Executions>,
        /// Draw it as a timeline
        #[arg(long, conflicts_with = "json")]
        timeline: bool,
    },
    /// An instance with all that it started as children
    Tree {
        /// The instance
        id: String,
    },
    #[command(flatten)]
    Change(Change),
    /// Write histories as JSON lines, one instance per line
    Export {
        /// Instances by id [default: all that the filter shows]
        ids: Vec<String>,
        #[command(flatten)]
        filter: Filters,
        /// The file to write [default: standard output]
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Live counts
    Top {
        /// How often they are refreshed
        #[arg(long, default_value = "1s", value_parser = duration)]
        every: Duration,
        /// Only once
        #[arg(long)]
        once: bool,
    },
    /// Look for trouble, and what to do about it: schema, owner, files, lag, messages, blocked instances
    Doctor,
    /// Read the whole store and name what is damaged: rows, histories, messages, tasks
    Verify,
    /// How many small orchestrations this machine completes in a second
    Bench {
        /// How many instances
        #[arg(long, default_value_t = 5_000, value_parser = number(1, 1_000_000))]
        instances: u64,
    },
    /// Completions for a shell
    Completions { shell: Shell },
}

/// Commands that change something.
#[derive(Debug, Subcommand)]
pub(crate) enum Change {
    /// Start an instance
    Start {
        /// The orchestration
        name: String,
        /// The id that the instance gets
        id: String,
        #[command(flatten)]
        input: Input,
        /// The exact version [default: the latest that the runtime knows]
        #[arg(long = "version", value_name = "VERSION")]
        at_version: Option<String>,
        /// What happens if the id exists
        #[arg(long, value_enum, default_value_t = Existing::Reject)]
        on_existing: Existing,
        /// A value that it can be found by
        #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
        attributes: Vec<(String, Payload)>,
        /// Begin after a while, such as 90s, 15m, 2h, 7d
        #[arg(long, value_parser = duration)]
        delay: Option<Duration>,
        /// End it as timed out if it takes longer
        #[arg(long, value_parser = duration)]
        timeout: Option<Duration>,
        /// Wait for its end and print its result
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
        /// Raise it once: a second event with this key is dropped
        #[arg(long)]
        key: Option<String>,
    },
    /// Ask an instance something; its code answers, and nothing changes
    Query {
        /// The instance
        id: String,
        /// The query's name
        query: String,
        #[command(flatten)]
        input: Input,
        /// How long to wait for a runtime to answer
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Have an instance change something, and wait for what its code says
    Update {
        /// The instance
        id: String,
        /// The update's name
        update: String,
        #[command(flatten)]
        input: Input,
        /// Do it once: sent again with this key, it gets the first one's outcome
        #[arg(long)]
        key: Option<String>,
        /// Start an instance of this orchestration first if none has the id
        #[arg(long, value_name = "ORCHESTRATION")]
        or_start: Option<String>,
        /// The input of that start: JSON, or plain text that becomes a string [default: null]
        #[arg(long, value_name = "INPUT", requires = "or_start")]
        start_input: Option<String>,
        /// How long to wait for a runtime to answer
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Ask instances to cancel; their code may clean up first
    Cancel {
        #[command(flatten)]
        which: Which,
        /// Why
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
        /// How long their code may clean up before they are terminated, such as 5m; 30 s if nothing is said
        #[arg(long, value_parser = duration)]
        grace: Option<Duration>,
    },
    /// End instances without running their code
    Terminate {
        #[command(flatten)]
        which: Which,
        /// Why
        #[arg(long, default_value = "terminated from the command line")]
        reason: String,
    },
    /// Try blocked instances again
    Retry {
        #[command(flatten)]
        which: Which,
    },
    /// Let a blocked instance go on without the event that its code cannot read, or the message that nobody can read
    Skip {
        /// The instance
        id: String,
        /// The event's number, which `show` and `doctor` name
        #[arg(required_unless_present = "message")]
        event: Option<u64>,
        /// The message's number in the inbox, which `show` and `doctor` name
        #[arg(long, value_name = "NUMBER", conflicts_with = "event")]
        message: Option<u64>,
    },
    /// Say what came of an attempt of an activity, with the token that it handed out
    #[command(subcommand)]
    Activity(Attempt),
    /// Pause instances, or all of an orchestration: they take no turn until they are resumed
    Pause(Pausing),
    /// Let paused instances go on, or all of an orchestration
    Resume(Pausing),
    /// Take an instance back to one of its turns: it goes on from there with the code that is registered now
    Reset {
        /// The instance
        id: String,
        /// The last turn to keep, as `history` counts them; 0 begins again
        #[arg(long, value_name = "TURN")]
        to_turn: u64,
        /// Go on with this version of the code [default: the one that it is pinned to]
        #[arg(long = "version", value_name = "VERSION")]
        at_version: Option<String>,
        #[command(flatten)]
        why: WhyArguments,
        /// How long to wait for a runtime to do it
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Run an instance that failed, was cancelled or terminated, or timed out, again from its end
    Rerun {
        /// The instance
        id: String,
        /// Go on with this version of the code [default: the one that it is pinned to]
        #[arg(long = "version", value_name = "VERSION")]
        at_version: Option<String>,
        #[command(flatten)]
        why: WhyArguments,
        /// How long to wait for a runtime to do it
        #[arg(long, default_value = "30s", value_parser = duration)]
        patience: Duration,
    },
    /// Delete instances that have ended, with their children
    Delete {
        #[command(flatten)]
        which: Which,
        /// Terminate those that run, and delete them too
        #[arg(long)]
        force: bool,
    },
    /// Delete all instances that ended long ago, or old executions of all instances
    Prune {
        #[command(flatten)]
        filter: Filters,
        /// Delete executions that were continued as new, and no instances; the current execution is always kept
        #[arg(long, requires = "older_than", conflicts_with_all = FILTERS, conflicts_with = "keep")]
        executions: bool,
        /// Only those that ended, or were continued, at least this long ago, such as 7d
        #[arg(long, value_parser = duration)]
        older_than: Option<Duration>,
        /// All but this many of the newest
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        keep: usize,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Which executions of an instance are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executions {
    One(u64),
    All,
}

fn executions(text: &str) -> Result<Executions, String> {
    match text {
        "all" => Ok(Executions::All),
        number => {
            number.parse().map(Executions::One).map_err(|_| "use a number from 1 on, or all".to_owned())
        }
    }
}

/// The arguments of [`Filters`].
const FILTERS: [&str; 10] = [
    "status",
    "name",
    "at_version",
    "prefix",
    "blocked",
    "paused",
    "attributes",
    "conditions",
    "parent",
    "newest",
];

/// What is paused or resumed, and why.
#[derive(Args, Debug)]
pub(crate) struct Pausing {
    #[command(flatten)]
    pub(crate) which: Which,
    /// All instances of this orchestration, and those that are started meanwhile, except what is paused by itself
    #[arg(long, value_name = "NAME")]
    pub(crate) orchestration: Option<String>,
    #[command(flatten)]
    pub(crate) why: WhyArguments,
}

/// What is recorded about who steps in.
#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    /// Why
    #[arg(long, default_value = "from the command line")]
    reason: String,
    /// Who does it
    #[arg(long, value_name = "WHO", env = "USER")]
    by: Option<String>,
}

impl WhyArguments {
    pub(crate) fn into_why(self) -> Why {
        Why { reason: self.reason, by: self.by.filter(|who| !who.is_empty()) }
    }
}

/// Which instances. Everything that is given has to hold.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filters {
    /// Where they stand: pending, running, completed, failed, cancelled, terminated
    #[arg(long, value_delimiter = ',', value_parser = status)]
    pub(crate) status: Vec<Status>,
    /// The orchestration
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The orchestration's version
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) at_version: Option<String>,
    /// How the id begins
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Only those that are blocked
    #[arg(long)]
    pub(crate) blocked: bool,
    /// Only those that are paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// A value that they have; VALUE is JSON, or text
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, Payload)>,
    /// What an attribute is like: NAME^=PREFIX, NAME=VALUE, or with <, <=, >, >=
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) conditions: Vec<Condition>,
    /// The children of this instance
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Newest first
    #[arg(long)]
    pub(crate) newest: bool,
    /// All of that as text, such as "status=running name=order attr.customer=7"
    #[arg(long = "filter", value_name = "TERMS")]
    pub(crate) terms: Option<Filter>,
}

impl Filters {
    /// Whether anything is given that narrows the choice.
    pub(crate) fn is_given(&self) -> bool {
        self.terms.is_some()
            || !self.status.is_empty()
            || self.name.is_some()
            || self.at_version.is_some()
            || self.prefix.is_some()
            || self.blocked
            || self.paused
            || !self.attributes.is_empty()
            || !self.conditions.is_empty()
            || self.parent.is_some()
    }
}

/// Instances by id, or by filter.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Instances by id
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filters,
    /// Do not ask before this is done to several instances
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// What can be said about an attempt of an activity.
#[derive(Debug, Subcommand)]
pub(crate) enum Attempt {
    /// It has a result
    Complete {
        /// The token
        token: String,
        /// The result: JSON, or plain text that becomes a string
        #[arg(long, value_name = "JSON", default_value = "null", value_parser = payload)]
        result: Payload,
    },
    /// It failed; if its retry policy says so, another attempt follows
    Fail {
        /// The token
        token: String,
        /// The error: JSON, or plain text that becomes a string
        #[arg(long, value_name = "TEXT", value_parser = payload)]
        error: Payload,
    },
    /// It is under way: it has its heartbeat timeout once more
    Heartbeat {
        /// The token
        token: String,
        /// How far it is: JSON, or plain text that becomes a string
        #[arg(long, value_name = "JSON", default_value = "null", value_parser = payload)]
        details: Payload,
    },
}

/// What goes with a request.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// JSON, or plain text that becomes a string [default: null]
    #[arg(conflicts_with = "input_file")]
    pub(crate) input: Option<String>,
    /// A file that holds the JSON; - is standard input
    #[arg(long, value_name = "PATH")]
    pub(crate) input_file: Option<PathBuf>,
}

/// See [`OnExisting`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Existing {
    /// The start is refused
    Reject,
    /// The instance is taken as it is
    Use,
    /// One that has ended is deleted and replaced
    ReplaceEnded,
    /// One that runs is terminated, and replaced
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

fn status(text: &str) -> Result<Status, String> {
    let names = || Status::ALL.map(Status::name).join(", ");
    Status::from_name(text).ok_or_else(|| format!("it is one of {}", names()))
}

fn attribute(text: &str) -> Result<(String, Payload), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), payload(value)?))
}

/// JSON, or else plain text. What begins like JSON has to be JSON: a typing error must not become a string.
pub(crate) fn payload(text: &str) -> Result<Payload, String> {
    Payload::from_json(text).or_else(|error| {
        if text.starts_with(['{', '[', '"']) {
            Err(format!("this is not JSON: {error}"))
        } else {
            Ok(Payload::from(text))
        }
    })
}

/// A number with a unit: 500ms, 90s, 15m, 2h, 7d.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("write it as a number with a unit: 500ms, 90s, 15m, 2h, 7d".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "there is no number before the unit".to_owned())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "this is too long".to_owned())
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
