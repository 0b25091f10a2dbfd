//! Which activities have a row, when it is written, and what a crash makes of it (G22, G23).

mod shard_cases;

use perennial_core::shard::ShardOptions;
use perennial_core::store::{CommitOutcome, Conflict};
use perennial_core::{OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

async fn flaky(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let flaky = ctx.schedule_activity("flaky", ()).retry(RetryPolicy::fixed(3, 1_000));
    flaky.await.map_err(|failure| Payload::from(format!("{failure:?}")))
}

fn with_flaky() -> Desk {
    let mut desk = Desk::new(handlers_and("flaky", flaky));
    desk.start("flaky", "a", ());
    desk.settle();
    desk
}

#[test]
fn g22_a_first_local_attempt_has_no_row() {
    let mut desk = Desk::new(handlers());
    desk.start("fan", "a", number(3));
    desk.settle();
    assert_eq!((desk.running("a").len(), desk.tasks("a").len()), (3, 0));
    assert!(desk.row("a").owed);
    for activity in ["A1", "A2", "A3"] {
        desk.finish("a", activity, "1").settle();
        assert!(desk.tasks("a").is_empty());
    }
    assert!(desk.writes("a").iter().all(|write| !write.contains("put")), "{:?}", desk.writes("a"));
    assert!(!desk.row("a").owed);
}

#[test]
fn g22_a_retry_is_a_row_before_it_runs() {
    let mut desk = with_flaky();
    desk.fail("a", "flaky", "boom");
    assert!(desk.tasks("a").is_empty());
    desk.settle();
    assert_eq!(desk.tasks("a"), ["flaky 2 waiting, due 2000"]);
    assert_eq!(desk.writes("a").pop().as_deref(), Some("owed false, wake 2000, put flaky 2 waiting"));
    desk.at(2_000);
    assert!(desk.running("a").is_empty(), "its lease is not durable");
    desk.commit();
    assert_eq!(desk.running("a"), ["flaky"]);
    assert_eq!(desk.tasks("a"), ["flaky 2 leased"]);
    assert_eq!(desk.writes("a").pop().as_deref(), Some("owed true, wake none, put flaky 2 leased"));
    desk.finish("a", "flaky", "done").settle();
    assert!(desk.tasks("a").is_empty());
    assert!(desk.writes("a").pop().is_some_and(|write| write.ends_with("task gone")));
}

#[test]
fn g22_a_crash_before_the_row_of_a_retry_is_durable_interrupts_the_first_attempt() {
    let mut desk = with_flaky();
    desk.fail("a", "flaky", "boom");
    desk.restart();
    let task = desk.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions), (1, 1));
}

#[test]
fn g22_a_crash_between_a_due_retry_and_its_lease_interrupts_nothing() {
    let mut desk = with_flaky();
    desk.fail("a", "flaky", "boom").settle();
    desk.at(2_000);
    assert_eq!(desk.batch(), ["a"]);
    desk.restart();
    let task = desk.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions), (2, 0));
}

#[test]
fn g22_a_crash_between_a_lease_and_its_attempt_counts_as_one_interruption() {
    let mut desk = with_flaky();
    desk.fail("a", "flaky", "boom").settle();
    desk.at(2_000);
    desk.commit_unknown(true);
    desk.restart();
    let task = desk.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions), (2, 1));
    assert_eq!(desk.tasks("a"), ["flaky 2 leased, interrupted 1"]);
}

#[test]
fn g7_the_lease_of_a_retry_whose_commit_is_unknown_is_settled_and_the_attempt_runs_once() {
    for is_written in [true, false] {
        let mut desk = with_flaky();
        desk.fail("a", "flaky", "boom");
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        desk.settle();
        assert_eq!(desk.tasks("a"), ["flaky 2 waiting, due 2000"]);
        desk.at(2_000);
        desk.commit_unknown(is_written);
        assert!(desk.running("a").is_empty());
        desk.settle_unknown();
        desk.settle();
        assert_eq!((desk.running("a").len(), desk.runs().len()), (1, 2));
        assert_eq!(desk.attempt("a", "flaky").interruptions, 0);
        desk.finish("a", "flaky", "done").settle();
        assert_eq!((desk.status("a"), desk.tasks("a").len()), ("completed".into(), 0));
    }
}

#[test]
fn g22_each_crash_is_one_interruption_and_is_written_before_the_attempt_runs() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(1));
    desk.settle();
    for count in 1..=3 {
        desk.crash().take_over();
        desk.load();
        desk.take_turns();
        assert!(desk.running("a").is_empty(), "the interruption is not durable");
        desk.settle();
        assert_eq!(desk.tasks("a"), [format!("A1 1 leased, interrupted {count}")]);
        assert_eq!(desk.attempt("a", "A1").interruptions, count);
        assert!(desk.row("a").owed);
    }
    desk.finish("a", "A1", "done").settle();
    assert_eq!((desk.status("a"), desk.tasks("a").len()), ("completed".into(), 0));
}

#[test]
fn g22_a_crash_of_the_takeover_itself_is_counted_once() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(1));
    desk.settle();
    // Never written, so never counted.
    for _ in 0..10 {
        desk.crash().take_over();
        desk.load();
        desk.take_turns();
    }
    desk.restart();
    assert_eq!(desk.tasks("a"), ["A1 1 leased, interrupted 1"]);
}

#[test]
fn g22_past_the_limit_of_interruptions_an_activity_is_poison() {
    let options = ShardOptions { max_interruptions: 2, ..ShardOptions::default() };
    let mut desk = Desk::with_options(handlers_and("flaky", flaky), options);
    desk.start("flaky", "a", ());
    desk.settle();
    desk.restart();
    desk.restart();
    assert_eq!((desk.running("a").len(), desk.status("a").as_str()), (1, "running"));
    desk.restart();
    assert_eq!((desk.running("a").len(), desk.status("a").as_str()), (0, "failed"));
    assert_eq!(
        desk.last_lines("a", 2),
        ["3 ActivityFailed of 2 Poisoned", r#"4 OrchestrationFailed "Poisoned""#]
    );
    assert!(desk.tasks("a").is_empty());
}

#[test]
fn g22_an_activity_whose_result_is_on_its_way_is_not_interrupted_by_its_instance_growing_back() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut desk = Desk::with_options(handlers(), options);
    desk.start("fan", "a", number(2));
    desk.settle();
    desk.finish("a", "A1", "1").settle();
    desk.raise("a", "n", "knock");
    desk.settle();
    assert_eq!(desk.running("a"), ["A2"]);
    desk.finish("a", "A2", "2").settle();
    assert_eq!((desk.status("a"), desk.runs().len()), ("completed".into(), 2));
    assert!(desk.writes("a").iter().all(|write| !write.contains("put")));
}

#[test]
fn g22_what_an_attempt_reports_is_written_and_the_next_one_is_given_it() {
    let mut desk = with_flaky();
    desk.heartbeat("a", "flaky", "page 1").settle();
    assert_eq!(desk.tasks("a"), [r#"flaky 1 leased, details "page 1""#]);
    assert_eq!(desk.writes("a").pop().as_deref(), Some("put flaky 1 leased"), "and no turn");
    desk.heartbeat("a", "flaky", "page 2").settle();
    desk.restart();
    let task = desk.attempt("a", "flaky");
    assert_eq!((task.details.clone(), task.interruptions), (Some("page 2".into()), 1));
    desk.fail("a", "flaky", "boom").settle();
    assert_eq!(desk.tasks("a"), [r#"flaky 2 waiting, due 2000, interrupted 1, details "page 2""#]);
    desk.at(2_000).settle();
    assert_eq!(desk.attempt("a", "flaky").details, Some("page 2".into()));
}

#[test]
fn g22_a_report_that_was_never_written_is_still_given_to_the_next_attempt_of_this_process() {
    let mut desk = with_flaky();
    desk.heartbeat("a", "flaky", "page 1");
    desk.fail("a", "flaky", "boom").settle();
    desk.at(2_000).settle();
    assert_eq!(desk.attempt("a", "flaky").details, Some("page 1".into()));
}

#[test]
fn g22_a_report_just_before_the_result_leaves_no_row() {
    let mut desk = with_flaky();
    desk.heartbeat("a", "flaky", "page 1");
    desk.finish("a", "flaky", "done").settle();
    assert_eq!((desk.status("a"), desk.tasks("a").len()), ("completed".into(), 0));
}

#[test]
fn g31_what_is_given_back_at_a_graceful_stop_runs_again_and_counts_as_no_interruption() {
    let mut desk = with_flaky();
    desk.heartbeat("a", "flaky", "page 1").settle();
    desk.release_activities().settle();
    assert_eq!(desk.tasks("a"), [r#"flaky 1 waiting, due 1000, details "page 1""#]);
    assert_eq!(desk.runs().len(), 1, "a node that stops begins nothing");
    desk.restart();
    let task = desk.attempt("a", "flaky");
    assert_eq!((task.attempt, task.interruptions, task.details.clone()), (1, 0, Some("page 1".into())));
}

#[test]
fn g31_a_node_that_stops_still_takes_the_results_of_what_it_runs() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(2));
    desk.settle();
    let first = desk.pick_activity("a", "A1");
    desk.release_activities();
    desk.bring_result(&first, Ok("1".into()));
    desk.settle();
    assert_eq!(
        desk.last_lines("a", 2),
        [r#"3 ActivityCompleted of 2 "1""#, r#"4 ActivityScheduled "A2" "1""#]
    );
}

#[test]
fn g23_a_cancelled_activity_is_told_and_its_row_goes() {
    let mut desk = Desk::new(handlers());
    desk.start("race", "a", ());
    desk.settle();
    desk.heartbeat("a", "slow", "half").settle();
    assert_eq!(desk.tasks("a"), [r#"slow 1 leased, details "half""#]);
    desk.at(6_000).settle();
    assert_eq!((desk.stops(), desk.tasks("a").len()), (&["a slow".to_owned()][..], 0));
    // Too late.
    let stale = desk.counters("a").stale;
    desk.finish("a", "slow", "1").settle();
    assert_eq!(desk.counters("a").stale, stale + 1);
}

#[test]
fn g23_rows_of_all_kinds_go_with_their_instance() {
    async fn many(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let retry = || RetryPolicy::fixed(3, 1_000);
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
    type End = fn(&mut Desk);
    let ends: [End; 3] = [
        |desk| {
            desk.terminate("a", "enough");
        },
        |desk| {
            desk.cancel("a", "enough");
        },
        |desk| {
            desk.raise("a", "n", "end");
        },
    ];
    for is_dormant in [false, true] {
        for end in ends {
            let served = Some(std::sync::Arc::new(Desk::served(&["waiting", "running", "queued"], &[])));
            let options = ShardOptions { served, ..ShardOptions::default() };
            let mut desk = Desk::with_options(handlers_and("many", many), options);
            desk.start("many", "a", ());
            desk.settle();
            desk.heartbeat("a", "running", "half").settle();
            desk.fail("a", "waiting", "boom").settle();
            assert_eq!(
                desk.tasks("a"),
                ["waiting 2 waiting, due 2000", r#"running 1 leased, details "half""#, "queued 1 queued"]
            );
            if is_dormant {
                desk.crash();
            }
            end(&mut desk);
            desk.settle();
            assert!(!["running", "pending"].contains(&desk.status("a").as_str()), "{}", desk.status("a"));
            assert!(desk.tasks("a").is_empty(), "{:?}", desk.tasks("a"));
            assert!(!desk.row("a").owed);
        }
    }
}

#[test]
fn g28_a_blocked_instance_keeps_the_rows_of_its_tasks_and_takes_their_results() {
    async fn panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let flaky = ctx.schedule_activity("flaky", ()).retry(RetryPolicy::fixed(3, 1_000));
        let other = ctx.schedule_wait("n");
        let _: Payload = other.await;
        let is_cured = CURED.load(std::sync::atomic::Ordering::Relaxed);
        assert!(is_cured, "boom");
        flaky.await.map_err(|_| Payload::null())
    }
    static CURED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("panics", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.settle();
    assert_eq!(desk.status("a"), "running, blocked: PER-0201");
    desk.heartbeat("a", "flaky", "half").settle();
    assert_eq!(desk.tasks("a"), [r#"flaky 1 leased, details "half""#]);
    desk.fail("a", "flaky", "boom").settle();
    assert_eq!(desk.tasks("a"), [r#"flaky 2 waiting, due 2000, details "half""#]);
    CURED.store(true, std::sync::atomic::Ordering::Relaxed);
    desk.at(10_000).settle();
    assert_eq!(desk.attempt("a", "flaky").attempt, 2);
    desk.finish("a", "flaky", "done").settle();
    assert_eq!((desk.status("a"), desk.tasks("a").len()), ("completed".into(), 0));
}

#[test]
fn g22_a_question_does_not_run_an_activity_again_whose_result_is_stored_and_not_read() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(1));
    desk.settle();
    desk.restart().restart().restart();
    assert_eq!(desk.attempt("a", "A1").interruptions, 3, "its result is written before a turn takes it");
    let runs = desk.runs().len();
    desk.finish("a", "A1", "done");
    desk.commit();
    desk.query("a", "unknown", ());
    desk.take_turns();
    desk.settle();
    assert_eq!((desk.status("a"), desk.runs().len()), ("completed".into(), runs));
}

#[test]
fn g23_an_attempt_that_fails_while_its_cancel_is_committed_leaves_no_row_also_if_its_instance_is_blocked() {
    async fn gives_up(ctx: OrchestrationContext, is_bad: bool) -> Outcome {
        let flaky = ctx.schedule_activity("flaky", ()).retry(RetryPolicy::fixed(3, 1_000));
        ctx.select2(flaky, ctx.schedule_wait("n")).await;
        ctx.schedule_wait("n").await;
        assert!(!is_bad, "boom");
        Ok(ctx.schedule_wait("n").await)
    }
    let bad = handlers_and("gives_up", |ctx: OrchestrationContext, _: Payload| gives_up(ctx, true));
    let good = handlers_and("gives_up", |ctx: OrchestrationContext, _: Payload| gives_up(ctx, false));
    let mut desk = Desk::new(bad);
    desk.start("gives_up", "a", ());
    desk.settle();
    desk.raise("a", "n", "give it up");
    desk.take_turns();
    desk.fail("a", "flaky", "too late");
    desk.raise("a", "n", "and go wrong");
    desk.settle();
    assert_eq!((desk.status("a"), desk.tasks("a").len()), ("running, blocked: PER-0201".into(), 0));
    desk.replace_code(good).retry("a");
    desk.settle();
    desk.at(60_000).settle();
    assert_eq!((desk.status("a"), desk.next_wake_ms("a")), ("running".into(), None), "nothing wakes it");
}

#[test]
fn g22_a_report_whose_commit_came_to_nothing_does_not_undo_what_came_after_it() {
    let outcomes = [CommitOutcome::Conflict(Conflict::OtherTurn), CommitOutcome::Rejected("too much".into())];
    for outcome in outcomes {
        let mut desk = with_flaky();
        desk.heartbeat("a", "flaky", "half");
        desk.fail("a", "flaky", "boom");
        desk.commit_as("a", outcome);
        desk.settle();
        assert_eq!(desk.tasks("a"), [r#"flaky 2 waiting, due 2000, details "half""#]);
        assert_eq!(desk.runs().len(), 1, "a failed attempt does not run again");
    }
}
