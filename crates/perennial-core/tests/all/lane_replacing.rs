//! Commits in doubt: how they are settled, and what stands afterwards (N10, G7).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::store::{CommitOutcome, ShardSet, StoreError};
use perennial_core::{OrchestrationContext, Payload, SHARDS, ShardId};
use perennial_testkit::ManualNode;

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

/// A node with an activity under way and an event in a batch.
fn in_flight() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "steps", number(1));
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.take_turns();
    node
}

/// The events that an instance has collected so far.
fn collected(node: &ManualNode, id: &str) -> usize {
    node.jobs(id).len()
}

#[test]
fn n10_at_exactly_the_next_epoch_the_tenure_goes_on_and_the_same_bytes_are_sent() {
    for is_written in [false, true] {
        let mut node = in_flight();
        let (session, words) = (node.lane().session(), node.batch_words());
        node.commit_unknown(is_written);
        assert!(node.batch().is_empty(), "nothing is sent under a session that is being replaced");
        assert!(node.replace_session());
        assert_ne!(node.lane().session(), session);
        assert_eq!(node.batch_words(), words);
        node.settle();
        assert_eq!((collected(&node, "a"), node.counters("a").hydrations), (1, 0), "memory stands");
        assert_eq!((node.running("steps"), node.stops().len()), (vec!["A1".to_owned()], 0), "attempts stand");
        node.finish("steps", "A1", "done").settle();
        assert_eq!((node.status("steps"), node.runs().len()), ("completed".into(), 1));
    }
}

#[test]
fn n10_while_a_session_is_replaced_nothing_is_begun() {
    let mut node = in_flight();
    node.commit_unknown(true);
    let meanwhile = node.start("collect", "b", ());
    node.finish("steps", "A1", "done");
    assert!(node.turns_to_take().is_empty());
    node.settle();
    assert_eq!((node.told(meanwhile), node.status("steps")), ("started".into(), "completed".into()));
}

#[test]
fn n10_a_lane_whose_session_was_gone_forgets_its_shards() {
    for is_written in [false, true] {
        let mut node = in_flight();
        let waiting = node.await_end("a");
        node.commit_unknown(is_written);
        let rival = node.fence();
        assert!(node.replace_session());
        assert_eq!((node.told(waiting), node.stops()), ("moved".into(), &["steps A1".to_owned()][..]));
        assert!(node.lane().shards().is_empty() && node.batch().is_empty());
        node.end_session(rival);
        node.restart();
        assert_eq!(collected(&node, "a"), usize::from(is_written));
    }
}

#[test]
fn n10_of_a_replaced_session_only_shards_that_others_had_are_forgotten() {
    let mut node = in_flight();
    node.start("collect", "b", ());
    node.settle();
    assert_ne!(ShardId::of("a"), ShardId::of("b"));
    let asked = [node.raise("a", "n", "2"), node.raise("b", "n", "1")];
    node.take_turns();
    node.commit_unknown(false);
    node.open_rival_of(&[ShardId::of("b")].into_iter().collect());
    node.settle();
    assert_eq!(node.told_all(asked), ["accepted", "moved"]);
    assert_eq!((node.lane().shards().len(), collected(&node, "b")), (SHARDS - 1, 0));
    assert_eq!(node.counters("a").hydrations, 0);
}

#[test]
fn n10_a_shard_that_came_back_at_a_later_epoch_is_forgotten() {
    let mut node = in_flight();
    let asked = node.await_end("a");
    node.commit_unknown(true);
    let shard: ShardSet = [ShardId::of("a")].into_iter().collect();
    let rival = node.open_rival_of(&shard);
    node.end_session(rival);
    // It is given back to the same session, as by a claim whose answer was lost.
    node.claim_behind();
    node.settle();
    assert_eq!(node.told(asked), "moved", "somebody else had it meanwhile");
    let raised = node.raise("a", "n", "2");
    node.settle();
    assert_eq!((node.told(raised), collected(&node, "a")), ("accepted".into(), 2));
}

#[test]
fn g6_a_batch_that_waits_to_be_sent_again_is_sent_once_after_the_session_was_replaced() {
    let mut node = in_flight();
    node.open_rival_of(&[ShardId::of("b")].into_iter().collect());
    node.set_target(SHARDS - 1).notice();
    assert_eq!(node.lane().shards().len(), SHARDS - 1);
    node.commit_failing(StoreError::Unavailable("away".to_owned()));
    // The outcome of a claim is not known either: the session is replaced, and the batch sent under the next one.
    node.lose_answer("claim_shards");
    node.set_target(SHARDS);
    assert!(node.replace_session());
    assert_eq!(node.batch(), ["a"]);
    node.at(node.now_ms() + 1_000);
    node.commit();
    assert!(node.batch().is_empty(), "the answer to a second one would be taken for a later batch's");
    node.settle();
    assert_eq!(collected(&node, "a"), 1);
}

#[test]
fn n10_another_number_of_outcomes_than_of_commits_is_settled_as_in_doubt() {
    let mut node = in_flight();
    let session = node.lane().session();
    node.commit_answering(Vec::new());
    assert!(node.replace_session());
    assert_ne!(node.lane().session(), session);
    node.settle();
    assert_eq!(collected(&node, "a"), 1);
    assert_eq!(node.counters("a").hydrations, 0);
}

#[test]
fn n10_a_replacement_whose_answer_is_lost_is_made_again_and_takes_effect_once() {
    for is_written in [false, true] {
        let mut node = in_flight();
        node.commit_unknown(is_written);
        let epoch = node.epoch("a");
        for later_ms in [2_000, 3_000] {
            node.lose_answer("replace_session");
            node.replace_session();
            assert!(node.batch().is_empty());
            node.at(later_ms);
        }
        node.settle();
        assert_eq!((collected(&node, "a"), node.counters("a").hydrations), (1, 0), "memory stands");
        assert_eq!(node.epoch("a"), epoch + 1);
        assert_eq!(node.running("steps"), ["A1"]);
    }
}

#[test]
fn n10_an_open_and_a_claim_whose_answers_are_lost_are_made_again() {
    let mut node = in_flight();
    node.settle();
    node.lose_answer("open_session");
    node.lose_answer("claim_shards");
    node.crash();
    assert!(node.lane().shards().is_empty());
    let epoch = node.epoch("a");
    node.at(2_000);
    // A claim that may be under way still must not give shards later: the session is replaced first.
    node.replace_session();
    node.at(3_000);
    assert_eq!((node.lane().shards(), node.sessions()), (ShardSet::ALL, 1));
    assert_eq!(node.epoch("a"), epoch + 2, "it was claimed once, and moved once");
    let raised = node.raise("a", "n", "2");
    node.settle();
    assert_eq!(node.told(raised), "accepted");
}

#[test]
fn g7_the_session_that_settled_a_commit_is_the_one_that_is_renewed() {
    let options = perennial_core::lane::LaneOptions { lease_ms: 10_000, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    node.start("collect", "a", ());
    node.take_turns();
    node.commit_unknown(true);
    node.settle_unknown();
    for seconds in 2..60 {
        node.at(seconds * 1_000).settle();
    }
    let raised = node.raise("a", "n", "1");
    node.settle();
    assert_eq!((node.told(raised), node.sessions()), ("accepted".into(), 1));
}

// ---- a commit that is refused when it is sent again ----------------------------------------------------------------

/// What a store says that cannot take a commit which it may have taken before.
fn refusals() -> [fn(&mut ManualNode, &str); 2] {
    [
        |node, id| node.commit_as(id, CommitOutcome::Rejected("too large".to_owned())),
        |node, _| node.commit_failing(StoreError::BatchRefused("too large".to_owned())),
    ]
}

#[test]
fn g7_a_turn_that_is_refused_when_sent_again_counts_if_it_was_written() {
    for refuse in refusals() {
        let mut node = in_flight();
        node.commit_unknown(true);
        node.replace_session();
        refuse(&mut node, "a");
        node.settle();
        assert_eq!((node.status("a"), collected(&node, "a")), ("running".to_owned(), 1));
        assert_eq!(node.counters("a").hydrations, 0);
    }
}

#[test]
fn g7_a_turn_that_is_refused_when_sent_again_blocks_if_it_was_never_written() {
    for refuse in refusals() {
        let mut node = in_flight();
        node.commit_unknown(false);
        node.replace_session();
        refuse(&mut node, "a");
        node.settle();
        assert_eq!(node.status("a"), "running, blocked: PER-0303");
        assert_eq!(node.inbox("a"), [r#"ExternalEvent "n" "1""#], "nothing is lost");
    }
}

#[test]
fn g7_a_start_that_is_refused_when_sent_again_counts_if_it_was_written() {
    for refuse in refusals() {
        let mut node = ManualNode::new(handlers_and("panics", panics));
        let started = [node.start("collect", "a", ()), node.start("panics", "b", ())];
        for id in ["a", "b"] {
            node.take_turn(id);
            node.commit_unknown(true);
            node.replace_session();
            refuse(&mut node, id);
        }
        node.settle();
        assert_eq!(node.told_all(started), ["started", "started"]);
        assert_eq!(
            (node.status("a"), node.status("b")),
            ("running".into(), "pending, blocked: PER-0201".into())
        );
    }
}

#[test]
fn g7_a_start_that_is_refused_when_sent_again_is_blocked_if_it_was_never_written() {
    for refuse in refusals() {
        let mut node = ManualNode::new(handlers());
        let started = node.start("collect", "a", ());
        node.take_turns();
        node.commit_unknown(false);
        node.replace_session();
        refuse(&mut node, "a");
        node.settle();
        assert_eq!(
            (node.told(started), node.status("a")),
            ("started".into(), "pending, blocked: PER-0303".into())
        );
    }
}

#[test]
fn g7_reading_a_doubtful_commit_back_is_tried_until_the_store_answers() {
    let mut node = in_flight();
    node.commit_unknown(true);
    node.replace_session();
    node.lose_answer("read_turns");
    node.commit_failing(StoreError::BatchRefused("too large".to_owned()));
    node.settle();
    assert!(!node.is_quiet(), "what became of it is not known");
    node.at(2_000).settle();
    assert_eq!((node.status("a"), collected(&node, "a")), ("running".to_owned(), 1));
}

#[test]
fn n10_owed_work_is_found_although_a_doubt_is_settled_while_it_is_looked_for() {
    for answer in ["gone", "late", "never"] {
        let mut node = in_flight();
        node.settle();
        node.crash();
        // The page was read under the session that is replaced then; or it is read under that one, and refused.
        let early = if answer == "late" { node.read_owed() } else { Vec::new() };
        node.start("collect", "b", ());
        node.take_turns();
        node.commit_unknown(true);
        assert!(node.replace_session());
        let refused = if answer == "gone" { node.read_owed() } else { Vec::new() };
        early.into_iter().chain(refused).for_each(|page| node.bring(page));
        node.take_over().settle();
        for seconds in 2..10 {
            node.at(seconds * 1_000).settle();
        }
        assert_eq!((node.running("steps"), node.status("b")), (vec!["A1".to_owned()], "running".into()));
        node.finish("steps", "A1", "done").settle();
        assert_eq!(node.status("steps"), "completed", "{answer}");
    }
}
