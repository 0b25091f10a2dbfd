//! Commits whose outcome is not known, and commits that the store will never take (G7).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::shard::Message;
use perennial_core::store::{CommitOutcome, StoreError};
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

#[test]
fn g7_while_an_outcome_is_unknown_nobody_is_told_anything() {
    for is_written in [true, false] {
        let mut node = ManualNode::new(handlers());
        node.start("steps", "a", number(2));
        node.settle();
        let waiting = node.await_end("a");
        node.finish("a", "A1", "one").take_turns();
        let started = node.start("collect", "b", ());
        node.take_turns();
        node.commit_unknown(is_written);
        let raised = node.raise("a", "n", "1");
        assert_eq!(node.told_all([waiting, started, raised]), ["nothing"; 3]);
        assert_eq!(node.runs(), ["a A1"]);
        node.settle_unknown();
        assert_eq!(node.runs(), ["a A1", "a A2"]);
        node.settle();
        assert_eq!(node.told_all([started, raised]), ["started", "accepted"]);
    }
}

#[test]
fn g7_the_same_bytes_under_a_new_session_are_durable_once() {
    for is_written in [true, false] {
        let mut node = ManualNode::new(handlers());
        node.start("collect", "a", ());
        node.settle();
        node.send_event("a", "n", "1");
        node.pass_inbox().take_turns();
        node.commit_unknown(is_written);
        node.settle_unknown();
        node.raise("a", "n", "end");
        node.settle();
        assert_eq!(node.last_lines("a", 1), [r#"6 OrchestrationCompleted ["1"]"#]);
        assert!(node.inbox("a").is_empty());
    }
}

#[test]
fn g7_an_unknown_start_is_answered_as_started_once_it_is_settled() {
    for is_written in [true, false] {
        let mut node = ManualNode::new(handlers());
        let (started, rival) = (node.start("steps", "a", number(1)), node.start("steps", "a", number(1)));
        node.take_turns();
        node.commit_unknown(is_written);
        assert_eq!(node.told_all([started, rival]), ["nothing"; 2]);
        node.settle_unknown();
        assert_eq!(node.told_all([started, rival]), ["started", "already exists: running"]);
        assert_eq!(node.runs(), ["a A1"]);
    }
}

#[test]
fn g7_an_unknown_start_whose_first_turn_failed_is_answered_as_started_once_it_is_settled() {
    for is_written in [false, true] {
        let mut node = ManualNode::new(handlers_and("panics", panics));
        let started = node.start("panics", "a", ());
        node.take_turns();
        node.commit_unknown(is_written);
        node.settle_unknown();
        assert_eq!(
            node.told(started),
            "started",
            "its own row does not make the id taken; written: {is_written}"
        );
        assert_eq!(
            (node.status("a"), node.inbox("a")),
            ("pending, blocked: PER-0201".to_owned(), vec!["Start panics".to_owned()])
        );
    }
}

#[test]
fn g7_an_event_to_a_blocked_instance_is_kept_once_also_if_the_outcome_was_unknown() {
    for is_written in [false, true] {
        let mut node = ManualNode::new(handlers_and("panics", panics));
        node.start("panics", "a", ());
        node.settle();
        let raised = node.raise("a", "n", "1");
        node.commit_unknown(is_written);
        node.settle_unknown();
        assert_eq!(node.told(raised), "accepted");
        assert_eq!(
            node.inbox("a"),
            ["Start panics", r#"ExternalEvent "n" "1""#],
            "each acknowledged event appears once; written: {is_written}"
        );
    }
}

/// An instance to which the event has come that its code cannot stand.
fn about_to_panic() -> ManualNode {
    let panics_at_2 = |ctx: OrchestrationContext, _: Payload| async move {
        let first: Payload = ctx.schedule_wait("n").await;
        assert_ne!(first, "2".into(), "boom");
        Ok(ctx.schedule_wait("n").await)
    };
    let mut node = ManualNode::new(handlers_and("panics_at_2", panics_at_2));
    node.start("panics_at_2", "a", ());
    node.settle();
    node.raise("a", "n", "2");
    node
}

#[test]
fn g7_the_messages_of_a_failed_turn_are_kept_once_also_if_the_outcome_was_unknown() {
    for is_written in [false, true] {
        let mut node = about_to_panic();
        node.take_turns();
        node.commit_unknown(is_written);
        node.settle_unknown();
        assert_eq!(node.inbox("a"), [r#"ExternalEvent "n" "2""#], "written: {is_written}");
    }
}

#[test]
fn g7_a_store_that_cannot_be_reached_is_asked_again_with_nothing_lost() {
    let mut node = ManualNode::new(handlers());
    let started = node.start("steps", "a", number(1));
    node.take_turns();
    for later_ms in [2_000, 3_000, 4_000] {
        node.commit_failing(StoreError::Unavailable("busy".to_owned()));
        assert_eq!((node.batch().len(), node.told(started)), (0, "nothing".to_owned()));
        node.at(later_ms);
        assert_eq!(node.batch(), ["a"]);
    }
    node.commit();
    assert_eq!((node.told(started), node.runs()), ("started".to_owned(), &["a A1".to_owned()][..]));
}

#[test]
fn g7_a_batch_refused_for_good_is_halved_until_the_culprit_stands_alone_and_is_blocked() {
    let mut node = ManualNode::new(handlers());
    let ids = ["a", "b", "c", "d", "e"];
    ids.iter().for_each(|id| {
        node.start("collect", id, ());
    });
    node.settle();
    let raised = ids.map(|id| node.raise(id, "n", "1"));
    node.take_turns();
    node.commit();
    let batches = node.commit_refusing("c", "too large");
    assert_eq!(batches, [vec!["b", "c", "d", "e"], vec!["b", "c"], vec!["b"], vec!["c"]]);
    node.settle();
    assert_eq!(node.told_all(raised), ["accepted"; 5]);
    for id in ["a", "b", "d", "e"] {
        assert_eq!((node.status(id), node.lines(id).len()), ("running".to_owned(), 4));
    }
    let row = node.row("c");
    let blocked = row.blocked.expect("the culprit is blocked");
    assert_eq!(blocked.reason, "PER-0303 the store refused the turn: too large");
    assert_eq!((node.lines("c").len(), node.inbox("c")), (2, vec![r#"ExternalEvent "n" "1""#.to_owned()]));
}

#[test]
fn g7_a_member_that_the_store_rejects_is_blocked_without_its_turn_and_tried_again() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    let raised = node.raise("a", "n", "1");
    node.take_turns();
    node.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    assert_eq!(node.told(raised), "nothing");
    node.settle();
    assert_eq!(
        (node.told(raised), node.status("a")),
        ("accepted".into(), "running, blocked: PER-0303".into())
    );
    node.at(2_000).settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running".into(), 0));
    assert_eq!(node.last_lines("a", 2), [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalSubscribed "n""#]);
}

#[test]
fn g7_a_start_that_the_store_rejects_is_stored_as_pending_and_blocked() {
    let mut node = ManualNode::new(handlers());
    let (started, rival) = (node.start("steps", "a", number(1)), node.start("steps", "a", number(1)));
    node.take_turns();
    node.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    node.settle();
    assert_eq!(node.told_all([started, rival]), ["started", "already exists: pending"]);
    assert_eq!((node.status("a"), node.runs().len()), ("pending, blocked: PER-0303".into(), 0));
    node.at(2_000).settle();
    assert_eq!((node.status("a"), node.runs()), ("running".into(), &["a A1".to_owned()][..]));
}

#[test]
fn g7_what_can_be_written_in_no_way_leaves_nobody_waiting() {
    let mut node = ManualNode::new(handlers());
    let (started, rival) = (node.start("steps", "a", number(1)), node.start("steps", "a", number(1)));
    let (raised, waiting) = (node.raise("a", "n", "1"), node.await_end("a"));
    node.take_turns();
    node.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    node.commit_as("a", CommitOutcome::Rejected("no room for that either".to_owned()));
    node.settle();
    assert_eq!(node.try_row("a"), None);
    let told = node.told_all([started, rival, raised, waiting]);
    assert!(!told.contains(&"nothing".to_owned()), "{told:?}");
    assert_eq!(node.in_memory("a"), 0);
}

#[test]
fn g7_an_event_that_comes_with_a_retry_is_kept_once_also_if_the_outcome_was_unknown() {
    for is_written in [false, true] {
        let mut node = about_to_panic();
        node.settle();
        node.send_message("a", &Message::Retry);
        node.pass_inbox().tick().load();
        let raised = node.raise("a", "n", "3");
        node.take_turns();
        node.take_turns();
        node.commit_unknown(is_written);
        node.settle_unknown();
        node.settle();
        assert_eq!(node.told(raised), "accepted");
        let events = |node: &ManualNode| {
            node.inbox("a").into_iter().filter(|line| line.starts_with("External")).count()
        };
        assert_eq!(events(&node), 2, "written: {is_written}");
        node.at(2_000).settle();
        node.at(10_000).settle();
        assert_eq!(node.inbox("a").len(), 2, "the retry went with the next try; written: {is_written}");
    }
}
