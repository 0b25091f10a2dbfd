//! Why an instance is blocked: the reasons for which a turn cannot be taken, and what is shown of them.

use crate::code::ErrorCode;
use crate::codec::{CodecError, Undecodable};
use crate::execution::TurnFailure;
use crate::history::{EventId, HistoryError, PayloadSource};
use crate::store::{Blocked, Divergence, InboxNumber, Pause};

use super::envelope::BodyError;

/// After this many turns in a row that did not end, an instance is retried only if somebody requests it.
const MAX_LOST_TURNS: u32 = 3;

/// Why a turn could not be taken, which blocks the instance.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockReason {
    /// The turn failed.
    #[error(transparent)]
    Turn(#[from] TurnFailure),
    /// The code is not registered here.
    #[error(
        "{prefix}: {name} {} is not registered; register it and start the node again",
        if version.is_empty() { "in any version" } else { version }, prefix = self.code().prefix())]
    MissingCode {
        /// The orchestration.
        name: String,
        /// The version that the instance is pinned to; empty if it is not pinned yet.
        version: String,
    },
    /// The process ended repeatedly while only this instance was being hydrated.
    #[error(
        "{prefix}: the process ended each time this instance was hydrated; fix its code and retry",
        prefix = self.code().prefix())]
    TakesProcessDown,
    /// The thread that took the turn was abandoned.
    #[error(
        "{prefix}: the turn did not end and its thread was abandoned; it is tried again in the next process",
        prefix = self.code().prefix())]
    ThreadLost,
    /// Turns of the instance did not end in earlier processes, and turns of other such instances did not end in this
    /// one.
    #[error(
        "{prefix}: its turn did not end in an earlier process, and is not tried in this one; fix its code and \
         retry", prefix = self.code().prefix())]
    NotTried,
    /// It, or its orchestration, is paused.
    #[error(
        "{prefix}{}: {}; nothing is lost; it continues once it is resumed",
        if _0.orchestration { " with its orchestration" } else { "" }, _0.why, prefix = self.code().prefix())]
    Paused(Pause),
    /// The store can never accept the turn.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    StoreRefused(String),
    /// A message to the instance cannot be read.
    #[error("{}", unreadable_message(*.number, .error))]
    UnreadableMessage {
        /// Its number in the inbox.
        number: u64,
        /// What is wrong with it.
        error: BodyError,
    },
    /// The heartbeat details of an activity cannot be decoded.
    #[error(
        "{prefix}: details of activity {event}: {cause}; configure the codec or key that they \
         were written with, and it is tried again", prefix = self.code().prefix())]
    UndecodableDetails {
        /// The activity's schedule event.
        event: EventId,
        /// Why they cannot be decoded.
        cause: Undecodable,
    },
    /// A codec cannot encode a payload of the turn.
    #[error("{prefix}: {0}; the turn is tried again", prefix = self.code().prefix())]
    Unencodable(CodecError),
    /// The store cannot load the instance.
    #[error("{0}")]
    Unreadable(String),
}

impl BlockReason {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            BlockReason::Turn(failure) => failure.code(),
            BlockReason::MissingCode { .. } => ErrorCode::MissingCode,
            BlockReason::TakesProcessDown => ErrorCode::TakesProcessDown,
            BlockReason::ThreadLost | BlockReason::NotTried => ErrorCode::Deadline,
            BlockReason::Paused(_) => ErrorCode::Paused,
            BlockReason::StoreRefused(_) => ErrorCode::TurnRefused,
            BlockReason::UnreadableMessage { error: BodyError::Undecodable(_), .. }
            | BlockReason::UndecodableDetails { .. } => ErrorCode::PayloadUndecodable,
            BlockReason::UnreadableMessage { .. } => ErrorCode::UnreadableMessage,
            BlockReason::Unencodable(_) => ErrorCode::PayloadUnencodable,
            BlockReason::Unreadable(_) => ErrorCode::CorruptRow,
        }
    }

    /// Whether a turn was tried.
    pub(super) fn is_tried(&self) -> bool {
        !matches!(self, BlockReason::Paused(_) | BlockReason::NotTried)
    }

    /// Whether the same turn may succeed later in this process. A turn that exceeded its deadline is not retried.
    pub fn may_pass(&self) -> bool {
        !matches!(
            self,
            BlockReason::ThreadLost
                | BlockReason::NotTried
                | BlockReason::TakesProcessDown
                | BlockReason::Paused(_)
                | BlockReason::Turn(TurnFailure::DeadlinePassed)
        )
    }

    /// Whether an instance blocked for this reason is retried when it is loaded. An instance that ends the process, or
    /// whose turns did not end in several processes, is retried only on request.
    pub(super) fn is_tried_unasked(blocked: &Blocked) -> bool {
        blocked.code != BlockReason::TakesProcessDown.code()
            && BlockReason::lost_turns(blocked) < MAX_LOST_TURNS
    }

    /// How many turns in a row of a blocked instance did not end in time.
    pub(super) fn lost_turns(blocked: &Blocked) -> u32 {
        if blocked.code == BlockReason::ThreadLost.code() { blocked.attempts } else { 0 }
    }

    /// Whether the stored history is readable, as far as this failure tells. It is if only the code cannot decode a
    /// payload, or if a payload is encoded. A codec that refuses to encode counts as unreadable, so that the turn is
    /// not retried immediately.
    pub(super) fn leaves_history(&self) -> bool {
        match self {
            BlockReason::Turn(TurnFailure::History(error)) => {
                matches!(error, HistoryError::PayloadMismatch { .. } | HistoryError::Undecodable { .. })
            }
            failure => !matches!(failure, BlockReason::Unreadable(_) | BlockReason::Unencodable(_)),
        }
    }

    /// The text by which instances blocked for this reason are grouped: one line without ids and payloads.
    pub fn cause(&self) -> String {
        match self {
            BlockReason::Turn(failure) => failure.cause(),
            BlockReason::MissingCode { name, version } => {
                format!("missing code: {name} {version}").trim_end().to_owned()
            }
            BlockReason::TakesProcessDown => "takes the process down".to_owned(),
            BlockReason::ThreadLost | BlockReason::NotTried => TurnFailure::DeadlinePassed.cause(),
            BlockReason::Paused(_) => "paused".to_owned(),
            BlockReason::StoreRefused(_) => "the store refused the turn".to_owned(),
            BlockReason::UnreadableMessage { error: BodyError::Undecodable(cause), .. }
            | BlockReason::UndecodableDetails { cause, .. } => {
                format!("payload cannot be decoded: {cause}")
            }
            BlockReason::UnreadableMessage { .. } => "unreadable message".to_owned(),
            BlockReason::Unencodable(error) => format!("payload cannot be encoded: {error}"),
            BlockReason::Unreadable(_) => "corrupt row".to_owned(),
        }
    }

    /// The message that cannot be read, if that is the reason.
    pub fn unreadable_message(&self) -> Option<InboxNumber> {
        match self {
            BlockReason::UnreadableMessage { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// The external event that the code cannot read, if that is the reason.
    pub fn unreadable_event(&self) -> Option<EventId> {
        match self {
            BlockReason::Turn(TurnFailure::History(HistoryError::PayloadMismatch {
                event,
                came_with: PayloadSource::RecordedEvent | PayloadSource::NewEvent { .. },
                ..
            })) => Some(*event),
            _ => None,
        }
    }

    /// The pause, if that is the reason.
    pub fn pause(&self) -> Option<&Pause> {
        match self {
            BlockReason::Paused(pause) => Some(pause),
            _ => None,
        }
    }

    /// The source location of the failure, as `file:line`, if it is known.
    pub fn place(&self) -> Option<&str> {
        match self {
            BlockReason::Turn(TurnFailure::Nondeterminism(found)) => found.location.as_deref(),
            BlockReason::Turn(TurnFailure::Panicked { place, .. }) => place.as_deref(),
            _ => None,
        }
    }

    /// Where the code diverged from the history, if that is the reason.
    pub fn divergence(&self) -> Option<Box<Divergence>> {
        match self {
            BlockReason::Turn(TurnFailure::Nondeterminism(found)) => Some(Box::new((&**found).into())),
            _ => None,
        }
    }

    /// The full report, over several lines where that helps.
    pub fn report(&self) -> String {
        match self {
            BlockReason::Turn(TurnFailure::Nondeterminism(divergence)) => divergence.report(),
            other => other.to_string(),
        }
    }
}

fn unreadable_message(number: u64, error: &BodyError) -> String {
    match error {
        BodyError::Undecodable(cause) => ErrorCode::PayloadUndecodable.message(format_args!(
            "message {number} in the inbox: {cause}; configure the codec or key that \
             it was written with, and it is tried again"
        )),
        error => ErrorCode::UnreadableMessage.message(format_args!(
            "number {number} in the inbox: {error}; a newer engine may have written it: use \
             that one, skip the message, or terminate the instance"
        )),
    }
}
