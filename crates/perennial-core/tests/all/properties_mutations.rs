//! A record that differs from what the code does is always noticed, and at the event where the two part.
//!
//! See [`for_each_case`] for running more cases, or one of them again.

use std::collections::BTreeMap;

use perennial_core::{Handlers, Ledger, ReplayReport, Replayer, TurnFailure};
use perennial_testkit::program::{PROGRAM, PROGRAM_VERSION};
use perennial_testkit::{
    Case, Features, INSTANCE, Mutant, Mutation, ProgramHandler, RecordedExecution, Rng, disguised,
    for_each_case, mutants,
};

fn record(case: &Case) -> Vec<RecordedExecution> {
    let recording = case.world().run(&case.program);
    recording.unwrap_or_else(|unfinished| panic!("{unfinished}")).executions
}

fn replayer() -> Replayer {
    Replayer::new(Handlers::default().with(PROGRAM, PROGRAM_VERSION, ProgramHandler::default()))
}

#[test]
fn e6_every_mutation_of_a_decision_is_reported_at_its_event() {
    let mut made: BTreeMap<Mutation, u64> = BTreeMap::new();
    let (replayer, mut cases) = (replayer(), 0);
    for_each_case(1_000, &Features::all(), |case| {
        cases += 1;
        // A few of most histories, and all of some.
        let count = if case.seed % 50 == 0 { usize::MAX } else { 10 };
        let mut rng = Rng::new(case.seed);
        for recorded in record(case) {
            for mutant in mutants(&recorded.history, &mut rng).take(count) {
                assert_noticed(&replayer, &mutant);
                *made.entry(mutant.mutation).or_default() += 1;
            }
        }
    });
    for mutation in Mutation::ALL {
        let times = made.get(&mutation).copied().unwrap_or_default();
        assert!(times >= 100 || cases < 1_000, "{mutation:?} was made {times} times: {made:?}");
    }
}

fn assert_noticed(replayer: &Replayer, mutant: &Mutant) {
    let Mutant { mutation, turn, parts_at, history } = mutant;
    let place = || format!("{mutation:?}, which parts at {parts_at:?} of turn {turn}");
    match replayer.replay(INSTANCE, history) {
        ReplayReport::Incompatible(TurnFailure::Nondeterminism(difference)) => {
            let noticed_there = difference.turn == *turn && parts_at.contains(&difference.event);
            assert!(noticed_there, "{}:\n{}", place(), difference.report());
        }
        report => panic!("{}: {report:?}", place()),
    }
}

#[test]
fn mutants_that_lack_a_decision_or_have_one_too_many_could_have_been_recorded() {
    for_each_case(200, &Features::all(), |case| {
        let mut rng = Rng::new(case.seed);
        for recorded in record(case) {
            let moved = |mutant: &Mutant| matches!(mutant.mutation, Mutation::Dropped | Mutation::Inserted);
            for mutant in mutants(&recorded.history, &mut rng).filter(moved).take(10) {
                let mut ledger = Ledger::default();
                for turn in &mutant.history {
                    ledger.apply_turn(turn).unwrap_or_else(|error| panic!("{:?}: {error}", mutant.mutation));
                }
            }
        }
    });
}

#[test]
fn e6_tunables_and_the_places_of_patch_marks_are_no_identity() {
    let replayer = replayer();
    for_each_case(1_000, &Features::all(), |case| {
        let mut rng = Rng::new(case.seed);
        for recorded in record(case) {
            let report = replayer.replay(INSTANCE, &disguised(&recorded.history, &mut rng));
            assert!(report.is_compatible(), "{report:?}");
        }
    });
}
