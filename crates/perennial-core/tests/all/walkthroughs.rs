//! The seed walk-throughs as exact histories, with an eviction at every turn boundary.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use perennial_core::{
    ActivityError, Either, ExecutionOptions, OrchestrationContext, Payload, StaleReason, Started,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

fn application_error(failure: ActivityError) -> Payload {
    match failure {
        ActivityError::Application(error) => error,
        other => Payload::from(format!("{other:?}")),
    }
}

#[test]
fn greet() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, name: Payload| async move {
            ctx.schedule_activity("Greet", name).await.map_err(|_| Payload::null())
        },
        "Alice",
    );
    drive.evict().complete(2, "Hello, Alice!");
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration "Alice""#,
            r#"2 ActivityScheduled "Greet" "Alice""#,
            r#"3 ActivityCompleted of 2 "Hello, Alice!""#,
            r#"4 OrchestrationCompleted "Hello, Alice!""#,
        ]
    );
}

#[test]
fn activity_then_timer_then_activity() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, order: Payload| async move {
            let item = ctx.schedule_activity("ValidateOrder", order).await.map_err(application_error)?;
            ctx.schedule_timer(Duration::from_secs(60)).await;
            ctx.schedule_activity("ProcessPayment", item).await.map_err(application_error)
        },
        "order-123",
    );
    drive.evict().at(1_500).complete(2, "item-7");
    drive.evict().fire(4);
    drive.evict().complete(6, "paid").evict();
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration "order-123""#,
            r#"2 ActivityScheduled "ValidateOrder" "order-123""#,
            r#"3 ActivityCompleted of 2 "item-7""#,
            r#"4 TimerCreated due 61500"#,
            r#"5 TimerFired of 4"#,
            r#"6 ActivityScheduled "ProcessPayment" "item-7""#,
            r#"7 ActivityCompleted of 6 "paid""#,
            r#"8 OrchestrationCompleted "paid""#,
        ]
    );
    let times: Vec<u64> = drive.history().turns.iter().map(|turn| turn.at_ms).collect();
    assert_eq!(times, [1_000, 1_500, 61_500, 61_500], "a turn is never before the timer that it fires");
}

async fn slow_task_or_timeout(ctx: OrchestrationContext, _: Payload) -> Output {
    let task = ctx.schedule_activity("SlowTask", "");
    let limit = ctx.schedule_timer(Duration::from_secs(30));
    match ctx.select2(task, limit).await {
        Either::First(result) => result.map_err(application_error),
        Either::Second(()) => Err("timeout".into()),
    }
}

#[test]
fn select_with_timeout_won_by_the_activity() {
    let mut drive = Drive::start(slow_task_or_timeout, ());
    drive.evict().complete(2, "task result").evict();
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration null"#,
            r#"2 ActivityScheduled "SlowTask" """#,
            r#"3 TimerCreated due 31000"#,
            r#"4 ActivityCompleted of 2 "task result""#,
            r#"5 OrchestrationCompleted "task result""#,
        ],
        "the ending closes the timer, so no cancel is recorded for it"
    );
}

#[test]
fn select_with_timeout_won_by_the_timer() {
    let mut drive = Drive::start(slow_task_or_timeout, ());
    drive.evict().fire(3).evict();
    assert_eq!(drive.last_lines(), [r#"4 TimerFired of 3"#, r#"5 OrchestrationFailed "timeout""#]);
}

#[test]
fn select_with_both_results_in_one_turn_takes_the_earlier_one() {
    let mut drive = Drive::start(slow_task_or_timeout, ());
    drive.turn([Drive::fired(3), Drive::completed(2, "too late")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 TimerFired of 3"#,
            r#"5 ActivityCompleted of 2 "too late""#,
            r#"6 OrchestrationFailed "timeout""#,
        ]
    );
}

#[test]
fn select_then_another_activity() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let fast = ctx.schedule_activity("Fast", "");
            let timer = ctx.schedule_timer(Duration::from_secs(10));
            let won = ctx.select2(fast, timer).await;
            assert!(matches!(won, Either::First(_)));
            ctx.schedule_activity("Next", "").await.map_err(|_| Payload::null())
        },
        (),
    );
    drive.evict().complete(2, "quick");
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 2 "quick""#,
            r#"5 ActivityScheduled "Next" """#,
            r#"6 TimerCancelled of 3"#,
        ]
    );
    drive.evict().complete(5, "done").evict();
    assert_eq!(
        drive.last_lines(),
        [r#"7 ActivityCompleted of 5 "done""#, r#"8 OrchestrationCompleted "done""#]
    );
}

async fn two_tries_then_sleep(ctx: OrchestrationContext, _: Payload) -> Output {
    for _ in 0..2 {
        let task = ctx.schedule_activity("Task", "");
        let limit = ctx.schedule_timer(Duration::from_secs(30));
        assert!(matches!(ctx.select2(task, limit).await, Either::First(Ok(_))));
    }
    ctx.schedule_timer(Duration::from_secs(10)).await;
    Ok("done".into())
}

#[test]
fn retries_with_timeouts_then_a_sleep_that_late_losers_do_not_block() {
    let mut drive = Drive::start(two_tries_then_sleep, ());
    drive.evict().complete(2, "first");
    drive.evict().complete(5, "second");

    drive.evict().at(31_000);
    let late =
        drive.try_turn([Drive::fired(3), Drive::fired(6)]).expect("a turn of stale jobs is no failure");
    assert!(late.turn.is_none(), "losers that fire leave no turn behind");
    let reasons: Vec<StaleReason> = late.stale.iter().map(|stale| stale.reason).collect();
    assert_eq!(reasons, [StaleReason::NotOpen, StaleReason::NotOpen]);

    let last = drive.try_turn([Drive::fired(3), Drive::fired(9), Drive::fired(6)]).expect("the sleep ends");
    assert_eq!(last.stale.len(), 2);
    drive.evict();
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration null"#,
            r#"2 ActivityScheduled "Task" """#,
            r#"3 TimerCreated due 31000"#,
            r#"4 ActivityCompleted of 2 "first""#,
            r#"5 ActivityScheduled "Task" """#,
            r#"6 TimerCreated due 31000"#,
            r#"7 TimerCancelled of 3"#,
            r#"8 ActivityCompleted of 5 "second""#,
            r#"9 TimerCreated due 11000"#,
            r#"10 TimerCancelled of 6"#,
            r#"11 TimerFired of 9"#,
            r#"12 OrchestrationCompleted "done""#,
        ]
    );
}

#[test]
fn losers_whose_results_came_in_the_same_turn_are_recorded_and_do_not_block() {
    let mut drive = Drive::start(two_tries_then_sleep, ());
    drive.at(31_000);
    drive.turn([Drive::completed(2, "first"), Drive::fired(3)]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 2 "first""#,
            r#"5 TimerFired of 3"#,
            r#"6 ActivityScheduled "Task" """#,
            r#"7 TimerCreated due 61000"#,
        ],
        "a loser whose result is recorded is not cancelled"
    );
    drive.complete(6, "second").fire(9).evict();
    assert_eq!(drive.last_lines(), [r#"11 TimerFired of 9"#, r#"12 OrchestrationCompleted "done""#]);
}

#[test]
fn fan_out_with_completions_out_of_order_joins_in_input_order() {
    let fan_out = |ctx: OrchestrationContext, _: Payload| async move {
        let tasks = ["TaskA", "TaskB", "TaskC"].map(|name| ctx.schedule_activity(name, ""));
        let results: Vec<Payload> =
            ctx.join(tasks).await.into_iter().collect::<Result<_, _>>().map_err(application_error)?;
        Ok(Payload::encode(&results).expect("a list encodes"))
    };
    let scheduled = [
        r#"1 OrchestrationStarted orchestration null"#,
        r#"2 ActivityScheduled "TaskA" """#,
        r#"3 ActivityScheduled "TaskB" """#,
        r#"4 ActivityScheduled "TaskC" """#,
    ];

    let mut together = Drive::start(fan_out, ());
    assert_eq!(together.lines(), scheduled);
    together
        .evict()
        .turn([Drive::completed(3, "b"), Drive::completed(4, "c"), Drive::completed(2, "a")])
        .evict();
    assert_eq!(
        together.last_lines(),
        [
            r#"5 ActivityCompleted of 3 "b""#,
            r#"6 ActivityCompleted of 4 "c""#,
            r#"7 ActivityCompleted of 2 "a""#,
            r#"8 OrchestrationCompleted ["a","b","c"]"#,
        ]
    );

    let mut one_by_one = Drive::start(fan_out, ());
    one_by_one.complete(3, "b").evict().complete(4, "c").evict().complete(2, "a");
    assert_eq!(
        one_by_one.last_lines(),
        [r#"7 ActivityCompleted of 2 "a""#, r#"8 OrchestrationCompleted ["a","b","c"]"#]
    );
}

async fn flaky_three_times(ctx: OrchestrationContext, _: Payload) -> Output {
    for attempt in 1..=3 {
        if let Ok(result) = ctx.schedule_activity("FlakyTask", "").await {
            return Ok(result);
        }
        if attempt < 3 {
            ctx.schedule_timer(Duration::from_secs(1)).await;
        }
    }
    Err("all attempts failed".into())
}

#[test]
fn the_retry_loop_succeeds_at_the_second_attempt() {
    let mut drive = Drive::start(flaky_three_times, ());
    drive.evict().turn([Drive::failed(2, "down")]);
    drive.evict().fire(4);
    drive.evict().complete(6, "success").evict();
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration null"#,
            r#"2 ActivityScheduled "FlakyTask" """#,
            r#"3 ActivityFailed of 2 "down""#,
            r#"4 TimerCreated due 2000"#,
            r#"5 TimerFired of 4"#,
            r#"6 ActivityScheduled "FlakyTask" """#,
            r#"7 ActivityCompleted of 6 "success""#,
            r#"8 OrchestrationCompleted "success""#,
        ]
    );
}

#[test]
fn the_retry_loop_gives_up_after_the_third_attempt() {
    let mut drive = Drive::start(flaky_three_times, ());
    drive.evict().turn([Drive::failed(2, "down")]);
    drive.evict().fire(4);
    drive.evict().turn([Drive::failed(6, "down")]);
    drive.evict().fire(8);
    drive.evict().turn([Drive::failed(10, "down")]).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"11 ActivityFailed of 10 "down""#, r#"12 OrchestrationFailed "all attempts failed""#]
    );
}

#[test]
fn local_state_is_rebuilt_by_replay() {
    let loud_steps = Arc::new(AtomicU32::new(0));
    let quiet_steps = Arc::new(AtomicU32::new(0));
    let (loud, quiet) = (Arc::clone(&loud_steps), Arc::clone(&quiet_steps));
    let counting = move |ctx: OrchestrationContext, _: Payload| {
        let (loud, quiet) = (Arc::clone(&loud), Arc::clone(&quiet));
        async move {
            let mut count = 0;
            for _ in 0..3 {
                ctx.schedule_activity("Increment", "").await.map_err(application_error)?;
                count += 1;
                if ctx.is_replaying() {
                    quiet.fetch_add(1, Ordering::Relaxed);
                } else {
                    loud.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(Payload::from(format!("Final count: {count}")))
        }
    };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let options = ExecutionOptions { shadow_replay: false, ..Default::default() };
    let mut drive = Drive::prepare(Arc::new(counting), started, options).expect("it can start");
    drive.turn([]).evict().complete(2, ());
    drive.evict().complete(4, ());
    drive.evict().complete(6, ());
    assert_eq!(
        drive.last_lines(),
        [r#"7 ActivityCompleted of 6 null"#, r#"8 OrchestrationCompleted "Final count: 3""#]
    );
    assert_eq!(loud_steps.load(Ordering::Relaxed), 3, "each increment is live once");
    assert_eq!(quiet_steps.load(Ordering::Relaxed), 1 + 2, "and was rebuilt by each eviction");
}

#[test]
fn one_step_feeds_the_next() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let first = ctx.schedule_activity("Step1", "").await.map_err(application_error)?;
            ctx.schedule_activity("Step2", first).await.map_err(application_error)
        },
        (),
    );
    drive.evict().complete(2, "one").evict().complete(4, "two").evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "Step1" """#,
            r#"3 ActivityCompleted of 2 "one""#,
            r#"4 ActivityScheduled "Step2" "one""#,
            r#"5 ActivityCompleted of 4 "two""#,
            r#"6 OrchestrationCompleted "two""#,
        ]
    );
}
