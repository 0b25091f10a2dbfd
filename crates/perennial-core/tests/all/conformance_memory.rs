//! The in-memory store keeps the store contract.

use perennial_core::store::MemoryStore;
use perennial_testkit::conformance::{Candidate, TestClock};

perennial_testkit::store_conformance!(|clock: TestClock| {
    Candidate::new(MemoryStore::new(move || clock.now_ms()))
});
