//! A run under faults.

use std::time::Duration;

use perennial_chaos::director::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n9_fifty_faults_lose_nothing_and_double_nothing() {
    let plan = Plan {
        program: env!("CARGO_BIN_EXE_perennial-chaos-node").into(),
        seed: 13,
        faults: 50,
        time: Duration::ZERO,
        nodes: (3, 5),
        lease: Duration::from_secs(1),
        pause_ms: (100, 700),
        is_verbose: true,
    };
    let outcome = run(plan).await;
    println!("{outcome:#?}");
    assert_eq!(outcome.problems, Vec::<String>::new());
    assert!(outcome.cuts > 0, "no connection was cut at a commit");
}
