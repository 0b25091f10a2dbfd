//! What is under way for an instance, and where it leads.

use std::collections::BTreeSet;

use crate::execution::Execution;
use crate::history::{Ending, EventId, Job};
use crate::store::{InboxNumber, InstanceRow, RequestNumber};

use super::super::message::{Message, Start};
use super::super::output::Output;
use super::super::request::{PendingAsk, RequestId};
use super::facts::Facts;
use super::queued::{Batch, Queued};
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
    pub(super) asks: Vec<PendingAsk>,
    /// The request rows among the questions.
    pub(super) asked_rows: BTreeSet<RequestNumber>,
    /// The latest due time of a timer that it fires.
    pub(super) fired_ms: Option<u64>,
    /// The loaded row, if the history is read to decide what comes of the instance. There is nothing else in it then.
    pub(super) decides: Option<Box<InstanceRow>>,
}

impl Turning {
    pub(super) fn new(number: u64, messages: Batch, asks: Vec<PendingAsk>, fired_ms: Option<u64>) -> Turning {
        let asked_rows = asks.iter().filter_map(|ask| ask.asker.row()).collect();
        Turning { number, messages, asks, asked_rows, fired_ms, decides: None }
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
    /// What the last message brings besides, for a later turn.
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

    /// Delivers only this many of the jobs that crossed to the execution.
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
    }
}

/// What happens once a commit is durable.
pub(super) struct InFlight {
    pub(super) outputs: Vec<Output>,
    pub(super) facts: Facts,
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
    pub(super) accepted: Vec<(EventId, PendingAsk)>,
    /// Updates that it answers, by event.
    pub(super) answered: Vec<EventId>,
    /// How many messages it sends to the next execution: its start, and what did not fit into that.
    pub(super) carried_rows: usize,
    /// Messages of the inbox that it consumes.
    pub(super) consumed: Vec<InboxNumber>,
    /// Request rows that it answers.
    pub(super) answered_rows: BTreeSet<RequestNumber>,
    /// Questions that it answers without the code, in case it comes to nothing.
    pub(super) refused: Vec<PendingAsk>,
}

impl InFlight {
    pub(super) fn new(facts: Facts, next: Next, messages: Batch) -> InFlight {
        InFlight {
            outputs: Vec::new(),
            facts,
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
            || self.accepted.iter().any(|(_, ask)| ask.asker.row() == Some(number))
    }

    /// Takes the questions that have to be put again if it comes to nothing.
    pub(super) fn take_asks(&mut self) -> impl Iterator<Item = PendingAsk> + use<> {
        let accepted = std::mem::take(&mut self.accepted).into_iter().map(|(_, ask)| ask);
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
    Consulted(Box<Execution>),
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
            | Next::Consulted(execution)
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
