//! A process that is stopped for longer than its lease, and then continues, loses nothing and does nothing
//! twice (G8).

use std::thread;
use std::time::{Duration, Instant};

use crate::crash_load::guests::Guests;
use crate::crash_load::verdict::{all_is_well, keep};
use crate::crash_load::{Load, WorkOptions, work_here};
use crate::support::{PATIENCE, Place};

/// The shortest that there is.
const LEASE_MS: u64 = 1_000;

#[test]
#[ignore = "it is a process of the test here"]
fn worker_process() {
    work_here();
}

#[test]
fn g8_a_process_that_was_stopped_past_its_lease_goes_on_and_loses_and_doubles_nothing() {
    let place = Place::new();
    let load = Load::at(&place);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = place.guest();
    let guests = Guests::new(client.clone(), load.clone());
    let options = WorkOptions { lease_ms: LEASE_MS, ..WorkOptions::default() };
    let mut worker = load.worker("paused::worker_process", options);
    let lives = tokio.block_on(async { guests.begin() });
    for pause in 0..4 {
        thread::sleep(Duration::from_millis(300 + 50 * pause));
        worker.signal("STOP");
        thread::sleep(Duration::from_millis(LEASE_MS + 300));
        let before = load.runs();
        worker.signal("CONT");
        let deadline = Instant::now() + PATIENCE;
        while load.runs() < before + 10 {
            assert_eq!(worker.ended(), None, "it ended after pause {pause}");
            assert!(Instant::now() < deadline, "it does not go on after pause {pause}");
            thread::sleep(Duration::from_millis(10));
        }
    }
    let is_over = tokio.block_on(async { tokio::time::timeout(PATIENCE, guests.finish(lives)).await });
    load.finish();
    let ended = worker.end_within(PATIENCE).filter(|_| is_over.is_ok());
    let ended = ended.unwrap_or_else(|| panic!("it never finished; the store is kept in {:?}", keep(&load)));
    assert!(ended.success(), "it failed: {ended}");
    let seen = tokio.block_on(all_is_well(&place, &load, &client));
    println!("{seen} instances; guests: {:?}", guests.seen);
    assert_eq!(load.interrupted_runs(), 0, "activities ran again although their process lived");
}
