//! Other processes look and send while a runtime owns the file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::{Place, durable, hints, wait_for};
use perennial_core::SHARDS;
use perennial_core::store::{
    Changes, Criteria, InstanceRow, PageLimit, SendOutcome, SendRequest, SessionId, SessionRole, ShardSet,
    Status, StoreError,
};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::instances::{Build, bytes, member, message, outgoing, row, start};
use perennial_testkit::conformance::{Subject, TestClock, answer_of, new_session, waiting};

#[test]
fn s7_a_guest_sees_what_the_owner_has_committed() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let a = row(1, "a");
    for number in 1..=20 {
        owner.write(session, if number == 1 { start(&a) } else { member(&a).turn(number, "x") });
        assert_eq!(guest.turns(&a, 1, number - 1, 10).len(), 1);
    }
    assert_eq!(guest.find("a"), Some(a.clone()));
    assert_eq!(guest.list(&Criteria::default(), None, 10).rows, [a]);
}

#[test]
fn s3_a_guest_sends_and_the_owner_gets_a_hint() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    let hints = hints(&owner);
    for body in ["first", "second"] {
        while hints.try_recv().is_ok() {}
        let number = guest.sent(message("a", None, body));
        wait_for(&hints);
        let read = owner.inbox(session, number, 10);
        assert_eq!(read.iter().map(|row| row.body.clone()).collect::<Vec<_>>(), [bytes(body)]);
    }
    assert_eq!(guest.send(message("b", None, "x")), SendOutcome::NoInstance);
}

#[test]
fn s3_a_guest_starts_an_instance_before_there_is_an_owner() {
    let place = Place::new();
    let pending = InstanceRow { status: Status::Pending, ..row(1, "a") };
    let request = || SendRequest::Start { row: Box::new(pending.clone()), body: bytes("start") };
    let guest = place.guest();
    let number = guest.sent(request());
    assert_eq!(place.guest().send(request()), SendOutcome::IdTaken(Box::new(pending.clone())));
    let owner = place.owner();
    let session = owner.own_all();
    let inbox = owner.inbox(session, 0, 10);
    assert_eq!(inbox.iter().map(|row| (row.number, row.key)).collect::<Vec<_>>(), [(number, pending.key)]);
    owner.write(session, member(&pending).turn(1, "started").consuming([number]));
    assert_eq!(guest.load(&pending, 0).unwrap().turns, [bytes("started")]);
}

#[test]
fn s3_the_owner_counts_what_guests_have_sent() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    // Half by the owner, who remembers its count, half by the guest.
    let sends = |subject: &Subject, count: usize| {
        let requests = (0..count).map(|_| message("a", None, "x")).collect();
        subject.try_send(requests).unwrap()
    };
    assert!(sends(&owner, 5_000).iter().all(|outcome| matches!(outcome, SendOutcome::Sent(_))));
    assert!(sends(&guest, 4_999).iter().all(|outcome| matches!(outcome, SendOutcome::Sent(_))));
    let last = sends(&owner, 2);
    assert!(matches!(last[0], SendOutcome::Sent(_)));
    assert_eq!(last[1], SendOutcome::Full(10_000));
    assert_eq!(sends(&guest, 1), [SendOutcome::Full(10_000)]);
}

#[test]
fn s1_a_guest_has_no_sessions_and_makes_no_commits() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let refused = |error: StoreError| assert!(matches!(error, StoreError::InUse(_)), "{error}");
    refused(guest.open(new_session(SessionRole::Lane, 1_000)).unwrap_err());
    refused(guest.replace(session, new_session(SessionRole::Lane, 1_000)).unwrap_err());
    refused(guest.release(session, ShardSet::ALL).unwrap_err());
    refused(guest.note(session, vec![], true).unwrap_err());
    refused(guest.renew(session).unwrap_err());
    refused(guest.end(session).unwrap_err());
    refused(guest.claim(session, SHARDS).unwrap_err());
    refused(guest.try_commit(session, [start(&row(1, "a"))]).unwrap_err());
    let page = guest.inbox_page(SessionId(1), 0, &[], PageLimit::rows(10));
    assert_eq!(page, Err(StoreError::SessionGone));
    owner.renew(session).unwrap();
    assert_eq!(owner.commit(session, [start(&row(1, "a"))]), [durable()]);
}

#[test]
fn s8_a_guest_that_watches_hears_of_commits_and_of_its_own_messages() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let hints = hints(&guest);
    let a = row(1, "a");
    for number in 1..=3 {
        owner.write(session, if number == 1 { start(&a) } else { member(&a).turn(number, "x") });
        wait_for(&hints);
        while hints.try_recv().is_ok() {}
    }
    guest.sent(message("a", None, "x"));
    wait_for(&hints);
}

#[test]
fn s8_a_guest_hears_of_another_guest() {
    let place = Place::new();
    let (one, other) = (place.guest(), place.guest());
    let hints = hints(&one);
    let row = Box::new(row(1, "a"));
    other.sent(SendRequest::Start { row, body: bytes("start") });
    wait_for(&hints);
}

#[test]
fn s8_what_another_process_changed_is_not_known_and_what_this_one_did_is() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let hints = hints(&owner);
    guest.sent(message("a", None, "x"));
    assert_eq!(wait_for(&hints), Changes { owners: ShardSet::EMPTY, ..Changes::ALL });
    while hints.try_recv().is_ok() {}
    owner.sent(message("a", None, "x"));
    let inbox = ShardSet::from_iter([a.shard]);
    assert_eq!(wait_for(&hints), Changes { inbox, ..Changes::default() });
    // What the owner's only session does for itself is nobody else's news.
    let to_itself = outgoing(&a, None, "x");
    owner.write(session, member(&a).turn(2, "second").sending([to_itself]));
    assert!(hints.try_recv().is_err());
}

#[test]
fn n14_a_guest_sees_the_sessions_of_the_owner() {
    let (place, clock) = (Place::new(), TestClock::new());
    let options = || {
        let reading = clock.clone();
        SqliteOptions::default().clock(move || reading.now_ms())
    };
    let guest = Subject::over(SqliteStore::open_guest(place.path(), options()).unwrap());
    assert_eq!(guest.directory().sessions, []);
    let owner = Subject::over(SqliteStore::open(place.path(), options()).unwrap());
    let session = owner.open_session(9_000);
    owner.claim(session, 40).unwrap();
    let opened_ms = clock.now_ms();
    clock.advance(60_000);
    owner.renew(session).unwrap();
    assert_eq!(guest.directory(), owner.directory(), "as long as the owner lives, so do its sessions");
    let sessions = guest.directory().sessions;
    assert_eq!((sessions[0].shards, sessions[0].opened_ms), (40, opened_ms));
    // When it has died, they are known to have lived when they were seen last.
    drop(owner);
    let sessions = guest.directory().sessions;
    assert_eq!((sessions.len(), sessions[0].expires_ms), (1, opened_ms));
}

#[test]
fn g32_the_owner_waits_out_a_process_that_holds_the_file() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let other = place.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (reply, answer) = waiting();
    owner.store().commit(session, owner.with_epochs(session, [start(&row(1, "a"))]), reply);
    // Readers do not wait.
    assert_eq!(owner.find("a"), None);
    assert!(matches!(answer.try_recv(), Err(mpsc::TryRecvError::Empty)));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(answer_of(&answer), Ok(vec![durable()]));
}

#[test]
fn g32_a_file_that_stays_busy_is_unavailable_and_nothing_is_written() {
    let place = Place::new();
    let options = SqliteOptions::default().busy_patience(Duration::from_millis(5));
    let owner = Subject::over(SqliteStore::open(place.path(), options).unwrap());
    let session = owner.own_all();
    let other = place.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = owner.try_commit(session, [start(&row(1, "a"))]).unwrap_err();
    let file = place.path().canonicalize().unwrap();
    let reason =
        format!("another process keeps {} locked (database is locked, SQLite error 5)", file.display());
    assert_eq!(error, StoreError::Unavailable(reason));
    assert!(error.is_retryable());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(owner.find("a"), None);
    assert_eq!(owner.commit(session, [start(&row(1, "a"))]), [durable()]);
}

#[test]
fn g32_a_guest_goes_on_after_a_full_disk() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    let small = SqliteOptions::default().max_pages(80);
    let guest = Subject::over(SqliteStore::open_guest(place.path(), small).unwrap());
    let body = "x".repeat(2_000);
    let failure = loop {
        if let Err(failure) = guest.try_send(vec![message("a", None, &body)]) {
            break failure;
        }
    };
    assert!(failure.is_retryable(), "{failure:?}");
    assert_eq!(guest.find("a"), Some(row(1, "a")), "it still answers");
    // The owner makes room.
    let read: Vec<u64> = owner.inbox(session, 0, 1_000).iter().map(|row| row.number).collect();
    owner.write(session, member(&row(1, "a")).turn(2, "read").consuming(read));
    guest.sent(message("a", None, "small"));
}

#[test]
fn s1_a_lease_counts_from_when_the_wait_for_the_file_is_over() {
    let place = Place::new();
    let clock = TestClock::new();
    let reading = clock.clone();
    let options = SqliteOptions::default().clock(move || reading.now_ms());
    let owner = Subject::over(SqliteStore::open(place.path(), options).unwrap());
    let other = place.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (reply, answer) = waiting();
    owner.store().open_session(new_session(SessionRole::Lane, 1_000), reply);
    clock.advance(10_000);
    other.execute_batch("COMMIT").unwrap();
    let lease = answer_of(&answer).unwrap();
    assert_eq!((lease.now_ms, lease.expires_ms), (clock.now_ms(), clock.now_ms() + 1_000));
}

#[test]
fn s3_guests_get_through_while_the_owner_commits_without_a_pause() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1;
            while !enough.load(Ordering::SeqCst) {
                // Always one more than is being written.
                let answers: Vec<_> = (0..2)
                    .map(|_| {
                        number += 1;
                        let (reply, answer) = waiting();
                        let batch = owner.with_epochs(session, [member(&a).turn(number, "x")]);
                        owner.store().commit(session, batch, reply);
                        answer
                    })
                    .collect();
                for answer in &answers {
                    assert_eq!(answer_of(answer), Ok(vec![durable()]));
                }
            }
        });
        for _ in 0..20 {
            guest.sent(message("a", None, "x"));
        }
        enough.store(true, Ordering::SeqCst);
    });
    assert_eq!(owner.inbox(session, 0, 100).len(), 20);
}
