//! The part of a turn that runs user code, away from the shard.

use std::fmt;
use std::sync::Arc;

use crate::execution::{Execution, ExecutionOptions, OrchestrationHandler, TurnFailure, TurnTaken};
use crate::history::{CorruptHistory, EventId, HistoryError, Job, Started, Turn};
use crate::instance::{InstanceKey, ShardId};
use crate::store::{Blocked, Divergence, ReadTurns, TurnRow, read_turns};

use super::instance::consult;
use super::request::{AskReply, PendingAsk};
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

/// A turn to be taken. Hydrating alone is one too: it has no jobs.
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
    pub asks: Vec<PendingAsk>,
    /// What the turn delivers.
    pub jobs: Vec<Job>,
    /// The time of the turn.
    pub now_ms: u64,
    /// How the execution behaves.
    pub options: ExecutionOptions,
}

/// Where an execution comes from.
pub enum TurnSource {
    /// It is alive, and its last turn has this checksum.
    Resident(Box<Execution>, u32),
    /// It begins.
    Start(Box<Started>),
    /// It is hydrated from its stored turns.
    History(Vec<TurnRow>),
}

impl fmt::Debug for TurnSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TurnSource::Resident(..) => f.write_str("Resident"),
            TurnSource::Start(started) => write!(f, "Start({})", started.name),
            TurnSource::History(turns) => write!(f, "History({} turns)", turns.len()),
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
    pub outcome: Result<TurnRun, TaskFailure>,
    /// What came of each question.
    pub asks: Vec<(PendingAsk, Consultation)>,
    /// An execution that failed, to be dropped where user code may run.
    pub wreck: Option<Box<Execution>>,
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
pub enum Consultation {
    /// This is the answer.
    Answered(AskReply),
    /// The update is a job of the turn.
    Accepted,
    /// The update was recorded before, with this event.
    Known(EventId),
    /// It has to be asked again.
    Later,
}

/// Why a turn task came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskFailure {
    /// The turn failed.
    #[error(transparent)]
    Turn(#[from] TurnFailure),
    /// The code is not registered here.
    #[error(
        "PER-0301 missing code: {name} {} is not registered; register it and start the node again",
        if version.is_empty() { "in any version" } else { version }
    )]
    MissingCode {
        /// The orchestration.
        name: String,
        /// The version that the instance is pinned to; empty if it is pinned to none yet.
        version: String,
    },
    /// The process ended, more than once, while this instance alone was being brought back.
    #[error(
        "PER-0302 takes the process down: it ended each time this instance was brought back; fix its code and retry"
    )]
    TakesProcessDown,
    /// The thread that took the turn was given up.
    #[error(
        "PER-0205 deadline: the turn did not end and its thread was given up; it runs again in the next process"
    )]
    ThreadLost,
    /// The store cannot take the turn.
    #[error("PER-0303 the store refused the turn: {0}")]
    StoreRefused(String),
    /// A message to the instance cannot be read.
    #[error("{0}; a newer engine may have written it: use that one, or terminate the instance")]
    UnreadableMessage(String),
    /// The store cannot give the instance.
    #[error("{0}")]
    Unreadable(String),
}

impl TaskFailure {
    /// The stable code of this failure.
    pub fn code(&self) -> &'static str {
        match self {
            TaskFailure::Turn(failure) => failure.code(),
            TaskFailure::MissingCode { .. } => "PER-0301",
            TaskFailure::TakesProcessDown => "PER-0302",
            TaskFailure::ThreadLost => "PER-0205",
            TaskFailure::StoreRefused(_) => "PER-0303",
            TaskFailure::UnreadableMessage(_) => "PER-0308",
            TaskFailure::Unreadable(_) => "PER-0508",
        }
    }

    /// Whether the same turn may go through later in this process. One past its deadline is not tried again.
    pub fn may_pass(&self) -> bool {
        !matches!(
            self,
            TaskFailure::ThreadLost
                | TaskFailure::TakesProcessDown
                | TaskFailure::Turn(TurnFailure::DeadlinePassed)
        )
    }

    /// Whether what is blocked like this is tried again when it is loaded. What takes the process down is not, until
    /// somebody asks for it.
    pub(super) fn is_tried_unasked(blocked: &Blocked) -> bool {
        blocked.code != TaskFailure::TakesProcessDown.code()
    }

    /// Whether the stored history can be read, as far as this failure tells. One with a payload that only the code cannot
    /// read can be.
    pub(super) fn leaves_history(&self) -> bool {
        match self {
            TaskFailure::Turn(TurnFailure::History(error)) => {
                matches!(error, HistoryError::PayloadMismatch { .. })
            }
            failure => !matches!(failure, TaskFailure::Unreadable(_)),
        }
    }

    /// What instances that are blocked like this are grouped by: a line without ids and payloads.
    pub fn cause(&self) -> String {
        match self {
            TaskFailure::Turn(failure) => failure.cause(),
            TaskFailure::MissingCode { name, version } => {
                format!("missing code: {name} {version}").trim_end().to_owned()
            }
            TaskFailure::TakesProcessDown => "takes the process down".to_owned(),
            TaskFailure::ThreadLost => TurnFailure::DeadlinePassed.cause(),
            TaskFailure::StoreRefused(_) => "the store refused the turn".to_owned(),
            TaskFailure::UnreadableMessage(_) => "unreadable message".to_owned(),
            TaskFailure::Unreadable(_) => "corrupt row".to_owned(),
        }
    }

    /// Where record and code part, if that is what failed.
    pub fn divergence(&self) -> Option<Box<Divergence>> {
        match self {
            TaskFailure::Turn(TurnFailure::Nondeterminism(found)) => Some(Box::new((&**found).into())),
            _ => None,
        }
    }

    /// All there is to say, over several lines where that helps.
    pub fn report(&self) -> String {
        match self {
            TaskFailure::Turn(TurnFailure::Nondeterminism(divergence)) => divergence.report(),
            other => other.to_string(),
        }
    }
}

impl TurnTask {
    /// Runs the code. To be called on a thread that may run user code, without a tokio context.
    ///
    /// `watch` is told which execution is about to run, so that a watchdog can interrupt it.
    pub fn run(self, handlers: &dyn HandlerSource, watch: impl FnOnce(&Execution)) -> TurnTaskDone {
        let TurnTask { shard, tenure, key, number, instance, source, asks, mut jobs, now_ms, options } = self;
        let done = |outcome, asks, wreck| TurnTaskDone { shard, tenure, key, number, outcome, asks, wreck };
        let unasked =
            |asks: Vec<PendingAsk>| asks.into_iter().map(|ask| (ask, Consultation::Later)).collect();
        let (mut execution, history) = match prepare(key, &instance, source, handlers, options) {
            Ok(prepared) => prepared,
            Err(failure) => return done(Err(failure), unasked(asks), None),
        };
        watch(&execution);
        if let Err(failure) = history.turns.iter().try_for_each(|turn| execution.replay_turn(turn)) {
            return done(Err(failure.into()), unasked(asks), Some(execution));
        }
        let asks = consult(&mut execution, asks, &mut jobs);
        let is_quiet = jobs.is_empty() && execution.ledger().turns() > 0;
        let taken = if execution.has_ended() || is_quiet {
            Ok(TurnTaken::default())
        } else {
            execution.take_turn(now_ms, jobs)
        };
        match taken {
            Ok(taken) => {
                let of = execution.started().execution;
                let row = taken.turn.as_ref().map(|turn| TurnRow::seal(key, of, history.checksum, turn));
                let checksum = row.as_ref().map_or(history.checksum, |row| row.checksum);
                done(Ok(TurnRun { execution, taken, row, checksum }), asks, None)
            }
            Err(failure) => done(Err(failure.into()), asks, Some(execution)),
        }
    }
}

fn prepare(
    key: InstanceKey,
    instance: &Arc<str>,
    source: TurnSource,
    handlers: &dyn HandlerSource,
    options: ExecutionOptions,
) -> Result<(Box<Execution>, ReadTurns), TaskFailure> {
    let (started, history) = match source {
        TurnSource::Resident(execution, checksum) => {
            return Ok((execution, ReadTurns { turns: Vec::new(), checksum }));
        }
        TurnSource::Start(started) => {
            let checksum = started.chain;
            (*started, ReadTurns { turns: Vec::new(), checksum })
        }
        TurnSource::History(rows) => {
            let history = read_turns(key, &rows).map_err(TurnFailure::from)?;
            let started = history.turns.first().and_then(Turn::started).cloned().ok_or_else(|| {
                TurnFailure::from(HistoryError::from(CorruptHistory::turn(
                    1,
                    "a history begins with how it started",
                )))
            })?;
            (started, history)
        }
    };
    let mut started = started;
    if started.version.is_empty()
        && let Some(version) = handlers.latest(&started.name)
    {
        started.version = version;
    }
    let Some(handler) = handlers.handler(&started.name, &started.version) else {
        return Err(TaskFailure::MissingCode { name: started.name, version: started.version });
    };
    let execution =
        Execution::new(Arc::clone(instance), handler, started, options).map_err(TurnFailure::from)?;
    Ok((Box::new(execution), history))
}
