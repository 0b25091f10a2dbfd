//! What a shard knows about one instance that is not dormant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{Ending, EventId, Job, Ledger, Started};
use crate::instance::InstanceKey;
use crate::store::{
    InboxNumber, InboxRow, InstanceRow, RequestNumber, RowChange, Status, TaskRow, TaskState, TurnRow,
    read_turns,
};

use super::message::{Message, Start};
use super::output::Output;
use super::request::{AskReply, Asker, PendingAsk, Question, Request, RequestId};
use super::rows::{not_done_in_time, overdue};

pub(super) struct Slot {
    pub(super) id: Arc<str>,
    pub(super) phase: Phase,
    /// What waits for the next turn, in order.
    pub(super) queue: VecDeque<Queued>,
    /// What the stored row says; nothing before it is known.
    pub(super) facts: Option<Facts>,
    pub(super) last_used_ms: u64,
    /// The checksum of the last durable turn of the execution in memory.
    pub(super) checksum: u32,
    /// Callers that want to start this id while it is being started.
    pub(super) rival_starts: Vec<RequestId>,
    /// Until when a requested cancellation may clean up, as far as it is known.
    pub(super) grace_until_ms: Option<u64>,
    /// When it is ended as timed out, as far as it is known.
    pub(super) deadline_ms: Option<u64>,
    /// How many events of a blocked instance are kept in its inbox, as far as it is known.
    pub(super) kept_events: usize,
    /// The stored tasks of the current execution.
    pub(super) tasks: BTreeMap<EventId, TaskRow>,
    /// Whether it grew back, and nobody has looked since for open activities that nobody runs.
    pub(super) has_grown_back: bool,
    /// Rows of tasks that go with the next commit.
    pub(super) task_writes: Vec<TaskWrite>,
    /// Whether the rows of its tasks are being read again.
    pub(super) is_refreshing: bool,
    /// The tasks that were given to other nodes while that is so: what is being read may not hold them.
    pub(super) given_meanwhile: BTreeSet<EventId>,
    /// What the code is asked next.
    pub(super) asks: VecDeque<PendingAsk>,
    /// Counts what comes for it, so that questions keep their place among messages.
    pub(super) places: u64,
    /// What waits for a message of the same sender to be read from the inbox.
    pub(super) behind: Vec<Behind>,
    /// What blocks it, for those who ask it something meanwhile.
    pub(super) blocked_reply: Option<AskReply>,
    /// Whether somebody asked for it to be tried again, and it is being loaded for that.
    pub(super) is_retried: bool,
}

/// Where an activity stands that may run only while no other of its like does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lone {
    Wanted,
    Granted,
}

/// A task's row that has to be durable before its attempt runs.
pub(super) struct TaskWrite {
    pub(super) row: TaskRow,
    /// What follows once it is durable: an attempt begins, or is handed over.
    pub(super) then: Option<Output>,
}

impl TaskWrite {
    /// What follows once it is durable, while the write itself is kept in case that comes to nothing.
    pub(super) fn then_output(&self) -> Option<Output> {
        match &self.then {
            Some(Output::RunActivity(task)) => Some(Output::RunActivity(task.clone())),
            Some(Output::HandOver(task)) => Some(Output::HandOver(task.clone())),
            _ => None,
        }
    }
}

/// What is going on with an instance. Whatever it is, it is one thing at a time.
pub(super) enum Phase {
    /// Its rows were asked for.
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
}

/// A turn task that is being run, and what is part of it.
pub(super) struct Turning {
    pub(super) number: u64,
    pub(super) messages: Vec<Queued>,
    pub(super) asks: Vec<PendingAsk>,
    /// The latest due time of a timer that it fires.
    pub(super) fired_ms: Option<u64>,
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
    pub(super) messages: Vec<Queued>,
    /// Whether it inserts the instance.
    pub(super) start: Option<RequestId>,
    /// The tasks that are stored then.
    pub(super) tasks: BTreeMap<EventId, TaskRow>,
    /// The task rows that are part of it, in case it comes to nothing.
    pub(super) task_writes: Vec<TaskWrite>,
    /// Updates that it records, by event.
    pub(super) accepted: Vec<(EventId, PendingAsk)>,
    /// Updates that it answers, by event.
    pub(super) answered: Vec<EventId>,
    /// Messages of the inbox that it consumes.
    pub(super) consumed: Vec<InboxNumber>,
    /// Request rows that it answers.
    pub(super) answered_rows: Vec<RequestNumber>,
    /// Questions that it answers without the code, in case it comes to nothing.
    pub(super) refused: Vec<PendingAsk>,
}

impl InFlight {
    pub(super) fn new(facts: Facts, next: Next, messages: Vec<Queued>) -> InFlight {
        InFlight {
            outputs: Vec::new(),
            facts,
            next,
            checksum: None,
            messages,
            start: None,
            tasks: BTreeMap::new(),
            task_writes: Vec::new(),
            accepted: Vec::new(),
            answered: Vec::new(),
            consumed: Vec::new(),
            answered_rows: Vec::new(),
            refused: Vec::new(),
        }
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

/// A request that takes effect after a message that its sender had acknowledged before.
pub(super) struct Behind {
    pub(super) after: InboxNumber,
    pub(super) what: Late,
    /// Whether the messages are being read that were there when it came.
    pub(super) is_read_for: bool,
}

/// What a caller or another process wants of an instance.
pub(super) enum Late {
    Request(RequestId, Request),
    Ask(Asker, Question),
}

/// A message and who it came from.
pub(super) struct Queued {
    pub(super) message: Message,
    pub(super) origin: Origin,
    /// When it arrived: by the store's clock for a row, else the turn time when it was handed over.
    pub(super) arrived_ms: u64,
    /// Whether its row is marked as urgent in the store.
    pub(super) is_urgent_row: bool,
    /// Its place among what came for the instance.
    pub(super) place: u64,
}

impl Queued {
    pub(super) fn engine(message: Message, now_ms: u64) -> Queued {
        Queued::new(message, Origin::Engine, now_ms)
    }

    pub(super) fn new(message: Message, origin: Origin, now_ms: u64) -> Queued {
        Queued { message, origin, arrived_ms: now_ms, is_urgent_row: false, place: 0 }
    }

    pub(super) fn of_row(row: &InboxRow) -> Queued {
        Queued {
            message: Message::read(row.number, &row.body),
            origin: Origin::Inbox(row.number),
            arrived_ms: row.arrived_ms,
            is_urgent_row: row.urgent,
            place: 0,
        }
    }

    /// The number of its row, if the row is marked as urgent.
    pub(super) fn urgent_number(&self) -> Option<InboxNumber> {
        match self.origin {
            Origin::Inbox(number) if self.is_urgent_row => Some(number),
            _ => None,
        }
    }

    /// Whether a turn delivers it to the code.
    fn is_job(&self) -> bool {
        matches!(
            self.message,
            Message::Job(_) | Message::Outcome { .. } | Message::Attempt { .. } | Message::Requeue { .. }
        )
    }

    pub(super) fn is_event(&self) -> bool {
        matches!(self.message, Message::Job(Job::ExternalEvent { .. }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A caller who waits for an answer.
    Caller(RequestId),
    /// The inbox row of this number.
    Inbox(InboxNumber),
    /// The engine itself, which will know again after a crash.
    Engine,
}

/// The searched columns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) status: Status,
    pub(super) owed: bool,
    /// Whether senders are refused because the code has not read enough of what they sent.
    pub(super) full: bool,
    pub(super) wake_at_ms: Option<u64>,
    pub(super) blocked_attempts: u32,
    /// What blocks it, and since when.
    pub(super) blocked_cause: Option<(Arc<str>, u64)>,
    pub(super) execution: u64,
    pub(super) version: Arc<str>,
}

impl Facts {
    pub(super) fn of_row(row: &InstanceRow) -> Facts {
        Facts {
            status: row.status,
            owed: row.owed,
            full: row.full,
            wake_at_ms: row.wake_at_ms,
            blocked_attempts: row.blocked.as_ref().map_or(0, |blocked| blocked.attempts),
            blocked_cause: row
                .blocked
                .as_ref()
                .map(|blocked| (blocked.cause.as_str().into(), blocked.since_ms)),
            execution: row.execution,
            version: Arc::from(row.version.as_str()),
        }
    }

    /// What the row has to say after a turn. The time may stay early, which costs a look, but is never late.
    pub(super) fn after_turn(
        execution: &Execution,
        max_unread: usize,
        ending: Option<&Ending>,
        stored: &Facts,
        tasks: &BTreeMap<EventId, TaskRow>,
        now_ms: u64,
    ) -> Facts {
        let (ledger, started) = (execution.ledger(), execution.started());
        let status = ending.map_or(Status::Running, Status::after);
        let running = !status.is_final();
        let wanted = if running { wake_at_ms(ledger, started, tasks) } else { None };
        let wake_at_ms = match (stored.wake_at_ms, wanted) {
            (Some(stored), Some(wanted)) if stored <= wanted && stored > now_ms => Some(stored),
            (_, wanted) => wanted,
        };
        let elsewhere = tasks.values().filter(|row| !is_owners(row)).count();
        let owed = running && ledger.open_activities() > elsewhere;
        // Set at the limit and cleared at half of it, so that the row is not written back and forth.
        let full_from = if stored.full { max_unread / 2 } else { max_unread };
        let full = running && execution.unread_events() >= full_from.max(1);
        Facts {
            status,
            owed,
            full,
            wake_at_ms,
            blocked_attempts: 0,
            blocked_cause: None,
            execution: started.execution,
            version: pinned(started, stored),
        }
    }

    /// What has to be written to get from what is stored to this.
    pub(super) fn change_from(&self, stored: &Facts) -> RowChange {
        let is_unblocked = stored.blocked_attempts > 0 && self.blocked_attempts == 0;
        RowChange {
            status: (self.status != stored.status).then_some(self.status),
            owed: (self.owed != stored.owed).then_some(self.owed),
            full: (self.full != stored.full).then_some(self.full),
            // Whoever sends something urgent to a blocked instance makes its row due.
            wake_at_ms: (is_unblocked || self.wake_at_ms != stored.wake_at_ms).then_some(self.wake_at_ms),
            blocked: is_unblocked.then_some(None),
            execution: (self.execution != stored.execution).then_some(self.execution),
            version: (self.version != stored.version).then(|| self.version.to_string()),
            ..RowChange::default()
        }
    }
}

/// The version that an execution is pinned to.
pub(super) fn pinned(started: &Started, stored: &Facts) -> Arc<str> {
    if *stored.version == *started.version {
        return Arc::clone(&stored.version);
    }
    Arc::from(started.version.as_str())
}

/// When a running execution wants attention by itself: a timer, a task, the end of a cancel's grace, its deadline.
fn wake_at_ms(ledger: &Ledger, started: &Started, tasks: &BTreeMap<EventId, TaskRow>) -> Option<u64> {
    wakes_from(0, ledger, started, tasks)
}

/// When it wants attention, of all times that are not before this one.
pub(super) fn wakes_from(
    from_ms: u64,
    ledger: &Ledger,
    started: &Started,
    tasks: &BTreeMap<EventId, TaskRow>,
) -> Option<u64> {
    let timer = ledger.timers().next().map(|(due_ms, _)| due_ms);
    // A lease that another node holds is not this one's to watch; that all of its time is over, is.
    let own = tasks.values().filter(|row| !matches!(row.state, TaskState::Leased { .. }));
    let waiting = tasks.iter().filter(|(_, row)| !is_owners(row));
    let over = waiting.filter_map(|(event, _)| ledger.activity_deadline_ms(*event));
    let ends = [timer, ledger.cancel_grace_until_ms(), started.deadline_ms].into_iter().flatten();
    let all = own.filter_map(|row| row.due_ms).chain(over).chain(ends);
    all.filter(|at_ms| *at_ms >= from_ms).min()
}

/// Whether the owner itself runs a task now.
pub(super) fn is_owners(row: &TaskRow) -> bool {
    matches!(row.state, TaskState::Leased { .. }) && row.due_ms.is_none()
}

/// Whether it is for other nodes to take, or one of them runs it.
pub(super) fn is_others(row: &TaskRow) -> bool {
    !matches!(row.state, TaskState::Waiting) && !is_owners(row)
}

impl Slot {
    pub(super) fn new(id: Arc<str>, phase: Phase, now_ms: u64) -> Slot {
        Slot {
            id,
            phase,
            queue: VecDeque::new(),
            facts: None,
            last_used_ms: now_ms,
            checksum: 0,
            rival_starts: Vec::new(),
            grace_until_ms: None,
            deadline_ms: None,
            kept_events: 0,
            tasks: BTreeMap::new(),
            has_grown_back: false,
            task_writes: Vec::new(),
            is_refreshing: false,
            given_meanwhile: BTreeSet::new(),
            asks: VecDeque::new(),
            places: 0,
            behind: Vec::new(),
            blocked_reply: None,
            is_retried: false,
        }
    }

    /// Takes over what the stored row says.
    pub(super) fn read_row(&mut self, row: &InstanceRow) {
        self.facts = Some(Facts::of_row(row));
        self.blocked_reply = row
            .blocked
            .as_ref()
            .map(|blocked| AskReply::Blocked { code: blocked.code.clone(), reason: blocked.reason.clone() });
    }

    /// Has task rows of a commit that came to nothing written before what came since.
    pub(super) fn put_back_writes(&mut self, writes: Vec<TaskWrite>) {
        self.task_writes.splice(0..0, writes);
    }

    /// Ends the commit that is under way, if one is.
    pub(super) fn end_commit(&mut self) -> Option<Box<InFlight>> {
        match mem::replace(&mut self.phase, Phase::Loading) {
            Phase::Committing(in_flight) => Some(in_flight),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Ends the turn task of this number, if that is the one that is being run.
    pub(super) fn end_turn(&mut self, number: u64) -> Option<Turning> {
        match mem::replace(&mut self.phase, Phase::Loading) {
            Phase::Turning(turning) if turning.number == number => Some(turning),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// The activities whose results wait in the queue: they need not run again.
    pub(super) fn waiting_results(&self) -> BTreeSet<EventId> {
        let source = |queued: &Queued| match &queued.message {
            Message::Outcome { job, .. } => job.source_event_id(),
            Message::Attempt { event, .. } | Message::Requeue { event, .. } => Some(*event),
            _ => None,
        };
        self.queue.iter().filter_map(source).collect()
    }

    /// Adds a message of the inbox that a load found: it came before everything that waits.
    pub(super) fn insert_loaded(&mut self, row: &InboxRow) {
        self.insert_at(row, 0);
    }

    /// Adds a message of the inbox behind those of lower numbers and before those of higher ones.
    pub(super) fn insert_inbox(&mut self, row: &InboxRow) {
        let place = self.next_place();
        self.insert_at(row, place);
    }

    fn insert_at(&mut self, row: &InboxRow, among_all: u64) {
        let number = row.number;
        let is_later = |queued: &Queued| matches!(queued.origin, Origin::Inbox(other) if other > number);
        let place = self.queue.iter().position(is_later).unwrap_or(self.queue.len());
        let queued = Queued { place: among_all, ..Queued::of_row(row) };
        self.queue.insert(place, queued);
    }

    /// The place of what comes now.
    pub(super) fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Adds a message after all others.
    pub(super) fn push(&mut self, queued: Queued) {
        let queued = Queued { place: self.next_place(), ..queued };
        self.queue.push_back(queued);
    }

    /// Adds messages that callers brought while the inbox was being read, after what was read. What was asked meanwhile
    /// keeps its place among them, and comes after what was read as well.
    pub(super) fn bring_after(&mut self, brought: VecDeque<Queued>) {
        let mut asks = mem::take(&mut self.asks).into_iter().peekable();
        for queued in brought {
            while let Some(ask) = asks.next_if(|ask| ask.place < queued.place) {
                let place = self.next_place();
                self.asks.push_back(PendingAsk { place, ..ask });
            }
            self.push(queued);
        }
        for ask in asks {
            let place = self.next_place();
            self.asks.push_back(PendingAsk { place, ..ask });
        }
    }

    /// The questions that may be put before a turn delivers these messages: those that no message is to be delivered
    /// before, in order.
    pub(super) fn take_asks(&mut self, delivered: &[Queued]) -> Vec<PendingAsk> {
        // What comes after the end is never delivered.
        let has_ended = self.facts.as_ref().is_some_and(|facts| facts.status.is_final());
        let messages = delivered.iter().chain(&self.queue).filter(|queued| queued.is_job() && !has_ended);
        let first = messages.map(|queued| queued.place).min();
        let count = self.asks.iter().take_while(|ask| first.is_none_or(|first| ask.place < first)).count();
        self.asks.drain(..count).collect()
    }

    /// The numbers of the messages that are in memory.
    pub(super) fn inbox_numbers(&self) -> impl Iterator<Item = InboxNumber> + '_ {
        let in_work = match &self.phase {
            Phase::Turning(turning) => turning.messages.as_slice(),
            Phase::Committing(in_flight) => in_flight.messages.as_slice(),
            Phase::Loading | Phase::Idle(_) | Phase::Blocked | Phase::Delayed => &[],
        };
        in_work.iter().chain(&self.queue).filter_map(|queued| match queued.origin {
            Origin::Inbox(number) => Some(number),
            _ => None,
        })
    }

    /// How many events wait for the instance: recorded and not read by its code, kept in its inbox, or queued.
    pub(super) fn unread_events(&self) -> usize {
        let recorded = match &self.phase {
            Phase::Idle(execution) => execution.unread_events(),
            _ => 0,
        };
        recorded + self.kept_events + self.queue.iter().filter(|queued| queued.is_event()).count()
    }

    /// Whether its row says that senders are refused.
    pub(super) fn is_full(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.full)
    }

    /// Whether a message of the inbox is in memory already.
    pub(super) fn knows_inbox(&self, number: InboxNumber) -> bool {
        let is_it = |queued: &Queued| queued.origin == Origin::Inbox(number);
        let in_work = match &self.phase {
            Phase::Turning(turning) => turning.messages.iter().any(is_it),
            Phase::Committing(in_flight) => in_flight.messages.iter().any(is_it),
            Phase::Loading | Phase::Idle(_) | Phase::Blocked | Phase::Delayed => false,
        };
        in_work || self.queue.iter().any(is_it)
    }

    /// Whether a message that cannot be read is among those that wait.
    pub(super) fn unreadable(&self) -> Option<String> {
        self.queue.iter().find_map(|queued| match &queued.message {
            Message::Unreadable { reason } => Some(reason.clone()),
            _ => None,
        })
    }

    /// Whether a cancel request waits.
    pub(super) fn is_asked_to_cancel(&self) -> bool {
        let is_cancel = |queued: &Queued| {
            matches!(queued.message, Message::Job(Job::OrchestrationCancelRequested { .. }))
        };
        self.queue.iter().any(is_cancel)
    }

    /// Whether somebody's question is waiting or in work.
    pub(super) fn knows_asker(&self, asker: Asker) -> bool {
        let is_it = |ask: &PendingAsk| ask.asker == asker;
        let in_work = match &self.phase {
            Phase::Turning(turning) => turning.asks.iter().any(is_it),
            Phase::Committing(in_flight) => {
                let answered = |number: &RequestNumber| Asker::Row(*number) == asker;
                in_flight.accepted.iter().any(|(_, ask)| is_it(ask))
                    || in_flight.answered_rows.iter().any(answered)
            }
            Phase::Loading | Phase::Idle(_) | Phase::Blocked | Phase::Delayed => false,
        };
        in_work || self.asks.iter().any(is_it)
    }

    /// Whether a query waits: it can be answered after the end, too.
    pub(super) fn has_query(&self) -> bool {
        self.asks.iter().any(|ask| matches!(ask.question, Question::Query { .. }))
    }

    /// Whether it is blocked, also while something is kept for it or it is being tried again.
    pub(super) fn is_blocked(&self) -> bool {
        let facts = match &self.phase {
            Phase::Committing(in_flight) => Some(&in_flight.facts),
            _ => self.facts.as_ref(),
        };
        facts.is_some_and(|facts| facts.blocked_attempts > 0)
    }

    /// Whether somebody asks for it to be tried again.
    pub(super) fn take_retry(&mut self) -> bool {
        let waits = self.queue.iter().any(|queued| matches!(queued.message, Message::Retry));
        mem::take(&mut self.is_retried) || waits
    }

    /// The reason of a termination that waits, if one does.
    pub(super) fn termination(&self) -> Option<String> {
        self.queue.iter().find_map(|queued| match &queued.message {
            Message::Terminate { reason } => Some(reason.clone()),
            _ => None,
        })
    }

    /// Reads from a blocked instance's history until when it may clean up. Returns why it has to end now, if so.
    pub(super) fn read_grace(&mut self, key: InstanceKey, turns: &[TurnRow], now_ms: u64) -> Option<String> {
        let history = read_turns(key, turns).ok()?;
        let mut ledger = Ledger::default();
        history.turns.iter().try_for_each(|turn| ledger.apply_turn(turn)).ok()?;
        self.grace_until_ms = ledger.cancel_grace_until_ms();
        let started = history.turns.first()?.started()?;
        self.deadline_ms = started.deadline_ms;
        overdue(&ledger, started, now_ms)
    }

    /// Why an execution that has not begun has to end now, if so.
    pub(super) fn overdue_start(&mut self, now_ms: u64) -> Option<String> {
        let start = self.queue.iter().find_map(|queued| match &queued.message {
            Message::Start(start) => Some(start),
            _ => None,
        })?;
        self.deadline_ms = start.started.deadline_ms;
        self.grace_until_ms = start.grace_until_ms();
        // A cancel that was taken over crosses continue-as-new with the grace that it has.
        let cancel = start.cancel().filter(|(_, grace_until_ms)| *grace_until_ms <= now_ms);
        overdue(&Ledger::default(), &start.started, now_ms)
            .or_else(|| cancel.map(|(reason, _)| not_done_in_time(reason)))
    }

    /// The reason of a cancel request that waits and whose grace is over.
    pub(super) fn overdue_cancel(&self, now_ms: u64) -> Option<String> {
        self.queue.iter().find_map(|queued| match &queued.message {
            Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms })
                if *grace_until_ms <= now_ms =>
            {
                Some(reason.clone())
            }
            _ => None,
        })
    }
}
