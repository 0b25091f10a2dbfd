//! The PostgreSQL store and the model return the same results for many random sequences of calls.

use perennial_postgres::open;
use perennial_testkit::conformance::{Candidate, TestClock, compare_with_model};
use perennial_testkit::postgres::TestServer;

use crate::support::{Sql, candidate, options};

/// Number of seeds, unless the environment variable `PERENNIAL_MODEL_SEEDS` is set.
const SEEDS: u64 = 12;

#[test]
fn s2_a_server_answers_as_the_model_does() {
    let seeds = std::env::var("PERENNIAL_MODEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    compare_with_model(1_000..1_000 + seeds.unwrap_or(SEEDS), 250, &candidate);
}

/// Behind a pooler that assigns connections per transaction, no state is kept in a session.
#[test]
fn n12_answers_are_the_same_without_prepared_statements_and_settings() {
    let server = TestServer::shared();
    let name = format!("pooled_{}", std::process::id());
    compare_with_model(2_000..2_003, 150, &|clock: TestClock| {
        let url = format!("{}&application_name={name}", server.new_schema());
        Candidate::new(open(&url, options().pooler(true).clock(move || clock.now_ms())).unwrap())
    });
    let url = format!("{}&application_name={name}", server.new_schema());
    let store = perennial_testkit::conformance::Subject::over(open(&url, options().pooler(true)).unwrap());
    assert_eq!(store.find("a"), None);
    let kept = "SELECT query FROM pg_stat_activity WHERE application_name = $1";
    let kept: Vec<String> = Sql::connect(&url).query(kept, &[&name]).iter().map(|row| row.get(0)).collect();
    assert!(kept.iter().any(|query| query.contains("instances")), "{kept:?}");
    assert!(!kept.iter().any(|query| query.contains("LISTEN")), "no connection listens: {kept:?}");
}
