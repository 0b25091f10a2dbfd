//! `#[orchestration]` and `#[activity]`: the attributes that make a function durable.
//!
//! The function can still be called as before; it still returns a future, which now also contains the name (and
//! version) under which it is registered. No other item is generated.

mod arguments;
mod function;

use proc_macro::TokenStream;

/// Turns an `async fn` into an orchestration.
///
/// Its first argument is the context; up to four others, and what it returns (a `Result`), are written as JSON. `version`
/// is a semver and `1.0.0` if not given; `name` is the function's own if not given. The code that this makes says
/// `::perennial`: if your program has the crate under another name, write `extern crate other_name as perennial;` once.
///
/// `uses(charge, ship)` names activities and orchestrations that the code schedules, by their functions or, in double
/// quotes, by their names. A runtime in which one of them is not registered does not start. It need not be complete, and
/// has no influence on what the code may schedule.
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
/// Its first argument is the context; the others, and what it returns, are written as JSON. How it is run where
/// nothing else is said can be given: `retry = 5` (attempts, with doubling pauses), `timeout = "30s"` (one attempt),
/// `total_timeout`, `queue_timeout`, `heartbeat_timeout`, `tag = "gpu"`. With `error = "message"` an error that cannot
/// be written as JSON comes back as its message.
///
/// `state(Pool, Mailer)` names the types of shared state that the function reads with `ctx.state::<Pool>()`. A runtime
/// that was not given one of them does not start.
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
