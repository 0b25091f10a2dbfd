//! One runtime owns a file at a time.

use std::process;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use crate::support::{Place, answered, durable};
use perennial_core::SHARDS;
use perennial_core::store::{
    CommitOutcome, Gap, InboxQuery, PageLimit, SessionRole, ShardSet, Store, StoreError,
};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::instances::{Build, bytes, member, row, start};
use perennial_testkit::conformance::{Subject, TestClock, answer_of, new_session, waiting};

#[test]
fn s1_a_second_owner_is_refused_and_told_who_has_the_file() {
    let place = Place::new();
    let owner = place.owner();
    let file = place.path().canonicalize().unwrap();
    let expected = format!(
        "PER-0507 store in use: {0} is owned by a runtime in process {1} (lock file {0}-lock); stop that runtime \
         first, or open the file with `Client::open` to look and send",
        file.display(),
        process::id()
    );
    assert_eq!(place.try_owner().unwrap_err().to_string(), expected);
    // The first one does not notice.
    let session = owner.own_all();
    assert_eq!(owner.commit(session, [start(&row(1, "a"))]), [durable()]);
}

/// Whether this process holds a lock on a file. The kernel's list can be read only in parts, and misses a lock when
/// other processes change theirs in between, so it is read until the lock is found. A lock that was lost stays lost:
/// SQLite believes that it still has it.
#[cfg(target_os = "linux")]
fn has_lock_on(path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let mine = format!(" {} ", process::id());
    (0..1000).any(|_| {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("POSIX") && line.contains(&mine) && line.contains(&inode))
    })
}

/// Whoever closes a file takes away all locks of its process on it, those of SQLite included. Another process would then
/// take the log for its own to delete.
#[cfg(target_os = "linux")]
#[test]
fn s1_trying_to_open_a_file_again_leaves_the_owners_locks_alone() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    assert!(has_lock_on(&place.path()));
    place.try_owner().unwrap_err();
    assert!(has_lock_on(&place.path()));
    drop(place.guest());
    assert!(has_lock_on(&place.path()));
    SqliteStore::open_guest(place.path(), SqliteOptions::default().create(false)).unwrap();
    assert!(has_lock_on(&place.path()));

    drop(std::fs::File::open(place.path()).unwrap());
    assert!(!has_lock_on(&place.path()), "this test would notice");
}

#[cfg(unix)]
#[test]
fn s1_another_name_of_the_file_leads_to_the_same_lock() {
    let place = Place::new();
    let _owner = place.owner();
    let link = place.directory().join("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    let error = SqliteStore::open(&link, SqliteOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::InUse(_)), "{error}");
}

#[test]
fn s1_of_fifty_owners_at_once_one_gets_the_file() {
    let place = Place::new();
    let together = Barrier::new(50);
    let opened: Vec<Result<SqliteStore, StoreError>> = thread::scope(|scope| {
        let opening: Vec<_> = (0..50)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    place.try_owner()
                })
            })
            .collect();
        opening.into_iter().map(|opened| opened.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1);
    let others = opened.iter().filter(|opened| matches!(opened, Err(StoreError::InUse(_))));
    assert_eq!(others.count(), 49);
}

#[test]
fn s1_the_file_is_free_when_closing_is_answered() {
    let place = Place::new();
    for _ in 0..10 {
        let owner = place.owner();
        owner.close().unwrap();
        // The closed store still exists, but owns nothing.
        drop(place.try_owner().unwrap());
        assert_eq!(owner.close(), Err(StoreError::Closed));
    }
}

#[test]
fn s1_sessions_of_an_earlier_owner_are_gone() {
    let place = Place::new();
    let rows_of = |table: &str| -> i64 {
        place.connection().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let earlier = place.owner();
    let old = earlier.own_all();
    earlier.write(old, start(&row(1, "a")));
    drop(earlier);
    // As if it had died: nobody cleaned up.
    assert_eq!((rows_of("sessions"), rows_of("shards WHERE session IS NOT NULL")), (1, 256));
    let owner = place.owner();
    assert_eq!((rows_of("sessions"), rows_of("shards WHERE session IS NOT NULL")), (0, 0));
    assert_eq!(owner.renew(old), Err(StoreError::SessionGone));
    assert_eq!(owner.commit(old, [member(&row(1, "a")).turn(2, "late")]), [CommitOutcome::Fenced]);
    let new = owner.own_all();
    owner.write(new, member(&row(1, "a")).turn(2, "on time"));
}

#[test]
fn s2_an_owner_whose_sessions_were_deleted_behind_its_back_is_fenced() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    // What a second owner would do that got past the lock.
    place.connection().execute_batch("DELETE FROM shards; DELETE FROM sessions").unwrap();
    let query = InboxQuery { shards: ShardSet::ALL, from: 0, known: [].into(), limit: PageLimit::rows(1) };
    let read = answered(|reply| owner.store().read_inbox(session, query, reply));
    assert_eq!(read, Err(StoreError::SessionGone));
    assert_eq!(owner.commit(session, [member(&row(1, "a")).turn(2, "x")]), [CommitOutcome::Fenced]);
    assert_eq!(owner.renew(session), Err(StoreError::SessionGone));
}

/// A store that goes by a clock.
fn timed(place: &Place, clock: &TestClock) -> Subject {
    let reading = clock.clone();
    let options = SqliteOptions::default().clock(move || reading.now_ms());
    Subject::over(SqliteStore::open(place.path(), options).unwrap())
}

#[test]
fn n10_an_owner_that_died_counts_an_unclean_end_for_what_it_did_not_release() {
    let (place, clock) = (Place::new(), TestClock::new());
    let begun_ms = clock.now_ms();
    {
        let earlier = timed(&place, &clock);
        let session = earlier.open_session(9_000);
        let shards = earlier.claim(session, SHARDS).unwrap();
        earlier.note(session, vec![(shards[1], Some(bytes("suspects")))], false).unwrap();
        earlier.release(session, shards[..1].iter().copied().collect()).unwrap();
        // It is seen with a commit, if it was not seen for a third of its lease; not by renewals alone.
        clock.advance(2_000);
        let late = row(1, "a");
        earlier.write(session, start(&late));
        clock.advance(2_000);
        earlier.write(session, member(&late).turn(2, "second"));
        clock.advance(2_000);
        earlier.renew(session).unwrap();
    }
    clock.advance(60_000);
    let owner = timed(&place, &clock);
    let session = owner.open_session(9_000);
    let owned = owner.claim_rows(session, SHARDS).unwrap();
    let gap = |from_ms| vec![Gap { from_ms: begun_ms + from_ms, until_ms: begun_ms + 66_000 }];
    assert_eq!((owned[0].epoch, owned[0].unclean_ends, &owned[0].gaps), (2, 0, &gap(0)));
    assert_eq!((owned[1].epoch, owned[1].unclean_ends, &owned[1].gaps), (2, 1, &gap(4_000)));
    assert_eq!(owned[1].note, Some(bytes("suspects")));
    // One that releases all of it ends cleanly.
    owner.end(session).unwrap();
    drop(owner);
    let last = timed(&place, &clock);
    let session = last.own_all();
    let owned = last.claim_rows(session, 0).unwrap();
    assert!(owned.iter().all(|owned| (owned.epoch, owned.unclean_ends, &owned.note) == (3, 0, &None)));
}

#[test]
fn n7_maintenance_that_died_with_its_process_is_no_unclean_end() {
    let (place, clock) = (Place::new(), TestClock::new());
    {
        let earlier = timed(&place, &clock);
        let visitor = new_session(SessionRole::Maintenance, 1_000);
        earlier.open(visitor.clone()).unwrap();
        earlier.claim(visitor.id, SHARDS).unwrap();
    }
    clock.advance(60_000);
    let owner = timed(&place, &clock);
    let session = owner.own_all();
    let owned = owner.claim_rows(session, 0).unwrap();
    assert!(owned.iter().all(|owned| owned.unclean_ends == 0 && owned.gaps.is_empty() && owned.epoch == 2));
}

#[test]
fn n10_a_commit_writes_that_its_session_was_seen_only_now_and_then() {
    let (place, clock) = (Place::new(), TestClock::new());
    let owner = timed(&place, &clock);
    let session = owner.own_all();
    let a = row(1, "a");
    let seen = || -> i64 {
        place.connection().query_row("SELECT seen_ms FROM sessions", [], |row| row.get(0)).unwrap()
    };
    let begun_ms = seen();
    owner.write(session, start(&a));
    for (turn, advance, expected) in [(2, 10_000, 0), (3, 10_000, 0), (4, 1, 20_001), (5, 20_000, 20_001)] {
        clock.advance(advance);
        owner.write(session, member(&a).turn(turn, "x"));
        assert_eq!(seen() - begun_ms, expected, "turn {turn}");
    }
}

#[test]
fn s1_renewing_a_lease_writes_nothing() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let watcher = place.connection();
    let version = || -> i64 { watcher.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap() };
    let before = version();
    for _ in 0..10 {
        owner.renew(session).unwrap();
    }
    assert_eq!(version(), before);
}

#[test]
fn a_store_that_is_dropped_in_a_reply_closes() {
    let place = Place::new();
    let store = Arc::new(place.try_owner().unwrap());
    let (done, dropped) = mpsc::channel();
    let (last, writer_may_go_on) = (Arc::clone(&store), mpsc::channel::<()>());
    let (go_on, wait) = writer_may_go_on;
    store.send(
        vec![],
        Box::new(move |_| {
            wait.recv().unwrap();
            drop(last);
            done.send(()).unwrap();
        }),
    );
    drop(store);
    go_on.send(()).unwrap();
    dropped.recv().unwrap();
    // Its threads finish by themselves; the lock is free soon after.
    while place.try_owner().is_err() {
        thread::yield_now();
    }
}

#[test]
fn a_reply_that_panics_stops_nobody_else() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    owner.store().send(vec![], Box::new(|_| panic!("this reply panics, as the test wants")));
    owner.store().find("a", Box::new(|_| panic!("this reply panics, as the test wants")));
    owner.store().watch(Arc::new(|_| panic!("this hint panics, as the test wants")));
    let (reply, answer) = waiting();
    owner.store().commit(session, owner.with_epochs(session, [start(&row(1, "a"))]), reply);
    assert_eq!(answer_of(&answer), Ok(vec![durable()]));
    assert_eq!(owner.find("a"), Some(row(1, "a")));
}

#[test]
fn in_memory_every_store_is_its_own() {
    let open = || Subject::over(SqliteStore::open(":memory:", SqliteOptions::default()).unwrap());
    let (one, other) = (open(), open());
    let session = one.own_all();
    one.write(session, start(&row(1, "a")));
    assert_eq!(other.find("a"), None);
    let error = SqliteStore::open_guest(":memory:", SqliteOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "PER-0506 cannot open the store: :memory:: a database in memory belongs to one process and cannot have guests"
    );
}
