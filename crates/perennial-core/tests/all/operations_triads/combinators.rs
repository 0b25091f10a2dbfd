//! Combinators and units: each waits for more than one thing, and is replayed in between.

use std::time::Duration;

use perennial_core::{Either, Either3, OrchestrationContext, Payload};
use perennial_testkit::Drive;
use serde_json::json;

use super::triad;

const TWO_ACTIVITIES: [&str; 2] = [r#"2 ActivityScheduled "A" null"#, r#"3 ActivityScheduled "B" null"#];

#[test]
fn e22_triad_of_spawn() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let from = ctx.clone();
            let unit = ctx.spawn(async move { from.schedule_activity("A", ()).await.unwrap() });
            Ok(unit.await)
        },
        &[r#"2 ActivityScheduled "A" null in p0"#],
        [Drive::completed(2, "a")],
        &[r#"3 ActivityCompleted of 2 "a""#, r#"4 OrchestrationCompleted "a""#],
    );
}

#[test]
fn e22_triad_of_parallel() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let branch = |name: &'static str| {
                let ctx = ctx.clone();
                async move { ctx.schedule_activity(name, ()).await.unwrap() }
            };
            let results = ctx.parallel([branch("A"), branch("B")]).await;
            Ok(json!(results).into())
        },
        &[r#"2 ActivityScheduled "A" null in p0"#, r#"3 ActivityScheduled "B" null in p1"#],
        [Drive::completed(3, "b"), Drive::completed(2, "a")],
        &[
            r#"4 ActivityCompleted of 3 "b""#,
            r#"5 ActivityCompleted of 2 "a""#,
            r#"6 OrchestrationCompleted ["a","b"]"#,
        ],
    );
}

#[test]
fn e22_triad_of_a_timeout_that_is_met() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let work = ctx.schedule_activity("A", ());
            Ok(ctx.timeout(Duration::from_secs(9), work).await.unwrap().unwrap())
        },
        &[r#"2 ActivityScheduled "A" null"#, "3 TimerCreated due 10000"],
        [Drive::completed(2, "a")],
        &[r#"4 ActivityCompleted of 2 "a""#, r#"5 OrchestrationCompleted "a""#],
    );
}

#[test]
fn e22_triad_of_a_timeout_that_is_missed() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let work = ctx.schedule_activity("A", ());
            let elapsed = ctx.timeout(Duration::from_secs(9), work).await.unwrap_err();
            Err(elapsed.to_string().into())
        },
        &[r#"2 ActivityScheduled "A" null"#, "3 TimerCreated due 10000"],
        [Drive::fired(3)],
        &[
            "4 TimerFired of 3",
            r#"5 OrchestrationFailed "PER-0417 time limit elapsed: the future did not complete i…"#,
        ],
    );
}

#[test]
fn e22_triad_of_a_shield() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let from = ctx.clone();
            let shield = ctx.shield(async move { from.schedule_activity("A", ()).await.unwrap() });
            Ok(shield.await)
        },
        &[r#"2 ActivityScheduled "A" null in p0"#],
        [Drive::completed(2, "a")],
        &[r#"3 ActivityCompleted of 2 "a""#, r#"4 OrchestrationCompleted "a""#],
    );
}

#[test]
fn e22_triad_of_joins() {
    let completions = [Drive::completed(3, "b"), Drive::completed(2, "a")];
    let completed = [
        r#"4 ActivityCompleted of 3 "b""#,
        r#"5 ActivityCompleted of 2 "a""#,
        r#"6 OrchestrationCompleted ["a","b"]"#,
    ];
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let both = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            let both: Result<Vec<Payload>, _> = ctx.join(both).await.into_iter().collect();
            Ok(json!(both.unwrap()).into())
        },
        &TWO_ACTIVITIES,
        completions.clone(),
        &completed,
    );
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let both = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            Ok(json!(ctx.try_join(both).await.unwrap()).into())
        },
        &TWO_ACTIVITIES,
        completions.clone(),
        &completed,
    );
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b] = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            let (a, b) = ctx.join2(a, b).await;
            Ok(json!([a.unwrap(), b.unwrap()]).into())
        },
        &TWO_ACTIVITIES,
        completions.clone(),
        &completed,
    );
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b] = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            let (a, b, ()) = ctx.join3(a, b, std::future::ready(())).await;
            Ok(json!([a.unwrap(), b.unwrap()]).into())
        },
        &TWO_ACTIVITIES,
        completions,
        &completed,
    );
}

#[test]
fn e22_triad_of_selects() {
    let answer = [Drive::completed(3, "b")];
    let completed = [r#"4 ActivityCompleted of 3 "b""#, r#"5 OrchestrationCompleted "b""#];
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b] = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            match ctx.select2(a, b).await {
                Either::Second(b) => Ok(b.unwrap()),
                Either::First(a) => panic!("{a:?}"),
            }
        },
        &TWO_ACTIVITIES,
        answer.clone(),
        &completed,
    );
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b] = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            match ctx.select3(a, ctx.cancelled(), b).await {
                Either3::Third(b) => Ok(b.unwrap()),
                other => panic!("{other:?}"),
            }
        },
        &TWO_ACTIVITIES,
        answer.clone(),
        &completed,
    );
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let both = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            let (index, won) = ctx.select(both).await;
            assert_eq!(index, 1);
            Ok(won.unwrap())
        },
        &TWO_ACTIVITIES,
        answer.clone(),
        &completed,
    );
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let both = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            Ok(ctx.race(both).await.unwrap())
        },
        &TWO_ACTIVITIES,
        answer,
        &completed,
    );
}
