//! Real shards on a few nodes through crashes, refused, unknown and late commits, lost sessions and slow everything:
//! nothing acknowledged is lost or doubled, and once the trouble ends everything finishes.
//!
//! - `PERENNIAL_CASES=20000` runs as many seeds as that.
//! - `PERENNIAL_SEED=17` runs that one; with `PERENNIAL_CASES`, as many from there on.

use std::collections::BTreeMap;

use perennial_testkit::simulator::{CLASSES, Flaw, Simulation, Tally};

/// In how many runs of an ordinary one each thing that belongs to a class has to have happened.
const RUNS_PER_CLASS: u64 = 3;

/// Everything that has to have happened in an ordinary run, trouble and features, or it shows nothing.
const TROUBLE: &[&str] = &[
    "activity timed out",
    "adds a version",
    "attempt after an interruption",
    "attempt begun before it was withdrawn",
    "attempt begun with care",
    "attempt given back",
    "attempt handed over",
    "attempt that knows what was reported",
    "attempt wants to run alone",
    "attributes",
    "batch refused",
    "begun at the next version",
    "call refused",
    "call under a session that is gone",
    "call unknown and done",
    "call unknown and not done",
    "call unknown and still under way",
    "cancel",
    "cancel with a grace of its own",
    "child",
    "child cancelled",
    "child completed",
    "child failed",
    "child id taken",
    "child that may outlive its parent",
    "commit conflict",
    "commit fenced",
    "commit refused",
    "commit unknown and not written",
    "commit unknown and still under way",
    "commit unknown and written",
    "completed by a retry",
    "completed with a token",
    "continued as new",
    "crash",
    "crash under an activity that lasts",
    "crash between acceptance and answer of an update",
    "crash while stopping",
    "crash with a batch in flight",
    "delayed start",
    "deleted",
    "detached start",
    "drained shards released",
    "duplicate result",
    "event sent again",
    "activity asked to stop",
    "child asked to stop",
    "cancel of another instance",
    "start of a child reported",
    "delivery reported",
    "ended as cancelled by itself",
    "ended instance replaced by a child",
    "start heard of",
    "event to another instance",
    "events carried",
    "events taken before continuing",
    "eviction",
    "handed-over attempt finished",
    "heartbeat",
    "heartbeat with a token",
    "hint late or twice",
    "hint lost",
    "hydration",
    "id used again",
    "input of an earlier tenure",
    "killer given up",
    "moved answer settled by key",
    "output held back past the deadline",
    "pause",
    "poisoned",
    "process abandoned",
    "process killed by an activity",
    "published status",
    "query answered",
    "query refused",
    "removes a version",
    "renewed after a gap",
    "reply lost",
    "request row answered",
    "request row withdrawn",
    "restores a version",
    "retry",
    "retry of a blocked instance",
    "rival start",
    "same turn again",
    "session replaced with its shards",
    "session replaced without its shards",
    "shards forgotten",
    "shards taken away",
    "shards taken away and given back",
    "shards taken away with a commit in doubt",
    "slow call",
    "stale input",
    "stopped in good order",
    "store clock found set back",
    "store clock set ahead",
    "store clock set back",
    "store clock stalled",
    "storm of events",
    "suspended past a deadline",
    "taken task cancelled",
    "takeover",
    "task taken",
    "tasks listed after a lost reply",
    "terminate",
    "timed out",
    "token of an activity that is over",
    "token of an attempt that is over",
    "token used while nobody may be there",
    "turn given up",
    "update answered",
    "update answered again",
    "update asked again",
    "update of a blocked instance",
    "update refused",
    "update too late",
    "waiting attempt given to another node",
    "waiting task given to another node",
];

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("it is a number"))
}

#[test]
fn i17_nothing_is_lost_or_doubled_and_everything_finishes() {
    let first = number("PERENNIAL_SEED");
    let count = number("PERENNIAL_CASES").unwrap_or(if first.is_some() { 1 } else { 300 });
    let first = first.unwrap_or(0);
    let lines = if count == 1 { 100_000 } else { 150 };
    let (mut tally, mut runs) = (Tally::default(), BTreeMap::<&str, u64>::new());
    for seed in first..first + count {
        let finished =
            Simulation::new(seed).keeping_lines(lines).run().unwrap_or_else(|mishap| panic!("{mishap}"));
        tally.add(&finished.tally);
        for name in CLASSES.iter().flat_map(|(_, names)| *names) {
            *runs.entry(name).or_default() += u64::from(finished.tally.of(name) > 0);
        }
        if count == 1 {
            println!("met: {}", finished.classes().collect::<Vec<_>>().join(", "));
        }
    }
    for (what, count) in tally.iter() {
        println!(
            "{count:>8} {what}{}",
            runs.get(what).map_or(String::new(), |runs| format!(" ({runs} runs)"))
        );
    }
    if count >= 300 {
        let missing: Vec<_> = TROUBLE.iter().filter(|what| tally.of(what) == 0).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
        let rare: Vec<_> = runs.iter().filter(|(_, runs)| **runs < RUNS_PER_CLASS).collect();
        assert!(rare.is_empty(), "these happened in too few runs: {rare:?}");
    }
}

#[test]
fn i16_who_does_not_need_the_code_that_is_missing_finishes_without_it() {
    let mut beside = 0;
    for seed in 0..80 {
        match Simulation::new(seed).with_late_code().run() {
            Ok(finished) => beside += finished.tally.of("finished beside a blocked one"),
            Err(mishap) => panic!("{mishap}"),
        }
    }
    assert!(beside > 10, "hardly anybody was blocked: {beside}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..8 {
        let hash = |seed| Simulation::new(seed).run().map(|finished| finished.trace_hash).ok();
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
        assert_ne!(hash(seed), hash(seed + 1), "seed {seed}");
    }
}

/// Which invariant a planted flaw was noticed by, within 200 seeds.
fn noticed(flaw: Flaw) -> String {
    let mishap = (0..200).find_map(|seed| Some((seed, Simulation::new(seed).with_flaw(flaw).run().err()?)));
    let (seed, mishap) = mishap.unwrap_or_else(|| panic!("{flaw:?} was not noticed"));
    println!("seed {seed}: {}", mishap.what);
    mishap.what.split([':', ' ']).next().unwrap_or_default().to_owned()
}

#[test]
fn i3_a_store_that_does_not_fence_is_noticed() {
    assert_eq!(noticed(Flaw::NoFencing), "I3");
}

#[test]
fn i8_lost_messages_are_noticed() {
    assert!(["I2", "I8", "I13", "I17"].contains(&noticed(Flaw::LostMessages).as_str()));
}

#[test]
fn g5_effects_before_their_commit_are_noticed() {
    assert_eq!(noticed(Flaw::EffectsBeforeCommit), "G5");
}

#[test]
fn i10_timers_that_fire_early_are_noticed() {
    assert_eq!(noticed(Flaw::EarlyTimers), "I10");
}

#[test]
fn i13_outcomes_that_are_sent_twice_are_noticed() {
    assert_eq!(noticed(Flaw::OutcomeTwice), "I13");
}

#[test]
fn i9_continue_as_new_that_forgets_events_is_noticed() {
    assert!(["I8", "I9", "I17"].contains(&noticed(Flaw::ForgottenEvents).as_str()));
}

#[test]
fn g22_retries_before_their_rows_are_durable_are_noticed() {
    assert_eq!(noticed(Flaw::RetryBeforeRow), "G22");
}

#[test]
fn g5_answers_before_their_turns_are_durable_are_noticed() {
    assert_eq!(noticed(Flaw::AnswerBeforeTurn), "G5");
}

#[test]
fn i13_children_with_new_keys_when_a_batch_is_sent_again_are_noticed() {
    assert_eq!(noticed(Flaw::FreshChildKeys), "I13");
}

#[test]
fn g22_interruptions_that_are_not_counted_are_noticed() {
    assert_eq!(noticed(Flaw::UncountedInterruptions), "G22");
}

#[test]
fn g22_interruptions_that_are_counted_without_evidence_are_noticed() {
    let storm = |seed| Simulation::new(seed).with_storm_of_kills();
    for seed in 0..3 {
        storm(seed).run().unwrap_or_else(|mishap| panic!("{mishap}"));
    }
    let found = (0..20).find_map(|seed| storm(seed).with_flaw(Flaw::EveryEndCounts).run().err());
    assert!(found.expect("it is noticed").what.starts_with("G22"));
}

#[test]
fn g46_paused_instances_that_go_on_are_noticed() {
    assert_eq!(noticed(Flaw::PausesForgotten), "G46");
}

#[test]
fn g48_resets_that_forget_events_are_noticed() {
    assert_eq!(noticed(Flaw::ResetForgetsEvents), "G48");
}

#[test]
fn g36_children_that_replace_instances_that_run_are_noticed() {
    // The messages of the one that is replaced are lost with it.
    assert!(["G36", "I8"].contains(&noticed(Flaw::ReplacesRunning).as_str()));
}

#[test]
fn n8_a_shard_that_is_given_up_before_it_is_drained_is_noticed() {
    assert_eq!(noticed(Flaw::ReleasedUndrained), "N8");
}

#[test]
fn n10_epochs_that_make_no_difference_are_noticed() {
    assert!(["I3", "N10"].contains(&noticed(Flaw::EpochUnchecked).as_str()));
}

#[test]
fn n10_what_belongs_to_an_earlier_tenure_and_is_taken_is_noticed() {
    assert_eq!(noticed(Flaw::TenureUnchecked), "N10");
}

#[test]
fn n9_a_lane_that_acts_past_its_deadline_is_noticed() {
    assert_eq!(noticed(Flaw::ActsPastDeadline), "N9");
}

#[test]
fn n9_a_lane_that_forgets_at_its_deadline_is_noticed() {
    assert_eq!(noticed(Flaw::ForgetsAtDeadline), "N9");
}

#[test]
fn g16_keys_that_are_not_recognized_are_noticed() {
    assert!(["G5", "G16", "I8"].contains(&noticed(Flaw::NoDedupe).as_str()));
}

#[test]
fn n17_tasks_that_stop_with_the_lanes_of_their_node_are_noticed() {
    assert_eq!(noticed(Flaw::TasksDieWithLanes), "N17");
}

#[test]
fn n16_a_request_that_overtakes_its_senders_message_is_noticed() {
    assert_eq!(noticed(Flaw::UnorderedSenders), "I8");
}

#[test]
fn n17_tasks_that_are_forgotten_after_a_lost_answer_are_noticed() {
    assert_eq!(noticed(Flaw::ForgottenTakes), "N17");
}

#[test]
fn n3_a_node_that_ends_together_with_its_lanes_is_noticed() {
    assert!(["G31", "N3"].contains(&noticed(Flaw::EndsWithLanes).as_str()));
}
