//! What callers are told when something cannot be done.

use std::fmt;
use std::time::Duration;

use perennial_core::store::{Skippable, Status, StoreError};
use perennial_core::{EventId, NameError, NotOfType, PatternError, Payload};

use crate::error_code::words;

/// What gives a value or an [`Error`].
///
/// ```
/// use perennial::prelude::*;
///
/// #[tokio::main]
/// async fn main() -> perennial::Result<()> {
///     let runtime = Runtime::open("memory:").start().await?;
///     runtime.shutdown().await
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that can go wrong with a runtime and its clients.
///
/// A `main` that returns it prints what it says: its `Debug` is its `Display`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A runtime did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A client's call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An orchestration gave no result.
    #[error(transparent)]
    Orchestration(#[from] OrchestrationError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Blobs cannot be read or written.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Blobs(#[source] std::io::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a runtime did not start.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The URL names no store that this build knows.
    #[error("{prefix} {url:?}: use sqlite:PATH, sqlite::memory: or memory:", prefix = self.code().prefix())]
    UnknownUrl {
        /// The URL.
        url: String,
    },
    /// The URL has options, which no store takes.
    #[error(
        "{prefix} {url:?}: options such as {options:?} are not supported; use sqlite:PATH, and the methods of the builder \
         for settings. A file whose name has a instance_call mark is opened with `SqliteStore::open`", prefix = self.code().prefix()
    )]
    UrlOptions {
        /// The URL.
        url: String,
        /// What comes after the question mark.
        options: String,
    },
    /// There is no store to look into.
    #[error(
        "{prefix}: there is no file {path:?}; check the path, or start a runtime on it first, which makes it", prefix = self.code().prefix())]
    NoStore {
        /// The file.
        path: String,
    },
    /// The same thing was registered twice.
    #[error("{prefix}: {what}; each name and version has one handler", prefix = self.code().prefix())]
    RegisteredTwice {
        /// What.
        what: String,
    },
    /// Activities declare state that was not given.
    #[error(
        "{prefix}: {}; give it to the builder with `.state(…)`, with exactly this type", missing.join(", "),
        prefix = self.code().prefix()
    )]
    MissingState {
        /// Each activity with a type, in words.
        missing: Vec<String>,
    },
    /// Something is declared to be used that is not registered: by an orchestration, or by the policy of its versions.
    #[error(
        "{prefix}: {}; register it, or take the declaration back", missing.join(", "), prefix = self.code().prefix()
    )]
    Missing {
        /// Each orchestration with what it uses, in words.
        missing: Vec<String>,
    },
    /// A version is not one.
    #[error("{prefix}: orchestration {name:?} {version:?}: {problem}; use semver, such as 1.0.0", prefix = self.code().prefix())]
    Version {
        /// The orchestration.
        name: String,
        /// What was given.
        version: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A pattern cannot be used.
    #[error("{prefix}: cannot register {pattern:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why.
        source: PatternError,
    },
    /// A name cannot be used.
    #[error("{prefix}: cannot register {name:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    Name {
        /// The name.
        name: String,
        /// Why.
        source: NameError,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no tokio runtime to run activities on.
    #[error("{prefix}: start the runtime inside of one, for instance under #[tokio::main]", prefix = self.code().prefix())]
    NoTokio,
}

/// Why a client's call failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No instance has this id.
    #[error(
        "{prefix}: there is no instance {id:?}; check the id and the store, it may have been deleted", prefix = self.code().prefix())]
    NotFound {
        /// The id.
        id: String,
    },
    /// The id is taken.
    #[error("{prefix}: instance {id:?} is {}; choose another id, or use the one that is there", .status.name(), prefix = self.code().prefix())]
    AlreadyExists {
        /// The id.
        id: String,
        /// Where that instance stands.
        status: Status,
    },
    /// The instance has ended.
    #[error(
        "{prefix}: instance {id:?} has ended; the request had no effect. For more work, start another", prefix = self.code().prefix())]
    Ended {
        /// The id.
        id: String,
    },
    /// An update was accepted, and its execution ended before it answered.
    #[error(
        "{prefix}: instance {id:?} accepted the update, and ended or continued as new before it answered; what \
         the update had done until then is recorded", prefix = self.code().prefix())]
    Unanswered {
        /// The id.
        id: String,
    },
    /// The code of the orchestration cannot read the input.
    #[error(
        "{prefix}: orchestration {name:?} takes a {type_name}, and the input of instance {id:?} cannot be read as \
         one: {problem}; nothing was started", prefix = self.code().prefix())]
    BadInput {
        /// The id.
        id: String,
        /// The orchestration.
        name: String,
        /// What it takes.
        type_name: &'static str,
        /// Why that cannot be read.
        problem: String,
    },
    /// The id or a name cannot be used.
    #[error("{prefix}: {what} {name:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    InvalidName {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
        /// Why.
        source: NameError,
    },
    /// No orchestration of this name is registered.
    #[error(
        "{prefix}: there is no orchestration {name:?} here; register it before starting it", prefix = self.code().prefix())]
    NotRegistered {
        /// The name.
        name: String,
    },
    /// The version that was asked for is not one.
    #[error(
        "{prefix}: instance {id:?} cannot be of version {version:?}: {problem}; use semver, such as 1.0.0", prefix = self.code().prefix())]
    BadVersion {
        /// The id.
        id: String,
        /// What was given.
        version: String,
        /// What is wrong with it.
        problem: String,
    },
    /// What the instance returned or published is encoded, and this client does not decode it.
    #[error(
        "{prefix}: what instance {id:?} says is encoded ({marker}); give the client the \
         codecs of the runtime", prefix = self.code().prefix())]
    Encoded {
        /// The id.
        id: String,
        /// The codecs and the size.
        marker: Payload,
    },
    /// A payload is too large.
    #[error(
        "{prefix}: the payload for instance {id:?} has {bytes} bytes, {limit} are allowed; \
             keep large data elsewhere and pass a reference", prefix = self.code().prefix())]
    TooLarge {
        /// The id.
        id: String,
        /// How many bytes it has.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The instance has too many unread events.
    #[error("{prefix}: instance {id:?} has {unread} unread events; try again when it has read some", prefix = self.code().prefix())]
    Full {
        /// The id.
        id: String,
        /// How many.
        unread: usize,
    },
    /// The instance is not blocked, or paused.
    #[error(
        "{prefix}: instance {id:?} has nothing to retry; it goes on by itself, or if it is paused, when it is \
         resumed", prefix = self.code().prefix())]
    NotBlocked {
        /// The id.
        id: String,
    },
    /// The instance is blocked, but not by what was to be skipped.
    #[error("{prefix}: {}", skippable(.id, *.blocking), prefix = self.code().prefix())]
    NotBlockedBy {
        /// The id.
        id: String,
        /// What can be skipped, if that blocks the instance.
        blocking: Option<Skippable>,
    },
    /// The instance cannot be reset as it was asked for.
    #[error("{prefix}: instance {id:?} is as it was: {reason}", prefix = self.code().prefix())]
    NotReset {
        /// The id.
        id: String,
        /// Why.
        reason: String,
    },
    /// The instance is paused together with its orchestration.
    #[error(
        "{prefix}: instance {id:?} goes on when its orchestration {name:?} does; resume that", prefix = self.code().prefix())]
    OrchestrationPaused {
        /// The id.
        id: String,
        /// The orchestration.
        name: String,
    },
    /// The code that waits for the event cannot read what came with it.
    #[error(
        "{prefix}: instance {id:?} takes a {type_name} with event {event:?}, and what was sent cannot be read as \
         one: {problem}; nothing was recorded", prefix = self.code().prefix())]
    BadEvent {
        /// The id.
        id: String,
        /// The event's name.
        event: String,
        /// What the code takes.
        type_name: &'static str,
        /// Why that cannot be read.
        problem: String,
    },
    /// The instance has no such execution, or its history was deleted.
    #[error(
        "{prefix}: instance {id:?} has nothing recorded of execution {execution}; the current one is \
         {current}, and older ones may have been deleted", prefix = self.code().prefix())]
    NoExecution {
        /// The id.
        id: String,
        /// What was asked for.
        execution: u64,
        /// The current execution.
        current: u64,
    },
    /// The store could not be asked.
    #[error("{prefix}: instance {id:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    Store {
        /// The id.
        id: String,
        /// What the store said.
        source: StoreError,
    },
    /// Whether the request was carried out is not known.
    #[error(
        "{prefix}: the request to instance {id:?} may or may not have been carried out: {reason}", prefix = self.code().prefix())]
    Unknown {
        /// The id.
        id: String,
        /// What happened.
        reason: String,
    },
    /// The runtime is stopping or has stopped.
    #[error("{prefix}: the runtime takes no more requests: {reason}; start one, and ask its client", prefix = self.code().prefix())]
    Stopped {
        /// Why.
        reason: String,
    },
    /// A value cannot be written as JSON.
    #[error("{prefix}: what is for instance {id:?} cannot be written as JSON: {problem}", prefix = self.code().prefix())]
    Unwritable {
        /// The id.
        id: String,
        /// Why.
        problem: String,
    },
    /// What an instance returned or answered is not of the type that the caller expects.
    #[error(
        "{prefix}: what instance {id:?} returned, answered or published cannot be read as {expected}: {problem}; ask for the type that its code \
         has, or for a `Payload`", prefix = self.code().prefix())]
    Unreadable {
        /// The id.
        id: String,
        /// The type that was expected.
        expected: &'static str,
        /// Why it cannot be read as that, without quoting it.
        problem: String,
    },
    /// The instance has not ended.
    #[error("{prefix}: instance {id:?} is {}; wait for it, or terminate it first", .status.name(), prefix = self.code().prefix())]
    NotEnded {
        /// The id.
        id: String,
        /// Where it stands.
        status: Status,
    },
    /// An event or update with this key was taken before, and what came of it is not recorded any more.
    #[error(
        "{prefix}: instance {id:?} took an event or update with this key before; the execution that took \
         it has been deleted, with its outcome. It was not done again", prefix = self.code().prefix())]
    OutcomeDeleted {
        /// The id.
        id: String,
    },
    /// A query or update was refused, and left no trace.
    #[error("{prefix}: instance {id:?}: {reason}", prefix = self.code().prefix())]
    Refused {
        /// The id.
        id: String,
        /// Why.
        reason: String,
        /// What the code said, if it did.
        error: Option<Payload>,
    },
    /// The handler of an accepted update returned an error.
    #[error(
        "{prefix}: instance {id:?} accepted it, and its handler returned: {}", .error.to_text(), prefix = self.code().prefix())]
    UpdateFailed {
        /// The id.
        id: String,
        /// The error.
        error: Payload,
    },
    /// The instance did not end in time.
    #[error(
        "{prefix}: instance {id:?} did not end within {limit:?}, and goes on; `Client::explain` tells what it waits for",
        prefix = self.code().prefix()
    )]
    Elapsed {
        /// The instance that was waited for.
        id: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The instance is blocked and cannot answer.
    #[error("{prefix}: instance {id:?} cannot answer until it is cured: {reason}", prefix = self.code().prefix())]
    Blocked {
        /// The id.
        id: String,
        /// The stable code of what blocks it.
        code: String,
        /// What blocks it.
        reason: String,
    },
    /// Nobody took a query or update in time. It left no trace.
    #[error(
        "{prefix}: no runtime took what was asked of instance {id:?} within {patience:?}; is one running on \
         this store?", prefix = self.code().prefix())]
    NotAnswered {
        /// The id.
        id: String,
        /// How long was waited.
        patience: std::time::Duration,
    },
    /// A token is not one, or was never handed out.
    #[error("{prefix}: {problem}; use the token as the activity handed it out", prefix = self.code().prefix())]
    BadToken {
        /// What is wrong with it.
        problem: String,
    },
    /// The attempt that the token was handed out by is over.
    #[error(
        "{prefix}: attempt {attempt} of activity {event} of instance {id:?} failed or ran out of time, and \
         attempt {current} has taken its place; nothing was done. That one hands out a token of its own", prefix = self.code().prefix())]
    AttemptOver {
        /// The instance.
        id: String,
        /// The activity.
        event: EventId,
        /// The attempt that the token is of.
        attempt: u32,
        /// The attempt that counts now.
        current: u32,
    },
    /// The activity has its result already.
    #[error(
        "{prefix}: activity {event} of instance {id:?} has ended before, in another way; nothing was done. \
         `perennial show` tells how", prefix = self.code().prefix())]
    ActivityOver {
        /// The instance.
        id: String,
        /// The activity.
        event: EventId,
    },
    /// Nobody waits for the activity any more.
    #[error(
        "{prefix}: instance {id:?} waits for activity {event} no more; what is done for it can stop", prefix = self.code().prefix())]
    ActivityCancelled {
        /// The instance.
        id: String,
        /// The activity.
        event: EventId,
    },
    /// This client cannot do that.
    #[error("{prefix}: {what}", prefix = self.code().prefix())]
    NotHere {
        /// What, and what to do instead.
        what: &'static str,
    },
}

/// What can be skipped instead.
fn skippable(id: &str, blocking: Option<Skippable>) -> String {
    match blocking {
        Some(what) => format!("what blocks instance {id:?} is {what}; skip that one"),
        None => format!(
            "nothing that can be skipped blocks instance {id:?}; its status says what does, and `perennial doctor` how to cure it"
        ),
    }
}

impl ClientError {
    /// What came of something is not of the type that the caller expects.
    pub(crate) fn unreadable(id: &str, problem: &NotOfType) -> ClientError {
        ClientError::Unreadable { id: id.to_owned(), expected: problem.type_name, problem: problem.reason() }
    }

    /// What cannot be written is not sent.
    pub(crate) fn unwritable(id: &str, problem: impl ToString) -> ClientError {
        ClientError::Unwritable { id: id.to_owned(), problem: problem.to_string() }
    }
}

/// Why an orchestration gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OrchestrationError {
    /// It returned an error.
    #[error("{prefix}: instance {id:?} returned an error: {}", .error.to_text(), prefix = self.code().prefix())]
    Failed {
        /// The id.
        id: String,
        /// The error.
        error: Payload,
    },
    /// It was cancelled.
    #[error("{prefix}: instance {id:?}: {reason}", prefix = self.code().prefix())]
    Cancelled {
        /// The id.
        id: String,
        /// Why.
        reason: String,
        /// What its code left behind when it ended as cancelled by itself.
        output: Option<Payload>,
    },
    /// It was ended from outside.
    #[error("{prefix}: instance {id:?}: {reason}", prefix = self.code().prefix())]
    Terminated {
        /// The id.
        id: String,
        /// Why.
        reason: String,
    },
}
