//! Runs under faults.

use std::time::Duration;

use perennial_chaos::Plan;
use perennial_chaos::director::run;
use perennial_chaos::embedded;
use perennial_chaos::takeover;

use crate::support::{LEASE, program};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n9_fifty_faults_lose_nothing_and_double_nothing() {
    let outcome = run(Plan::short(program(), 50, LEASE)).await;
    println!("{outcome:#?}");
    assert_eq!(outcome.problems, Vec::<String>::new());
    assert!(outcome.cuts > 0, "no connection was cut at a commit");
    assert!(outcome.repeated_runs > 0, "no fault interrupted an activity");
    assert!(outcome.endings["completed"] > 50, "too little was done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g32_faults_of_the_owner_of_a_file_and_of_its_disk_lose_nothing() {
    let outcome = embedded::run(Plan::short(program(), 12, LEASE)).await;
    println!("{outcome:#?}");
    assert_eq!(outcome.problems, Vec::<String>::new());
    assert!(outcome.repeated_runs > 0, "no fault interrupted an activity");
    assert!(outcome.endings["completed"] > 20, "too little was done");
}

/// The rule allows the lease plus one second; this test allows more, for busy machines. `cargo xtask chaos --takeover`
/// measures the actual times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n11_instances_of_a_killed_node_answer_again_soon_after_its_lease() {
    let measured = takeover::measure(program(), LEASE, 3).await;
    println!("{}", takeover::summary(LEASE, &measured));
    assert_eq!(measured.len(), 3);
    let slowest = measured.iter().map(|(_, last)| *last).max().unwrap();
    assert!(slowest < LEASE + Duration::from_secs(5), "{slowest:?}");
}
