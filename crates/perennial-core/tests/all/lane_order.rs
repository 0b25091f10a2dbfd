//! In which order an instance gets what comes for it: by arrival, and by what its sender knew (G13, N16).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, handlers_and, settle_for_a_while};
use perennial_core::shard::{CallReply, InstanceCall, Request, ShardOptions};
use perennial_core::store::{CommitOutcome, Conflict, InboxNumber, RequestOutcome, SendOutcome};
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Two timers, of five and of ten seconds, and events.
async fn waits(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let timers = [5, 10].map(|seconds| ctx.schedule_timer(Duration::from_secs(seconds)));
    ctx.join(timers).await;
    Ok(ctx.schedule_wait("end").await)
}

/// A node with an instance that has two timers, due at 6,000 and 11,000 ms.
fn waiting() -> ManualNode {
    let mut node = ManualNode::new(handlers_and("waits", waits));
    node.start("waits", "a", ());
    node.settle();
    node
}

/// What the instance was given, in order: `t1` and `t2` for its timers, an event's payload.
fn given(node: &ManualNode) -> String {
    let lines = node.lines("a").into_iter().filter_map(|line| {
        let (_, what) = line.split_once(' ')?;
        match what {
            "TimerFired of 2" => Some("t1".to_owned()),
            "TimerFired of 3" => Some("t2".to_owned()),
            _ => {
                what.strip_prefix(r#"ExternalEvent "n" "#).map(|payload| payload.trim_matches('"').to_owned())
            }
        }
    });
    lines.collect::<Vec<_>>().join(" ")
}

fn sent(outcome: SendOutcome) -> InboxNumber {
    match outcome {
        SendOutcome::Sent(number) => number,
        other => panic!("it was not sent: {other:?}"),
    }
}

#[test]
fn g13_an_event_that_arrived_before_a_timer_was_due_goes_first_though_it_was_not_read() {
    let mut node = waiting();
    node.set_clock(5_000);
    node.send_event("a", "n", "early");
    node.at(6_000).settle();
    assert_eq!((given(&node), node.counters("a").conflicts), ("early t1".to_owned(), 1));
}

#[test]
fn g13_an_event_that_arrived_when_a_timer_was_due_goes_first() {
    for from_afar in [false, true] {
        let mut node = waiting();
        node.raise("a", "n", "0");
        node.take_turns();
        node.set_clock(6_000);
        if from_afar {
            node.send_event("a", "n", "tie");
            node.pass_inbox();
        } else {
            node.raise("a", "n", "tie");
        }
        node.tick().settle();
        assert_eq!(given(&node), "0 tie t1", "from afar: {from_afar}");
    }
}

#[test]
fn g13_a_timer_that_fires_when_it_is_due_does_not_wait_for_what_arrives_then() {
    let mut node = waiting();
    node.set_clock(6_000);
    node.send_event("a", "n", "tie");
    node.tick().settle();
    node.pass_inbox().settle();
    assert_eq!((given(&node), node.counters("a").conflicts), ("t1 tie".to_owned(), 0));
}

#[test]
fn g13_after_an_outage_timers_go_among_messages_by_their_arrival() {
    let mut node = waiting();
    node.crash();
    for (at_ms, event) in [(2_000, "1"), (6_001, "2"), (10_999, "3"), (11_000, "4"), (11_001, "5")] {
        node.set_clock(at_ms);
        node.send_event("a", "n", event);
    }
    node.set_clock(60_000);
    node.take_over().settle();
    assert_eq!(given(&node), "1 t1 2 3 4 t2 5");
}

#[test]
fn g13_what_a_resident_instance_is_given_is_ordered_by_arrival_too() {
    let mut node = waiting();
    node.raise("a", "n", "0");
    node.take_turns();
    for (at_ms, event) in [(2_000, "1"), (7_000, "2")] {
        node.set_clock(at_ms);
        node.raise("a", "n", event);
    }
    node.set_clock(12_000);
    node.settle();
    assert_eq!(given(&node), "0 1 t1 2 t2");
}

#[test]
fn g13_messages_keep_their_own_order_whenever_they_arrived() {
    let mut node = waiting();
    node.crash();
    node.set_clock(7_000);
    node.send_event("a", "n", "1");
    node.send_event("a", "n", "2");
    // Numbers may become visible out of order.
    let first = *node.tables().inbox.keys().next().expect("two messages");
    node.tables().inbox.get_mut(&first).expect("it is there").arrived_ms = 7_001;
    node.set_clock(60_000);
    node.take_over().settle();
    assert_eq!(given(&node), "t1 1 2 t2");
}

// ---- order across routes -------------------------------------------------------------------------------------------

/// Keeps a list of events, and tells it.
async fn lists(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let list = ctx.state(String::new());
    let (shown, added) = (list.clone(), list.clone());
    ctx.on_query("list", move |_: Payload| Ok(Payload::from(shown.read(String::clone))));
    ctx.on_update(
        "add",
        |_: &Payload| Ok(()),
        move |item: Payload| {
            let added = added.clone();
            async move {
                added.update(|list| list.push_str(&item.decode::<String>().expect("a string")));
                Ok(Payload::from(added.read(String::clone)))
            }
        },
    );
    loop {
        let next: Payload = ctx.schedule_wait("n").await;
        list.update(|list| list.push_str(&next.decode::<String>().expect("a string")));
    }
}

fn listing() -> ManualNode {
    let mut node = ManualNode::new(handlers_and("lists", lists));
    node.start("lists", "a", ());
    node.settle();
    node
}

fn raise(event: &str) -> Request {
    Request::Raise { name: "n".to_owned(), payload: event.into(), key: None, trace: None }
}

fn query() -> InstanceCall {
    InstanceCall::Query { name: "list".to_owned(), payload: Payload::null() }
}

fn update(item: &str) -> InstanceCall {
    InstanceCall::Update { name: "add".to_owned(), payload: item.into(), key: None, trace: None }
}

fn list(node: &mut ManualNode) -> String {
    let asked = node.query("a", "list", ());
    node.settle();
    node.told(asked)
}

#[test]
fn n16_an_event_here_follows_the_senders_event_from_afar() {
    for is_dormant in [false, true] {
        let mut node = listing();
        if is_dormant {
            node.crash();
        }
        let after = sent(node.send_event("a", "n", "1"));
        let raised = node.request_after("a", raise("2"), Some(after));
        let again = node.request_after("a", raise("3"), Some(after));
        node.settle();
        assert_eq!(node.told_all([raised, again]), ["accepted", "accepted"]);
        assert_eq!(list(&mut node), r#"answered: "123""#, "dormant: {is_dormant}");
    }
}

#[test]
fn n16_queries_and_updates_here_follow_the_senders_event_from_afar() {
    for is_dormant in [false, true] {
        let mut node = listing();
        if is_dormant {
            node.crash();
        }
        let after = Some(sent(node.send_event("a", "n", "1")));
        let seen = node.request_after("a", Request::Call(query()), after);
        let added = node.request_after("a", Request::Call(update("2")), after);
        node.settle();
        assert_eq!(node.told_all([seen, added]), [r#"answered: "1""#, r#"answered: "12""#], "{is_dormant}");
    }
}

#[test]
fn n16_a_request_from_afar_follows_the_senders_event_from_afar() {
    for is_dormant in [false, true] {
        let mut node = listing();
        if is_dormant {
            node.crash();
        }
        let after = Some(sent(node.send_event("a", "n", "1")));
        let RequestOutcome::Written(number) = node.send_request_after("a", &query(), 60_000, after) else {
            panic!("it exists")
        };
        node.pass_requests().settle();
        assert_eq!(node.reply(number), Some(CallReply::Answered("1".into())), "dormant: {is_dormant}");
    }
}

#[test]
fn n16_a_request_from_afar_that_waits_for_a_message_is_taken_once() {
    let mut node = listing();
    let after = Some(sent(node.send_event("a", "n", "1")));
    let RequestOutcome::Written(number) = node.send_request_after("a", &update("2"), 60_000, after) else {
        panic!("it exists")
    };
    // The page that holds it is read twice before the message is.
    node.hold_back().pass_requests().pass_requests();
    for held in node.read_refreshes() {
        node.bring(held);
    }
    node.settle();
    assert_eq!(node.reply(number), Some(CallReply::Answered("12".into())));
    assert_eq!(list(&mut node), r#"answered: "12""#);
}

#[test]
fn n16_what_follows_a_message_that_was_consumed_does_not_wait() {
    let mut node = listing();
    let after = Some(sent(node.send_event("a", "n", "1")));
    node.pass_inbox().settle();
    let seen = node.request_after("a", Request::Call(query()), after);
    node.take_turns();
    assert_eq!(node.told(seen), r#"answered: "1""#);
}

#[test]
fn n16_a_question_keeps_its_place_among_the_messages_that_came_before_it() {
    let mut node = listing();
    node.raise("a", "n", "1");
    node.take_turns();
    node.raise("a", "n", "2");
    let seen = node.query("a", "list", ());
    node.settle();
    assert_eq!(node.told(seen), r#"answered: "12""#);
}

#[test]
fn n16_a_question_keeps_its_place_when_a_commit_came_to_nothing() {
    let mut node = listing();
    let after = Some(sent(node.send_event("a", "n", "1")));
    node.pass_inbox().take_turns();
    let seen = node.request_after("a", Request::Call(query()), after);
    node.commit_as("a", CommitOutcome::Conflict(Conflict::OtherTurn));
    node.settle();
    assert_eq!(node.told(seen), r#"answered: "1""#);
}

#[test]
fn n16_a_query_is_answered_after_the_end_though_a_message_came_too_late() {
    let mut node = ManualNode::new(handlers_and("lists", lists));
    node.start("lists", "a", ());
    node.settle();
    node.terminate("a", "enough");
    node.take_turns();
    let after = Some(sent(node.send_event("a", "n", "late")));
    node.commit();
    let seen = node.request_after("a", Request::Call(query()), after);
    node.settle();
    assert_eq!((node.told(seen).as_str(), node.inbox("a").len()), (r#"answered: """#, 0));
}

#[test]
fn n16_an_event_after_one_that_a_blocked_instance_keeps_comes_after_it() {
    async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
        panic!("boom")
    }
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.replace_code(handlers().with("collect", ManualNode::VERSION, panics)).restart();
    node.raise("a", "n", "0");
    node.settle();
    let after = Some(sent(node.send_event("a", "n", "1")));
    let raised = node.request_after("a", raise("2"), after);
    node.settle();
    assert_eq!(node.told(raised), "accepted");
    node.replace_code(handlers()).restart();
    node.raise("a", "n", "end");
    node.settle();
    assert!(node.last_lines("a", 1)[0].ends_with(r#"["0","1","2"]"#), "{:?}", node.last_lines("a", 1));
}

#[test]
fn n16_what_comes_for_an_ended_instance_that_is_asked_something_is_answered() {
    let mut node = listing();
    let after = Some(sent(node.send_event("a", "n", "1")));
    node.pass_inbox().settle();
    node.terminate("a", "enough");
    node.settle();
    // Nobody remembers that the message was consumed.
    node.crash();
    let seen = node.query("a", "list", ());
    while node.look_up() || node.load() {}
    let event = Request::Raise { name: "n".to_owned(), payload: "2".into(), key: None, trace: None };
    let raised = node.hold_back().request_after("a", event, after);
    node.take_turns();
    node.settle();
    assert_eq!(node.told_all([seen, raised]), [r#"answered: "1""#, "ended before"]);
}

/// Found by the simulator, seed 1490: the store's clock was hours back for a while. What arrived then stands after what
/// arrived before, and the timer goes before both.
#[test]
fn g13_a_timer_fires_before_messages_of_a_clock_that_was_set_back_though_a_turn_takes_only_some_of_them() {
    let mut options = ShardOptions::default();
    options.execution.limits.turn_decisions = 6;
    let mut node = ManualNode::with_options(handlers_and("waits", waits), options);
    node.start("waits", "a", ());
    node.settle().crash();
    for event in ["1", "2", "3", "4", "5"] {
        node.send_event("a", "n", event);
    }
    for (message, arrived_ms) in node.tables().inbox.values_mut().zip([7_000, 2_000, 2_001, 2_002, 2_003]) {
        message.arrived_ms = arrived_ms;
    }
    node.set_clock(60_000);
    node.take_over();
    settle_for_a_while(&mut node);
    assert_eq!((given(&node), node.counters("a").conflicts), ("t1 1 2 3 4 5 t2".to_owned(), 0));
}

#[test]
fn g13_a_timer_fires_before_messages_of_a_clock_that_was_set_back_though_a_load_brings_only_some_of_them() {
    let mut node = waiting();
    node.crash();
    for event in 0..18 {
        node.send_event("a", "n", format!("{event}{}", "x".repeat(4_000_000)));
    }
    for (message, place) in node.tables().inbox.values_mut().zip(0..) {
        // More than a load brings arrived while the clock was right.
        message.arrived_ms = if place < 17 { 7_000 } else { 2_000 };
    }
    node.set_clock(60_000);
    node.take_over();
    settle_for_a_while(&mut node);
    let given: Vec<String> = given(&node).split(' ').map(|it| it.chars().take(2).collect()).collect();
    let events = (0..18).map(|event| format!("{event}x").chars().take(2).collect());
    let wanted = std::iter::once("t1".to_owned()).chain(events).chain(["t2".to_owned()]);
    assert_eq!(given, wanted.collect::<Vec<String>>());
}
