//! Retrying is the engine's work (G21), and the result of an attempt counts once (G20).

mod shard_cases;

use std::time::Duration;

use perennial_core::shard::ShardOptions;
use perennial_core::{
    ActivityFailure, Backoff, Job, OrchestrationContext, Payload, RetryPolicy, TimeoutKind,
};
use perennial_testkit::Desk;
use serde_json::json;
use shard_cases::{Outcome, handlers_and, secs};

/// How the activity of an instance is run.
#[derive(serde::Serialize, serde::Deserialize)]
struct Plan {
    retry: Option<RetryPolicy>,
    total_ms: Option<u64>,
}

/// An activity `flaky`, run as the input says; ends with what came of it.
async fn tries(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let plan: Plan = input.decode().expect("a plan");
    let mut flaky = ctx.schedule_activity("flaky", ());
    if let Some(policy) = plan.retry {
        flaky = flaky.retry(policy);
    }
    if let Some(total_ms) = plan.total_ms {
        flaky = flaky.total_timeout(Duration::from_millis(total_ms));
    }
    match flaky.await {
        Ok(result) => Ok(result),
        Err(failure) => Err(Payload::from(format!("{failure:?}"))),
    }
}

fn trying(retry: RetryPolicy) -> Desk {
    trying_within(Some(retry), None)
}

fn trying_within(retry: Option<RetryPolicy>, total_ms: Option<u64>) -> Desk {
    let mut desk = Desk::new(handlers_and("tries", tries));
    let plan = Plan { retry, total_ms };
    desk.start("tries", "a", Payload::encode(&plan).expect("a plan encodes"));
    desk.settle();
    desk
}

/// Fails the running attempt and returns when the next one is due.
fn fail_and_due_ms(desk: &mut Desk) -> u64 {
    desk.fail("a", "flaky", "boom").settle();
    desk.row("a").wake_at_ms.expect("there is another attempt")
}

/// How many attempts the recorded completion says it took.
fn recorded_attempts(desk: &Desk) -> u32 {
    desk.jobs("a")
        .iter()
        .find_map(|job| match job {
            Job::ActivityCompleted { attempts, .. } | Job::ActivityFailed { attempts, .. } => Some(*attempts),
            _ => None,
        })
        .expect("it has completed")
}

#[test]
fn g21_fixed_pauses_are_kept_to_the_millisecond() {
    let mut desk = trying(RetryPolicy::fixed(3, 700));
    for due_ms in [1_700, 2_400] {
        assert_eq!(fail_and_due_ms(&mut desk), due_ms);
        let runs = desk.runs().len();
        desk.at(due_ms - 1).settle();
        assert_eq!(desk.runs().len(), runs, "not early");
        desk.at(due_ms).settle();
        assert_eq!(desk.runs().len(), runs + 1, "not late");
    }
    assert_eq!(desk.attempt("a", "flaky").attempt, 3);
}

#[test]
fn g21_linear_and_exponential_pauses_grow_up_to_their_longest() {
    let exponential = RetryPolicy {
        max_attempts: 5,
        backoff: Backoff::Exponential { first_ms: 100, factor_percent: 300, max_ms: 1_000 },
        jitter_percent: 0,
        non_retryable: Vec::new(),
    };
    let cases =
        [(RetryPolicy::linear(5, 100, 250), [100, 200, 250, 250]), (exponential, [100, 300, 900, 1_000])];
    for (policy, pauses) in cases {
        let mut desk = trying(policy);
        for pause_ms in pauses {
            let failed_ms = desk.now_ms();
            let due_ms = fail_and_due_ms(&mut desk);
            assert_eq!(due_ms - failed_ms, pause_ms);
            desk.at(due_ms).settle();
        }
        desk.fail("a", "flaky", "boom").settle();
        assert_eq!((desk.status("a"), recorded_attempts(&desk)), ("failed".into(), 5));
    }
}

#[test]
fn g21_jitter_stays_within_its_share_and_strays() {
    let mut desk = trying(RetryPolicy::fixed(100, 1_000).jitter(20));
    let mut pauses = Vec::new();
    for _ in 0..30 {
        let failed_ms = desk.now_ms();
        let due_ms = fail_and_due_ms(&mut desk);
        pauses.push(due_ms - failed_ms);
        desk.at(due_ms).settle();
    }
    assert!(pauses.iter().all(|pause_ms| (800..=1_200).contains(pause_ms)), "{pauses:?}");
    assert!(pauses.iter().min() < pauses.iter().max(), "{pauses:?}");
}

#[test]
fn g21_the_completion_records_how_many_attempts_it_took() {
    let mut desk = trying(RetryPolicy::fixed(5, 10));
    for _ in 0..2 {
        let due_ms = fail_and_due_ms(&mut desk);
        desk.at(due_ms).settle();
    }
    desk.finish("a", "flaky", "done").settle();
    assert_eq!((desk.status("a"), recorded_attempts(&desk)), ("completed".into(), 3));
    assert!(desk.tasks("a").is_empty());
}

#[test]
fn g21_without_a_policy_the_first_failure_is_final() {
    let mut desk = trying_within(None, None);
    desk.fail("a", "flaky", "boom").settle();
    assert_eq!((desk.status("a"), recorded_attempts(&desk)), ("failed".into(), 1));
}

#[test]
fn g21_a_listed_kind_of_error_is_final() {
    let policy = || RetryPolicy::fixed(5, 10).non_retryable(["Declined"]);
    let cases = [json!("Declined"), json!({"kind": "Declined"}), json!({"Declined": 1})];
    for error in cases {
        let mut desk = trying(policy());
        desk.fail("a", "flaky", Payload::from(error)).settle();
        assert_eq!((desk.status("a"), recorded_attempts(&desk)), ("failed".into(), 1));
    }
    let mut desk = trying(policy());
    desk.fail("a", "flaky", "Busy").settle();
    assert_eq!(desk.tasks("a"), ["flaky 2 waiting, due 1010"]);
}

#[test]
fn g21_timeouts_of_one_attempt_are_tried_again_and_those_of_all_are_not() {
    let cases = [
        (TimeoutKind::Attempt, true),
        (TimeoutKind::Heartbeat, true),
        (TimeoutKind::Total, false),
        (TimeoutKind::Queue, false),
    ];
    for (kind, is_retried) in cases {
        let mut desk = trying(RetryPolicy::fixed(3, 10));
        let task = desk.pick_activity("a", "flaky");
        desk.bring_result(&task, Err(ActivityFailure::Timeout(kind)));
        desk.settle();
        let status = if is_retried { "running" } else { "failed" };
        assert_eq!(desk.status("a"), status, "{kind:?}");
    }
    for failure in [ActivityFailure::Cancelled, ActivityFailure::Poisoned] {
        let mut desk = trying(RetryPolicy::fixed(3, 10));
        let task = desk.pick_activity("a", "flaky");
        desk.bring_result(&task, Err(failure));
        assert_eq!(desk.settle().status("a"), "failed");
    }
}

#[test]
fn g21_no_attempt_begins_at_or_past_the_limit_of_all_of_them() {
    // The limit counts from the schedule: 1,000 + 500.
    let mut desk = trying_within(Some(RetryPolicy::fixed(100, 200)), Some(500));
    assert_eq!(desk.attempt("a", "flaky").deadline_ms, Some(1_500));
    for due_ms in [1_200, 1_400] {
        assert_eq!(fail_and_due_ms(&mut desk), due_ms);
        desk.at(due_ms).settle();
    }
    desk.fail("a", "flaky", "boom").settle();
    assert_eq!((desk.status("a"), recorded_attempts(&desk)), ("failed".into(), 3));
    assert_eq!(desk.runs().len(), 3);
}

#[test]
fn g21_an_attempt_that_was_due_during_an_outage_past_the_limit_of_all_is_not_begun() {
    let mut desk = trying_within(Some(RetryPolicy::fixed(100, 200)), Some(500));
    fail_and_due_ms(&mut desk);
    desk.crash().set_clock(60_000);
    desk.take_over().settle();
    assert_eq!(desk.runs().len(), 1, "no time is left for another attempt");
    assert_eq!(desk.status("a"), "failed");
    assert!(desk.last_lines("a", 1)[0].contains("Total"), "{:?}", desk.last_lines("a", 1));
}

#[test]
fn g21_the_limit_of_all_attempts_is_the_same_after_a_crash() {
    let mut desk = trying_within(Some(RetryPolicy::fixed(100, 200)), Some(5_000));
    fail_and_due_ms(&mut desk);
    desk.at(3_000).settle();
    desk.restart();
    assert_eq!(desk.attempt("a", "flaky").deadline_ms, Some(6_000));
}

#[test]
fn g21_retries_go_on_where_they_were_after_a_crash() {
    let mut desk = trying(RetryPolicy::fixed(3, 1_000));
    assert_eq!(fail_and_due_ms(&mut desk), 2_000);
    desk.restart();
    assert_eq!((desk.runs().len(), desk.next_wake_ms("a")), (1, Some(2_000)), "its time has not come");
    desk.at(2_000).settle();
    let task = desk.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions), (2, 0), "a task that waits is not interrupted by a crash");
    desk.fail("a", "flaky", "boom").settle();
    desk.restart();
    desk.at(3_000).settle();
    desk.fail("a", "flaky", "boom").settle();
    assert_eq!((desk.status("a"), recorded_attempts(&desk)), ("failed".into(), 3));
}

#[test]
fn g21_a_dormant_instance_is_woken_for_the_next_attempt() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut desk = Desk::with_options(handlers_and("tries", tries), options);
    let plan = Plan { retry: Some(RetryPolicy::fixed(3, 300_000)), total_ms: None };
    desk.start("tries", "a", Payload::encode(&plan).expect("a plan encodes"));
    desk.settle();
    desk.fail("a", "flaky", "boom").settle();
    assert_eq!((desk.in_memory("a"), desk.next_wake_ms("a")), (0, None), "far ahead, and gone from memory");
    desk.at(301_000).settle();
    assert_eq!(desk.attempt("a", "flaky").attempt, 2);
    desk.finish("a", "flaky", "done").settle();
    assert_eq!(desk.status("a"), "completed");
}

#[test]
fn g20_the_result_of_an_attempt_is_applied_once() {
    let mut desk = trying(RetryPolicy::fixed(3, 10));
    let first = desk.attempt("a", "flaky").clone();
    fail_and_due_ms(&mut desk);
    desk.at(1_010).settle();
    let stale = desk.counters("a").stale;
    for late in [Ok(Payload::from("late")), Err(ActivityFailure::Application("late".into()))] {
        desk.bring_result(&first, late);
        desk.settle();
    }
    assert_eq!(desk.counters("a").stale, stale + 2, "refused, and counted");
    assert_eq!(desk.tasks("a"), ["flaky 2 leased"], "attempt 2 runs on");
    let second = desk.pick_activity("a", "flaky");
    desk.bring_result(&second, Ok("done".into()));
    desk.bring_result(&second, Ok("again".into()));
    desk.settle();
    desk.bring_result(&second, Ok("again".into()));
    desk.settle();
    assert_eq!(desk.last_lines("a", 1), [r#"4 OrchestrationCompleted "done""#]);
    assert_eq!(desk.counters("a").stale, stale + 4);
}

#[test]
fn g20_a_report_of_a_stale_attempt_is_not_written() {
    let mut desk = trying(RetryPolicy::fixed(3, 10));
    let first = desk.attempt("a", "flaky").clone();
    fail_and_due_ms(&mut desk);
    desk.at(1_010).settle();
    let second = desk.pick_activity("a", "flaky");
    desk.put_back(first);
    desk.heartbeat("a", "flaky", "from the first").settle();
    assert_eq!(desk.tasks("a"), ["flaky 2 leased"]);
    desk.bring_result(&second, Ok("done".into()));
    assert_eq!(desk.settle().status("a"), "completed");
}

#[test]
fn g20_results_for_an_execution_that_continued_as_new_are_stale() {
    async fn again(ctx: OrchestrationContext, input: Payload) -> Outcome {
        let work = ctx.schedule_activity("work", ());
        if input == "first".into() {
            ctx.schedule_wait("n").await;
            ctx.continue_as_new::<()>("second").await;
        }
        work.await.map_err(|_| Payload::null())
    }
    let mut desk = Desk::new(handlers_and("again", again));
    desk.start("again", "a", "first");
    desk.settle();
    let old = desk.attempt("a", "work").clone();
    desk.raise("a", "n", "go");
    desk.settle();
    assert_eq!(desk.stops(), ["a work"]);
    assert_eq!(desk.running("a"), ["work", "work"], "the old one has not stopped yet");
    desk.bring_result(&old, Ok("of the first execution".into()));
    desk.settle();
    assert_eq!((desk.status("a"), desk.counters("a").stale), ("running".into(), 1));
    let _ = desk.pick_activity("a", "work");
    desk.finish("a", "work", "of the second").settle();
    assert_eq!(desk.last_lines("a", 1), [r#"4 OrchestrationCompleted "of the second""#]);
}

#[test]
fn g21_a_race_ends_the_retries_of_its_loser() {
    async fn race(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let flaky = ctx.schedule_activity("flaky", ()).retry(RetryPolicy::fixed(100, 10_000));
        ctx.select2(flaky, ctx.schedule_timer(secs(5))).await;
        Ok(ctx.schedule_wait("n").await)
    }
    let mut desk = Desk::new(handlers_and("race", race));
    desk.start("race", "a", ());
    desk.settle();
    desk.fail("a", "flaky", "boom").settle();
    assert_eq!(desk.tasks("a"), ["flaky 2 waiting, due 11000"]);
    desk.at(6_000).settle();
    assert!(desk.tasks("a").is_empty());
    desk.at(20_000).settle();
    assert_eq!(desk.runs().len(), 1);
}
