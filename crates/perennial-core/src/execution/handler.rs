//! The code of an orchestration, as the engine sees it.

use std::future::Future;
use std::pin::Pin;

use crate::context::OrchestrationContext;
use crate::history::{NotOfType, Payload};
use crate::log;

/// What runs an orchestration. Closures that take a context and an input do; typed handlers wrap themselves in this.
pub trait OrchestrationHandler: Send + Sync + 'static {
    /// Begins the orchestration. Called once per execution, in its first step.
    fn run(
        &self,
        ctx: OrchestrationContext,
        input: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>>;

    /// Whether the code can read an input. Asked before a deployment, of instances that have not begun; a handler that
    /// takes payloads as they are reads every one.
    fn check_input(&self, _input: &Payload) -> Result<(), NotOfType> {
        Ok(())
    }

    /// The `tracing` target of what the code logs through its context: by convention the module that it is defined in.
    fn log_target(&self) -> &'static str {
        log::module_of(std::any::type_name::<Self>())
    }
}

impl<F, Fut> OrchestrationHandler for F
where
    F: Fn(OrchestrationContext, Payload) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Payload, Payload>> + Send + 'static,
{
    fn run(
        &self,
        ctx: OrchestrationContext,
        input: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>> {
        Box::pin(self(ctx, input))
    }
}
