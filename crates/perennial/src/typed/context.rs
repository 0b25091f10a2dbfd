//! What typed orchestration code calls.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use perennial_core::{
    ActivityFuture, ChildFuture, ContinueAsNewFuture, EndCancelledFuture, NotOfType, Payload, Sent,
    WaitFuture,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::events::{EventContent, EventTarget};
use super::targets::{ActivityTarget, OrchestrationTarget, QueryHandled, UpdateHandled};

/// The way of orchestration code to everything outside of it.
///
/// Calls return at once; what takes time returns a future. What has no payload in it (timers, joins, selects, time and
/// chance, state, cancellation, …) is described at [`perennial_core::OrchestrationContext`], which this dereferences to.
#[derive(Clone)]
pub struct OrchestrationContext(perennial_core::OrchestrationContext);

impl OrchestrationContext {
    pub(super) fn new(ctx: perennial_core::OrchestrationContext) -> OrchestrationContext {
        OrchestrationContext(ctx)
    }

    fn encoded(&self, what: &'static str, encoded: Result<Payload, serde_json::Error>) -> Payload {
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

    /// Waits for an external event. Events that came before the wait are kept for it.
    ///
    /// By name, what came with it is text; [`Event::<Payload>::named`](super::Event::named) gives it as it is.
    #[track_caller]
    pub fn schedule_wait<T: EventTarget>(&self, event: T) -> WaitFuture<T::Content> {
        self.0.schedule_wait(event.name()).read_by(T::read)
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

    /// Runs a sub-orchestration under an id of the caller's choice.
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

    /// Runs a sub-orchestration at an exact version, under an id of the caller's choice.
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

    /// Starts an orchestration that is nobody's child. [`Sent::delivered`] tells whether its id was free.
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

    /// Starts an orchestration that is nobody's child, at an exact version.
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

    /// Raises an event at another instance. Nothing waits for it, unless the code asks what became of it:
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const PAID: Event<u64> = Event::named("paid");
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

    /// Ends the instance as cancelled, with what it leaves behind: for code that took cancellation over and has cleaned
    /// up. The reason is that of the cancel request. Await the result: it never comes.
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
    pub fn end_cancelled<R>(&self, output: impl Serialize) -> EndCancelledFuture<R> {
        let output = self.0.encode("what a cancelled instance leaves behind", &output);
        self.0.end_cancelled(output)
    }

    /// Ends this execution and lets the instance go on in a next one, at the latest version, with this input. Await
    /// the result: it never comes.
    pub fn continue_as_new<R>(&self, input: impl Serialize) -> ContinueAsNewFuture<R> {
        let input = self.0.encode("the input of the next execution", &input);
        self.0.continue_as_new(input)
    }

    /// Like [`continue_as_new`](Self::continue_as_new), at an exact version.
    pub fn continue_as_new_versioned<R>(
        &self,
        version: impl Into<String>,
        input: impl Serialize,
    ) -> ContinueAsNewFuture<R> {
        let input = self.0.encode("the input of the next execution", &input);
        self.0.continue_as_new_versioned(version, input)
    }

    /// Publishes what the orchestration is doing; the instance's status shows it.
    #[track_caller]
    pub fn set_status(&self, status: impl Serialize) {
        let status = self.0.encode("the status", &status);
        self.0.set_status(status);
    }

    /// Gives the instance a value that it can be found by.
    #[track_caller]
    pub fn set_attribute(&self, name: impl Into<String>, value: impl Serialize) {
        let value = self.0.encode("the attribute", &value);
        self.0.upsert_attributes([(name.into(), value)]);
    }

    /// Handles every event of a name in a unit of its own, those that came before included.
    pub fn on_event<T, F, Fut>(&self, event: T, handler: F)
    where
        T: EventTarget,
        T::Content: DeserializeOwned + 'static,
        F: Fn(T::Content) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let ctx = self.0.clone();
        self.0.on_event(event.name(), move |payload| match T::read(payload) {
            Ok(content) => handler(content),
            Err(mismatch) => ctx.refuse_payload(&mismatch),
        });
    }

    /// Answers a query: a [`Query`](super::Query), or a name. The handler may only look, mostly at a
    /// [`State`](perennial_core::State). What it returns is the answer, a `Result` included.
    pub fn on_query<T, I, O, F>(&self, query: T, handler: F)
    where
        T: QueryHandled<I, O>,
        I: DeserializeOwned,
        O: Serialize,
        F: Fn(I) -> O + Send + Sync + 'static,
    {
        self.0.on_query(query.name(), move |payload| {
            let input = payload.decode_as::<I>().map_err(|mismatch| not_read(&mismatch))?;
            Payload::encode(&handler(input)).map_err(|error| Payload::from(error.to_string()))
        });
    }

    /// Handles an update: an [`Update`](super::Update), or a name. `validate` decides between turns whether it is
    /// accepted, and may only look; `handler` runs in a unit of its own, and its result is the answer.
    #[track_caller]
    pub fn on_update<T, I, O, E, V, F, Fut>(&self, update: T, validate: V, handler: F)
    where
        T: UpdateHandled<I, O, E>,
        I: DeserializeOwned,
        O: Serialize,
        E: Serialize,
        V: Fn(&I) -> Result<(), E> + Send + Sync + 'static,
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let words = |error: &dyn fmt::Display| Payload::from(error.to_string());
        let check = move |payload: &Payload| {
            let input = payload.decode_as::<I>().map_err(|mismatch| not_read(&mismatch))?;
            validate(&input).map_err(|error| Payload::encode(&error).unwrap_or_else(|error| words(&error)))
        };
        let ctx = self.0.clone();
        self.0.on_update(update.name(), check, move |payload| {
            let (ctx, answer) = (
                ctx.clone(),
                match payload.decode_as::<I>() {
                    Ok(input) => handler(input),
                    Err(mismatch) => ctx.refuse_payload(&mismatch),
                },
            );
            async move {
                match answer.await {
                    Ok(output) => Ok(ctx.encode("the answer of an update", &output)),
                    Err(error) => Err(ctx.encode("the error of an update", &error)),
                }
            }
        });
    }
}

/// What whoever asks with something else is told.
fn not_read(mismatch: &NotOfType) -> Payload {
    Payload::from(format!("{mismatch}: {}", mismatch.reason()))
}

impl Deref for OrchestrationContext {
    type Target = perennial_core::OrchestrationContext;

    fn deref(&self) -> &perennial_core::OrchestrationContext {
        &self.0
    }
}

impl fmt::Debug for OrchestrationContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrchestrationContext")
    }
}
