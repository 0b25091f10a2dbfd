//! The API that orchestration code calls.
//!
//! A context is a handle without data: every call looks up the execution that runs on the current thread, and is
//! refused if that is not the context's own. Calls return immediately; operations that take time return a future.

mod child_attempts;
mod completions;
mod conditions;
mod join;
mod messages;
mod oneself;
mod operations;
mod select;
mod sent;
mod state;
mod timeout;
mod trace;
mod units;

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::code::ErrorCode;
use crate::execution::shared_flags::SharedFlags;
use crate::execution::state::{Access, Closure, ContinueAsNew, ExecutionState, Stop};
use crate::execution::{Limits, TurnFailure, panic_message, panic_place, turn_local, uuid4_text};
use crate::history::{Attributes, Decision, EventId, NotOfType, ParentLink, Payload, PayloadSource};
use crate::timestamp::Timestamp;

pub use child_attempts::ChildStarted;
pub use completions::Completions;
pub use conditions::{Cancelled, HandlersIdle, WaitUntil};
pub use join::{Join, Join2, Join3, TryJoin};
pub use messages::{Events, Receive};
pub use operations::{ActivityFuture, ChildFuture, TimerFuture, WaitFuture};
pub use select::{Either, Either3, Operand, Operands, Race, Select, Select2, Select3};
pub use sent::{DeliveryFuture, Sent};
pub use state::State;
pub use timeout::{Elapsed, Timeout};
pub use units::{Branches, Shield, UnitHandle};

/// The handle through which an orchestration schedules work, waits, and reads time.
///
/// Cloning is cheap. Calls are allowed only while the orchestration's own code runs, on the thread that runs it.
#[derive(Clone, Debug)]
pub struct OrchestrationContext {
    flags: Arc<SharedFlags>,
}

/// Identity and size of the running execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// The instance id.
    pub instance: String,
    /// 1 for the first execution; continue-as-new increments it. After a reset, code that replays turns taken over from
    /// an earlier execution reads the number of that execution.
    pub execution: u64,
    /// The registered name.
    pub name: String,
    /// The version that this execution is pinned to.
    pub version: String,
    /// The parent that waits for the outcome, if there is one.
    pub parent: Option<ParentLink>,
    /// The number of events recorded before this turn.
    pub history_events: u64,
    /// Their approximate size in bytes.
    pub history_bytes: u64,
}

/// Marks, while it lives, that a closure passed in by the code is running.
struct InsideClosure<'a>(&'a OrchestrationContext);

impl Drop for InsideClosure<'_> {
    fn drop(&mut self) {
        turn_local::with(&self.0.flags, |state| state.closure = Closure::None);
    }
}

/// The panic payload with which calls unwind once their turn has failed. The reason is already recorded; nothing is
/// printed.
struct TurnHasFailed;

impl OrchestrationContext {
    pub(crate) fn new(flags: Arc<SharedFlags>) -> OrchestrationContext {
        OrchestrationContext { flags }
    }

    /// Calls into the running execution.
    ///
    /// If the call cannot be made, the code must not go on: the call panics, or unwinds silently if the turn has
    /// already failed. In a destructor that runs during that unwinding, or after the execution is gone, it returns
    /// `inert` instead.
    #[track_caller]
    fn call<R>(
        &self,
        call: &'static str,
        access: Access,
        inert: impl FnOnce() -> R,
        f: impl FnOnce(&mut ExecutionState) -> Result<R, Stop>,
    ) -> R {
        let answer = turn_local::with(&self.flags, |state| {
            state.check(call, access)?;
            f(state)
        });
        match answer {
            Some(Ok(value)) => value,
            Some(Err(_)) if thread::panicking() => inert(),
            Some(Err(Stop::Unwind)) => resume_unwind(Box::new(TurnHasFailed)),
            Some(Err(Stop::Misuse(what))) => panic!("{}", ErrorCode::Misuse.message(what)),
            None if self.flags.is_inert() => inert(),
            None => {
                let what = self.note_out_of_turn(call);
                if thread::panicking() { inert() } else { panic!("{}", ErrorCode::Misuse.message(what)) }
            }
        }
    }

    fn note_out_of_turn(&self, call: &'static str) -> String {
        let what = format!(
            "{call} was called out of turn: from another thread or task, or while the orchestration was not running; \
             contexts and durable futures belong to their orchestration"
        );
        self.flags.note_misuse(what.clone());
        what
    }

    /// Notes that a closure passed in by the code is about to run, in which no decision may be made.
    fn enter_closure(&self, call: &'static str, access: Access, closure: Closure) -> InsideClosure<'_> {
        self.call(
            call,
            Access::Look,
            || (),
            |state| {
                if state.closure != Closure::None {
                    let what = format!(
                        "{call} was called inside another closure of the context; take the values out first"
                    );
                    return Err(state.misuse(what));
                }
                state.check(call, access)?;
                state.closure = closure;
                Ok(())
            },
        );
        InsideClosure(self)
    }

    /// Records a decision that nothing waits for.
    #[track_caller]
    fn decide(&self, call: &'static str, decision: Decision) {
        let location = Location::caller();
        self.call(call, Access::Act, || (), |state| state.emit(decision, location).map(|_| ()));
    }

    /// Identity and size of the running execution.
    pub fn info(&self) -> Info {
        let inert = || Info {
            instance: String::new(),
            execution: 0,
            name: String::new(),
            version: String::new(),
            parent: None,
            history_events: 0,
            history_bytes: 0,
        };
        self.call("info", Access::Look, inert, |state| {
            Ok(Info {
                instance: state.instance.to_string(),
                execution: state.started.execution_as_read(),
                name: state.started.name.clone(),
                version: state.started.version.clone(),
                parent: state.started.parent.clone(),
                history_events: state.size.0,
                history_bytes: state.size.1,
            })
        })
    }

    /// Whether recorded turns are being replayed. Use it to suppress output, never to make decisions.
    pub fn is_replaying(&self) -> bool {
        self.call("is_replaying", Access::Look, || true, |state| Ok(state.replaying))
    }

    /// Whether the history has grown long enough that the code should continue as new.
    pub fn should_continue_as_new(&self) -> bool {
        self.call(
            "should_continue_as_new",
            Access::Look,
            || false,
            |state| {
                let (events, bytes) = state.size;
                Ok(events >= Limits::CONTINUE_AS_NEW_EVENTS || bytes >= Limits::CONTINUE_AS_NEW_BYTES)
            },
        )
    }

    /// The time of this turn. It does not advance within a turn and is the same in every replay.
    pub fn now(&self) -> Timestamp {
        self.call("now", Access::Look, Timestamp::default, |state| Ok(Timestamp::from_millis(state.now_ms)))
    }

    /// A random number, the same in every replay.
    pub fn random(&self) -> u64 {
        self.call("random", Access::Act, || 0, |state| Ok(state.draw()))
    }

    /// A random UUID, the same in every replay.
    pub fn uuid4(&self) -> String {
        self.call("uuid4", Access::Act, String::new, |state| Ok(uuid4_text(state.draw(), state.draw())))
    }

    /// The time of this turn, recorded as its own event in the history.
    #[track_caller]
    pub fn utc_now(&self) -> SystemCallFuture<Timestamp> {
        let location = Location::caller();
        let recorded = self.call("utc_now", Access::Act, no_call, |state| {
            let now = Payload::encode(&state.now_ms).expect("a number encodes");
            state.system_call("utc_now".to_owned(), now, location).map(Some)
        });
        self.system_call_future(recorded)
    }

    /// A random UUID, recorded.
    #[track_caller]
    pub fn new_guid(&self) -> SystemCallFuture<String> {
        let location = Location::caller();
        let recorded = self.call("new_guid", Access::Act, no_call, |state| {
            let guid = uuid4_text(state.draw(), state.draw());
            state.system_call("new_guid".to_owned(), Payload::from(guid), location).map(Some)
        });
        self.system_call_future(recorded)
    }

    /// A value computed once. The closure runs at the call, in live turns only; a replay returns the recorded value.
    #[track_caller]
    pub fn side_effect<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        f: impl FnOnce() -> T,
    ) -> SystemCallFuture<T> {
        let location = Location::caller();
        let is_live = self.call("side_effect", Access::Act, || false, |state| Ok(!state.replaying));
        let live_value = if is_live {
            let value = {
                let _inside = self.enter_closure("side_effect", Access::Act, Closure::SideEffect);
                catch_unwind(AssertUnwindSafe(f))
            };
            let value = value.unwrap_or_else(|panic| self.fail_side_effect(panic));
            self.encode("the value of a side effect", &value)
        } else {
            Payload::null()
        };
        let recorded = self.call("side_effect", Access::Act, no_call, |state| {
            state.system_call(format!("side_effect:{name}"), live_value, location).map(Some)
        });
        self.system_call_future(recorded)
    }

    /// Fails the turn after the closure of a side effect panicked, even if the code catches the panic: a replay has no
    /// recorded value to return, and does not run the closure.
    fn fail_side_effect(&self, panic: Box<dyn Any + Send>) -> ! {
        let message = panic_message(&*panic);
        let place = panic_place::take();
        turn_local::with(&self.flags, |state| {
            let unit = state.unit.clone();
            state.failure.get_or_insert(TurnFailure::Panicked { unit, message, place });
        });
        resume_unwind(panic)
    }

    /// Whether this execution should take the new path of a patch. The first answer for an id is final; live code gets
    /// `true`, which is recorded.
    #[track_caller]
    pub fn patched(&self, id: &str) -> bool {
        let location = Location::caller();
        self.call("patched", Access::Act, || false, |state| state.patched(id, location))
    }

    /// Publishes a status that clients and lists can read.
    #[track_caller]
    pub fn set_status(&self, status: impl Into<Payload>) {
        self.decide("set_status", Decision::StatusSet { status: status.into() });
    }

    /// Changes the instance's search attributes; `null` removes one.
    #[track_caller]
    pub fn upsert_attributes<N: Into<String>, V: Into<Payload>>(
        &self,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) {
        let attributes: Attributes =
            attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.decide("upsert_attributes", Decision::AttributesUpserted { attributes });
    }

    /// Starts an orchestration that is not a child of this instance.
    #[track_caller]
    pub fn schedule_orchestration(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<Payload>,
    ) -> Sent {
        self.start_detached(name.into(), None, instance.into(), input.into())
    }

    /// Starts an orchestration at an exact version that is not a child of this instance.
    #[track_caller]
    pub fn schedule_orchestration_versioned(
        &self,
        name: impl Into<String>,
        version: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<Payload>,
    ) -> Sent {
        self.start_detached(name.into(), Some(version.into()), instance.into(), input.into())
    }

    #[track_caller]
    fn start_detached(
        &self,
        name: String,
        version: Option<String>,
        instance: String,
        input: Payload,
    ) -> Sent {
        let reported = false;
        let decision = Decision::OrchestrationChained { name, version, instance, input, reported };
        self.send("schedule_orchestration", decision)
    }

    /// Raises an event for another instance.
    #[track_caller]
    pub fn raise_event(
        &self,
        instance: impl Into<String>,
        name: impl Into<String>,
        payload: impl Into<Payload>,
    ) -> Sent {
        let (instance, name, payload) = (instance.into(), name.into(), payload.into());
        let decision = Decision::ExternalEventSent { instance, name, payload, key: None, reported: false };
        self.send("raise_event", decision)
    }

    /// Ends this execution and continues the instance with a new one, at the latest version. Await the returned future;
    /// it never resolves.
    #[track_caller]
    pub fn continue_as_new<T>(&self, input: impl Into<Payload>) -> ContinueAsNewFuture<T> {
        self.continue_at(None, input.into())
    }

    /// Like [`continue_as_new`](Self::continue_as_new), at an exact version.
    #[track_caller]
    pub fn continue_as_new_versioned<T>(
        &self,
        version: impl Into<String>,
        input: impl Into<Payload>,
    ) -> ContinueAsNewFuture<T> {
        self.continue_at(Some(version.into()), input.into())
    }

    #[track_caller]
    fn continue_at<T>(&self, version: Option<String>, input: Payload) -> ContinueAsNewFuture<T> {
        let location = Location::caller();
        self.call(
            "continue_as_new",
            Access::Act,
            || (),
            |state| {
                state.last_call = Some(location);
                state.check_payload(input.size() as u64)?;
                state.continued = Some(ContinueAsNew { input, version });
                Ok(())
            },
        );
        ContinueAsNewFuture(std::marker::PhantomData)
    }

    /// Ends the instance as cancelled, with an output: for code that took over cancellation and has cleaned up. The
    /// reason is that of the cancel request. Await the returned future; it never resolves.
    #[track_caller]
    pub fn end_cancelled<T>(&self, output: impl Into<Payload>) -> EndCancelledFuture<T> {
        let location = Location::caller();
        let output = output.into();
        self.call(
            "end_cancelled",
            Access::Act,
            || (),
            |state| {
                state.last_call = Some(location);
                state.check_payload(output.size() as u64)?;
                state.ended_cancelled = Some(output);
                Ok(())
            },
        );
        EndCancelledFuture(std::marker::PhantomData)
    }

    /// Records that the root has returned.
    pub(crate) fn finish(&self, output: Result<Payload, Payload>) {
        self.call(
            "finish",
            Access::Act,
            || (),
            |state| {
                let (Ok(payload) | Err(payload)) = &output;
                state.check_payload(payload.size() as u64)?;
                state.output = Some(output);
                Ok(())
            },
        );
    }

    /// Fails the turn as misuse, and does not return. Used by the typed API to report errors in the code.
    #[doc(hidden)]
    pub fn refuse(&self, what: String) -> ! {
        self.call("refuse", Access::Look, || (), |state| Err::<(), Stop>(state.misuse(what)));
        resume_unwind(Box::new(TurnHasFailed))
    }

    /// Encodes a value. A value that JSON cannot represent is misuse.
    pub fn encode<T: Serialize + ?Sized>(&self, what: &'static str, value: &T) -> Payload {
        match Payload::encode(value) {
            Ok(payload) => payload,
            Err(error) => self.call("encode", Access::Look, Payload::null, |state| {
                Err(state.misuse(format!("{what} cannot be written as JSON: {error}")))
            }),
        }
    }

    fn system_call_future<T: DeserializeOwned>(
        &self,
        recorded: Option<(EventId, Payload)>,
    ) -> SystemCallFuture<T> {
        let value = recorded.and_then(|(event, value)| {
            value
                .decode_as()
                .inspect_err(|mismatch| self.fail_decoding(event, PayloadSource::Other, mismatch))
                .ok()
        });
        SystemCallFuture { value }
    }

    /// Fails the turn because a recorded payload does not have the type that the code expects.
    fn fail_decoding(&self, event: EventId, source: PayloadSource, mismatch: &NotOfType) {
        self.call("decode", Access::Look, || (), |state| Err(state.note_mismatch(event, source, mismatch)));
    }

    /// Fails the turn because the payload that started the running unit (an input, an event or an update) does not have
    /// the type that its code takes. Does not return. Used by the typed API.
    #[doc(hidden)]
    pub fn refuse_payload(&self, mismatch: &NotOfType) -> ! {
        self.call(
            "decode",
            Access::Look,
            || (),
            |state| {
                let handled = state.scheduler.source(&state.unit);
                let (event, source) = handled.unwrap_or((EventId(1), PayloadSource::Other));
                Err(state.note_mismatch(event, source, mismatch))
            },
        );
        resume_unwind(Box::new(TurnHasFailed))
    }
}

fn no_call() -> Option<(EventId, Payload)> {
    None
}

/// The value of a recorded call, ready at the first poll.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct SystemCallFuture<T> {
    value: Option<T>,
}

impl<T> Unpin for SystemCallFuture<T> {}

impl<T> Future for SystemCallFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.value.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Never resolves: the execution ends with the current step.
#[must_use = "await it, so that nothing runs after it"]
pub struct ContinueAsNewFuture<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Future for ContinueAsNewFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        Poll::Pending
    }
}

/// Never resolves: the instance ends with the current step.
#[must_use = "await it, so that nothing runs after it"]
pub struct EndCancelledFuture<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Future for EndCancelledFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        Poll::Pending
    }
}
