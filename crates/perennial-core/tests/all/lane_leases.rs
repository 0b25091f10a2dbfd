//! What a lane does while it may not act, and when its session is gone (N1, N9, G8).

use crate::shard_cases::{handlers, number};
use perennial_core::lane::{LaneOptions, Moment};
use perennial_core::store::{NewSession, ShardSet, Store};
use perennial_core::{SHARDS, ShardId};
use perennial_testkit::ManualNode;

const LEASE_MS: u64 = 10_000;
/// Nine tenths of a lease that was asked for at 1,000 ms.
const DEADLINE_MS: u64 = 10_000;

/// When a renewal that failed at the deadline has been tried again.
const RENEWED_MS: u64 = 11_000;

/// A node whose lease is ten seconds long.
fn leased() -> ManualNode {
    let options = LaneOptions { lease_ms: LEASE_MS, ..ManualNode::lane_options() };
    ManualNode::with_lane_options(handlers(), options)
}

/// A node that has not reached its store for longer than its lease.
fn suspended(mut node: ManualNode) -> ManualNode {
    node.cut_off(true).at(DEADLINE_MS);
    node
}

/// The lane's session, as it was opened.
fn session_of(node: &ManualNode) -> NewSession {
    node.tables().ownership.sessions[&node.lane().session()].session.clone()
}

/// Lets time pass second by second, so that the lease is renewed on the way.
fn live_until(node: &mut ManualNode, until_ms: u64) {
    while node.now_ms() + 1_000 < until_ms {
        node.at(node.now_ms() + 1_000);
    }
    node.at(until_ms);
}

#[test]
fn g8_a_session_is_renewed_at_a_third_of_its_lease() {
    let mut node = leased();
    node.at(4_333);
    assert_eq!(node.lane().deadline().as_millis(), 10_000);
    node.at(4_334);
    assert_eq!(node.lane().deadline().as_millis(), 4_334 + 9_000);
}

#[test]
fn g8_a_deadline_counts_from_before_the_renewal_was_sent() {
    let mut node = leased();
    node.slow_down("renew_session");
    node.at(4_334);
    node.set_clock(8_000);
    assert_eq!(node.make_slow(), 1);
    assert_eq!(node.lane().deadline().as_millis(), 4_334 + 9_000);
}

#[test]
fn n9_past_its_deadline_a_lane_starts_nothing_and_goes_on_after_a_renewal() {
    let mut node = leased();
    node.start("collect", "a", ());
    node.start("steps", "b", number(1));
    node.settle();
    node.start("steps", "c", number(1));
    node.take_turns();
    let mut node = suspended(node);
    // A batch that was sent in time is answered too late.
    assert_eq!(node.batch(), ["c"]);
    node.cut_off(false).commit();
    node.cut_off(true);
    let raised = node.raise("a", "n", "1");
    node.finish("b", "A1", "done");
    assert!(node.turns_to_take().is_empty(), "no turn is taken");
    assert_eq!(node.running("c").len(), 0, "no activity begins");
    assert_eq!((node.told(raised).as_str(), node.stops().len()), ("nothing", 0), "what runs goes on");
    node.cut_off(false).at(RENEWED_MS);
    assert_eq!(node.running("c"), ["A1"]);
    node.settle();
    assert_eq!(node.told(raised), "accepted");
    assert_eq!((node.status("b"), node.counters("a").hydrations), ("completed".into(), 0), "memory stands");
    assert_eq!(node.runs().len(), 2);
}

#[test]
fn n9_past_its_deadline_a_lane_answers_nothing_and_commits_nothing() {
    let mut node = leased();
    let started = node.start("collect", "a", ());
    node.take_turns();
    let in_time = node.start("collect", "b", ());
    let mut node = suspended(node);
    node.cut_off(false).commit();
    node.cut_off(true).take_turns();
    assert_eq!(node.told_all([started, in_time]), ["nothing", "nothing"]);
    assert!(node.batch().is_empty() && node.under_way() > 0, "a turn that ended too late is not committed");
    node.cut_off(false).at(RENEWED_MS);
    assert_eq!(node.told(started), "started");
    node.settle();
    assert_eq!(node.told(in_time), "started");
}

#[test]
fn n9_a_batch_that_fails_past_the_deadline_is_sent_again_after_the_renewal() {
    let mut node = leased();
    let started = node.start("collect", "a", ());
    node.take_turns();
    let mut node = suspended(node);
    node.commit_failing(perennial_core::store::StoreError::Unavailable("away".to_owned()));
    node.at(DEADLINE_MS + 2_000);
    assert!(node.batch().is_empty());
    node.cut_off(false).at(DEADLINE_MS + 3_000).at(DEADLINE_MS + 3_100);
    assert_eq!(node.batch(), ["a"]);
    node.commit();
    assert_eq!(node.told(started), "started");
}

#[test]
fn n9_an_expired_session_that_nobody_ended_is_renewed() {
    let mut node = leased();
    node.start("collect", "a", ());
    node.settle();
    let session = node.lane().session();
    node.cut_off(true).at(100_000);
    node.cut_off(false).at(101_000);
    assert_eq!((node.lane().session(), node.lane().shards()), (session, ShardSet::ALL));
    let raised = node.raise("a", "n", "1");
    node.settle();
    assert_eq!((node.told(raised).as_str(), node.counters("a").hydrations), ("accepted", 0));
}

#[test]
fn n9_after_a_gap_a_lane_is_suspended_until_it_knows_what_it_owns() {
    for is_lost in [false, true] {
        let mut node = leased();
        node.start("collect", "a", ());
        node.settle();
        let waiting = node.await_end("a");
        let session = session_of(&node);
        let mut node = suspended(node);
        if is_lost {
            node.fence();
            // A call to open the session that was on its way since then brings it back, without its shards.
            node.store().open_session(session, Box::new(|opened| assert!(opened.is_ok())));
        }
        node.slow_down("claim_shards");
        node.cut_off(false).at(RENEWED_MS);
        let raised = node.raise("a", "n", "1");
        node.settle();
        assert_eq!(node.lane().deadline(), Moment::ZERO, "it may act for others' shards");
        assert_eq!(node.told_all([waiting, raised]), ["nothing", "nothing"]);
        assert_eq!(node.make_slow(), 1);
        node.settle();
        let (told, shards) = if is_lost { ("moved", 0) } else { ("accepted", SHARDS) };
        assert_eq!((node.told(raised).as_str(), node.lane().shards().len()), (told, shards));
    }
}

#[test]
fn n10_an_answer_about_shards_that_is_older_than_a_loss_is_not_taken() {
    let mut node = leased();
    node.start("collect", "a", ());
    node.settle();
    let shard: ShardSet = [ShardId::of("a")].into_iter().collect();
    let other: ShardSet = [ShardId::of("b")].into_iter().collect();
    assert_ne!(shard, other);
    node.open_rival_of(&other);
    node.slow_down("claim_shards");
    node.notice();
    let mut asked = node.read_slow();
    assert_eq!(asked.len(), 1, "a page was refused: the lane asks what it owns");
    // Its answer was made before another shard changed hands, and comes after the lane has noticed that.
    node.open_rival_of(&shard);
    let raised = node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.told(raised), "moved");
    node.bring(asked.remove(0));
    assert!(!node.lane().shards().contains(ShardId::of("a")), "it is another's");
    assert_eq!(node.make_slow(), 1, "the lane asks once more");
    assert_eq!(node.lane().shards().len(), SHARDS - 2);
}

#[test]
fn n9_when_the_session_is_gone_callers_hear_moved_and_activities_stop() {
    let mut node = leased();
    node.start("steps", "a", number(1));
    node.settle();
    let waiting = node.await_end("a");
    let turning = node.start("collect", "b", ());
    let session = node.lane().session();
    node.fence();
    assert_eq!(node.told_all([waiting, turning]), ["nothing", "nothing"], "it does not know yet");
    node.at(5_000);
    assert_eq!(node.told_all([waiting, turning]), ["moved", "moved"]);
    assert_eq!((node.stops(), node.in_memory("a")), (&["a A1".to_owned()][..], 0));
    assert!(node.lane().shards().is_empty());
    assert_ne!(node.lane().session(), session, "another session is open");
    let asked = node.raise("a", "n", "1");
    assert_eq!(node.told(asked), "moved");
    node.take_turns();
    assert!(node.batch().is_empty(), "a turn of before comes to nothing");
}

#[test]
fn n9_activities_of_a_lost_session_stop_before_the_next_one_is_open() {
    let mut node = leased();
    node.start("steps", "a", number(1));
    node.settle();
    let waiting = node.await_end("a");
    node.fence();
    node.slow_down("open_session");
    node.at(5_000);
    assert_eq!((node.told(waiting), node.stops()), ("moved".into(), &["a A1".to_owned()][..]));
    assert_eq!(node.make_slow(), 1);
}

#[test]
fn n9_answers_that_were_held_back_become_moved_when_the_session_is_gone() {
    let mut node = leased();
    let started = node.start("collect", "a", ());
    node.take_turns();
    let mut node = suspended(node);
    node.cut_off(false).commit();
    assert_eq!(node.told(started), "nothing");
    node.fence();
    node.slow_down("open_session");
    node.at(DEADLINE_MS + 1_000);
    assert_eq!(node.told(started), "moved", "its key tells that it was done");
    assert_eq!(node.status("a"), "running");
}

#[test]
fn n9_after_a_loss_a_lane_claims_again_when_one_lease_is_over() {
    let mut node = leased();
    node.start("steps", "a", number(1));
    node.settle();
    let rival = node.fence();
    node.at(5_000);
    assert!(node.lane().shards().is_empty());
    node.end_session(rival);
    live_until(&mut node, 14_999);
    assert!(node.lane().shards().is_empty(), "others come first");
    node.take_running();
    node.at(15_000);
    assert_eq!(node.lane().shards(), ShardSet::ALL);
    node.settle();
    assert_eq!(node.running("a"), ["A1"], "what is owed is looked at");
    node.finish("a", "A1", "done").settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g8_after_a_gap_of_its_own_a_lane_waits_one_lease_before_it_claims_more() {
    let mut node = leased();
    let half: ShardSet = ShardId::all().skip(SHARDS / 2).collect();
    let rival = node.open_rival_of(&half);
    node.notice();
    assert_eq!(node.lane().shards().len(), SHARDS / 2);
    node.cut_off(true).at(20_000);
    node.end_session(rival);
    node.cut_off(false).at(21_000);
    assert_eq!(node.lane().shards().len(), SHARDS / 2);
    live_until(&mut node, 30_999);
    assert_eq!(node.lane().shards().len(), SHARDS / 2);
    node.at(31_000);
    assert_eq!(node.lane().shards(), ShardSet::ALL);
}

#[test]
fn n9_a_shard_that_changed_hands_alone_is_forgotten_alone() {
    let mut node = leased();
    let (here, there) = ("a", "b");
    assert_ne!(ShardId::of(here), ShardId::of(there));
    node.start("collect", here, ());
    node.start("collect", there, ());
    node.settle();
    let rival = node.open_rival_of(&[ShardId::of(there)].into_iter().collect());
    let asked = [node.raise(here, "n", "1"), node.raise(there, "n", "1")];
    node.settle();
    assert_eq!(node.told_all(asked), ["accepted", "moved"]);
    assert_eq!((node.in_memory(here), node.lane().shards().len()), (1, SHARDS - 1));
    node.end_session(rival);
    node.at(5_000);
    assert_eq!(node.lane().shards(), ShardSet::ALL);
    let again = node.raise(there, "n", "2");
    node.settle();
    assert_eq!(node.told(again), "accepted");
}

#[test]
fn g8_a_turn_that_comes_to_its_thread_too_late_is_taken_after_the_renewal() {
    let mut node = leased();
    let started = node.start("collect", "a", ());
    let mut node = suspended(node);
    node.give_back_turn("a");
    assert!(node.turns_to_take().is_empty());
    node.cut_off(false).at(RENEWED_MS);
    assert_eq!(node.turns_to_take(), ["a"]);
    node.settle();
    assert_eq!(node.told(started), "started");
}

#[test]
fn n4_an_activity_that_comes_to_its_worker_too_late_begins_before_it_is_told_to_stop() {
    let mut node = leased();
    node.start("race", "a", ());
    node.settle();
    node.at(6_001).take_turns();
    assert_eq!(node.batch(), ["a"], "the timer has won");
    node.cut_off(true).at(16_000);
    node.cut_off(false).commit();
    assert!(node.stops().is_empty(), "the lane is suspended");
    node.give_back_activity("a", "slow");
    node.at(17_000).settle();
    assert_eq!(node.running_stops(), ["a slow"]);
}

#[test]
fn n9_a_turn_that_was_given_back_is_not_taken_once_its_shard_is_lost() {
    let mut node = leased();
    let started = node.start("collect", "a", ());
    let mut node = suspended(node);
    node.give_back_turn("a");
    node.fence();
    node.cut_off(false).at(RENEWED_MS);
    assert!(node.turns_to_take().is_empty());
    assert_eq!(node.told(started), "moved");
}
