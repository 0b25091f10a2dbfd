//! What the owner cannot run is queued for other nodes, and what they do comes back through the inbox (G20, G22, G23).

use std::sync::Arc;
use std::time::Duration;

use crate::shard_cases::{Outcome, handlers_and, secs};
use perennial_core::shard::ShardOptions;
use perennial_core::store::{SessionId, TaskRenewal};
use perennial_core::{ActivityError, Job, OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::ManualNode;

fn shown(result: Result<Payload, ActivityError>) -> Outcome {
    result.map_err(|failure| Payload::from(format!("{failure:?}")))
}

/// An activity `remote`, tagged, with three attempts; ends with what came of it.
async fn remote(ctx: OrchestrationContext, _: Payload) -> Outcome {
    shown(
        ctx.schedule_activity("remote", "in")
            .tag("gpu")
            .retry(RetryPolicy::fixed(Duration::from_secs(1)).attempts(3))
            .await,
    )
}

/// The same, with 10 s in the queue and 30 s in all.
async fn hurried(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let remote = ctx.schedule_activity("remote", "in").tag("gpu");
    shown(remote.queue_timeout(secs(10)).total_timeout(secs(30)).await)
}

fn without_gpu() -> ShardOptions {
    ShardOptions {
        served: Some(Arc::new(ManualNode::served(&["remote", "local"], &[]))),
        ..ShardOptions::default()
    }
}

fn desk_with(options: ShardOptions) -> ManualNode {
    ManualNode::with_options(
        handlers_and("remote", remote).with("hurried", ManualNode::VERSION, hurried),
        options,
    )
}

fn queued(name: &str) -> ManualNode {
    let mut node = desk_with(without_gpu());
    node.start(name, "a", ());
    node.settle();
    node
}

#[test]
fn g22_what_this_node_cannot_run_is_queued_with_the_turn_that_schedules_it() {
    let mut node = queued("remote");
    assert_eq!(node.writes("a"), ["insert running, turn 1, put remote 1 queued"], "and nothing is owed");
    assert!(node.runs().is_empty());
    node.restart();
    assert_eq!((node.runs().len(), node.tasks("a")), (0, vec!["remote 1 queued".to_owned()]));
}

#[test]
fn h39_a_result_of_another_node_says_which_node_made_it() {
    let mut node = queued("remote");
    let first = node.take_tasks(&["remote"], 10_000);
    node.finish_task(&first[0], Err(ActivityError::Application("no".into())));
    node.pass_inbox().settle();
    node.at(2_000).settle();
    let second = node.take_tasks(&["remote"], 10_000);
    node.finish_task(&second[0], Ok("yes".into()));
    node.pass_inbox().settle();
    let jobs = node.jobs("a");
    let [Job::ActivityCompleted { trail, .. }] = &jobs[..] else { panic!("{jobs:?}") };
    let places: Vec<Option<&str>> = trail.iter().map(|attempt| attempt.node.as_deref()).collect();
    assert_eq!(places, [Some("worker"), Some("worker")]);
}

#[test]
fn g22_a_name_that_is_not_registered_here_is_queued() {
    async fn unknown(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let local = ctx.schedule_activity("local", ());
        let unknown = ctx.schedule_activity("unknown", ());
        shown(ctx.join2(local, unknown).await.1)
    }
    let mut node = ManualNode::with_options(handlers_and("unknown", unknown), without_gpu());
    node.start("unknown", "a", ());
    node.settle();
    assert_eq!((node.running("a"), node.tasks("a")), (vec!["local".into()], vec!["unknown 1 queued".into()]));
    assert!(node.row("a").owed, "the local one is");
    node.finish("a", "local", "1").settle();
    assert!(!node.row("a").owed);
}

#[test]
fn g21_a_failed_attempt_elsewhere_counts_once_though_the_turn_that_takes_it_fails() {
    async fn broken(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _remote = ctx
            .schedule_activity("remote", "in")
            .tag("gpu")
            .retry(RetryPolicy::fixed(Duration::from_secs(100)).attempts(3));
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    }
    async fn cured(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _remote = ctx
            .schedule_activity("remote", "in")
            .tag("gpu")
            .retry(RetryPolicy::fixed(Duration::from_secs(100)).attempts(3));
        Ok(ctx.schedule_wait("n").await)
    }
    let mut node = ManualNode::with_options(handlers_and("turns", broken), without_gpu());
    node.start("turns", "a", ());
    node.settle();
    let task = node.take_tasks(&["remote"], 5_000).pop().expect("it is queued");
    assert!(node.finish_task(&task, Err(ActivityError::Application("no".into()))));
    node.send_event("a", "n", "1");
    // Whoever loads it finds both messages, and delivers them together.
    node.restart();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running, blocked: PER-0201".into(), 2));
    assert_eq!(node.tasks("a"), ["remote 2 waiting, due 101000"]);
    node.replace_code(handlers_and("turns", cured)).restart();
    assert_eq!((node.status("a"), node.tasks("a")), ("completed".into(), Vec::new()));
}

#[test]
fn e3_a_task_that_another_node_cannot_read_is_queued_again_with_its_attempt() {
    let mut node = queued("remote");
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    assert!(node.finish_task(&task, Err(ActivityError::Application("1".into()))));
    node.pass_inbox().settle();
    node.at(2_000).settle();
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("its second attempt is queued");
    assert!(node.cannot_read_task(&task));
    assert_eq!((node.tasks("a").len(), node.inbox("a")), (0, vec!["Requeue 2 of 2".to_owned()]));
    node.restart();
    assert_eq!((node.tasks("a"), node.inbox("a").len()), (vec!["remote 2 queued".to_owned()], 0));
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    assert!(node.finish_task(&task, Ok("done".into())));
    node.pass_inbox().settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g22_the_result_of_another_node_is_taken_once_and_the_row_goes_with_it() {
    let mut node = queued("remote");
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    assert_eq!(node.tasks("a"), ["remote 1 leased, due 61000"]);
    assert!(node.finish_task(&task, Ok("done".into())));
    assert!(!node.finish_task(&task, Ok("again".into())), "it is no longer the holder's");
    assert_eq!((node.tasks("a").len(), node.inbox("a")), (0, vec!["Attempt 1 of 2".to_owned()]));
    node.pass_inbox().pass_inbox().settle();
    assert_eq!(
        node.last_lines("a", 2),
        [r#"3 ActivityCompleted of 2 "done""#, r#"4 OrchestrationCompleted "done""#]
    );
    assert_eq!((node.inbox("a").len(), node.runs().len()), (0, 0));
}

#[test]
fn g22_a_crash_between_another_nodes_result_and_its_turn_loses_and_repeats_nothing() {
    let mut node = queued("remote");
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    node.finish_task(&task, Ok("done".into()));
    node.restart();
    assert_eq!((node.status("a"), node.runs().len()), ("completed".into(), 0));
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
    let mut node = ManualNode::with_options(handlers_and("two", two), options);
    node.start("two", "a", ());
    node.settle();
    for task in node.take_tasks(&["one", "two"], 60_000) {
        node.finish_task(&task, Ok("x".repeat(1_000).into()));
    }
    node.pass_inbox();
    node.take_turns();
    node.commit();
    assert_eq!(node.inbox("a"), ["Attempt 1 of 3"], "the second waits for its own turn");
    node.restart();
    assert_eq!((node.status("a"), node.runs().len()), ("completed".into(), 0), "nothing was lost");
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
    let mut node = ManualNode::with_options(handlers_and("again", again), without_gpu());
    node.start("again", "a", "first");
    node.settle();
    let old = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    node.raise("a", "n", "go");
    node.settle();
    assert_eq!(node.renew_task(old.id, None, 60_000), TaskRenewal::Cancelled);
    node.finish_task(&old, Ok("of the first".into()));
    node.pass_inbox().settle();
    assert_eq!((node.status("a"), node.counters("a").stale, node.inbox("a").len()), ("running".into(), 1, 0));
    let new = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    node.finish_task(&new, Ok("of the second".into()));
    node.pass_inbox().settle();
    assert_eq!(node.last_lines("a", 1), [r#"4 OrchestrationCompleted "of the second""#]);
}

#[test]
fn g21_a_failure_on_another_node_is_tried_again_there() {
    let mut node = queued("remote");
    for attempt in 1..=3 {
        let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        assert_eq!(task.attempt, attempt);
        node.finish_task(&task, Err(ActivityError::Application("boom".into())));
        node.pass_inbox().settle();
        node.at(1_000 + u64::from(attempt) * 1_000).settle();
    }
    assert!(node.take_tasks(&["remote"], 60_000).is_empty());
    assert!(matches!(node.jobs("a").as_slice(), [Job::ActivityFailed { attempts: 3, .. }]));
    assert!(node.runs().is_empty());
}

#[test]
fn g21_a_retry_on_another_node_is_not_taken_before_its_pause_is_over() {
    let mut node = queued("remote");
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    node.finish_task(&task, Err(ActivityError::Application("boom".into())));
    node.pass_inbox().settle();
    assert!(node.take_tasks(&["remote"], 60_000).is_empty(), "it pauses until 2000: {:?}", node.tasks("a"));
    node.at(2_000).settle();
    assert_eq!(node.take_tasks(&["remote"], 60_000).len(), 1);
}

#[test]
fn g7_an_unknown_commit_of_another_nodes_failure_counts_it_once() {
    for is_written in [true, false] {
        let mut node = queued("remote");
        let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        node.finish_task(&task, Err(ActivityError::Application("boom".into())));
        node.pass_inbox();
        node.take_turns();
        node.commit_unknown(is_written);
        node.settle_unknown();
        node.settle();
        node.at(2_000).settle();
        let again = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued again");
        assert_eq!((again.attempt, again.interruptions, node.runs().len()), (2, 0, 0), "{is_written}");
    }
}

#[test]
fn g21_what_waits_too_long_in_the_queue_fails() {
    let mut node = queued("hurried");
    assert_eq!(
        (node.tasks("a"), node.row("a").wake_at_ms),
        (vec!["remote 1 queued, due 11000".into()], Some(11_000))
    );
    node.at(10_999).settle();
    assert_eq!(node.status("a"), "running");
    node.at(11_000).settle();
    assert_eq!(node.last_lines("a", 2)[0], "3 ActivityFailed of 2 Timeout(Queue)");
    assert!(node.tasks("a").is_empty());
}

#[test]
fn g21_a_task_that_another_node_took_in_time_does_not_time_out_in_the_queue() {
    for is_dormant in [false, true] {
        let mut node = queued("hurried");
        if is_dormant {
            node.crash();
        }
        node.set_clock(5_000);
        let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        node.at(11_000).settle();
        assert_eq!(node.status("a"), "running", "it runs elsewhere; dormant: {is_dormant}");
        assert!(node.finish_task(&task, Ok("done".into())));
        node.pass_inbox().settle();
        assert_eq!(node.status("a"), "completed");
    }
}

#[test]
fn g22_a_task_whose_lease_ran_out_is_taken_again_with_care() {
    for is_dormant in [false, true] {
        let mut node = queued("remote");
        let lost = node.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
        if is_dormant {
            node.crash().take_over().settle();
        }
        node.at(30_999).settle();
        assert!(node.take_tasks(&["remote"], 30_000).is_empty(), "its holder may be alive");
        node.at(31_000).settle();
        assert!(node.runs().is_empty(), "this node cannot run it");
        let again = node.take_tasks(&["remote"], 30_000).pop().expect("its lease has run out");
        assert_eq!((again.attempt, again.interruptions, again.begun), (1, 0, Some(SessionId::NOBODY)));
        node.finish_task(&again, Ok("done".into()));
        assert!(!node.finish_task(&lost, Ok("late".into())), "the late result is refused");
        node.pass_inbox().settle();
        assert_eq!(node.status("a"), "completed");
    }
}

#[test]
fn g22_what_a_former_owner_ran_and_this_one_cannot_is_queued() {
    let mut node = desk_with(ShardOptions::default());
    node.start("remote", "a", ());
    node.settle();
    assert_eq!(node.running("a"), ["remote"]);
    node.set_options(without_gpu()).restart_after_kill();
    assert_eq!((node.runs().len(), node.tasks("a")), (1, vec!["remote 1 queued, begun".to_owned()]));
    assert_eq!(node.take_tasks(&["remote"], 30_000).len(), 1);
}

#[test]
fn g22_a_retry_that_a_former_owner_left_and_this_one_cannot_run_is_queued() {
    let mut node = desk_with(ShardOptions::default());
    node.start("remote", "a", ());
    node.settle();
    node.fail("a", "remote", "boom").settle();
    node.set_options(without_gpu()).restart();
    node.at(2_000).settle();
    assert_eq!((node.runs().len(), node.tasks("a")), (1, vec!["remote 2 queued".to_owned()]));
}

#[test]
fn g22_what_is_queued_is_taken_from_the_store_by_whoever_can_run_it_its_owner_too() {
    let mut node = queued("remote");
    node.set_options(ShardOptions::default()).crash().take_over().settle();
    node.query("a", "unknown", ());
    node.settle();
    assert!(node.running("a").is_empty(), "there is one way to what is queued");
    let task = node.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!((task.attempt, task.interruptions), (1, 0), "it never ran before");
}

#[test]
fn g23_a_task_that_another_node_runs_is_marked_when_nobody_waits_for_it() {
    async fn race(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let remote = ctx.schedule_activity("remote", ()).tag("gpu");
        ctx.select2(remote, ctx.schedule_timer(Duration::from_secs(5))).await;
        Ok(ctx.schedule_wait("n").await)
    }
    let mut node = ManualNode::with_options(handlers_and("race", race), without_gpu());
    node.start("race", "a", ());
    node.settle();
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    node.at(6_000).settle();
    assert_eq!(node.tasks("a"), ["remote 1 leased, due 61000, cancelled"]);
    assert_eq!(node.renew_task(task.id, None, 60_000), TaskRenewal::Cancelled);
    node.give_back_task(task.id);
    assert!(node.tasks("a").is_empty());
    let mut node = ManualNode::with_options(handlers_and("race", race), without_gpu());
    node.start("race", "a", ());
    node.settle();
    node.at(6_000).settle();
    assert!(node.tasks("a").is_empty(), "nobody had taken it: its row goes");
}

#[test]
fn g22_details_of_another_node_survive_its_end() {
    let mut node = queued("remote");
    let task = node.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!(node.renew_task(task.id, Some("page 1".into()), 30_000), TaskRenewal::Kept);
    node.give_back_task(task.id);
    let again = node.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!((again.details.clone(), again.interruptions), (Some("page 1".into()), 0));
    node.finish_task(&again, Err(ActivityError::Application("boom".into())));
    node.pass_inbox().settle();
    node.at(2_000).settle();
    let third = node.take_tasks(&["remote"], 30_000).pop().expect("it is queued");
    assert_eq!((third.attempt, third.details), (2, Some("page 1".into())));
}

#[test]
fn g21_all_of_the_time_is_over_for_a_task_whose_takers_are_gone() {
    for is_given_back in [false, true] {
        let mut node = queued("hurried");
        let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
        if is_given_back {
            node.give_back_task(task.id);
        }
        node.at(29_999).settle();
        assert_eq!(node.tasks("a").len(), 1, "it has until 31000");
        node.at(31_000).settle();
        assert_eq!(node.last_lines("a", 2)[0], "3 ActivityFailed of 2 Timeout(Total)");
        let left = if is_given_back { TaskRenewal::Gone } else { TaskRenewal::Cancelled };
        assert_eq!(node.renew_task(task.id, None, 60_000), left);
    }
}

#[test]
fn g21_a_question_does_not_time_out_what_another_node_took_from_the_queue_in_time() {
    let mut node = queued("hurried");
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    node.hold_back();
    node.set_clock(12_000);
    let asked = node.query("a", "unknown", ());
    node.settle();
    assert!(node.told(asked).starts_with("refused"), "{}", node.told(asked));
    assert_eq!(node.status("a"), "running", "what is in memory is not what is stored");
    let refreshed = node.read_refreshes();
    refreshed.into_iter().for_each(|refreshed| node.bring(refreshed));
    node.settle();
    node.finish_task(&task, Ok("done".into()));
    node.pass_inbox().settle();
    assert_eq!(node.status("a"), "completed");
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
    for is_committing in [false, true] {
        let mut node = ManualNode::with_options(handlers_and("two", two), without_gpu());
        node.start("two", "a", ());
        node.settle();
        let taken = node.take_tasks(&["remote"], 600_000).pop().expect("it is queued");
        node.hold_back().at(20_000);
        let before = node.read_refreshes().pop().expect("whether it was taken is looked up");
        node.raise("a", "n", "go");
        if is_committing {
            node.take_turns();
        } else {
            node.settle();
        }
        node.bring(before);
        node.settle();
        assert_eq!(node.tasks("a").len(), 2);
        node.at(30_000).settle();
        let refreshed = node.read_refreshes();
        refreshed.into_iter().for_each(|refreshed| node.bring(refreshed));
        node.settle();
        assert!(node.last_lines("a", 1)[0].contains("ActivityFailed of 5"), "{:?}", node.last_lines("a", 1));
        node.finish_task(&taken, Ok("done".into()));
        node.pass_inbox().settle();
        assert_eq!(node.status("a"), "completed");
    }
}
