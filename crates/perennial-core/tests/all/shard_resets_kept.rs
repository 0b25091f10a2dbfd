//! What a reset keeps stays as it was: turns replay to the same decisions, and what they had begun is heard of (G48, G49).

use crate::shard_cases::{Outcome, handlers_and, number, secs};
use perennial_core::shard::{CallReply, InstanceCall, Request, ResetReport, Response, ShardOptions};
use perennial_core::store::{RequestOutcome, Skippable};
use perennial_core::{EventId, OrchestrationContext, Payload, Started};
use perennial_testkit::ManualNode;

fn reset(node: &mut ManualNode, id: &str, to_turn: Option<u64>) -> ResetReport {
    let request = node.reset(id, to_turn);
    node.settle();
    match node.answer(request) {
        Some(Response::Reply(CallReply::Answered(report))) => report.decode().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn last(node: &ManualNode, id: &str) -> String {
    node.last_lines(id, 1)[0].split_once(' ').unwrap().1.to_owned()
}

/// Continues as new once. Then tells activities, one per event, which execution it is.
async fn tells_its_number(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input != "again".into() {
        return ctx.continue_as_new("again").await;
    }
    for _ in 0..2 {
        let _ = ctx.schedule_activity("tell", number(ctx.info().execution)).await;
        let _: Payload = ctx.schedule_wait("n").await;
    }
    Ok(number(ctx.info().execution))
}

#[test]
fn g48_kept_turns_read_the_number_of_the_execution_that_they_were_taken_in() {
    let mut node = ManualNode::new(handlers_and("tells", tells_its_number));
    node.start("tells", "a", ());
    node.settle().finish("a", "tell", ()).settle();
    reset(&mut node, "a", Some(2));
    assert_eq!((node.status("a"), node.row("a").execution), ("running".into(), 3));
    // Once more, over a turn that the execution before had kept, and with all memory gone.
    reset(&mut node, "a", Some(2));
    node.restart();
    node.raise("a", "n", ());
    node.settle().finish("a", "tell", ()).settle();
    node.raise("a", "n", ());
    node.settle();
    assert_eq!((node.row("a").execution, &*last(&node, "a")), (4, "OrchestrationCompleted 2"));
    // Nothing is kept: it begins again, as itself.
    reset(&mut node, "a", Some(0));
    assert!(node.last_lines("a", 1)[0].ends_with("\"tell\" 5"), "{:?}", node.lines("a"));
}

/// Waits for `go`, then adds up two numbers.
async fn sums(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("go").await;
    let first = ctx.schedule_wait("n").typed::<u64>().await;
    let second = ctx.schedule_wait("n").typed::<u64>().await;
    Ok(number(first + second))
}

#[test]
fn g48_an_event_of_a_kept_turn_that_was_skipped_later_stays_skipped() {
    let mut node = ManualNode::new(handlers_and("sums", sums));
    node.start("sums", "a", ());
    node.settle();
    node.raise("a", "n", "not a number");
    node.settle();
    node.raise("a", "go", ());
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0103");
    node.request("a", Request::Skip(Skippable::Event(EventId(3))));
    node.settle();
    node.raise("a", "n", number(1));
    node.settle();
    let report = reset(&mut node, "a", Some(2));
    assert_eq!((report.messages, node.status("a")), (2, "running".into()));
    node.raise("a", "n", number(2));
    node.settle();
    assert_eq!(last(&node, "a"), "OrchestrationCompleted 3");
}

/// Activities one after the other.
async fn goes(ctx: OrchestrationContext, activities: &[&str]) -> Outcome {
    let mut last = Payload::null();
    for activity in activities {
        last = ctx.schedule_activity(*activity, ()).await.map_err(|_| Payload::null())?;
    }
    Ok(last)
}

#[test]
fn g48_a_second_reset_delivers_no_result_of_what_the_first_one_had_kept() {
    let before = |ctx: OrchestrationContext, _: Payload| async move { goes(ctx, &["A", "B", "C"]).await };
    let after = |ctx: OrchestrationContext, _: Payload| async move { goes(ctx, &["A", "X"]).await };
    // A turn takes one job.
    let mut options = ShardOptions::default();
    options.execution.limits.turn_decisions = 2;
    let mut node = ManualNode::with_options(handlers_and("goes", before), options);
    node.start("goes", "a", ());
    node.settle().finish("a", "A", "a").settle().finish("a", "B", "b").settle();
    node.pause("a", "for repair");
    node.settle();
    assert_eq!(reset(&mut node, "a", Some(2)).results, 1);
    assert_eq!(reset(&mut node, "a", Some(1)).results, 1);
    node.replace_code(handlers_and("goes", after)).restart();
    node.resume("a");
    node.settle();
    assert_eq!(node.running("a"), ["X"], "{:#?}", node.lines("a"));
    node.finish("a", "X", "x").settle();
    assert_eq!(last(&node, "a"), r#"OrchestrationCompleted "x""#);
}

/// Tells two instances something, waits for an event, fails if it says so, and ends with what became of it.
async fn sends(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let told = ctx.raise_event("other", "n", "hello").delivered();
    let gone = ctx.cancel_orchestration("nobody", "enough").delivered();
    let next: Payload = ctx.schedule_wait("go").await;
    if next == "fail".into() {
        return Err("no luck".into());
    }
    Ok(format!("{:?}", ctx.join2(told, gone).await).into())
}

#[test]
fn g48_a_report_that_is_on_its_way_reaches_the_next_execution() {
    let mut node = ManualNode::new(handlers_and("sends", sends));
    node.start("collect", "other", ());
    node.start("sends", "a", ());
    while node.try_row("a").is_none() {
        assert!(node.look_up() || node.load() || node.take_turns() || node.commit() > 0);
    }
    // The reset is asked for before the reports of the first turn are read.
    let request = node.reset("a", Some(1));
    node.settle();
    assert!(matches!(node.answer(request), Some(Response::Reply(CallReply::Answered(_)))));
    assert_eq!(node.row("a").execution, 2);
    node.raise("a", "go", ());
    node.settle();
    assert_eq!(last(&node, "a"), r#"OrchestrationCompleted "(Delivered, NotFound)""#);
}

/// As `sends`, if the first answer is to come when it has ended.
async fn sends_and_fails(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let next: Payload = ctx.schedule_wait("go").await;
    let told = ctx.raise_event("other", "n", next).delivered();
    let failed = ctx.schedule_activity("work", ()).await;
    let delivered = told.await;
    failed.map(|_| format!("{delivered:?}").into()).map_err(|_| "no luck".into())
}

#[test]
fn g49_what_was_sent_without_a_report_before_the_end_is_sent_again() {
    let mut node = ManualNode::new(handlers_and("sends", sends_and_fails));
    node.start("collect", "other", ());
    node.start("sends", "a", ());
    node.settle();
    node.raise("a", "go", "hello");
    while node.running("a").is_empty() {
        assert!(node.look_up() || node.load() || node.take_turns() || node.commit() > 0);
    }
    // The report is in the inbox and not read when the instance ends.
    node.terminate("a", "by mistake");
    node.settle();
    assert_eq!(node.status("a"), "terminated");
    let report = reset(&mut node, "a", None);
    assert_eq!((report.children_started, report.activities), (0, 1));
    // The attempt of the execution before ends first, and nobody cares.
    node.finish("a", "work", ()).settle().finish("a", "work", ()).settle();
    assert_eq!(last(&node, "a"), r#"OrchestrationCompleted "Delivered""#);
    node.raise("other", "n", "end");
    node.settle();
    assert_eq!(last(&node, "other"), r#"OrchestrationCompleted ["hello","hello"]"#);
}

/// Waits for the start of a child, then for its end.
async fn hears_the_start(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut child = ctx.schedule_sub_orchestration("collect", ());
    let started = child.started().await;
    let ended = child.await;
    Ok(format!("{started:?} {ended:?}").into())
}

#[test]
fn g48_the_start_of_a_kept_child_is_reported_to_the_next_execution() {
    let mut node = ManualNode::new(handlers_and("parent", hears_the_start));
    node.start("parent", "p", ());
    while node.try_row("p").is_none() {
        assert!(node.look_up() || node.load() || node.take_turns() || node.commit() > 0);
    }
    let request = node.reset("p", Some(1));
    node.settle();
    assert!(matches!(node.answer(request), Some(Response::Reply(CallReply::Answered(_)))));
    node.raise("p::1.2", "n", "end");
    node.settle();
    assert!(last(&node, "p").starts_with("OrchestrationCompleted \"Ok(()) Ok("), "{:?}", node.lines("p"));
    assert!(node.lines("p").iter().any(|line| line.contains("SubOrchestrationStarted")));
}

/// A child under an id of its own and with a time limit.
async fn named_parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let child = ctx.schedule_sub_orchestration_with_id("steps", "child", number(1)).timeout(secs(10));
    child.await.map_err(|error| format!("{error:?}").into())
}

#[test]
fn g49_a_failed_child_is_started_again_under_its_own_id_and_with_all_its_time() {
    let mut node = ManualNode::new(handlers_and("parent", named_parent));
    node.at(1_000).start("parent", "p", ());
    node.settle().fail("child", "A1", "no luck").settle();
    assert_eq!(node.status("p"), "failed");
    let before = node.row("child").key;
    assert_eq!(reset(node.at(50_000), "p", None).children_started, 1);
    node.settle();
    assert_ne!(node.row("child").key, before);
    node.at(59_000).settle().finish("child", "A1", "luck").settle();
    assert_eq!(last(&node, "p"), r#"OrchestrationCompleted "luck""#);
}

#[test]
fn g49_a_child_that_could_not_be_started_replaces_nobody() {
    let mut node = ManualNode::new(handlers_and("parent", named_parent));
    node.start("echo", "child", "mine");
    node.settle();
    node.start("parent", "p", ());
    node.settle();
    assert_eq!(node.status("p"), "failed");
    assert_eq!(reset(&mut node, "p", None).children_started, 1);
    node.settle();
    assert_eq!(
        (node.status("p"), &*last(&node, "child")),
        ("failed".into(), r#"OrchestrationCompleted "mine""#)
    );
}

#[test]
fn g49_code_that_was_cleaning_up_has_all_its_grace_again() {
    let mut node = ManualNode::new(handlers_and("none", sums));
    node.at(1_000).start_with("a", Started::new("cleans_up", ManualNode::VERSION, (), 7));
    node.settle();
    node.cancel("a", "enough");
    node.settle().at(40_000).settle();
    assert_eq!(node.status("a"), "terminated", "the grace is over");
    reset(node.at(50_000), "a", None);
    node.at(79_999).settle();
    assert_eq!(node.status("a"), "running");
    node.at(80_000).settle();
    assert_eq!(node.status("a"), "terminated");
    reset(node.at(90_000), "a", None);
    // Two attempts of the executions before end first, and nobody cares.
    for result in ["stale", "stale", "done"] {
        node.finish("a", "clean", result).settle();
    }
    assert_eq!(last(&node, "a"), r#"OrchestrationFailed "done""#);
}

/// Tells by an update which execution it is. Ends with an event, after an activity.
async fn tells_and_ends(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let execution = ctx.info().execution;
    ctx.on_update("which", |_: &Payload| Ok(()), move |_: Payload| async move { Ok(number(execution)) });
    let _ = ctx.schedule_activity("work", ()).await;
    Ok(ctx.schedule_wait("n").await)
}

/// The same, but continues as new after the activity.
async fn tells_and_continues(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input == "again".into() {
        return tells_and_ends(ctx, input).await;
    }
    let execution = ctx.info().execution;
    ctx.on_update("which", |_: &Payload| Ok(()), move |_: Payload| async move { Ok(number(execution)) });
    let _ = ctx.schedule_activity("work", ()).await;
    ctx.continue_as_new("again").await
}

fn step(node: &mut ManualNode) -> bool {
    node.look_up() || node.load() || node.take_turns() || node.commit() > 0 || node.follow_hint()
}

/// The result of the activity and then the update are delivered again in one turn, and the code continues as new with the
/// first of them.
#[test]
fn e21_an_update_that_is_delivered_again_crosses_a_continuation_and_is_answered_whenever_it_is_asked_for() {
    for steps in 0.. {
        let mut node = ManualNode::new(handlers_and("tells", tells_and_ends));
        node.start("tells", "a", ());
        node.settle().finish("a", "work", ()).settle();
        let update = node.update("a", "which", Some("k"), ());
        node.settle();
        assert_eq!(node.told(update), "answered: 1");
        node.replace_code(handlers_and("tells", tells_and_continues)).restart();
        let reset = node.reset("a", Some(1));
        let mut is_done = false;
        for _ in 0..steps {
            is_done |= !step(&mut node);
        }
        let instance_call = InstanceCall::Update {
            name: "which".into(),
            payload: ().into(),
            key: Some("k".into()),
            trace: None,
        };
        let RequestOutcome::Written(row) = node.send_request("a", &instance_call, 1_000_000) else {
            panic!("it exists")
        };
        let again = node.update("a", "which", Some("k"), ());
        node.pass_requests().settle().pass_requests().settle();
        assert!(matches!(node.answer(reset), Some(Response::Reply(CallReply::Answered(_)))));
        assert_eq!(node.row("a").execution, 3);
        assert_eq!(node.told(again), "answered: 3", "asked after {steps} steps");
        assert_eq!(node.reply(row), Some(CallReply::Answered(number(3))), "asked after {steps} steps");
        if is_done {
            assert!(steps > 5, "it is asked at every stage of the reset");
            break;
        }
    }
}
