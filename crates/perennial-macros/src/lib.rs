//! `#[orchestration]` and `#[activity]`: the attributes that make a function durable.
//!
//! The function can still be called as before; it still returns a future, which now also contains the name (and
//! version) under which it is registered. No other item is generated.

mod arguments;
mod function;

use proc_macro::TokenStream;

/// Turns an `async fn` into an orchestration.
///
/// The first argument is the context. Up to four further arguments, and the returned `Result`, are recorded
/// as JSON. `version` is a semantic version, by default `1.0.0`; `name` is by default the name of the
/// function. The generated code refers to `::perennial`: if your program has the crate under another name,
/// write `extern crate other_name as perennial;` once.
///
/// `uses(charge, ship)` declares activities and orchestrations that the code schedules, by function or, in
/// double quotes, by name. A runtime in which one of them is not registered does not start. The list need not
/// be complete, and does not restrict what the code may schedule.
///
/// ```ignore
/// #[orchestration(version = "1.2.0", uses(charge))]
/// async fn checkout(ctx: OrchestrationContext, order: Order) -> Result<Receipt, CheckoutError> {
///     Ok(ctx.schedule_activity(charge, order).await?)
/// }
/// ```
#[proc_macro_attribute]
pub fn orchestration(arguments: TokenStream, item: TokenStream) -> TokenStream {
    function::expand(function::Kind::Orchestration, arguments.into(), item.into())
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Turns a function into an activity: an `async fn`, or a plain function that blocks its thread.
///
/// The first argument is the context. The other arguments and the result are recorded as JSON. These options
/// apply unless the caller overrides them: `retry = 5` (attempts, with doubling pauses), `timeout = "30s"`
/// (one attempt), `total_timeout`, `queue_timeout`, `heartbeat_timeout`, `tag = "gpu"`. With `error =
/// "message"`, an error that cannot be written as JSON is recorded as its message.
///
/// `state(Pool, Mailer)` declares the types of shared state that the function reads with
/// `ctx.state::<Pool>()`. A runtime in which one of them is missing does not start.
///
/// ```ignore
/// #[activity(retry = 5, timeout = "30s", state(Payments))]
/// async fn charge(ctx: ActivityContext, order: Order) -> Result<Receipt, PaymentError> {
///     ctx.state::<Payments>().charge(order, ctx.idempotency_key()).await
/// }
/// ```
#[proc_macro_attribute]
pub fn activity(arguments: TokenStream, item: TokenStream) -> TokenStream {
    function::expand(function::Kind::Activity, arguments.into(), item.into())
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
