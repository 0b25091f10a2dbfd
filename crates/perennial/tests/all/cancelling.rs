//! Cancellation with reasons and outputs, children with options, and delivery reports, on both stores and
//! over restarts (E29–E33, G35–G38).

use perennial::RuntimeBuilder;
use perennial::history::Ending;
use perennial::prelude::*;
use perennial_testkit::invariants::ClientLog;

use crate::support::soon;
use crate::support::stage::{Stage, on_each_stage};
use crate::support::until;

const CLEANED: ExternalEvent<String> = ExternalEvent::named("cleaned");
const GO: ExternalEvent<String> = ExternalEvent::named("go");

/// Waits to be cancelled, then for a clean-up, and ends as cancelled.
#[orchestration]
async fn tidy(ctx: OrchestrationContext) -> Result<String, String> {
    let reason = ctx.cancelled().await;
    ctx.set_status(format!("cleaning up: {reason}"));
    let cleaned = ctx.schedule_wait(CLEANED).await;
    ctx.end_cancelled((cleaned, reason)).await
}

/// Waits for a payment that a cancel does not interrupt.
#[orchestration]
async fn pays(ctx: OrchestrationContext) -> Result<String, String> {
    let inner = ctx.clone();
    let payment = ctx.uncancellable(async move { inner.schedule_wait(CLEANED).await });
    ctx.set_status("paying");
    ctx.select2(payment, ctx.schedule_wait(GO)).await;
    Ok("paid".to_owned())
}

/// Tells its orchestration that it began, runs until it is told to stop, and says how far it got.
#[activity]
async fn half(ctx: ActivityContext) -> Result<String, String> {
    ctx.client().raise_event(ctx.instance(), GO, String::new()).await.map_err(|error| error.to_string())?;
    ctx.cancelled().await;
    Ok("half".to_owned())
}

/// Stops an activity once it has begun, and waits for it.
#[orchestration]
async fn stops(ctx: OrchestrationContext) -> Result<String, String> {
    let mut work = ctx.schedule_activity(half, ());
    ctx.select2(&mut work, ctx.schedule_wait(GO)).await;
    work.cancel();
    Ok(work.await?)
}

/// Fails until it is given "ok".
#[orchestration]
async fn picky(ctx: OrchestrationContext) -> Result<String, String> {
    let given = ctx.schedule_wait(GO).await;
    if given == "ok" { Ok(given) } else { Err(given) }
}

/// A child under an id of its own, with retries.
#[orchestration]
async fn parent(ctx: OrchestrationContext) -> Result<String, String> {
    let child = ctx.schedule_sub_orchestration_with_id(picky, "child", ());
    Ok(child
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(5))
        .on_existing(OnTakenId::TerminateAndReplace)
        .await?)
}

/// A child whose start is waited for.
#[orchestration]
async fn hears_start(ctx: OrchestrationContext, id: String) -> Result<String, String> {
    let mut child = ctx.schedule_sub_orchestration_with_id(picky, id, ());
    child.started().await?;
    ctx.set_status("started");
    Ok(child.await?)
}

/// Sends an event, a start and a cancel, and returns the delivery of each.
#[orchestration]
async fn sends(ctx: OrchestrationContext, to: String) -> Result<(Delivery, Delivery, Delivery), String> {
    let raised = ctx.raise_event(&to, GO, "ok".to_owned()).delivered();
    let started = ctx.schedule_orchestration(tidy, "sent", ()).delivered();
    let cancelled = ctx.cancel_orchestration("sent", "not needed").grace(Duration::ZERO).delivered();
    Ok(ctx.join3(raised, started, cancelled).await)
}

fn all(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .register(tidy)
        .register(pays)
        .register(stops)
        .register(half)
        .register(picky)
        .register(parent)
        .register(hears_start)
        .register(sends)
}

async fn restarted(stage: &Stage, runtime: Runtime) -> Runtime {
    runtime.shutdown().await.unwrap();
    all(stage.runtime()).start().await.unwrap()
}

#[tokio::test]
async fn e29_a_cancelled_instance_tells_why_and_what_it_left_behind() {
    on_each_stage(async |stage| {
        let runtime = all(stage.runtime()).start().await.unwrap();
        let run = runtime.client().start(tidy, "t", ()).await.unwrap();
        runtime.client().cancel("t", "wrong file").grace(Duration::from_secs(3_600)).await.unwrap();
        until(&runtime.client(), "t", |status| status.published.is_some()).await;
        let runtime = restarted(stage, runtime).await;
        runtime.client().raise_event("t", CLEANED, "all".to_owned()).await.unwrap();
        let error = soon(runtime.client().run(tidy, "t").result()).await.unwrap_err();
        let RunError::Cancelled { id, reason, output } = error else { panic!("{error:?}") };
        assert_eq!((id.as_str(), reason.as_str()), ("t", "wrong file"));
        let output: (String, String) = output.unwrap().decode().unwrap();
        assert_eq!(output, ("all".to_owned(), "wrong file".to_owned()));
        assert_eq!(runtime.client().status("t").await.unwrap().status, Status::Cancelled);
        let OrchestrationError::Cancelled { output, .. } = (match runtime.client().result("t").await {
            Err(Error::Orchestration(error)) => error,
            other => panic!("{other:?}"),
        }) else {
            panic!("it was cancelled")
        };
        assert!(output.is_some());
        drop(run);
        stage.finish(runtime, &ClientLog::default(), all).await;
    })
    .await;
}

#[tokio::test]
async fn g35_a_grace_that_is_over_ends_what_does_not_end_by_itself() {
    on_each_stage(async |stage| {
        let runtime = all(stage.runtime()).start().await.unwrap();
        let client = stage.guest().unwrap_or_else(|| runtime.client());
        runtime.client().start(tidy, "t", ()).await.unwrap();
        client.cancel("t", "enough").grace(Duration::from_millis(20)).await.unwrap();
        let ending = soon(runtime.client().wait("t")).await.unwrap();
        assert!(
            matches!(&ending, Ending::OrchestrationTerminated { reason } if reason.ends_with("enough")),
            "{ending:?}"
        );
        stage.finish(runtime, &ClientLog::default(), all).await;
    })
    .await;
}

#[tokio::test]
async fn e30_what_is_exempt_from_a_cancel_ends_first_over_a_restart() {
    on_each_stage(async |stage| {
        let runtime = all(stage.runtime()).start().await.unwrap();
        runtime.client().start(pays, "p", ()).await.unwrap();
        until(&runtime.client(), "p", |status| status.published.is_some()).await;
        runtime.client().cancel("p", "enough").await.unwrap();
        let runtime = restarted(stage, runtime).await;
        assert_eq!(runtime.client().status("p").await.unwrap().status, Status::Running);
        runtime.client().raise_event("p", CLEANED, String::new()).await.unwrap();
        let ending = soon(runtime.client().wait("p")).await.unwrap();
        assert_eq!(ending, Ending::OrchestrationCancelled { reason: "enough".to_owned(), output: None });
        stage.finish(runtime, &ClientLog::default(), all).await;
    })
    .await;
}

#[tokio::test]
async fn g38_a_stopped_activity_returns_its_own_last_result() {
    on_each_stage(async |stage| {
        let runtime = all(stage.runtime()).start().await.unwrap();
        let run = runtime.client().start(stops, "s", ()).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), "half");
        stage.finish(runtime, &ClientLog::default(), all).await;
    })
    .await;
}

#[tokio::test]
async fn g36_a_named_child_is_tried_again_and_takes_the_id_of_another() {
    on_each_stage(async |stage| {
        let runtime = all(stage.runtime()).start().await.unwrap();
        let client = runtime.client();
        client.start(picky, "child", ()).await.unwrap();
        let other = client.status("child").await.unwrap().key;
        client.start(parent, "p", ()).await.unwrap();
        let first =
            until(&client, "child", |status| status.key != other && status.status == Status::Running).await;
        client.raise_event("child", GO, "no".to_owned()).await.unwrap();
        let runtime = restarted(stage, runtime).await;
        let client = runtime.client();
        until(&client, "child", |status| status.key != first.key && status.status == Status::Running).await;
        client.raise_event("child", GO, "ok".to_owned()).await.unwrap();
        assert_eq!(soon(client.run(parent, "p").result()).await.unwrap(), "ok");
        stage.finish(runtime, &ClientLog::default(), all).await;
    })
    .await;
}

#[tokio::test]
async fn g36_the_start_of_a_child_is_heard_before_its_end() {
    on_each_stage(async |stage| {
        let runtime = all(stage.runtime()).start().await.unwrap();
        let client = runtime.client();
        client.start(hears_start, "p", "child".to_owned()).await.unwrap();
        until(&client, "p", |status| status.published.is_some()).await;
        assert!(client.status("child").await.is_ok());
        let taken = client.start(hears_start, "q", "child".to_owned()).await.unwrap();
        let error = soon(taken.result()).await.unwrap_err();
        assert!(error.to_string().contains("PER-0306"), "{error}");
        let runtime = restarted(stage, runtime).await;
        runtime.client().raise_event("child", GO, "ok".to_owned()).await.unwrap();
        assert_eq!(soon(runtime.client().run(hears_start, "p").result()).await.unwrap(), "ok");
        stage.finish(runtime, &ClientLog::default(), all).await;
    })
    .await;
}

#[tokio::test]
async fn g37_code_hears_what_became_of_what_it_sent() {
    on_each_stage(async |stage| {
        let runtime = all(stage.runtime()).start().await.unwrap();
        let client = runtime.client();
        client.start(picky, "target", ()).await.unwrap();
        let first = client.start(sends, "s-1", "target".to_owned()).await.unwrap();
        let all_well = (Delivery::Delivered, Delivery::Delivered, Delivery::Delivered);
        assert_eq!(soon(first.result()).await.unwrap(), all_well);
        soon(client.wait("target")).await.unwrap();
        soon(client.wait("sent")).await.unwrap();
        let runtime = restarted(stage, runtime).await;
        let client = runtime.client();
        let second = client.start(sends, "s-2", "target".to_owned()).await.unwrap();
        let too_late = (Delivery::Ended, Delivery::AlreadyExists, Delivery::Ended);
        assert_eq!(soon(second.result()).await.unwrap(), too_late);
        let third = client.start(sends, "s-3", "nobody".to_owned()).await.unwrap();
        assert_eq!(soon(third.result()).await.unwrap().0, Delivery::NotFound);
        stage.finish(runtime, &ClientLog::default(), all).await;
    })
    .await;
}
