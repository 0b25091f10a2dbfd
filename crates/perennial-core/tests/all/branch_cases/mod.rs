//! Branches that say when they go on, for the tests of waves and of who gets a result.

use std::task::Poll;

use futures::future::BoxFuture;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Drive;

/// What the orchestrations of these tests return.
pub(crate) type Output = Result<Payload, Payload>;

/// Waits for the event that ends the orchestration.
pub(crate) async fn until_the_end(ctx: &OrchestrationContext) -> Output {
    ctx.schedule_wait("end").await;
    Ok("ended".into())
}

/// Gives the rest of the round to the others.
pub(crate) async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A branch that runs an activity and then says so, twice, a round apart.
pub(crate) fn task(ctx: &OrchestrationContext, name: &'static str) -> BoxFuture<'static, ()> {
    let ctx = ctx.clone();
    Box::pin(async move {
        let _ = ctx.schedule_activity(name, "").await;
        ctx.set_status(format!("{name} resumes"));
        yield_once().await;
        ctx.set_status(format!("{name} goes on"));
    })
}

/// The statuses of the last turn, as `text in unit`.
pub(crate) fn said(drive: &Drive) -> Vec<String> {
    drive
        .last_lines()
        .iter()
        .filter_map(|line| line.split_once("StatusSet ").map(|(_, said)| said.replace('"', "")))
        .collect()
}
