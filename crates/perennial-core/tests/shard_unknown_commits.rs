//! Commits whose outcome is not known, and commits that the store will never take (G7).

mod shard_cases;

use perennial_core::shard::Message;
use perennial_core::store::{CommitOutcome, StoreError};
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

#[test]
fn g7_while_an_outcome_is_unknown_nobody_is_told_anything() {
    for is_written in [true, false] {
        let mut desk = Desk::new(handlers());
        desk.start("steps", "a", number(2));
        desk.settle();
        let waiting = desk.await_end("a");
        desk.finish("a", "A1", "one").take_turns();
        let started = desk.start("collect", "b", ());
        desk.take_turns();
        desk.commit_unknown(is_written);
        let raised = desk.raise("a", "n", "1");
        assert_eq!(desk.told_all([waiting, started, raised]), ["nothing"; 3]);
        assert_eq!(desk.runs(), ["a A1"]);
        desk.settle_unknown();
        assert_eq!(desk.runs(), ["a A1", "a A2"]);
        desk.settle();
        assert_eq!(desk.told_all([started, raised]), ["started", "accepted"]);
    }
}

#[test]
fn g7_the_same_bytes_under_a_new_session_are_durable_once() {
    for is_written in [true, false] {
        let mut desk = Desk::new(handlers());
        desk.start("collect", "a", ());
        desk.settle();
        desk.send_event("a", "n", "1");
        desk.pass_inbox().take_turns();
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        desk.raise("a", "n", "end");
        desk.settle();
        assert_eq!(desk.last_lines("a", 1), [r#"6 OrchestrationCompleted ["1"]"#]);
        assert!(desk.inbox("a").is_empty());
    }
}

#[test]
fn g7_an_unknown_start_is_answered_as_started_once_it_is_settled() {
    for is_written in [true, false] {
        let mut desk = Desk::new(handlers());
        let (started, rival) = (desk.start("steps", "a", number(1)), desk.start("steps", "a", number(1)));
        desk.take_turns();
        desk.commit_unknown(is_written);
        assert_eq!(desk.told_all([started, rival]), ["nothing"; 2]);
        desk.settle_unknown();
        assert_eq!(desk.told_all([started, rival]), ["started", "already exists: running"]);
        assert_eq!(desk.runs(), ["a A1"]);
    }
}

#[test]
fn g7_an_unknown_start_whose_first_turn_failed_is_answered_as_started_once_it_is_settled() {
    for is_written in [false, true] {
        let mut desk = Desk::new(handlers_and("panics", panics));
        let started = desk.start("panics", "a", ());
        desk.take_turns();
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        assert_eq!(
            desk.told(started),
            "started",
            "its own row does not make the id taken; written: {is_written}"
        );
        assert_eq!(
            (desk.status("a"), desk.inbox("a")),
            ("pending, blocked: PER-0201".to_owned(), vec!["Start panics".to_owned()])
        );
    }
}

#[test]
fn g7_an_event_to_a_blocked_instance_is_kept_once_also_if_the_outcome_was_unknown() {
    for is_written in [false, true] {
        let mut desk = Desk::new(handlers_and("panics", panics));
        desk.start("panics", "a", ());
        desk.settle();
        let raised = desk.raise("a", "n", "1");
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        assert_eq!(desk.told(raised), "accepted");
        assert_eq!(
            desk.inbox("a"),
            ["Start panics", r#"ExternalEvent "n" "1""#],
            "each acknowledged event appears once; written: {is_written}"
        );
    }
}

/// An instance to which the event has come that its code cannot stand.
fn about_to_panic() -> Desk {
    let panics_at_2 = |ctx: OrchestrationContext, _: Payload| async move {
        let first: Payload = ctx.schedule_wait("n").await;
        assert_ne!(first, "2".into(), "boom");
        Ok(ctx.schedule_wait("n").await)
    };
    let mut desk = Desk::new(handlers_and("panics_at_2", panics_at_2));
    desk.start("panics_at_2", "a", ());
    desk.settle();
    desk.raise("a", "n", "2");
    desk
}

#[test]
fn g7_the_messages_of_a_failed_turn_are_kept_once_also_if_the_outcome_was_unknown() {
    for is_written in [false, true] {
        let mut desk = about_to_panic();
        desk.take_turns();
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        assert_eq!(desk.inbox("a"), [r#"ExternalEvent "n" "2""#], "written: {is_written}");
    }
}

#[test]
fn g7_a_store_that_cannot_be_reached_is_asked_again_with_nothing_lost() {
    let mut desk = Desk::new(handlers());
    let started = desk.start("steps", "a", number(1));
    desk.take_turns();
    for _ in 0..3 {
        desk.commit_failing(StoreError::Unavailable("busy".to_owned()));
        assert_eq!((desk.batch(), desk.told(started)), (vec!["a".to_owned()], "nothing".to_owned()));
    }
    desk.commit();
    assert_eq!((desk.told(started), desk.runs()), ("started".to_owned(), &["a A1".to_owned()][..]));
}

#[test]
fn g7_a_batch_refused_for_good_is_halved_until_the_culprit_stands_alone_and_is_blocked() {
    let mut desk = Desk::new(handlers());
    let ids = ["a", "b", "c", "d", "e"];
    ids.iter().for_each(|id| {
        desk.start("collect", id, ());
    });
    desk.settle();
    let raised = ids.map(|id| desk.raise(id, "n", "1"));
    desk.take_turns();
    desk.commit();
    let batches = desk.commit_refusing("c", "too large");
    assert_eq!(batches, [vec!["b", "c", "d", "e"], vec!["b", "c"], vec!["b"], vec!["c"]]);
    desk.settle();
    assert_eq!(desk.told_all(raised), ["accepted"; 5]);
    for id in ["a", "b", "d", "e"] {
        assert_eq!((desk.status(id), desk.lines(id).len()), ("running".to_owned(), 4));
    }
    let row = desk.row("c");
    let blocked = row.blocked.expect("the culprit is blocked");
    assert_eq!(blocked.reason, "PER-0303 the store refused the turn: too large");
    assert_eq!((desk.lines("c").len(), desk.inbox("c")), (2, vec![r#"ExternalEvent "n" "1""#.to_owned()]));
}

#[test]
fn g7_a_member_that_the_store_rejects_is_blocked_without_its_turn_and_tried_again() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    let raised = desk.raise("a", "n", "1");
    desk.take_turns();
    desk.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    assert_eq!(desk.told(raised), "nothing");
    desk.settle();
    assert_eq!(
        (desk.told(raised), desk.status("a")),
        ("accepted".into(), "running, blocked: PER-0303".into())
    );
    desk.at(2_000).settle();
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("running".into(), 0));
    assert_eq!(desk.last_lines("a", 2), [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalSubscribed "n""#]);
}

#[test]
fn g7_a_start_that_the_store_rejects_is_stored_as_pending_and_blocked() {
    let mut desk = Desk::new(handlers());
    let (started, rival) = (desk.start("steps", "a", number(1)), desk.start("steps", "a", number(1)));
    desk.take_turns();
    desk.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    desk.settle();
    assert_eq!(desk.told_all([started, rival]), ["started", "already exists: pending"]);
    assert_eq!((desk.status("a"), desk.runs().len()), ("pending, blocked: PER-0303".into(), 0));
    desk.at(2_000).settle();
    assert_eq!((desk.status("a"), desk.runs()), ("running".into(), &["a A1".to_owned()][..]));
}

#[test]
fn g7_what_can_be_written_in_no_way_leaves_nobody_waiting() {
    let mut desk = Desk::new(handlers());
    let (started, rival) = (desk.start("steps", "a", number(1)), desk.start("steps", "a", number(1)));
    let (raised, waiting) = (desk.raise("a", "n", "1"), desk.await_end("a"));
    desk.take_turns();
    desk.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    desk.commit_as("a", CommitOutcome::Rejected("no room for that either".to_owned()));
    desk.settle();
    assert_eq!(desk.try_row("a"), None);
    let told = desk.told_all([started, rival, raised, waiting]);
    assert!(!told.contains(&"nothing".to_owned()), "{told:?}");
    assert_eq!(desk.in_memory("a"), 0);
}

#[test]
fn g7_an_event_that_comes_with_a_retry_is_kept_once_also_if_the_outcome_was_unknown() {
    for is_written in [false, true] {
        let mut desk = about_to_panic();
        desk.settle();
        desk.send_message("a", &Message::Retry);
        desk.pass_inbox().tick().load();
        let raised = desk.raise("a", "n", "3");
        desk.take_turns();
        desk.take_turns();
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        desk.settle();
        assert_eq!(desk.told(raised), "accepted");
        let events =
            |desk: &Desk| desk.inbox("a").into_iter().filter(|line| line.starts_with("External")).count();
        assert_eq!(events(&desk), 2, "written: {is_written}");
        desk.at(2_000).settle();
        desk.at(10_000).settle();
        assert_eq!(desk.inbox("a").len(), 2, "the retry went with the next try; written: {is_written}");
    }
}
