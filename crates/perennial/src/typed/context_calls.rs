//! Calls of the context without typed payloads: time, timers, units, combinators, state, cancellation.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use perennial_core::{
    Attributes, Branches, Cancelled, Completions, HandlersIdle, Info, Join, Join2, Join3, Operand, Operands,
    Payload, Race, Select, Select2, Select3, Sent, Shield, State, SystemCallFuture, Timeout, TimerFuture,
    Timestamp, TryJoin, UnitHandle, WaitUntil,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::OrchestrationContext;

impl OrchestrationContext {
    /// The ids, version, parent and history size of this execution.
    pub fn info(&self) -> Info {
        self.core().info()
    }

    /// Whether recorded turns are being replayed. Use it to suppress output such as logs; a decision that
    /// depends on it is nondeterministic.
    pub fn is_replaying(&self) -> bool {
        self.core().is_replaying()
    }

    /// Whether the history has grown so long that the code should continue as new.
    pub fn should_continue_as_new(&self) -> bool {
        self.core().should_continue_as_new()
    }

    /// The time of this turn. It does not advance within a turn and is the same in every replay.
    pub fn now(&self) -> Timestamp {
        self.core().now()
    }

    /// The time of this turn, recorded as its own event in the history.
    #[track_caller]
    pub fn utc_now(&self) -> SystemCallFuture<Timestamp> {
        self.core().utc_now()
    }

    /// A random number, the same in every replay.
    pub fn random(&self) -> u64 {
        self.core().random()
    }

    /// A random UUID, the same in every replay.
    pub fn uuid4(&self) -> String {
        self.core().uuid4()
    }

    /// A random UUID, recorded as its own event in the history.
    #[track_caller]
    pub fn new_guid(&self) -> SystemCallFuture<String> {
        self.core().new_guid()
    }

    /// Runs a closure once and records its value. The closure runs at the call, in live turns only; a replay returns the
    /// recorded value. For anything that may fail or take time, use an activity.
    #[track_caller]
    pub fn side_effect<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        f: impl FnOnce() -> T,
    ) -> SystemCallFuture<T> {
        self.core().side_effect(name, f)
    }

    /// Whether this execution takes the changed path of a patch. Live code gets `true`, which is recorded;
    /// the first result for an id is valid for the rest of the execution.
    #[track_caller]
    pub fn patched(&self, id: &str) -> bool {
        self.core().patched(id)
    }

    /// Changes searchable attributes of the instance; a `null` removes one.
    #[track_caller]
    pub fn upsert_attributes<N: Into<String>, V: Into<Payload>>(
        &self,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) {
        self.core().upsert_attributes(attributes);
    }

    /// The current searchable attributes of the instance: those of its start, with the changes made since.
    pub fn attributes(&self) -> Attributes {
        self.core().attributes()
    }

    /// Whether there are unread events, or events and updates whose handler has not begun. Continue-as-new
    /// carries them over; at the end of the instance they stay unread.
    pub fn has_unread(&self) -> bool {
        self.core().has_unread()
    }

    /// Waits for a duration, counted from the time of this turn and rounded up to the millisecond.
    #[track_caller]
    pub fn schedule_timer(&self, delay: Duration) -> TimerFuture {
        self.core().schedule_timer(delay)
    }

    /// Limits how long a future may take, counted from the call. If the result and the limit arrive together, the result
    /// wins.
    #[track_caller]
    pub fn timeout<F: Future>(&self, limit: Duration, future: F) -> Timeout<F> {
        self.core().timeout(limit, future)
    }

    /// Waits for all futures. Results come in input order.
    pub fn join<F: Future>(&self, futures: impl IntoIterator<Item = F>) -> Join<F> {
        self.core().join(futures)
    }

    /// Waits for all futures, or for the first error; the others are then dropped, which cancels them.
    pub fn try_join<F, T, E>(&self, futures: impl IntoIterator<Item = F>) -> TryJoin<F, T>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.core().try_join(futures)
    }

    /// Waits for two futures.
    pub fn join2<A: Future, B: Future>(&self, a: A, b: B) -> Join2<A, B> {
        self.core().join2(a, b)
    }

    /// Waits for three futures.
    pub fn join3<A: Future, B: Future, C: Future>(&self, a: A, b: B, c: C) -> Join3<A, B, C> {
        self.core().join3(a, b, c)
    }

    /// Waits for the first of two futures. Durable futures and combinators of them are passed as they are; any other
    /// future, an async block for example, is pinned first.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use perennial::prelude::*;
    /// #[orchestration]
    /// async fn reminded(ctx: OrchestrationContext) -> Result<String, String> {
    ///     let asked = async {
    ///         ctx.schedule_activity("ask", "now").await.ok();
    ///         ctx.schedule_wait("answer").await
    ///     };
    ///     let given_up = async {
    ///         ctx.schedule_timer(Duration::from_secs(60)).await;
    ///         "no answer".to_owned()
    ///     };
    ///     Ok(ctx.select2(pin!(asked), pin!(given_up)).await.into_inner())
    /// }
    /// ```
    pub fn select2<A: Operand, B: Operand>(&self, a: A, b: B) -> Select2<A, B> {
        self.core().select2(a, b)
    }

    /// Waits for the first of three futures.
    pub fn select3<A: Operand, B: Operand, C: Operand>(&self, a: A, b: B, c: C) -> Select3<A, B, C> {
        self.core().select3(a, b, c)
    }

    /// Waits for the first of many futures and returns its index and output.
    ///
    /// Pass `&mut futures` to keep the losers. In a loop over the remaining futures, each result examines only a
    /// few of the activities, timers, events and sub-orchestrations, as long as no other unit waits for such
    /// operations and all of them have been polled; otherwise it examines all of them.
    /// [`completions`](Self::completions) has no such condition.
    pub fn select<L: Operands>(&self, operands: L) -> Select<L> {
        self.core().select(operands)
    }

    /// Waits for the first of many futures.
    pub fn race<L: Operands>(&self, operands: L) -> Race<L> {
        self.core().race(operands)
    }

    /// Returns the results of many futures one after another, in the order of completion.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # const PART: Activity<(), u64, String> = Activity::named("part");
    /// #[orchestration]
    /// async fn sum(ctx: OrchestrationContext) -> Result<u64, String> {
    ///     let mut parts = ctx.completions((0..1_000).map(|_| ctx.schedule_activity(PART, ())));
    ///     let mut sum = 0;
    ///     while let Some((_index, part)) = parts.next().await {
    ///         sum += part?;
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub fn completions<O: Operand>(&self, operands: impl IntoIterator<Item = O>) -> Completions<O> {
        self.core().completions(operands)
    }

    /// Runs branches concurrently, each in its own unit. Results come in branch order.
    pub fn parallel<F>(&self, branches: impl IntoIterator<Item = F>) -> Branches<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.core().parallel(branches)
    }

    /// Runs a future in its own unit.
    pub fn spawn<F>(&self, future: F) -> UnitHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.core().spawn(future)
    }

    /// Runs a future in its own unit, which continues if the shield is dropped, so that nothing in it is
    /// cancelled.
    pub fn shield<F>(&self, future: F) -> Shield<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.core().shield(future)
    }

    /// Runs a future in its own unit, which continues if the shield is dropped and is not ended by a cancel
    /// request. If the engine handles the cancellation, everything else is dropped, and the instance ends as
    /// cancelled when all such units have finished, within the grace period.
    pub fn uncancellable<F>(&self, future: F) -> Shield<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.core().uncancellable(future)
    }

    /// Creates a value that the units and handlers of this execution share, see [`State`].
    pub fn state<T: Send + 'static>(&self, value: T) -> State<T> {
        self.core().state(value)
    }

    /// Waits until a state meets a condition, which is checked after each step that changed the state.
    pub fn wait_until<T, P>(&self, state: &State<T>, condition: P) -> WaitUntil<T, P>
    where
        T: Send + 'static,
        P: FnMut(&T) -> bool,
    {
        self.core().wait_until(state, condition)
    }

    /// Takes over the handling of cancellation, permanently. The future resolves with the reason when
    /// cancellation is requested, and the code decides how it ends, for example with
    /// [`end_cancelled`](Self::end_cancelled).
    pub fn cancelled(&self) -> Cancelled {
        self.core().cancelled()
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.core().is_cancelled()
    }

    /// The reason of the cancel request, once it has been delivered to the code.
    pub fn cancel_reason(&self) -> Option<String> {
        self.core().cancel_reason()
    }

    /// Takes over the handling of cancellation, permanently. A cancel request starts this handler in its own
    /// unit, and the code decides how it ends.
    pub fn on_cancel<F, Fut>(&self, handler: F)
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.core().on_cancel(handler);
    }

    /// Resolves when no handler is running, except the calling one.
    pub fn handlers_idle(&self) -> HandlersIdle {
        self.core().handlers_idle()
    }

    /// Requests the cancellation of another instance. The request has no effect if that instance has ended or
    /// does not exist.
    #[track_caller]
    pub fn cancel_orchestration(&self, instance: impl Into<String>, reason: impl Into<String>) -> Sent {
        self.core().cancel_orchestration(instance, reason)
    }

    /// Logs at level ERROR, under the target of the module that the orchestration is defined in.
    ///
    /// The line has the fields `instance` and `execution`, and the file and line of the caller. It is written
    /// while the turn runs, but not when the turn is replayed. If the turn fails, or its commit fails, the
    /// turn runs again and the line is written again. A line in the log does not prove that the turn was
    /// recorded.
    #[track_caller]
    pub fn trace_error(&self, message: impl Display) {
        self.core().trace_error(message);
    }

    /// Logs at level WARN. See [`trace_error`](Self::trace_error) for target, fields and when it is written.
    #[track_caller]
    pub fn trace_warn(&self, message: impl Display) {
        self.core().trace_warn(message);
    }

    /// Logs at level INFO. See [`trace_error`](Self::trace_error) for target, fields and when it is written.
    #[track_caller]
    pub fn trace_info(&self, message: impl Display) {
        self.core().trace_info(message);
    }

    /// Logs at level DEBUG. See [`trace_error`](Self::trace_error) for target, fields and when it is written.
    #[track_caller]
    pub fn trace_debug(&self, message: impl Display) {
        self.core().trace_debug(message);
    }
}
