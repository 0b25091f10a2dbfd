//! What becomes of what an orchestration sends: reported with the commit that sends, once (G37).

use crate::shard_cases::{Outcome, handlers, number, secs};
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Sends an event, a start and a cancel to the ids of its input, and ends with what became of each.
async fn sends(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let (event, start, cancel): (String, String, String) = input.decode().expect("three ids");
    let event = ctx.raise_event(event, "n", "hello").delivered();
    let start = ctx.schedule_orchestration("collect", start, ()).delivered();
    let cancel = ctx.cancel_orchestration(cancel, "replaced").grace(secs(3)).delivered();
    Ok(format!("{:?}", ctx.join3(event, start, cancel).await).into())
}

fn all() -> Handlers {
    handlers().with("sends", ManualNode::VERSION, sends)
}

/// A node with `here`, which runs, and `over`, which has ended.
fn node() -> ManualNode {
    let mut node = ManualNode::new(all());
    node.start("collect", "here", ());
    node.start("echo", "over", ());
    node.settle();
    node
}

fn result(node: &ManualNode, id: &str) -> String {
    let last = node.last_lines(id, 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ").expect("it has completed").1.trim_matches('"').to_owned()
}

#[test]
fn g37_delivered_missing_ended_and_taken_are_told_apart() {
    for (ids, expected) in [
        (("here", "new", "here"), "(Delivered, Delivered, Delivered)"),
        (("nobody", "here", "nobody"), "(NotFound, AlreadyExists, NotFound)"),
        (("over", "over", "over"), "(Ended, AlreadyExists, Ended)"),
        (("new", "", "new"), "(NotFound, BadId, NotFound)"),
    ] {
        let mut node = node();
        node.start("sends", "a", Payload::encode(&ids).expect("it encodes"));
        node.settle();
        assert_eq!(result(&node, "a"), expected, "{ids:?}");
    }
}

#[test]
fn g37_reports_are_written_with_what_they_tell_of_and_survive_a_crash() {
    let mut node = node();
    node.start("sends", "a", Payload::encode(&("here", "new", "nobody")).expect("it encodes"));
    node.take_turns();
    node.commit();
    assert_eq!(
        node.inbox("a"),
        [
            "DeliveryReported of 2 Delivered",
            "DeliveryReported of 3 Delivered",
            "DeliveryReported of 4 NotFound"
        ]
    );
    node.restart();
    node.settle();
    assert_eq!(result(&node, "a"), "(Delivered, Delivered, NotFound)");
    assert_eq!(node.inbox("a"), [""; 0]);
}

#[test]
fn g37_a_commit_whose_outcome_is_unknown_reports_once() {
    let mut node = node();
    node.start("sends", "a", Payload::encode(&("here", "new", "over")).expect("it encodes"));
    node.take_turns();
    node.commit_unknown(true);
    node.settle_unknown();
    node.settle();
    assert_eq!(result(&node, "a"), "(Delivered, Delivered, Ended)");
    let reports = node.lines("a").iter().filter(|line| line.contains("DeliveryReported")).count();
    assert_eq!(reports, 3);
    node.raise("here", "n", "end");
    node.settle();
    assert_eq!(result(&node, "here"), r#"["hello"]"#, "the event came once");
}

#[test]
fn g37_a_cancel_of_another_instance_reaches_one_that_is_blocked() {
    let panics = |_: OrchestrationContext, _: Payload| async move { panic!("boom") };
    let mut node = ManualNode::new(all().with("panics", ManualNode::VERSION, panics));
    node.start("panics", "stuck", ());
    node.settle();
    assert!(node.row("stuck").blocked.is_some());
    node.start("sends", "a", Payload::encode(&("stuck", "new", "stuck")).expect("it encodes"));
    node.settle();
    node.at(10_000).settle();
    assert_eq!(node.status("stuck"), "terminated", "its grace of 3 s is over");
    assert_eq!(result(&node, "a"), "(Delivered, Delivered, Delivered)");
}

#[test]
fn g37_what_nobody_asks_about_costs_no_message() {
    let mut node = ManualNode::new(all().with(
        "tells",
        ManualNode::VERSION,
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.raise_event("nobody", "n", ());
            ctx.schedule_orchestration("collect", "new", ());
            ctx.cancel_orchestration("nobody", "enough");
            Ok(ctx.schedule_wait("n").await)
        },
    ));
    node.start("tells", "a", ());
    node.take_turns();
    node.commit();
    assert_eq!(node.inbox("a"), [""; 0]);
}

/// Raises the same event in each of its executions.
async fn raises_again(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let round: u64 = input.decode().expect("a number");
    let raised = ctx.raise_event("here", "n", number(round)).once("invoice-7").delivered().await;
    if round < 3 {
        return ctx.continue_as_new(number(round + 1)).await;
    }
    Ok(format!("{raised:?}").into())
}

#[test]
fn e33_an_event_that_code_raises_once_arrives_once_over_continue_as_new_and_crashes() {
    let mut node = ManualNode::new(all().with("raises", ManualNode::VERSION, raises_again));
    node.start("collect", "here", ());
    node.settle();
    node.send_start("raises", "a", number(1));
    for _ in 0..30 {
        let _ = node.take_turns() || node.commit() > 0;
        node.crash().take_over();
        let _ = node.load();
    }
    node.settle();
    assert_eq!(result(&node, "a"), "Delivered", "it is there, as the first one");
    node.raise_once("here", "n", "invoice-7", "by a client");
    node.raise("here", "n", "end");
    node.settle();
    assert_eq!(result(&node, "here"), "[1]");
}

#[test]
fn e33_a_key_that_clients_draw_is_a_mistake_of_the_code() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.raise_event("here", "n", ()).once("~mine");
        Ok(().into())
    };
    let mut node = ManualNode::new(all().with("raises", ManualNode::VERSION, code));
    node.start("raises", "a", ());
    node.settle();
    let blocked = node.row("a").blocked.expect("it is blocked");
    assert!(blocked.reason.contains("keys that begin with `~`"), "{}", blocked.reason);
}
