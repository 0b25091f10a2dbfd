//! A store that uses only the public contract satisfies it, also after it is opened again.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use perennial_core::SHARDS;
use perennial_core::store::{CommitOutcome, Status};
use perennial_testkit::conformance::instances::{
    Build, attributes, bytes, member, message, row, start, status, task,
};
use perennial_testkit::conformance::{Candidate, Subject, TestClock};

use crate::json_lines_store::JsonLinesStore;

fn open(path: &Path, clock: &TestClock) -> JsonLinesStore {
    let clock = clock.clone();
    JsonLinesStore::open(path, move || clock.now_ms()).unwrap()
}

perennial_testkit::store_conformance!(|clock: TestClock| {
    let directory = tempfile::tempdir().unwrap();
    Candidate::keeping(open(&directory.path().join("store.jsonl"), &clock), directory)
});

#[test]
fn g5_all_rows_are_read_after_opening_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("store.jsonl"), TestClock::new());
    let mut a = row(1, "a");
    // Text of users is read unchanged, including newlines.
    a.attributes = attributes(&[("sizes", "[1,\n  2.50]")]);
    let (session, number) = {
        let store = Subject::over(open(&path, &clock));
        let session = store.own_all();
        store.write(session, start(&a).putting([task(&a, 2)]));
        store.write(session, member(&a).turn(2, "second").changing(status(Status::Running)));
        store.write_setting("retention", Some("7 days"));
        (session, store.sent(message("a", Some("k"), "hello")))
    };
    let store = Subject::over(open(&path, &clock));
    let loaded = store.load(&a, 0).unwrap();
    assert_eq!((&loaded.row, loaded.turns), (&a, vec![bytes("started"), bytes("second")]));
    assert_eq!((loaded.inbox[0].number, loaded.tasks), (number, vec![task(&a, 2)]));
    assert_eq!(store.setting("retention"), Some(bytes("7 days")));
    // The session has not expired, and owns the same shards.
    assert_eq!(store.claim(session, SHARDS).unwrap().len(), SHARDS);
    store.write(session, member(&a).turn(3, "third").consuming([number]));
    assert_eq!(store.sent(message("a", None, "hello")), number + 1, "no number is reused");
}

#[test]
fn g5_an_incomplete_line_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("store.jsonl"), TestClock::new());
    let a = row(1, "a");
    let session = {
        let store = Subject::over(open(&path, &clock));
        let session = store.own_all();
        store.write(session, start(&a));
        session
    };
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"[{\"MessageGone\":1},{\"Tur").unwrap();
    for turn in 2..4 {
        let store = Subject::over(open(&path, &clock));
        store.claim(session, SHARDS).unwrap();
        let outcomes = store.commit(session, [member(&a).turn(turn, "went on")]);
        assert_eq!(outcomes, [CommitOutcome::Durable { sent: vec![] }]);
    }
    assert_eq!(Subject::over(open(&path, &clock)).turns(&a, 1, 0, 10).len(), 3);
}
