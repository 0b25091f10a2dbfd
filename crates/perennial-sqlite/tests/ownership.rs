//! One runtime owns a file at a time.

mod support;

use std::process;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use perennial_core::store::{CommitOutcome, Store, StoreError};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::instances::{Build, member, row, start};
use perennial_testkit::conformance::{Subject, answer_of, waiting};
use support::{Place, durable};

#[test]
fn s1_a_second_owner_is_refused_and_told_who_has_the_file() {
    let place = Place::new();
    let owner = place.owner();
    let file = place.path().canonicalize().unwrap();
    let expected = format!(
        "PER-0507 store in use: {0} is owned by a runtime in process {1} (lock file {0}-lock); stop that runtime \
         first, or open the file as a guest to look and send",
        file.display(),
        process::id()
    );
    assert_eq!(place.try_owner().unwrap_err().to_string(), expected);
    // The first one does not notice.
    let session = owner.own_all();
    assert_eq!(owner.commit(session, [start(&row(1, "a"))]), [durable()]);
}

/// The locks of this process on a file.
#[cfg(target_os = "linux")]
fn locks_on(path: &std::path::Path) -> usize {
    use std::os::unix::fs::MetadataExt;

    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let mine = format!(" {} ", process::id());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .filter(|line| line.contains("POSIX") && line.contains(&mine) && line.contains(&inode))
        .count()
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
    let before = locks_on(&place.path());
    assert!(before > 0, "SQLite holds locks on its files");
    place.try_owner().unwrap_err();
    assert_eq!(locks_on(&place.path()), before);
    drop(place.guest());
    assert_eq!(locks_on(&place.path()), before);
    SqliteStore::open_guest(place.path(), SqliteOptions::default().create(false)).unwrap();
    assert_eq!(locks_on(&place.path()), before);
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
    assert_eq!((rows_of("sessions"), rows_of("shards")), (1, 256));
    let owner = place.owner();
    assert_eq!((rows_of("sessions"), rows_of("shards")), (0, 0));
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
    assert_eq!(owner.commit(session, [member(&row(1, "a")).turn(2, "x")]), [CommitOutcome::Fenced]);
    assert_eq!(owner.renew(session), Err(StoreError::SessionGone));
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
    owner.store().watch(Arc::new(|| panic!("this hint panics, as the test wants")));
    let (reply, answer) = waiting();
    owner.store().commit(session, [start(&row(1, "a"))].into(), reply);
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
        "PER-0506 cannot open the store: :memory:: what is in memory belongs to one process and has no guests"
    );
}
