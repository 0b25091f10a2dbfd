//! Activities: ordinary async code with side effects.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use perennial_core::{EventId, Payload};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// What an activity knows about the attempt it is.
#[derive(Clone, Debug)]
pub struct ActivityContext {
    pub(crate) instance: Arc<str>,
    pub(crate) execution: u64,
    pub(crate) event: EventId,
    pub(crate) attempt: u32,
    pub(crate) cancellation: CancellationToken,
}

impl ActivityContext {
    /// The instance that scheduled the activity.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The instance's execution.
    pub fn execution(&self) -> u64 {
        self.execution
    }

    /// The event that scheduled the activity.
    pub fn event_id(&self) -> EventId {
        self.event
    }

    /// 1 for the first attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// A key that is the same for every attempt of this activity and differs from that of every other. Give it to
    /// services that can tell a repeated request by it.
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}/{}", self.instance, self.execution, self.event)
    }

    /// Whether nobody waits for the result any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Resolves when nobody waits for the result any more.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.cancellation.cancelled()
    }
}

/// What runs an activity. Closures that take a context and an input do.
pub trait ActivityHandler: Send + Sync + 'static {
    /// Begins one attempt.
    fn run(
        &self,
        ctx: ActivityContext,
        input: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>>;
}

impl<F, Fut> ActivityHandler for F
where
    F: Fn(ActivityContext, Payload) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Payload, Payload>> + Send + 'static,
{
    fn run(
        &self,
        ctx: ActivityContext,
        input: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>> {
        Box::pin(self(ctx, input))
    }
}
