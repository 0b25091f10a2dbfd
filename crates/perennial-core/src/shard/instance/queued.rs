//! Messages on their way to an instance, and those that a turn or commit has taken.

use std::collections::BTreeSet;

use crate::history::{EventId, Job, Started};
use crate::store::{InboxNumber, InboxRow};

use super::super::gaps::Grace;
use super::super::message::Message;
use super::super::output::Output;
use super::super::request::{RequestId, Response};

/// A message and its origin.
pub(super) struct Queued {
    pub(super) message: Message,
    pub(super) origin: Origin,
    /// When it arrived: by the store's clock for a row, otherwise the turn time at which it was passed in.
    pub(super) arrived_ms: u64,
    /// Whether its row is marked as urgent in the store.
    pub(super) is_urgent_row: bool,
    /// A counter of arrivals, including calls. Zero for messages returned by a load, which arrived before everything
    /// else.
    pub(super) place: u64,
    /// Its position in the queue. A row keeps its place by number, whenever it was read.
    pub(super) position: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A caller that waits for a response.
    Caller(RequestId),
    /// The inbox row with this number.
    Inbox(InboxNumber),
    /// The engine itself, which will produce it again after a crash.
    Engine,
}

/// Something with its origin and time of arrival.
pub(super) struct Arrived<T> {
    pub(super) what: T,
    pub(super) origin: Origin,
    pub(super) arrived_ms: u64,
}

impl Queued {
    pub(super) fn engine(message: Message, now_ms: u64) -> Queued {
        Queued::new(message, Origin::Engine, now_ms)
    }

    pub(super) fn new(message: Message, origin: Origin, now_ms: u64) -> Queued {
        Queued { message, origin, arrived_ms: now_ms, is_urgent_row: false, place: 0, position: 0 }
    }

    pub(super) fn of_row(row: &InboxRow) -> Queued {
        Queued {
            message: Message::read(row.number, &row.body),
            origin: Origin::Inbox(row.number),
            arrived_ms: row.arrived_ms,
            is_urgent_row: row.urgent,
            place: 0,
            position: 0,
        }
    }

    /// The number of its row, if it is from the inbox.
    pub(super) fn number(&self) -> Option<InboxNumber> {
        match self.origin {
            Origin::Inbox(number) => Some(number),
            _ => None,
        }
    }

    /// The number of its row, if that is marked as urgent.
    pub(super) fn urgent_number(&self) -> Option<InboxNumber> {
        self.number().filter(|_| self.is_urgent_row)
    }

    /// Whether it requests one retry, and is useless afterwards. A request to skip an event could later skip a
    /// different event with the same id.
    pub(super) fn is_one_try(&self) -> bool {
        matches!(self.message, Message::Retry) || self.message.skipped().is_some()
    }

    /// The number of its row, if it requests one retry.
    pub(super) fn retry_number(&self) -> Option<InboxNumber> {
        self.number().filter(|_| self.is_one_try())
    }

    /// Whether a turn delivers it to the code.
    pub(super) fn is_job(&self) -> bool {
        matches!(
            self.message,
            Message::Job(_)
                | Message::Carried { .. }
                | Message::Outcome { .. }
                | Message::Attempt { .. }
                | Message::LeftOpen(_)
                | Message::Token(_)
                | Message::Requeue { .. }
        )
    }

    /// How many events and cancel requests it contains, and their size.
    pub(super) fn jobs(&self) -> (usize, u64) {
        match &self.message {
            Message::Job(job) => (1, job.weight()),
            Message::Carried { jobs, .. } => (jobs.len(), jobs.iter().map(Job::weight).sum()),
            _ => (0, 0),
        }
    }

    /// How many events it contains.
    pub(super) fn events(&self) -> usize {
        match &self.message {
            Message::Job(_) => usize::from(self.is_event()),
            Message::Carried { jobs, .. } => count_events(jobs),
            Message::Start(start) => count_events(&start.jobs),
            _ => 0,
        }
    }

    /// Whether it records a repair.
    pub(super) fn is_repair(&self) -> bool {
        matches!(&self.message, Message::Job(job) if job.is_repair())
    }

    /// Whether it is one event.
    pub(super) fn is_event(&self) -> bool {
        matches!(self.message, Message::Job(Job::ExternalEvent { .. }))
    }

    /// Whether it exists only in memory and would be lost, unless the instance takes it now or it is written into the
    /// inbox.
    pub(super) fn is_only_here(&self) -> bool {
        !matches!(self.origin, Origin::Inbox(_))
            && !self.is_one_try()
            && !matches!(self.message, Message::Unreadable { .. })
    }

    pub(super) fn is_termination(&self) -> bool {
        matches!(self.message, Message::Terminate { .. })
    }

    /// The reason of a cancel request, and its grace period if the instance stays blocked: from its arrival.
    pub(super) fn cancel(&self) -> Option<(&str, Grace)> {
        match &self.message {
            Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms }) => {
                Some((reason, Grace { from_ms: self.arrived_ms, grace_ms: *grace_ms }))
            }
            _ => None,
        }
    }

    /// The executions and activities or children whose outcomes it contains.
    pub(super) fn results_of(&self) -> impl Iterator<Item = (u64, EventId)> + use<'_> {
        let (execution, event, jobs): (u64, Option<EventId>, &[Job]) = match &self.message {
            Message::Outcome { execution, job } => (*execution, job.source_event_id(), &[]),
            Message::Attempt { execution, event, .. } | Message::Requeue { execution, event, .. } => {
                (*execution, Some(*event), &[])
            }
            Message::LeftOpen(left) => (left.execution, Some(left.event), &[]),
            Message::Carried { execution, jobs, .. } => (*execution, None, jobs),
            _ => (0, None, &[]),
        };
        let events = event.into_iter().chain(jobs.iter().filter_map(Job::source_event_id));
        events.map(move |event| (execution, event))
    }

    /// The caller that waits for its outcome. A caller that starts an instance is handled separately.
    pub(super) fn caller(&self) -> Option<RequestId> {
        match (&self.message, self.origin) {
            (Message::Start(_), _) => None,
            (_, Origin::Caller(request)) => Some(request),
            _ => None,
        }
    }
}

/// How many of these are events.
pub(super) fn count_events(jobs: &[Job]) -> usize {
    jobs.iter().filter(|job| matches!(job, Job::ExternalEvent { .. })).count()
}

/// Messages that a turn or commit has taken.
#[derive(Default)]
pub(super) struct Batch {
    messages: Vec<Queued>,
    /// The numbers of their rows, in ascending order.
    numbers: Vec<InboxNumber>,
    /// What they bring and is not taken with them. Whoever consumes them sends it.
    rest: Option<Box<Message>>,
}

impl Batch {
    pub(super) fn new(messages: Vec<Queued>) -> Batch {
        Batch::with_rest(messages, None)
    }

    /// Messages of which a part is not taken.
    pub(super) fn with_rest(messages: Vec<Queued>, rest: Option<Box<Message>>) -> Batch {
        let mut numbers: Vec<InboxNumber> = messages.iter().filter_map(Queued::number).collect();
        numbers.sort_unstable();
        Batch { messages, numbers, rest }
    }

    /// What they bring and is not taken with them.
    pub(super) fn rest(&self) -> Option<&Message> {
        self.rest.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The numbers of their rows.
    pub(super) fn numbers(&self) -> &[InboxNumber] {
        &self.numbers
    }

    pub(super) fn knows(&self, number: InboxNumber) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.messages.iter()
    }

    pub(super) fn into_messages(self) -> Vec<Queued> {
        self.messages
    }

    /// Responses to everyone who sent one of the messages, except starts.
    pub(super) fn replies(&self, answer: &Response) -> impl Iterator<Item = Output> {
        let callers = self.messages.iter().filter_map(Queued::caller);
        callers.map(|request| Output::reply(request, answer.clone()))
    }

    /// Responses to everyone who sent one of the messages, except starts, if a turn takes them. Events with these keys
    /// came too late for it.
    pub(super) fn taken_replies(&self, late_events: &BTreeSet<String>) -> impl Iterator<Item = Output> {
        let is_late = |queued: &Queued| {
            queued.events() > 0 && queued.message.dedupe().is_some_and(|key| late_events.contains(key))
        };
        self.messages.iter().filter_map(move |queued| {
            let answer = if is_late(queued) { Response::TooLate } else { Response::Accepted };
            Some(Output::reply(queued.caller()?, answer))
        })
    }

    /// The request that started the instance.
    pub(super) fn start_request(&self) -> Option<RequestId> {
        self.messages.iter().find_map(|queued| match (&queued.message, queued.origin) {
            (Message::Start(_), Origin::Caller(request)) => Some(request),
            _ => None,
        })
    }

    /// How the instance starts.
    pub(super) fn started(&self) -> Option<&Started> {
        self.messages.iter().find_map(|queued| match &queued.message {
            Message::Start(start) => Some(&start.started),
            _ => None,
        })
    }

    /// Whether the start is an inbox row.
    pub(super) fn has_stored_start(&self) -> bool {
        let is_it =
            |queued: &Queued| matches!(queued.message, Message::Start(_)) && queued.number().is_some();
        self.messages.iter().any(is_it)
    }

    /// The grace periods of the cancel requests among them.
    pub(super) fn cancel_graces(&self) -> impl Iterator<Item = Grace> {
        self.messages.iter().filter_map(Queued::cancel).map(|(_, grace)| grace)
    }

    pub(super) fn events(&self) -> usize {
        self.messages.iter().map(Queued::events).sum()
    }
}
