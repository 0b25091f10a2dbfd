//! A process that runs a mixed load is killed (-9) at random moments, again and again, while guests beside it start,
//! raise, ask, update, cancel, replace and prune. In the end nothing that was acknowledged is lost, nothing is done twice
//! that may be done once, and every invariant holds.
//!
//! `PERENNIAL_CRASH_KILLS` sets how often (default 100), `PERENNIAL_CRASH_SEED` repeats a run's moments.

mod crash_load;
mod support;
mod workers;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use perennial::history::decode_history;
use perennial::{Client, Job, Status};
use perennial_testkit::Chance;
use perennial_testkit::invariants::{Snapshot, StoredInstance};

use crash_load::Load;
use crash_load::guests::Guests;
use crash_load::kinds::{expected_output, handlers};
use support::{PATIENCE, Place};
use workers::{DIRECTORY, Worker};

/// Set for the last worker, which may finish.
const DRAIN: &str = "PERENNIAL_CRASH_DRAIN";
/// How many executions the worker keeps in memory per shard: with none, each is replayed for each of its turns.
const RESIDENT: &str = "PERENNIAL_CRASH_RESIDENT";

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn spawn_worker(load: &Load, drain: bool, resident: u64) -> Worker {
    Worker::spawn(
        load.directory(),
        &[(DRAIN, u64::from(drain).to_string()), (RESIDENT, resident.to_string())],
    )
}

#[test]
#[ignore = "it is a process of the crash test"]
fn worker_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let load = Load::at(directory.into());
    let (drain, resident) = (number(DRAIN, 0) > 0, usize::try_from(number(RESIDENT, 1_000)).unwrap());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(load.work(drain, resident));
}

#[test]
fn kill_minus_9_at_any_moment_loses_nothing_and_doubles_nothing() {
    let kills = number("PERENNIAL_CRASH_KILLS", 100);
    let seed = number("PERENNIAL_CRASH_SEED", u64::from(std::process::id()));
    println!("PERENNIAL_CRASH_SEED={seed} PERENNIAL_CRASH_KILLS={kills}");
    let mut chance = Chance::new(seed);
    let place = Place::new();
    let load = Load::at(place.path().parent().unwrap().to_owned());
    // The guests go on whatever happens to the worker.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = Client::open(&load.url()).unwrap();
    let guests = Guests::new(client.clone(), load.clone());
    let mut lives = tokio.block_on(async { guests.begin() });

    let mut kills_under_load = 0;
    for kill in 0..kills {
        let mut worker = spawn_worker(&load, false, *chance.pick(&[0, 1_000]));
        // Now and then one lives for longer than those who stood alone are held back.
        let longest_ms = if chance.percent(5) { 2_000 } else { 400 };
        thread::sleep(Duration::from_millis(chance.between(10, longest_ms)));
        assert_eq!(worker.ended(), None, "seed {seed}: the worker ended by itself after {kill} kills");
        worker.kill();
        kills_under_load += u64::from(!tokio.block_on(guests.unfinished()).is_empty());
        if let Some(ended) = lives.try_join_next() {
            panic!("seed {seed}: a guest gave up after {kill} kills: {ended:?}");
        }
    }
    // What was begun is brought to its end by a worker that may finish.
    guests.stop();
    let mut last = spawn_worker(&load, true, 1_000);
    let finish = async {
        while let Some(life) = lives.join_next().await {
            life.unwrap();
        }
        client.terminate("phoenix", "the end").await.unwrap();
    };
    let is_over = tokio.block_on(async { tokio::time::timeout(2 * PATIENCE, finish).await.is_ok() });
    load.finish();
    let ended = last.end_within(2 * PATIENCE).filter(|_| is_over);
    let Some(ended) = ended else {
        let unfinished = tokio.block_on(guests.unfinished());
        panic!("seed {seed}: never finished: {unfinished:?}; the store is kept in {:?}", keep(&place));
    };
    assert!(ended.success(), "seed {seed}: the last worker failed");

    let log = load.client_log();
    let snapshot = place.snapshot();
    perennial_testkit::invariants::assert_invariants(&snapshot, &log, &handlers());
    assert_eq!(tokio.block_on(guests.unfinished()), [""; 0], "seed {seed}");
    let mut acknowledged = 0;
    for StoredInstance { row, .. } in &snapshot.instances {
        let expected = match row.id.split(['-', ':']).next().unwrap() {
            _ if row.id.contains("::") => continue,
            "ended" | "phoenix" => continue,
            "short" => "1".to_owned(),
            _ => expected_output(&row.id),
        };
        acknowledged += 1;
        assert_eq!(row.status, Status::Completed, "seed {seed}: {}", row.id);
        let output = tokio.block_on(client.result(&row.id)).unwrap();
        assert_eq!(output.as_json(), expected, "seed {seed}: {}", row.id);
    }
    updates_are_there_once(&load, &snapshot);
    println!(
        "{kills} kills, {kills_under_load} of them with work under way; {acknowledged} instances, {} activities ran \
         again; guests: {:?}",
        log.repeated_runs(),
        guests.seen
    );
    let seen = |counter: &std::sync::atomic::AtomicUsize| counter.load(Ordering::Relaxed) > 0;
    assert!(kills_under_load * 2 > kills, "most kills met nothing under way: {kills_under_load} of {kills}");
    assert!(acknowledged > kills, "too little was done: {acknowledged} instances");
    if kills >= 50 {
        assert!(log.repeated_runs() > 0, "no kill interrupted an activity");
        let all = [&guests.seen.updates, &guests.seen.queries, &guests.seen.pruned, &guests.seen.replaced];
        assert!(all.into_iter().all(seen) && seen(&guests.seen.ended), "{:?}", guests.seen);
    }
}

/// Each acknowledged update is in a history, once.
fn updates_are_there_once(load: &Load, snapshot: &Snapshot) {
    for (id, keys) in load.updates() {
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for turns in snapshot.instance(&id).unwrap().executions.values() {
            let history = decode_history(turns).unwrap();
            for (_, job) in history.turns.iter().flat_map(|turn| turn.jobs()) {
                if let Job::UpdateRequested { key: Some(key), .. } = job {
                    *found.entry(key.clone()).or_default() += 1;
                }
            }
        }
        for key in keys {
            assert_eq!(found.get(&key), Some(&1), "{id}: {key} was acknowledged");
        }
        assert!(found.values().all(|count| *count == 1), "{id}: {found:?}");
    }
}

/// Keeps the files of a failed run, and says where.
fn keep(place: &Place) -> std::path::PathBuf {
    let from = place.path().parent().unwrap().to_owned();
    let to = std::env::temp_dir().join(format!("perennial-crash-{}", std::process::id()));
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to
}
