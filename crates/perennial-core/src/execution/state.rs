//! All that an execution knows between and during its turns, and the rules for calls into it.
//!
//! This is plain data with methods: it never runs, wakes or drops user code. Whatever a method leaves to be woken or
//! dropped it returns.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;

use crate::history::{
    DRAWN_KEY_PREFIX, Decision, Event, EventId, EventKind, HistoryError, Job, Ledger, NotOfType, Payload,
    Started, Turn, UnitId,
};

use super::condition::Condition;
use super::failure::TurnFailure;
use super::limits::Limits;
use super::mailbox::{Arrival, Arrived, EventHandler, Mailbox};
use super::operations::{Completion, Operations};
use super::outside::Outside;
use super::recorder::{Emitted, Fate, StepBuffer};
use super::scheduler::{Scheduler, UnitFuture};

/// What the code of an execution returns.
pub(crate) type Output = Result<Payload, Payload>;

/// Answers a query from what the code shares.
pub(crate) type QueryHandler = Arc<dyn Fn(Payload) -> Output + Send + Sync>;
/// Accepts or refuses an update.
pub(crate) type Validator = Arc<dyn Fn(&Payload) -> Result<(), Payload> + Send + Sync>;
/// Begins to handle an update.
pub(crate) type UpdateHandler = Arc<dyn Fn(EventId, Payload) -> UnitFuture + Send + Sync>;
/// Begins to clean up after a cancel request.
pub(crate) type CancelHandler = Box<dyn FnOnce() -> UnitFuture + Send>;

/// What is going on, which decides what calls are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Between,
    Step,
    Delivery,
    Query,
    Validator,
}

/// A closure that runs within a step, a query or a validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closure {
    None,
    State,
    SideEffect,
}

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A look, allowed wherever code of the execution runs.
    Look,
    /// Something that changes the execution, allowed in a step alone.
    Act,
}

/// Why a call cannot return.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The turn has failed; what is wrong is noted.
    Unwind,
    /// The call is not allowed; what is wrong is noted.
    Misuse(String),
}

/// What continues in the next execution.
pub(crate) struct ContinueAsNew {
    pub(crate) input: Payload,
    pub(crate) version: Option<String>,
}

pub(crate) struct ExecutionState {
    pub(crate) outside: Arc<Outside>,
    pub(crate) instance: Arc<str>,
    pub(crate) started: Arc<Started>,
    pub(crate) limits: Limits,

    pub(crate) now_ms: u64,
    /// Events and bytes of the history when the turn's jobs were recorded. Code sees these: what a turn adds is not
    /// the same in every replay while it runs, since patch marks match by id.
    pub(crate) size: (u64, u64),
    pub(crate) replaying: bool,
    pub(crate) mode: Mode,
    /// The unit that runs, in a step.
    pub(crate) unit: UnitId,
    /// The closure of the code's that is running, in which nothing may be decided.
    pub(crate) closure: Closure,

    pub(crate) ledger: Ledger,
    pub(crate) step: StepBuffer,
    pub(crate) tally: Tally,
    pub(crate) operations: Operations,
    pub(crate) scheduler: Scheduler,
    pub(crate) mailbox: Mailbox,
    /// Events of this turn that are skipped: they are recorded, and never arrive.
    skipped: BTreeSet<EventId>,
    /// Of the turn that is being replayed: what its system calls gave, and its patch marks.
    pub(crate) recorded_calls: BTreeMap<String, VecDeque<(EventId, Payload)>>,
    pub(crate) recorded_patches: BTreeSet<String>,
    pub(crate) patch_answers: BTreeMap<String, bool>,

    pub(crate) states: Vec<Condition>,
    pub(crate) changed_states: Vec<usize>,
    pub(crate) idle: Condition,
    pub(crate) cancel: Cancellation,
    pub(crate) queries: BTreeMap<String, QueryHandler>,
    pub(crate) updates: BTreeMap<String, (Validator, UpdateHandler)>,

    pub(crate) output: Option<Output>,
    pub(crate) continued: Option<ContinueAsNew>,
    pub(crate) failure: Option<TurnFailure>,
    /// The step that is ending has panicked.
    pub(crate) step_failed: bool,
}

/// What a turn has used so far.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) decisions: u64,
    pub(crate) bytes: u64,
    pub(crate) steps: u64,
    pub(crate) draws: u64,
}

/// How far a cancel request has come.
#[derive(Default)]
pub(crate) struct Cancellation {
    pub(crate) requested: bool,
    pub(crate) taken_over: bool,
    pub(crate) condition: Condition,
    pub(crate) handlers: Vec<(UnitId, CancelHandler)>,
}

impl ExecutionState {
    pub(crate) fn new(
        outside: Arc<Outside>,
        instance: Arc<str>,
        started: Arc<Started>,
        limits: Limits,
    ) -> ExecutionState {
        ExecutionState {
            outside,
            instance,
            started,
            limits,
            now_ms: 0,
            size: (0, 0),
            replaying: false,
            mode: Mode::Between,
            unit: UnitId::ROOT,
            closure: Closure::None,
            ledger: Ledger::default(),
            step: StepBuffer::default(),
            tally: Tally::default(),
            operations: Operations::default(),
            scheduler: Scheduler::default(),
            mailbox: Mailbox::default(),
            skipped: BTreeSet::new(),
            recorded_calls: BTreeMap::new(),
            recorded_patches: BTreeSet::new(),
            patch_answers: BTreeMap::new(),
            states: Vec::new(),
            changed_states: Vec::new(),
            idle: Condition::default(),
            cancel: Cancellation::default(),
            queries: BTreeMap::new(),
            updates: BTreeMap::new(),
            output: None,
            continued: None,
            failure: None,
            step_failed: false,
        }
    }

    /// Decides whether a call may go ahead.
    pub(crate) fn check(&mut self, call: &'static str, access: Access) -> Result<(), Stop> {
        if self.outside.is_interrupted() {
            self.failure.get_or_insert(TurnFailure::DeadlinePassed);
            return Err(Stop::Unwind);
        }
        if access == Access::Look {
            return Ok(());
        }
        let place = match self.mode {
            Mode::Step => match self.closure {
                Closure::None => return Ok(()),
                Closure::State => "in a state closure",
                Closure::SideEffect => "in the closure of a side effect",
            },
            Mode::Query => "in a query handler",
            Mode::Validator => "in an update validator",
            Mode::Between | Mode::Delivery => "outside of a step",
        };
        Err(self.misuse(format!("{call} was called {place}; only running orchestration code may decide")))
    }

    /// Notes that a payload is not of the type that the code expects, which fails the turn.
    pub(crate) fn note_mismatch(&mut self, event: EventId, mismatch: &NotOfType) -> Stop {
        let (type_name, problem) = (mismatch.type_name, mismatch.reason());
        let failure = HistoryError::PayloadMismatch { event, type_name, problem };
        self.failure.get_or_insert(TurnFailure::History(failure));
        Stop::Unwind
    }

    /// Notes a misuse, which fails the turn or query whatever the code makes of it.
    pub(crate) fn misuse(&mut self, what: String) -> Stop {
        self.failure.get_or_insert_with(|| TurnFailure::Misuse { what: what.clone() });
        Stop::Misuse(what)
    }

    fn over_limit(&mut self, what: &'static str, found: u64, limit: u64, remedy: &'static str) -> Stop {
        self.failure.get_or_insert(TurnFailure::OverLimit { what, found, limit, remedy });
        Stop::Unwind
    }

    /// Whether this step ends the execution.
    pub(crate) fn has_finished(&self) -> bool {
        self.output.is_some() || self.continued.is_some()
    }

    /// Adds a decision to the step. Returns its position in the step's buffer.
    pub(crate) fn emit(
        &mut self,
        decision: Decision,
        location: &'static Location<'static>,
    ) -> Result<usize, Stop> {
        if !self.replaying {
            self.check_limits(&decision)?;
        }
        let emitted = Emitted {
            unit: self.unit.clone(),
            decision,
            token: None,
            fate: Fate::Stands,
            location: Some(location),
        };
        Ok(self.step.push(emitted))
    }

    fn check_limits(&mut self, decision: &Decision) -> Result<(), Stop> {
        self.check_payload(decision.payload_size())?;
        let weight = decision.weight();
        self.tally.decisions += 1;
        self.tally.bytes += weight;
        let Limits { turn_decisions, turn_bytes, history_events, history_bytes, .. } = self.limits;
        let Tally { decisions, bytes, .. } = self.tally;
        let events = self.ledger.events() + self.step.standing() + 1;
        let total = self.ledger.bytes() + self.step.bytes() + weight;
        const FEWER: &str = "schedule in portions, awaiting each, or use sub-orchestrations";
        const CONTINUE_AS_NEW: &str =
            "end long histories with continue_as_new; should_continue_as_new tells when";
        let checks = [
            ("decisions of the turn", decisions, turn_decisions, FEWER),
            ("bytes of the turn", bytes, turn_bytes, FEWER),
            ("events of the history", events, history_events, CONTINUE_AS_NEW),
            ("bytes of the history", total, history_bytes, CONTINUE_AS_NEW),
        ];
        match checks.into_iter().find(|(_, found, limit, _)| found > limit) {
            Some((what, found, limit, remedy)) => Err(self.over_limit(what, found, limit, remedy)),
            None => Ok(()),
        }
    }

    /// Refuses a payload that is too large, on live turns.
    pub(crate) fn check_payload(&mut self, bytes: u64) -> Result<(), Stop> {
        let limit = self.limits.payload_bytes;
        if self.replaying || bytes <= limit {
            return Ok(());
        }
        let remedy = "keep large data elsewhere and pass a reference to it";
        Err(self.over_limit("bytes of a payload", bytes, limit, remedy))
    }

    /// Counts a step of the turn, which may be one too many, or one too late: code that only yields makes no calls.
    pub(crate) fn count_step(&mut self) -> Result<(), TurnFailure> {
        if self.outside.is_interrupted() {
            return Err(TurnFailure::DeadlinePassed);
        }
        self.tally.steps += 1;
        if self.replaying || self.tally.steps <= self.limits.turn_steps {
            return Ok(());
        }
        Err(TurnFailure::OverLimit {
            what: "steps of the turn",
            found: self.tally.steps,
            limit: self.limits.turn_steps,
            remedy: "units that keep waking each other never let a turn end",
        })
    }

    /// A waker of this execution was woken on its thread. Whether that counts depends on when.
    pub(crate) fn wake(&mut self, unit: &UnitId) -> bool {
        let counts = matches!(self.mode, Mode::Step | Mode::Delivery);
        if counts {
            self.scheduler.wake(unit);
        }
        counts
    }

    /// Draws from the running unit's stream.
    pub(crate) fn draw(&mut self) -> u64 {
        self.tally.draws += 1;
        let seed = self.started.seed;
        match self.scheduler.stream(&self.unit, seed) {
            Some(stream) => stream.draw(),
            // The unit dropped its own handle: what it still does is dropped with it.
            None => 0,
        }
    }

    /// Takes a value from outside, or the recorded one, with the event that records it.
    pub(crate) fn system_call(
        &mut self,
        op: String,
        live_value: Payload,
        location: &'static Location<'static>,
    ) -> Result<(EventId, Payload), Stop> {
        let (id, value) = if self.replaying {
            match self.recorded_calls.get_mut(&op).and_then(VecDeque::pop_front) {
                Some(recorded) => recorded,
                None => {
                    // There is no value to go on with. The comparison at the step's end reports the difference.
                    self.emit(Decision::SystemCall { op, value: Payload::null() }, location)?;
                    return Err(Stop::Unwind);
                }
            }
        } else {
            (EventId(self.ledger.events() + self.step.standing()).next(), live_value)
        };
        self.emit(Decision::SystemCall { op, value: value.clone() }, location)?;
        Ok((id, value))
    }

    /// Whether a patch applies; the first answer holds.
    pub(crate) fn patched(&mut self, id: &str, location: &'static Location<'static>) -> Result<bool, Stop> {
        if let Some(answer) = self.patch_answers.get(id) {
            return Ok(*answer);
        }
        let marked = self.ledger.is_patched(id) || self.recorded_patches.contains(id);
        let answer = marked || !self.replaying;
        if answer && !marked {
            self.emit(Decision::PatchMarked { id: id.to_owned() }, location)?;
        }
        self.patch_answers.insert(id.to_owned(), answer);
        Ok(answer)
    }

    /// Starts a unit for a handler, runnable in the next round. An event or update that it is for is unread until the
    /// unit's first step.
    fn dispatch(&mut self, future: UnitFuture, job: Option<(EventId, Job)>) {
        let id = self.scheduler.next_handler_id();
        self.scheduler.add(id.clone(), future, None, &self.outside);
        if let Some((event, job)) = job {
            self.scheduler.mark_unread(&id, event, job);
        }
    }

    /// Starts an event handler for one event.
    pub(crate) fn dispatch_event(&mut self, handler: &EventHandler, name: &str, arrived: Arrived) {
        let Arrived { id, payload, key, trace } = arrived;
        let (handler, input) = (Arc::clone(handler), payload.clone());
        let job = Job::ExternalEvent { name: name.to_owned(), payload, key, trace };
        self.dispatch(Box::pin(async move { handler(input).await }), Some((id, job)));
    }

    /// How many jobs, from the first on, form the next wave.
    pub(crate) fn wave_length(&self, jobs: &[Event]) -> usize {
        let mut ahead = BTreeMap::new();
        let Some(first) = jobs.first().and_then(|job| self.branch_of(job, &mut ahead)) else {
            return 1;
        };
        if first.is_root() || jobs.len() == 1 {
            return 1;
        }
        let mut targets = BTreeSet::from([first]);
        for job in &jobs[1..] {
            let Some(unit) = self.branch_of(job, &mut ahead) else { break };
            let has_ancestor = unit.ancestors().any(|ancestor| targets.contains(&ancestor));
            let has_descendant_or_self = targets
                .range::<&UnitId, _>(unit..)
                .next()
                .is_some_and(|other| unit.is_ancestor_or_self_of(other));
            if has_ancestor || has_descendant_or_self {
                break;
            }
            targets.insert(unit);
        }
        targets.len()
    }

    /// The unit that a job goes to, if it goes to a polled future. `ahead` counts the events of each name that the
    /// wave holds already: they take the waits before this one's.
    fn branch_of<'a>(&self, event: &'a Event, ahead: &mut BTreeMap<&'a str, usize>) -> Option<&UnitId> {
        let EventKind::Job(job) = &event.kind else { return None };
        let token = match job {
            Job::ExternalEvent { .. } if self.skipped.contains(&event.id) => None,
            Job::ExternalEvent { name, .. } => {
                let before = ahead.entry(name).or_default();
                let token = self.mailbox.next_wait(name, *before);
                *before += 1;
                token
            }
            job => self.recipient(job),
        };
        token.and_then(|token| self.poller(token))
    }

    /// Delivers one job. Returns whom to wake.
    pub(crate) fn deliver(&mut self, id: EventId, job: &Job) -> Vec<Waker> {
        let completed = |source: &EventId, completion| (*source, completion);
        let (source, completion) = match job {
            Job::ActivityCompleted { source_event_id, result, .. } => {
                completed(source_event_id, Completion::Activity(Ok(result.clone())))
            }
            Job::ActivityFailed { source_event_id, error, .. } => {
                completed(source_event_id, Completion::Activity(Err(error.clone())))
            }
            Job::TimerFired { source_event_id } => completed(source_event_id, Completion::Timer),
            Job::SubOrchestrationCompleted { source_event_id, result } => {
                completed(source_event_id, Completion::Child(Ok(result.clone())))
            }
            Job::SubOrchestrationFailed { source_event_id, error } => {
                completed(source_event_id, Completion::Child(Err(error.clone())))
            }
            Job::ExternalEventSkipped { .. } => return Vec::new(),
            Job::ExternalEvent { .. } if self.skipped.contains(&id) => return Vec::new(),
            Job::ExternalEvent { name, payload, key, trace } => {
                let (payload, key, trace) = (payload.clone(), key.clone(), trace.clone());
                let arrived = Arrived { id, payload, key, trace };
                return self.deliver_event(name, arrived);
            }
            Job::OrchestrationCancelRequested { .. } => return self.deliver_cancel(),
            Job::UpdateRequested { name, payload, .. } => {
                self.deliver_update(id, name, payload.clone(), job);
                return Vec::new();
            }
        };
        self.complete(source, id, completion).into_iter().collect()
    }

    fn deliver_event(&mut self, name: &str, arrived: Arrived) -> Vec<Waker> {
        let (id, key, trace) = (arrived.id, arrived.key.clone(), arrived.trace.clone());
        let arrival = self.mailbox.arrive(name, arrived);
        let waker = self.hold(&arrival);
        if let Arrival::Handle(handler, payload) = arrival {
            self.dispatch_event(&handler, name, Arrived { id, payload, key, trace });
        }
        waker.into_iter().collect()
    }

    fn deliver_update(&mut self, id: EventId, name: &str, payload: Payload, job: &Job) {
        match self.updates.get(name) {
            Some((_, handler)) => {
                let handler = Arc::clone(handler);
                let unit = Box::pin(async move { handler(id, payload).await });
                self.dispatch(unit, Some((id, job.clone())));
            }
            None => {
                let error = format!("no handler for update {name:?}");
                let decision =
                    Decision::UpdateCompleted { source_event_id: id, result: Err(Payload::from(error)) };
                let emitted =
                    Emitted { unit: UnitId::ROOT, decision, token: None, fate: Fate::Stands, location: None };
                self.step.push(emitted);
            }
        }
    }

    /// Keeps a handler for a cancel request, or starts it if that has come.
    pub(crate) fn add_cancel_handler(&mut self, handler: Option<CancelHandler>) {
        let Some(handler) = handler else { return };
        if self.cancel.requested {
            self.dispatch(Box::pin(async move { handler().await }), None);
        } else {
            self.cancel.handlers.push((self.unit.clone(), handler));
        }
    }

    /// Tells code that took cancellation over. Code that did not is ended by the driver.
    fn deliver_cancel(&mut self) -> Vec<Waker> {
        if !self.cancel.taken_over || self.cancel.requested {
            return Vec::new();
        }
        self.cancel.requested = true;
        let mut handlers = std::mem::take(&mut self.cancel.handlers);
        handlers.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (_, handler) in handlers {
            self.dispatch(Box::pin(async move { handler().await }), None);
        }
        self.cancel.condition.take_all(&mut self.scheduler)
    }

    /// Makes room for those who wait for a state to change.
    pub(crate) fn add_state(&mut self) -> usize {
        self.states.push(Condition::default());
        self.states.len() - 1
    }

    /// Whom to wake at the end of a step, because of what it changed.
    pub(crate) fn take_step_wakes(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for state in std::mem::take(&mut self.changed_states) {
            wakers.extend(self.states[state].take_all(&mut self.scheduler));
        }
        wakers
    }

    /// What crosses a continue-as-new, in order: the events that nobody read, and the updates that no handler began.
    pub(crate) fn carried_jobs(&self, undelivered: &[Event]) -> Vec<(EventId, Job)> {
        let mut jobs: Vec<(EventId, Job)> = self.mailbox.unread().chain(self.scheduler.unread()).collect();
        let undelivered = undelivered.iter().filter(|event| !self.skipped.contains(&event.id));
        jobs.extend(undelivered.filter_map(|event| match &event.kind {
            EventKind::Job(job @ (Job::ExternalEvent { .. } | Job::UpdateRequested { .. })) => {
                Some((event.id, job.clone()))
            }
            _ => None,
        }));
        jobs.sort_by_key(|(id, _)| *id);
        for (id, job) in &mut jobs {
            // Whoever waits for the answer finds the update in the next execution by its key.
            if let Job::UpdateRequested { key: key @ None, .. } = job {
                *key = Some(format!("{DRAWN_KEY_PREFIX}carried.{}.{id}", self.started.execution));
            }
        }
        jobs
    }

    /// The cancel request that was taken over and crosses a continue-as-new before everything else, with what is left
    /// of its grace.
    pub(crate) fn carried_cancel(&self) -> Option<Job> {
        let cancel = self.ledger.cancel_request()?;
        let grace_ms = cancel.until_ms().saturating_sub(self.ledger.last_at_ms());
        Some(Job::OrchestrationCancelRequested { reason: cancel.reason.clone(), grace_ms })
    }

    /// Everything of the user's, piece by piece, so that each can be dropped by itself.
    pub(crate) fn take_user_code(&mut self) -> Vec<Box<dyn Any + Send>> {
        let mut pieces = self.take_runnable();
        pieces.extend(std::mem::take(&mut self.queries).into_values().map(|query| Box::new(query) as _));
        for (validator, handler) in std::mem::take(&mut self.updates).into_values() {
            pieces.extend([Box::new(validator) as Box<dyn Any + Send>, Box::new(handler)]);
        }
        pieces.extend(self.mailbox.take_handlers().into_iter().map(|handler| Box::new(handler) as _));
        pieces
    }

    /// Everything that could still run, piece by piece.
    pub(crate) fn take_runnable(&mut self) -> Vec<Box<dyn Any + Send>> {
        let mut pieces: Vec<Box<dyn Any + Send>> = Vec::new();
        pieces.extend(self.scheduler.take_all().into_iter().map(|unit| Box::new(unit) as _));
        let handlers = std::mem::take(&mut self.cancel.handlers);
        pieces.extend(handlers.into_iter().map(|(_, handler)| Box::new(handler) as _));
        pieces
    }

    /// Takes out the events that this turn skips, before any code runs. Returns the first that is not there to be skipped.
    pub(crate) fn skip_events(&mut self, jobs: &[Event]) -> Option<(EventId, EventId)> {
        self.skipped.clear();
        for event in jobs {
            let EventKind::Job(Job::ExternalEventSkipped { event_id }) = event.kind else { continue };
            let is_here = jobs.iter().any(|other| is_external(other, event_id));
            let is_skipped =
                if is_here { self.skipped.insert(event_id) } else { self.mailbox.skip(event_id) };
            if !is_skipped {
                return Some((event.id, event_id));
            }
        }
        None
    }

    /// Readies the state for a turn.
    pub(crate) fn begin_turn(&mut self, at_ms: u64, record: Option<&Turn>) {
        self.now_ms = at_ms;
        self.size = (self.ledger.events(), self.ledger.bytes());
        self.replaying = record.is_some();
        self.tally = Tally::default();
        self.recorded_calls.clear();
        self.recorded_patches.clear();
        for (event, _, decision) in record.into_iter().flat_map(Turn::decisions) {
            match decision {
                Decision::SystemCall { op, value } => {
                    self.recorded_calls.entry(op.clone()).or_default().push_back((event, value.clone()));
                }
                Decision::PatchMarked { id } => {
                    self.recorded_patches.insert(id.clone());
                }
                _ => {}
            }
        }
    }
}

/// Whether this is the external event with an id.
pub(crate) fn is_external(event: &Event, id: EventId) -> bool {
    event.id == id && matches!(event.kind, EventKind::Job(Job::ExternalEvent { .. }))
}
