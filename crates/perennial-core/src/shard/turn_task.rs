//! The part of a turn that runs user code, outside the shard.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::Codecs;
use crate::execution::{Execution, ExecutionOptions, OrchestrationHandler, TurnFailure, TurnTaken};
use crate::history::{EventId, Job, Started};
use crate::instance::{InstanceKey, ShardId};
use crate::store::{ReadTurns, TaskRow, TurnRow, read_turns_with};
use crate::trace;

use super::block_reason::BlockReason;
use super::instance::make_calls;
use super::record::{Record, started_of};
use super::request::{CallReply, PendingCall};
use super::reset::{ResetOutcome, ResetTask};
use super::spans::TurnSpan;
use super::tenure::Tenure;

/// Looks up the code of orchestrations.
pub trait HandlerSource {
    /// The code of a name at a version.
    fn handler(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>>;

    /// The version used for a start without a version.
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

/// A turn to take. It may have no jobs, to hydrate the execution, and it may run no code at all, to read a history.
#[derive(Debug)]
pub struct TurnTask {
    /// The shard of the instance.
    pub shard: ShardId,
    /// The owner's tenure of the shard.
    pub tenure: Tenure,
    /// The key of the instance.
    pub key: InstanceKey,
    /// Identifies this task among those of the instance.
    pub number: u64,
    /// The instance's id.
    pub instance: Arc<str>,
    /// Where its execution comes from.
    pub source: TurnSource,
    /// The calls to make before the turn.
    pub calls: Vec<PendingCall>,
    /// The jobs to deliver.
    pub jobs: Vec<Job>,
    /// The time of the turn.
    pub now_ms: u64,
    /// The options of the execution.
    pub options: ExecutionOptions,
    /// The codecs for stored payloads.
    pub codecs: Codecs,
    /// Whether turns of the instance did not end in an earlier process, and nobody requested a retry.
    pub is_on_probation: bool,
    /// Whether the code has so many unread events that it gets no more.
    pub is_full: bool,
    /// The name of the node, if its turns have spans.
    pub traced_on: Option<Arc<str>>,
}

/// Where an execution comes from.
pub enum TurnSource {
    /// It is in memory, and its last turn has this checksum.
    Resident(Box<Execution>, u32),
    /// It starts.
    Start(Box<Started>),
    /// It is hydrated from its stored turns.
    History(Vec<TurnRow>),
    /// It is hydrated from turns that are already decoded.
    Read(Box<Record>),
    /// None: its stored turns are decoded, and no code runs.
    Record(Vec<TurnRow>),
    /// None: its stored turns are copied for the execution after a reset, and no code runs.
    Reset(Box<ResetTask>),
}

impl TurnSource {
    /// Its stored turns.
    fn rows(&self) -> &[TurnRow] {
        match self {
            TurnSource::History(rows) | TurnSource::Record(rows) => rows,
            TurnSource::Reset(task) => task.turns(),
            TurnSource::Resident(..) | TurnSource::Start(_) | TurnSource::Read(_) => &[],
        }
    }

    /// The orchestration, if it is known without decoding turns.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            TurnSource::Resident(execution, _) => Some(&execution.started().name),
            TurnSource::Start(started) => Some(&started.name),
            TurnSource::Read(record) => Some(&record.started().name),
            TurnSource::History(_) | TurnSource::Record(_) | TurnSource::Reset(_) => None,
        }
    }

    /// Whether user code runs, which may take long or end the process.
    pub fn runs_code(&self) -> bool {
        !matches!(self, TurnSource::Record(_) | TurnSource::Reset(_))
    }

    /// The execution, if it is in memory.
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

/// A completed turn task.
#[derive(Debug)]
pub struct TurnTaskDone {
    /// The shard of the instance.
    pub shard: ShardId,
    /// See [`TurnTask::tenure`].
    pub tenure: Tenure,
    /// The key of the instance.
    pub key: InstanceKey,
    /// The task's number.
    pub number: u64,
    /// How it ended.
    pub outcome: Result<TurnTaskOutput, BlockReason>,
    /// The outcome of each call.
    pub calls: Vec<(PendingCall, CallOutcome)>,
    /// An execution that failed, to be dropped where user code may run.
    pub failed_execution: Option<Box<Execution>>,
    /// How long the parts of the task took.
    pub times: TurnTimes,
}

/// How long the parts of a turn task took. `None` for parts that it did not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnTimes {
    /// Decoding and replaying stored turns.
    pub hydrating: Option<Duration>,
    /// Taking a turn and encoding it.
    pub turn: Option<Duration>,
}

/// The output of a successful turn task.
#[derive(Debug)]
pub enum TurnTaskOutput {
    /// A turn was taken.
    Turn(Box<TurnRun>),
    /// A history was decoded.
    Record(Box<Record>),
    /// The turns for the execution after a reset were prepared.
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

/// A turn that was taken. It is encoded on the turn thread, so that nobody waits for that under a lock.
#[derive(Debug)]
pub struct TurnRun {
    /// The execution after the turn.
    pub execution: Box<Execution>,
    /// The outcome of the turn.
    pub taken: TurnTaken,
    /// The stored form of the turn, if one was recorded.
    pub row: Option<TurnRow>,
    /// The checksum of the last turn.
    pub checksum: u32,
    /// Its span, until it is durable.
    pub span: Option<Box<TurnSpan>>,
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub enum CallOutcome {
    /// It has this reply.
    Answered(CallReply),
    /// The update or event is a job of the turn.
    Accepted,
    /// The update was already recorded, as this event.
    Known(EventId),
    /// The activity that the token belongs to continues, with this row if it changes.
    Writes(Option<Box<TaskRow>>),
    /// The call has to be made again.
    Later,
}

/// The outcome of a task that runs no code, or its source.
fn without_code(
    codecs: &Codecs,
    key: InstanceKey,
    source: TurnSource,
) -> ControlFlow<Result<TurnTaskOutput, BlockReason>, TurnSource> {
    match source {
        TurnSource::Record(rows) => {
            let record = Record::read(codecs, key, &rows);
            ControlFlow::Break(record.map(|record| TurnTaskOutput::Record(Box::new(record))))
        }
        TurnSource::Reset(task) => {
            ControlFlow::Break(Ok(TurnTaskOutput::Reset(Box::new(task.run(codecs, key)))))
        }
        source => ControlFlow::Continue(source),
    }
}

impl TurnTask {
    /// Fails the task without running it.
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
            times: TurnTimes::default(),
        }
    }

    /// Runs the task. To be called on a thread that may run user code, without a tokio context.
    ///
    /// `watch` is called with the execution that is about to run, so that a watchdog can interrupt it.
    pub fn run(self, handlers: &dyn HandlerSource, watch: impl FnOnce(&Execution)) -> TurnTaskDone {
        self.run_timed(handlers, watch, || Duration::ZERO)
    }

    /// Like [`TurnTask::run`], with a steady clock to measure its parts.
    pub fn run_timed(
        self,
        handlers: &dyn HandlerSource,
        watch: impl FnOnce(&Execution),
        clock: impl Fn() -> Duration,
    ) -> TurnTaskDone {
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
            traced_on,
            ..
        } = self;
        let mut times = TurnTimes::default();
        let done = |outcome, calls, failed_execution| {
            let times = TurnTimes::default();
            TurnTaskDone { shard, tenure, key, number, outcome, calls, failed_execution, times }
        };
        let not_made = |calls: Vec<PendingCall>| {
            calls.into_iter().map(|pending| (pending, CallOutcome::Later)).collect()
        };
        let source = match without_code(&codecs, key, source) {
            ControlFlow::Break(outcome) => return done(outcome, not_made(calls), None),
            ControlFlow::Continue(source) => source,
        };
        let is_hydrated = !matches!(source, TurnSource::Resident(..) | TurnSource::Start(_));
        let begun = is_hydrated.then(&clock);
        let (mut execution, history) = match prepare(&codecs, key, &instance, source, handlers, options) {
            Ok(prepared) => prepared,
            Err(failure) => return done(Err(failure), not_made(calls), None),
        };
        watch(&execution);
        if let Err(failure) = history.turns.iter().try_for_each(|turn| execution.replay_turn(turn)) {
            return done(Err(failure.into()), not_made(calls), Some(execution));
        }
        times.hydrating = begun.map(|begun| clock().saturating_sub(begun));
        let calls = make_calls(&mut execution, calls, (is_full, now_ms), &mut jobs);
        let is_quiet = jobs.is_empty() && execution.ledger().turns() > 0;
        let mut span = None;
        let turn_begun = (!execution.has_ended() && !is_quiet).then(&clock);
        let taken = match turn_begun {
            None => Ok(TurnTaken::default()),
            Some(_) => {
                span = TurnSpan::next(key, &instance, traced_on.as_ref(), &execution);
                TurnSpan::in_scope(span.as_deref(), || execution.take_turn(now_ms, jobs))
            }
        };
        let fail = |failure: BlockReason, execution: Box<Execution>, calls, span: Option<Box<TurnSpan>>| {
            if let Some(span) = span {
                span.failed(key, &execution, now_ms, &failure);
            }
            done(Err(failure), calls, Some(execution))
        };
        let mut done = match taken {
            Ok(taken) => {
                let of = execution.started().execution;
                let seal = |turn| TurnRow::seal_with(&codecs, key, of, history.checksum, turn);
                let row = match taken.turn.as_ref().map(seal).transpose() {
                    Ok(row) => row,
                    Err(error) => return fail(BlockReason::Unencodable(error), execution, calls, span),
                };
                let checksum = row.as_ref().map_or(history.checksum, |row| row.checksum);
                let run = TurnRun { execution, taken, row, checksum, span };
                done(Ok(TurnTaskOutput::Turn(Box::new(run))), calls, None)
            }
            Err(failure) => fail(failure.into(), execution, calls, span),
        };
        times.turn = turn_begun.map(|begun| clock().saturating_sub(begun));
        done.times = times;
        done
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
        TurnSource::Start(mut started) => {
            let checksum = started.chain;
            if started.trace.is_none() {
                started.trace = trace::unasked(key, started.execution).map(|context| context.to_context());
            }
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
