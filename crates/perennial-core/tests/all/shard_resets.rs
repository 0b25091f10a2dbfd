//! Resetting an instance to a turn, and running it again from its end: what is kept, delivered again, run again, and left
//! (G48, G49, E39).

use crate::shard_cases::{Outcome, handlers, handlers_and, number, secs};
use perennial_core::shard::{CallReply, InstanceCall, Message, Request, RequestId, ResetReport, Response};
use perennial_core::{Either, EventKind, InstanceKey, Job, OrchestrationContext, Payload, Started};
use perennial_testkit::ManualNode;

fn report(node: &ManualNode, request: RequestId) -> ResetReport {
    match node.answer(request) {
        Some(Response::Reply(CallReply::Answered(report))) => report.decode().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn refusal(node: &ManualNode, request: RequestId) -> String {
    match node.answer(request) {
        Some(Response::Reply(CallReply::Refused { reason, .. })) => reason.clone(),
        other => panic!("{other:?}"),
    }
}

fn reset(node: &mut ManualNode, id: &str, to_turn: Option<u64>) -> ResetReport {
    let request = node.reset(id, to_turn);
    node.settle();
    report(node, request)
}

/// The first event of the current execution.
fn started(node: &ManualNode, id: &str) -> Started {
    let row = node.row(id);
    let history = node.history(&row, row.execution);
    let first = history.flatten().next().unwrap().kind.clone();
    match first {
        EventKind::Started(started) => *started,
        other => panic!("{other:?}"),
    }
}

/// Two steps of which the second fails.
fn failed() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(2));
    node.settle().finish("a", "A1", "one").settle().fail("a", "A2", "no luck").settle();
    assert_eq!(node.status("a"), "failed");
    node
}

#[test]
fn g49_a_failed_instance_runs_again_from_its_failure_and_not_from_its_start() {
    let mut node = failed();
    let ended_ms = node.row("a").ended_ms;
    assert!(ended_ms.is_some());
    let report = reset(node.at(5_000), "a", None);
    assert_eq!((report.execution, report.turn, report.left_turns, report.activities), (2, 2, 1, 1));
    let row = node.row("a");
    assert_eq!((node.status("a"), row.ended_ms, row.execution), ("running".into(), None, 2));
    assert_eq!(node.runs(), ["a A1", "a A2", "a A2"], "only what failed runs again");
    node.finish("a", "A2", "two").settle();
    assert_eq!(node.last_lines("a", 1), [r#"6 OrchestrationCompleted "two""#]);
    assert_eq!(
        node.lines_of("a", 1).last().unwrap(),
        r#"6 OrchestrationFailed "no luck""#,
        "it stays as it was"
    );
}

#[test]
fn e39_a_reset_is_recorded_with_who_why_and_when_and_its_turns_are_copies() {
    let mut node = failed();
    reset(node.at(5_000), "a", None);
    let reset = started(&node, "a").reset.unwrap();
    assert_eq!((reset.execution, reset.turn, reset.at_ms), (1, 2, 5_000));
    assert_eq!((&*reset.why.reason, reset.why.by.as_deref()), ("a test", Some("somebody")));
    let (old, new) = (node.lines_of("a", 1), node.lines("a"));
    assert_eq!(old[1..4], new[1..4]);
}

#[test]
fn g49_the_same_rerun_again_does_nothing() {
    let mut node = failed();
    let instance_call = node.reset_call("a", None);
    let (first, again) = (
        node.request("a", Request::Call(instance_call.clone())),
        node.request("a", Request::Call(instance_call.clone())),
    );
    node.settle();
    assert!(!report(&node, first).already_made);
    let again = report(&node, again);
    assert_eq!((again.already_made, again.execution, again.turn), (true, 2, 2));
    node.finish("a", "A2", "two").settle();
    let late = node.request("a", Request::Call(instance_call));
    node.settle();
    assert!(report(&node, late).already_made, "also after the end");
    assert_eq!(node.row("a").execution, 2);
}

#[test]
fn g49_what_runs_or_completed_is_not_run_again() {
    let mut node = ManualNode::new(handlers());
    node.start("echo", "done", "x");
    node.start("collect", "runs", ());
    node.settle();
    let (done, runs, seen) =
        (node.reset("done", None), node.reset("runs", None), node.reset("runs", Some(7)));
    let stale = InstanceCall::Reset { execution: 9, to_turn: Some(1), version: None, why: "w".into() };
    let stale = node.request("runs", Request::Call(stale));
    let bound = Request::Bound {
        key: InstanceKey::new(7, 7),
        request: Box::new(Request::Call(node.reset_call("runs", Some(1)))),
    };
    let foreign = node.request("runs", bound);
    node.settle();
    assert_eq!(refusal(&node, done), "it completed; name the turn to reset it to");
    assert_eq!(refusal(&node, runs), "it has not ended; only an ended instance can be rerun from its end");
    assert_eq!(refusal(&node, seen), "there is no turn 7 to reset to; the last one before an end is 1");
    assert_eq!(
        refusal(&node, stale),
        "the request names execution 9, but the instance is now in execution 1"
    );
    assert_eq!(node.told(foreign), "not found");
    assert_eq!((node.status("runs"), node.row("runs").execution), ("running".into(), 1));
    node.raise("runs", "n", "end");
    node.settle();
    assert_eq!(node.status("runs"), "completed", "it goes on as if nobody had asked");
}

#[test]
fn g48_messages_after_the_turn_are_delivered_again_in_order_before_what_waits() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    for event in 1..=3 {
        node.raise_once("a", "n", &format!("key {event}"), number(event));
        node.settle();
    }
    node.send_event("a", "n", number(4));
    let report = reset(&mut node, "a", Some(2));
    assert_eq!((report.turn, report.messages, report.left_turns), (2, 2, 2));
    node.pass_inbox().settle();
    // A key that was taken before stays taken.
    node.raise_once("a", "n", "key 3", "again");
    node.raise("a", "n", "end");
    node.settle();
    let last = node.last_lines("a", 1).remove(0);
    assert!(last.ends_with("OrchestrationCompleted [1,2,3,4]"), "{last}");
}

#[test]
fn g48_a_completed_instance_goes_back_to_a_turn_and_results_that_came_later_are_kept() {
    let mut node = ManualNode::new(handlers());
    node.start("fan", "a", number(3));
    node.settle();
    for activity in ["A1", "A2", "A3"] {
        node.finish("a", activity, activity).settle();
    }
    assert_eq!(node.status("a"), "completed");
    let report = reset(&mut node, "a", Some(1));
    assert_eq!((report.results, report.activities, report.messages), (3, 0, 0));
    assert_eq!((node.status("a"), node.runs().len()), ("completed".into(), 3), "nothing had to run again");
    assert_eq!(node.row("a").execution, 2);
}

#[test]
fn g48_turn_zero_begins_again_with_the_same_input_and_what_came_since() {
    let mut node = ManualNode::new(handlers());
    node.start("echo", "a", "x");
    node.start("collect", "b", ());
    node.settle();
    node.raise("b", "n", number(1));
    node.settle();
    let report = reset(&mut node, "a", Some(0));
    assert_eq!((report.turn, report.execution), (0, 2));
    assert_eq!(node.last_lines("a", 1), [r#"2 OrchestrationCompleted "x""#]);
    reset(&mut node, "b", Some(0));
    node.raise("b", "n", "end");
    node.settle();
    assert!(node.last_lines("b", 1)[0].ends_with("OrchestrationCompleted [1]"));
}

#[test]
fn g48_a_reset_is_made_once_whatever_becomes_of_its_commit() {
    for to_turn in [0, 1] {
        for is_written in [true, false] {
            let mut node = ManualNode::new(handlers());
            node.start("collect", "a", ());
            node.settle();
            node.raise("a", "n", number(1));
            node.settle();
            let request = node.reset("a", Some(to_turn));
            while node.batch().is_empty() {
                assert!(node.look_up() || node.load() || node.take_turns(), "it comes to a commit");
            }
            node.commit_unknown(is_written);
            node.settle_unknown();
            node.settle();
            assert_eq!(report(&node, request).execution, 2);
            node.raise("a", "n", "end");
            node.settle();
            let last = node.last_lines("a", 1).remove(0);
            assert!(last.ends_with("OrchestrationCompleted [1]"), "{to_turn} {is_written}: {last}");
            assert_eq!(node.row("a").execution, 2);
        }
    }
}

#[test]
fn g48_a_crash_before_the_commit_leaves_everything_and_one_after_it_loses_nothing() {
    let mut node = ManualNode::new(handlers());
    node.start("tour", "a", ());
    node.settle().finish("a", "first", "F").settle();
    node.raise("a", "n", "E");
    node.settle();
    node.reset("a", Some(1));
    while node.batch().is_empty() {
        assert!(node.look_up() || node.load() || node.take_turns(), "it comes to a commit");
    }
    node.crash().settle();
    assert_eq!((node.row("a").execution, node.status("a")), (1, "running".into()));
    node.reset("a", Some(1));
    while node.row("a").execution == 1 {
        assert!(node.look_up() || node.load() || node.take_turns() || node.commit() > 0);
    }
    node.crash().settle();
    node.at(node.now_ms() + 20_000).settle().finish("a", "last", "L").settle();
    assert_eq!(
        node.last_lines("a", 1)[0].split_once(' ').unwrap().1,
        r#"OrchestrationCompleted ["F","E","L"]"#
    );
}

#[test]
fn g48_another_process_resets_and_is_told_what_was_carried() {
    let mut node = failed();
    let instance_call = node.reset_call("a", None);
    let perennial_core::store::RequestOutcome::Written(number) =
        node.send_request("a", &instance_call, 10_000)
    else {
        panic!("it is written")
    };
    node.pass_requests().settle();
    let Some(CallReply::Answered(report)) = node.reply(number) else { panic!("{:?}", node.reply(number)) };
    assert_eq!(report.decode::<ResetReport>().unwrap().execution, 2);
    assert_eq!(node.status("a"), "running");
}

/// As `collect`, with an activity more at the point where the second event has come.
async fn collects_otherwise(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let first: Payload = ctx.schedule_wait("n").await;
    let done = ctx.schedule_activity("new", first).await.map_err(|_| Payload::null())?;
    Ok(done)
}

#[test]
fn g48_a_blocked_instance_is_reset_to_before_the_divergence_and_goes_on_with_the_new_code() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    for event in 1..=2 {
        node.raise("a", "n", number(event));
        node.settle();
    }
    node.replace_code(handlers_and("collect", collects_otherwise)).restart();
    node.raise("a", "n", number(3));
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0203");
    let report = reset(&mut node, "a", Some(1));
    assert_eq!((report.messages, node.status("a")), (2, "running".into()));
    node.finish("a", "new", "N").settle();
    assert_eq!(node.last_lines("a", 1)[0].split_once(' ').unwrap().1, r#"OrchestrationCompleted "N""#);
}

#[test]
fn g48_a_paused_instance_stays_paused_and_goes_on_from_the_turn_when_it_is_resumed() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", number(1));
    node.settle();
    node.pause("a", "for repair");
    node.settle();
    reset(&mut node, "a", Some(1));
    assert_eq!((node.status("a"), node.row("a").execution), ("running, blocked: PER-0309".into(), 2));
    node.resume("a");
    node.settle();
    node.raise("a", "n", "end");
    node.settle();
    assert!(node.last_lines("a", 1)[0].ends_with("OrchestrationCompleted [1]"));
}

/// A child, then an event, then another child; ends with both results.
async fn parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let first = ctx.schedule_sub_orchestration("collect", ());
    let _: Payload = ctx.schedule_wait("go").await;
    let second = ctx.schedule_sub_orchestration("steps", number(1));
    let (first, second) = ctx.join2(first, second).await;
    let words = |result: Result<Payload, _>| result.map_err(|error| Payload::from(format!("{error:?}")));
    Ok(Payload::encode(&(words(first)?, words(second)?)).expect("payloads encode"))
}

#[test]
fn g48_children_from_before_go_on_and_later_ones_are_cancelled() {
    let mut node = ManualNode::new(handlers_and("parent", parent));
    node.start("parent", "p", ());
    node.settle();
    node.raise("p", "go", ());
    node.settle();
    assert_eq!((node.status("p::1.2"), node.status("p::1.5")), ("running".into(), "running".into()));
    let report = reset(&mut node, "p", Some(1));
    assert_eq!((report.children_kept, report.children_cancelled, report.children_started), (1, 1, 0));
    node.settle();
    assert_eq!(
        (node.status("p::1.2"), node.status("p::1.5"), node.status("p::2.5")),
        ("running".into(), "cancelled".into(), "running".into())
    );
    // Once more: the first child was started two executions ago.
    reset(&mut node, "p", Some(1));
    node.raise("p::1.2", "n", "end");
    node.settle();
    node.finish("p::3.5", "A1", "S").settle();
    assert_eq!(node.last_lines("p", 1)[0].split_once(' ').unwrap().1, r#"OrchestrationCompleted [[],"S"]"#);
}

/// A child that may fail.
async fn lone_parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_sub_orchestration("steps", number(1)).await.map_err(|error| format!("{error:?}").into())
}

#[test]
fn g49_a_child_that_failed_is_started_again() {
    let mut node = ManualNode::new(handlers_and("lone_parent", lone_parent));
    node.start("lone_parent", "p", ());
    node.settle().fail("p::1.2", "A1", "no luck").settle();
    assert_eq!(node.status("p"), "failed");
    let report = reset(&mut node, "p", None);
    assert_eq!((report.children_started, report.children_kept), (1, 0));
    node.settle().finish("p::2.2", "A1", "luck").settle();
    assert_eq!((node.status("p"), node.status("p::1.2")), ("completed".into(), "failed".into()));
}

#[test]
fn g49_a_timeout_begins_again_and_a_later_cancel_is_left_behind() {
    let mut node = ManualNode::new(handlers());
    let started =
        |deadline_ms| Started { deadline_ms, ..Started::new("collect", ManualNode::VERSION, (), 7) };
    node.at(1_000).start_with("slow", started(Some(6_000)));
    node.start_with("stopped", started(None));
    node.settle().at(6_000).settle();
    node.cancel("stopped", "by mistake");
    node.settle();
    assert_eq!((node.status("slow"), node.status("stopped")), ("terminated".into(), "cancelled".into()));
    reset(node.at(10_000), "slow", None);
    reset(&mut node, "stopped", None);
    assert_eq!((node.status("slow"), node.status("stopped")), ("running".into(), "running".into()));
    node.at(14_999).settle();
    assert_eq!(node.status("slow"), "running");
    node.at(15_000).settle();
    assert_eq!((node.status("slow"), node.status("stopped")), ("terminated".into(), "running".into()));
}

/// An activity against a timer of 5 s, then an event.
async fn waits(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let timer = ctx.schedule_timer(secs(5));
    match ctx.select2(timer, ctx.schedule_wait("n")).await {
        Either::First(()) => Ok("timer".into()),
        Either::Second(event) => Ok(event),
    }
}

#[test]
fn g48_timers_that_fired_later_are_delivered_again_and_open_ones_keep_their_due_time() {
    let mut node = ManualNode::new(handlers_and("waits", waits));
    node.at(1_000).start("waits", "fired", ());
    node.start("waits", "open", ());
    node.settle().at(3_000).settle();
    reset(&mut node, "open", Some(1));
    node.at(5_999).settle();
    assert_eq!(node.status("open"), "running");
    node.at(6_000).settle();
    assert_eq!((node.status("open"), node.status("fired")), ("completed".into(), "completed".into()));
    let report = reset(&mut node, "fired", Some(1));
    assert_eq!((report.results, node.status("fired")), (1, "completed".into()));
    assert!(node.last_lines("fired", 1)[0].ends_with(r#"OrchestrationCompleted "timer""#));
}

#[test]
fn g48_attributes_and_published_status_are_those_of_the_turn() {
    async fn tells(ctx: OrchestrationContext, _: Payload) -> Outcome {
        for step in 0_u64.. {
            ctx.upsert_attributes([("step", number(step))]);
            ctx.set_status(number(step));
            let next: Payload = ctx.schedule_wait("n").await;
            if next == "end".into() {
                break;
            }
        }
        Ok(Payload::null())
    }
    let mut node = ManualNode::new(handlers_and("tells", tells));
    node.start("tells", "a", ());
    node.settle();
    for _ in 0..3 {
        node.raise("a", "n", ());
        node.settle();
    }
    assert_eq!(node.row("a").published, Some(number(3)));
    node.pause("a", "to look");
    node.settle();
    reset(&mut node, "a", Some(2));
    let row = node.row("a");
    assert_eq!((row.published, row.attributes.get("step").cloned()), (Some(number(1)), Some(number(1))));
}

#[test]
fn g48_what_other_nodes_finished_for_the_execution_before_is_dropped() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    reset(&mut node, "a", Some(1));
    let job = Job::ActivityCompleted {
        source_event_id: perennial_core::EventId(2),
        result: "stale".into(),
        attempts: 1,
        trail: Default::default(),
    };
    node.send_message("a", &Message::Outcome { execution: 1, job });
    node.pass_inbox().settle();
    assert_eq!(node.status("a"), "running");
    assert_eq!(node.stops(), ["a A1"], "its own attempt was told to stop");
    node.finish("a", "A1", "stale, too").settle();
    assert_eq!(node.status("a"), "running");
    node.finish("a", "A1", "fresh").settle();
    assert!(node.last_lines("a", 1)[0].ends_with(r#"OrchestrationCompleted "fresh""#));
}
