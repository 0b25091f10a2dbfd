//! Activities: ordinary async code with side effects.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use perennial_core::ErrorCode;
use perennial_core::codec::quoted;
use perennial_core::shard::{ActivityTask, CompletionToken};
use perennial_core::{EventId, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::client::Client;
use crate::runtime::HeartbeatMonitor;
use crate::shared_state::SharedState;

/// The handle of an activity's attempt: ids, cancellation, heartbeats and shared state. Cloning is cheap.
#[derive(Clone)]
pub struct ActivityContext {
    pub(crate) task: Arc<ActivityTask>,
    pub(crate) cancellation: CancellationToken,
    pub(crate) heartbeats: Arc<HeartbeatMonitor>,
    pub(crate) client: Client,
    pub(crate) state: Option<Arc<SharedState>>,
}

impl ActivityContext {
    /// The id of the instance that scheduled the activity.
    pub fn instance(&self) -> &str {
        &self.task.instance
    }

    /// The number of the execution that scheduled the activity.
    pub fn execution(&self) -> u64 {
        self.task.execution
    }

    /// The id of the event that scheduled the activity.
    pub fn event_id(&self) -> EventId {
        self.task.event
    }

    /// The id that the orchestration gave this activity with
    /// [`ActivityFuture::id`](crate::context::ActivityFuture::id), or `None`.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[activity]
    /// async fn charge(ctx: ActivityContext, cents: u64) -> Result<String, String> {
    ///     Ok(format!("{cents} cents by {}", ctx.activity_id().unwrap_or("nobody")))
    /// }
    ///
    /// #[orchestration(uses(charge))]
    /// async fn order(ctx: OrchestrationContext) -> Result<String, String> {
    ///     Ok(ctx.schedule_activity(charge, 500).id("charge-of-invoice-7").await?)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(order).register(charge).start().await?;
    /// let run = runtime.client().start(order, "order-1", ()).await?;
    /// assert_eq!(run.result().await?, "500 cents by charge-of-invoice-7");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn activity_id(&self) -> Option<&str> {
        self.task.activity_id.as_deref()
    }

    /// The number of this attempt, starting with 1.
    pub fn attempt(&self) -> u32 {
        self.task.attempt
    }

    /// A key that is the same for every attempt of this activity and differs from that of every other
    /// activity. Pass it to services that recognise repeated requests by such a key.
    pub fn idempotency_key(&self) -> String {
        // The id alone does not suffice: after a deletion, another instance may have it.
        format!("{}/{}/{}", self.task.key, self.task.execution, self.task.event)
    }

    /// Whether this attempt was cancelled: its result is no longer needed.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Resolves when this attempt is cancelled: its result is no longer needed.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.cancellation.cancelled()
    }

    /// Reports that the attempt is alive, with details about its progress. The details are stored every few
    /// seconds, survive a crash, and are available to the next attempt through
    /// [`ActivityContext::decode_details`].
    ///
    /// # Panics
    ///
    /// Panics if the details cannot be written as JSON. The attempt then fails with that message.
    pub fn heartbeat(&self, details: impl Serialize) {
        match Payload::encode(&details) {
            Ok(details) => self.heartbeats.beat(quoted(&details)),
            Err(error) => panic!(
                "{}: the heartbeat details of activity {:?} cannot be written as JSON: {error}",
                ErrorCode::UnwritableDetails.prefix(),
                self.task.name
            ),
        }
    }

    /// The last heartbeat details of earlier attempts.
    pub fn details(&self) -> Option<&Payload> {
        self.task.details.as_ref()
    }

    /// The last heartbeat details of earlier attempts, or `None` if they are not of this type.
    pub fn decode_details<T: DeserializeOwned>(&self) -> Option<T> {
        self.task.details.as_ref()?.decode().ok()
    }

    /// The shared state of type `T`, set with [`Registrations::state`](crate::Registrations::state).
    ///
    /// The activity declares the type in its attribute: `#[activity(state(T))]`. A runtime in which a
    /// declared type is missing does not start.
    ///
    /// # Panics
    ///
    /// Panics if the activity does not declare a `T`, even if the runtime has one. The attempt then fails
    /// with that message.
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        self.state.as_ref().and_then(|state| state.get()).unwrap_or_else(|| {
            let wanted = std::any::type_name::<T>();
            panic!(
                "{}: the activity {:?} does not declare that it reads a {wanted}; write #[activity(state({wanted}))], or let \
                 a closure capture it",
                ErrorCode::NoState.prefix(),
                self.task.name,
            )
        })
    }

    /// The token of this attempt, as text that is safe in a URL. Whoever has the token can report the result,
    /// before or after the code returns [`Later::Pending`](crate::Later::Pending).
    ///
    /// Every call of this attempt returns the same token, even after a crash; a retry has another one. Give
    /// it only to those you trust with the result.
    ///
    /// # Panics
    ///
    /// Panics if the activity was not scheduled to complete later: its function does not return
    /// [`Later`](crate::Later), or it was scheduled by name without `.completes_later()`. The attempt then
    /// fails with that message.
    pub fn completion_token(&self) -> String {
        match CompletionToken::of(&self.task) {
            Some(token) => token.to_string(),
            None => panic!(
                "{}: the activity {:?} was not scheduled to complete later; return a `Later<T>`, or add \
                 `.completes_later()` where it is scheduled by its name",
                ErrorCode::NoToken.prefix(),
                self.task.name
            ),
        }
    }

    /// The `traceparent` of this attempt in the form of the W3C's header, for calls to services that continue the trace.
    /// `None` if the instance was started without a trace.
    ///
    /// If this process exports traces, it is the span of the attempt; otherwise it is the caller's, as it was recorded
    /// with the start.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[activity]
    /// async fn charge(ctx: ActivityContext, cents: u64) -> Result<String, String> {
    ///     let headers: Vec<(&str, String)> = ctx.traceparent().map(|parent| ("traceparent", parent)).into_iter().collect();
    ///     Ok(format!("POST /charges {cents} {headers:?}"))
    /// }
    /// ```
    pub fn traceparent(&self) -> Option<String> {
        self.client.attempt_trace.as_ref().map(|trace| trace.parent.clone())
    }

    /// The `tracestate` that belongs to [`traceparent`](Self::traceparent), if there is one.
    pub fn tracestate(&self) -> Option<String> {
        self.client.attempt_trace.as_ref().and_then(|trace| trace.state.clone())
    }

    /// A client of the node that runs this attempt. What it starts and sends belongs to the trace of the attempt.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl fmt::Debug for ActivityContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActivityContext")
            .field("instance", &self.task.instance)
            .field("execution", &self.task.execution)
            .field("event", &self.task.event)
            .field("attempt", &self.task.attempt)
            .finish_non_exhaustive()
    }
}

/// The future of one attempt.
pub type ActivityFutureBox = Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>>;

/// Code that runs an activity. Implemented for closures that take a context and an input.
pub trait ActivityHandler: Send + Sync + 'static {
    /// Starts one attempt.
    fn run(&self, ctx: ActivityContext, input: Payload) -> ActivityFutureBox;
}

impl<F, Fut> ActivityHandler for F
where
    F: Fn(ActivityContext, Payload) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Payload, Payload>> + Send + 'static,
{
    fn run(&self, ctx: ActivityContext, input: Payload) -> ActivityFutureBox {
        Box::pin(self(ctx, input))
    }
}
