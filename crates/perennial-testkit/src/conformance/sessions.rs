//! S1: sessions, their leases and their shards.

use perennial_core::store::{CommitOutcome, Lease, SessionId, SessionRole, StoreError};
use perennial_core::{SHARDS, ShardId};

use super::instances::{Build, member, row, start};
use super::subject::{Make, Subject, new_session};

pub fn s1_a_session_lives_for_its_lease_by_the_stores_clock(make: Make<'_>) {
    let subject = Subject::new(make);
    let opened_ms = subject.clock.now_ms();
    let session = new_session(SessionRole::Lane, 5_000);
    let lease = Lease { now_ms: opened_ms, expires_ms: opened_ms + 5_000 };
    assert_eq!(subject.open(session.clone()), Ok(lease));
    subject.clock.advance(3_000);
    let renewed = Lease { now_ms: opened_ms + 3_000, expires_ms: opened_ms + 8_000 };
    assert_eq!(subject.renew(session.id), Ok(renewed));
}

pub fn n10_opening_again_after_a_lost_answer_renews(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = new_session(SessionRole::Lane, 5_000);
    subject.open(session.clone()).unwrap();
    let shards = subject.claim(session.id, 7).unwrap();
    subject.clock.advance(1_000);
    let now_ms = subject.clock.now_ms();
    assert_eq!(subject.open(session.clone()), Ok(Lease { now_ms, expires_ms: now_ms + 5_000 }));
    assert_eq!(subject.claim(session.id, 0), Ok(shards), "it is the same session");
    assert_eq!(subject.directory().sessions.len(), 1);
}

pub fn n9_an_expired_session_that_was_not_ended_can_be_renewed(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.clock.advance(1_000_000);
    assert!(subject.renew(session).is_ok());
    subject.write(session, start(&row(1, "a")));
    assert_eq!(subject.claim_rows(session, SHARDS).unwrap()[0].epoch, 1, "it never lost its shards");
}

pub fn s1_a_session_that_has_ended_is_gone(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.end(session).unwrap();
    assert_eq!(subject.renew(session), Err(StoreError::SessionGone));
    assert_eq!(subject.claim(session, 1), Err(StoreError::SessionGone));
    assert_eq!(subject.commit(session, [start(&row(1, "a"))]), [CommitOutcome::Fenced]);
}

pub fn s1_ending_a_session_twice_is_not_an_error(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.open_session(5_000);
    assert_eq!((subject.end(session), subject.end(session)), (Ok(()), Ok(())));
    assert_eq!(subject.end(SessionId(u128::MAX)), Ok(()));
}

pub fn s1_a_shard_belongs_to_one_session(make: Make<'_>) {
    let subject = Subject::new(make);
    let (one, other) = (subject.open_session(5_000), subject.open_session(5_000));
    let mut shards = subject.claim(one, 100).unwrap();
    assert_eq!(shards.len(), 100);
    let of_one = shards.clone();
    shards.extend(subject.claim(other, SHARDS).unwrap());
    shards.sort();
    assert_eq!(shards, ShardId::all().collect::<Vec<_>>(), "each exactly once");
    assert_eq!(subject.claim(one, SHARDS), Ok(of_one));
}

pub fn s1_a_claim_returns_shards_up_to_a_target(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.open_session(5_000);
    assert_eq!(subject.claim(session, 0), Ok(vec![]));
    let first = subject.claim(session, 3).unwrap();
    assert_eq!(first.len(), 3);
    let second = subject.claim(session, 5).unwrap();
    assert_eq!(second.len(), 5);
    assert!(
        first.iter().all(|shard| second.contains(shard)),
        "it includes all shards that it owns: {second:?}"
    );
    // Repeated as after a lost answer, the claim adds nothing, and removes nothing.
    assert_eq!(subject.claim(session, 5), Ok(second.clone()));
    assert_eq!(subject.claim(session, 2), Ok(second));
}

pub fn s1_ending_a_session_frees_its_shards(make: Make<'_>) {
    let subject = Subject::new(make);
    let (old, new) = (subject.own_all(), subject.open_session(5_000));
    assert_eq!(subject.claim(new, SHARDS), Ok(vec![]));
    subject.end(old).unwrap();
    assert_eq!(subject.claim(new, SHARDS).unwrap().len(), SHARDS);
    assert_eq!(subject.commit(old, [start(&row(1, "a"))]), [CommitOutcome::Fenced]);
    subject.write(new, start(&row(1, "a")));
}

pub fn s1_an_expired_session_keeps_its_shards_until_the_next_claim(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.clock.advance(60_001);
    subject.write(session, start(&row(1, "a")));
    // Another session does not take shards away.
    let other = subject.open_session(5_000);
    subject.write(session, member(&row(1, "a")).turn(2, "went on"));
    assert_eq!(subject.claim(other, 1).unwrap().len(), 1);
    assert_eq!(subject.commit(session, [member(&row(1, "a")).turn(3, "too late")]), [CommitOutcome::Fenced]);
}

pub fn s1_a_renewed_session_has_not_expired(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.clock.advance(60_001);
    subject.renew(session).unwrap();
    let other = subject.open_session(5_000);
    assert_eq!(subject.claim(other, SHARDS), Ok(vec![]));
    subject.write(session, start(&row(1, "a")));
}

pub fn s1_a_claim_ends_sessions_that_have_expired(make: Make<'_>) {
    let subject = Subject::new(make);
    let dead = subject.open_session(1_000);
    subject.claim(dead, 200).unwrap();
    let alive = subject.open_session(60_000);
    subject.claim(alive, 20).unwrap();
    subject.clock.advance(1_001);
    let heir = subject.open_session(60_000);
    assert_eq!(subject.claim(heir, SHARDS).unwrap().len(), SHARDS - 20);
    assert_eq!(subject.renew(dead), Err(StoreError::SessionGone));
    assert!(subject.renew(alive).is_ok());
}

pub fn s1_a_session_that_expired_cannot_claim(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.open_session(1_000);
    subject.claim(session, 10).unwrap();
    subject.clock.advance(1_001);
    assert_eq!(subject.claim(session, SHARDS), Err(StoreError::SessionGone));
    let heir = subject.open_session(1_000);
    assert_eq!(subject.claim(heir, SHARDS).unwrap().len(), SHARDS);
}
