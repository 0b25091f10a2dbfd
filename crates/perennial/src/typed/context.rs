//! The context of typed orchestration code: calls with typed payloads.

use std::fmt;

use perennial_core::{
    ActivityFuture, ChildFuture, ContinueAsNewFuture, EndCancelledFuture, Events, Payload, Sent, WaitFuture,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::events::{EventContent, EventTarget};
use super::targets::{ActivityTarget, OrchestrationTarget};

/// The handle through which an orchestration schedules work, waits, and reads time.
///
/// Calls return at once; calls that take time return a future. Cloning is cheap. Calls are allowed only while the
/// orchestration's own code runs, on the thread it runs on. [`context`](crate::context) has the types of the futures.
#[derive(Clone)]
pub struct OrchestrationContext(perennial_core::OrchestrationContext);

impl OrchestrationContext {
    pub(super) fn new(ctx: perennial_core::OrchestrationContext) -> OrchestrationContext {
        OrchestrationContext(ctx)
    }

    /// The untyped context.
    pub(super) fn core(&self) -> &perennial_core::OrchestrationContext {
        &self.0
    }

    pub(super) fn encoded(&self, what: &'static str, encoded: Result<Payload, serde_json::Error>) -> Payload {
        match encoded {
            Ok(payload) => payload,
            Err(error) => self.0.refuse(format!("{what} cannot be written as JSON: {error}")),
        }
    }

    /// Runs an activity.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[activity]
    /// async fn square(_: ActivityContext, number: i64) -> Result<i64, String> {
    ///     Ok(number * number)
    /// }
    ///
    /// #[orchestration]
    /// async fn squares(ctx: OrchestrationContext, number: i64) -> Result<i64, String> {
    ///     let once = ctx.schedule_activity(square, number).await?;
    ///     Ok(ctx.schedule_activity(square, once).retry(RetryPolicy::exponential(3)).await?)
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_activity<T, I, K>(&self, activity: T, input: I) -> ActivityFuture<T::Outcome>
    where
        T: ActivityTarget<I, K>,
    {
        let input = self.encoded("the input of an activity", T::encode(input));
        let future = self.0.schedule_activity(activity.name(), input);
        let future = match activity.options() {
            Some(options) => future.defaults(options),
            None => future,
        };
        future.read_by(T::read)
    }

    /// Waits for an external event. Events that arrive before the wait are kept for it.
    ///
    /// For an event given by name, the content is returned as text;
    /// [`ExternalEvent::<Payload>::named`](super::ExternalEvent::named) returns it unchanged.
    #[track_caller]
    pub fn schedule_wait<T: EventTarget>(&self, event: T) -> WaitFuture<T::Content> {
        self.0.schedule_wait(event.name()).read_by(T::read)
    }

    /// Takes the oldest unread event of a name, if there is one, without waiting. Events that are reserved
    /// for an open wait are not taken.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const ITEM: ExternalEvent<u32> = ExternalEvent::named("item");
    ///
    /// /// Waits for an item, then takes all items that have arrived in the meantime.
    /// #[orchestration]
    /// async fn batch(ctx: OrchestrationContext) -> Result<u32, String> {
    ///     let mut sum = ctx.schedule_wait(ITEM).await;
    ///     ctx.schedule_timer(Duration::from_millis(1)).await;
    ///     while let Some(item) = ctx.try_receive(ITEM) {
    ///         sum += item;
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    #[track_caller]
    pub fn try_receive<T: EventTarget>(&self, event: T) -> Option<T::Content> {
        self.0.try_receive_by(event.name(), T::read)
    }

    /// The number of unread events of a name that are not reserved for an open wait.
    pub fn unread<T: EventTarget>(&self, event: T) -> usize {
        self.0.unread(event.name())
    }

    /// The events of a name as a stream that never ends, including events that arrived before.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const ITEM: ExternalEvent<u32> = ExternalEvent::named("item");
    ///
    /// #[orchestration]
    /// async fn sum(ctx: OrchestrationContext) -> Result<u32, String> {
    ///     let mut items = ctx.events(ITEM);
    ///     let mut sum = 0;
    ///     while sum < 10 {
    ///         sum += items.receive().await; // or any adapter for a `futures::Stream`
    ///     }
    ///     Ok(sum)
    /// }
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(sum).start().await?;
    /// # let client = runtime.client();
    /// let run = client.start(sum, "sum-1", ()).await?;
    /// for item in [4, 5, 6] {
    ///     client.raise_event("sum-1", ITEM, item).await?;
    /// }
    /// assert_eq!(run.result().await?, 15);
    /// # runtime.shutdown().await
    /// # }
    /// ```
    #[track_caller]
    pub fn events<T: EventTarget>(&self, event: T) -> Events<T::Content> {
        self.0.events(event.name()).read_by(T::read)
    }

    /// Runs a sub-orchestration at the latest version, under an id derived from this instance's.
    #[track_caller]
    pub fn schedule_sub_orchestration<T, I, K>(&self, orchestration: T, input: I) -> ChildFuture<T::Outcome>
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = self.encoded("the input of a sub-orchestration", T::encode(input));
        self.0.schedule_sub_orchestration(orchestration.name(), input).read_by(T::read)
    }

    /// Runs a sub-orchestration under the given id.
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id<T, I, K>(
        &self,
        orchestration: T,
        instance: impl Into<String>,
        input: I,
    ) -> ChildFuture<T::Outcome>
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = self.encoded("the input of a sub-orchestration", T::encode(input));
        self.0.schedule_sub_orchestration_with_id(orchestration.name(), instance, input).read_by(T::read)
    }

    /// Runs a sub-orchestration at an exact version.
    #[track_caller]
    pub fn schedule_sub_orchestration_versioned<T, I, K>(
        &self,
        orchestration: T,
        version: impl Into<String>,
        input: I,
    ) -> ChildFuture<T::Outcome>
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = self.encoded("the input of a sub-orchestration", T::encode(input));
        self.0.schedule_sub_orchestration_versioned(orchestration.name(), version, input).read_by(T::read)
    }

    /// Runs a sub-orchestration at an exact version, under the given id.
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id_versioned<T, I, K>(
        &self,
        orchestration: T,
        version: impl Into<String>,
        instance: impl Into<String>,
        input: I,
    ) -> ChildFuture<T::Outcome>
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = self.encoded("the input of a sub-orchestration", T::encode(input));
        let name = orchestration.name();
        self.0.schedule_sub_orchestration_with_id_versioned(name, version, instance, input).read_by(T::read)
    }

    /// Starts an orchestration without a parent. [`Sent::delivered`] returns whether its id was free.
    #[track_caller]
    pub fn schedule_orchestration<T, I, K>(
        &self,
        orchestration: T,
        instance: impl Into<String>,
        input: I,
    ) -> Sent
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = self.encoded("the input of an orchestration", T::encode(input));
        self.0.schedule_orchestration(orchestration.name(), instance, input)
    }

    /// Starts an orchestration without a parent, at an exact version.
    #[track_caller]
    pub fn schedule_orchestration_versioned<T, I, K>(
        &self,
        orchestration: T,
        version: impl Into<String>,
        instance: impl Into<String>,
        input: I,
    ) -> Sent
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = self.encoded("the input of an orchestration", T::encode(input));
        self.0.schedule_orchestration_versioned(orchestration.name(), version, instance, input)
    }

    /// Raises an event at another instance. The call does not wait; use [`Sent::delivered`] to learn the
    /// outcome:
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const PAID: ExternalEvent<u64> = ExternalEvent::named("paid");
    ///
    /// #[orchestration]
    /// async fn pay(ctx: OrchestrationContext, invoice: String) -> Result<String, String> {
    ///     match ctx.raise_event(&invoice, PAID, 100).delivered().await {
    ///         Delivery::Delivered => Ok("paid".to_owned()),
    ///         other => Err(format!("invoice {invoice}: {other:?}")),
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn raise_event<T, C>(&self, instance: impl Into<String>, event: T, content: C) -> Sent
    where
        T: EventContent<C>,
    {
        let content = self.encoded("what comes with an event", T::encode(content));
        self.0.raise_event(instance, event.name(), content)
    }

    /// Ends the instance as cancelled, with an output: for code that handles cancellation itself and has
    /// cleaned up. The reason is that of the cancel request. Await the returned future; it never resolves.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn import(ctx: OrchestrationContext, rows: u32) -> Result<u32, String> {
    ///     for done in 0..rows {
    ///         let pause = ctx.schedule_timer(Duration::from_secs(1));
    ///         if let Either::Second(_reason) = ctx.select2(pause, ctx.cancelled()).await {
    ///             return ctx.end_cancelled(format!("{done} rows are in")).await;
    ///         }
    ///     }
    ///     Ok(rows)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(import).start().await?;
    /// let run = runtime.client().start(import, "import-1", 1_000).await?;
    /// runtime.client().cancel("import-1", "wrong file").await?;
    /// let RunError::Cancelled { reason, output, .. } = run.result().await.unwrap_err() else { panic!() };
    /// assert_eq!(reason, "wrong file");
    /// assert_eq!(output, Some("0 rows are in".into()));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    #[track_caller]
    pub fn end_cancelled<R>(&self, output: impl Serialize) -> EndCancelledFuture<R> {
        let output = self.0.encode("what a cancelled instance leaves behind", &output);
        self.0.end_cancelled(output)
    }

    /// Ends this execution and continues the instance in a new one with this input. The version is the one
    /// that a start without a version gets: the latest, unless
    /// [`Registrations::version_policy`](crate::Registrations::version_policy) is set. Await the returned
    /// future; it never resolves.
    #[track_caller]
    pub fn continue_as_new<R>(&self, input: impl Serialize) -> ContinueAsNewFuture<R> {
        let input = self.0.encode("the input of the next execution", &input);
        self.0.continue_as_new(input)
    }

    /// Like [`continue_as_new`](Self::continue_as_new), at an exact version. `ctx.info().version` is the
    /// version of this execution.
    #[track_caller]
    pub fn continue_as_new_versioned<R>(
        &self,
        version: impl Into<String>,
        input: impl Serialize,
    ) -> ContinueAsNewFuture<R> {
        let input = self.0.encode("the input of the next execution", &input);
        self.0.continue_as_new_versioned(version, input)
    }

    /// Publishes a custom status, which clients see in the status of the instance.
    #[track_caller]
    pub fn set_status(&self, status: impl Serialize) {
        let status = self.0.encode("the status", &status);
        self.0.set_status(status);
    }

    /// Sets a searchable attribute of the instance.
    #[track_caller]
    pub fn set_attribute(&self, name: impl Into<String>, value: impl Serialize) {
        let value = self.0.encode("the attribute", &value);
        self.0.upsert_attributes([(name.into(), value)]);
    }

    /// The last status that this instance published, in this execution or an earlier one. A value of another
    /// type fails the turn.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn count(ctx: OrchestrationContext) -> Result<u32, String> {
    ///     let round = ctx.published::<u32>().unwrap_or(0) + 1;
    ///     ctx.set_status(round);
    ///     if round < 3 { ctx.continue_as_new(()).await } else { Ok(round) }
    /// }
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(count).start().await?;
    /// assert_eq!(runtime.client().start(count, "count-1", ()).await?.result().await?, 3);
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn published<T: DeserializeOwned>(&self) -> Option<T> {
        self.0.published().map(|status| self.decoded("the published status", status))
    }

    /// The current value of a searchable attribute of this instance. A value of another type fails the turn.
    /// See also [`attributes`](Self::attributes).
    pub fn attribute<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let value = self.0.attributes().remove(name);
        value.map(|value| self.decoded(&format!("the attribute {name:?}"), value))
    }

    fn decoded<T: DeserializeOwned>(&self, what: &str, payload: Payload) -> T {
        match payload.decode_as() {
            Ok(value) => value,
            Err(mismatch) => {
                self.0.refuse(format!("{what} is no {}: {}", mismatch.type_name, mismatch.reason()))
            }
        }
    }
}

impl fmt::Debug for OrchestrationContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrchestrationContext")
    }
}
