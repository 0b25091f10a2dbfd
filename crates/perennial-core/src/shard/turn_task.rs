//! The part of a turn that runs user code, away from the shard.

use std::fmt;
use std::sync::Arc;

use crate::code::ErrorCode;
use crate::codec::{CodecError, Codecs, Undecodable};
use crate::execution::{Execution, ExecutionOptions, OrchestrationHandler, TurnFailure, TurnTaken};
use crate::history::{EventId, HistoryError, Job, PayloadSource, Started};
use crate::instance::{InstanceKey, ShardId};
use crate::store::{Blocked, Divergence, InboxNumber, Pause, ReadTurns, TaskRow, TurnRow, read_turns_with};

use super::envelope::BodyError;
use super::instance::make_calls;
use super::record::{Record, started_of};
use super::request::{CallReply, PendingCall};
use super::reset::{ResetOutcome, ResetTask};
use super::tenure::Tenure;

/// Where the code of orchestrations is found.
pub trait HandlerSource {
    /// The code of a name at a version.
    fn handler(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>>;

    /// The version that a start without one gets.
    fn latest(&self, name: &str) -> Option<String>;
}

impl HandlerSource for crate::execution::Handlers {
    fn handler(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>> {
        self.get(name, version)
    }

    fn latest(&self, name: &str) -> Option<String> {
        self.latest_version(name)
    }
}

/// An instance whose turns did not end this often, one after the other, is tried only if somebody asks.
const MAX_LOST_TURNS: u32 = 3;

/// A turn to be taken. Hydrating alone is one too: it has no jobs. So is reading a history, which runs no code.
#[derive(Debug)]
pub struct TurnTask {
    /// The shard.
    pub shard: ShardId,
    /// The owner's tenure of the shard that it belongs to.
    pub tenure: Tenure,
    /// The instance.
    pub key: InstanceKey,
    /// Tells this task from others of the instance.
    pub number: u64,
    /// The instance's id.
    pub instance: Arc<str>,
    /// Where its execution comes from.
    pub source: TurnSource,
    /// What the code is asked before the turn.
    pub calls: Vec<PendingCall>,
    /// What the turn delivers.
    pub jobs: Vec<Job>,
    /// The time of the turn.
    pub now_ms: u64,
    /// How the execution behaves.
    pub options: ExecutionOptions,
    /// What happens to payloads on their way to the store and back.
    pub codecs: Codecs,
    /// Whether turns of the instance did not end in an earlier process, and nobody asked for it to be tried.
    pub is_on_probation: bool,
    /// Whether the code has so many events to read that it is given no more.
    pub is_full: bool,
}

/// Where an execution comes from.
pub enum TurnSource {
    /// It is alive, and its last turn has this checksum.
    Resident(Box<Execution>, u32),
    /// It begins.
    Start(Box<Started>),
    /// It is hydrated from its stored turns.
    History(Vec<TurnRow>),
    /// The same, from turns that were read before.
    Read(Box<Record>),
    /// There is none: its stored turns are read, and no code runs.
    Record(Vec<TurnRow>),
    /// There is none: its stored turns are cut for the next execution, and no code runs.
    Reset(Box<ResetTask>),
}

impl TurnSource {
    /// The stored turns that it begins with.
    fn rows(&self) -> &[TurnRow] {
        match self {
            TurnSource::History(rows) | TurnSource::Record(rows) => rows,
            TurnSource::Reset(task) => task.turns(),
            TurnSource::Resident(..) | TurnSource::Start(_) | TurnSource::Read(_) => &[],
        }
    }

    /// Whether user code runs, which may take long or take the process down.
    pub fn runs_code(&self) -> bool {
        !matches!(self, TurnSource::Record(_) | TurnSource::Reset(_))
    }

    /// The execution, if it is alive.
    pub(crate) fn into_resident(self) -> Option<Box<Execution>> {
        match self {
            TurnSource::Resident(execution, _) => Some(execution),
            TurnSource::Start(_)
            | TurnSource::History(_)
            | TurnSource::Read(_)
            | TurnSource::Record(_)
            | TurnSource::Reset(_) => None,
        }
    }
}

impl fmt::Debug for TurnSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TurnSource::Resident(..) => f.write_str("Resident"),
            TurnSource::Start(started) => write!(f, "Start({})", started.name),
            TurnSource::History(turns) => write!(f, "History({} turns)", turns.len()),
            TurnSource::Read(record) => write!(f, "Read({} turns)", record.history.turns.len()),
            TurnSource::Record(turns) => write!(f, "Record({} turns)", turns.len()),
            TurnSource::Reset(_) => f.write_str("Reset"),
        }
    }
}

/// A turn task that was run.
#[derive(Debug)]
pub struct TurnTaskDone {
    /// The shard.
    pub shard: ShardId,
    /// See [`TurnTask::tenure`].
    pub tenure: Tenure,
    /// The instance.
    pub key: InstanceKey,
    /// The task's number.
    pub number: u64,
    /// What came of it.
    pub outcome: Result<TurnTaskOutput, BlockReason>,
    /// What came of each question.
    pub calls: Vec<(PendingCall, CallOutcome)>,
    /// An execution that failed, to be dropped where user code may run.
    pub failed_execution: Option<Box<Execution>>,
}

/// What a turn task gives that went well.
#[derive(Debug)]
pub enum TurnTaskOutput {
    /// A turn.
    Turn(Box<TurnRun>),
    /// A history.
    Record(Box<Record>),
    /// The turns that the next execution keeps.
    Reset(Box<ResetOutcome>),
}

impl TurnTaskOutput {
    /// The execution that took the turn, if there was one.
    pub(crate) fn into_execution(self) -> Option<Box<Execution>> {
        match self {
            TurnTaskOutput::Turn(run) => Some(run.execution),
            TurnTaskOutput::Record(_) | TurnTaskOutput::Reset(_) => None,
        }
    }
}

/// A turn that was taken, encoded where the code ran so that nobody waits for it under a lock.
#[derive(Debug)]
pub struct TurnRun {
    /// The execution after the turn.
    pub execution: Box<Execution>,
    /// What the turn was.
    pub taken: TurnTaken,
    /// The turn as it is stored, if there is one.
    pub row: Option<TurnRow>,
    /// The checksum of the last turn.
    pub checksum: u32,
}

/// What came of a question to the code.
#[derive(Clone, Debug)]
pub enum CallOutcome {
    /// This is the answer.
    Answered(CallReply),
    /// The update is a job of the turn.
    Accepted,
    /// The update was recorded before, with this event.
    Known(EventId),
    /// The activity that was spoken about goes on, with this row if it changes.
    Writes(Option<Box<TaskRow>>),
    /// It has to be asked again.
    Later,
}

/// Why a turn task came to nothing.
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
        /// The version that the instance is pinned to; empty if it is pinned to none yet.
        version: String,
    },
    /// The process ended, more than once, while this instance alone was being brought back.
    #[error(
        "{prefix}: it ended each time this instance was brought back; fix its code and retry", prefix = self.code().prefix())]
    TakesProcessDown,
    /// The thread that took the turn was given up.
    #[error(
        "{prefix}: the turn did not end and its thread was given up; it runs again in the next process", prefix = self.code().prefix())]
    ThreadLost,
    /// Turns of the instance did not end in earlier processes, nor did those of others like it in this one.
    #[error(
        "{prefix}: its turn did not end in an earlier process, and is not tried in this one; fix its code and \
         retry", prefix = self.code().prefix())]
    NotTried,
    /// Somebody paused it, or its orchestration.
    #[error("{prefix}{}: {}; nothing is lost, and it goes on once it is resumed", if _0.orchestration { " with its orchestration" } else { "" }, _0.why, prefix = self.code().prefix())]
    Paused(Pause),
    /// The store cannot take the turn.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    StoreRefused(String),
    /// A message to the instance cannot be read.
    #[error("{}", unreadable_message(*.number, .error))]
    UnreadableMessage {
        /// Its number in the inbox.
        number: u64,
        /// Why.
        error: BodyError,
    },
    /// What the attempts of an activity reported cannot be decoded.
    #[error(
        "{prefix}: details of activity {event}: {cause}; configure the codec or key that they \
         were written with, and it is tried again", prefix = self.code().prefix())]
    UndecodableDetails {
        /// The activity's schedule event.
        event: EventId,
        /// What could not be done.
        cause: Undecodable,
    },
    /// A codec cannot encode a payload of the turn.
    #[error("{prefix}: {0}; the turn is tried again", prefix = self.code().prefix())]
    Unencodable(CodecError),
    /// The store cannot give the instance.
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

    /// Whether the same turn may go through later in this process. One past its deadline is not tried again.
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

    /// Whether what is blocked like this is tried again when it is loaded. What takes the process down is not, and what
    /// did not end in several processes, until somebody asks for it.
    pub(super) fn is_tried_unasked(blocked: &Blocked) -> bool {
        blocked.code != BlockReason::TakesProcessDown.code()
            && BlockReason::lost_turns(blocked) < MAX_LOST_TURNS
    }

    /// How many turns of a blocked instance did not end in time, one after the other.
    pub(super) fn lost_turns(blocked: &Blocked) -> u32 {
        if blocked.code == BlockReason::ThreadLost.code() { blocked.attempts } else { 0 }
    }

    /// Whether the stored history can be read, as far as this failure tells. One with a payload that only the code cannot
    /// read, or that is encoded, can be. What a codec refuses to write is not tried at once again.
    pub(super) fn leaves_history(&self) -> bool {
        match self {
            BlockReason::Turn(TurnFailure::History(error)) => {
                matches!(error, HistoryError::PayloadMismatch { .. } | HistoryError::Undecodable { .. })
            }
            failure => !matches!(failure, BlockReason::Unreadable(_) | BlockReason::Unencodable(_)),
        }
    }

    /// What instances that are blocked like this are grouped by: a line without ids and payloads.
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

    /// The message that cannot be read, if that is what failed.
    pub fn unreadable_message(&self) -> Option<InboxNumber> {
        match self {
            BlockReason::UnreadableMessage { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// The external event that the code cannot read, if that is what failed.
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

    /// The pause, if that is all that keeps the instance from going on.
    pub fn pause(&self) -> Option<&Pause> {
        match self {
            BlockReason::Paused(pause) => Some(pause),
            _ => None,
        }
    }

    /// The line of the code that failed, as `file:line`, if it is known.
    pub fn place(&self) -> Option<&str> {
        match self {
            BlockReason::Turn(TurnFailure::Nondeterminism(found)) => found.location.as_deref(),
            BlockReason::Turn(TurnFailure::Panicked { place, .. }) => place.as_deref(),
            _ => None,
        }
    }

    /// Where record and code part, if that is what failed.
    pub fn divergence(&self) -> Option<Box<Divergence>> {
        match self {
            BlockReason::Turn(TurnFailure::Nondeterminism(found)) => Some(Box::new((&**found).into())),
            _ => None,
        }
    }

    /// All there is to say, over several lines where that helps.
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

impl TurnTask {
    /// The task as one that came to nothing without having been run.
    pub(crate) fn into_failed(self, failure: BlockReason) -> TurnTaskDone {
        let TurnTask { shard, tenure, key, number, source, calls, .. } = self;
        let calls = calls.into_iter().map(|pending| (pending, CallOutcome::Later)).collect();
        TurnTaskDone {
            shard,
            tenure,
            key,
            number,
            outcome: Err(failure),
            calls,
            failed_execution: source.into_resident(),
        }
    }

    /// Runs the code. To be called on a thread that may run user code, without a tokio context.
    ///
    /// `watch` is told which execution is about to run, so that a watchdog can interrupt it.
    pub fn run(self, handlers: &dyn HandlerSource, watch: impl FnOnce(&Execution)) -> TurnTaskDone {
        let TurnTask {
            shard,
            tenure,
            key,
            number,
            instance,
            source,
            calls,
            mut jobs,
            now_ms,
            options,
            codecs,
            is_full,
            ..
        } = self;
        let done = |outcome, calls, failed_execution| TurnTaskDone {
            shard,
            tenure,
            key,
            number,
            outcome,
            calls,
            failed_execution,
        };
        let not_made = |calls: Vec<PendingCall>| {
            calls.into_iter().map(|pending| (pending, CallOutcome::Later)).collect()
        };
        if let TurnSource::Record(rows) = &source {
            let record =
                Record::read(&codecs, key, rows).map(|record| TurnTaskOutput::Record(Box::new(record)));
            return done(record, not_made(calls), None);
        }
        let source = match source {
            TurnSource::Reset(task) => {
                let outcome = TurnTaskOutput::Reset(Box::new(task.run(&codecs, key)));
                return done(Ok(outcome), not_made(calls), None);
            }
            source => source,
        };
        let (mut execution, history) = match prepare(&codecs, key, &instance, source, handlers, options) {
            Ok(prepared) => prepared,
            Err(failure) => return done(Err(failure), not_made(calls), None),
        };
        watch(&execution);
        if let Err(failure) = history.turns.iter().try_for_each(|turn| execution.replay_turn(turn)) {
            return done(Err(failure.into()), not_made(calls), Some(execution));
        }
        let calls = make_calls(&mut execution, calls, (is_full, now_ms), &mut jobs);
        let is_quiet = jobs.is_empty() && execution.ledger().turns() > 0;
        let taken = if execution.has_ended() || is_quiet {
            Ok(TurnTaken::default())
        } else {
            execution.take_turn(now_ms, jobs)
        };
        match taken {
            Ok(taken) => {
                let of = execution.started().execution;
                let seal = |turn| TurnRow::seal_with(&codecs, key, of, history.checksum, turn);
                let row = match taken.turn.as_ref().map(seal).transpose() {
                    Ok(row) => row,
                    Err(error) => return done(Err(BlockReason::Unencodable(error)), calls, Some(execution)),
                };
                let checksum = row.as_ref().map_or(history.checksum, |row| row.checksum);
                let run = TurnRun { execution, taken, row, checksum };
                done(Ok(TurnTaskOutput::Turn(Box::new(run))), calls, None)
            }
            Err(failure) => done(Err(failure.into()), calls, Some(execution)),
        }
    }
}

fn prepare(
    codecs: &Codecs,
    key: InstanceKey,
    instance: &Arc<str>,
    source: TurnSource,
    handlers: &dyn HandlerSource,
    options: ExecutionOptions,
) -> Result<(Box<Execution>, ReadTurns), BlockReason> {
    let (started, history) = match source {
        TurnSource::Resident(execution, checksum) => {
            return Ok((execution, ReadTurns { turns: Vec::new(), checksum }));
        }
        TurnSource::Start(started) => {
            let checksum = started.chain;
            (*started, ReadTurns { turns: Vec::new(), checksum })
        }
        source @ (TurnSource::History(_) | TurnSource::Record(_) | TurnSource::Reset(_)) => {
            let history = read_turns_with(codecs, key, source.rows()).map_err(TurnFailure::from)?;
            (started_of(&history)?.clone(), history)
        }
        TurnSource::Read(record) => {
            if let Some(failure) = record.undecodable {
                return Err(failure);
            }
            (record.started().clone(), record.history)
        }
    };
    let mut started = started;
    if started.version.is_empty()
        && let Some(version) = handlers.latest(&started.name)
    {
        started.version = version;
    }
    let Some(handler) = handlers.handler(&started.name, &started.version) else {
        return Err(BlockReason::MissingCode { name: started.name, version: started.version });
    };
    let execution =
        Execution::new(Arc::clone(instance), handler, started, options).map_err(TurnFailure::from)?;
    Ok((Box::new(execution), history))
}

crate::error_model!(BlockReason);
