//! One instance in memory: a state machine of its own.
//!
//! An [`Instance`] does one thing at a time ([`Phase`]); everything that arrives meanwhile waits in its queue. It
//! consists of parts that own their fields: messages ([`Queue`]), calls ([`PendingCalls`]), requests that wait for a
//! message to be read ([`Behind`]), task rows ([`Tasks`]) and the limits that the engine enforces ([`Limits`]). Each
//! input comes with the state that all instances of the shard share. An instance that is no longer needed in memory
//! reports it ([`Instance::is_gone`]), and the shard removes it.
//!
//! A turn is formed by [`Instance::go_on`] (`turns`) and taken by the driver; `taken` turns the result into a commit,
//! and `commits` does what follows once the commit is durable.

mod behind;
mod blocking;
mod calls;
mod commits;
mod in_flight;
mod limits;
mod loading;
mod logging;
mod open_ends;
mod pausing;
mod pending_calls;
mod planning;
mod queue;
mod queued;
mod reporting;
mod requests;
mod resetting;
mod results;
mod row_columns;
mod rows;
mod taken;
mod tasks;
mod tending;
mod terminating;
mod turns;
mod unreadable_events;

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::whole_ms;
use crate::instance::InstanceKey;
use crate::store::{InboxNumber, InboxRow, InstanceRow, RequestNumber, Status};

use super::output::Output;
use super::request::{CallReply, RequestId, Response};
use super::residents::Stay;
use super::shared::Shared;

pub(super) use calls::make_calls;

use behind::Behind;
use in_flight::{InFlight, Next, Phase, Turning};
use limits::Limits;
use pending_calls::PendingCalls;
use queue::Queue;
use queued::Batch;
use row_columns::RowColumns;
use tasks::Tasks;

pub(super) struct Instance {
    key: InstanceKey,
    /// Empty until it is known.
    id: Arc<str>,
    phase: Phase,
    stay: Stay,
    queue: Queue,
    pending_calls: PendingCalls,
    behind: Behind,
    tasks: Tasks,
    limits: Limits,
    /// The columns of the stored row; `None` until they are known.
    columns: Option<RowColumns>,
    /// The checksum of the last durable turn of the execution in memory.
    checksum: u32,
    /// Callers that want to start this id while it is being started.
    rival_starts: Vec<RequestId>,
    /// The known number of events of a blocked instance that are kept in its inbox.
    kept_events: usize,
    /// Whether it is blocked and its kept events have not been counted.
    is_uncounted: bool,
    /// How many recorded events its execution had not read when it was last idle, or leaves to the next one. Zero
    /// before it was hydrated: see [`Instance::refuse_surplus`].
    recorded_unread: usize,
    /// The reply to calls while it is blocked.
    blocked_reply: Option<CallReply>,
    /// Whether it is being loaded because a retry was requested.
    is_retried: bool,
    /// How many turns did not end in time since one was last recorded, according to its row; and whether a retry was
    /// requested in spite of that.
    lost_turns: u32,
    is_asked_for: bool,
    /// Inbox rows that requested a retry, and have had it.
    tried: BTreeSet<InboxNumber>,
}

impl Instance {
    /// An instance whose rows are being loaded, or that starts.
    pub(super) fn loading(key: InstanceKey, id: Arc<str>) -> Instance {
        Instance {
            key,
            id,
            phase: Phase::Loading,
            stay: Stay::default(),
            queue: Queue::default(),
            pending_calls: PendingCalls::default(),
            behind: Behind::default(),
            tasks: Tasks::default(),
            limits: Limits::default(),
            columns: None,
            checksum: 0,
            rival_starts: Vec::new(),
            kept_events: 0,
            is_uncounted: false,
            recorded_unread: 0,
            blocked_reply: None,
            is_retried: false,
            lost_turns: 0,
            is_asked_for: false,
            tried: BTreeSet::new(),
        }
    }

    /// An instance that was looked up. A blocked one rests; any other has to be loaded.
    pub(super) fn found(shared: &mut Shared, now_ms: u64, row: &InstanceRow) -> Instance {
        let mut instance = Instance::loading(row.key, Arc::from(row.id.as_str()));
        instance.read_row(row);
        if row.blocked.is_some() && !row.status.is_final() {
            instance.phase = Phase::Blocked;
            instance.is_uncounted = true;
            instance.rest(shared, now_ms);
        } else {
            shared.outputs.push(Output::Load { key: row.key });
        }
        instance
    }

    pub(super) fn key(&self) -> InstanceKey {
        self.key
    }

    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Sets its id. [`Instances`](super::instances::Instances) indexes it by that.
    pub(super) fn set_id(&mut self, id: Arc<str>) {
        self.id = id;
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    pub(super) fn is_loading(&self) -> bool {
        matches!(self.phase, Phase::Loading)
    }

    pub(super) fn is_committing(&self) -> bool {
        matches!(self.phase, Phase::Committing(_))
    }

    /// Whether work is in progress: a turn, a load, a commit, or a request that waits for a message to be read.
    pub(super) fn is_busy(&self) -> bool {
        match self.phase {
            Phase::Loading | Phase::Turning(_) | Phase::Committing(_) => true,
            Phase::Idle(_) | Phase::Blocked | Phase::Delayed => !self.behind.is_empty(),
            Phase::Gone => false,
        }
    }

    /// Its status, once its row is stored.
    pub(super) fn status(&self) -> Option<Status> {
        self.columns.as_ref().map(|columns| columns.status)
    }

    /// Adds a caller that wants to start its id while it is not known whether that exists.
    pub(super) fn add_rival_start(&mut self, request: RequestId) {
        self.rival_starts.push(request);
    }

    /// Handles a message from the inbox. Returns whether it was new.
    pub(super) fn handle_inbox(&mut self, shared: &mut Shared, now_ms: u64, row: &InboxRow) -> bool {
        // While earlier messages are being read, this one will be passed again after them.
        if self.knows_inbox(row.number) || self.tasks.is_refreshing() || self.is_ahead_of_cure(row) {
            return false;
        }
        self.queue.insert_read(row);
        self.go_on(shared, now_ms);
        true
    }

    /// Whether a message was read although the instance is blocked as far as this node knows: the commit that unblocks
    /// it is written, but its outcome has not arrived. The pass that read the message may have skipped earlier ones;
    /// after the outcome, all are read in order.
    fn is_ahead_of_cure(&self, row: &InboxRow) -> bool {
        let Phase::Committing(in_flight) = &self.phase else { return false };
        !row.urgent
            && !in_flight.columns.is_blocked()
            && self.columns.as_ref().is_some_and(RowColumns::is_blocked)
    }

    /// Handles a notice that a new owner has to examine it: it has owed work, or is blocked.
    pub(super) fn handle_owed(&mut self, shared: &mut Shared) {
        match &mut self.phase {
            Phase::Blocked => self.reload(shared),
            Phase::Committing(in_flight) if matches!(in_flight.next, Next::Kept) => {
                in_flight.next = Next::Reloaded;
            }
            _ => {}
        }
    }

    /// Handles a wake time from the store. A resident instance knows its own wake time; a blocked one may have been
    /// made due by another process.
    pub(super) fn handle_due(&mut self, shared: &mut Shared, wake_at_ms: u64) {
        if matches!(self.phase, Phase::Blocked | Phase::Delayed) {
            // The page may be older than what is known here.
            let known = shared.wakes.of(self.key);
            shared.wakes.set(self.key, known.into_iter().chain([wake_at_ms]).min());
        }
    }

    /// Handles its wake time.
    pub(super) fn handle_wake(&mut self, shared: &mut Shared, now_ms: u64) {
        match self.phase {
            Phase::Idle(_) => self.go_on(shared, now_ms),
            Phase::Blocked | Phase::Delayed => self.reload(shared),
            _ => {}
        }
    }

    /// Evicts it from memory, if it is idle. If it is due soon, its wake time is kept.
    pub(super) fn evict(&mut self, shared: &mut Shared, now_ms: u64) {
        shared.residents.leave(&mut self.stay);
        let is_at_rest = match self.phase {
            // A request waits for its messages to be read.
            _ if !self.behind.is_empty() => false,
            Phase::Idle(_) | Phase::Delayed => true,
            // The result of a running attempt would load it again, and so retry it before its time.
            Phase::Blocked => shared.attempts.of(self.key).next().is_none(),
            // It was idle, and is being retried.
            _ => false,
        };
        if !is_at_rest {
            return;
        }
        let wake = shared.wakes.of(self.key);
        if let Phase::Idle(execution) = self.forget(shared) {
            shared.outputs.push(Output::Drop(execution));
            shared.counters.evictions += 1;
        }
        if flaws::is(Flaw::EvictionCancels) {
            shared.stop_attempts(self.key);
        }
        let soon_ms = now_ms + whole_ms(shared.options.lookahead);
        let stored_ms = self.columns.as_ref().and_then(|columns| columns.wake_at_ms);
        // Later wake times are read from the store when they come near, unless they are not stored.
        let is_kept = |at_ms: &u64| *at_ms < soon_ms || stored_ms.is_none_or(|stored_ms| stored_ms > *at_ms);
        shared.wakes.set(self.key, wake.filter(is_kept).filter(|_| !flaws::is(Flaw::EvictionForgetsWakes)));
    }

    /// Handles the loss of the shard: everybody who waits here is notified.
    pub(super) fn lose(mut self, shared: &mut Shared) {
        let mut messages = self.queue.take_all();
        let mut waiting = self.pending_calls.take_callers();
        match self.forget(shared) {
            Phase::Idle(execution) => shared.outputs.push(Output::Drop(execution)),
            Phase::Turning(turning) => {
                messages.extend(turning.messages.into_messages());
                waiting.extend(turning.calls.iter().filter_map(|pending| pending.reply_to.caller()));
            }
            Phase::Committing(mut in_flight) => {
                self.report_refused(shared, &in_flight.report);
                waiting.extend(in_flight.take_calls().filter_map(|pending| pending.reply_to.caller()));
                messages.extend(in_flight.messages.into_messages());
                shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
            }
            Phase::Loading | Phase::Blocked | Phase::Delayed | Phase::Gone => {}
        }
        waiting.extend(self.behind.take_callers());
        let moved = Response::Moved { key: None };
        self.answer_all(shared, &messages, &moved);
        for request in waiting {
            shared.reply(request, moved.clone());
        }
    }

    /// Removes it from memory, and returns its last phase.
    fn forget(&mut self, shared: &mut Shared) -> Phase {
        shared.residents.leave(&mut self.stay);
        shared.wakes.set(self.key, None);
        mem::replace(&mut self.phase, Phase::Gone)
    }

    /// Takes over the columns of its stored row.
    fn read_row(&mut self, row: &InstanceRow) {
        self.columns = Some(RowColumns::of_row(row));
        self.blocked_reply = row
            .blocked
            .as_ref()
            .map(|blocked| CallReply::Blocked { code: blocked.code.clone(), reason: blocked.reason.clone() });
    }

    /// Requests its rows.
    fn reload(&mut self, shared: &mut Shared) {
        self.phase = Phase::Loading;
        shared.outputs.push(Output::Load { key: self.key });
    }

    /// Requests its tasks and messages again, unless that is in progress.
    fn refresh(&mut self, shared: &mut Shared) {
        if self.tasks.begin_refresh() {
            shared.outputs.push(Output::Refresh { key: self.key });
        }
    }

    /// Marks it as idle from now on.
    fn rest(&mut self, shared: &mut Shared, now_ms: u64) {
        let bytes = match &self.phase {
            Phase::Idle(execution) => execution.ledger().bytes(),
            _ => 0,
        };
        shared.residents.enter(&mut self.stay, now_ms, self.key, bytes);
    }

    /// Takes the idle execution, if there is one, to give it work.
    fn take_idle(&mut self) -> Option<Box<Execution>> {
        match mem::replace(&mut self.phase, Phase::Loading) {
            Phase::Idle(execution) => Some(execution),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Ends the commit in progress, if there is one.
    fn end_commit(&mut self) -> Option<InFlight> {
        match mem::replace(&mut self.phase, Phase::Loading) {
            Phase::Committing(in_flight) => Some(*in_flight),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Ends the turn task with this number, if it is the current one.
    fn end_turn(&mut self, number: u64) -> Option<Turning> {
        match mem::replace(&mut self.phase, Phase::Loading) {
            Phase::Turning(turning) if turning.number == number => Some(turning),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// The numbers of the messages that are in memory.
    pub(super) fn inbox_numbers(&self) -> impl Iterator<Item = InboxNumber> + '_ {
        let in_work = match &self.phase {
            Phase::Turning(turning) => turning.messages.numbers(),
            Phase::Committing(in_flight) => in_flight.messages.numbers(),
            _ => &[],
        };
        in_work.iter().copied().chain(self.queue.numbers())
    }

    /// Whether an inbox message is already in memory.
    fn knows_inbox(&self, number: InboxNumber) -> bool {
        let in_work = match &self.phase {
            Phase::Turning(turning) => turning.messages.knows(number),
            Phase::Committing(in_flight) => in_flight.messages.knows(number),
            _ => false,
        };
        in_work || self.queue.knows(number)
    }

    /// Whether a request row is already in memory.
    pub(super) fn knows_request_row(&self, number: RequestNumber) -> bool {
        let in_work = match &self.phase {
            Phase::Turning(turning) => turning.call_rows.contains(&number),
            Phase::Committing(in_flight) => in_flight.knows_row(number),
            _ => false,
        };
        in_work || self.pending_calls.knows_row(number) || self.behind.knows_row(number)
    }

    /// The number of events that wait for it: recorded but unread, kept in its inbox, or queued.
    fn unread_events(&self) -> usize {
        let recorded = match &self.phase {
            Phase::Turning(turning) => self.recorded_unread + turning.messages.events(),
            Phase::Committing(in_flight) => match &in_flight.next {
                Next::Idle(execution) => execution.unread_events(),
                Next::Delayed => in_flight.messages.events(),
                Next::Continued(..) | Next::Blocked | Next::Kept | Next::Reloaded | Next::Reset => {
                    self.recorded_unread
                }
                Next::Ended(..) | Next::CallsAnswered(_) | Next::Gone => 0,
            },
            Phase::Loading | Phase::Idle(_) | Phase::Blocked | Phase::Delayed => self.recorded_unread,
            Phase::Gone => 0,
        };
        recorded + self.kept_events + self.queue.events()
    }

    /// Whether it accepts no more events until its code has read some.
    fn is_full(&self, shared: &Shared) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.full)
            || self.unread_events() >= shared.options.max_unread
    }

    /// Refuses the events of callers beyond the limit, which were queued while the number of unread events was not
    /// known. None of them had been acknowledged.
    fn refuse_surplus(&mut self, shared: &mut Shared) {
        let surplus = self.unread_events().saturating_sub(shared.options.max_unread);
        if surplus == 0 {
            return;
        }
        let refused = Batch::new(self.queue.take_last_events(surplus));
        shared.counters.events_refused += refused.events() as u64;
        let full = Response::Full { unread: self.unread_events() };
        shared.outputs.extend(refused.replies(&full));
    }

    /// Whether it is blocked, even while messages are being kept for it or it is being retried.
    fn is_blocked(&self) -> bool {
        let columns = match &self.phase {
            Phase::Committing(in_flight) => Some(&in_flight.columns),
            _ => self.columns.as_ref(),
        };
        columns.is_some_and(RowColumns::is_blocked)
    }

    fn has_ended(&self) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.status.is_final())
    }

    /// The stored columns. To be called only if the row is known to exist.
    fn stored(&self) -> RowColumns {
        self.columns.clone().expect("its row is stored")
    }
}
