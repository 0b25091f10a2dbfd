//! The work in progress for an instance, and what follows from it.

use std::collections::BTreeSet;

use crate::execution::Execution;
use crate::history::{Ending, EventId, Job};
use crate::store::{InboxNumber, InstanceRow, RequestNumber};

use super::super::facts::Label;
use super::super::message::{Message, Start};
use super::super::output::Output;
use super::super::request::{PendingCall, RequestId};
use super::super::spans::TakenSpan;
use super::queued::{Batch, Queued};
use super::reporting::CommitReport;
use super::row_columns::RowColumns;
use super::tasks::TaskWrite;

/// What an instance is doing. It does one thing at a time.
pub(super) enum Phase {
    /// Its rows were requested. Also used while an input is being handled and the next phase is not decided.
    Loading,
    /// A turn task is running.
    Turning(Turning),
    /// A commit is in progress.
    Committing(Box<InFlight>),
    /// Its execution waits for an input.
    Idle(Box<Execution>),
    /// It is blocked.
    Blocked,
    /// Its start time has not come.
    Delayed,
    /// It is no longer in memory.
    Gone,
}

/// A running turn task, and what is part of it.
pub(super) struct Turning {
    pub(super) number: u64,
    pub(super) messages: Batch,
    pub(super) calls: Vec<PendingCall>,
    /// The request rows among the calls.
    pub(super) call_rows: BTreeSet<RequestNumber>,
    /// The latest due time of the timers that it fires.
    pub(super) fired_ms: Option<u64>,
    /// The loaded row, if the history is read to decide what happens to the instance. Everything else is empty then.
    pub(super) decides: Option<Box<InstanceRow>>,
    /// The due times of the timers that it fires.
    pub(super) fired: Vec<u64>,
    /// The orchestration, if it is known and facts are collected.
    pub(super) orchestration: Option<Label>,
}

impl Turning {
    pub(super) fn new(
        number: u64,
        messages: Batch,
        calls: Vec<PendingCall>,
        fired_ms: Option<u64>,
    ) -> Turning {
        let call_rows = calls.iter().filter_map(|pending| pending.reply_to.row()).collect();
        let (decides, fired, orchestration) = (None, Vec::new(), None);
        Turning { number, messages, calls, call_rows, fired_ms, decides, fired, orchestration }
    }
}

/// What a turn delivers.
#[derive(Default)]
pub(super) struct Delivery {
    pub(super) jobs: Vec<Job>,
    /// The messages that the jobs came from, and those without effect.
    pub(super) messages: Vec<Queued>,
    /// The latest due time of the timers among the jobs.
    pub(super) fired_ms: Option<u64>,
    /// The due times of all of them.
    pub(super) fired: Vec<u64>,
    /// The part of the last message that a later turn delivers.
    pub(super) rest: Option<Box<Message>>,
}

impl Delivery {
    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.messages.is_empty()
    }

    /// Delivers messages after all others.
    pub(super) fn append(&mut self, messages: impl IntoIterator<Item = Queued>) {
        for queued in messages {
            match &queued.message {
                Message::Job(job) | Message::Outcome { job, .. } => self.jobs.push(job.clone()),
                Message::Carried { jobs, .. } => self.jobs.extend(jobs.iter().cloned()),
                _ => {}
            }
            self.messages.push(queued);
        }
    }

    /// Delivers only this many of the jobs that were carried over to the execution.
    pub(super) fn cut(&mut self, at_most: usize) {
        let Some(last) = self.messages.last().filter(|_| self.jobs.len() > at_most) else { return };
        let (execution, in_place_of) = match &last.message {
            Message::Start(start) => (start.started.execution, last.number()),
            Message::Carried { execution, in_place_of, .. } => (*execution, in_place_of.or(last.number())),
            _ => return,
        };
        let jobs = self.jobs.split_off(at_most);
        self.rest = Some(Box::new(Message::Carried { execution, jobs, in_place_of }));
    }

    pub(super) fn fire(&mut self, due_ms: u64, source_event_id: EventId) {
        self.jobs.push(Job::TimerFired { source_event_id });
        self.fired_ms = self.fired_ms.max(Some(due_ms));
        self.fired.push(due_ms);
    }
}

/// What happens once a commit is durable.
pub(super) struct InFlight {
    pub(super) outputs: Vec<Output>,
    pub(super) columns: RowColumns,
    pub(super) next: Next,
    /// The checksum of the last turn once it is durable, if there is one.
    pub(super) checksum: Option<u32>,
    /// The messages that are part of it, in case it fails.
    pub(super) messages: Batch,
    /// The request that starts the instance, if it is inserted.
    pub(super) start: Option<RequestId>,
    /// The tasks that other nodes can take once it is durable.
    pub(super) given: Vec<EventId>,
    /// The task rows that are part of it, in case it fails.
    pub(super) task_writes: Vec<TaskWrite>,
    /// Updates that it records, by event.
    pub(super) accepted: Vec<(EventId, PendingCall)>,
    /// Updates that it answers, by event.
    pub(super) answered: Vec<EventId>,
    /// How many messages it sends to the next execution: its start, and jobs that did not fit into the start.
    pub(super) carried_rows: usize,
    /// Inbox messages that it consumes.
    pub(super) consumed: Vec<InboxNumber>,
    /// Request rows that it answers.
    pub(super) answered_rows: BTreeSet<RequestNumber>,
    /// Calls that it answers without the code, in case it fails.
    pub(super) refused: Vec<PendingCall>,
    /// What is reported of it.
    pub(super) report: CommitReport,
    /// The span of its turn.
    pub(super) span: Option<Box<TakenSpan>>,
}

impl InFlight {
    pub(super) fn new(columns: RowColumns, next: Next, messages: Batch) -> InFlight {
        InFlight {
            outputs: Vec::new(),
            columns,
            next,
            checksum: None,
            messages,
            start: None,
            given: Vec::new(),
            task_writes: Vec::new(),
            accepted: Vec::new(),
            answered: Vec::new(),
            carried_rows: 0,
            consumed: Vec::new(),
            answered_rows: BTreeSet::new(),
            refused: Vec::new(),
            report: CommitReport::default(),
            span: None,
        }
    }

    /// Whether it records or answers a request row.
    pub(super) fn knows_row(&self, number: RequestNumber) -> bool {
        self.answered_rows.contains(&number)
            || self.accepted.iter().any(|(_, pending)| pending.reply_to.row() == Some(number))
    }

    /// Takes the calls that have to be made again because the commit failed.
    pub(super) fn take_calls(&mut self) -> impl Iterator<Item = PendingCall> + use<> {
        let accepted = std::mem::take(&mut self.accepted).into_iter().map(|(_, pending)| pending);
        accepted.chain(std::mem::take(&mut self.refused))
    }
}

/// What an instance does after a durable commit.
pub(super) enum Next {
    Idle(Box<Execution>),
    Blocked,
    /// Stays blocked; what arrived for it is kept.
    Kept,
    /// Is blocked, and retried immediately.
    Reloaded,
    /// Continues with an execution that keeps turns of this one.
    Reset,
    /// Still waits for its start time; what arrived for it is kept.
    Delayed,
    /// The next execution begins.
    Continued(Box<Execution>, Box<Start>),
    /// Had ended before; only calls were answered.
    CallsAnswered(Box<Execution>),
    Ended(Option<Box<Execution>>, Box<Ending>),
    /// Had ended before; only leftover rows were deleted.
    Gone,
}

impl Next {
    /// The execution that took the turn, if there was one.
    pub(super) fn into_execution(self) -> Option<Box<Execution>> {
        match self {
            Next::Idle(execution)
            | Next::Continued(execution, _)
            | Next::CallsAnswered(execution)
            | Next::Ended(Some(execution), _) => Some(execution),
            Next::Ended(None, _)
            | Next::Blocked
            | Next::Kept
            | Next::Delayed
            | Next::Reloaded
            | Next::Reset
            | Next::Gone => None,
        }
    }
}
