//! The PostgreSQL store keeps the store contract.

use perennial_testkit::conformance::TestClock;

use crate::support::candidate;

perennial_testkit::store_conformance!(|clock: TestClock| candidate(clock));
