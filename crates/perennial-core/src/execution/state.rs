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
    Attributes, Decision, EventId, HistoryError, Ledger, NotOfType, Payload, PayloadSource, Started, Turn,
    UnitId, upsert_attributes,
};

use super::condition::Condition;
use super::failure::TurnFailure;
use super::limits::Limits;
use super::mailbox::Mailbox;
use super::operations::Operations;
use super::recorder::{Emitted, Fate, StepBuffer};
use super::scheduler::{Scheduler, UnitFuture};
use super::shared_flags::SharedFlags;

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
    pub(crate) flags: Arc<SharedFlags>,
    pub(crate) instance: Arc<str>,
    pub(crate) started: Arc<Started>,
    pub(crate) limits: Limits,
    /// The target of what the code logs through its context.
    pub(crate) log_target: &'static str,

    pub(crate) now_ms: u64,
    /// Events and bytes of the history when the turn's jobs were recorded. Code sees these: what a turn adds is not
    /// the same in every replay while it runs, since patch marks match by id.
    pub(crate) size: (u64, u64),
    pub(crate) replaying: bool,
    pub(crate) mode: Mode,
    /// The unit that runs, in a step.
    pub(crate) unit: UnitId,
    /// The source line of the last call that decided something, for reports of what went wrong after it.
    pub(crate) last_call: Option<&'static Location<'static>>,
    /// The closure of the code's that is running, in which nothing may be decided.
    pub(crate) closure: Closure,

    /// In a box of its own: together they are more than what is allocated fast.
    pub(crate) ledger: Box<Ledger>,
    pub(crate) step: StepBuffer,
    pub(crate) tally: Tally,
    pub(crate) operations: Operations,
    pub(crate) scheduler: Scheduler,
    pub(crate) mailbox: Mailbox,
    /// Events of this turn that are skipped: they are recorded, and never arrive.
    pub(super) skipped: BTreeSet<EventId>,
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
    /// What the code leaves behind as it ends as cancelled.
    pub(crate) ended_cancelled: Option<Payload>,
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
    /// Why, once the code is told.
    pub(crate) requested: Option<String>,
    pub(crate) taken_over: bool,
    /// Only units that a cancel request does not end are left. The execution ends as cancelled after them.
    pub(crate) is_winding_down: bool,
    pub(crate) condition: Condition,
    pub(crate) handlers: Vec<(UnitId, CancelHandler)>,
}

impl ExecutionState {
    pub(crate) fn new(
        flags: Arc<SharedFlags>,
        instance: Arc<str>,
        started: Arc<Started>,
        limits: Limits,
        log_target: &'static str,
    ) -> ExecutionState {
        ExecutionState {
            flags,
            instance,
            started,
            limits,
            log_target,
            now_ms: 0,
            size: (0, 0),
            replaying: false,
            mode: Mode::Between,
            unit: UnitId::ROOT,
            last_call: None,
            closure: Closure::None,
            ledger: Box::default(),
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
            ended_cancelled: None,
            failure: None,
            step_failed: false,
        }
    }

    /// Decides whether a call may go ahead.
    pub(crate) fn check(&mut self, call: &'static str, access: Access) -> Result<(), Stop> {
        if self.flags.is_interrupted() {
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
    pub(crate) fn note_mismatch(
        &mut self,
        event: EventId,
        came_with: PayloadSource,
        mismatch: &NotOfType,
    ) -> Stop {
        let (type_name, problem) = (mismatch.type_name, mismatch.reason());
        let failure = HistoryError::PayloadMismatch { event, type_name, problem, came_with };
        self.failure.get_or_insert(TurnFailure::History(failure));
        Stop::Unwind
    }

    /// Notes a misuse, which fails the turn or query whatever the code makes of it.
    pub(crate) fn misuse(&mut self, what: String) -> Stop {
        self.failure.get_or_insert_with(|| TurnFailure::Misuse { what: what.clone() });
        Stop::Misuse(what)
    }

    fn over_limit(&mut self, what: &'static str, found: u64, limit: u64, remedy: &'static str) -> Stop {
        self.failure.get_or_insert(TurnFailure::OverLimit {
            what,
            found,
            limit,
            remedy,
            last_call: self.last_call_place(),
        });
        Stop::Unwind
    }

    /// The source line of the last call that decided something, as `file:line`.
    pub(crate) fn last_call_place(&self) -> Option<String> {
        self.last_call.map(|location| format!("{}:{}", location.file(), location.line()))
    }

    /// Tells one step from another.
    pub(crate) fn step_mark(&self) -> (u64, u64) {
        (self.ledger.turns(), self.tally.steps)
    }

    /// Whether this step ends the execution.
    pub(crate) fn has_finished(&self) -> bool {
        self.output.is_some()
            || self.continued.is_some()
            || self.ended_cancelled.is_some()
            || (self.cancel.is_winding_down && !self.scheduler.any_uncancellable())
    }

    /// Adds a decision to the step. Returns its position in the step's buffer.
    pub(crate) fn emit(
        &mut self,
        decision: Decision,
        location: &'static Location<'static>,
    ) -> Result<usize, Stop> {
        self.last_call = Some(location);
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
        if self.flags.is_interrupted() {
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
            last_call: self.last_call_place(),
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

    /// The published status as the running step sees it, with what it has decided itself.
    pub(crate) fn published(&self) -> Option<&Payload> {
        let decided = self.step.emitted.iter().rev().find_map(|emitted| match &emitted.decision {
            Decision::StatusSet { status } => Some(status),
            _ => None,
        });
        decided.or(self.ledger.status())
    }

    /// The searchable values as the running step sees them, with what it has decided itself.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut all = self.ledger.attributes().clone();
        for emitted in &self.step.emitted {
            if let Decision::AttributesUpserted { attributes } = &emitted.decision {
                upsert_attributes(&mut all, attributes);
            }
        }
        all
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
