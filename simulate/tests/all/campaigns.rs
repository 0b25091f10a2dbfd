use perennial_simulate::arguments::{Kind, Until};
use perennial_simulate::campaign::{Runs, run_seeds};

#[test]
fn i17_short_runs_lose_and_double_nothing_and_everything_finishes() {
    let runs = Runs { kind: Kind::Short, flaw: None };
    let seen = run_seeds(0, Until::Seeds(150), &runs, 2, false);
    let failures: Vec<String> = seen
        .failures
        .iter()
        .map(|(case, failure)| format!("seed {}: {}", case.seed, failure.headline()))
        .collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!((seen.finished, seen.twice), (150, 2), "one percent runs twice");
    assert!(seen.simulated_ms > 150_000 && seen.tally.of("crash") > 0);
}

#[test]
fn a_planted_bug_is_a_failure_with_its_seed() {
    let runs = Runs { kind: Kind::Mixed, flaw: Some("EffectsBeforeCommit".to_owned()) };
    let seen = run_seeds(0, Until::Seeds(20), &runs, 1, false);
    assert!(!seen.failures.is_empty());
    for (case, failure) in &seen.failures {
        assert!(failure.headline().starts_with("G5"), "seed {}: {}", case.seed, failure.headline());
    }
}
