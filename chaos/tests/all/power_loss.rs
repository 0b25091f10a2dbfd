//! Power failures, computed from recordings of a process over a SQLite file.

use std::time::Duration;

use perennial_chaos::power_loss::{PowerLoss, run};

use crate::support::program;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_forty_power_failures_lose_nothing_that_was_acknowledged() {
    let outcome = run(PowerLoss::new(program(), 7, 40)).await;
    println!("{outcome:#?}");
    assert_eq!(outcome.problems, Vec::<String>::new());
    assert!(outcome.acknowledged > 100, "too little was done");
    assert!(outcome.sectors.0 > 100 && outcome.sectors.1 > 100, "nothing was torn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_power_failures_after_a_failed_sync_write_or_full_disk_lose_nothing() {
    // The second, fourth and sixth recording have a failure each.
    let plan = PowerLoss { cuts_per_recording: 6, ..PowerLoss::new(program(), 8, 36) };
    let outcome = run(plan).await;
    println!("{outcome:#?}");
    assert_eq!((outcome.problems, outcome.failures), (Vec::<String>::new(), [1, 1, 1]));
}

/// If the sync of the switch to a write-ahead log fails, the file still has a journal. And the journal in which SQLite creates
/// a database is deleted without a sync of its directory: if it comes back, it rolls everything back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_the_journal_of_an_interrupted_creation_does_not_come_back() {
    let plan = PowerLoss {
        failing_syncs: (1..=8).collect(),
        cuts_per_recording: 4,
        ..PowerLoss::new(program(), 10, 32)
    };
    let outcome = run(plan).await;
    assert_eq!(outcome.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_a_store_that_does_not_sync_is_found_out() {
    let plan =
        PowerLoss { relaxed: true, patience: Duration::from_secs(10), ..PowerLoss::new(program(), 9, 12) };
    let outcome = run(plan).await;
    assert!(!outcome.problems.is_empty(), "losses were not found: {outcome:#?}");
}
