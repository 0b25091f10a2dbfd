//! Histories and stores of earlier releases continue with the current code, forever.
//!
//! Each release has a directory under `tests/recorded`: the programs, one file of histories for each, and a
//! SQLite store. CONTRIBUTING.md describes how those of the next release are recorded.

#[path = "../recorded/0.1.0/programs.rs"]
mod programs_of_0_1_0;
#[path = "../recorded/0.1.0/store.rs"]
mod store_of_0_1_0;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perennial::history::{Decision, Ending, Job};
use perennial_testkit::TestEnvironment;
use programs_of_0_1_0::{PROGRAMS, Program, registered};

/// Kinds of events that only an operator causes.
const BY_OPERATORS: [&str; 3] = ["ExternalEventSkipped", "InstanceResumed", "MessageSkipped"];

/// The maximum size of a recorded store.
const MOST_STORE_BYTES: u64 = 300_000;

fn release(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(release)
}

fn histories(of: &str) -> PathBuf {
    release(of).join("histories")
}

/// Every program has a file, every file has a program, and each replays.
fn check(directory: &Path, programs: &[Program], registered: fn(TestEnvironment) -> TestEnvironment) {
    let names: BTreeSet<String> = programs.iter().map(|(name, _)| format!("{name}.jsonl")).collect();
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeSet<String> = entries.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(files, names, "the files, and the programs that they should be of");
    let env = registered(TestEnvironment::new());
    for file in files {
        env.assert_replays(directory.join(file));
    }
}

#[test]
fn i15_histories_of_0_1_0_replay_with_the_current_code() {
    check(&histories("0.1.0"), PROGRAMS, registered);
}

#[test]
fn i15_the_programs_of_0_1_0_use_every_kind_of_event() {
    let text: String = PROGRAMS
        .iter()
        .map(|(name, _)| fs::read_to_string(histories("0.1.0").join(format!("{name}.jsonl"))).unwrap())
        .collect();
    let kinds =
        ["OrchestrationStarted"].into_iter().chain(Job::NAMES).chain(Decision::NAMES).chain(Ending::NAMES);
    let kinds = kinds.filter(|kind| !BY_OPERATORS.contains(kind));
    let missing: Vec<&str> = kinds.filter(|kind| !text.contains(&format!("\"{kind}\""))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn s9_the_store_of_0_1_0_opens_and_all_its_instances_end() {
    let kept = release("0.1.0").join("store.db");
    assert!(fs::metadata(&kept).unwrap().len() < MOST_STORE_BYTES);
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("store.db");
    fs::copy(kept, &copy).unwrap();
    let finished = tokio::time::timeout(Duration::from_secs(60), store_of_0_1_0::finish(&copy)).await;
    finished.expect("everything ends within a minute");
}

/// Writes the missing files of the current release; existing files are never overwritten.
#[tokio::test]
#[ignore = "records the files of this release, see CONTRIBUTING.md"]
async fn record_what_this_release_leaves_behind() {
    let directory = histories(env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(&directory).unwrap();
    for (name, run) in PROGRAMS {
        let file = directory.join(format!("{name}.jsonl"));
        if !file.exists() {
            fs::write(file, run(registered(TestEnvironment::new())).export()).unwrap();
        }
    }
    let kept = release(env!("CARGO_PKG_VERSION")).join("store.db");
    if !kept.exists() {
        // Created elsewhere, because the companion files of a store are not kept.
        let made = tempfile::tempdir().unwrap();
        store_of_0_1_0::record(&made.path().join("store.db")).await;
        fs::copy(made.path().join("store.db"), kept).unwrap();
    }
}
