//! The complete state of an execution, and the rules for calls into it.
//!
//! This is plain data with methods: it never runs, wakes or drops user code. A method that leaves something to be woken
//! or dropped returns it.

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

/// The output of an execution.
pub(crate) type Output = Result<Payload, Payload>;

/// Answers a query.
pub(crate) type QueryHandler = Arc<dyn Fn(Payload) -> Output + Send + Sync>;
/// Accepts or refuses an update.
pub(crate) type Validator = Arc<dyn Fn(&Payload) -> Result<(), Payload> + Send + Sync>;
/// Starts to handle an update.
pub(crate) type UpdateHandler = Arc<dyn Fn(EventId, Payload) -> UnitFuture + Send + Sync>;
/// Starts to clean up after a cancel request.
pub(crate) type CancelHandler = Box<dyn FnOnce() -> UnitFuture + Send>;

/// What is currently running, which determines the allowed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Between,
    Step,
    Delivery,
    Query,
    Validator,
}

/// A user closure that runs within a step, a query or a validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closure {
    None,
    State,
    SideEffect,
}

/// The access that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read access, allowed wherever code of the execution runs.
    Look,
    /// Changes the execution, allowed only in a step.
    Act,
}

/// Why a call cannot return.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The turn has failed, and the reason is noted.
    Unwind,
    /// The call is not allowed, and the reason is noted.
    Misuse(String),
}

/// The parameters of the next execution.
pub(crate) struct ContinueAsNew {
    pub(crate) input: Payload,
    pub(crate) version: Option<String>,
}

pub(crate) struct ExecutionState {
    pub(crate) flags: Arc<SharedFlags>,
    pub(crate) instance: Arc<str>,
    pub(crate) started: Arc<Started>,
    pub(crate) limits: Limits,
    /// The target of the code's log lines.
    pub(crate) log_target: &'static str,

    pub(crate) now_ms: u64,
    /// Events and bytes of the history when the turn's jobs were recorded. The code reads these values, because the
    /// size during a turn is not the same in every replay: patch marks match by id.
    pub(crate) size: (u64, u64),
    pub(crate) replaying: bool,
    pub(crate) mode: Mode,
    /// The running unit, in a step.
    pub(crate) unit: UnitId,
    /// The source location of the last call that made a decision, for error reports.
    pub(crate) last_call: Option<&'static Location<'static>>,
    /// The running user closure, in which no decision may be made.
    pub(crate) closure: Closure,

    /// Boxed separately: together they exceed the size that is allocated quickly.
    pub(crate) ledger: Box<Ledger>,
    pub(crate) step: StepBuffer,
    pub(crate) tally: Tally,
    pub(crate) operations: Operations,
    pub(crate) scheduler: Scheduler,
    pub(crate) mailbox: Mailbox,
    /// Events of this turn that are skipped: they are recorded, but never delivered.
    pub(super) skipped: BTreeSet<EventId>,
    /// For a replayed turn: the results of its system calls, and its patch marks.
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
    /// The output of code that ends as cancelled.
    pub(crate) ended_cancelled: Option<Payload>,
    pub(crate) failure: Option<TurnFailure>,
    /// Whether the step that is ending has panicked.
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

/// The state of a cancel request.
#[derive(Default)]
pub(crate) struct Cancellation {
    /// The reason, once it is delivered to the code.
    pub(crate) requested: Option<String>,
    pub(crate) taken_over: bool,
    /// Only units that are exempt from cancellation are left. The execution ends as cancelled after them.
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

    /// Decides whether a call is allowed.
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

    /// Notes that a payload does not have the type that the code expects, which fails the turn.
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

    /// Notes a misuse, which fails the turn or query even if the code catches the panic.
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

    /// The source location of the last call that made a decision, as `file:line`.
    pub(crate) fn last_call_place(&self) -> Option<String> {
        self.last_call.map(|location| format!("{}:{}", location.file(), location.line()))
    }

    /// Identifies a step.
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

    /// Refuses a payload that is too large, in live turns.
    pub(crate) fn check_payload(&mut self, bytes: u64) -> Result<(), Stop> {
        let limit = self.limits.payload_bytes;
        if self.replaying || bytes <= limit {
            return Ok(());
        }
        let remedy = "keep large data elsewhere and pass a reference to it";
        Err(self.over_limit("bytes of a payload", bytes, limit, remedy))
    }

    /// Counts a step of the turn against the limit and the deadline, because code that only yields makes no context
    /// calls.
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

    /// Handles a wake on the execution's thread. Whether it counts depends on what is running.
    pub(crate) fn wake(&mut self, unit: &UnitId) -> bool {
        let counts = matches!(self.mode, Mode::Step | Mode::Delivery);
        if counts {
            self.scheduler.wake(unit);
        }
        counts
    }

    /// Draws a random number from the running unit's stream.
    pub(crate) fn draw(&mut self) -> u64 {
        self.tally.draws += 1;
        let seed = self.started.seed;
        match self.scheduler.stream(&self.unit, seed) {
            Some(stream) => stream.draw(),
            // The unit dropped its own handle: its remaining work is dropped with it.
            None => 0,
        }
    }

    /// Returns the value of a system call, or the recorded one, with its event.
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
                    // There is no recorded value to return. The comparison at the end of the step reports the
                    // difference.
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

    /// Whether a patch applies; the first answer is final.
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

    /// The published status as seen by the running step, including its own decisions.
    pub(crate) fn published(&self) -> Option<&Payload> {
        let decided = self.step.emitted.iter().rev().find_map(|emitted| match &emitted.decision {
            Decision::StatusSet { status } => Some(status),
            _ => None,
        });
        decided.or(self.ledger.status())
    }

    /// The search attributes as seen by the running step, including its own decisions.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut all = self.ledger.attributes().clone();
        for emitted in &self.step.emitted {
            if let Decision::AttributesUpserted { attributes } = &emitted.decision {
                upsert_attributes(&mut all, attributes);
            }
        }
        all
    }

    /// Adds a state that units can wait for.
    pub(crate) fn add_state(&mut self) -> usize {
        self.states.push(Condition::default());
        self.states.len() - 1
    }

    /// The wakers to wake at the end of a step because of what it changed.
    pub(crate) fn take_step_wakes(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for state in std::mem::take(&mut self.changed_states) {
            wakers.extend(self.states[state].take_all(&mut self.scheduler));
        }
        wakers
    }

    /// Removes all user code, in pieces, so that each can be dropped separately.
    pub(crate) fn take_user_code(&mut self) -> Vec<Box<dyn Any + Send>> {
        let mut pieces = self.take_runnable();
        pieces.extend(std::mem::take(&mut self.queries).into_values().map(|query| Box::new(query) as _));
        for (validator, handler) in std::mem::take(&mut self.updates).into_values() {
            pieces.extend([Box::new(validator) as Box<dyn Any + Send>, Box::new(handler)]);
        }
        pieces.extend(self.mailbox.take_handlers().into_iter().map(|handler| Box::new(handler) as _));
        pieces
    }

    /// Removes everything that could still run, in pieces.
    pub(crate) fn take_runnable(&mut self) -> Vec<Box<dyn Any + Send>> {
        let mut pieces: Vec<Box<dyn Any + Send>> = Vec::new();
        pieces.extend(self.scheduler.take_all().into_iter().map(|unit| Box::new(unit) as _));
        let handlers = std::mem::take(&mut self.cancel.handlers);
        pieces.extend(handlers.into_iter().map(|(_, handler)| Box::new(handler) as _));
        pieces
    }

    /// Prepares the state for a turn.
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
