//! Activities that are completed later, with their token.

use std::future::Future;
use std::sync::Arc;

use perennial_core::ErrorCode;
use perennial_core::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::Recordable;
use super::register::encode;
use crate::runtime::HeartbeatMonitor;

/// The return type of an activity whose result may be reported later, by another process.
///
/// The attempt passes on [its token](crate::ActivityContext::completion_token) and returns
/// [`Later::Pending`]. From then on it uses no worker and no memory; it survives restarts, and its timeouts
/// and retries apply. The holder of the token reports the result, from any process: with
/// [`Client::complete_activity`](crate::Client::complete_activity) and related methods, or with `perennial
/// activity complete TOKEN --result JSON`.
///
/// ```
/// use perennial::prelude::*;
///
/// #[activity]
/// async fn approval(ctx: ActivityContext, order: u32) -> Result<Later<bool>, String> {
///     let link = format!("https://shop.example/approve/{order}?token={}", ctx.completion_token());
///     # let client = ctx.client().clone();
///     # let token = ctx.completion_token();
///     # tokio::spawn(async move { client.complete_activity(&token, true).await });
///     println!("please approve: {link}");
///     Ok(Later::Pending)
/// }
///
/// #[orchestration]
/// async fn order(ctx: OrchestrationContext, order: u32) -> Result<String, String> {
///     let approved = ctx.schedule_activity(approval, order).timeout(Duration::from_secs(86_400)).await?;
///     Ok(if approved { "sent" } else { "declined" }.to_owned())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> perennial::Result<()> {
/// # let runtime = Runtime::open("memory:").register(order).register(approval).start().await?;
/// let run = runtime.client().start(order, "order-7", 7).await?;
/// assert_eq!(run.result().await?, "sent");
/// # runtime.shutdown().await
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later<T> {
    /// The result is available now.
    Now(T),
    /// The holder of the token reports the result.
    Pending,
}

/// Maps the return type of an activity to the value that its caller awaits: `T` for `T` and for
/// [`Later<T>`](Later).
pub trait Awaited {
    /// The type that the orchestration gets.
    type Value: DeserializeOwned;
    /// Whether the result may be reported later.
    const COMPLETES_LATER: bool;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Awaited for T {
    type Value = T;
    const COMPLETES_LATER: bool = false;
}

impl<T: DeserializeOwned> Awaited for Later<T> {
    type Value = T;
    const COMPLETES_LATER: bool = true;
}

/// Return types of activities: serialisable types, and [`Later`] of them.
pub trait ActivityReturn {
    /// The result, or `None` if it is reported later.
    #[doc(hidden)]
    fn into_result(self) -> Option<Result<Payload, serde_json::Error>>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + 'static> ActivityReturn for T {
    fn into_result(self) -> Option<Result<Payload, serde_json::Error>> {
        Some(encode(&self))
    }
}

impl<T: Serialize + 'static> ActivityReturn for Later<T> {
    fn into_result(self) -> Option<Result<Payload, serde_json::Error>> {
        match self {
            Later::Now(value) => Some(encode(&value)),
            Later::Pending => None,
        }
    }
}

/// Types that a marked activity can return and its caller can await.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written into a history",
    label = "not serialisable",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it",
    note = "for an error type of another crate, `#[activity(error = \"message\")]` records its message"
)]
pub trait RecordableResult {}

#[diagnostic::do_not_recommend]
impl<T: Recordable> RecordableResult for T {}

#[diagnostic::do_not_recommend]
impl<T: Recordable> RecordableResult for Later<T> {}

/// Compiles if an activity can return the type.
#[doc(hidden)]
pub fn assert_recordable_result<T: RecordableResult>() {}

/// Runs the typed code of an activity on payloads. A pending result is noted with the attempt.
pub(super) async fn activity_on_payloads<O: ActivityReturn, E: Serialize + 'static>(
    heartbeats: Arc<HeartbeatMonitor>,
    outcome: impl Future<Output = Result<O, E>>,
) -> Result<Payload, Payload> {
    let unwritable = |error: serde_json::Error| {
        Payload::from(
            ErrorCode::UnwritableResult
                .message(format_args!("what was returned cannot be written as JSON: {error}")),
        )
    };
    match outcome.await {
        Ok(output) => match output.into_result() {
            Some(result) => result.map_err(unwritable),
            None => {
                heartbeats.leave_open();
                Ok(Payload::null())
            }
        },
        Err(error) => Err(encode(&error).unwrap_or_else(unwritable)),
    }
}
