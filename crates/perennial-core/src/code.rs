//! The error codes: one table that defines prefixes, titles and remedies.
//!
//! The numbers of a group have no gaps, and a number is never reused for another failure. `docs/src/errors.md` has a
//! section for each code, under the same title; a test compares the two.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Adds `is_retryable()` and `remedy()` to error types that have a `code()`.
#[doc(hidden)]
#[macro_export]
macro_rules! error_model {
    (generic: $($type:ident),* $(,)?) => {$($crate::error_model!(@ [E] $type<E>);)*};
    (@ [$($parameter:ident)?] $type:ty) => {
        impl$(<$parameter>)? $type {
            /// Whether the same call may succeed later without any change. See
            /// [`ErrorCode::is_retryable`]($crate::ErrorCode::is_retryable).
            pub fn is_retryable(&self) -> bool {
                self.code().is_retryable()
            }

            /// What to do about it, in one sentence.
            pub fn remedy(&self) -> &'static str {
                self.code().remedy()
            }
        }
    };
    ($($type:ty),* $(,)?) => {$($crate::error_model!(@ [] $type);)*};
}

/// Defines [`ErrorCode`] from its table. `retry` marks failures that may pass without any change, `final` all others.
macro_rules! error_codes {
    ($($variant:ident $number:literal $title:literal $kind:ident $remedy:literal;)*) => {
        /// The stable code of an error, such as `PER-0605`.
        ///
        /// Every error of this library has one. The text of an error may change with a release; its code does not. The
        /// guide's page "Errors by code" explains each.
        ///
        /// ```
        /// use perennial_core::ErrorCode;
        ///
        /// let code: ErrorCode = "PER-0605".parse()?;
        /// assert_eq!(code, ErrorCode::NotFound);
        /// assert_eq!((code.as_str(), code.title()), ("PER-0605", "not found"));
        /// assert_eq!(code.remedy(), "check the id and the store's URL; the instance may have been deleted");
        /// assert!(!code.is_retryable());
        /// # Ok::<(), perennial_core::UnknownErrorCode>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`PER-", $number, "`: ", $title, ".")]
                $variant,
            )*
        }

        impl ErrorCode {
            /// All codes, ordered by number.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant),*];

            /// The code as text: `PER-0605`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => concat!("PER-", $number),)*
                }
            }

            /// A short name of the failure: `not found`.
            pub const fn title(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $title,)*
                }
            }

            /// The beginning of error messages, the code and its title: `PER-0605 not found`.
            pub const fn prefix(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => concat!("PER-", $number, " ", $title),)*
                }
            }

            /// What to do about the failure, in one sentence.
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $remedy,)*
                }
            }

            /// Whether the same call may succeed later without any change.
            ///
            /// It is `false` if it is not known whether the call took effect: repeating such a call is safe only if it
            /// has an id or a key that the receiver recognises.
            pub const fn is_retryable(self) -> bool {
                match self {
                    $(ErrorCode::$variant => error_codes!(@ $kind),)*
                }
            }
        }
    };
    (@ retry) => { true };
    (@ final) => { false };
}

error_codes! {
    CorruptHistory "0101" "corrupt history" final
        "restore the store from a backup, or terminate the instance";
    NewerEngine "0102" "newer engine" final
        "run the newer version of Perennial that wrote this";
    PayloadMismatch "0103" "payload does not decode" final
        "make the type read what is recorded (#[serde(default)], #[serde(alias)]), or give the changed code a new version";
    PayloadUndecodable "0104" "payload cannot be decoded" final
        "configure the codec, the key or the blob store that the payload was written with";
    Codec "0105" "codec failed" final
        "check what the codec needs: its key, its blobs, its service";

    Panic "0201" "panic" final
        "fix the code and deploy it; return an error for what may fail";
    NonDurableAwait "0202" "non-durable await" final
        "await only what the context returns, and do everything else in an activity";
    Nondeterminism "0203" "nondeterminism" final
        "roll back, put the change behind ctx.patched, or give the code a new version";
    Limit "0204" "limit" final
        "pass references instead of large values, schedule fewer things per turn, or continue as new earlier";
    Deadline "0205" "deadline" final
        "move long computations and blocking calls into activities, then retry the instance";
    Misuse "0206" "misuse" final
        "do as the message says";
    QueryRefused "0207" "query" final
        "register the handler with on_query before the first await, and check the spelling";
    UpdateRefused "0208" "update" final
        "register the handler with on_update before the first await, and use each key for one update only";

    MissingCode "0301" "missing code" final
        "register the orchestration at the version that the instance is pinned to, and start the process again";
    TakesProcessDown "0302" "takes the process down" final
        "fix what ends the process, deploy, then retry the instance";
    TurnRefused "0303" "the store refused the turn" final
        "act on the reason in the message, then retry the instance";
    ClockFarOff "0304" "clock far off" final
        "set this machine's clock, for example with NTP";
    PayloadUnencodable "0305" "payload cannot be encoded" retry
        "check what the codec needs; the turn is tried again, a client's call is repeated by its caller";
    ChildIdTaken "0306" "child id taken" final
        "choose ids that contain the parent's, or let schedule_sub_orchestration derive them";
    ChildIdRefused "0307" "child id refused" final
        "choose a shorter id without control characters";
    UnreadableMessage "0308" "unreadable message" final
        "run the newer version of Perennial that sent it, or skip the message";
    Paused "0309" "paused" final
        "resume the instance or its orchestration";

    ResultTooLarge "0401" "too large" final
        "store the data elsewhere and return a reference to it";
    ActivityTimeout "0402" "timeout" retry
        "raise the timeout, or find out why the activity is slow or silent";
    ActivityCancelled "0403" "cancelled" final
        "nothing: the orchestration dropped the activity's future or was cancelled";
    Poisoned "0404" "poisoned" final
        "find out what in the activity ends the process: memory, stack or native code";
    UnwritableResult "0405" "unwritable" final
        "return a type that serde_json can write";
    BadActivityInput "0406" "bad input" final
        "check the caller; call the activity by its function instead of by name";
    NoState "0407" "no state" final
        "declare the type in the attribute of the activity: #[activity(state(Pool))]";
    UnwritableDetails "0408" "unwritable details" final
        "report something that serde_json can write";
    NotServed "0409" "not served here" retry
        "register the activity on a node, or serve its tag";
    NoToken "0410" "no token" final
        "schedule the activity by its function, or add .completes_later() to a call by name";
    ActivityFailed "0411" "activity failed" final
        "handle the activity's own error";
    ActivityBroken "0412" "activity broken" final
        "fix the panic in the activity, or let its error type read what is recorded";
    ChildFailed "0413" "child failed" final
        "handle the sub-orchestration's own error";
    ChildCancelled "0414" "child cancelled" final
        "nothing: somebody cancelled the sub-orchestration, for the reason in the message";
    ChildTerminated "0415" "child terminated" final
        "nothing: somebody terminated the sub-orchestration, or its time was up";
    ChildNotStarted "0416" "child not started" final
        "act on the reason in the message";
    Elapsed "0417" "time limit elapsed" final
        "handle the elapsed time limit, or raise it";

    StoreUnavailable "0501" "store unavailable" retry
        "wait; if it lasts, check who holds the store and whether its disk is overloaded";
    StoreOutcomeUnknown "0502" "outcome unknown" final
        "ask again by id or key: the engine finds out before it goes on";
    StoreFailed "0503" "store failed" final
        "make room or replace the disk, and start the process again";
    SessionGone "0504" "session gone" final
        "nothing; if it happens often, find out what pauses the process, or raise the lease";
    StoreClosed "0505" "store closed" final
        "keep the Runtime for as long as its clients are used";
    CannotOpenStore "0506" "cannot open the store" final
        "act on the message: path, permissions, file system or version";
    StoreInUse "0507" "store in use" final
        "stop the runtime that owns the store, or use Client::open beside it";
    CorruptRow "0508" "corrupt row" final
        "keep a copy of the store; restore it from a backup, or delete the instance with force";
    BatchRefused "0509" "batch refused" final
        "nothing: the engine splits the batch until it finds the turn at fault, and blocks that instance";
    BlobStoreFailed "0510" "blob store failed" final
        "check the directory of blobs and its permissions";

    InvalidName "0601" "invalid name" final
        "choose 1 to 200 bytes of UTF-8 without control characters and without ::";
    UnknownStore "0602" "unknown store" final
        "use sqlite:PATH, postgres://…, sqlite::memory: or memory:, and check the features of this build";
    RegisteredTwice "0603" "registered twice" final
        "rename one of the two, or give it another version";
    NoTokio "0604" "no tokio runtime" final
        "call start() inside a tokio runtime, for example under #[tokio::main]";
    NotFound "0605" "not found" final
        "check the id and the store's URL; the instance may have been deleted";
    AlreadyExists "0606" "already exists" final
        "use the instance that exists, choose another id, or set StartOptions::on_existing";
    Ended "0607" "ended" final
        "start another instance if there is more to do";
    NotRegistered "0608" "not registered" final
        "register it, and check the spelling";
    TooLarge "0609" "too large" final
        "keep large data elsewhere and pass a reference to it";
    Full "0610" "full" retry
        "try again when the instance has read some of its events";
    NotBlocked "0611" "not blocked" final
        "nothing; if the instance is paused, resume it";
    OutcomeUnknown "0612" "outcome unknown" final
        "ask again: starts are safe by their id, events and updates by a key";
    Stopped "0613" "stopped" final
        "start a runtime, and ask its client";
    NotHere "0614" "not here" final
        "do as the message says";
    Failed "0615" "failed" final
        "look at the error: it is the orchestration's result";
    Cancelled "0616" "cancelled" final
        "nothing: somebody cancelled the instance, for the reason in the message";
    Terminated "0617" "terminated" final
        "nothing: somebody terminated the instance, or its time was up";
    OrchestrationPaused "0618" "orchestration paused" final
        "resume the orchestration";
    BadVersion "0619" "bad version" final
        "write three numbers, such as 1.0.0";
    NotEnded "0620" "not ended" final
        "wait for the instance, terminate it first, or delete it with force";
    Refused "0621" "refused" final
        "look at the error that the instance's code returned";
    UpdateFailed "0622" "update failed" final
        "look at the error that the handler returned";
    Blocked "0623" "blocked" final
        "fix what blocks the instance, then ask again";
    NotAnswered "0624" "not answered" retry
        "check that a runtime is running on this store";
    MissingState "0625" "missing state" final
        "give the state to the builder with .state(…), with exactly the type that the activity declares";
    Unwritable "0626" "unwritable" final
        "pass a type that serde_json can write";
    NoStore "0627" "no store" final
        "check the path, or start a runtime on it first, which creates the store";
    Unreadable "0628" "unreadable" final
        "ask for the type that the code returns, or for a Payload";
    Unanswered "0629" "unanswered" final
        "look at the history for what was done; in the code, await handlers_idle() before returning";
    BadInput "0630" "bad input" final
        "pass what the code takes, or start the function itself";
    BadEvent "0631" "bad event" final
        "send what the code takes, or raise a typed event instead of a name";
    NotBlockedBy "0632" "not blocked by that" final
        "skip what the error names; if it names nothing, look at what blocks the instance";
    NoExecution "0633" "no such execution" final
        "ask for one of the executions that are kept";
    OutcomeDeleted "0634" "outcome deleted" final
        "keep more executions (RuntimeOptions::keep_executions), or ask for the effect with a query";
    BadToken "0635" "bad token" final
        "use the whole text of ctx.completion_token(), unchanged";
    AttemptOver "0636" "attempt over" final
        "use the token of the current attempt; give the activity a longer timeout if people need longer";
    ActivityOver "0637" "activity over" final
        "look at the history for how the activity ended";
    ActivityAbandoned "0638" "activity cancelled" final
        "stop what is being done for the activity";
    NotReset "0639" "not reset" final
        "read the status again, act on the reason in the message, and repeat the request";
    BadFilter "0640" "bad filter" final
        "write FIELD=VALUE terms separated by spaces, such as status=running attr.customer=7";
    BadTime "0641" "bad time" final
        "write RFC 3339, such as 2026-11-16T12:00:00Z, or a date";
    MoveRefused "0642" "move refused" final
        "stop every process that uses the two stores, and move to a new file or schema";
    MoveMismatch "0643" "move does not match" final
        "stop every process that writes to one of the stores, and repeat the move to a new file or schema";
    NotWaiting "0644" "not waiting" final
        "look at what the instance waits for; only the pause before another attempt can be cut short";

    NotAuthenticated "0801" "not authenticated" final
        "send a token as `Authorization: Bearer TOKEN`, or log in";
    ForOperators "0802" "for operators" final
        "ask with the token of an operator";
    HostNotAllowed "0803" "host not allowed" final
        "use a loopback address, or allow the name when the server is started";
    OriginNotAllowed "0804" "origin not allowed" final
        "send the request from a page of this server, or with a token";
    BadRequest "0805" "bad request" final
        "correct what the message names";
    MediaType "0806" "media type" final
        "send JSON, with `Content-Type: application/json`";
    NoRoute "0807" "no such route" final
        "check the path; `openapi.json` lists all routes";
    MethodNotAllowed "0808" "method not allowed" final
        "use one of the methods in the header `Allow`";
    BadCursor "0809" "bad cursor" final
        "use the text of `next` unchanged, with the same filter, or begin without a cursor";
    Busy "0810" "busy" retry
        "wait as long as `Retry-After` says, then ask again";
    Stopping "0811" "stopping" retry
        "ask again when the server is back";
    AnotherInstance "0812" "another instance" final
        "look at the instance that has the id now, and decide again";
    TooSlow "0813" "too slow" retry
        "ask again, or for less at a time";
    NoSuchThing "0814" "no such thing" final
        "list what exists";
}

impl ErrorCode {
    /// The code that an error message begins with.
    ///
    /// ```
    /// use perennial_core::ErrorCode;
    ///
    /// assert_eq!(ErrorCode::leading("PER-0402 timeout: …"), Some(ErrorCode::ActivityTimeout));
    /// assert_eq!(ErrorCode::leading("the card was declined"), None);
    /// ```
    pub fn leading(text: &str) -> Option<ErrorCode> {
        text.get(.."PER-0000".len())?.parse().ok()
    }
}

impl ErrorCode {
    /// A message that begins with this code and its title.
    ///
    /// ```
    /// use perennial_core::ErrorCode;
    ///
    /// assert_eq!(ErrorCode::NotFound.message("no such id"), "PER-0605 not found: no such id");
    /// ```
    pub fn message(self, words: impl fmt::Display) -> String {
        format!("{}: {words}", self.prefix())
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that is not an error code of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{prefix}: {0:?} is not an error code of this version", prefix = self.code().prefix())]
pub struct UnknownErrorCode(String);

impl UnknownErrorCode {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidName
    }
}

crate::error_model!(UnknownErrorCode);

impl FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    fn from_str(text: &str) -> Result<ErrorCode, UnknownErrorCode> {
        let found = ErrorCode::ALL.iter().find(|code| code.as_str() == text);
        found.copied().ok_or_else(|| UnknownErrorCode(text.to_owned()))
    }
}

impl PartialEq<str> for ErrorCode {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ErrorCode {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<ErrorCode> for String {
    fn eq(&self, other: &ErrorCode) -> bool {
        self == other.as_str()
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ErrorCode, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_each_group_count_up_without_a_gap() {
        let mut expected = (0, 0);
        for code in ErrorCode::ALL {
            let number: u32 = code.as_str()["PER-".len()..].parse().unwrap();
            let (group, place) = (number / 100, number % 100);
            // Group 07 is not in use.
            let next = if expected.0 == 6 { 8 } else { expected.0 + 1 };
            expected = if group == expected.0 { (group, expected.1 + 1) } else { (next, 1) };
            assert_eq!((group, place), expected, "{code}");
        }
    }

    #[test]
    fn a_code_is_read_and_serialised_as_its_text() {
        for code in ErrorCode::ALL {
            assert_eq!(code.as_str().parse(), Ok(*code));
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(
                (json.as_str(), serde_json::from_str(&json).unwrap()),
                (&*format!("\"{code}\""), *code)
            );
            assert_eq!(ErrorCode::leading(&format!("{}: words", code.prefix())), Some(*code));
        }
        for text in ["PER-9999", "per-0605", "PER-06", "", "PÄR-0605 x", "PER-06ö05"] {
            assert_eq!(ErrorCode::leading(text), None, "{text}");
        }
    }

    #[test]
    fn every_remedy_is_a_clause_that_fits_behind_a_colon() {
        for code in ErrorCode::ALL {
            let remedy = code.remedy();
            assert!(!remedy.is_empty() && !remedy.ends_with('.'), "{code}: {remedy}");
            assert!(remedy.starts_with(|first: char| first.is_lowercase()), "{code}: {remedy}");
        }
    }
}
