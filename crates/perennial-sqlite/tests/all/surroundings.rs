//! The file and its surroundings: what other programs and people may do to the database, its log and its lock file, while
//! it is in use and after a crash.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, durable};
use perennial_core::store::{InstanceRow, SessionId, StoreError};
use perennial_sqlite::{Owner, SqliteOptions, SqliteStore, inspect};
use perennial_testkit::conformance::Subject;
use perennial_testkit::conformance::instances::{Build, member, message, row, start};
use rusqlite::Connection;

/// An owner with one instance, whose first turn is written.
fn busy_owner(place: &Place) -> (Subject, SessionId, InstanceRow) {
    let owner = place.owner();
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    (owner, session, a)
}

/// What an owner answers to the next commit, which has to be the answer to everything that follows.
#[track_caller]
fn stopped(place: &Place, what_happens: impl FnOnce()) -> String {
    let (owner, session, a) = busy_owner(place);
    what_happens();
    let failure = owner.try_commit(session, [member(&a).turn(2, "into the void")]).unwrap_err();
    assert!(matches!(failure, StoreError::Failed(_)), "{failure:?}");
    assert_eq!(owner.renew(session), Err(failure.clone()));
    owner.close().unwrap();
    failure.to_string()
}

#[test]
fn g32_an_unlinked_database_stops_its_owner() {
    let place = Place::new();
    let failure = stopped(&place, || fs::remove_file(place.path()).unwrap());
    assert!(failure.starts_with("PER-0503 store failed: ") && failure.contains("is gone"), "{failure}");
    assert!(failure.contains("shop.db") && failure.contains("restore"), "{failure}");
}

#[test]
fn g32_a_database_that_another_file_was_renamed_over_stops_its_owner() {
    let place = Place::new();
    let failure = stopped(&place, || {
        let other = place.directory().join("other.db");
        fs::copy(place.path(), &other).unwrap();
        fs::rename(other, place.path()).unwrap();
    });
    assert!(failure.contains("is another file now"), "{failure}");
}

#[cfg(unix)]
#[test]
fn g32_a_database_that_was_moved_and_linked_back_stops_its_owner() {
    let place = Place::new();
    let failure = stopped(&place, || {
        let elsewhere = place.directory().join("elsewhere.db");
        fs::rename(place.path(), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, place.path()).unwrap();
    });
    assert!(failure.contains("is another file now"), "{failure}");
}

#[test]
fn g32_a_database_with_a_second_hard_link_stops_its_owner() {
    let place = Place::new();
    let failure =
        stopped(&place, || fs::hard_link(place.path(), place.directory().join("other.db")).unwrap());
    assert!(failure.contains("hard link"), "{failure}");
}

#[test]
fn g32_a_log_or_lock_that_was_unlinked_or_replaced_stops_the_owner() {
    for suffix in ["-wal", "-lock"] {
        let place = Place::new();
        let failure = stopped(&place, || fs::remove_file(place.beside(suffix)).unwrap());
        assert!(failure.contains(&format!("shop.db{suffix} is gone")), "{failure}");
        let place = Place::new();
        let failure = stopped(&place, || {
            fs::remove_file(place.beside(suffix)).unwrap();
            fs::write(place.beside(suffix), "").unwrap();
        });
        assert!(failure.contains(&format!("shop.db{suffix} is another file now")), "{failure}");
    }
}

#[test]
fn g32_a_guest_acknowledges_nothing_into_an_unlinked_file() {
    let place = Place::new();
    let (_owner, _, a) = busy_owner(&place);
    let guest = place.guest();
    guest.sent(message(&a.id, None, "x"));
    fs::remove_file(place.path()).unwrap();
    let failure = guest.try_send(vec![message(&a.id, None, "y")]).unwrap_err();
    assert!(matches!(failure, StoreError::Failed(_)), "{failure:?}");
}

/// An owner that waits for work, as one does whose instances all sleep.
#[test]
fn g32_an_idle_owner_notices_that_its_database_is_gone() {
    let place = Place::new();
    let (owner, session, _) = busy_owner(&place);
    let hints = crate::support::hints(&owner);
    fs::remove_file(place.path()).unwrap();
    crate::support::wait_for(&hints);
    assert!(matches!(owner.renew(session), Err(StoreError::Failed(_))));
}

#[test]
fn s1_a_hard_link_of_the_file_is_refused_in_use_or_not() {
    let place = Place::new();
    let owner = place.owner();
    let other = place.directory().join("other.db");
    fs::hard_link(place.path(), &other).unwrap();
    for path in [&other, &place.path()] {
        let error = SqliteStore::open_guest(path, SqliteOptions::default()).unwrap_err();
        assert!(error.to_string().contains("hard link"), "{error}");
    }
    let error = SqliteStore::open(&other, SqliteOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::CannotOpen(_)), "{error:?}");
    drop(owner);
    let error = place.try_owner().unwrap_err();
    assert!(error.to_string().contains("hard link"), "{error}");
    fs::remove_file(other).unwrap();
    drop(place.owner());
}

/// A mount that ends with the test; `None` without the right to mount.
struct Bound<'p>(&'p Path);

impl Bound<'_> {
    fn mount<'p>(what: &Path, at: &'p Path) -> Option<Bound<'p>> {
        let mounted = Command::new("mount").arg("--bind").args([what, at]).status();
        mounted.is_ok_and(|status| status.success()).then_some(Bound(at))
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn s1_a_second_owner_through_a_bind_mount_is_refused() {
    let (place, other) = (Place::new(), Place::new());
    let owner = place.owner();
    let file = other.directory().join("shop.db");
    if let Some(_bound) = Bound::mount(place.directory(), other.directory()) {
        let error = SqliteStore::open(&file, SqliteOptions::default()).unwrap_err();
        assert!(matches!(error, StoreError::InUse(_)), "{error:?}");
    }
    fs::write(&file, "").unwrap();
    if let Some(_bound) = Bound::mount(&place.path(), &file) {
        for opened in [
            SqliteStore::open(&file, SqliteOptions::default()),
            SqliteStore::open_guest(&file, SqliteOptions::default()),
        ] {
            let error = opened.unwrap_err();
            assert!(error.to_string().contains("mount its directory instead"), "{error}");
        }
    }
    drop(owner);
}

/// A copy of a store in use: what is left if the machine stops now.
fn crashed(place: &Place) -> Place {
    let copy = Place::new();
    for suffix in ["", "-wal", "-lock"] {
        fs::copy(place.beside(suffix), copy.beside(suffix)).unwrap();
    }
    copy
}

/// A store that died with turns in its log, and its instance. The log was begun again at least once.
fn died_with_a_full_log() -> (Place, InstanceRow) {
    let place = Place::new();
    let (owner, session, a) = busy_owner(&place);
    let body = "x".repeat(3_000);
    for batch in 0..12 {
        let turns = (0..128).map(|number| member(&a).turn(2 + batch * 128 + number, &body));
        assert!(owner.commit(session, turns).iter().all(|outcome| *outcome == durable()));
    }
    (crashed(&place), a)
}

const ALL_TURNS: usize = 1 + 12 * 128;

fn turns(subject: &Subject, a: &InstanceRow) -> usize {
    subject.load(a, 0).unwrap().turns.len()
}

#[test]
fn s18_a_log_that_was_removed_after_a_crash_is_missed() {
    let (place, a) = died_with_a_full_log();
    let wal = fs::read(place.beside("-wal")).unwrap();
    fs::remove_file(place.beside("-wal")).unwrap();
    let error = place.try_owner().unwrap_err().to_string();
    assert!(error.starts_with("PER-0506 cannot open the store: "), "{error}");
    assert!(error.contains("shop.db-wal") && error.contains("put it back"), "{error}");
    assert!(error.contains("delete") && error.contains("shop.db-lock"), "{error}");
    assert!(matches!(inspect(&place.path(), 0).unwrap().owner, Owner::Died(_)), "a refusal changes nothing");
    // A guest would write into what is left.
    let error = place.try_guest().unwrap_err().to_string();
    assert!(error.contains("put it back"), "{error}");
    let _ = fs::remove_file(place.beside("-shm"));
    fs::write(place.beside("-wal"), wal).unwrap();
    assert_eq!(turns(&place.owner(), &a), ALL_TURNS);
}

#[test]
fn s18_the_remedy_for_a_log_that_is_lost_accepts_what_is_left() {
    let (place, _) = died_with_a_full_log();
    fs::remove_file(place.beside("-wal")).unwrap();
    place.try_owner().unwrap_err();
    for suffix in ["-wal", "-shm", "-lock"] {
        let _ = fs::remove_file(place.beside(suffix));
    }
    drop(place.owner());
}

#[test]
fn s18_a_log_that_another_program_moved_into_the_file_is_not_missed() {
    let (place, a) = died_with_a_full_log();
    // Whoever closes the file last moves the log into it, and deletes it.
    let count: i64 =
        place.connection().query_row("SELECT count(*) FROM turns", [], |row| row.get(0)).unwrap();
    assert_eq!(usize::try_from(count).unwrap(), ALL_TURNS);
    assert!(!place.beside("-wal").exists());
    assert_eq!(turns(&place.owner(), &a), ALL_TURNS);
}

#[test]
fn s18_a_guest_after_a_crash_leaves_the_log_to_the_next_owner() {
    let (place, a) = died_with_a_full_log();
    assert_eq!(turns(&place.guest(), &a), ALL_TURNS);
    assert_eq!(turns(&place.owner(), &a), ALL_TURNS);
}

/// A backup, as the guide describes it.
fn back_up(place: &Place) -> std::path::PathBuf {
    let backup = place.directory().join("backup.db");
    place.connection().execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    backup
}

#[test]
fn s18_a_backup_that_meets_the_log_of_a_crashed_store_is_refused() {
    let place = Place::new();
    let (owner, session, a) = busy_owner(&place);
    let backup = back_up(&place);
    let body = "x".repeat(3_000);
    for batch in 0..20 {
        let turns = (0..256).map(|number| member(&a).turn(2 + batch * 256 + number, &body));
        owner.commit(session, turns);
        // However young the backup is.
        let crashed = crashed(&place);
        fs::copy(&backup, crashed.path()).unwrap();
        let before = fs::read(crashed.path()).unwrap();
        crashed.try_owner().unwrap_err();
        assert!(fs::read(crashed.path()).unwrap() == before, "the backup is as it was");
    }
    let crashed = crashed(&place);
    fs::copy(&backup, crashed.path()).unwrap();
    let before = fs::read(crashed.path()).unwrap();
    let error = crashed.try_owner().unwrap_err().to_string();
    assert!(error.contains("does not belong to") && error.contains("shop.db-wal"), "{error}");
    assert!(error.contains("delete"), "{error}");
    assert!(fs::read(crashed.path()).unwrap() == before, "the backup is as it was");
    let error = crashed.try_guest().unwrap_err().to_string();
    assert!(error.contains("does not belong to"), "{error}");
    // As the message says.
    for suffix in ["-wal", "-shm", "-lock"] {
        let _ = fs::remove_file(crashed.beside(suffix));
    }
    assert_eq!(turns(&crashed.owner(), &a), 1);
}

#[test]
fn s18_a_backup_of_a_store_that_was_closed_is_restored_by_copying() {
    let place = Place::new();
    let (owner, session, a) = busy_owner(&place);
    let backup = back_up(&place);
    owner.write(session, member(&a).turn(2, "later"));
    drop(owner);
    fs::copy(&backup, place.path()).unwrap();
    let owner = place.owner();
    assert_eq!(turns(&owner, &a), 1);
    owner.write(owner.own_all(), member(&a).turn(2, "again"));
}

#[test]
fn g5_everything_is_in_the_file_before_an_owner_after_a_crash_acknowledges() {
    let (place, a) = died_with_a_full_log();
    let owner = place.owner();
    // The file alone: a log whose sync failed may be readable now, and lost with the power.
    let alone = Place::new();
    fs::copy(place.path(), alone.path()).unwrap();
    assert_eq!(turns(&Subject::over(alone.try_guest().unwrap()), &a), ALL_TURNS);
    drop(owner);
}

#[test]
fn g5_an_owner_waits_for_readers_that_keep_a_crashed_log_out_of_the_file() {
    let (place, a) = died_with_a_full_log();
    let reader = place.connection();
    reader.execute_batch("BEGIN; SELECT count(*) FROM turns").unwrap();
    let guest = place.guest();
    guest.sent(message(&a.id, None, "x"));
    let patience = SqliteOptions::default().busy_patience(std::time::Duration::from_millis(50));
    let error = SqliteStore::open(place.path(), patience).unwrap_err().to_string();
    assert!(error.contains("reads an old state"), "{error}");
    reader.execute_batch("COMMIT").unwrap();
    drop(place.owner());
}

#[test]
fn i19_a_long_reader_leaves_no_large_log_behind() {
    let place = Place::new();
    let options = SqliteOptions::default().relaxed(true);
    let owner = Subject::over(SqliteStore::open(place.path(), options).unwrap());
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let reader = Connection::open(place.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM turns").unwrap();
    let body = "x".repeat(3_000);
    let mut next = 2;
    let mut write = |batches: u64| {
        for _ in 0..batches {
            let turns = (next..next + 256).map(|number| member(&a).turn(number, &body));
            assert!(owner.commit(session, turns).iter().all(|outcome| *outcome == durable()));
            next += 256;
        }
    };
    let megabytes = || fs::metadata(place.beside("-wal")).unwrap().len() >> 20;
    write(60);
    assert!(megabytes() > 50, "the reader keeps the log from being used again: {} MiB", megabytes());
    reader.execute_batch("COMMIT").unwrap();
    write(12);
    assert!(megabytes() <= 24, "{} MiB are left", megabytes());
}
