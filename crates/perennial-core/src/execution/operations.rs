//! Activities, timers, waits and children that have a future: from schedule to result.
//!
//! An operation lives exactly as long as its future. Its token is known from the call on, its event id from the end of
//! that step.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::task::{Poll, Waker};
use std::thread;

use crate::ascending_map::AscendingMap;
use crate::history::{ActivityError, ChildError, Decision, Delivery, EventId, Job, Payload};

use super::mailbox::Arrival;
use super::recorder::{Emitted, Fate};
use super::scheduler::Waiter;
use super::slab::Slab;
use super::state::{ExecutionState, Mode, Stop};

/// Identifies an operation before it has an event id.
pub(crate) type Token = usize;

#[derive(Default)]
pub(crate) struct Operations {
    slots: Slab<Operation>,
    by_event: AscendingMap<Token>,
    /// Operations with a result that their future has not returned yet, by the event of the result. Waits are not
    /// included: their events are in the mailbox. One event can report both the start and the end of a child.
    stored: BTreeSet<(EventId, Token)>,
    /// Operations that wait for the start of a child, by the child's schedule event.
    starts: BTreeMap<EventId, Token>,
}

struct Operation {
    kind: OperationKind,
    binding: Binding,
    /// Its completion is among the recorded jobs, delivered or not: dropping its future cancels nothing.
    recorded: bool,
    stored: Option<(EventId, Completion)>,
    waiter: Option<Waiter>,
    /// It was asked to stop, and its future waits for the outcome.
    is_stopping: bool,
    /// For a child: the operation that waits for its start.
    start: Option<Token>,
    /// For a child that may be retried: its schedule, as recorded.
    again: Option<Box<Decision>>,
    /// Where a select last found its future. The code may have moved it since.
    place: Option<u32>,
}

impl Operation {
    fn new(kind: OperationKind, position: usize) -> Operation {
        Operation {
            kind,
            binding: Binding::Emitted(position),
            recorded: false,
            stored: None,
            waiter: None,
            is_stopping: false,
            start: None,
            again: None,
            place: None,
        }
    }
}

/// What a select knows about its operands without examining each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Every operation waits with the waker of the running unit: polling any of them changes nothing.
    AllWait,
    /// This one has the earliest result; every operation without a result waits as above.
    Result {
        /// The operation.
        token: Token,
        /// Where its future was last found.
        place: Option<usize>,
    },
    /// Some operation may have to be polled.
    Unclear,
}

pub(crate) enum OperationKind {
    Activity,
    Timer,
    Child,
    Wait {
        name: String,
    },
    /// The start of a child. The child is a separate operation.
    ChildStart,
    /// The outcome of something sent to another instance.
    Delivery,
}

impl OperationKind {
    /// Whether the decision remains in effect after the future was dropped.
    fn outlives_future(&self) -> bool {
        matches!(self, OperationKind::ChildStart | OperationKind::Delivery)
    }
}

enum Binding {
    /// The position in the step's buffer.
    Emitted(usize),
    Event(EventId),
    /// It never completes: it is the start of a child whose future was dropped.
    Withdrawn,
}

/// The outcome of an operation.
pub(crate) enum Completion {
    Activity(Result<Payload, ActivityError>),
    Timer,
    /// The second field is the schedule of a child that may be retried.
    Child(Result<Payload, ChildError>, Option<Box<Decision>>),
    ChildStart(Result<(), ChildError>),
    Delivery(Delivery),
    Wait(Payload),
}

/// What a call leaves to be done where user code may run.
#[derive(Default)]
pub(crate) struct Leftover {
    /// To be dropped.
    pub(crate) waiter: Option<Waiter>,
    /// To be woken.
    pub(crate) wake: Option<Waker>,
}

impl Leftover {
    pub(crate) fn settle(self) {
        drop(self.waiter);
        if let Some(waker) = self.wake {
            waker.wake();
        }
    }
}

impl ExecutionState {
    /// Schedules an operation.
    pub(crate) fn schedule(
        &mut self,
        kind: OperationKind,
        decision: Decision,
        location: &'static Location<'static>,
    ) -> Result<Token, Stop> {
        let position = self.emit(decision, location)?;
        let subscription = match &kind {
            OperationKind::Wait { name } => Some(name.clone()),
            _ => None,
        };
        let token = self.operations.slots.insert(Operation::new(kind, position));
        self.step.emitted[position].token = Some(token);
        if let Some(name) = subscription {
            self.mailbox.subscribe(&name, token);
        }
        Ok(token)
    }

    /// Subscribes to an event.
    pub(crate) fn subscribe(
        &mut self,
        name: String,
        location: &'static Location<'static>,
    ) -> Result<Token, Stop> {
        self.check_no_handler(&name)?;
        let kind = OperationKind::Wait { name: name.clone() };
        self.schedule(kind, Decision::ExternalSubscribed { name }, location)
    }

    /// Receives the first unread event of a name that no wait holds, if there is one: recorded as a wait that completes
    /// immediately.
    pub(crate) fn try_receive(
        &mut self,
        name: String,
        location: &'static Location<'static>,
    ) -> Result<Option<(EventId, Payload)>, Stop> {
        self.check_no_handler(&name)?;
        if self.mailbox.unclaimed(&name) == 0 {
            return Ok(None);
        }
        let token = self.subscribe(name, location)?;
        let taken = self.take_result(token);
        let waiter = self.retire(token);
        debug_assert!(waiter.is_none(), "nothing has polled this wait");
        Ok(taken.and_then(|(event, completion)| match completion {
            Completion::Wait(payload) => Some((event, payload)),
            _ => None,
        }))
    }

    /// A name has either waits or one handler.
    fn check_no_handler(&mut self, name: &str) -> Result<(), Stop> {
        if self.mailbox.has_handler(name) {
            return Err(self.misuse(format!("the event {name:?} has a handler and cannot be waited for")));
        }
        Ok(())
    }

    /// Changes the decision of an operation that was scheduled in this step and has not been polled.
    pub(crate) fn amend(&mut self, token: Token, change: impl FnOnce(&mut Decision)) -> Result<(), Stop> {
        match self.operations.slots[token].binding {
            Binding::Emitted(position) => {
                change(&mut self.step.emitted[position].decision);
                Ok(())
            }
            Binding::Withdrawn => Ok(()),
            Binding::Event(id) => Err(self.misuse(format!(
                "an option was set on event {id} after the step that scheduled it; set options in the call that schedules it"
            ))),
        }
    }

    /// Creates a second operation that waits for the start of a child scheduled in this step.
    pub(crate) fn await_start(&mut self, child: Token) -> Result<Token, Stop> {
        self.amend(child, |decision| {
            if let Decision::SubOrchestrationScheduled { options, .. } = decision {
                options.get_or_insert_default().reports_start = true;
            }
        })?;
        let Binding::Emitted(position) = self.operations.slots[child].binding else {
            return Err(Stop::Unwind);
        };
        let start = self.operations.slots.insert(Operation::new(OperationKind::ChildStart, position));
        self.operations.slots[child].start = Some(start);
        Ok(start)
    }

    /// Creates an operation that waits for the outcome of something sent in this step.
    pub(crate) fn await_delivery(&mut self, position: usize) -> Token {
        let token = self.operations.slots.insert(Operation::new(OperationKind::Delivery, position));
        let emitted = &mut self.step.emitted[position];
        emitted.decision.report();
        emitted.token = Some(token);
        token
    }

    /// Requests that an operation stops, unless that was requested before or its result is recorded. Returns whether it
    /// was scheduled in this very step: then the caller has to withdraw it.
    pub(crate) fn stop(
        &mut self,
        token: Token,
        location: &'static Location<'static>,
        request: impl FnOnce(EventId) -> Decision,
    ) -> Result<bool, Stop> {
        let operation = &mut self.operations.slots[token];
        if operation.recorded || operation.stored.is_some() || operation.is_stopping {
            return Ok(false);
        }
        match operation.binding {
            Binding::Event(id) => {
                operation.is_stopping = true;
                self.emit(request(id), location).map(|_| false)
            }
            Binding::Emitted(_) | Binding::Withdrawn => Ok(true),
        }
    }

    /// Assigns an operation the id of its recorded event. Recorded options take precedence.
    pub(crate) fn bind(&mut self, token: Token, id: EventId, recorded: &Decision) {
        let operation = &mut self.operations.slots[token];
        operation.binding = Binding::Event(id);
        if let Decision::SubOrchestrationScheduled { options: Some(options), .. } = recorded
            && options.may_repeat()
        {
            operation.again = Some(Box::new(recorded.clone()));
        }
        let start = operation.start;
        self.operations.by_event.insert(id, token);
        if let Some(start) = start {
            self.operations.slots[start].binding = Binding::Event(id);
            self.operations.starts.insert(id, start);
        }
    }

    /// Marks the operation that a job of this turn completes.
    pub(crate) fn mark_recorded(&mut self, source: EventId) {
        if let Some(token) = self.operations.by_event.get(source) {
            self.operations.slots[*token].recorded = true;
        }
    }

    /// The event whose result an operation could return now.
    pub(crate) fn stored_event(&self, token: Token) -> Option<EventId> {
        let operation = &self.operations.slots[token];
        match &operation.kind {
            OperationKind::Wait { name } => self.mailbox.held_by(name, token),
            _ => operation.stored.as_ref().map(|(event, _)| *event),
        }
    }

    /// Whether any operation could return a result now.
    pub(crate) fn anything_stored(&self) -> bool {
        !self.operations.stored.is_empty() || self.mailbox.unread_count() > 0
    }

    /// What a select polled with this waker knows about its operands, whichever they are.
    pub(crate) fn outlook(&self, waker: &Waker) -> Outlook {
        let Operations { slots, stored, .. } = &self.operations;
        if self.scheduler.parked_operations(&self.unit, waker) != Some(slots.len() - stored.len()) {
            return Outlook::Unclear;
        }
        match stored.first() {
            Some((_, token)) => {
                Outlook::Result { token: *token, place: slots[*token].place.map(|place| place as usize) }
            }
            None => Outlook::AllWait,
        }
    }

    /// Remembers where a select found the futures of operations.
    pub(crate) fn note_places(&mut self, tokens: &[Option<Token>]) {
        for (place, token) in tokens.iter().enumerate() {
            if let Some(operation) = token.and_then(|token| self.operations.slots.get_mut(token)) {
                operation.place = u32::try_from(place).ok();
            }
        }
    }

    /// The event that scheduled an operation, once it is recorded.
    pub(crate) fn scheduled_by(&self, token: Token) -> Option<EventId> {
        match self.operations.slots.get(token)?.binding {
            Binding::Event(id) => Some(id),
            Binding::Emitted(_) | Binding::Withdrawn => None,
        }
    }

    /// Whether an operation has no result, and the running unit waits for it with this very waker.
    pub(crate) fn waits_with(&self, token: Token, waker: &Waker) -> bool {
        let waiter = self.operations.slots[token].waiter.as_ref();
        waiter.is_some_and(|waiter| waiter.waker.will_wake(waker) && waiter.unit == self.unit)
    }

    /// Takes an operation's result, which ends the operation, or registers its unit as waiting.
    pub(crate) fn poll_operation(
        &mut self,
        token: Token,
        waker: &mut Option<Waker>,
    ) -> (Poll<(EventId, Completion)>, Leftover) {
        match self.take_result(token) {
            Some(result) => (Poll::Ready(result), Leftover { waiter: self.retire(token), wake: None }),
            None => {
                let waiter = waker.take().map(|waker| self.scheduler.operation_waiter(&self.unit, waker));
                let slot = &mut self.operations.slots[token].waiter;
                let old = self.scheduler.park(slot, waiter);
                (Poll::Pending, Leftover { waiter: old, wake: None })
            }
        }
    }

    fn take_result(&mut self, token: Token) -> Option<(EventId, Completion)> {
        let operation = &mut self.operations.slots[token];
        let OperationKind::Wait { name } = &operation.kind else {
            let stored = operation.stored.take();
            if let Some((event, _)) = &stored {
                self.operations.stored.remove(&(*event, token));
            } else if matches!(operation.binding, Binding::Withdrawn) {
                return Some((EventId(0), Completion::ChildStart(Err(withdrawn()))));
            }
            return stored;
        };
        let arrived = self.mailbox.take(name, token)?;
        match operation.binding {
            Binding::Event(id) => self.ledger.wait_returned(id),
            Binding::Emitted(position) => self.step.emitted[position].fate = Fate::Returned,
            Binding::Withdrawn => {}
        }
        Some((arrived.id, Completion::Wait(arrived.payload)))
    }

    /// Frees an operation's slot. Returns its waiter, to be dropped where user code may run.
    fn retire(&mut self, token: Token) -> Option<Waiter> {
        let operation = self.operations.slots.remove(token);
        if let Some((event, _)) = &operation.stored {
            self.operations.stored.remove(&(*event, token));
        }
        match (&operation.kind, operation.binding) {
            (OperationKind::ChildStart, binding) => self.retire_start(&binding),
            (_, Binding::Event(id)) => {
                self.operations.by_event.remove(id);
            }
            (_, Binding::Emitted(position)) => self.step.emitted[position].token = None,
            (_, Binding::Withdrawn) => {}
        }
        self.scheduler.lose_interest(operation.waiter.as_ref());
        operation.waiter
    }

    /// Removes the operation that waits for the start of a child.
    fn retire_start(&mut self, binding: &Binding) {
        let child = match binding {
            Binding::Event(id) => {
                self.operations.starts.remove(id);
                self.operations.by_event.get(*id).copied()
            }
            Binding::Emitted(position) => self.step.emitted[*position].token,
            Binding::Withdrawn => None,
        };
        if let Some(child) = child {
            self.operations.slots[child].start = None;
        }
    }

    /// After the future of a child was dropped: completes the operation that waits for the child's start.
    fn withdraw_start(&mut self, child: Token) -> Option<Waker> {
        let start = self.operations.slots[child].start.take()?;
        if self.operations.slots[start].stored.is_some() {
            return None;
        }
        if let Binding::Event(id) = self.operations.slots[start].binding {
            self.operations.starts.remove(&id);
        }
        self.operations.slots[start].binding = Binding::Withdrawn;
        self.take_waker(start)
    }

    /// After an operation's future was dropped before it returned: cancels the operation, unless its completion is
    /// recorded.
    pub(crate) fn abandon(&mut self, token: Token, location: &'static Location<'static>) -> Leftover {
        let in_step = self.mode == Mode::Step;
        if !in_step {
            let what = "a durable future was dropped outside of a step; only running code may cancel";
            self.misuse(what.to_owned());
        }
        let unwinding = self.step_failed || thread::panicking();
        let operation = &self.operations.slots[token];
        let cancel: Option<fn(EventId) -> Decision> = match &operation.kind {
            OperationKind::Wait { .. } => {
                Some(|source_event_id| Decision::ExternalUnsubscribed { source_event_id })
            }
            _ if operation.recorded || operation.kind.outlives_future() => None,
            OperationKind::Activity => {
                Some(|source_event_id| Decision::ActivityCancelRequested { source_event_id })
            }
            OperationKind::Timer => Some(|source_event_id| Decision::TimerCancelled { source_event_id }),
            OperationKind::Child => {
                Some(|source_event_id| Decision::SubOrchestrationCancelRequested { source_event_id })
            }
            OperationKind::ChildStart | OperationKind::Delivery => None,
        };
        let stands = operation.kind.outlives_future();
        let moved_up = match &operation.kind {
            OperationKind::Wait { name } => self.mailbox.unsubscribe(name, token),
            _ => None,
        };
        match operation.binding {
            Binding::Emitted(_) | Binding::Withdrawn if stands => {}
            Binding::Emitted(position) => self.step.withdraw(position, unwinding),
            Binding::Withdrawn => {}
            Binding::Event(source) => {
                if let Some(cancel) = cancel.filter(|_| in_step) {
                    let fate = if unwinding { Fate::DroppedUnwinding } else { Fate::Stands };
                    let (unit, decision) = (self.unit.clone(), cancel(source));
                    let emitted = Emitted { unit, decision, token: None, fate, location: Some(location) };
                    self.step.cancel(source, emitted);
                }
            }
        }
        let wake = match moved_up {
            Some(wait) => self.take_waker(wait),
            None => self.withdraw_start(token),
        };
        Leftover { waiter: self.retire(token), wake }
    }

    fn take_waker(&mut self, token: Token) -> Option<Waker> {
        let waiter = self.operations.slots[token].waiter.take();
        self.scheduler.lose_interest(waiter.as_ref());
        waiter.map(|waiter| waiter.waker)
    }

    /// The operation that a job completes, if it still has a future.
    pub(crate) fn recipient(&self, job: &Job) -> Option<Token> {
        if let Job::SubOrchestrationStarted { source_event_id } = job {
            return self.operations.starts.get(source_event_id).copied();
        }
        job.source_event_id().and_then(|source| self.operations.by_event.get(source).copied())
    }

    /// The unit that last polled an operation's future.
    pub(crate) fn poller(&self, token: Token) -> Option<&crate::history::UnitId> {
        self.operations.slots[token].waiter.as_ref().map(|waiter| &waiter.unit)
    }

    /// Stores a completion with its operation. Returns the waiter.
    pub(crate) fn complete(
        &mut self,
        source: EventId,
        event: EventId,
        mut completion: Completion,
    ) -> Option<Waker> {
        let token = *self.operations.by_event.get(source)?;
        if let Completion::Child(_, again) = &mut completion {
            *again = self.operations.slots[token].again.take();
        }
        self.store_completion(token, event, completion)
    }

    /// Completes the operation that waits for the start of a child. Returns the waiter.
    pub(crate) fn complete_start(
        &mut self,
        source: EventId,
        event: EventId,
        start: Result<(), ChildError>,
    ) -> Option<Waker> {
        let token = self.operations.starts.remove(&source)?;
        self.store_completion(token, event, Completion::ChildStart(start))
    }

    fn store_completion(&mut self, token: Token, event: EventId, completion: Completion) -> Option<Waker> {
        let before = self.operations.slots[token].stored.replace((event, completion));
        debug_assert!(before.is_none(), "an operation completes once");
        self.operations.stored.insert((event, token));
        self.take_waker(token)
    }

    /// Handles the arrival of an external event that a wait holds. Returns the waiter.
    pub(crate) fn hold(&mut self, arrival: &Arrival) -> Option<Waker> {
        match arrival {
            Arrival::HeldFor(token) => self.take_waker(*token),
            Arrival::Kept | Arrival::Handle(..) => None,
        }
    }
}

fn withdrawn() -> ChildError {
    let reason = "the future of the sub-orchestration was dropped before it was started".to_owned();
    ChildError::NotStarted { reason }
}
