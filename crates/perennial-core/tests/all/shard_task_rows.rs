//! Which activities have a row, when it is written, and what a crash makes of it (G22, G23).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::shard::ShardOptions;
use perennial_core::store::{CommitOutcome, Conflict};
use perennial_core::{OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::ManualNode;

async fn flaky(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let flaky =
        ctx.schedule_activity("flaky", ()).retry(RetryPolicy::fixed(Duration::from_secs(1)).attempts(3));
    flaky.await.map_err(|failure| Payload::from(format!("{failure:?}")))
}

fn with_flaky() -> ManualNode {
    let mut node = ManualNode::new(handlers_and("flaky", flaky));
    node.start("flaky", "a", ());
    node.settle();
    node
}

#[test]
fn g22_a_first_local_attempt_has_no_row() {
    let mut node = ManualNode::new(handlers());
    node.start("fan", "a", number(3));
    node.settle();
    assert_eq!((node.running("a").len(), node.tasks("a").len()), (3, 0));
    assert!(node.row("a").owed);
    for activity in ["A1", "A2", "A3"] {
        node.finish("a", activity, "1").settle();
        assert!(node.tasks("a").is_empty());
    }
    assert!(node.writes("a").iter().all(|write| !write.contains("put")), "{:?}", node.writes("a"));
    assert!(!node.row("a").owed);
}

#[test]
fn g22_a_retry_is_a_row_before_it_runs() {
    let mut node = with_flaky();
    node.fail("a", "flaky", "boom");
    assert!(node.tasks("a").is_empty());
    node.settle();
    assert_eq!(node.tasks("a"), ["flaky 2 waiting, due 2000"]);
    assert_eq!(node.writes("a").pop().as_deref(), Some("owed false, wake 2000, put flaky 2 waiting"));
    node.at(2_000);
    assert!(node.running("a").is_empty(), "its lease is not durable");
    node.commit();
    assert_eq!(node.running("a"), ["flaky"]);
    assert_eq!(node.tasks("a"), ["flaky 2 leased"]);
    assert_eq!(node.writes("a").pop().as_deref(), Some("owed true, wake none, put flaky 2 leased"));
    node.finish("a", "flaky", "done").settle();
    assert!(node.tasks("a").is_empty());
    assert!(node.writes("a").pop().is_some_and(|write| write.ends_with("task gone")));
}

#[test]
fn g22_a_crash_before_the_row_of_a_retry_is_durable_repeats_the_first_attempt() {
    for is_killed in [false, true] {
        let mut node = with_flaky();
        node.fail("a", "flaky", "boom");
        if is_killed {
            node.restart_after_kill()
        } else {
            node.restart()
        };
        let task = node.attempt("a", "flaky");
        assert_eq!((task.attempt, task.interruptions, task.begun.is_some()), (1, 0, is_killed));
    }
}

#[test]
fn g22_a_crash_between_a_due_retry_and_its_lease_interrupts_nothing() {
    let mut node = with_flaky();
    node.fail("a", "flaky", "boom").settle();
    node.at(2_000);
    assert_eq!(node.batch(), ["a"]);
    node.restart();
    let task = node.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions), (2, 0));
}

#[test]
fn g22_a_crash_between_a_noted_start_and_its_attempt_counts_as_one_interruption() {
    let mut node = with_flaky();
    node.fail("a", "flaky", "boom").settle();
    node.at(2_000);
    node.commit_unknown(true);
    node.kill().take_over();
    node.load();
    node.take_turns();
    assert_eq!((node.commit(), node.tasks("a")), (1, vec!["flaky 2 waiting, due 2000, begun".to_owned()]));
    node.commit_unknown(true);
    node.restart_after_kill();
    let task = node.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions), (2, 1));
    assert_eq!(node.tasks("a"), ["flaky 2 leased, begun, interrupted 1"]);
}

#[test]
fn g7_the_lease_of_a_retry_whose_commit_is_unknown_is_settled_and_the_attempt_runs_once() {
    for is_written in [true, false] {
        let mut node = with_flaky();
        node.fail("a", "flaky", "boom");
        node.commit_unknown(is_written);
        node.settle_unknown();
        node.settle();
        assert_eq!(node.tasks("a"), ["flaky 2 waiting, due 2000"]);
        node.at(2_000);
        node.commit_unknown(is_written);
        assert!(node.running("a").is_empty());
        node.settle_unknown();
        node.settle();
        assert_eq!((node.running("a").len(), node.runs().len()), (1, 2));
        assert_eq!(node.attempt("a", "flaky").interruptions, 0);
        node.finish("a", "flaky", "done").settle();
        assert_eq!((node.status("a"), node.tasks("a").len()), ("completed".into(), 0));
    }
}

#[test]
fn g22_after_the_first_kill_each_start_is_written_before_it_and_each_kill_counts() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    let counted = ["begun", "begun, interrupted 1", "begun, interrupted 2", "begun, interrupted 3"];
    for (count, words) in (0..).zip(counted) {
        node.kill().take_over();
        node.load();
        node.take_turns();
        assert!(node.running("a").is_empty(), "the start is not durable");
        node.settle();
        assert_eq!(node.tasks("a"), [format!("A1 1 leased, {words}")]);
        assert_eq!(node.attempt("a", "A1").interruptions, count);
        assert!(node.row("a").owed);
    }
    node.finish("a", "A1", "done").settle();
    assert_eq!((node.status("a"), node.tasks("a").len()), ("completed".into(), 0));
}

#[test]
fn g22_a_crash_of_the_takeover_itself_is_counted_once() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    // Never written, so never counted.
    for _ in 0..2 {
        node.kill().take_over();
        node.load();
        node.take_turns();
    }
    node.restart_after_kill();
    assert_eq!(node.tasks("a"), ["A1 1 leased, begun"]);
}

#[test]
fn g22_past_the_limit_of_interruptions_an_activity_is_poison() {
    let options = ShardOptions { max_interruptions: 2, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("flaky", flaky), options);
    node.start("flaky", "a", ());
    node.settle();
    // The first one counts nothing.
    node.restart_after_kill().restart_after_kill().restart_after_kill();
    assert_eq!((node.running("a").len(), node.status("a").as_str()), (1, "running"));
    node.restart_after_kill();
    assert_eq!((node.running("a").len(), node.status("a").as_str()), (0, "failed"));
    assert_eq!(
        node.last_lines("a", 2),
        ["3 ActivityFailed of 2 Poisoned", r#"4 OrchestrationFailed "Poisoned""#]
    );
    assert!(node.tasks("a").is_empty());
}

#[test]
fn g22_an_activity_whose_result_is_on_its_way_is_not_interrupted_by_its_instance_growing_back() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("fan", "a", number(2));
    node.settle();
    node.finish("a", "A1", "1").settle();
    node.raise("a", "n", "knock");
    node.settle();
    assert_eq!(node.running("a"), ["A2"]);
    node.finish("a", "A2", "2").settle();
    assert_eq!((node.status("a"), node.runs().len()), ("completed".into(), 2));
    assert!(node.writes("a").iter().all(|write| !write.contains("put")));
}

#[test]
fn g22_what_an_attempt_reports_is_written_and_the_next_one_is_given_it() {
    let mut node = with_flaky();
    node.heartbeat("a", "flaky", "page 1").settle();
    assert_eq!(node.tasks("a"), [r#"flaky 1 leased, details "page 1""#]);
    assert_eq!(node.writes("a").pop().as_deref(), Some("put flaky 1 leased"), "and no turn");
    node.heartbeat("a", "flaky", "page 2").settle();
    node.restart();
    let task = node.attempt("a", "flaky");
    assert_eq!((task.details.clone(), task.interruptions), (Some("page 2".into()), 0));
    node.fail("a", "flaky", "boom").settle();
    assert_eq!(node.tasks("a"), [r#"flaky 2 waiting, due 2000, details "page 2""#]);
    node.at(2_000).settle();
    assert_eq!(node.attempt("a", "flaky").details, Some("page 2".into()));
}

#[test]
fn g22_a_report_that_was_never_written_is_still_given_to_the_next_attempt_of_this_process() {
    let mut node = with_flaky();
    node.heartbeat("a", "flaky", "page 1");
    node.fail("a", "flaky", "boom").settle();
    node.at(2_000).settle();
    assert_eq!(node.attempt("a", "flaky").details, Some("page 1".into()));
}

#[test]
fn g22_a_report_just_before_the_result_leaves_no_row() {
    let mut node = with_flaky();
    node.heartbeat("a", "flaky", "page 1");
    node.finish("a", "flaky", "done").settle();
    assert_eq!((node.status("a"), node.tasks("a").len()), ("completed".into(), 0));
}

#[test]
fn g31_what_is_given_back_at_a_graceful_stop_runs_again_and_counts_as_no_interruption() {
    let mut node = with_flaky();
    node.heartbeat("a", "flaky", "page 1").settle();
    node.release_activities().settle();
    assert_eq!(node.tasks("a"), [r#"flaky 1 waiting, due 1000, details "page 1""#]);
    assert_eq!(node.runs().len(), 1, "a node that stops begins nothing");
    node.restart();
    let task = node.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions, task.details.clone()), (1, 0, Some("page 1".into())));
}

#[test]
fn g31_a_node_that_stops_still_takes_the_results_of_what_it_runs() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(2));
    node.settle();
    let first = node.pick_activity("a", "A1");
    node.release_activities();
    node.bring_result(&first, Ok("1".into()));
    node.settle();
    assert_eq!(
        node.last_lines("a", 2),
        [r#"3 ActivityCompleted of 2 "1""#, r#"4 ActivityScheduled "A2" "1""#]
    );
}

#[test]
fn g23_a_cancelled_activity_is_told_and_its_row_goes() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle();
    node.heartbeat("a", "slow", "half").settle();
    assert_eq!(node.tasks("a"), [r#"slow 1 leased, details "half""#]);
    node.at(6_000).settle();
    assert_eq!((node.stops(), node.tasks("a").len()), (&["a slow".to_owned()][..], 0));
    // Too late.
    let stale = node.counters("a").stale;
    node.finish("a", "slow", "1").settle();
    assert_eq!(node.counters("a").stale, stale + 1);
}

#[test]
fn g23_rows_of_all_kinds_go_with_their_instance() {
    async fn many(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let retry = || RetryPolicy::fixed(Duration::from_secs(1)).attempts(3);
        let waiting = ctx.schedule_activity("waiting", ()).retry(retry());
        let running = ctx.schedule_activity("running", ()).retry(retry());
        let queued = ctx.schedule_activity("queued", ()).tag("gpu");
        let end = ctx.schedule_wait("n");
        ctx.select(vec![
            Box::pin(async move { waiting.await.is_ok() })
                as std::pin::Pin<Box<dyn Future<Output = bool> + Send>>,
            Box::pin(async move { running.await.is_ok() }),
            Box::pin(async move { queued.await.is_ok() }),
            Box::pin(async move { end.await == Payload::null() }),
        ])
        .await;
        Ok("over".into())
    }
    type End = fn(&mut ManualNode);
    let ends: [End; 3] = [
        |node| {
            node.terminate("a", "enough");
        },
        |node| {
            node.cancel("a", "enough");
        },
        |node| {
            node.raise("a", "n", "end");
        },
    ];
    for is_dormant in [false, true] {
        for end in ends {
            let served =
                Some(std::sync::Arc::new(ManualNode::served(&["waiting", "running", "queued"], &[])));
            let options = ShardOptions { served, ..ShardOptions::default() };
            let mut node = ManualNode::with_options(handlers_and("many", many), options);
            node.start("many", "a", ());
            node.settle();
            node.heartbeat("a", "running", "half").settle();
            node.fail("a", "waiting", "boom").settle();
            assert_eq!(
                node.tasks("a"),
                ["waiting 2 waiting, due 2000", r#"running 1 leased, details "half""#, "queued 1 queued"]
            );
            if is_dormant {
                node.crash();
            }
            end(&mut node);
            node.settle();
            assert!(!["running", "pending"].contains(&node.status("a").as_str()), "{}", node.status("a"));
            assert!(node.tasks("a").is_empty(), "{:?}", node.tasks("a"));
            assert!(!node.row("a").owed);
        }
    }
}

#[test]
fn g28_a_blocked_instance_keeps_the_rows_of_its_tasks_and_takes_their_results() {
    async fn panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let flaky =
            ctx.schedule_activity("flaky", ()).retry(RetryPolicy::fixed(Duration::from_secs(1)).attempts(3));
        let other = ctx.schedule_wait("n");
        let _: Payload = other.await;
        let is_cured = CURED.load(std::sync::atomic::Ordering::Relaxed);
        assert!(is_cured, "boom");
        flaky.await.map_err(|_| Payload::null())
    }
    static CURED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("panics", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node.heartbeat("a", "flaky", "half").settle();
    assert_eq!(node.tasks("a"), [r#"flaky 1 leased, details "half""#]);
    node.fail("a", "flaky", "boom").settle();
    assert_eq!(node.tasks("a"), [r#"flaky 2 waiting, due 2000, details "half""#]);
    CURED.store(true, std::sync::atomic::Ordering::Relaxed);
    node.at(10_000).settle();
    assert_eq!(node.attempt("a", "flaky").attempt, 2);
    node.finish("a", "flaky", "done").settle();
    assert_eq!((node.status("a"), node.tasks("a").len()), ("completed".into(), 0));
}

#[test]
fn g22_a_question_does_not_run_an_activity_again_whose_result_is_stored_and_not_read() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    node.restart_after_kill().restart_after_kill().restart_after_kill();
    assert_eq!(node.attempt("a", "A1").interruptions, 2, "its result is written before a turn takes it");
    let runs = node.runs().len();
    node.finish("a", "A1", "done");
    node.commit();
    node.query("a", "unknown", ());
    node.take_turns();
    node.settle();
    assert_eq!((node.status("a"), node.runs().len()), ("completed".into(), runs));
}

#[test]
fn g23_an_attempt_that_fails_while_its_cancel_is_committed_leaves_no_row_also_if_its_instance_is_blocked() {
    async fn gives_up(ctx: OrchestrationContext, is_bad: bool) -> Outcome {
        let flaky =
            ctx.schedule_activity("flaky", ()).retry(RetryPolicy::fixed(Duration::from_secs(1)).attempts(3));
        ctx.select2(flaky, ctx.schedule_wait("n")).await;
        ctx.schedule_wait("n").await;
        assert!(!is_bad, "boom");
        Ok(ctx.schedule_wait("n").await)
    }
    let bad = handlers_and("gives_up", |ctx: OrchestrationContext, _: Payload| gives_up(ctx, true));
    let good = handlers_and("gives_up", |ctx: OrchestrationContext, _: Payload| gives_up(ctx, false));
    let mut node = ManualNode::new(bad);
    node.start("gives_up", "a", ());
    node.settle();
    node.raise("a", "n", "give it up");
    node.take_turns();
    node.fail("a", "flaky", "too late");
    node.raise("a", "n", "and go wrong");
    node.settle();
    assert_eq!((node.status("a"), node.tasks("a").len()), ("running, blocked: PER-0201".into(), 0));
    node.replace_code(good).retry("a");
    node.settle();
    node.at(60_000).settle();
    assert_eq!((node.status("a"), node.next_wake_ms("a")), ("running".into(), None), "nothing wakes it");
}

#[test]
fn g22_a_report_whose_commit_came_to_nothing_does_not_undo_what_came_after_it() {
    let outcomes = [CommitOutcome::Conflict(Conflict::OtherTurn), CommitOutcome::Rejected("too much".into())];
    for outcome in outcomes {
        let mut node = with_flaky();
        node.heartbeat("a", "flaky", "half");
        node.fail("a", "flaky", "boom");
        node.commit_as("a", outcome);
        node.settle();
        assert_eq!(node.tasks("a"), [r#"flaky 2 waiting, due 2000, details "half""#]);
        assert_eq!(node.runs().len(), 1, "a failed attempt does not run again");
    }
}
