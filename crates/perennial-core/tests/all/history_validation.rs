//! What cannot be a history: numbers, ids, order, first and last events (E1, E2, E3).

use crate::history_builders::{
    activity, begun, completed, corruption, ended, job, root, started, status, stored, turns, wait,
};
use perennial_core::{
    Ending, EventId, EventKind, Execution, ExecutionOptions, Handlers, Ledger, OrchestrationContext, Payload,
    ReplayReport, Replayer, Started, Turn,
};
use perennial_testkit::Drive;

/// Two turns: started and two activities, then their completions, a status and the end.
fn two_turns() -> Vec<Turn> {
    turns([
        (1_000, vec![begun(), root(activity("a")), root(activity("b"))]),
        (
            2_000,
            vec![
                job(Drive::completed(2, ())),
                job(Drive::completed(3, ())),
                root(status("done")),
                completed(),
            ],
        ),
    ])
}

fn at(turn: u64, event: u64, problem: &str) -> (u64, Option<u64>, String) {
    (turn, Some(event), problem.to_owned())
}

fn whole(turn: u64, problem: &str) -> (u64, Option<u64>, String) {
    (turn, None, problem.to_owned())
}

#[test]
fn e1_ids_count_without_a_gap() {
    assert!(stored(&two_turns()).is_ok(), "the example is a history");
    for (turn, position) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 3)] {
        let mut broken = two_turns();
        let right = broken[turn].events[position].id;
        broken[turn].events[position].id = EventId(right.0 + 1);
        let number = turn as u64 + 1;
        let problem = format!("event {right} was expected here");
        assert_eq!(corruption(&broken), at(number, right.0 + 1, &problem));
    }
}

#[test]
fn e3_a_missing_event_is_a_gap() {
    let mut broken = two_turns();
    broken[0].events.remove(1);
    assert_eq!(corruption(&broken), at(1, 3, "event 2 was expected here"));
    let mut broken = two_turns();
    broken[0].events.pop();
    assert_eq!(corruption(&broken), at(2, 4, "event 3 was expected here"));
}

#[test]
fn e3_a_duplicate_id_is_corruption() {
    let mut broken = two_turns();
    broken[0].events[2].id = EventId(2);
    assert_eq!(corruption(&broken), at(1, 2, "event 3 was expected here"));
    let mut broken = two_turns();
    broken[1].events[0].id = EventId(3);
    assert_eq!(corruption(&broken), at(2, 3, "event 4 was expected here"));
}

#[test]
fn e3_unordered_ids_are_corruption() {
    let mut broken = two_turns();
    broken[0].events.swap(1, 2);
    assert_eq!(corruption(&broken), at(1, 3, "event 2 was expected here"));
}

#[test]
fn e3_the_highest_id_is_no_way_around_the_count() {
    let mut broken = two_turns();
    broken[1].events[1].id = EventId(u64::MAX);
    assert_eq!(corruption(&broken), at(2, u64::MAX, "event 5 was expected here"));
}

#[test]
fn e2_turn_1_begins_with_started_and_only_it_does() {
    let wrong_first = [job(Drive::event("go", ())), root(activity("a")), completed()];
    for first in wrong_first {
        let broken = turns([(1_000, vec![first, begun()])]);
        assert_eq!(corruption(&broken), at(1, 1, "a history begins with OrchestrationStarted"));
    }
    let twice = turns([(1_000, vec![begun(), begun()])]);
    assert_eq!(corruption(&twice), at(1, 2, "only the first event can be OrchestrationStarted"));
    let again = turns([(1_000, vec![begun(), root(wait("go"))]), (2_000, vec![begun()])]);
    assert_eq!(corruption(&again), at(2, 3, "only the first event can be OrchestrationStarted"));
}

#[test]
fn e1_jobs_come_before_decisions_and_the_ending_comes_last() {
    let (job, decision) = (|| job(Drive::event("go", ())), || root(status("s")));
    let wrong: [(Vec<EventKind>, u64, &str); 5] = [
        (vec![begun(), decision(), job()], 3, "ExternalEvent"),
        (vec![begun(), completed(), job()], 3, "ExternalEvent"),
        (vec![begun(), completed(), decision()], 3, "StatusSet"),
        (vec![begun(), job(), decision(), job(), decision()], 4, "ExternalEvent"),
        (vec![begun(), job(), completed(), completed()], 4, "OrchestrationCompleted"),
    ];
    for (events, id, kind) in wrong {
        let problem = format!("{kind} is out of place in its turn");
        assert_eq!(corruption(&turns([(1_000, events)])), at(1, id, &problem));
    }
    let right = turns([(1_000, vec![begun(), job(), job(), decision(), decision(), completed()])]);
    assert_eq!(stored(&right).map(|history| history.turns), Ok(right));
}

#[test]
fn e1_no_turn_follows_the_terminal_event() {
    for ending in crate::history_builders::every_ending() {
        let broken = turns([
            (1_000, vec![begun(), ended(ending.clone())]),
            (2_000, vec![job(Drive::event("go", ()))]),
        ]);
        assert_eq!(corruption(&broken), whole(2, &format!("a turn after {}", ending.name())));
    }
}

#[test]
fn e1_a_terminated_turn_holds_no_decisions() {
    let terminated = || ended(Ending::OrchestrationTerminated { reason: "timeout".to_owned() });
    let broken = turns([(1_000, vec![begun(), root(status("s")), terminated()])]);
    let problem = "a terminated turn runs no code, so it decides nothing";
    assert_eq!(corruption(&broken), at(1, 3, problem));
    assert!(stored(&turns([(1_000, vec![begun(), terminated()])])).is_ok());
}

#[test]
fn e1_turns_count_1_2_3() {
    for (position, said) in [(0, 0), (0, 2), (1, 1), (1, 3), (1, u64::MAX)] {
        let mut broken = two_turns();
        broken[position].number = said;
        let problem = format!("the turn says it is turn {said}");
        assert_eq!(corruption(&broken), whole(position as u64 + 1, &problem));
    }
    let mut missing = two_turns();
    missing.remove(0);
    assert_eq!(corruption(&missing), whole(1, "the turn says it is turn 2"));
    let mut twice = two_turns();
    twice.insert(1, twice[0].clone());
    assert_eq!(corruption(&twice), whole(2, "the turn says it is turn 1"));
}

#[test]
fn e1_a_turn_is_never_empty() {
    let mut broken = two_turns();
    broken[1].events.clear();
    assert_eq!(corruption(&broken), whole(2, "a turn without events"));
}

/// Which turn an event came in changes what the code sees, so the same events in other turns are another history.
#[test]
fn e1_turn_boundaries_are_part_of_the_record() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let (first, second) = (ctx.schedule_activity("a", ()), ctx.schedule_activity("b", ()));
        let _ = first.await;
        let seen_ms = ctx.now().as_millis();
        let _ = second.await;
        Ok(Payload::encode(&seen_ms).expect("a number"))
    };
    let mut drive = Drive::start(code, ());
    drive.at(2_000).complete(2, ());
    drive.at(3_000).complete(3, ());
    drive.evict();

    let mut merged = drive.history().clone();
    let last = merged.turns.pop().expect("a third turn");
    let middle = &mut merged.turns[1];
    middle.at_ms = last.at_ms;
    middle.events.extend(last.events);
    assert!(stored(&merged.turns).is_ok(), "it could be a history");
    let replayer = Replayer::new(Handlers::default().with("orchestration", "1.0.0", code));
    let ReplayReport::Incompatible(failure) = replayer.replay(Drive::INSTANCE, &merged) else {
        panic!("turns were merged and nobody noticed")
    };
    assert_eq!(
        failure.to_string(),
        "PER-0203 nondeterminism: instance \"instance-1\" (orchestration 1.0.0), execution 1, turn 2, event 6: \
         OrchestrationCompleted differs in its payload"
    );
}

/// The same checks stand before the code when a turn is replayed.
#[test]
fn e3_replay_refuses_what_is_no_history_before_any_code_runs() {
    let mut broken = two_turns();
    broken[0].number = 2;
    let code = |_: OrchestrationContext, _: Payload| async move { Ok(Payload::null()) };
    let replay = |turn: &Turn| {
        let code = std::sync::Arc::new(code);
        let mut execution = Execution::new("i", code, started(), ExecutionOptions::default()).expect("new");
        execution.replay_turn(turn).expect_err("refused").to_string()
    };
    assert_eq!(
        replay(&broken[0]),
        "PER-0101 corrupt history: turn 1, as a whole: the turn says it is turn 2"
    );
    let mut broken = two_turns();
    broken[0].events[2].id = EventId(9);
    assert_eq!(replay(&broken[0]), "PER-0101 corrupt history: turn 1, event 9: event 3 was expected here");
}

#[test]
fn e3_a_number_of_format_that_never_was_is_corruption() {
    let mut old = two_turns();
    old[1].format = 0;
    assert_eq!(corruption(&old), whole(2, "format 0 was never written"));
}

#[test]
fn e3_the_ledger_refuses_a_format_that_never_was() {
    let mut ledger = Ledger::default();
    let never = Turn { format: 0, ..two_turns().remove(0) };
    assert_eq!(
        ledger.apply_turn(&never).map_err(crate::history_builders::corrupt),
        Err(whole(1, "format 0 was never written"))
    );
}

#[test]
fn e3_a_number_of_semantics_that_never_was_is_corruption() {
    let started = Started { semantics: 0, ..started() };
    let broken = turns([(1_000, vec![EventKind::Started(Box::new(started.clone()))])]);
    assert_eq!(corruption(&broken), at(1, 1, "semantics 0 never existed"));
    let code = |_: OrchestrationContext, _: Payload| async move { Ok(Payload::null()) };
    let execution = Execution::new("i", std::sync::Arc::new(code), started, ExecutionOptions::default());
    let error = execution.expect_err("refused");
    assert_eq!(crate::history_builders::corrupt(error), at(1, 1, "semantics 0 never existed"));
}
