//! Cancellation: the engine ends the execution, or the code takes over and decides for itself (E23).

use std::sync::Arc;
use std::time::Duration;

use perennial_core::{
    CancelRequest, ExecutionOptions, Job, OrchestrationContext, OrchestrationHandler, Payload, StaleReason,
    Successor,
};
use perennial_testkit::Drive;
use serde_json::json;

/// Publishes every event `n`, ends when `end` comes.
async fn publishes(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    loop {
        let next = ctx.schedule_wait("n").await;
        if next == "end".into() {
            return Ok("ended by itself".into());
        }
        if next == "fail".into() {
            return Err("failed by itself".into());
        }
        if next == "continue".into() {
            return ctx.continue_as_new(()).await;
        }
        if next == "take over".into() {
            drop(ctx.cancelled());
        }
        ctx.set_status(next);
    }
}

fn next(handler: impl OrchestrationHandler, successor: &Successor) -> Drive {
    let started = successor.started("1.0.0", 43);
    let mut drive = Drive::prepare(Arc::new(handler), started, ExecutionOptions::default()).unwrap();
    drive.turn(successor.jobs.clone()).evict();
    drive
}

#[test]
fn e23_a_request_that_is_not_taken_over_ends_the_execution() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let _open = ctx.schedule_activity("A", ());
            ctx.schedule_timer(Duration::from_secs(60)).await;
            Ok(Payload::null())
        },
        (),
    );
    drive.evict().turn([Drive::cancel("enough", 31_000)]).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"4 OrchestrationCancelRequested "enough""#, r#"5 OrchestrationCancelled "enough""#]
    );
    assert!(drive.execution().has_ended());
    assert_eq!(drive.execution().ledger().open().count(), 2, "what is open is known, so it can be told");
}

#[test]
fn e23_jobs_before_the_request_are_delivered_and_jobs_after_it_only_recorded() {
    let mut drive = Drive::start(publishes, ());
    drive
        .turn([Drive::event("n", "before"), Drive::cancel("enough", 31_000), Drive::event("n", "after")])
        .evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 ExternalEvent "n" "before""#,
            r#"4 OrchestrationCancelRequested "enough""#,
            r#"5 ExternalEvent "n" "after""#,
            r#"6 StatusSet "before""#,
            r#"7 ExternalSubscribed "n""#,
            r#"8 OrchestrationCancelled "enough""#,
        ]
    );
}

#[test]
fn e23_a_request_stands_over_an_output_of_its_turn() {
    for output in ["end", "fail", "continue"] {
        for request_first in [false, true] {
            let mut drive = Drive::start(publishes, ());
            let mut jobs = vec![Drive::event("n", output), Drive::cancel("enough", 31_000)];
            if request_first {
                jobs.reverse();
            }
            let taken = drive.try_turn(jobs).unwrap();
            assert!(taken.successor.is_none());
            drive.evict();
            let ending = drive.lines().pop();
            assert_eq!(ending.as_deref(), Some(r#"5 OrchestrationCancelled "enough""#), "{output}");
        }
    }
    // In the first turn, too.
    let started = perennial_core::Started::new("orchestration", "1.0.0", (), 42);
    let at_once = |_: OrchestrationContext, _: Payload| async { Ok(Payload::null()) };
    let mut drive = Drive::prepare(Arc::new(at_once), started, ExecutionOptions::default()).unwrap();
    drive.turn([Drive::cancel("before it began", 31_000)]).evict();
    assert_eq!(drive.lines()[2], r#"3 OrchestrationCancelled "before it began""#);
}

#[test]
fn e23_code_that_took_over_cleans_up_and_decides_its_own_outcome() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let work = ctx.schedule_activity("Work", ());
            let cancelled = ctx.cancelled();
            assert!(!ctx.is_cancelled());
            let result = ctx.select2(work, cancelled).await;
            assert!(ctx.is_cancelled());
            assert!(matches!(result, perennial_core::Either::Second(_)));
            ctx.schedule_activity("Undo", ()).await.unwrap();
            Ok("undone".into())
        },
        (),
    );
    assert!(drive.execution().has_taken_over_cancellation());
    drive.evict().turn([Drive::cancel("enough", 31_000)]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 OrchestrationCancelRequested "enough""#,
            r#"4 ActivityScheduled "Undo" null"#,
            "5 ActivityCancelRequested of 2",
        ]
    );
    let request = drive.execution().ledger().cancel_request().unwrap();
    assert_eq!((request.grace_ms, request.until_ms()), (31_000, request.delivered_ms + 31_000));
    drive.complete(4, ()).evict();
    assert_eq!(drive.last_lines()[1], r#"7 OrchestrationCompleted "undone""#);
}

#[test]
fn e23_taking_over_is_for_good() {
    let mut drive = Drive::start(publishes, ());
    assert!(!drive.execution().has_taken_over_cancellation());
    // The future that took over is long gone when the request comes.
    drive.raise("n", "take over").evict();
    assert!(drive.execution().has_taken_over_cancellation());
    drive.turn([Drive::cancel("enough", 31_000)]).evict();
    assert_eq!(drive.last_lines(), [r#"6 OrchestrationCancelRequested "enough""#]);
    drive.raise("n", "end").evict();
    assert_eq!(drive.last_lines()[1], r#"8 OrchestrationCompleted "ended by itself""#);
}

#[test]
fn e23_taking_over_counts_if_it_comes_before_the_request_in_the_same_turn() {
    let mut in_time = Drive::start(publishes, ());
    in_time
        .turn([Drive::event("n", "take over"), Drive::cancel("enough", 31_000), Drive::event("n", "end")])
        .evict();
    assert_eq!(in_time.lines().pop().unwrap(), r#"8 OrchestrationCompleted "ended by itself""#);

    let mut too_late = Drive::start(publishes, ());
    too_late.turn([Drive::cancel("enough", 31_000), Drive::event("n", "take over")]).evict();
    assert_eq!(too_late.lines().pop().unwrap(), r#"5 OrchestrationCancelled "enough""#);
}

#[test]
fn e23_after_the_request_everything_that_asks_is_told_at_once() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drop(ctx.cancelled());
            ctx.schedule_wait("go").await;
            ctx.cancelled().await;
            let from = ctx.clone();
            ctx.on_cancel(move || async move { from.set_status("handled late") });
            ctx.handlers_idle().await;
            Ok("done".into())
        },
        (),
    );
    drive.turn([Drive::cancel("enough", 31_000)]).evict().raise("go", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ExternalEvent "go" null"#,
            r#"5 StatusSet "handled late" in h0"#,
            r#"6 OrchestrationCompleted "done""#,
        ]
    );
}

#[test]
fn e23_the_request_reaches_every_future_and_handler_in_unit_order_as_one_wave() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let branch = |name: &'static str, order: &'static str| {
                let ctx = ctx.clone();
                async move {
                    // The second branch registers first.
                    ctx.schedule_wait(order).await;
                    let from = ctx.clone();
                    ctx.on_cancel(move || async move {
                        from.set_status(format!("handler of {name}"));
                        from.set_status("same step");
                    });
                    ctx.cancelled().await;
                    ctx.set_status(name);
                    ctx.schedule_wait("rest").await;
                }
            };
            let branches = ctx.parallel([branch("p0", "second"), branch("p1", "first")]);
            ctx.schedule_wait("third").await;
            for number in 0..2 {
                let from = ctx.clone();
                ctx.on_cancel(move || async move { from.set_status(format!("handler {number} of root")) });
            }
            ctx.cancelled().await;
            ctx.set_status("root");
            branches.await;
            Ok(Payload::null())
        },
        (),
    );
    for order in ["first", "second", "third"] {
        drive.raise(order, ()).evict();
    }
    drive.turn([Drive::cancel("enough", 31_000)]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"8 OrchestrationCancelRequested "enough""#,
            r#"9 StatusSet "root""#,
            r#"10 StatusSet "p0" in p0"#,
            r#"11 ExternalSubscribed "rest" in p0"#,
            r#"12 StatusSet "p1" in p1"#,
            r#"13 ExternalSubscribed "rest" in p1"#,
            r#"14 StatusSet "handler 0 of root" in h0"#,
            r#"15 StatusSet "handler 1 of root" in h1"#,
            r#"16 StatusSet "handler of p0" in h2"#,
            r#"17 StatusSet "same step" in h2"#,
            r#"18 StatusSet "handler of p1" in h3"#,
            r#"19 StatusSet "same step" in h3"#,
        ]
    );
}

#[test]
fn e23_a_second_request_is_dropped_unless_its_grace_ends_sooner() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.cancelled().await;
            ctx.set_status("cleaning up");
            Ok(ctx.schedule_wait("cleaned").await)
        },
        (),
    );
    drive.turn([Drive::cancel("first", 31_000)]).evict();
    for grace_until_ms in [31_000, 40_000] {
        let taken = drive.try_turn([Drive::cancel("again", grace_until_ms)]).unwrap();
        assert_eq!(taken.turn, None);
        assert_eq!(taken.stale[0].reason, StaleReason::AlreadyCancelling);
    }
    drive.turn([Drive::cancel("hurry", 30_999)]).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"5 OrchestrationCancelRequested "hurry""#],
        "the code is not told twice"
    );
    let ledger = drive.execution().ledger();
    assert_eq!(ledger.cancel_request().map(CancelRequest::until_ms), Some(31_999));
}

/// Found by the simulator, seed 807: the request was judged by the time of the turn before.
#[test]
fn e23_a_second_request_that_comes_late_is_dropped_without_a_trace() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.cancelled().await;
            Ok(ctx.schedule_wait("cleaned").await)
        },
        (),
    );
    drive.turn([Drive::cancel("first", 5_000)]).evict();
    // Until 6,000 by the first; until 6,500 by the second, which is less than that from the turn before on.
    let taken = drive.at(5_000).try_turn([Drive::cancel("again", 1_500)]).unwrap();
    assert_eq!((taken.turn, taken.stale[0].reason), (None, StaleReason::AlreadyCancelling));
    let ledger = drive.execution().ledger();
    assert_eq!((ledger.events(), ledger.cancel_reason()), (3, Some("first")));
    drive.turn([Drive::event("cleaned", "done")]).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"4 ExternalEvent "cleaned" "done""#, r#"5 OrchestrationCompleted "done""#]
    );
}

#[test]
fn e23_the_execution_ends_at_the_first_request_for_its_reason() {
    let mut drive = Drive::start(publishes, ());
    drive.turn([Drive::cancel("first", 31_000), Drive::cancel("sooner", 2_000)]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 OrchestrationCancelRequested "first""#,
            r#"4 OrchestrationCancelRequested "sooner""#,
            r#"5 OrchestrationCancelled "first""#,
        ]
    );
}

/// Takes cancellation over and continues as new once, with its clean-up left to the next execution.
async fn cleans_up_in_the_next(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let cancelled = ctx.cancelled();
    if input.is_null() {
        ctx.schedule_wait("go").await;
        return ctx.continue_as_new("next").await;
    }
    cancelled.await;
    Ok(json!(ctx.schedule_wait("n").await).into())
}

#[test]
fn e23_a_request_taken_over_crosses_continue_as_new_as_the_first_job() {
    let (request, unread) = (Drive::cancel("enough", 31_000), Drive::event("n", "unread"));
    let go = || Drive::event("go", ());
    // Delivered in an earlier turn; in the same turn; and never, because the turn was over before.
    let schedules: [Vec<Vec<Job>>; 3] = [
        vec![vec![unread.clone()], vec![request.clone()], vec![go()]],
        vec![vec![unread.clone(), request.clone(), go()]],
        vec![vec![go(), unread.clone(), request.clone()]],
    ];
    for turns in schedules {
        let mut drive = Drive::start(cleans_up_in_the_next, ());
        let (last, before) = turns.split_last().unwrap();
        for jobs in before {
            drive.turn(jobs.clone()).evict();
        }
        let successor = drive.try_turn(last.clone()).unwrap().successor.unwrap();
        drive.evict();
        assert_eq!(successor.jobs, [request.clone(), unread.clone()]);

        let taken_over = next(cleans_up_in_the_next, &successor);
        assert_eq!(
            taken_over.lines(),
            [
                r#"1 OrchestrationStarted orchestration "next""#,
                r#"2 OrchestrationCancelRequested "enough""#,
                r#"3 ExternalEvent "n" "unread""#,
                r#"4 ExternalSubscribed "n""#,
                r#"5 OrchestrationCompleted "unread""#,
            ]
        );
        let not_taken_over = next(publishes, &successor);
        assert_eq!(not_taken_over.lines().pop().unwrap(), r#"5 OrchestrationCancelled "enough""#);
    }
}

#[test]
fn e23_of_several_requests_the_one_with_the_soonest_grace_crosses() {
    let mut drive = Drive::start(cleans_up_in_the_next, ());
    drive.turn([Drive::cancel("first", 31_000)]).turn([Drive::cancel("hurry", 5_000)]);
    let successor = drive.try_turn([Drive::event("go", ())]).unwrap().successor.unwrap();
    assert_eq!(successor.jobs, [Drive::cancel("hurry", 5_000)]);
}
