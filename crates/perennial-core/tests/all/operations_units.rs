//! Units beside the root, limits of time and shields: who goes on, and who is cancelled (E22).

use std::time::Duration;

use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Drive;
use serde_json::json;

#[test]
fn e22_a_spawned_unit_is_dropped_with_its_handle_unless_detached() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let unit = |name: &'static str| {
                let ctx = ctx.clone();
                async move {
                    ctx.schedule_activity(name, ()).await.unwrap();
                    ctx.set_status(name);
                }
            };
            let dropped = ctx.spawn(unit("Dropped"));
            ctx.spawn(unit("Detached")).detach();
            ctx.schedule_wait("go").await;
            drop(dropped);
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.evict().raise("go", ()).evict().complete(4, ()).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ExternalSubscribed "go""#,
            r#"3 ActivityScheduled "Dropped" null in p0"#,
            r#"4 ActivityScheduled "Detached" null in p1"#,
            r#"5 ExternalEvent "go" null"#,
            r#"6 ExternalSubscribed "end""#,
            "7 ActivityCancelRequested of 3",
            "8 ActivityCompleted of 4 null",
            r#"9 StatusSet "Detached" in p1"#,
        ]
    );
}

#[test]
fn e22_a_timeout_cancels_what_took_too_long_or_the_limit_itself() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let from = ctx.clone();
        let work = async move { from.schedule_activity("Work", ()).await.unwrap() };
        let outcome = ctx.timeout(Duration::from_secs(1), work).await;
        ctx.set_status(format!("{outcome:?}"));
        Ok(ctx.schedule_wait("end").await)
    };
    // The block runs when it is polled, so its activity comes after the limit.
    let mut missed = Drive::start(handler, ());
    missed.evict().fire(2).evict();
    assert_eq!(
        missed.lines()[1..],
        [
            "2 TimerCreated due 2000",
            r#"3 ActivityScheduled "Work" null"#,
            "4 TimerFired of 2",
            r#"5 StatusSet "Err(Elapsed)""#,
            r#"6 ExternalSubscribed "end""#,
            "7 ActivityCancelRequested of 3",
        ]
    );
    let mut met = Drive::start(handler, ());
    met.evict().complete(3, 1.to_string()).evict();
    assert_eq!(
        met.last_lines(),
        [
            r#"4 ActivityCompleted of 3 "1""#,
            r#"5 StatusSet "Ok(\"1\")""#,
            r#"6 ExternalSubscribed "end""#,
            "7 TimerCancelled of 2",
        ]
    );
}

#[test]
fn e22_a_shielded_future_goes_on_when_its_shield_is_dropped() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let from = ctx.clone();
            let save = ctx.shield(async move {
                from.schedule_activity("Save", ()).await.unwrap();
                from.schedule_activity("Sync", ()).await.unwrap();
            });
            let outcome = ctx.timeout(Duration::from_secs(1), save).await;
            ctx.set_status(format!("{outcome:?}"));
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.evict().fire(2).evict().complete(3, ()).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            "2 TimerCreated due 2000",
            r#"3 ActivityScheduled "Save" null in p0"#,
            "4 TimerFired of 2",
            r#"5 StatusSet "Err(Elapsed)""#,
            r#"6 ExternalSubscribed "end""#,
            "7 ActivityCompleted of 3 null",
            r#"8 ActivityScheduled "Sync" null in p0"#,
        ]
    );
    // It is a unit like any other: the end of the root is its end.
    drive.raise("end", ()).evict();
    assert_eq!(drive.last_lines()[1], "10 OrchestrationCompleted null");
}

#[test]
fn e22_a_shield_dropped_in_the_step_that_made_it_keeps_its_operation() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drop(ctx.shield(ctx.schedule_activity("Shielded", ())));
            drop(ctx.spawn(ctx.schedule_activity("Spawned", ())));
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.evict().complete(2, ()).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "Shielded" null"#,
            r#"3 ExternalSubscribed "end""#,
            "4 ActivityCompleted of 2 null",
        ]
    );
}

#[test]
fn e22_a_result_that_is_there_wins_over_a_limit_that_is_reached() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let work = ctx.schedule_activity("Work", ());
            let limited = ctx.timeout(Duration::from_secs(1), work);
            ctx.schedule_wait("go").await;
            Ok(limited.await.unwrap().unwrap())
        },
        (),
    );
    drive.turn([Drive::fired(3), Drive::completed(2, "just late")]).evict().raise("go", ()).evict();
    assert_eq!(drive.last_lines()[1], r#"8 OrchestrationCompleted "just late""#);
}

#[test]
fn e22_units_and_combinators_nest() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let branch = |name: &'static str| {
                let ctx = ctx.clone();
                async move {
                    let leaf = |number: u32| {
                        let ctx = ctx.clone();
                        async move { ctx.schedule_activity(format!("{name}{number}"), ()).await.unwrap() }
                    };
                    let leaves = ctx.parallel([leaf(0), leaf(1)]);
                    let limit = Duration::from_secs(1);
                    ctx.timeout(limit, leaves).await.unwrap_or_default()
                }
            };
            Ok(json!(ctx.parallel([branch("a"), branch("b")]).await).into())
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            "2 TimerCreated due 2000 in p0",
            "3 TimerCreated due 2000 in p1",
            r#"4 ActivityScheduled "a0" null in p0.p0"#,
            r#"5 ActivityScheduled "a1" null in p0.p1"#,
            r#"6 ActivityScheduled "b0" null in p1.p0"#,
            r#"7 ActivityScheduled "b1" null in p1.p1"#,
        ]
    );
    drive.turn([Drive::completed(7, "b1"), Drive::completed(4, "a0")]).evict();
    drive.turn([Drive::fired(2), Drive::completed(6, "b0")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            "10 TimerFired of 2",
            r#"11 ActivityCompleted of 6 "b0""#,
            "12 ActivityCancelRequested of 5 in p0",
            "13 TimerCancelled of 3 in p1",
            r#"14 OrchestrationCompleted [[],["b0","b1"]]"#,
        ]
    );
}
