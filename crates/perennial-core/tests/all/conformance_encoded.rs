//! A store whose payloads are encoded keeps the store contract (S10).

use std::sync::Arc;

use perennial_core::codec::{Codecs, EncodedStore};
use perennial_core::store::MemoryStore;
use perennial_testkit::conformance::{Candidate, TestClock};

use crate::codec_cases::Flipped;

perennial_testkit::store_conformance!(|clock: TestClock| {
    let store = Arc::new(MemoryStore::new(move || clock.now_ms()));
    Candidate::new(EncodedStore::new(store, Codecs::default().with(Flipped::default()), |task| task()))
});
