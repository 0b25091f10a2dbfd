//! The bodies of the fuzz targets on seeded inputs: nothing panics, nothing hangs, and the inputs reach what they are
//! meant for (E3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use perennial_core::ErrorCode;
use perennial_core::history::decode_history;
use perennial_testkit::fuzzing::{self, Reached};

/// How long one input may take. Far more than any needs, so that only a hang is noticed.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many bytes of choices a history takes at most.
const CHOICES: u64 = 600;

/// SplitMix64.
struct Bytes(u64);

impl Bytes {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn take(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.number() as u8).collect()
    }
}

/// Runs a body on the input of every seed, on a thread that is watched. Counts how far the inputs came.
fn run(seeds: u64, length: u64, body: fn(&[u8]) -> Reached) -> BTreeMap<&'static str, u64> {
    let (send, progress) = mpsc::channel();
    let worker = thread::spawn(move || {
        for seed in 0..seeds {
            let input = Bytes(seed).take(length);
            // The other side is gone only when it has given up on this one.
            let _ = send.send((seed, None));
            let reached = body(&input);
            let _ = send.send((seed, Some(reached)));
        }
    });
    let mut reached = BTreeMap::new();
    let mut at_work = 0;
    loop {
        match progress.recv_timeout(PATIENCE) {
            Ok((seed, None)) => at_work = seed,
            Ok((_, Some(how_far))) => {
                *reached.entry(how_far.err().map_or("through", ErrorCode::as_str)).or_default() += 1
            }
            Err(RecvTimeoutError::Timeout) => panic!("seed {at_work} hangs"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    assert!(worker.join().is_ok(), "seed {at_work} panics");
    reached
}

#[test]
fn e3_random_bytes_decode_to_nothing() {
    let body = |bytes: &[u8]| fuzzing::decode(bytes).and(fuzzing::replay(bytes));
    assert_eq!(run(15_000, 64, body), BTreeMap::from([("PER-0101", 15_000)]));
}

#[test]
fn e3_recorded_histories_go_through_the_bodies() {
    let body = |choices: &[u8]| {
        let history = fuzzing::recorded_history(choices);
        fuzzing::decode(&history).and(fuzzing::replay(&history))
    };
    assert_eq!(run(300, CHOICES, body), BTreeMap::from([("through", 300)]));
}

/// All but termination, which no code runs for.
#[test]
fn e2_the_recorded_histories_hold_every_kind_of_event() {
    let mut kinds = BTreeSet::new();
    for seed in 0..300 {
        let bytes = fuzzing::recorded_history(&Bytes(seed).take(CHOICES));
        let lines = bytes.split(|byte| *byte == b'\n');
        let history = decode_history(lines).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        kinds.extend(history.flatten().map(|event| event.kind.name()));
    }
    assert_eq!(kinds.len(), 28, "{kinds:?}");
    assert!(!kinds.contains("OrchestrationTerminated"));
}

#[test]
fn e3_broken_histories_are_refused_or_replayed_and_nothing_else() {
    let reached = run(4_000, CHOICES, fuzzing::replay_mutated);
    for (what, at_least) in
        [("PER-0101", 1_000), ("PER-0102", 20), ("PER-0103", 5), ("PER-0203", 400), ("through", 500)]
    {
        let found = reached.get(what).copied().unwrap_or(0);
        assert!(found >= at_least, "{what} should be reached by more inputs: {reached:?}");
    }
}
