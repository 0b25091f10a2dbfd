//! Errors of runtimes and clients.

use std::fmt;
use std::time::Duration;

use perennial_core::store::{Skippable, Status, StoreError};
use perennial_core::{EventId, InstanceKey, NameError, NotOfType, PatternError, Payload};

use crate::error_code::words;
use crate::error_text::{counted, skippable, still_open, value_for};
use crate::similar::hint;

/// A `Result` with [`Error`] as its default error type.
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

/// Any error of a runtime or a client.
///
/// `Debug` prints the same text as `Display`, so that a `main` that returns this error prints a readable message.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A runtime did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A client's call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An orchestration ended without a result.
    #[error(transparent)]
    Orchestration(#[from] OrchestrationError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A store was not moved.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// Blobs cannot be read or written.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Blobs(#[source] std::io::Error),
}

/// A program that returns an error from `main`, as itself or in a box, prints it with `Debug`. The message has the code,
/// the reason and what to do, so it is printed instead of the fields.
macro_rules! debug_as_display {
    ($($error:ty),*) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_as_display!(Error, StartError, ClientError, OrchestrationError);

/// Why a runtime did not start.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The URL does not name a store that this build supports.
    #[error(
        "{prefix} {url:?}: use sqlite:PATH, postgres://HOST/DATABASE, sqlite::memory: or memory:",
        prefix = self.code().prefix()
    )]
    UnknownUrl {
        /// The URL.
        url: String,
    },
    /// The URL has options, which no store supports.
    #[error(
        "{prefix} {url:?}: options such as {options:?} are not supported; use sqlite:PATH, and the methods of the builder \
         for settings. A file whose name has a question mark is opened with `SqliteStore::open`", prefix = self.code().prefix()
    )]
    UrlOptions {
        /// The URL.
        url: String,
        /// The part after the question mark.
        options: String,
    },
    /// The store does not exist.
    #[error(
        "{prefix}: there is no file {path:?}; check the path, or start a runtime on it first, which creates it",
        prefix = self.code().prefix()
    )]
    NoStore {
        /// The path of the file.
        path: String,
    },
    /// A name, or a type of state, was registered twice.
    #[error("{prefix}: {what}; each name and version has one handler", prefix = self.code().prefix())]
    RegisteredTwice {
        /// A description of the registration.
        what: String,
    },
    /// Activities declare state that is missing.
    #[error(
        "{prefix}: {}; give it to the builder with `.state(…)`, with exactly this type", missing.join(", "),
        prefix = self.code().prefix()
    )]
    MissingState {
        /// One text per activity and type.
        missing: Vec<String>,
    },
    /// An orchestration, or a version policy, refers to something that is not registered.
    #[error("{prefix}: {}; register it, or remove the declaration", missing.join(", "), prefix = self.code().prefix())]
    Missing {
        /// One text per missing registration.
        missing: Vec<String>,
    },
    /// A version is not valid semver.
    #[error("{prefix}: orchestration {name:?} {version:?}: {problem}; use semver, such as 1.0.0", prefix = self.code().prefix())]
    Version {
        /// The name of the orchestration.
        name: String,
        /// The invalid version.
        version: String,
        /// Why it is invalid.
        problem: String,
    },
    /// A pattern is invalid.
    #[error("{prefix}: cannot register {pattern:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        source: PatternError,
    },
    /// A name is invalid.
    #[error("{prefix}: cannot register {name:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    Name {
        /// The name.
        name: String,
        /// The reason.
        source: NameError,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no tokio runtime to run activities on.
    #[error("{prefix}: start the runtime inside of one, for example under #[tokio::main]", prefix = self.code().prefix())]
    NoTokio,
}

/// Why a store was not moved. The source is as it was, and the same call can be repeated.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// One of the stores is in use, or the target is not empty, or another move has begun.
    #[error("{prefix}: {reason}", prefix = self.code().prefix())]
    Refused {
        /// What is in the way, and what to do.
        reason: String,
    },
    /// Rows of the two stores differ.
    #[error("{prefix}: {reason}", prefix = self.code().prefix())]
    Mismatch {
        /// The rows that differ.
        reason: String,
    },
    /// A URL is wrong, or its store does not exist.
    #[error(transparent)]
    Start(StartError),
    /// A store failed.
    #[error("{source} ({url})")]
    Store {
        /// The URL of the store, without its password.
        url: String,
        /// The failure.
        source: StoreError,
    },
}

/// Why a client's call failed.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No instance has this id.
    #[error(
        "{prefix}: there is no instance {id:?}; check the id and the store, it may have been deleted",
        prefix = self.code().prefix()
    )]
    NotFound {
        /// The id of the instance.
        id: String,
    },
    /// The client is [bound](crate::Client::bound_to) to an instance that no longer has this id.
    #[error(
        "{prefix}: the id {id:?} belongs to another instance than {key}, which was deleted; nothing was done",
        prefix = self.code().prefix()
    )]
    AnotherInstance {
        /// The id of the request.
        id: String,
        /// The key that the client is bound to.
        key: InstanceKey,
    },
    /// The id is taken.
    #[error(
        "{prefix}: instance {id:?} is {}; choose another id, or use the existing instance", .status.name(),
        prefix = self.code().prefix()
    )]
    AlreadyExists {
        /// The id of the instance.
        id: String,
        /// The status of the existing instance.
        status: Status,
    },
    /// The instance has ended.
    #[error(
        "{prefix}: instance {id:?} has ended; the request had no effect. For more work, start another instance",
        prefix = self.code().prefix()
    )]
    Ended {
        /// The id of the instance.
        id: String,
    },
    /// An update was accepted, but its execution ended before the handler returned.
    #[error(
        "{prefix}: instance {id:?} accepted the update, but ended or continued as new before its handler returned; \
         the effects of the handler up to then are recorded", prefix = self.code().prefix())]
    Unanswered {
        /// The id of the instance.
        id: String,
    },
    /// The input is not of the type that the orchestration takes.
    #[error(
        "{prefix}: orchestration {name:?} takes a {type_name}, but the input of instance {id:?} cannot be \
         decoded as one: {problem}; nothing was started", prefix = self.code().prefix())]
    BadInput {
        /// The id of the instance.
        id: String,
        /// The name of the orchestration.
        name: String,
        /// The type that it takes.
        type_name: &'static str,
        /// Why it cannot be decoded.
        problem: String,
    },
    /// An id or a name is invalid.
    #[error("{prefix}: {what} {name:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    InvalidName {
        /// The kind of the name.
        what: &'static str,
        /// The name.
        name: String,
        /// The reason.
        source: NameError,
    },
    /// No orchestration of this name is registered.
    #[error("{}: there is no orchestration {name:?} here{}; register it before starting it", self.code().prefix(), hint(similar))]
    NotRegistered {
        /// The name.
        name: String,
        /// A registered name that is similar.
        similar: Option<String>,
    },
    /// The requested version is not valid semver.
    #[error(
        "{prefix}: instance {id:?} cannot be of version {version:?}: {problem}; use semver, such as 1.0.0",
        prefix = self.code().prefix()
    )]
    BadVersion {
        /// The id of the instance.
        id: String,
        /// The invalid version.
        version: String,
        /// Why it is invalid.
        problem: String,
    },
    /// A payload of the instance is encoded, and this client lacks the codec.
    #[error(
        "{prefix}: the payload of instance {id:?} is encoded ({marker}); give the client the \
         codecs of the runtime", prefix = self.code().prefix())]
    Encoded {
        /// The id of the instance.
        id: String,
        /// Names the codecs and the size.
        marker: Payload,
    },
    /// A payload is too large.
    #[error(
        "{prefix}: the payload for instance {id:?} has {bytes} bytes, {limit} are allowed; \
             keep large data elsewhere and pass a reference", prefix = self.code().prefix())]
    TooLarge {
        /// The id of the instance.
        id: String,
        /// Its size.
        bytes: usize,
        /// The largest allowed size.
        limit: usize,
    },
    /// The instance has too many unread events.
    #[error(
        "{prefix}: instance {id:?} has too many unread events{}; try again when it has read some, and look for \
         misspelled names with `perennial show`",
        counted(*.unread), prefix = self.code().prefix()
    )]
    Full {
        /// The id of the instance.
        id: String,
        /// The number of unread events; 0 if it is not known, because another process counts them.
        unread: usize,
    },
    /// The instance is not blocked, or is paused.
    #[error(
        "{prefix}: instance {id:?} has nothing to retry; it continues automatically, or if it is paused, when it \
         is resumed", prefix = self.code().prefix())]
    NotBlocked {
        /// The id of the instance.
        id: String,
    },
    /// The activity does not wait for another attempt: it runs, is queued, has ended, or is not of this execution.
    #[error(
        "{prefix}: activity {event} of instance {id:?} does not wait for another attempt; nothing was done",
        prefix = self.code().prefix())]
    NotWaiting {
        /// The id of the instance.
        id: String,
        /// The event that scheduled the activity.
        event: EventId,
    },
    /// The instance is not blocked by the event or message that was to be skipped.
    #[error("{prefix}: {}", skippable(.id, *.blocking), prefix = self.code().prefix())]
    NotBlockedBy {
        /// The id of the instance.
        id: String,
        /// The event or message that blocks the instance and can be skipped, if any.
        blocking: Option<Skippable>,
    },
    /// The instance cannot be reset as requested.
    #[error("{prefix}: instance {id:?} was not changed: {reason}", prefix = self.code().prefix())]
    NotReset {
        /// The id of the instance.
        id: String,
        /// The reason.
        reason: String,
    },
    /// The instance is paused together with its orchestration.
    #[error(
        "{prefix}: instance {id:?} is paused together with its orchestration {name:?}; resume the orchestration",
        prefix = self.code().prefix()
    )]
    OrchestrationPaused {
        /// The id of the instance.
        id: String,
        /// The name of the orchestration.
        name: String,
    },
    /// The content of the event is not of the type that the waiting code takes.
    #[error(
        "{prefix}: instance {id:?} takes a {type_name} with event {event:?}, but the content cannot be decoded as \
         one: {problem}; nothing was recorded", prefix = self.code().prefix())]
    BadEvent {
        /// The id of the instance.
        id: String,
        /// The name of the event.
        event: String,
        /// The type that the code takes.
        type_name: &'static str,
        /// Why it cannot be decoded.
        problem: String,
    },
    /// The instance has no such execution, or its history was deleted.
    #[error(
        "{prefix}: instance {id:?} has no recorded execution {execution}; the current one is \
         {current}, and older ones may have been deleted", prefix = self.code().prefix())]
    NoExecution {
        /// The id of the instance.
        id: String,
        /// The requested execution.
        execution: u64,
        /// The current execution.
        current: u64,
    },
    /// The store failed.
    #[error("{prefix}: instance {id:?}: {}", words(source.code(), source), prefix = self.code().prefix())]
    Store {
        /// The id of the instance.
        id: String,
        /// The error of the store.
        source: StoreError,
    },
    /// It is unknown whether the request was carried out.
    #[error(
        "{prefix}: the request to instance {id:?} may or may not have been carried out: {reason}", prefix = self.code().prefix())]
    Unknown {
        /// The id of the instance.
        id: String,
        /// The cause.
        reason: String,
    },
    /// The runtime is stopping or has stopped.
    #[error(
        "{prefix}: the runtime accepts no more requests: {reason}; start a runtime, and use its client",
        prefix = self.code().prefix()
    )]
    Stopped {
        /// The reason.
        reason: String,
    },
    /// A value cannot be written as JSON.
    #[error("{prefix}: {value} cannot be written as JSON: {problem}", value = value_for(id), prefix = self.code().prefix())]
    Unwritable {
        /// The id of the instance; empty if the value is that of a filter.
        id: String,
        /// The reason.
        problem: String,
    },
    /// A result, answer or published status is not of the type that the caller expects.
    #[error(
        "{prefix}: the payload that instance {id:?} returned cannot be decoded as {expected}: {problem}; use the type that \
         its code has, or `Payload`", prefix = self.code().prefix())]
    Unreadable {
        /// The id of the instance.
        id: String,
        /// The type that was expected.
        expected: &'static str,
        /// Why it cannot be decoded, without quoting the value.
        problem: String,
    },
    /// The instance has not ended.
    #[error("{prefix}: instance {id:?} is {}; wait for it, or terminate it first", .status.name(), prefix = self.code().prefix())]
    NotEnded {
        /// The id of the instance.
        id: String,
        /// Its current status.
        status: Status,
    },
    /// An event or update with this key was taken before, and its outcome has been deleted.
    #[error(
        "{prefix}: instance {id:?} took an event or update with this key before; the execution that took \
         it has been deleted, with the outcome. The request was not carried out again", prefix = self.code().prefix())]
    OutcomeDeleted {
        /// The id of the instance.
        id: String,
    },
    /// A query or update was refused. Nothing was recorded.
    #[error("{prefix}: instance {id:?}: {reason}", prefix = self.code().prefix())]
    Refused {
        /// The id of the instance.
        id: String,
        /// The reason.
        reason: String,
        /// The error of the code, if it was the code that refused.
        error: Option<Payload>,
    },
    /// The handler of an accepted update returned an error.
    #[error(
        "{prefix}: instance {id:?} accepted the update, and its handler returned: {}", .error.to_text(),
        prefix = self.code().prefix()
    )]
    UpdateFailed {
        /// The id of the instance.
        id: String,
        /// The error.
        error: Payload,
    },
    /// The instance did not end in time.
    #[error(
        "{prefix}: instance {id:?} did not end within {limit:?}{state}",
        prefix = self.code().prefix(),
        state = still_open(blocked.as_deref())
    )]
    Elapsed {
        /// The id of the instance.
        id: String,
        /// How long the caller waited.
        limit: Duration,
        /// Why the instance is blocked or paused, if it was when the time was up.
        blocked: Option<String>,
    },
    /// The instance is blocked.
    #[error("{prefix}: instance {id:?} cannot respond until the cause is fixed: {reason}", prefix = self.code().prefix())]
    Blocked {
        /// The id of the instance.
        id: String,
        /// The stable code of the cause.
        code: String,
        /// The cause.
        reason: String,
    },
    /// No runtime took a query or update in time. Nothing was recorded.
    #[error(
        "{prefix}: no runtime took the request to instance {id:?} within {patience:?}; is one running on \
         this store?", prefix = self.code().prefix())]
    NotAnswered {
        /// The id of the instance.
        id: String,
        /// How long the client waited.
        patience: std::time::Duration,
    },
    /// A token is malformed, or was never handed out.
    #[error("{prefix}: {problem}; use the token exactly as the activity handed it out", prefix = self.code().prefix())]
    BadToken {
        /// Why it is invalid.
        problem: String,
    },
    /// The attempt that handed out the token has ended.
    #[error(
        "{prefix}: attempt {attempt} of activity {event} of instance {id:?} failed or timed out, and \
         attempt {current} has replaced it; nothing was done. The new attempt hands out its own token",
         prefix = self.code().prefix()
     )]
    AttemptOver {
        /// The id of the instance.
        id: String,
        /// The event that scheduled the activity.
        event: EventId,
        /// The attempt of the token.
        attempt: u32,
        /// The current attempt.
        current: u32,
    },
    /// The activity already has a result.
    #[error(
        "{prefix}: activity {event} of instance {id:?} has already ended with another result; nothing was done. \
         `perennial show` displays it", prefix = self.code().prefix())]
    ActivityOver {
        /// The id of the instance.
        id: String,
        /// The event that scheduled the activity.
        event: EventId,
    },
    /// The activity was cancelled: its result is no longer needed.
    #[error(
        "{prefix}: instance {id:?} no longer waits for activity {event}; work for it can stop", prefix = self.code().prefix())]
    ActivityCancelled {
        /// The id of the instance.
        id: String,
        /// The event that scheduled the activity.
        event: EventId,
    },
    /// This client does not support the call.
    #[error("{prefix}: {what}", prefix = self.code().prefix())]
    NotHere {
        /// The call, and what to do instead.
        what: &'static str,
    },
}

impl ClientError {
    pub(crate) fn unreadable(id: &str, problem: &NotOfType) -> ClientError {
        ClientError::Unreadable { id: id.to_owned(), expected: problem.type_name, problem: problem.reason() }
    }

    pub(crate) fn unwritable(id: &str, problem: impl ToString) -> ClientError {
        ClientError::Unwritable { id: id.to_owned(), problem: problem.to_string() }
    }
}

/// Why an orchestration ended without a result.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OrchestrationError {
    /// The orchestration returned an error.
    #[error("{prefix}: instance {id:?} returned an error: {}", .error.to_text(), prefix = self.code().prefix())]
    Failed {
        /// The id of the instance.
        id: String,
        /// The error.
        error: Payload,
    },
    /// The instance was cancelled.
    #[error("{prefix}: instance {id:?}: {reason}", prefix = self.code().prefix())]
    Cancelled {
        /// The id of the instance.
        id: String,
        /// The reason.
        reason: String,
        /// The output, if the code ended itself with [`end_cancelled`](crate::OrchestrationContext::end_cancelled).
        output: Option<Payload>,
    },
    /// The instance was terminated.
    #[error("{prefix}: instance {id:?}: {reason}", prefix = self.code().prefix())]
    Terminated {
        /// The id of the instance.
        id: String,
        /// The reason.
        reason: String,
    },
}
