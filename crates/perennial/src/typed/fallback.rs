//! Code for names that match a pattern.

use std::future::Future;
use std::sync::Arc;

use perennial_core::{OrchestrationHandler, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::OrchestrationContext;
use super::register::{Boxed, TypedOrchestration, bad_input, decode, log_target, on_payloads};
use crate::activity::{ActivityContext, ActivityFutureBox, ActivityHandler};

/// The code of a fallback activity, which also gets the scheduled name.
pub(crate) fn activity<F, Fut, I, O, E>(code: F) -> Arc<dyn ActivityHandler>
where
    F: Fn(ActivityContext, String, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    E: Serialize + 'static,
{
    Arc::new(move |ctx: ActivityContext, input: Payload| -> ActivityFutureBox {
        let name = ctx.task.name.clone();
        match decode::<I>(input) {
            Ok(input) => Box::pin(on_payloads(code(ctx, name, input))),
            Err(error) => Box::pin(std::future::ready(Err(bad_input(&error)))),
        }
    })
}

/// The code of a fallback orchestration, which also gets the started name.
pub(crate) fn orchestration<F, Fut, I, O, E>(code: F) -> Arc<dyn OrchestrationHandler>
where
    F: Fn(OrchestrationContext, String, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    E: Serialize + 'static,
{
    let run = move |ctx: perennial_core::OrchestrationContext, input: Payload| -> Boxed {
        let name = ctx.info().name;
        match decode::<I>(input) {
            Ok(input) => Box::pin(on_payloads(code(OrchestrationContext::new(ctx), name, input))),
            Err(mismatch) => ctx.refuse_payload(&mismatch),
        }
    };
    let check = |input| decode::<I>(input).map(drop);
    Arc::new(TypedOrchestration { run, check, log_target: log_target::<F>() })
}
