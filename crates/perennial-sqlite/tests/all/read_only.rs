//! A file that is opened to be read: nothing changes, nothing is made beside it, and all that is durable is seen.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use crate::support::Place;
use perennial_core::store::{Criteria, StoreError};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::instances::{message, row, start};
use perennial_testkit::conformance::{Subject, answer_of, waiting};

fn files(place: &Place) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(place.directory()).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

fn try_open(place: &Place) -> Result<SqliteStore, StoreError> {
    SqliteStore::open_read_only(place.path(), SqliteOptions::default())
}

fn ids(subject: &Subject) -> Vec<String> {
    subject.list(&Criteria::default(), None, 10).rows.into_iter().map(|row| row.id).collect()
}

/// A store with one instance, and nothing beside it.
fn closed() -> Place {
    let place = Place::new();
    let owner = place.owner();
    owner.write(owner.own_all(), start(&row(1, "a")));
    drop(owner);
    for suffix in ["-lock", "-wal", "-shm"] {
        let _ = fs::remove_file(place.beside(suffix));
    }
    place
}

#[test]
fn s9_reading_leaves_the_file_and_its_directory_as_they_are() {
    let place = closed();
    let before = files(&place);
    assert_eq!(before.len(), 1);
    let reader = Subject::over(try_open(&place).unwrap());
    assert_eq!(ids(&reader), ["a"]);
    drop(reader);
    assert!(files(&place) == before, "{:?}", files(&place).keys());
}

#[test]
fn s9_a_reader_beside_an_owner_sees_what_it_commits() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    let reader = Subject::over(try_open(&place).unwrap());
    assert_eq!(ids(&reader), ["a"]);
    owner.write(session, start(&row(2, "b")));
    assert_eq!(ids(&reader), ["a", "b"]);
}

#[test]
fn s9_a_reader_sees_what_a_crash_left_in_the_log() {
    let place = Place::new();
    let owner = place.owner();
    owner.write(owner.own_all(), start(&row(1, "a")));
    // What the disk has while the owner lives is what it has after a crash.
    let copy = Place::new();
    for suffix in ["", "-wal"] {
        fs::copy(place.beside(suffix), copy.beside(suffix)).unwrap();
    }
    assert_eq!(ids(&Subject::over(try_open(&copy).unwrap())), ["a"]);
}

#[test]
fn s9_a_reader_can_change_nothing() {
    let place = closed();
    let before = fs::read(place.path()).unwrap();
    let reader = Subject::over(try_open(&place).unwrap());
    let (reply, answer) = waiting();
    reader.store().send(vec![message("a", None, "x")], reply);
    assert!(matches!(answer_of(&answer), Err(StoreError::InUse(reason)) if reason.contains("read-only")));
    drop(reader);
    assert!(fs::read(place.path()).unwrap() == before);
}

#[test]
fn s9_what_is_no_store_is_not_read_and_not_made() {
    let place = Place::new();
    assert!(try_open(&place).is_err());
    assert!(files(&place).is_empty(), "no file is made");
    fs::write(place.path(), "").unwrap();
    let error = try_open(&place).unwrap_err().to_string();
    assert!(error.contains("start a runtime on it first"), "{error}");
    assert_eq!(files(&place).len(), 1);
}
