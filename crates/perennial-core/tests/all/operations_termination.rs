//! Terminating: the ending is written without running the code, and replayed without running it (E23).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial_core::{
    Ending, Event, EventId, EventKind, History, Ledger, OrchestrationContext, Payload, TurnFailure,
};
use perennial_testkit::Drive;

async fn waits(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    ctx.on_query("alive", |_| Ok("as it was".into()));
    let activity = ctx.schedule_activity("A", ());
    ctx.schedule_timer(Duration::from_secs(60)).await;
    Ok(activity.await.unwrap())
}

/// The history with the turn that terminates it.
fn terminated(drive: &mut Drive, at_ms: u64, reason: &str) -> History {
    let mut ledger = drive.execution().ledger().clone();
    let mut history = drive.history().clone();
    history.turns.push(ledger.terminate(at_ms, reason));
    history
}

#[test]
fn e23_terminating_writes_the_ending_alone() {
    let mut drive = Drive::start(waits, ());
    let mut ledger = drive.execution().ledger().clone();
    let turn = ledger.terminate(9_000, "by hand");
    assert_eq!((turn.number, turn.at_ms, turn.draws), (2, 9_000, 0));
    let ending = Ending::OrchestrationTerminated { reason: "by hand".to_owned() };
    let event = Event { id: EventId(4), kind: EventKind::Ended(ending) };
    assert_eq!(turn.events, [event]);
    assert_eq!(ledger.ended(), Some("OrchestrationTerminated"));
    let open: Vec<u64> = ledger.open().map(|(id, _)| id.0).collect();
    assert_eq!(open, [2, 3], "what is open is known, so it can be told");

    // From the history alone it is the same.
    let mut from_history = Ledger::default();
    for recorded in drive.history() {
        from_history.apply_turn(recorded).unwrap();
    }
    assert_eq!(from_history.terminate(9_000, "by hand"), turn);
}

#[test]
fn e23_terminating_does_not_turn_time_back() {
    let mut drive = Drive::start(waits, ());
    let history = terminated(&mut drive, 1, "an old clock");
    assert_eq!(history.turns[1].at_ms, 1_000);
}

#[test]
fn e23_a_terminated_turn_replays_without_running_code() {
    let steps = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&steps);
    let mut drive = Drive::start(
        move |ctx: OrchestrationContext, input: Payload| {
            let steps = Arc::clone(&counter);
            async move {
                let mut waits = Box::pin(waits(ctx, input));
                std::future::poll_fn(move |cx| {
                    steps.fetch_add(1, Ordering::Relaxed);
                    waits.as_mut().poll(cx)
                })
                .await
            }
        },
        (),
    );
    let history = terminated(&mut drive, 9_000, "by hand");
    steps.store(0, Ordering::Relaxed);
    let mut replayed = drive.replayed(&history).unwrap();
    assert_eq!(steps.load(Ordering::Relaxed), 1, "the first turn, and no more");
    assert!(replayed.has_ended());
    assert_eq!(replayed.query("alive", ().into()).unwrap(), "as it was".into());

    // A resident execution learns of its end the same way.
    drive.execution().replay_turn(&history.turns[1]).unwrap();
    assert!(drive.execution().has_ended());
    assert_eq!(steps.load(Ordering::Relaxed), 1);
    assert_eq!(drive.execution().query("alive", ().into()).unwrap(), "as it was".into());
}

#[test]
fn e23_jobs_that_a_terminated_turn_holds_are_recorded_and_reach_no_code() {
    let mut drive = Drive::start(waits, ());
    let mut history = terminated(&mut drive, 61_000, "timeout");
    let turn = &mut history.turns[1];
    turn.events[0].id = EventId(6);
    turn.events.insert(0, Event { id: EventId(4), kind: EventKind::Job(Drive::fired(3)) });
    turn.events.insert(1, Event { id: EventId(5), kind: EventKind::Job(Drive::completed(2, ())) });
    let replayed = drive.replayed(&history).unwrap();
    assert!(replayed.has_ended());
    assert_eq!(replayed.ledger().ended(), Some("OrchestrationTerminated"));
    assert_eq!(replayed.ledger().open().count(), 0);
}

#[test]
fn e23_an_execution_whose_code_diverged_is_terminated_all_the_same() {
    let mut drive = Drive::start(waits, ());
    drive.complete(2, ());
    let diverged = |_: OrchestrationContext, _: Payload| async { Ok(Payload::null()) };
    assert!(matches!(drive.replay_with(diverged), Err(TurnFailure::Nondeterminism(_))));
    let mut ledger = Ledger::default();
    for turn in drive.history() {
        ledger.apply_turn(turn).unwrap();
    }
    let turn = ledger.terminate(2_000, "blocked for good");
    assert_eq!((turn.number, turn.events[0].id), (3, EventId(5)));
    assert_eq!(turn.events[0].summary(), r#"OrchestrationTerminated "blocked for good""#);
}

#[test]
#[should_panic(expected = "only a running execution can be terminated")]
fn e23_an_execution_that_has_ended_is_not_terminated() {
    let mut drive = Drive::start(|_: OrchestrationContext, input: Payload| async { Ok(input) }, ());
    terminated(&mut drive, 9_000, "too late");
}
