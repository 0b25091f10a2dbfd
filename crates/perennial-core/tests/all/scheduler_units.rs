//! Units are named by structure, run in the order of their names, and live as long as their handles.

use std::time::Duration;

use futures::future::BoxFuture;
use perennial_core::{OrchestrationContext, Payload, UnitHandle};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

/// A branch that publishes a word.
fn says(ctx: &OrchestrationContext, word: &str) -> BoxFuture<'static, ()> {
    let (ctx, word) = (ctx.clone(), word.to_owned());
    Box::pin(async move { ctx.set_status(word) })
}

/// A branch that runs an activity.
fn runs(ctx: &OrchestrationContext, name: &'static str) -> BoxFuture<'static, ()> {
    let ctx = ctx.clone();
    Box::pin(async move {
        let _ = ctx.schedule_activity(name, "").await;
    })
}

async fn until_the_end(ctx: &OrchestrationContext) -> Output {
    ctx.schedule_wait("end").await;
    Ok("ended".into())
}

#[test]
fn e8_a_unit_numbers_its_branches_and_spawns_for_its_whole_life() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.parallel([says(&ctx, "first"), says(&ctx, "second")]).await;
            ctx.spawn(says(&ctx, "third")).await;
            ctx.shield(says(&ctx, "fourth")).await;
            let none: Vec<()> = ctx.parallel(Vec::<BoxFuture<'static, ()>>::new()).await;
            assert!(none.is_empty());
            ctx.schedule_wait("more").await;
            ctx.parallel([says(&ctx, "fifth")]).await;
            drop(ctx.spawn(says(&ctx, "never runs")));
            ctx.spawn(says(&ctx, "seventh")).await;
            until_the_end(&ctx).await
        },
        (),
    );
    drive.evict().raise("more", ()).evict();
    let statuses: Vec<String> = drive.lines().into_iter().filter(|line| line.contains("StatusSet")).collect();
    assert_eq!(
        statuses,
        [
            r#"2 StatusSet "first" in p0"#,
            r#"3 StatusSet "second" in p1"#,
            r#"4 StatusSet "third" in p2"#,
            r#"5 StatusSet "fourth" in p3"#,
            r#"8 StatusSet "fifth" in p4"#,
            r#"9 StatusSet "seventh" in p6"#,
        ]
    );
}

#[test]
fn e8_nested_branches_carry_the_path_from_the_root() {
    fn nest(ctx: OrchestrationContext, depth: u32) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if depth == 4 {
                let _ = ctx.schedule_activity("Leaf", "").await;
                return;
            }
            ctx.parallel([nest(ctx.clone(), depth + 1), nest(ctx.clone(), depth + 1)]).await;
            ctx.set_status(depth.to_string());
        })
    }
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            nest(ctx, 0).await;
            Ok("all done".into())
        },
        (),
    );
    let units: Vec<String> = drive.last_turn().decisions().map(|(_, unit, _)| unit.to_string()).collect();
    let mut expected = Vec::new();
    for leaf in 0..16_u32 {
        let path: Vec<String> = (0..4).rev().map(|bit| format!("p{}", leaf >> bit & 1)).collect();
        expected.push(path.join("."));
    }
    assert_eq!(units, expected, "all sixteen leaves, four deep, in order");

    let leaves_backwards: Vec<_> = (2..18).rev().map(|id| Drive::completed(id, "")).collect();
    drive.evict().turn(leaves_backwards).evict();
    let decided: Vec<String> = drive.last_turn().decisions().map(|(_, unit, _)| unit.to_string()).collect();
    let root = "root".to_owned();
    let mut expected: Vec<String> = Vec::new();
    for depth in (1..4).rev() {
        for node in 0..1_u32 << depth {
            let path: Vec<String> = (0..depth).rev().map(|bit| format!("p{}", node >> bit & 1)).collect();
            expected.push(path.join("."));
        }
    }
    expected.push(root);
    assert_eq!(decided, expected, "one wave of all leaves; then level by level, each in branch order");
    assert!(drive.execution().has_ended());
}

#[test]
fn e8_handler_dispatches_are_numbered_by_arrival_over_all_handlers() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (events, updates) = (ctx.clone(), ctx.clone());
            ctx.on_event("event", move |payload| {
                let ctx = events.clone();
                async move {
                    ctx.parallel([says(&ctx, "in a branch"), says(&ctx, "in another")]).await;
                    ctx.set_status(payload);
                }
            });
            ctx.on_update(
                "update",
                |_| Ok(()),
                move |payload| {
                    let ctx = updates.clone();
                    async move {
                        ctx.set_status("updating");
                        Ok(payload)
                    }
                },
            );
            until_the_end(&ctx).await
        },
        (),
    );
    drive
        .evict()
        .turn([Drive::event("event", "one"), Drive::update("update", "two"), Drive::event("event", "three")])
        .evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 ExternalEvent "event" "one""#,
            r#"4 UpdateRequested "update" "two""#,
            r#"5 ExternalEvent "event" "three""#,
            r#"6 StatusSet "in a branch" in h0.p0"#,
            r#"7 StatusSet "in another" in h0.p1"#,
            r#"8 StatusSet "one" in h0"#,
            r#"9 StatusSet "updating" in h1"#,
            r#"10 UpdateCompleted of 4 "two" in h1"#,
            r#"11 StatusSet "in a branch" in h2.p0"#,
            r#"12 StatusSet "in another" in h2.p1"#,
            r#"13 StatusSet "three" in h2"#,
        ]
    );
}

#[test]
fn e8_units_run_in_lexicographic_order_with_branches_before_handlers() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let go = ctx.state(false);
            let waits = |name: &'static str| -> BoxFuture<'static, ()> {
                let (ctx, go) = (ctx.clone(), go.clone());
                Box::pin(async move {
                    ctx.wait_until(&go, |go| *go).await;
                    ctx.set_status(name);
                })
            };
            let (handler, on_handler_go) = (ctx.clone(), go.clone());
            ctx.on_event("handle", move |_| {
                let (ctx, go) = (handler.clone(), on_handler_go.clone());
                async move {
                    let (inner, inner_go) = (ctx.clone(), go.clone());
                    let nested = ctx.spawn(async move {
                        inner.wait_until(&inner_go, |go| *go).await;
                        inner.set_status("branch of a handler");
                    });
                    ctx.wait_until(&go, |go| *go).await;
                    ctx.set_status("handler");
                    nested.await;
                }
            });
            let many: Vec<_> = (0..11).map(|_| waits("branch")).collect();
            let branches = ctx.parallel(many);
            ctx.schedule_wait("go").await;
            go.update(|go| *go = true);
            ctx.set_status("root");
            branches.await;
            until_the_end(&ctx).await
        },
        (),
    );
    drive.raise("handle", ()).raise("go", ()).evict();
    let order: Vec<String> = drive.last_turn().decisions().map(|(_, unit, _)| unit.to_string()).collect();
    assert_eq!(
        order,
        ["root", "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "h0", "h0.p0", "root"],
        "by number, not by text"
    );
}

#[test]
fn e8_dropping_a_handle_drops_its_unit_and_cancels_what_is_in_it() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            let unit = ctx.spawn(async move {
                let _timer = inner.schedule_timer(Duration::from_secs(9));
                inner.parallel([runs(&inner, "A"), runs(&inner, "B")]).await;
                inner.set_status("never reached");
            });
            ctx.schedule_wait("drop").await;
            drop(unit);
            ctx.set_status("dropped");
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ExternalSubscribed "drop""#,
            r#"3 TimerCreated due 10000 in p0"#,
            r#"4 ActivityScheduled "A" "" in p0.p0"#,
            r#"5 ActivityScheduled "B" "" in p0.p1"#,
        ]
    );
    drive.evict().raise("drop", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"6 ExternalEvent "drop" null"#,
            r#"7 StatusSet "dropped""#,
            r#"8 ExternalSubscribed "end""#,
            r#"9 TimerCancelled of 3"#,
            r#"10 ActivityCancelRequested of 4"#,
            r#"11 ActivityCancelRequested of 5"#,
        ],
        "the unit that drops is the unit that cancels"
    );
    let late = drive.try_turn([Drive::completed(4, "late")]).expect("no failure");
    assert!(late.turn.is_none() && late.stale.len() == 1);
}

#[test]
fn e8_dropping_a_parallel_drops_its_branches_and_those_that_never_ran() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drop(ctx.parallel([says(&ctx, "never"), runs(&ctx, "Never")]));
            ctx.parallel([says(&ctx, "runs")]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(drive.lines()[1..], [r#"2 StatusSet "runs" in p2"#, r#"3 ExternalSubscribed "end""#]);
}

#[test]
fn e8_a_detached_unit_goes_on_until_the_root_ends() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            let parent = ctx.spawn(async move {
                let looping = inner.clone();
                let child: UnitHandle<()> = inner.spawn(async move {
                    loop {
                        looping.schedule_wait("tick").await;
                        looping.set_status("ticked");
                    }
                });
                child.detach();
            });
            parent.await;
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [r#"2 ExternalSubscribed "end""#, r#"3 ExternalSubscribed "tick" in p0.p0"#],
        "its parent is gone, and it is not"
    );
    drive.evict().raise("tick", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ExternalEvent "tick" null"#,
            r#"5 StatusSet "ticked" in p0.p0"#,
            r#"6 ExternalSubscribed "tick" in p0.p0"#,
        ]
    );
    drive.turn([Drive::event("end", ()), Drive::event("tick", ())]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"7 ExternalEvent "end" null"#,
            r#"8 ExternalEvent "tick" null"#,
            r#"9 OrchestrationCompleted "ended""#,
        ]
    );
}

#[test]
fn e8_a_detached_unit_that_finishes_is_nobody_elses_result() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.spawn(runs(&ctx, "Detached")).detach();
            ctx.spawn(runs(&ctx, "Awaited")).await;
            Ok("awaited".into())
        },
        (),
    );
    drive.evict().complete(2, "").evict();
    assert_eq!(drive.last_lines(), [r#"4 ActivityCompleted of 2 """#]);
    drive.complete(3, "").evict();
    assert_eq!(drive.last_lines()[1], r#"6 OrchestrationCompleted "awaited""#);
}

/// A unit that takes its own handle out of a state, drops it, and goes on as `then` says.
fn drops_itself(
    ctx: &OrchestrationContext,
    then: impl Fn(OrchestrationContext) -> BoxFuture<'static, ()> + Send + 'static,
) {
    let handle = ctx.state(None::<UnitHandle<()>>);
    let (inner, own) = (ctx.clone(), handle.clone());
    let unit = ctx.spawn(async move {
        let _timer = inner.schedule_timer(Duration::from_secs(5));
        inner.schedule_wait("drop yourself").await;
        let own_handle = own.update(Option::take);
        drop(own_handle);
        then(inner).await;
    });
    handle.update(|handle| *handle = Some(unit));
}

#[test]
fn e8_a_unit_that_drops_its_own_handle_ends_with_the_step() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drops_itself(&ctx, |ctx| {
                Box::pin(async move {
                    ctx.set_status("still in the step");
                    let _ = ctx.schedule_activity("Vain", "").await;
                    ctx.set_status("never reached");
                })
            });
            until_the_end(&ctx).await
        },
        (),
    );
    drive.evict().raise("drop yourself", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"5 ExternalEvent "drop yourself" null"#,
            r#"6 StatusSet "still in the step" in p0"#,
            r#"7 TimerCancelled of 3 in p0"#,
        ],
        "what it began in that step leaves nothing"
    );
    drive.raise("end", ()).evict();
    assert_eq!(drive.last_lines()[1], r#"9 OrchestrationCompleted "ended""#);
}

#[test]
fn e8_a_unit_that_dropped_its_own_handle_gets_no_results_from_branches_that_never_ran() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drops_itself(&ctx, |ctx| {
                Box::pin(async move {
                    let results = ctx.parallel([1, 2].map(std::future::ready)).await;
                    panic!("two branches returned {results:?} without having run");
                })
            });
            until_the_end(&ctx).await
        },
        (),
    );
    drive.raise("drop yourself", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"5 ExternalEvent "drop yourself" null"#, r#"6 TimerCancelled of 3 in p0"#]
    );
}
