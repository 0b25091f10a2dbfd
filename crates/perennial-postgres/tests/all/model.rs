//! The PostgreSQL store and the model return the same results for many random sequences of calls.

use perennial_postgres::open;
use perennial_testkit::conformance::instances::message;
use perennial_testkit::conformance::{Candidate, TestClock, compare_with_model};
use perennial_testkit::postgres::TestServer;

use crate::support::{Sql, candidate, options, schema_of, through_pooler};

/// Number of seeds, unless the environment variable `PERENNIAL_MODEL_SEEDS` is set.
const SEEDS: u64 = 12;

#[test]
fn s2_a_server_answers_as_the_model_does() {
    let seeds = std::env::var("PERENNIAL_MODEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    compare_with_model(1_000..1_000 + seeds.unwrap_or(SEEDS), 250, &candidate);
}

/// Behind a pooler that assigns connections per transaction, no state is kept in a session.
#[test]
fn n12_answers_are_the_same_behind_a_transaction_pooler() {
    let server = TestServer::shared();
    let (name, through) = (format!("pooled_{}", std::process::id()), through_pooler(server.url()));
    let url =
        || format!("{through}?application_name={name}&pooler=on&schema={}", schema_of(&server.new_schema()));
    compare_with_model(2_000..2_003, 150, &|clock: TestClock| {
        Candidate::new(open(&url(), options().clock(move || clock.now_ms())).unwrap())
    });
    let store = perennial_testkit::conformance::Subject::over(open(&url(), options()).unwrap());
    assert_eq!(store.find("a"), None);
    let kept = "SELECT query FROM pg_stat_activity WHERE application_name = $1";
    let kept: Vec<String> =
        Sql::connect(server.url()).query(kept, &[&name]).iter().map(|row| row.get(0)).collect();
    assert!(kept.iter().any(|query| query.contains("instances")), "{kept:?}");
    assert!(!kept.iter().any(|query| query.contains("LISTEN")), "no connection listens: {kept:?}");
}

#[test]
fn n12_a_pooler_that_the_url_does_not_mention_is_named_in_the_error() {
    let server = TestServer::shared();
    let url = through_pooler(&server.new_schema());
    let stores: Vec<_> = (0..3).map(|_| open(&url, options().hints(false))).collect();
    let errors = stores.into_iter().map(|store| {
        let subject = perennial_testkit::conformance::Subject::over(store?);
        // Statements that were prepared on one connection are looked for on another.
        (0..10).try_for_each(|number| {
            let sent = subject.try_send(vec![message("a", Some(&number.to_string()), "x")]);
            sent.map(drop)
        })
    });
    let errors: Vec<String> = errors.filter_map(|sent| sent.err()).map(|error| error.to_string()).collect();
    assert!(!errors.is_empty());
    assert!(errors.iter().all(|error| error.contains("the URL needs pooler=on")), "{errors:?}");
}
