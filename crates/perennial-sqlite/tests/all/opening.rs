//! Opening a file: what is made, what is refused, and what many at once may do.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use crate::support::{Place, durable};
use perennial_core::store::StoreError;
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::Subject;
use perennial_testkit::conformance::instances::{row, start};
use rusqlite::Connection;

/// Why a path cannot be opened; the same for an owner and for a guest.
fn refusal(path: &Path) -> String {
    let beside = || {
        let entries = path.parent().and_then(|directory| fs::read_dir(directory).ok()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>()
    };
    let before = beside();
    let owner = SqliteStore::open(path, SqliteOptions::default()).unwrap_err();
    let guest = SqliteStore::open_guest(path, SqliteOptions::default()).unwrap_err();
    assert_eq!(owner, guest);
    assert_eq!(beside(), before, "a path that is refused gets no files beside it");
    match owner {
        StoreError::CannotOpen(reason) => {
            let prefix = format!("{}: ", path.display());
            reason.strip_prefix(&prefix).expect("the message names the path").to_owned()
        }
        other => panic!("it should not open: {other:?}"),
    }
}

#[test]
fn s9_a_newer_schema_is_refused_and_left_as_it_is() {
    let place = Place::new();
    drop(place.owner());
    place.connection().execute_batch("PRAGMA user_version=99").unwrap();
    assert_eq!(
        refusal(&place.path()),
        "its schema has version 99, and this program knows versions up to 5: a newer Perennial made it; use that one \
         or newer"
    );
    let version: i64 = place.connection().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 99);
}

#[test]
fn s9_the_database_of_another_program_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place.connection().execute_batch("CREATE TABLE customers (name TEXT)").unwrap();
    let before = fs::read(place.path()).unwrap();
    assert_eq!(refusal(&place.path()), "this is the database of another program; choose another path");
    assert_eq!(fs::read(place.path()).unwrap(), before);
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let text = "Dear diary, ".repeat(1_000);
    fs::write(place.path(), &text).unwrap();
    assert_eq!(refusal(&place.path()), "this is not a SQLite database; choose another path");
    assert_eq!(fs::read_to_string(place.path()).unwrap(), text);
}

#[test]
fn paths_that_lead_nowhere_are_refused_with_the_reason() {
    let place = Place::new();
    assert_eq!(refusal(place.directory()), "this is a directory, not a file");
    let nowhere = place.directory().join("missing/shop.db");
    let missing = place.directory().join("missing");
    assert_eq!(
        refusal(&nowhere),
        format!("the directory {} does not exist; create it first", missing.display())
    );
    assert_eq!(refusal(Path::new("")), "the path is empty");
    fs::write(place.directory().join("file"), "").unwrap();
    let through_a_file = refusal(&place.directory().join("file/shop.db"));
    assert!(through_a_file.starts_with("the file cannot be reached: "), "{through_a_file}");
}

#[test]
fn a_file_is_not_created_unless_that_is_wanted() {
    let place = Place::new();
    let error = SqliteStore::open_guest(place.path(), SqliteOptions::default().create(false)).unwrap_err();
    let reason = format!("{}: there is no such file", place.path().display());
    assert_eq!(error, StoreError::CannotOpen(reason));
    assert!(!place.path().exists());
    drop(place.owner());
    SqliteStore::open_guest(place.path(), SqliteOptions::default().create(false)).unwrap();
}

#[test]
fn an_empty_file_becomes_a_store() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    let owner = place.owner();
    let session = owner.own_all();
    assert_eq!(owner.commit(session, [start(&row(1, "a"))]), [durable()]);
}

#[test]
fn a_path_is_a_path_and_never_a_uri() {
    let place = Place::new();
    let path = place.directory().join("file:shop.db?mode=memory");
    drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    assert!(path.exists());
}

#[cfg(unix)]
#[test]
fn only_the_owner_of_the_files_may_read_and_write_them() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    owner.commit(session, [start(&row(1, "a"))]);
    let mut found: Vec<(String, u32)> = fs::read_dir(place.directory())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    found.sort();
    let names = ["shop.db", "shop.db-lock", "shop.db-shm", "shop.db-wal"];
    assert_eq!(found, names.map(|name| (name.to_owned(), 0o600)));
}

#[test]
fn s9_fifty_at_once_make_one_schema() {
    let place = Place::new();
    let together = Barrier::new(51);
    thread::scope(|scope| {
        let opening: Vec<_> = (0..51)
            .map(|number| {
                let (place, together) = (&place, &together);
                scope.spawn(move || {
                    together.wait();
                    // One of them is the owner.
                    if number == 25 { place.try_owner() } else { place.try_guest() }
                })
            })
            .collect();
        for opened in opening {
            Subject::over(opened.join().unwrap().unwrap()).find("a");
        }
    });
    let tables: i64 = place
        .connection()
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'turns'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1);
}

#[test]
fn s9_what_another_connection_left_in_the_log_is_kept() {
    let place = Place::new();
    drop(place.owner());
    let path = place.path();
    // Somebody who died with the log still there.
    let copy = place.directory().join("copy.db");
    {
        let owner = place.owner();
        let session = owner.own_all();
        assert_eq!(owner.commit(session, [start(&row(1, "a"))]), [durable()]);
        fs::copy(&path, &copy).unwrap();
        fs::copy(place.beside("-wal"), place.directory().join("copy.db-wal")).unwrap();
    }
    let in_main: i64 = {
        let alone = place.directory().join("alone.db");
        fs::copy(&copy, &alone).unwrap();
        let connection = Connection::open(alone).unwrap();
        connection.query_row("SELECT count(*) FROM instances", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(in_main, 0, "the row is in the log only");
    let heir = Subject::over(SqliteStore::open(&copy, SqliteOptions::default()).unwrap());
    assert_eq!(heir.find("a"), Some(row(1, "a")));
}
