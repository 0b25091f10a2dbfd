//! The part of a turn that runs user code, away from the shard.

use std::fmt;
use std::sync::Arc;

use crate::execution::{Execution, ExecutionOptions, OrchestrationHandler, TurnFailure, TurnTaken};
use crate::history::{CorruptHistory, EventId, HistoryError, Job, Started, Turn, decode_turn};
use crate::instance::InstanceKey;
use crate::store::Blocked;

use super::asks::consult;
use super::request::{AskReply, PendingAsk};

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
    /// It is alive.
    Resident(Box<Execution>),
    /// It begins.
    Start(Box<Started>),
    /// It grows back from its stored turns.
    History(Vec<Arc<[u8]>>),
}

impl fmt::Debug for TurnSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TurnSource::Resident(_) => f.write_str("Resident"),
            TurnSource::Start(started) => write!(f, "Start({})", started.name),
            TurnSource::History(turns) => write!(f, "History({} turns)", turns.len()),
        }
    }
}

/// A turn task that was run.
#[derive(Debug)]
pub struct TurnTaskDone {
    /// The instance.
    pub key: InstanceKey,
    /// The task's number.
    pub number: u64,
    /// What came of it.
    pub outcome: Result<(Box<Execution>, TurnTaken), TaskFailure>,
    /// What came of each question.
    pub asks: Vec<(PendingAsk, Consultation)>,
    /// An execution that failed, to be dropped where user code may run.
    pub wreck: Option<Box<Execution>>,
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
        "PER-0302 takes the process down: it ended each time this instance was brought back; mend its code and retry"
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

    /// Whether the stored history can be read, as far as this failure tells.
    pub(super) fn leaves_history(&self) -> bool {
        !matches!(self, TaskFailure::Unreadable(_) | TaskFailure::Turn(TurnFailure::History(_)))
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
        let TurnTask { key, number, instance, source, asks, mut jobs, now_ms, options } = self;
        let unasked =
            |asks: Vec<PendingAsk>| asks.into_iter().map(|ask| (ask, Consultation::Later)).collect();
        let (mut execution, history) = match prepare(&instance, source, handlers, options) {
            Ok(prepared) => prepared,
            Err(failure) => {
                return TurnTaskDone { key, number, outcome: Err(failure), asks: unasked(asks), wreck: None };
            }
        };
        watch(&execution);
        if let Err(failure) = history.iter().try_for_each(|turn| execution.replay_turn(turn)) {
            let outcome = Err(failure.into());
            return TurnTaskDone { key, number, outcome, asks: unasked(asks), wreck: Some(execution) };
        }
        let asks = consult(&mut execution, asks, &mut jobs);
        let is_quiet = jobs.is_empty() && execution.ledger().turns() > 0;
        let taken = if execution.has_ended() || is_quiet {
            Ok(TurnTaken { turn: None, stale: Vec::new(), successor: None, ended_updates: Vec::new() })
        } else {
            execution.take_turn(now_ms, jobs)
        };
        match taken {
            Ok(taken) => TurnTaskDone { key, number, outcome: Ok((execution, taken)), asks, wreck: None },
            Err(failure) => {
                TurnTaskDone { key, number, outcome: Err(failure.into()), asks, wreck: Some(execution) }
            }
        }
    }
}

fn prepare(
    instance: &Arc<str>,
    source: TurnSource,
    handlers: &dyn HandlerSource,
    options: ExecutionOptions,
) -> Result<(Box<Execution>, Vec<Turn>), TaskFailure> {
    let (started, history) = match source {
        TurnSource::Resident(execution) => return Ok((execution, Vec::new())),
        TurnSource::Start(started) => (*started, Vec::new()),
        TurnSource::History(turns) => {
            let decode = |(number, bytes): (u64, &Arc<[u8]>)| decode_turn(number, bytes);
            let history = (1..).zip(&turns).map(decode).collect::<Result<Vec<Turn>, HistoryError>>();
            let history = history.map_err(TurnFailure::from)?;
            let started = history.first().and_then(Turn::started).cloned().ok_or_else(|| {
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
