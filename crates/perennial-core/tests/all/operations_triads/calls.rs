//! Operations of the outside world: activities, timers, events, other instances, recorded values.

use std::time::Duration;

use perennial_core::{ActivityError, ChildError, ChildFuture, EventId, Job, OrchestrationContext, Payload};
use perennial_testkit::Drive;
use serde_json::json;

use super::triad;

/// A triad of calls that need no answer. An activity that follows keeps the execution waiting.
fn triad_of_a_call(call: fn(&OrchestrationContext), line: &str) -> Drive {
    triad(
        move |ctx: OrchestrationContext, _: Payload| async move {
            call(&ctx);
            Ok(ctx.schedule_activity("Next", ()).await.unwrap())
        },
        &[line, r#"3 ActivityScheduled "Next" null"#],
        [Drive::completed(3, "done")],
        &[r#"4 ActivityCompleted of 3 "done""#, r#"5 OrchestrationCompleted "done""#],
    )
}

/// A triad of one of the ways to schedule a child.
fn triad_of_a_child(schedule: fn(&OrchestrationContext) -> ChildFuture, line: &str) {
    triad(
        move |ctx: OrchestrationContext, _: Payload| async move { Ok(schedule(&ctx).await.unwrap()) },
        &[line],
        [Drive::child_completed(2, "grown")],
        &[r#"3 SubOrchestrationCompleted of 2 "grown""#, r#"4 OrchestrationCompleted "grown""#],
    );
}

#[test]
fn e13_triad_of_an_activity() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            Ok(ctx.schedule_activity("Greet", "Ada").await.unwrap())
        },
        &[r#"2 ActivityScheduled "Greet" "Ada""#],
        [Drive::completed(2, "Hello, Ada!")],
        &[r#"3 ActivityCompleted of 2 "Hello, Ada!""#, r#"4 OrchestrationCompleted "Hello, Ada!""#],
    );
}

#[test]
fn e13_triad_of_an_activity_that_fails() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            match ctx.schedule_activity("Greet", "Ada").await {
                Err(ActivityError::Application(error)) => Err(error),
                other => panic!("{other:?}"),
            }
        },
        &[r#"2 ActivityScheduled "Greet" "Ada""#],
        [Drive::failed(2, "no voice")],
        &[r#"3 ActivityFailed of 2 "no voice""#, r#"4 OrchestrationFailed "no voice""#],
    );
}

#[test]
fn e13_triad_of_a_timer() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_timer(Duration::from_secs(5)).await;
            Ok(Payload::encode(&ctx.now().as_millis()).unwrap())
        },
        &["2 TimerCreated due 6000"],
        [Drive::fired(2)],
        &["3 TimerFired of 2", "4 OrchestrationCompleted 6000"],
    );
}

#[test]
fn e13_triad_of_a_wait() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move { Ok(ctx.schedule_wait("approval").await) },
        &[r#"2 ExternalSubscribed "approval""#],
        [Drive::event("approval", "granted")],
        &[r#"3 ExternalEvent "approval" "granted""#, r#"4 OrchestrationCompleted "granted""#],
    );
}

#[test]
fn e16_triad_of_a_wait_for_an_event_that_came_early() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_activity("First", ()).await.unwrap();
            Ok(ctx.schedule_wait("approval").await)
        },
        &[r#"2 ActivityScheduled "First" null"#],
        [Drive::event("approval", "granted"), Drive::completed(2, ())],
        &[
            r#"3 ExternalEvent "approval" "granted""#,
            "4 ActivityCompleted of 2 null",
            r#"5 ExternalSubscribed "approval""#,
            r#"6 OrchestrationCompleted "granted""#,
        ],
    );
}

#[test]
fn e13_triad_of_a_child() {
    triad_of_a_child(
        |ctx| ctx.schedule_sub_orchestration("Seedling", "soil"),
        r#"2 SubOrchestrationScheduled "Seedling" latest as derived id "soil""#,
    );
}

#[test]
fn e13_triad_of_a_child_with_an_id() {
    triad_of_a_child(
        |ctx| ctx.schedule_sub_orchestration_with_id("Seedling", "pot-1", "soil"),
        r#"2 SubOrchestrationScheduled "Seedling" latest as "pot-1" "soil""#,
    );
}

#[test]
fn e13_triad_of_a_child_at_a_version() {
    triad_of_a_child(
        |ctx| ctx.schedule_sub_orchestration_versioned("Seedling", "2.0.0", "soil"),
        r#"2 SubOrchestrationScheduled "Seedling" 2.0.0 as derived id "soil""#,
    );
}

#[test]
fn e13_triad_of_a_child_with_an_id_at_a_version() {
    triad_of_a_child(
        |ctx| ctx.schedule_sub_orchestration_with_id_versioned("Seedling", "2.0.0", "pot-1", "soil"),
        r#"2 SubOrchestrationScheduled "Seedling" 2.0.0 as "pot-1" "soil""#,
    );
}

#[test]
fn e13_triad_of_a_child_that_fails() {
    let failed = Job::SubOrchestrationFailed {
        source_event_id: EventId(2),
        error: ChildError::Application("frost".into()),
    };
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            match ctx.schedule_sub_orchestration("Seedling", "soil").await {
                Err(ChildError::Application(error)) => Err(error),
                other => panic!("{other:?}"),
            }
        },
        &[r#"2 SubOrchestrationScheduled "Seedling" latest as derived id "soil""#],
        [failed],
        &[r#"3 SubOrchestrationFailed of 2 "frost""#, r#"4 OrchestrationFailed "frost""#],
    );
}

#[test]
fn e13_triad_of_a_detached_start() {
    triad_of_a_call(
        |ctx| drop(ctx.schedule_orchestration("Other", "other-1", "in")),
        r#"2 OrchestrationChained "Other" latest as "other-1" "in""#,
    );
}

#[test]
fn e13_triad_of_a_detached_start_at_a_version() {
    triad_of_a_call(
        |ctx| drop(ctx.schedule_orchestration_versioned("Other", "3.1.0", "other-1", "in")),
        r#"2 OrchestrationChained "Other" 3.1.0 as "other-1" "in""#,
    );
}

#[test]
fn e13_triad_of_an_event_to_another_instance() {
    triad_of_a_call(
        |ctx| drop(ctx.raise_event("other-1", "ping", "hello")),
        r#"2 ExternalEventSent "ping" to "other-1" "hello""#,
    );
}

#[test]
fn e13_triad_of_a_status() {
    let mut drive = triad_of_a_call(|ctx| ctx.set_status("growing"), r#"2 StatusSet "growing""#);
    let status = drive.execution().ledger().status().cloned();
    assert_eq!(status, Some(Payload::from("growing")));
}

#[test]
fn e13_triad_of_attributes() {
    let mut drive = triad_of_a_call(
        |ctx| ctx.upsert_attributes([("height", json!(3)), ("bed", json!("north"))]),
        r#"2 AttributesUpserted bed="north", height=3"#,
    );
    let attributes = drive.execution().ledger().attributes().clone();
    assert_eq!(
        attributes.into_iter().collect::<Vec<_>>(),
        [("bed".to_owned(), Payload::from("north")), ("height".to_owned(), Payload::from(json!(3))),]
    );
}

/// A triad of a recorded value, taken in the first turn and published in the next.
fn triad_of_a_value<F>(take: fn(OrchestrationContext) -> F, line: &str, value: &str)
where
    F: Future<Output = Payload> + Send + 'static,
{
    triad(
        move |ctx: OrchestrationContext, _: Payload| async move {
            let value = take(ctx.clone()).await;
            ctx.schedule_timer(Duration::from_secs(1)).await;
            Ok(value)
        },
        &[line, "3 TimerCreated due 2000"],
        [Drive::fired(3)],
        &["4 TimerFired of 3", &format!("5 OrchestrationCompleted {value}")],
    );
}

#[test]
fn e17_triad_of_utc_now() {
    triad_of_a_value(
        |ctx| async move { Payload::encode(&ctx.utc_now().await).unwrap() },
        r#"2 SystemCall "utc_now""#,
        "1000",
    );
}

#[test]
fn e17_triad_of_new_guid() {
    triad_of_a_value(
        |ctx| async move { ctx.new_guid().await.into() },
        r#"2 SystemCall "new_guid""#,
        r#""a4e6579f-d9ba-4f6d-94e9-a1cc21726518""#,
    );
}

#[test]
fn e17_triad_of_a_side_effect() {
    triad_of_a_value(
        |ctx| async move { ctx.side_effect("coin", || "heads".to_owned()).await.into() },
        r#"2 SystemCall "side_effect:coin""#,
        r#""heads""#,
    );
}

#[test]
fn e20_triad_of_a_patch() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let name = if ctx.patched("taller") { "New" } else { "Old" };
            Ok(ctx.schedule_activity(name, ()).await.unwrap())
        },
        &[r#"2 PatchMarked "taller""#, r#"3 ActivityScheduled "New" null"#],
        [Drive::completed(3, "done")],
        &[r#"4 ActivityCompleted of 3 "done""#, r#"5 OrchestrationCompleted "done""#],
    );
}
