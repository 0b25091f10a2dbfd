//! The checkers of I3 and I9 notice each way in which the executions of an instance can be out of joint. The executions
//! are real ones of an orchestration that continues as new twice; what is wrong with them is done by hand.

use perennial::history::Ending;
use perennial::history::{EventKind, Started, Turn};
use perennial::options::ExecutionOptions;
use perennial::{ExternalEvent, OrchestrationContext, Payload, Runtime, Status};
use perennial_core::history::decode_turn;
use perennial_core::shard::{Message, Start};
use perennial_core::{Execution, Handlers};
use perennial_testkit::invariants::{ClientLog, Snapshot, breaches, stored_breaches};

use crate::hand_made::{encoded, event, instance, numbers, send, snapshot};

type Outcome = Result<Payload, Payload>;

/// Reads one event, and continues as new until it was asked to do so no more.
async fn relay(ctx: OrchestrationContext, rounds: Payload) -> Outcome {
    let rounds: u64 = rounds.decode().unwrap();
    let baton = ctx.schedule_wait(ExternalEvent::<Payload>::named("go")).await;
    ctx.set_status(baton.clone());
    ctx.upsert_attributes([("baton", baton.clone())]);
    if rounds > 0 {
        return ctx.continue_as_new(Payload::encode(&(rounds - 1)).unwrap()).await;
    }
    Ok(baton)
}

fn handlers() -> Handlers {
    Runtime::open("memory:").orchestration("relay", "1.0.0", relay).handlers()
}

/// Three events come at once; each execution reads one and hands over the others.
fn executions() -> Vec<Vec<Turn>> {
    let mut executions = Vec::new();
    let mut started = Started::new("relay", "1.0.0", Payload::encode(&2).unwrap(), 1);
    let mut jobs = Vec::new();
    loop {
        let (at_ms, first) = (100 * started.execution, started.execution == 1);
        let handler = handlers().get("relay", "1.0.0").unwrap();
        let mut execution = Execution::new("r", handler, started, ExecutionOptions::default()).unwrap();
        let mut taken = execution.take_turn(at_ms, jobs).unwrap();
        let mut turns = vec![taken.turn.unwrap()];
        if first {
            taken = execution.take_turn(at_ms + 10, vec![event("a"), event("b"), event("c")]).unwrap();
            turns.push(taken.turn.unwrap());
        }
        executions.push(turns);
        let Some(successor) = taken.successor else { return executions };
        started = successor.started("1.0.0", 1);
        jobs = successor.jobs;
    }
}

fn sound() -> Snapshot {
    snapshot(vec![instance(1, "r", &executions())])
}

/// The snapshot with some turns changed.
fn with_turns(change: impl FnOnce(&mut Vec<Vec<Turn>>)) -> Snapshot {
    let mut executions = executions();
    change(&mut executions);
    snapshot(vec![instance(1, "r", &executions)])
}

fn started_of(turns: &mut [Turn]) -> &mut Started {
    match &mut turns[0].events[0].kind {
        EventKind::Started(started) => started,
        other => panic!("it begins with {}", other.name()),
    }
}

#[track_caller]
fn assert_sound(snapshot: &Snapshot) {
    let found = breaches(snapshot, &ClientLog::default(), &handlers());
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(stored_breaches(snapshot, &ClientLog::default()), []);
}

/// Without the code, so that nothing but the rows can have told.
#[track_caller]
fn assert_broken(invariant: &str, snapshot: &Snapshot) {
    let found = stored_breaches(snapshot, &ClientLog::default());
    assert!(numbers(&found).contains(&invariant), "a breach of {invariant} went unnoticed: {found:#?}");
}

#[test]
fn i9_executions_in_order_are_left_in_peace() {
    let sound = sound();
    assert_eq!(sound.instances[0].executions.len(), 3);
    assert_eq!(sound.instances[0].row.status, Status::Completed);
    assert_sound(&sound);
}

#[test]
fn i9_an_execution_that_begins_otherwise_than_its_predecessor_left_off_is_noticed() {
    let changes: [&dyn Fn(&mut Started); 8] = [
        &|started| started.name = "stranger".to_owned(),
        &|started| started.input = Payload::encode(&7).unwrap(),
        &|started| started.predecessor_at_ms = Some(109),
        &|started| started.predecessor_at_ms = None,
        &|started| started.status = None,
        &|started| started.deadline_ms = Some(1),
        &|started| started.attributes.clear(),
        &|started| {
            started.parent = Some(perennial::history::ParentLink {
                instance: "nobody".to_owned(),
                key: crate::hand_made::key(9).to_string(),
                execution: 1,
                event_id: perennial::history::EventId(2),
            });
        },
    ];
    for change in changes {
        assert_broken("I9", &with_turns(|executions| change(started_of(&mut executions[1]))));
    }
}

#[test]
fn i9_the_next_execution_exists_or_is_about_to() {
    let mut halted = executions();
    let last = halted.pop().unwrap();
    let mut stored = instance(1, "r", &halted);
    stored.row.status = Status::Running;
    assert_broken("I9", &snapshot(vec![stored.clone()]));
    let next = last[0].started().unwrap().clone();
    let mut wrong = stored.clone();
    send(
        &mut wrong,
        &Message::Start(Box::new(Start::new(Started { predecessor_at_ms: Some(1), ..next.clone() }))),
    );
    assert_broken("I9", &snapshot(vec![wrong]));
    send(&mut stored, &Message::Start(Box::new(Start::new(next))));
    assert_sound(&snapshot(vec![stored.clone()]));
    // The row may know of it already.
    stored.row.execution = 3;
    stored.executions.insert(3, Vec::new());
    assert_sound(&snapshot(vec![stored]));
}

#[test]
fn i9_an_execution_that_follows_an_end_is_noticed() {
    let snapshot = with_turns(|executions| {
        let end = &mut executions[0][1].events.last_mut().unwrap().kind;
        *end = EventKind::Ended(Ending::OrchestrationCompleted { output: Payload::null() });
    });
    assert_broken("I9", &snapshot);
    let snapshot = with_turns(|executions| executions[0].clear());
    assert_broken("I9", &snapshot);
}

#[test]
fn i9_an_unread_event_that_does_not_cross_is_noticed() {
    // With "c" lost in the second execution, only the code knows that nobody had read it.
    let lost = with_turns(|executions| {
        let turn = &mut executions[1][0];
        assert_eq!(turn.events[2].kind, EventKind::Job(event("c")));
        turn.events[2].kind = EventKind::Job(event("other"));
    });
    let found = breaches(&lost, &ClientLog::default(), &handlers());
    assert!(numbers(&found).contains(&"I9"), "{found:#?}");
    let swapped = with_turns(|executions| {
        let events = &mut executions[1][0].events;
        (events[1].kind, events[2].kind) = (events[2].kind.clone(), events[1].kind.clone());
    });
    assert_broken("I9", &swapped);
}

#[test]
fn i8_an_event_that_crosses_counts_once_and_one_that_comes_back_does_not() {
    let mut log = ClientLog::default();
    ["a", "b", "c"].into_iter().for_each(|payload| log.raised("me", "r", "go", payload));
    assert_eq!(breaches(&sound(), &log, &handlers()), []);
    let comes_back = with_turns(|executions| {
        let again = EventKind::Job(event("a"));
        executions[2][0].events[1].kind = again;
    });
    assert!(numbers(&stored_breaches(&comes_back, &log)).contains(&"I8"));
}

#[test]
fn i3_turns_of_an_execution_that_the_row_does_not_know_are_noticed() {
    let mut snapshot = sound();
    snapshot.instances[0].row.execution = 2;
    assert_broken("I3", &snapshot);
    // Also where only the tables show them.
    snapshot.instances[0].executions.remove(&3);
    assert_broken("I3", &snapshot);
}

#[test]
fn i3_an_execution_that_takes_itself_for_another_is_noticed() {
    assert_broken("I3", &with_turns(|executions| started_of(&mut executions[1]).execution = 3));
}

#[test]
fn i3_a_turn_that_is_missing_or_there_twice_is_noticed() {
    let mut snapshot = sound();
    let turns = &mut snapshot.rows.as_mut().unwrap().turns;
    let first = turns.remove(0);
    assert_broken("I3", &snapshot);
    let turns = &mut snapshot.rows.as_mut().unwrap().turns;
    turns.extend([first, first]);
    assert_broken("I3", &snapshot);
}

#[test]
fn i3_a_turn_after_the_end_is_noticed() {
    let mut snapshot = sound();
    let bodies = snapshot.instances[0].executions.get_mut(&3).unwrap();
    let mut late: Turn = decode_turn(1, &bodies[0]).unwrap();
    late.number = 2;
    bodies.extend(encoded(&[late]));
    assert_broken("I3", &snapshot);
}
