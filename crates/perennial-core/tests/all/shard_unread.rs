//! Events that the code has not read: how they are counted wherever they are (G18), and the flag that tells senders in
//! other processes (N18).

use crate::shard_cases::{Outcome, handlers, handlers_and, settle_for_a_while};
use perennial_core::shard::{CallReply, InstanceCall, Message, ShardOptions};
use perennial_core::store::{RequestOutcome, SendOutcome};
use perennial_core::{Job, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

fn node(max_unread: usize, code: &str) -> ManualNode {
    let options = ShardOptions { max_unread, ..ShardOptions::default() };
    let mut node = match code {
        "reads_on_demand" => ManualNode::with_options(handlers_and("test", reads_on_demand), options),
        "panics_on_go" => ManualNode::with_options(handlers_and("test", panics_on_go), options),
        _ => ManualNode::with_options(handlers_and("test", renews_on_go), options),
    };
    node.start("test", "a", ());
    node.settle();
    node
}

/// Reads one event `n` after each activity.
async fn reads_on_demand(ctx: OrchestrationContext, _: Payload) -> Outcome {
    for number in 1.. {
        let _ = ctx.schedule_activity(format!("next {number}"), ()).await;
        let _: Payload = ctx.schedule_wait("n").await;
    }
    Ok(Payload::null())
}

/// Reads no event `n`, and panics as soon as there is a `go`.
async fn panics_on_go(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("go").await;
    panic!("boom")
}

/// Continues as new with each `go`, and reads no event `n`.
async fn renews_on_go(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("go").await;
    ctx.continue_as_new(()).await
}

/// Raises events `n` one after the other, each of which is settled before the next.
fn raise<const N: usize>(node: &mut ManualNode, events: [&str; N]) -> [String; N] {
    events.map(|event| {
        let raised = node.raise("a", "n", event);
        node.settle().pass_inbox().settle();
        node.told(raised)
    })
}

#[test]
fn g18_an_event_for_a_delayed_instance_counts_once() {
    for is_restarted in [false, true] {
        let options = ShardOptions { max_unread: 4, ..ShardOptions::default() };
        let mut node = ManualNode::with_options(handlers_and("test", reads_on_demand), options);
        node.send_delayed_start("test", "a", (), 10_000);
        node.pass_inbox().settle();
        node.send_event("a", "n", "0");
        node.pass_inbox().settle();
        assert_eq!(raise(&mut node, ["1", "2"]), ["accepted"; 2]);
        if is_restarted {
            node.restart();
        }
        assert_eq!(raise(&mut node, ["3", "4"]), ["accepted", "full: 4"]);
        node.at(10_000).settle();
        let jobs: Vec<String> = node.jobs("a").iter().map(|job| job.summary()).collect();
        assert_eq!(jobs, ["0", "1", "2", "3"].map(|event| format!(r#"ExternalEvent "n" "{event}""#)));
        assert!(node.inbox("a").is_empty());
    }
}

#[test]
fn g18_several_events_at_once_for_a_delayed_instance_count_while_they_are_written() {
    let options = ShardOptions { max_unread: 2, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("test", reads_on_demand), options);
    node.send_delayed_start("test", "a", (), 10_000);
    node.pass_inbox().settle();
    node.raise("a", "n", "1");
    node.look_up();
    node.load();
    assert_eq!(node.batch(), ["a"]);
    let (second, third) = (node.raise("a", "n", "2"), node.raise("a", "n", "3"));
    assert_eq!(node.told_all([second, third]), ["nothing", "full: 2"]);
    node.settle();
    assert_eq!((node.told(second), node.inbox("a").len()), ("accepted".into(), 3));
}

#[test]
fn g18_events_that_are_recorded_count_while_their_instance_is_hydrated() {
    let mut node = node(4, "reads_on_demand");
    assert_eq!(raise(&mut node, ["1", "2", "3"]), ["accepted"; 3]);
    node.crash();
    let raised = ["4", "5", "6"].map(|event| node.raise("a", "n", event));
    let asked = node.cancel("nobody", "this waits for another look-up");
    node.settle();
    assert_eq!(node.told_all(raised), ["accepted", "full: 4", "full: 4"]);
    assert_eq!(node.told(asked), "not found");
    assert_eq!(node.jobs("a").len(), 4, "what was refused is not recorded");
}

#[test]
fn g18_events_that_are_recorded_count_while_their_instance_is_blocked() {
    let mut node = node(5, "panics_on_go");
    assert_eq!(raise(&mut node, ["1", "2", "3"]), ["accepted"; 3]);
    node.raise("a", "go", ());
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    assert_eq!(raise(&mut node, ["4", "5"]), ["accepted", "full: 5"]);
    node.restart();
    assert_eq!((node.status("a"), node.jobs("a").len()), ("running, blocked: PER-0201".into(), 3));
    assert_eq!(raise(&mut node, ["6"]), ["full: 5"], "its history was replayed, and so it is known");
}

#[test]
fn g18_events_of_a_blocked_instance_that_has_left_memory_are_counted_before_more_are_taken() {
    let mut node = node(4, "panics_on_go");
    node.raise("a", "go", ());
    node.settle();
    assert_eq!(raise(&mut node, ["1", "2"]), ["accepted"; 2]);
    node.crash();
    let raised = ["3", "4"].map(|event| node.raise("a", "n", event));
    node.settle();
    assert_eq!(node.told_all(raised), ["accepted", "full: 4"], "nobody has tried it again");
    node.crash();
    assert_eq!(raise(&mut node, ["5"]), ["full: 4"]);
    assert_eq!(node.inbox("a").len(), 4);
}

#[test]
fn g18_events_that_cross_to_the_next_execution_count_on_the_way() {
    let mut node = node(4, "renews_on_go");
    assert_eq!(raise(&mut node, ["1", "2", "3"]), ["accepted"; 3]);
    node.raise("a", "go", ());
    node.take_turns();
    let (fourth, fifth) = (node.raise("a", "n", "4"), node.raise("a", "n", "5"));
    assert_eq!(node.told_all([fourth, fifth]), ["nothing", "full: 4"]);
    node.commit();
    assert_eq!(node.turns_to_take(), ["a"], "the first turn of the next execution");
    let sixth = node.raise("a", "n", "6");
    assert_eq!(node.told(sixth), "full: 4");
    node.settle();
    assert_eq!((node.told(fourth), node.row("a").execution), ("accepted".into(), 2));
    assert_eq!(node.jobs("a").len(), 4);
    assert_eq!(raise(&mut node, ["7"]), ["full: 4"]);
}

fn send(node: &mut ManualNode) -> bool {
    let outcome = node.send_event("a", "n", "sent");
    node.pass_inbox().settle();
    match outcome {
        SendOutcome::Sent(_) => true,
        SendOutcome::Full(_) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn n18_the_owner_sets_the_flag_at_the_limit_and_clears_it_below_half() {
    for is_restarted in [false, true] {
        let mut node = node(4, "reads_on_demand");
        assert_eq!(raise(&mut node, ["1", "2", "3"]), ["accepted"; 3]);
        assert!(!node.row("a").full);
        assert_eq!(raise(&mut node, ["4"]), ["accepted"]);
        assert!(node.row("a").full);
        for (read, is_full) in [(1, true), (2, true), (3, false)] {
            if is_restarted {
                node.restart();
            }
            assert!(!send(&mut node), "{read}: senders of other processes are refused");
            assert_eq!(raise(&mut node, ["5"])[0].split(':').next(), Some("full"), "{read}: and those here");
            node.finish("a", &format!("next {read}"), ()).settle();
            assert_eq!(node.row("a").full, is_full, "{read} were read");
        }
        assert!(send(&mut node), "there is room again");
        assert_eq!(raise(&mut node, ["6"]), ["accepted"]);
        assert_eq!(node.jobs("a").len(), 4 + 3 + 2);
    }
}

#[test]
fn g18_events_whose_senders_elsewhere_wait_for_an_answer_count_too() {
    let mut node = node(4, "reads_on_demand");
    assert_eq!(raise(&mut node, ["1", "2"]), ["accepted"; 2]);
    // They come together, so that the last ones find no room only because of the first ones.
    let numbers = ["3", "4", "5", "6"].map(|event| {
        let (name, key) = ("n".to_owned(), format!("k{event}"));
        let instance_call = InstanceCall::Raise { name, payload: event.into(), key, trace: None };
        match node.send_request("a", &instance_call, 1_000_000) {
            RequestOutcome::Written(number) => number,
            RequestOutcome::NoInstance => panic!("it exists"),
        }
    });
    node.pass_requests().settle();
    let is_taken = numbers.map(|number| match node.reply(number) {
        Some(CallReply::Answered(_)) => true,
        Some(CallReply::Refused { .. }) => false,
        other => panic!("{other:?}"),
    });
    assert_eq!(is_taken, [true, true, false, false]);
    assert_eq!((node.jobs("a").len(), node.row("a").full), (4, true));
    assert_eq!(raise(&mut node, ["7"]), ["full: 4"]);
}

#[test]
fn g18_recorded_events_that_the_code_has_not_read_count_while_a_commit_is_under_way() {
    let options = ShardOptions { max_unread: 4, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("collect", "a", ());
    node.settle();
    for _ in 0..3 {
        node.raise("a", "never read", "x");
        node.settle();
    }
    let fourth = node.raise("a", "never read", "x");
    let fifth = node.raise("a", "never read", "x");
    node.settle();
    assert_eq!((node.told(fourth), node.told(fifth)), ("accepted".into(), "full: 4".into()));
}

#[test]
fn g18_a_cancel_before_the_first_turn_does_not_make_that_turn_too_large() {
    let mut options = ShardOptions::default();
    options.execution.limits.turn_decisions = 20;
    options.execution.limits.turn_bytes = 2_048;
    let mut node = ManualNode::with_options(handlers(), options);
    node.send_start("collect", "a", ());
    for _ in 0..40 {
        node.send_event("a", "n", "x".repeat(300));
    }
    let cancel = Job::OrchestrationCancelRequested { reason: "enough".to_owned(), grace_ms: 30_000 };
    node.send_message("a", &Message::Job(cancel));
    node.pass_inbox();
    settle_for_a_while(&mut node);
    assert_eq!(node.status("a"), "cancelled");
    let row = node.row("a");
    let turns = node.history(&row, 1).turns;
    let most = turns.iter().map(|turn| turn.jobs().count()).max();
    assert!(most <= Some(11), "a turn takes half of its limits, and the cancel: {most:?}");
}
