//! What is under way for an instance, and where it leads.

use std::collections::BTreeSet;

use crate::execution::Execution;
use crate::history::{Ending, EventId, Job};
use crate::store::{InboxNumber, InstanceRow, RequestNumber};

use super::super::message::{Message, Start};
use super::super::output::Output;
use super::super::request::{PendingCall, RequestId};
use super::queued::{Batch, Queued};
use super::row_columns::RowColumns;
use super::tasks::TaskWrite;

/// What is going on with an instance. Whatever it is, it is one thing at a time.
pub(super) enum Phase {
    /// Its rows were asked for. While an input is being handled, also that what is next is not decided yet.
    Loading,
    /// A turn task is being run.
    Turning(Turning),
    /// A commit is under way.
    Committing(Box<InFlight>),
    /// Its execution waits for something to happen.
    Idle(Box<Execution>),
    /// It cannot go on.
    Blocked,
    /// Its time to start has not come.
    Delayed,
    /// It is no longer in memory.
    Gone,
}

/// A turn task that is being run, and what is part of it.
pub(super) struct Turning {
    pub(super) number: u64,
    pub(super) messages: Batch,
    pub(super) calls: Vec<PendingCall>,
    /// The request rows among the questions.
    pub(super) call_rows: BTreeSet<RequestNumber>,
    /// The latest due time of a timer that it fires.
    pub(super) fired_ms: Option<u64>,
    /// The loaded row, if the history is read to decide what comes of the instance. There is nothing else in it then.
    pub(super) decides: Option<Box<InstanceRow>>,
}

impl Turning {
    pub(super) fn new(
        number: u64,
        messages: Vec<Queued>,
        calls: Vec<PendingCall>,
        fired_ms: Option<u64>,
    ) -> Turning {
        let call_rows = calls.iter().filter_map(|pending| pending.reply_to.row()).collect();
        Turning { number, messages: Batch::new(messages), calls, call_rows, fired_ms, decides: None }
    }
}

/// What a turn delivers.
#[derive(Default)]
pub(super) struct Delivery {
    pub(super) jobs: Vec<Job>,
    /// The messages that the jobs came with, and those that came to nothing.
    pub(super) messages: Vec<Queued>,
    /// The latest due time of a timer among the jobs.
    pub(super) fired_ms: Option<u64>,
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

    pub(super) fn fire(&mut self, due_ms: u64, source_event_id: EventId) {
        self.jobs.push(Job::TimerFired { source_event_id });
        self.fired_ms = self.fired_ms.max(Some(due_ms));
    }
}

/// What happens once a commit is durable.
pub(super) struct InFlight {
    pub(super) outputs: Vec<Output>,
    pub(super) columns: RowColumns,
    pub(super) next: Next,
    /// The checksum of the last turn once it is durable, if it has one.
    pub(super) checksum: Option<u32>,
    /// The messages that are part of it, in case it comes to nothing.
    pub(super) messages: Batch,
    /// Whether it inserts the instance.
    pub(super) start: Option<RequestId>,
    /// The tasks that other nodes can take then.
    pub(super) given: Vec<EventId>,
    /// The task rows that are part of it, in case it comes to nothing.
    pub(super) task_writes: Vec<TaskWrite>,
    /// Updates that it records, by event.
    pub(super) accepted: Vec<(EventId, PendingCall)>,
    /// Updates that it answers, by event.
    pub(super) answered: Vec<EventId>,
    /// How many messages it sends to the next execution: its start, and what did not fit into that.
    pub(super) carried_rows: usize,
    /// Messages of the inbox that it consumes.
    pub(super) consumed: Vec<InboxNumber>,
    /// Request rows that it answers.
    pub(super) answered_rows: BTreeSet<RequestNumber>,
    /// Questions that it answers without the code, in case it comes to nothing.
    pub(super) refused: Vec<PendingCall>,
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
        }
    }

    /// Whether a request row is among what it records or answers.
    pub(super) fn knows_row(&self, number: RequestNumber) -> bool {
        self.answered_rows.contains(&number)
            || self.accepted.iter().any(|(_, pending)| pending.reply_to.row() == Some(number))
    }

    /// Takes the questions that have to be put again if it comes to nothing.
    pub(super) fn take_calls(&mut self) -> impl Iterator<Item = PendingCall> + use<> {
        let accepted = std::mem::take(&mut self.accepted).into_iter().map(|(_, pending)| pending);
        accepted.chain(std::mem::take(&mut self.refused))
    }
}

/// Where an instance goes from a durable commit.
pub(super) enum Next {
    Idle(Box<Execution>),
    Blocked,
    /// Blocked as it was; what came for it is kept.
    Kept,
    /// Blocked, and tried again at once.
    Reloaded,
    /// The next execution begins with turns that it keeps of this one.
    Reset,
    /// Still waiting for its time to start; what came for it is kept.
    Delayed,
    /// The next execution begins.
    Continued(Box<Execution>, Box<Start>),
    /// It had ended before, and was only asked something.
    CallsAnswered(Box<Execution>),
    Ended(Option<Box<Execution>>, Box<Ending>),
    /// It had ended before; only left-overs were cleared.
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
