use perennial_simulate::corpus::text_of;
use perennial_testkit::simulator::{Case, Shrunk, shrink};

/// The smaller case of a planted bug, which must fail on the same invariant, and be clean without the bug.
fn shrunk(flaw: &str, short: bool, max_runs: u64) -> Shrunk {
    let case = |seed| Case { flaw: Some(flaw.to_owned()), short, ..Case::of_seed(seed) };
    let found = (0..100).find_map(|seed| shrink(&case(seed), max_runs).expect("all names are known"));
    let shrunk = found.unwrap_or_else(|| panic!("{flaw} was not noticed"));
    let (before, after) = shrunk.sizes;
    println!("{flaw}: from {before} to {after} in {} runs\n{}", shrunk.runs, text_of(&shrunk.case));
    let stored: Case = serde_json::from_str(&text_of(&shrunk.case)).expect("it is a case");
    assert_eq!(stored, shrunk.case);
    let again = stored.simulation().expect("all names are known").run().expect_err("it fails again");
    assert_eq!(again.what, shrunk.mishap.what);
    assert!(Case { flaw: None, ..stored }.simulation().expect("all names are known").run().is_ok());
    shrunk
}

#[test]
fn a_failing_case_is_reduced_and_fails_on_the_same_invariant() {
    for (flaw, invariant) in
        [("OutcomeTwice", "I13"), ("EffectsBeforeCommit", "G5"), ("EvictionCancels", "I6")]
    {
        let shrunk = shrunk(flaw, true, 200);
        assert_eq!(shrunk.mishap.invariant(), invariant);
        let (before, after) = shrunk.sizes;
        assert!(after.total() * 2 < before.total(), "{flaw}: from {before} to {after}");
    }
}

#[test]
fn a_clean_case_is_not_reduced() {
    let case = Case { short: true, ..Case::of_seed(1) };
    assert!(shrink(&case, 10).expect("all names are known").is_none());
}
