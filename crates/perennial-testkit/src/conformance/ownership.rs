//! N7, N10: shards change owners, and the data kept about them meanwhile.

use std::sync::Arc;

use perennial_core::store::{
    Commit, CommitOutcome, Gap, Lease, NewSession, NodeInfo, OwnedShard, SessionId, SessionRole, ShardOwner,
    ShardSet, StoreError,
};
use perennial_core::{SHARDS, ShardId};

use super::instances::{Build, bytes, member, row, start};
use super::subject::{Make, Subject, new_session};

fn lane(lease_ms: u64) -> NewSession {
    new_session(SessionRole::Lane, lease_ms)
}

fn opened(subject: &Subject, role: SessionRole, lease_ms: u64) -> SessionId {
    let new = new_session(role, lease_ms);
    let id = new.id;
    subject.open(new).expect("a session");
    id
}

/// Claims all free shards, and returns the row of one.
fn claim_one(subject: &Subject, session: SessionId, shard: ShardId) -> OwnedShard {
    let rows = subject.claim_rows(session, SHARDS).expect("the claim is answered");
    rows.into_iter().find(|row| row.shard == shard).expect("the shard is owned")
}

fn set(shards: &[ShardId]) -> ShardSet {
    shards.iter().copied().collect()
}

pub fn n10_each_change_of_a_shards_owner_increments_its_epoch(make: Make<'_>) {
    let subject = Subject::new(make);
    let shard = ShardId(7);
    let mut session = subject.open_session(60_000);
    assert_eq!(claim_one(&subject, session, shard).epoch, 1);
    assert_eq!(claim_one(&subject, session, shard).epoch, 1, "it still has the same owner");
    subject.release(session, set(&[shard])).unwrap();
    assert_eq!(
        claim_one(&subject, session, shard).epoch,
        2,
        "a new tenure of the same owner has a new epoch"
    );
    for epoch in 3..6 {
        subject.end(session).unwrap();
        session = subject.open_session(60_000);
        assert_eq!(claim_one(&subject, session, shard).epoch, epoch);
    }
    assert_eq!(claim_one(&subject, session, ShardId(8)).epoch, 4, "each shard has its own epoch");
}

pub fn s2_a_commit_at_an_older_epoch_is_fenced(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    subject.release(session, set(&[a.shard])).unwrap();
    let second = |epoch| Commit { epoch, ..member(&a).turn(2, "second") };
    assert_eq!(subject.commit(session, [second(1)]), [CommitOutcome::Fenced], "the shard has no owner");
    subject.claim(session, SHARDS).unwrap();
    // It owns the shard again, but its state belongs to another tenure.
    for epoch in [1, 3, u64::MAX] {
        assert_eq!(subject.commit(session, [second(epoch)]), [CommitOutcome::Fenced], "epoch {epoch}");
    }
    assert_eq!(subject.turns(&a, 1, 0, 10).len(), 1);
    assert_eq!(subject.commit(session, [second(2)]), [CommitOutcome::Durable { sent: vec![] }]);
}

pub fn s1_released_shards_can_be_claimed_by_others(make: Make<'_>) {
    let subject = Subject::new(make);
    let (one, other) = (subject.own_all(), subject.open_session(60_000));
    let (given, kept) = (row(1, "a"), row(2, "b"));
    assert_ne!(given.shard, kept.shard);
    subject.release(one, set(&[given.shard])).unwrap();
    assert_eq!(subject.claim(other, SHARDS), Ok(vec![given.shard]));
    subject.write(other, start(&given));
    let by_one = Commit { epoch: 1, ..start(&given) };
    assert_eq!(subject.commit(one, [by_one]), [CommitOutcome::Fenced]);
    subject.write(one, start(&kept));
    // Repeated as after a lost answer, and with shards that others or no session own: no effect.
    subject.release(one, set(&[given.shard])).unwrap();
    subject.release(SessionId(u128::MAX), ShardSet::ALL).unwrap();
    subject.write(other, member(&given).turn(2, "second"));
    assert_eq!(subject.claim(one, SHARDS).unwrap().len(), SHARDS - 1);
}

pub fn n10_replacing_a_session_moves_its_shards_at_the_next_epoch(make: Make<'_>) {
    let subject = Subject::new(make);
    let old = subject.open_session(60_000);
    subject.claim(old, 200).unwrap();
    let other = subject.open_session(60_000);
    subject.claim(other, SHARDS).unwrap();
    let rows: Vec<_> = (1..=64).map(|number| row(number, &format!("order-{number}"))).collect();
    let a = rows.iter().find(|row| subject.shards_of(old).contains(row.shard)).expect("one of old's");
    subject.write(old, start(a));
    subject.note(old, vec![(a.shard, Some(bytes("suspects")))], false).unwrap();
    let lost = subject.shards_of(old).iter().next().expect("some shard");
    subject.release(old, set(&[lost])).unwrap();
    let kept = subject.shards_of(old);
    subject.clock.advance(1_000);
    let (new, now_ms) = (lane(5_000), subject.clock.now_ms());
    let replaced = subject.replace(old, new.clone()).unwrap();
    assert_eq!(replaced.lease, Lease { now_ms, expires_ms: now_ms + 5_000 });
    let moved: ShardSet = replaced.shards.iter().map(|owned| owned.shard).collect();
    assert_eq!(moved, kept, "exactly the shards that the old session still owned");
    assert!(replaced.shards.iter().all(|owned| owned.epoch == 2), "each at its next epoch");
    let of_a = replaced.shards.iter().find(|owned| owned.shard == a.shard).expect("a's shard");
    assert_eq!(of_a.note, Some(bytes("suspects")), "a replacement keeps the note");
    assert!(replaced.shards.iter().all(|owned| owned.unclean_ends == 0 && owned.gaps.is_empty()));
    // The old session is gone, and its batch is fenced.
    assert_eq!(subject.renew(old), Err(StoreError::SessionGone));
    let late = member(a).turn(2, "second");
    assert_eq!(subject.commit(old, [late.clone()]), [CommitOutcome::Fenced]);
    subject.write(new.id, late);
    assert_eq!(subject.claim(other, SHARDS).unwrap().len(), SHARDS - 200 + 1, "the released one was free");
}

pub fn n10_replacing_again_after_a_lost_answer_returns_the_same(make: Make<'_>) {
    let subject = Subject::new(make);
    let old = subject.own_all();
    let new = lane(60_000);
    let first = subject.replace(old, new.clone()).unwrap();
    let again = subject.replace(old, new.clone()).unwrap();
    assert_eq!(again.shards, first.shards);
    assert_eq!(subject.directory().sessions.iter().map(|row| row.id).collect::<Vec<_>>(), [new.id]);
    // It does not own the shards that it has released since.
    subject.release(new.id, set(&[ShardId(3)])).unwrap();
    let later = subject.replace(old, new).unwrap();
    assert_eq!(later.shards.len(), SHARDS - 1);
}

pub fn n10_replacing_a_session_that_is_gone_moves_nothing(make: Make<'_>) {
    let subject = Subject::new(make);
    let (ended, expired) = (subject.open_session(60_000), subject.open_session(1_000));
    subject.claim(ended, 10).unwrap();
    subject.claim(expired, 20).unwrap();
    subject.end(ended).unwrap();
    subject.clock.advance(1_001);
    let heir = subject.own_all();
    for old in [ended, expired, SessionId(u128::MAX)] {
        let new = lane(60_000);
        assert_eq!(subject.replace(old, new.clone()).unwrap().shards, []);
        assert!(subject.renew(new.id).is_ok(), "the new session exists");
        assert_eq!(subject.claim(new.id, SHARDS), Ok(vec![]));
    }
    // An expired session that no one has ended can still be replaced.
    subject.clock.advance(1_000_000);
    assert_eq!(subject.replace(heir, lane(60_000)).unwrap().shards.len(), SHARDS);
}

pub fn n10_unclean_ends_are_counted_and_a_release_clears_them(make: Make<'_>) {
    let subject = Subject::new(make);
    let shard = ShardId(200);
    for unclean_ends in 0..3 {
        let session = subject.open_session(1_000);
        assert_eq!(claim_one(&subject, session, shard).unclean_ends, unclean_ends);
        // It crashes: its lease expires, and the next claim ends it.
        subject.clock.advance(1_001);
    }
    let session = subject.open_session(1_000);
    assert_eq!(claim_one(&subject, session, shard).unclean_ends, 3);
    subject.release(session, set(&[shard])).unwrap();
    assert_eq!(claim_one(&subject, session, shard).unclean_ends, 0);
    assert_eq!(claim_one(&subject, session, ShardId(201)).unclean_ends, 3, "other shards are not released");
    // Ending a session releases all its shards.
    subject.end(session).unwrap();
    let session = subject.own_all();
    assert!(subject.claim_rows(session, 0).unwrap().iter().all(|owned| owned.unclean_ends == 0));
}

pub fn n10_a_steady_owner_clears_the_count_of_unclean_ends(make: Make<'_>) {
    let subject = Subject::new(make);
    let dead = subject.open_session(1_000);
    subject.claim(dead, SHARDS).unwrap();
    subject.clock.advance(1_001);
    let session = subject.own_all();
    let (steady, other) = (ShardId(1), ShardId(2));
    subject.note(session, vec![(steady, None)], false).unwrap();
    assert_eq!(claim_one(&subject, session, steady).unclean_ends, 1);
    subject.note(session, vec![(steady, Some(bytes("kept")))], true).unwrap();
    let owned = claim_one(&subject, session, steady);
    assert_eq!((owned.unclean_ends, owned.note), (0, Some(bytes("kept"))));
    assert_eq!(claim_one(&subject, session, other).unclean_ends, 1);
}

pub fn n10_notes_are_returned_by_the_next_claim(make: Make<'_>) {
    let subject = Subject::new(make);
    let (noted, other) = (ShardId(1), ShardId(2));
    let dead = subject.open_session(1_000);
    subject.claim(dead, SHARDS).unwrap();
    assert_eq!(claim_one(&subject, dead, noted).note, None);
    let notes = vec![(noted, Some(bytes("\0first"))), (other, Some(bytes("")))];
    subject.note(dead, notes, false).unwrap();
    subject.clock.advance(1_001);
    let heir = subject.own_all();
    assert_eq!(claim_one(&subject, heir, noted).note, Some(bytes("\0first")));
    assert_eq!(claim_one(&subject, heir, other).note, Some(bytes("")), "an empty note is one");
    assert_eq!(claim_one(&subject, heir, ShardId(3)).note, None);
    subject.note(heir, vec![(noted, Some(bytes("second"))), (other, None)], false).unwrap();
    assert_eq!(claim_one(&subject, heir, noted).note, Some(bytes("second")));
    assert_eq!(claim_one(&subject, heir, other).note, None, "the note was removed");
    // A released shard has no note.
    subject.release(heir, set(&[noted])).unwrap();
    assert_eq!(claim_one(&subject, heir, noted).note, None);
    subject.note(heir, vec![(noted, Some(bytes("third")))], false).unwrap();
    subject.end(heir).unwrap();
    let last = subject.own_all();
    assert_eq!(claim_one(&subject, last, noted).note, None);
}

pub fn n10_only_the_owner_writes_notes_about_a_shard(make: Make<'_>) {
    let subject = Subject::new(make);
    let (dead, expired) = (subject.open_session(60_000), subject.open_session(1_000));
    subject.end(dead).unwrap();
    subject.clock.advance(1_001);
    let owner = subject.open_session(60_000);
    subject.claim(owner, SHARDS - 1).unwrap();
    let other = subject.open_session(60_000);
    let others: Vec<ShardId> = subject.claim(other, SHARDS).unwrap();
    let note = || vec![(ShardId(1), Some(bytes("not yours"))), (others[0], Some(bytes("mine")))];
    for session in [dead, expired, SessionId(u128::MAX)] {
        assert_eq!(subject.note(session, note(), true), Err(StoreError::SessionGone));
    }
    subject.note(other, note(), false).unwrap();
    assert_eq!(claim_one(&subject, owner, ShardId(1)).note, None);
    assert_eq!(claim_one(&subject, other, others[0]).note, Some(bytes("mine")));
}

pub fn n10_a_claim_returns_the_times_without_an_owner(make: Make<'_>) {
    let subject = Subject::new(make);
    let shard = ShardId(9);
    let begun_ms = subject.clock.now_ms();
    let session = subject.open_session(1_000);
    assert_eq!(claim_one(&subject, session, shard).gaps, [], "there is no gap before the first owner");
    subject.clock.advance(500);
    subject.release(session, ShardSet::ALL).unwrap();
    subject.clock.advance(200);
    let released = Gap { from_ms: begun_ms + 500, until_ms: begun_ms + 700 };
    assert_eq!(claim_one(&subject, session, shard).gaps, [released]);
    assert_eq!(claim_one(&subject, session, shard).gaps, [released], "the new owner is given the gap");
    // It crashes, and its lease expires at 1,000.
    subject.clock.advance(4_300);
    let heir = subject.open_session(1_000);
    let died = Gap { from_ms: begun_ms + 1_000, until_ms: begun_ms + 5_000 };
    assert_eq!(claim_one(&subject, heir, shard).gaps, [released, died]);
    // Replacing a session leaves no gap.
    let new = lane(60_000);
    let replaced = subject.replace(heir, new.clone()).unwrap();
    assert_eq!(replaced.shards[usize::from(shard.0)].gaps, [released, died]);
    // Only the latest gaps are kept.
    for _ in 0..OwnedShard::MAX_GAPS + 3 {
        subject.release(new.id, set(&[shard])).unwrap();
        subject.clock.advance(10);
        claim_one(&subject, new.id, shard);
    }
    let gaps = claim_one(&subject, new.id, shard).gaps;
    assert_eq!(gaps.len(), OwnedShard::MAX_GAPS);
    assert!(gaps.iter().all(|gap| gap.until_ms == gap.from_ms + 10), "the oldest are dropped: {gaps:?}");
    assert!(gaps.is_sorted_by_key(|gap| gap.from_ms));
}

pub fn n7_maintenance_is_refused_while_a_lane_is_live(make: Make<'_>) {
    let subject = Subject::new(make);
    let node = opened(&subject, SessionRole::Node, 60_000);
    let visitor = new_session(SessionRole::Maintenance, 60_000);
    subject.open(visitor.clone()).expect("a node without shards does not conflict");
    subject.end(visitor.id).unwrap();
    let lane = opened(&subject, SessionRole::Lane, 1_000);
    let refused = |session| matches!(subject.open(session), Err(StoreError::InUse(_)));
    assert!(refused(new_session(SessionRole::Maintenance, 60_000)));
    subject.clock.advance(1_000);
    assert!(refused(new_session(SessionRole::Maintenance, 60_000)), "its lease has not expired");
    subject.clock.advance(1);
    // It has expired, so no lane works. A maintenance session can claim its shards.
    let visitor = opened(&subject, SessionRole::Maintenance, 60_000);
    assert_eq!(subject.claim(visitor, SHARDS).unwrap().len(), SHARDS);
    assert_eq!(subject.renew(lane), Err(StoreError::SessionGone));
    subject.write(visitor, start(&row(1, "a")));
    assert!(subject.renew(node).is_ok());
}

pub fn n7_opening_a_lane_ends_all_maintenance(make: Make<'_>) {
    let subject = Subject::new(make);
    let visitor = opened(&subject, SessionRole::Maintenance, 60_000);
    subject.claim(visitor, SHARDS).unwrap();
    let node = opened(&subject, SessionRole::Node, 60_000);
    assert!(subject.renew(visitor).is_ok(), "a node without lanes does not work on instances");
    let lane = opened(&subject, SessionRole::Lane, 60_000);
    assert_eq!(subject.renew(visitor), Err(StoreError::SessionGone));
    assert_eq!(subject.commit(visitor, [start(&row(1, "a"))]), [CommitOutcome::Fenced]);
    assert_eq!(subject.claim(lane, SHARDS).unwrap().len(), SHARDS);
    assert!(subject.renew(node).is_ok());
}

pub fn n7_maintenance_leaves_no_trace_in_shards(make: Make<'_>) {
    let subject = Subject::new(make);
    let shard = ShardId(5);
    let dead = subject.open_session(1_000);
    subject.claim(dead, SHARDS).unwrap();
    subject.note(dead, vec![(shard, Some(bytes("suspects")))], false).unwrap();
    let expired_ms = subject.clock.now_ms() + 1_000;
    subject.clock.advance(2_000);
    // A session that is ended, one that releases, and one that crashes.
    for end in 0..3 {
        let visitor = opened(&subject, SessionRole::Maintenance, 1_000);
        let seen = claim_one(&subject, visitor, shard);
        assert_eq!((seen.epoch, seen.unclean_ends), (2 + end, 1), "only the owner and the epoch change");
        assert_eq!((seen.note, seen.gaps), (Some(bytes("suspects")), vec![]));
        match end {
            0 => subject.end(visitor).unwrap(),
            1 => subject.release(visitor, ShardSet::ALL).unwrap(),
            _ => {}
        }
        subject.clock.advance(2_000);
    }
    let heir = subject.open_session(60_000);
    let owned = claim_one(&subject, heir, shard);
    let gap = Gap { from_ms: expired_ms, until_ms: subject.clock.now_ms() };
    assert_eq!((owned.epoch, owned.unclean_ends), (5, 1));
    assert_eq!((owned.note, owned.gaps), (Some(bytes("suspects")), vec![gap]), "no lane worked meanwhile");
}

pub fn n14_the_directory_shows_every_session(make: Make<'_>) {
    let subject = Subject::new(make);
    assert_eq!(subject.directory().sessions, []);
    let info = NodeInfo { name: "shop-1".to_owned(), slots: 16, ..NodeInfo::default() };
    let node = NewSession { info: info.encode(), ..new_session(SessionRole::Node, 20_000) };
    let lane = NewSession { node: node.id, ..lane(5_000) };
    let opened_ms = subject.clock.now_ms();
    subject.open(node.clone()).unwrap();
    subject.clock.advance(100);
    subject.open(lane.clone()).unwrap();
    subject.claim(lane.id, 40).unwrap();
    subject.clock.advance(1_000);
    subject.renew(node.id).unwrap();
    let directory = subject.directory();
    assert_eq!(directory.now_ms, subject.clock.now_ms());
    assert!(directory.sessions.is_sorted_by_key(|row| row.id));
    let row_of = |id| directory.sessions.iter().find(|row| row.id == id).cloned().expect("a row");
    let (of_node, of_lane) = (row_of(node.id), row_of(lane.id));
    assert_eq!((of_node.role, of_node.node, of_node.shards), (SessionRole::Node, node.id, 0));
    assert_eq!((of_lane.role, of_lane.node, of_lane.shards), (SessionRole::Lane, node.id, 40));
    assert_eq!((of_node.opened_ms, of_node.expires_ms), (opened_ms, opened_ms + 1_100 + 20_000));
    assert_eq!((of_lane.opened_ms, of_lane.expires_ms), (opened_ms + 100, opened_ms + 100 + 5_000));
    assert_eq!(NodeInfo::decode(&of_node.info), info);
    assert_eq!(of_lane.info, Arc::clone(&lane.info));
    // An expired session exists until it is ended.
    subject.clock.advance(10_000);
    assert_eq!(subject.directory().sessions.len(), 2);
    let next = subject.open_session(1_000);
    subject.claim(next, 1).unwrap();
    let left: Vec<SessionId> = subject.directory().sessions.iter().map(|row| row.id).collect();
    assert!(left.len() == 2 && !left.contains(&lane.id), "{left:?}");
}

pub fn g22_a_renewal_can_replace_the_record_of_a_session(make: Make<'_>) {
    let subject = Subject::new(make);
    let info = NodeInfo { name: "shop-1".to_owned(), slots: 16, ..NodeInfo::default() };
    let node = NewSession { info: info.encode(), ..new_session(SessionRole::Node, 20_000) };
    subject.open(node.clone()).unwrap();
    subject.clock.advance(100);
    let busy = NodeInfo { free: Some(0), ..info };
    let lease = subject.renew_with(node.id, &busy).unwrap();
    let shown = |subject: &Subject| {
        let directory = subject.directory();
        (NodeInfo::decode(&directory.sessions[0].info), directory.sessions[0].expires_ms)
    };
    assert_eq!(shown(&subject), (busy.clone(), lease.expires_ms));
    // A renewal or an opening without another record keeps it.
    subject.renew(node.id).unwrap();
    subject.open(node.clone()).unwrap();
    assert_eq!(shown(&subject).0, busy);
    subject.end(node.id).unwrap();
    assert_eq!(subject.renew_with(node.id, &busy), Err(StoreError::SessionGone));
}

pub fn h42_the_owner_of_a_shard_or_the_time_it_was_lost_can_be_read(make: Make<'_>) {
    let subject = Subject::new(make);
    let shard = ShardId(0);
    assert_eq!(subject.shard_owner(shard), ShardOwner::default(), "it never had an owner");
    let owner = subject.open_session(1_000);
    claim_one(&subject, owner, shard);
    assert_eq!(subject.shard_owner(shard), ShardOwner { session: Some(owner), idle_since_ms: None });
    subject.clock.advance(500);
    subject.release(owner, ShardSet::ALL).unwrap();
    let released_ms = Some(subject.clock.now_ms());
    subject.clock.advance(100);
    assert_eq!(subject.shard_owner(shard), ShardOwner { session: None, idle_since_ms: released_ms });
    // A maintenance session owns it, but no lane works.
    subject.end(owner).unwrap();
    let visitor = opened(&subject, SessionRole::Maintenance, 60_000);
    claim_one(&subject, visitor, shard);
    let visited = ShardOwner { session: Some(visitor), idle_since_ms: released_ms };
    assert_eq!(subject.shard_owner(shard), visited);
    subject.end(visitor).unwrap();
    let dead = subject.open_session(1_000);
    claim_one(&subject, dead, shard);
    let expired_ms = subject.clock.now_ms() + 1_000;
    subject.clock.advance(5_000);
    let expired = ShardOwner { session: Some(dead), idle_since_ms: None };
    assert_eq!(subject.shard_owner(shard), expired, "until the session is ended");
    let heir = subject.open_session(1_000);
    subject.claim(heir, 0).unwrap();
    let idle = ShardOwner { session: None, idle_since_ms: Some(expired_ms) };
    assert_eq!(subject.shard_owner(shard), idle);
}
