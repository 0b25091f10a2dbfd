//! Every target on its corpus and on some thousand mutations: nothing panics, nothing hangs, and the corpus reaches what it
//! is meant for.

use perennial_fuzzer::{Campaign, Target, run};

fn survives(target: Target, executions: u64) {
    let corpus = target.corpus();
    let accepted = corpus.iter().filter(|input| target.run(input)).count();
    assert!(
        accepted * 2 >= corpus.len(),
        "{}: only {accepted} of {} are accepted",
        target.name(),
        corpus.len()
    );
    let campaign = Campaign { target, executions, time: None, seed: 14, threads: 2, is_verbose: false };
    let outcome = run(&campaign);
    assert_eq!(outcome.failures, Vec::<std::path::PathBuf>::new());
    assert!(outcome.executions >= executions && outcome.accepted > 0, "{outcome:?}");
}

#[test]
fn e3_mutated_histories_are_decoded_or_refused() {
    survives(Target::Decode, 20_000);
}

#[test]
fn e3_mutated_histories_replay_or_are_refused() {
    survives(Target::Replay, 2_000);
}

#[test]
fn s3_mutated_messages_are_read_or_refused() {
    survives(Target::Messages, 20_000);
}

#[test]
fn s7_a_store_with_mutated_rows_is_read_or_refused() {
    survives(Target::Rows, 300);
}

#[test]
fn p8_mutated_arguments_are_parsed_or_refused() {
    survives(Target::Command, 5_000);
}

#[test]
fn h3_mutated_requests_never_fail_the_server() {
    survives(Target::Http, 5_000);
}
