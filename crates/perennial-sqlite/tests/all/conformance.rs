//! The SQLite store keeps the store contract, in a file and in memory.

use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::{Candidate, TestClock};

fn options(clock: TestClock) -> SqliteOptions {
    SqliteOptions::default().clock(move || clock.now_ms())
}

mod file {
    use super::*;

    perennial_testkit::store_conformance!(|clock: TestClock| {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("store.db"), options(clock)).unwrap();
        Candidate::keeping(store, directory)
    });
}

mod in_memory {
    use super::*;

    perennial_testkit::store_conformance!(|clock: TestClock| {
        Candidate::new(SqliteStore::open(":memory:", options(clock)).unwrap())
    });
}
