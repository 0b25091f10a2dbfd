//! Joins and selects: results in input order, losers cancelled, kept where asked for (E22).

use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, select_biased};
use perennial_core::{ActivityError, ActivityFuture, Either, Either3, OrchestrationContext, Payload};
use perennial_testkit::Drive;
use serde_json::json;

/// Activities A, B, C as events 2, 3, 4.
fn three(ctx: &OrchestrationContext) -> [ActivityFuture; 3] {
    ["A", "B", "C"].map(|name| ctx.schedule_activity(name, ()))
}

fn unwrapped(results: impl IntoIterator<Item = Result<Payload, ActivityError>>) -> Payload {
    let results: Vec<Payload> = results.into_iter().map(Result::unwrap).collect();
    json!(results).into()
}

/// Completes C, A, B, each in a turn of its own with a replay between. Returns the last line.
fn completed_out_of_order(drive: &mut Drive) -> String {
    drive.complete(4, "c").evict().complete(2, "a").evict().complete(3, "b").evict();
    assert_eq!(drive.lines().len(), 8, "nothing but completions and the end");
    drive.lines().pop().unwrap()
}

const IN_INPUT_ORDER: &str = r#"8 OrchestrationCompleted ["a","b","c"]"#;

#[test]
fn e22_joins_give_results_in_input_order() {
    let mut join = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move { Ok(unwrapped(ctx.join(three(&ctx)).await)) },
        (),
    );
    assert_eq!(completed_out_of_order(&mut join), IN_INPUT_ORDER);

    let mut try_join = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            Ok(json!(ctx.try_join(three(&ctx)).await.unwrap()).into())
        },
        (),
    );
    assert_eq!(completed_out_of_order(&mut try_join), IN_INPUT_ORDER);

    let mut nested = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b, c] = three(&ctx);
            let ((a, b), c) = ctx.join2(ctx.join2(a, b), c).await;
            Ok(unwrapped([a, b, c]))
        },
        (),
    );
    assert_eq!(completed_out_of_order(&mut nested), IN_INPUT_ORDER);

    let mut join3 = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b, c] = three(&ctx);
            let (c, a, b) = ctx.join3(c, a, b).await;
            Ok(unwrapped([a, b, c]))
        },
        (),
    );
    assert_eq!(completed_out_of_order(&mut join3), IN_INPUT_ORDER);
}

#[test]
fn e22_parallel_gives_results_in_branch_order() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let results = ctx.parallel(three(&ctx)).await;
            Ok(unwrapped(results))
        },
        (),
    );
    assert_eq!(completed_out_of_order(&mut drive), IN_INPUT_ORDER);
}

#[test]
fn e22_nothing_to_wait_for_is_done_at_once() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let joined = ctx.join(Vec::<ActivityFuture>::new()).await;
            let tried = ctx.try_join(Vec::<ActivityFuture>::new()).await.unwrap();
            let branches = ctx.parallel(Vec::<ActivityFuture>::new()).await;
            Ok(json!([joined.len(), tried.len(), branches.len()]).into())
        },
        (),
    );
    drive.evict();
    assert_eq!(drive.lines()[1..], ["2 OrchestrationCompleted [0,0,0]"]);
}

#[test]
fn e22_try_join_returns_the_first_error_and_cancels_the_rest() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let error = ctx.try_join(three(&ctx)).await.unwrap_err();
            ctx.set_status(format!("{error:?}"));
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.complete(3, "b").evict().turn([Drive::failed(4, "broken")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"6 ActivityFailed of 4 "broken""#,
            r#"7 StatusSet "Application(\"broken\")""#,
            r#"8 ExternalSubscribed "end""#,
            "9 ActivityCancelRequested of 2",
        ]
    );
}

#[test]
fn e22_losers_of_a_select_are_cancelled() {
    let won_by_b = |drive: &mut Drive| {
        drive.evict().complete(3, "b").evict();
        assert_eq!(
            drive.last_lines(),
            [
                r#"5 ActivityCompleted of 3 "b""#,
                r#"6 StatusSet "b""#,
                r#"7 ExternalSubscribed "end""#,
                "8 ActivityCancelRequested of 2",
                "9 ActivityCancelRequested of 4",
            ]
        );
    };
    won_by_b(&mut Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (index, won) = ctx.select(three(&ctx)).await;
            assert_eq!(index, 1);
            ctx.set_status(won.unwrap());
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    ));
    won_by_b(&mut Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let won = ctx.race(three(&ctx)).await;
            ctx.set_status(won.unwrap());
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    ));
    won_by_b(&mut Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b, c] = three(&ctx);
            let Either3::Second(won) = ctx.select3(a, b, c).await else { panic!("b wins") };
            ctx.set_status(won.unwrap());
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    ));
    won_by_b(&mut Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b, c] = three(&ctx);
            let inner = ctx.select2(c, b);
            let Either::Second(Either::Second(won)) = ctx.select2(a, Box::pin(inner)).await else {
                panic!("b wins")
            };
            ctx.set_status(won.unwrap());
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    ));
}

#[test]
fn e22_a_loser_that_was_lent_is_kept() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut slow = ctx.schedule_activity("Slow", ());
            let nudge = ctx.schedule_timer(Duration::from_secs(1));
            if let Either::Second(()) = ctx.select2(&mut slow, nudge).await {
                ctx.set_status("still at it");
            }
            Ok(slow.await.unwrap())
        },
        (),
    );
    drive.fire(3).evict().complete(2, "slow").evict();
    assert_eq!(
        drive.lines()[3..],
        [
            "4 TimerFired of 3",
            r#"5 StatusSet "still at it""#,
            r#"6 ActivityCompleted of 2 "slow""#,
            r#"7 OrchestrationCompleted "slow""#,
        ]
    );
}

#[test]
fn e22_join_all_of_the_futures_crate_works() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            Ok(unwrapped(futures::future::join_all(three(&ctx)).await))
        },
        (),
    );
    assert_eq!(completed_out_of_order(&mut drive), IN_INPUT_ORDER);
}

#[test]
fn e22_futures_unordered_gives_results_in_completion_order() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let unordered: FuturesUnordered<_> = three(&ctx).into_iter().collect();
            Ok(unwrapped(unordered.collect::<Vec<_>>().await))
        },
        (),
    );
    assert_eq!(completed_out_of_order(&mut drive), r#"8 OrchestrationCompleted ["c","a","b"]"#);
}

#[test]
fn e22_select_biased_of_the_futures_crate_works() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b, c] = three(&ctx);
            let (mut a, mut b, mut c) = (a.fuse(), b.fuse(), c.fuse());
            let mut order = Vec::new();
            for _ in 0..2 {
                order.push(select_biased! {
                    a = a => a.unwrap(),
                    b = b => b.unwrap(),
                    c = c => c.unwrap(),
                });
            }
            drop((a, b, c));
            ctx.set_status(json!(order));
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.complete(4, "c").evict().complete(2, "a").evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"6 ActivityCompleted of 2 "a""#,
            r#"7 StatusSet ["c","a"]"#,
            r#"8 ExternalSubscribed "end""#,
            "9 ActivityCancelRequested of 3",
        ]
    );
}

#[test]
fn e22_a_join_returns_once() {
    for wide in [true, false] {
        let mut drive = Drive::start(
            move |ctx: OrchestrationContext, _: Payload| async move {
                let mut tried = ctx.try_join([ctx.schedule_activity("A", ())]);
                let mut joined = ctx.join([ctx.schedule_activity("B", ())]);
                assert!((&mut tried).await.is_err());
                assert_eq!((&mut joined).await.len(), 1);
                // What comes of a second time is no result.
                let again = if wide { joined.await.len() } else { tried.await.unwrap().len() };
                Ok(json!(again).into())
            },
            (),
        );
        let failure = drive.try_turn([Drive::failed(2, "a"), Drive::completed(3, "b")]).unwrap_err();
        assert!(failure.to_string().contains("a join was polled after it returned"), "{failure}");
    }
}
