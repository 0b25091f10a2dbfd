//! The interface between the engine and the code of an orchestration.

use std::future::Future;
use std::pin::Pin;

use crate::context::OrchestrationContext;
use crate::history::{NotOfType, Payload};
use crate::log;

/// Runs an orchestration. Implemented for closures that take a context and an input; typed handlers are wrapped in
/// this.
pub trait OrchestrationHandler: Send + Sync + 'static {
    /// Starts the orchestration. Called once per execution, in its first step.
    fn run(
        &self,
        ctx: OrchestrationContext,
        input: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>>;

    /// Whether the code can decode an input. Checked before a deployment, for instances that have not started; a
    /// handler that takes raw payloads accepts all of them.
    fn check_input(&self, _input: &Payload) -> Result<(), NotOfType> {
        Ok(())
    }

    /// The `tracing` target of the code's log lines: by convention the module that defines it.
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
