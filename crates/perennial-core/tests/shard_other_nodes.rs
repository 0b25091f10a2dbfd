//! What the owner cannot run is queued for other nodes, and what they do comes back through the inbox (G20, G22, G23).

mod shard_cases;

use std::sync::Arc;
use std::time::Duration;

use perennial_core::shard::ShardOptions;
use perennial_core::store::TaskRenewal;
use perennial_core::{ActivityFailure, Job, OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers_and, secs};

fn shown(result: Result<Payload, ActivityFailure>) -> Outcome {
    result.map_err(|failure| Payload::from(format!("{failure:?}")))
}

/// An activity `remote`, tagged, with three attempts; ends with what came of it.
async fn remote(ctx: OrchestrationContext, _: Payload) -> Outcome {
    shown(ctx.schedule_activity("remote", "in").tag("gpu").retry(RetryPolicy::fixed(3, 1_000)).await)
}

/// The same, with 10 s in the queue and 30 s in all.
async fn hurried(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let remote = ctx.schedule_activity("remote", "in").tag("gpu");
    shown(remote.queue_timeout(secs(10)).total_timeout(secs(30)).await)
}

fn without_gpu() -> ShardOptions {
    ShardOptions {
        served: Some(Arc::new(Desk::served(&["remote", "local"], &[]))),
        ..ShardOptions::default()
    }
}

fn desk_with(options: ShardOptions) -> Desk {
    Desk::with_options(handlers_and("remote", remote).with("hurried", Desk::VERSION, hurried), options)
}

fn queued(name: &str) -> Desk {
    let mut desk = desk_with(without_gpu());
    desk.start(name, "a", ());
    desk.settle();
    desk
}

#[test]
fn g22_what_this_node_cannot_run_is_queued_with_the_turn_that_schedules_it() {
    let mut desk = queued("remote");
    assert_eq!(desk.writes("a"), ["insert running, turn 1, put remote 1 queued"], "and nothing is owed");
    assert!(desk.runs().is_empty());
    desk.restart();
    assert_eq!((desk.runs().len(), desk.tasks("a")), (0, vec!["remote 1 queued".to_owned()]));
}

#[test]
fn g22_a_name_that_is_not_registered_here_is_queued() {
    async fn unknown(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let local = ctx.schedule_activity("local", ());
        let unknown = ctx.schedule_activity("unknown", ());
        shown(ctx.join2(local, unknown).await.1)
    }
    let mut desk = Desk::with_options(handlers_and("unknown", unknown), without_gpu());
    desk.start("unknown", "a", ());
    desk.settle();
    assert_eq!((desk.running("a"), desk.tasks("a")), (vec!["local".into()], vec!["unknown 1 queued".into()]));
    assert!(desk.row("a").owed, "the local one is");
    desk.finish("a", "local", "1").settle();
    assert!(!desk.row("a").owed);
}

#[test]
fn g22_the_result_of_another_node_is_taken_once_and_the_row_goes_with_it() {
    let mut desk = queued("remote");
    let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    assert_eq!(desk.tasks("a"), ["remote 1 leased, due 61000"]);
    assert!(desk.finish_task(&task, Ok("done".into())));
    assert!(!desk.finish_task(&task, Ok("again".into())), "it is no longer the holder's");
    assert_eq!((desk.tasks("a").len(), desk.inbox("a")), (0, vec!["Attempt 1 of 2".to_owned()]));
    desk.pass_inbox().pass_inbox().settle();
    assert_eq!(
        desk.last_lines("a", 2),
        [r#"3 ActivityCompleted of 2 "done""#, r#"4 OrchestrationCompleted "done""#]
    );
    assert_eq!((desk.inbox("a").len(), desk.runs().len()), (0, 0));
}

#[test]
fn g22_a_crash_between_another_nodes_result_and_its_turn_loses_and_repeats_nothing() {
    let mut desk = queued("remote");
    let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    desk.finish_task(&task, Ok("done".into()));
    desk.restart();
    assert_eq!((desk.status("a"), desk.runs().len()), ("completed".into(), 0));
}

#[test]
fn g15_results_of_other_nodes_that_do_not_fit_into_a_turn_are_consumed_by_the_turn_that_applies_them() {
    async fn two(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let both = ["one", "two"].map(|name| ctx.schedule_activity(name, ()).tag("gpu"));
        let results = ctx.try_join(both).await.map_err(|_| Payload::null())?;
        Ok(Payload::encode(&results).expect("payloads encode"))
    }
    let mut options = without_gpu();
    options.execution.limits.turn_bytes = 3_000;
    let mut desk = Desk::with_options(handlers_and("two", two), options);
    desk.start("two", "a", ());
    desk.settle();
    for task in desk.take_tasks(&["one", "two"], 60_000) {
        desk.finish_task(&task, Ok("x".repeat(1_000).into()));
    }
    desk.pass_inbox();
    desk.take_turns();
    desk.commit();
    assert_eq!(desk.inbox("a"), ["Attempt 1 of 3"], "the second waits for its own turn");
    desk.restart();
    assert_eq!((desk.status("a"), desk.runs().len()), ("completed".into(), 0), "nothing was lost");
}

#[test]
fn g20_a_result_of_another_node_for_an_earlier_execution_is_counted_and_dropped() {
    async fn again(ctx: OrchestrationContext, input: Payload) -> Outcome {
        let remote = ctx.schedule_activity("remote", ()).tag("gpu");
        if input == "first".into() {
            ctx.schedule_wait("n").await;
            ctx.continue_as_new::<()>("second").await;
        }
        shown(remote.await)
    }
    let mut desk = Desk::with_options(handlers_and("again", again), without_gpu());
    desk.start("again", "a", "first");
    desk.settle();
    let old = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    desk.raise("a", "n", "go");
    desk.settle();
    assert_eq!(desk.renew_task(old.id, None, 60_000), TaskRenewal::Cancelled);
    desk.finish_task(&old, Ok("of the first".into()));
    desk.pass_inbox().settle();
    assert_eq!((desk.status("a"), desk.counters("a").stale, desk.inbox("a").len()), ("running".into(), 1, 0));
    let new = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    desk.finish_task(&new, Ok("of the second".into()));
    desk.pass_inbox().settle();
    assert_eq!(desk.last_lines("a", 1), [r#"4 OrchestrationCompleted "of the second""#]);
}

#[test]
fn g21_a_failure_on_another_node_is_tried_again_there() {
    let mut desk = queued("remote");
    for attempt in 1..=3 {
        let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        assert_eq!(task.attempt, attempt);
        desk.finish_task(&task, Err(ActivityFailure::Application("boom".into())));
        desk.pass_inbox().settle();
        desk.at(1_000 + u64::from(attempt) * 1_000).settle();
    }
    assert!(desk.take_tasks(&["remote"], 60_000).is_empty());
    assert!(matches!(desk.jobs("a").as_slice(), [Job::ActivityFailed { attempts: 3, .. }]));
    assert!(desk.runs().is_empty());
}

#[test]
fn g21_a_retry_on_another_node_is_not_taken_before_its_pause_is_over() {
    let mut desk = queued("remote");
    let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    desk.finish_task(&task, Err(ActivityFailure::Application("boom".into())));
    desk.pass_inbox().settle();
    assert!(desk.take_tasks(&["remote"], 60_000).is_empty(), "it pauses until 2000: {:?}", desk.tasks("a"));
    desk.at(2_000).settle();
    assert_eq!(desk.take_tasks(&["remote"], 60_000).len(), 1);
}

#[test]
fn g7_an_unknown_commit_of_another_nodes_failure_counts_it_once() {
    for is_written in [true, false] {
        let mut desk = queued("remote");
        let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        desk.finish_task(&task, Err(ActivityFailure::Application("boom".into())));
        desk.pass_inbox();
        desk.take_turns();
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        desk.settle();
        desk.at(2_000).settle();
        let again = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued again");
        assert_eq!((again.attempt, again.interruptions, desk.runs().len()), (2, 0, 0), "{is_written}");
    }
}

#[test]
fn g21_what_waits_too_long_in_the_queue_fails() {
    let mut desk = queued("hurried");
    assert_eq!(
        (desk.tasks("a"), desk.row("a").wake_at_ms),
        (vec!["remote 1 queued, due 11000".into()], Some(11_000))
    );
    desk.at(10_999).settle();
    assert_eq!(desk.status("a"), "running");
    desk.at(11_000).settle();
    assert_eq!(desk.last_lines("a", 2)[0], "3 ActivityFailed of 2 Timeout(Queue)");
    assert!(desk.tasks("a").is_empty());
}

#[test]
fn g21_a_task_that_another_node_took_in_time_does_not_time_out_in_the_queue() {
    for is_dormant in [false, true] {
        let mut desk = queued("hurried");
        if is_dormant {
            desk.crash();
        }
        desk.set_clock(5_000);
        let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        desk.at(11_000).settle();
        assert_eq!(desk.status("a"), "running", "it runs elsewhere; dormant: {is_dormant}");
        assert!(desk.finish_task(&task, Ok("done".into())));
        desk.pass_inbox().settle();
        assert_eq!(desk.status("a"), "completed");
    }
}

#[test]
fn g22_a_lease_that_ran_out_is_an_interruption_and_the_task_is_taken_again() {
    for is_dormant in [false, true] {
        let mut desk = queued("remote");
        let lost = desk.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
        if is_dormant {
            desk.crash().take_over().settle();
        }
        desk.at(30_999).settle();
        assert!(desk.take_tasks(&["remote"], 30_000).is_empty(), "its holder may be alive");
        desk.at(31_000).settle();
        assert!(desk.runs().is_empty(), "this node cannot run it");
        let again = desk.take_tasks(&["remote"], 30_000).pop().expect("its lease has run out");
        assert_eq!((again.attempt, again.interruptions), (1, 1));
        desk.finish_task(&again, Ok("done".into()));
        assert!(!desk.finish_task(&lost, Ok("late".into())), "the late result is refused");
        desk.pass_inbox().settle();
        assert_eq!(desk.status("a"), "completed");
    }
}

#[test]
fn g22_what_a_former_owner_ran_and_this_one_cannot_is_queued() {
    let mut desk = desk_with(ShardOptions::default());
    desk.start("remote", "a", ());
    desk.settle();
    assert_eq!(desk.running("a"), ["remote"]);
    desk.set_options(without_gpu()).restart();
    assert_eq!((desk.runs().len(), desk.tasks("a")), (1, vec!["remote 1 queued, interrupted 1".to_owned()]));
    assert_eq!(desk.take_tasks(&["remote"], 30_000).len(), 1);
}

#[test]
fn g22_a_retry_that_a_former_owner_left_and_this_one_cannot_run_is_queued() {
    let mut desk = desk_with(ShardOptions::default());
    desk.start("remote", "a", ());
    desk.settle();
    desk.fail("a", "remote", "boom").settle();
    desk.set_options(without_gpu()).restart();
    desk.at(2_000).settle();
    assert_eq!((desk.runs().len(), desk.tasks("a")), (1, vec!["remote 2 queued".to_owned()]));
}

#[test]
fn g22_what_is_queued_is_taken_from_the_store_by_whoever_can_run_it_its_owner_too() {
    let mut desk = queued("remote");
    desk.set_options(ShardOptions::default()).crash().take_over().settle();
    desk.bring_owed("a", desk.row("a").key);
    desk.settle();
    assert!(desk.running("a").is_empty(), "there is one way to what is queued");
    let task = desk.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!((task.attempt, task.interruptions), (1, 0), "it never ran before");
}

#[test]
fn g23_a_task_that_another_node_runs_is_marked_when_nobody_waits_for_it() {
    async fn race(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let remote = ctx.schedule_activity("remote", ()).tag("gpu");
        ctx.select2(remote, ctx.schedule_timer(Duration::from_secs(5))).await;
        Ok(ctx.schedule_wait("n").await)
    }
    let mut desk = Desk::with_options(handlers_and("race", race), without_gpu());
    desk.start("race", "a", ());
    desk.settle();
    let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    desk.at(6_000).settle();
    assert_eq!(desk.tasks("a"), ["remote 1 leased, due 61000, cancelled"]);
    assert_eq!(desk.renew_task(task.id, None, 60_000), TaskRenewal::Cancelled);
    desk.give_back_task(task.id);
    assert!(desk.tasks("a").is_empty());
    let mut desk = Desk::with_options(handlers_and("race", race), without_gpu());
    desk.start("race", "a", ());
    desk.settle();
    desk.at(6_000).settle();
    assert!(desk.tasks("a").is_empty(), "nobody had taken it: its row goes");
}

#[test]
fn g22_details_of_another_node_survive_its_end() {
    let mut desk = queued("remote");
    let task = desk.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!(desk.renew_task(task.id, Some("page 1".into()), 30_000), TaskRenewal::Kept);
    desk.give_back_task(task.id);
    let again = desk.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!((again.details.clone(), again.interruptions), (Some("page 1".into()), 0));
    desk.finish_task(&again, Err(ActivityFailure::Application("boom".into())));
    desk.pass_inbox().settle();
    desk.at(2_000).settle();
    let third = desk.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!((third.attempt, third.details), (2, Some("page 1".into())));
}

#[test]
fn g21_all_of_the_time_is_over_for_a_task_whose_takers_are_gone() {
    for is_given_back in [false, true] {
        let mut desk = queued("hurried");
        let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        if is_given_back {
            desk.give_back_task(task.id);
        }
        desk.at(29_999).settle();
        assert_eq!(desk.tasks("a").len(), 1, "it has until 31000");
        desk.at(31_000).settle();
        assert_eq!(desk.last_lines("a", 2)[0], "3 ActivityFailed of 2 Timeout(Total)");
        let left = if is_given_back { TaskRenewal::Gone } else { TaskRenewal::Cancelled };
        assert_eq!(desk.renew_task(task.id, None, 60_000), left);
    }
}

#[test]
fn g21_a_question_does_not_time_out_what_another_node_took_from_the_queue_in_time() {
    let mut desk = queued("hurried");
    let task = desk.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    desk.hold_back();
    desk.set_clock(12_000);
    let asked = desk.query("a", "unknown", ());
    desk.settle();
    assert!(desk.told(asked).starts_with("refused"), "{}", desk.told(asked));
    assert_eq!(desk.status("a"), "running", "what is in memory is not what is stored");
    let refreshed = desk.read_refreshes();
    refreshed.into_iter().for_each(|refreshed| desk.bring_refreshed(refreshed));
    desk.settle();
    desk.finish_task(&task, Ok("done".into()));
    desk.pass_inbox().settle();
    assert_eq!(desk.status("a"), "completed");
}

#[test]
fn g21_a_second_look_that_is_older_than_a_queued_task_does_not_forget_its_time() {
    async fn two(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let remote = |input: &str| {
            ctx.schedule_activity("remote", input.to_owned()).tag("gpu").queue_timeout(secs(10))
        };
        let first = remote("1");
        ctx.schedule_wait("n").await;
        let (first, second) = ctx.join2(first, remote("2")).await;
        Ok(Payload::from(format!("{first:?}, {second:?}")))
    }
    let mut desk = Desk::with_options(handlers_and("two", two), without_gpu());
    desk.start("two", "a", ());
    desk.settle();
    let taken = desk.take_tasks(&["remote"], 600_000).pop().expect("it is queued");
    desk.hold_back().at(20_000);
    let before = desk.read_refreshes().pop().expect("whether it was taken is looked up");
    desk.raise("a", "n", "go");
    desk.settle();
    desk.bring_refreshed(before);
    desk.settle();
    assert_eq!(desk.tasks("a").len(), 2);
    desk.at(30_000).settle();
    let refreshed = desk.read_refreshes();
    refreshed.into_iter().for_each(|refreshed| desk.bring_refreshed(refreshed));
    desk.settle();
    assert!(desk.last_lines("a", 1)[0].contains("ActivityFailed of 5"), "{:?}", desk.last_lines("a", 1));
    desk.finish_task(&taken, Ok("done".into()));
    desk.pass_inbox().settle();
    assert_eq!(desk.status("a"), "completed");
}
