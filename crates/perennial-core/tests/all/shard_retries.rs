//! Retrying is the engine's work (G21), and the result of an attempt counts once (G20).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers_and, secs};
use perennial_core::shard::ShardOptions;
use perennial_core::{
    ActivityError, Backoff, Job, OrchestrationContext, PastAttempt, Payload, RetryPolicy, TimeoutKind, Trail,
};
use perennial_testkit::ManualNode;
use serde_json::json;

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

fn trying(retry: RetryPolicy) -> ManualNode {
    trying_within(Some(retry), None)
}

fn trying_within(retry: Option<RetryPolicy>, total_ms: Option<u64>) -> ManualNode {
    let mut node = ManualNode::new(handlers_and("tries", tries));
    let plan = Plan { retry, total_ms };
    node.start("tries", "a", Payload::encode(&plan).expect("a plan encodes"));
    node.settle();
    node
}

/// Fails the running attempt and returns when the next one is due.
fn fail_and_due_ms(node: &mut ManualNode) -> u64 {
    node.fail("a", "flaky", "boom").settle();
    node.row("a").wake_at_ms.expect("there is another attempt")
}

/// How many attempts the recorded completion says it took.
fn recorded_attempts(node: &ManualNode) -> u32 {
    node.jobs("a")
        .iter()
        .find_map(|job| match job {
            Job::ActivityCompleted { attempts, .. } | Job::ActivityFailed { attempts, .. } => Some(*attempts),
            _ => None,
        })
        .expect("it has completed")
}

#[test]
fn g21_fixed_pauses_are_kept_to_the_millisecond() {
    let mut node = trying(RetryPolicy::fixed(Duration::from_millis(700)).attempts(3));
    for due_ms in [1_700, 2_400] {
        assert_eq!(fail_and_due_ms(&mut node), due_ms);
        let runs = node.runs().len();
        node.at(due_ms - 1).settle();
        assert_eq!(node.runs().len(), runs, "not early");
        node.at(due_ms).settle();
        assert_eq!(node.runs().len(), runs + 1, "not late");
    }
    assert_eq!(node.attempt("a", "flaky").attempt, 3);
}

#[test]
fn g21_linear_and_exponential_pauses_grow_up_to_their_longest() {
    let exponential = RetryPolicy {
        max_attempts: 5,
        backoff: Backoff::Exponential {
            first: Duration::from_millis(100),
            factor_percent: 300,
            max: Duration::from_millis(1_000),
        },
        jitter_percent: 0,
        non_retryable: Vec::new(),
    };
    let cases = [
        (
            RetryPolicy::linear(Duration::from_millis(100), Duration::from_millis(250)).attempts(5),
            [100, 200, 250, 250],
        ),
        (exponential, [100, 300, 900, 1_000]),
    ];
    for (policy, pauses) in cases {
        let mut node = trying(policy);
        for pause_ms in pauses {
            let failed_ms = node.now_ms();
            let due_ms = fail_and_due_ms(&mut node);
            assert_eq!(due_ms - failed_ms, pause_ms);
            node.at(due_ms).settle();
        }
        node.fail("a", "flaky", "boom").settle();
        assert_eq!((node.status("a"), recorded_attempts(&node)), ("failed".into(), 5));
    }
}

#[test]
fn g21_jitter_stays_within_its_share_and_strays() {
    let mut node = trying(RetryPolicy::fixed(Duration::from_secs(1)).attempts(100).jitter(20));
    let mut pauses = Vec::new();
    for _ in 0..30 {
        let failed_ms = node.now_ms();
        let due_ms = fail_and_due_ms(&mut node);
        pauses.push(due_ms - failed_ms);
        node.at(due_ms).settle();
    }
    assert!(pauses.iter().all(|pause_ms| (800..=1_200).contains(pause_ms)), "{pauses:?}");
    assert!(pauses.iter().min() < pauses.iter().max(), "{pauses:?}");
}

#[test]
fn g21_the_completion_records_how_many_attempts_it_took() {
    let mut node = trying(RetryPolicy::fixed(Duration::from_millis(10)).attempts(5));
    for _ in 0..2 {
        let due_ms = fail_and_due_ms(&mut node);
        node.at(due_ms).settle();
    }
    node.finish("a", "flaky", "done").settle();
    assert_eq!((node.status("a"), recorded_attempts(&node)), ("completed".into(), 3));
    assert!(node.tasks("a").is_empty());
}

#[test]
fn g21_without_a_policy_the_first_failure_is_final() {
    let mut node = trying_within(None, None);
    node.fail("a", "flaky", "boom").settle();
    assert_eq!((node.status("a"), recorded_attempts(&node)), ("failed".into(), 1));
}

#[test]
fn g21_a_listed_kind_of_error_is_final() {
    let policy = || RetryPolicy::fixed(Duration::from_millis(10)).attempts(5).non_retryable(["Declined"]);
    let cases = [json!("Declined"), json!({"kind": "Declined"}), json!({"Declined": 1})];
    for error in cases {
        let mut node = trying(policy());
        node.fail("a", "flaky", Payload::from(error)).settle();
        assert_eq!((node.status("a"), recorded_attempts(&node)), ("failed".into(), 1));
    }
    let mut node = trying(policy());
    node.fail("a", "flaky", "Busy").settle();
    assert_eq!(node.tasks("a"), ["flaky 2 waiting, due 1010"]);
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
        let mut node = trying(RetryPolicy::fixed(Duration::from_millis(10)).attempts(3));
        let task = node.pick_activity("a", "flaky");
        node.bring_result(&task, Err(ActivityError::Timeout(kind)));
        node.settle();
        let status = if is_retried { "running" } else { "failed" };
        assert_eq!(node.status("a"), status, "{kind:?}");
    }
    for failure in [ActivityError::Cancelled, ActivityError::Poisoned] {
        let mut node = trying(RetryPolicy::fixed(Duration::from_millis(10)).attempts(3));
        let task = node.pick_activity("a", "flaky");
        node.bring_result(&task, Err(failure));
        assert_eq!(node.settle().status("a"), "failed");
    }
}

#[test]
fn g21_no_attempt_begins_at_or_past_the_limit_of_all_of_them() {
    // The limit counts from the schedule: 1,000 + 500.
    let mut node =
        trying_within(Some(RetryPolicy::fixed(Duration::from_millis(200)).attempts(100)), Some(500));
    assert_eq!(node.attempt("a", "flaky").deadline_ms, Some(1_500));
    for due_ms in [1_200, 1_400] {
        assert_eq!(fail_and_due_ms(&mut node), due_ms);
        node.at(due_ms).settle();
    }
    node.fail("a", "flaky", "boom").settle();
    assert_eq!((node.status("a"), recorded_attempts(&node)), ("failed".into(), 3));
    assert_eq!(node.runs().len(), 3);
}

#[test]
fn g21_an_attempt_that_was_due_during_an_outage_past_the_limit_of_all_is_not_begun() {
    let mut node =
        trying_within(Some(RetryPolicy::fixed(Duration::from_millis(200)).attempts(100)), Some(500));
    fail_and_due_ms(&mut node);
    node.crash().set_clock(60_000);
    node.take_over().settle();
    assert_eq!(node.runs().len(), 1, "no time is left for another attempt");
    assert_eq!(node.status("a"), "failed");
    assert!(node.last_lines("a", 1)[0].contains("Total"), "{:?}", node.last_lines("a", 1));
}

#[test]
fn g21_the_limit_of_all_attempts_is_the_same_after_a_crash() {
    let mut node =
        trying_within(Some(RetryPolicy::fixed(Duration::from_millis(200)).attempts(100)), Some(5_000));
    fail_and_due_ms(&mut node);
    node.at(3_000).settle();
    node.restart();
    assert_eq!(node.attempt("a", "flaky").deadline_ms, Some(6_000));
}

#[test]
fn g21_retries_go_on_where_they_were_after_a_crash() {
    let mut node = trying(RetryPolicy::fixed(Duration::from_secs(1)).attempts(3));
    assert_eq!(fail_and_due_ms(&mut node), 2_000);
    node.restart();
    assert_eq!((node.runs().len(), node.next_wake_ms("a")), (1, Some(2_000)), "its time has not come");
    node.at(2_000).settle();
    let task = node.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions), (2, 0), "a task that waits is not interrupted by a crash");
    node.fail("a", "flaky", "boom").settle();
    node.restart();
    node.at(3_000).settle();
    node.fail("a", "flaky", "boom").settle();
    assert_eq!((node.status("a"), recorded_attempts(&node)), ("failed".into(), 3));
}

#[test]
fn g21_a_dormant_instance_is_woken_for_the_next_attempt() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("tries", tries), options);
    let plan = Plan { retry: Some(RetryPolicy::fixed(Duration::from_secs(300)).attempts(3)), total_ms: None };
    node.start("tries", "a", Payload::encode(&plan).expect("a plan encodes"));
    node.settle();
    node.fail("a", "flaky", "boom").settle();
    assert_eq!((node.in_memory("a"), node.next_wake_ms("a")), (0, None), "far ahead, and gone from memory");
    node.at(301_000).settle();
    assert_eq!(node.attempt("a", "flaky").attempt, 2);
    node.finish("a", "flaky", "done").settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g20_the_result_of_an_attempt_is_applied_once() {
    let mut node = trying(RetryPolicy::fixed(Duration::from_millis(10)).attempts(3));
    let first = node.attempt("a", "flaky").clone();
    fail_and_due_ms(&mut node);
    node.at(1_010).settle();
    let stale = node.counters("a").stale;
    for late in [Ok(Payload::from("late")), Err(ActivityError::Application("late".into()))] {
        node.bring_result(&first, late);
        node.settle();
    }
    assert_eq!(node.counters("a").stale, stale + 2, "refused, and counted");
    assert_eq!(node.tasks("a"), ["flaky 2 leased"], "attempt 2 runs on");
    let second = node.pick_activity("a", "flaky");
    node.bring_result(&second, Ok("done".into()));
    node.bring_result(&second, Ok("again".into()));
    node.settle();
    node.bring_result(&second, Ok("again".into()));
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"4 OrchestrationCompleted "done""#]);
    assert_eq!(node.counters("a").stale, stale + 4);
}

#[test]
fn g20_a_report_of_a_stale_attempt_is_not_written() {
    let mut node = trying(RetryPolicy::fixed(Duration::from_millis(10)).attempts(3));
    let first = node.attempt("a", "flaky").clone();
    fail_and_due_ms(&mut node);
    node.at(1_010).settle();
    let second = node.pick_activity("a", "flaky");
    node.put_back(first);
    node.heartbeat("a", "flaky", "from the first").settle();
    assert_eq!(node.tasks("a"), ["flaky 2 leased"]);
    node.bring_result(&second, Ok("done".into()));
    assert_eq!(node.settle().status("a"), "completed");
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
    let mut node = ManualNode::new(handlers_and("again", again));
    node.start("again", "a", "first");
    node.settle();
    let old = node.attempt("a", "work").clone();
    node.raise("a", "n", "go");
    node.settle();
    assert_eq!(node.stops(), ["a work"]);
    assert_eq!(node.running("a"), ["work", "work"], "the old one has not stopped yet");
    node.bring_result(&old, Ok("of the first execution".into()));
    node.settle();
    assert_eq!((node.status("a"), node.counters("a").stale), ("running".into(), 1));
    let _ = node.pick_activity("a", "work");
    node.finish("a", "work", "of the second").settle();
    assert_eq!(node.last_lines("a", 1), [r#"4 OrchestrationCompleted "of the second""#]);
}

#[test]
fn g21_a_race_ends_the_retries_of_its_loser() {
    async fn race(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let flaky = ctx
            .schedule_activity("flaky", ())
            .retry(RetryPolicy::fixed(Duration::from_secs(10)).attempts(100));
        ctx.select2(flaky, ctx.schedule_timer(secs(5))).await;
        Ok(ctx.schedule_wait("n").await)
    }
    let mut node = ManualNode::new(handlers_and("race", race));
    node.start("race", "a", ());
    node.settle();
    node.fail("a", "flaky", "boom").settle();
    assert_eq!(node.tasks("a"), ["flaky 2 waiting, due 11000"]);
    node.at(6_000).settle();
    assert!(node.tasks("a").is_empty());
    node.at(20_000).settle();
    assert_eq!(node.runs().len(), 1);
}

fn trail(node: &ManualNode) -> Trail {
    node.jobs("a")
        .iter()
        .rev()
        .find_map(|job| match job {
            Job::ActivityCompleted { trail, .. } | Job::ActivityFailed { trail, .. } => Some(trail.clone()),
            _ => None,
        })
        .expect("its activity has ended")
}

#[test]
fn h39_a_result_says_when_each_attempt_was_queued_began_and_ended_and_how_it_failed() {
    let mut node = trying(RetryPolicy::fixed(Duration::from_millis(700)).attempts(3));
    node.at(1_300);
    assert_eq!(fail_and_due_ms(&mut node), 2_000);
    let past = node.tables().tasks.values().next().expect("a retry waits").past.clone();
    assert_eq!(past.iter().map(|at| (at.began_ms, at.ended_ms)).collect::<Vec<_>>(), [(1_000, 1_300)]);
    assert!(past.iter().all(|at| at.error.is_some()), "{past:?}");
    node.crash().take_over().settle();
    node.at(2_050).settle();
    node.at(2_100);
    node.finish("a", "flaky", "1").settle();
    let trail = trail(&node);
    let times: Vec<_> = trail.iter().map(|at| (at.queued_ms, at.began_ms, at.ended_ms)).collect();
    assert_eq!(times, [(1_000, 1_000, 1_300), (2_000, 2_050, 2_100)]);
    let failed: Vec<bool> = trail.iter().map(|at| at.error.is_some()).collect();
    assert_eq!((failed, trail.iter().all(|at| at.node.is_none())), (vec![true, false], true));
}

#[test]
fn h39_a_step_that_succeeds_at_once_grows_by_64_bytes_at_most() {
    let late = PastAttempt::new(1_700_000_000_000, 1_700_000_999_999, 1_700_999_999_999);
    let job = |trail| Job::ActivityCompleted {
        source_event_id: perennial_core::EventId(2),
        result: "1".into(),
        attempts: 1,
        trail,
    };
    let size = |job: &Job| serde_json::to_vec(job).expect("a job is JSON").len();
    let grown = size(&job(Trail::default().and(late))) - size(&job(Trail::default()));
    assert!(grown <= 64, "{grown} bytes");
}
