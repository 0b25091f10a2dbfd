//! I20: acknowledged means synced. A process runs under a preloaded shim that logs the writes to the
//! write-ahead log and the syncs; the process itself logs, in the same journal, the replies it got and the
//! activities it ran. Every reply to a caller, and every input of an activity, has been synced by then.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::future::join_all;
use perennial::{ActivityContext, Client, OrchestrationContext, Payload, Runtime, RuntimeOptions};
use perennial_testkit::invariants::ClientLog;

use crate::support::{Place, at, event, failed, soon};

const DIRECTORY: &str = "PERENNIAL_SYNC_DIRECTORY";
const JOURNAL: &str = "PERENNIAL_SYNC_JOURNAL";
const RELAXED: &str = "PERENNIAL_SYNC_RELAXED";

/// How many callers there are at a time, and how often they come.
const CALLERS: u64 = 8;
const ROUNDS: u64 = 6;
/// What an activity adds to the mark it was given.
const ANSWER: u64 = 500_000;

type Outcome = Result<Payload, Payload>;

/// An event, an activity that is given it, and the activity's result as its own.
async fn relay(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let event = ctx.schedule_wait(event("go")).await;
    ctx.schedule_activity("answer", event).await.map_err(failed)
}

fn mark(number: u64) -> String {
    format!("mark-{number:06}")
}

fn number_of(mark: &Payload) -> u64 {
    mark.decode::<String>().unwrap().strip_prefix("mark-").unwrap().parse().unwrap()
}

fn note(word: &str, number: u64) {
    let journal = std::env::var_os(JOURNAL).unwrap();
    let mut journal = OpenOptions::new().append(true).create(true).open(journal).unwrap();
    journal.write_all(format!("{word} {number}\n").as_bytes()).unwrap();
}

async fn answer(_: ActivityContext, event: Payload) -> Outcome {
    let number = number_of(&event);
    note("ran", number);
    Ok(mark(number + ANSWER).into())
}

/// One caller's round: every kind of reply, each with its own mark.
async fn round(client: &Client, number: u64) {
    let id = format!("r-{number}");
    let told = |offset: u64| note("told", number * 10 + offset);
    let mark = |offset: u64| mark(number * 10 + offset);
    client.start_with("relay", &id, mark(1), at("1.0.0")).await.unwrap();
    told(1);
    client.raise_event(&id, "go", mark(2)).await.unwrap();
    told(2);
    let answered = client.result(&id).await.unwrap();
    note("told", number_of(&answered));
    for (offset, is_cancelled) in [(3, true), (5, false)] {
        let id = format!("r-{number}-{offset}");
        client.start_with("relay", &id, mark(offset), at("1.0.0")).await.unwrap();
        told(offset);
        let reason = mark(offset + 1);
        if is_cancelled {
            client.cancel(&id, &reason).await.unwrap();
        } else {
            client.terminate(&id, &reason).await.unwrap();
        }
        told(offset + 1);
    }
}

/// The process under the shim.
#[test]
#[ignore = "it is a process of the other tests"]
fn worker_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let url = format!("sqlite:{}", Path::new(&directory).join("shop.db").display());
    let relaxed = std::env::var_os(RELAXED).is_some();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::open(&url)
            .options(RuntimeOptions { relaxed, ..RuntimeOptions::default() })
            .orchestration("relay", "1.0.0", relay)
            .activity("answer", answer)
            .start()
            .await
            .unwrap();
        let clients = [runtime.client(), Client::open(&url).unwrap()];
        for turn in 0..ROUNDS {
            let numbers = turn * CALLERS..(turn + 1) * CALLERS;
            let rounds = numbers.map(|number| round(&clients[usize::from(number % 4 == 0)], number));
            soon(join_all(rounds)).await;
        }
        runtime.shutdown().await.unwrap();
    });
    fs::write(Path::new(&directory).join("done"), "").unwrap();
}

fn shim(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/synced/shim.c");
    let library = directory.join("shim.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "the shim does not compile");
    library
}

/// Runs the worker, and returns its journal.
fn run(place: &Place, relaxed: bool) -> String {
    let directory = place.path().parent().unwrap().to_owned();
    let mut worker = Command::new(std::env::current_exe().unwrap());
    worker
        .args(["--ignored", "--exact", "synced::worker_process", "--nocapture"])
        .env(DIRECTORY, &directory)
        .env(JOURNAL, directory.join("journal"))
        .env("LD_PRELOAD", shim(&directory));
    if relaxed {
        worker.env(RELAXED, "yes");
    }
    let output = worker.output().unwrap();
    assert!(output.status.success(), "the worker failed:\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(directory.join("done").exists(), "the worker got to its end");
    fs::read_to_string(directory.join("journal")).unwrap()
}

/// What a journal tells.
#[derive(Default)]
struct Journal {
    written: BTreeSet<u64>,
    synced: BTreeSet<u64>,
    /// By the thread that syncs: what was written when it began.
    syncing: BTreeMap<u64, BTreeSet<u64>>,
    syncs: usize,
    /// The number of replies and runs.
    effects: usize,
    /// Replies and runs before their sync.
    early: Vec<String>,
}

impl Journal {
    fn read(text: &str) -> Journal {
        let mut journal = Journal::default();
        for line in text.lines() {
            let (word, number) = line.split_once(' ').unwrap_or_else(|| panic!("half a line: {line:?}"));
            let number: u64 = number.parse().unwrap();
            match word {
                "wrote" => drop(journal.written.insert(number)),
                "begins" => drop(journal.syncing.insert(number, journal.written.clone())),
                "failed" => drop(journal.syncing.remove(&number)),
                "synced" => {
                    journal.syncs += 1;
                    journal.synced.extend(journal.syncing.remove(&number).unwrap());
                }
                "told" | "ran" => {
                    journal.effects += 1;
                    if !journal.synced.contains(&number) {
                        journal.early.push(line.to_owned());
                    }
                }
                other => panic!("what is {other:?}?"),
            }
        }
        journal
    }
}

/// Two starts with their ends, and a relay of three things told and one run.
const EFFECTS: usize = (CALLERS * ROUNDS * 8) as usize;

fn check(place: &Place) {
    let mut log = ClientLog::default();
    (0..CALLERS * ROUNDS).for_each(|number| log.started(format!("r-{number}")));
    place.check(&log, &Runtime::open("memory:").orchestration("relay", "1.0.0", relay).handlers());
}

#[test]
fn i20_whatever_is_acknowledged_or_run_has_been_synced() {
    let place = Place::new();
    let journal = Journal::read(&run(&place, false));
    assert_eq!(journal.effects, EFFECTS);
    assert_eq!(journal.early, [""; 0], "told or run before it was synced");
    assert!(journal.syncs > 0);
    check(&place);
}

#[test]
fn i20_a_store_that_does_not_sync_is_noticed() {
    let place = Place::new();
    let journal = Journal::read(&run(&place, true));
    assert_eq!(journal.effects, EFFECTS);
    assert!(journal.early.len() > EFFECTS / 2, "relaxed means not synced: {} were", journal.synced.len());
    check(&place);
}

#[test]
fn i20_a_sync_covers_only_what_was_written_before_it_began() {
    let early = |text: &str| Journal::read(text).early;
    assert_eq!(early("wrote 1\nbegins 7\nsynced 7\ntold 1\n"), [""; 0]);
    assert_eq!(early("begins 7\nwrote 1\nsynced 7\ntold 1\n"), ["told 1"]);
    assert_eq!(early("wrote 1\nbegins 7\ntold 1\nsynced 7\n"), ["told 1"]);
    assert_eq!(early("wrote 1\nbegins 7\nfailed 7\ntold 1\n"), ["told 1"]);
    assert_eq!(early("begins 7\nsynced 7\nran 1\n"), ["ran 1"]);
}
