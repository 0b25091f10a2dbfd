//! The SQLite store and the model give the same answers, over many drawn sequences of calls.

use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::{Candidate, TestClock, compare_with_model};

#[test]
fn s2_a_file_answers_as_the_model_does() {
    // Nothing here depends on syncs, and without them more sequences can be tried.
    compare_with_model(1_000..1_040, 250, &|clock: TestClock| {
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteOptions::default().relaxed(true).clock(move || clock.now_ms());
        let store = SqliteStore::open(directory.path().join("store.db"), options).unwrap();
        Candidate::keeping(store, directory)
    });
}
