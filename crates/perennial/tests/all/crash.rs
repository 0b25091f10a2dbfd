//! A process that runs a mixed load is killed (-9) at random moments, again and again, while guests beside it start,
//! raise, ask, update, cancel, replace and prune. In the end nothing that was acknowledged is lost, nothing is done twice
//! that may be done once, and every invariant holds.
//!
//! `PERENNIAL_CRASH_KILLS` sets how often (default 100), `PERENNIAL_CRASH_SEED` repeats a run's moments.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use perennial_testkit::Rng;

use crate::crash_load::guests::Guests;
use crate::crash_load::verdict::{all_is_well, keep};
use crate::crash_load::{Load, WorkOptions, work_here};
use crate::support::{PATIENCE, Place};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
#[ignore = "it is a process of the crash test"]
fn worker_process() {
    work_here();
}

#[test]
fn kill_minus_9_at_any_moment_loses_nothing_and_doubles_nothing() {
    kill_again_and_again(&Place::new(), 100, &WorkOptions::default());
}

/// The next worker waits for the lease of the one that was killed.
#[cfg(feature = "postgres")]
#[test]
fn n11_kill_minus_9_on_postgresql_loses_nothing_and_doubles_nothing() {
    let shortest = WorkOptions { lease_ms: 1_000, ..WorkOptions::default() };
    kill_again_and_again(&Place::on_postgres(), 15, &shortest);
}

fn kill_again_and_again(place: &Place, kills: u64, usual: &WorkOptions) {
    let kills = number("PERENNIAL_CRASH_KILLS", kills);
    let seed = number("PERENNIAL_CRASH_SEED", u64::from(std::process::id()));
    println!("PERENNIAL_CRASH_SEED={seed} PERENNIAL_CRASH_KILLS={kills}");
    let mut rng = Rng::new(seed);
    let load = Load::at(place);
    // The guests continue whatever happens to the worker.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = place.guest();
    let guests = Guests::new(client.clone(), load.clone());
    let mut lives = tokio.block_on(async { guests.begin() });

    let mut kills_under_load = 0;
    for kill in 0..kills {
        let options = WorkOptions { max_resident: *rng.pick(&[0, 1_000]), ..*usual };
        load.worker_is_at_work();
        let mut worker = load.worker("crash::worker_process", options);
        // Some die on the way to work, however long that takes here; most die at it.
        let is_let_in = rng.percent(70);
        while is_let_in && !load.worker_is_at_work() && worker.ended().is_none() {
            thread::sleep(Duration::from_millis(2));
        }
        // Now and then one lives for longer than those who stood alone are held back.
        let longest_ms = if rng.percent(5) { 2_000 } else { 400 };
        thread::sleep(Duration::from_millis(rng.between(0, longest_ms)));
        assert_eq!(worker.ended(), None, "seed {seed}: the worker ended by itself after {kill} kills");
        worker.kill();
        kills_under_load += u64::from(!tokio.block_on(guests.unfinished()).is_empty());
        if let Some(ended) = lives.try_join_next() {
            panic!("seed {seed}: a guest gave up after {kill} kills: {ended:?}");
        }
    }
    // A worker that may finish completes everything that was begun.
    let options = WorkOptions { drains: true, ..*usual };
    let mut last = load.worker("crash::worker_process", options);
    let is_over = tokio.block_on(async { tokio::time::timeout(2 * PATIENCE, guests.finish(lives)).await });
    load.finish();
    let ended = last.end_within(2 * PATIENCE).filter(|_| is_over.is_ok());
    let Some(ended) = ended else {
        let unfinished = tokio.block_on(guests.unfinished());
        panic!("seed {seed}: never finished: {unfinished:?}; the store is kept in {:?}", keep(&load));
    };
    assert!(ended.success(), "seed {seed}: the last worker failed");

    let acknowledged = tokio.block_on(all_is_well(place, &load, &client));
    let repeated = load.interrupted_runs();
    println!(
        "{kills} kills, {kills_under_load} of them with work under way; {acknowledged} instances, {repeated} \
         activities ran again; guests: {:?}",
        guests.seen
    );
    assert!(kills_under_load * 2 > kills, "most kills met nothing under way: {kills_under_load} of {kills}");
    assert!(acknowledged > kills, "too little was done: {acknowledged} instances");
    if kills >= 50 {
        assert!(repeated > 0, "no kill interrupted an activity");
        let seen = &guests.seen;
        let all = [&seen.updates, &seen.queries, &seen.pruned, &seen.replaced, &seen.ended];
        assert!(all.iter().all(|counter| counter.load(Ordering::Relaxed) > 0), "{seen:?}");
    }
}
