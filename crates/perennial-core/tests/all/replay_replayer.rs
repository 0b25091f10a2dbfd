//! Replaying whole histories against the current code, as tests, CI gates and preflight do.

use perennial_core::history::{decode_history, encode_turn};
use perennial_core::{
    Handlers, History, HistoryError, OrchestrationContext, OrchestrationHandler, Payload, ReplayReport,
    Replayer, TurnFailure,
};
use perennial_testkit::Drive;

fn greeting(activity: &'static str) -> impl OrchestrationHandler {
    move |ctx: OrchestrationContext, name: Payload| async move {
        let greeting = ctx.schedule_activity(activity, name).await;
        ctx.schedule_wait("end").await;
        greeting.map_err(|_| Payload::null())
    }
}

/// Two turns of version 1.0.0, through the stored bytes.
fn recorded() -> History {
    let mut drive = Drive::start(greeting("Greet"), "Ada");
    drive.complete(2, "Hello, Ada!");
    decode_history(drive.history().turns.iter().map(encode_turn)).expect("it decodes")
}

fn replay(handler: impl OrchestrationHandler, history: &History) -> ReplayReport {
    Replayer::new(Handlers::default().with("orchestration", "1.0.0", handler)).replay("instance-1", history)
}

#[test]
fn e4_a_compatible_history_says_how_much_was_replayed() {
    let report = replay(greeting("Greet"), &recorded());
    assert!(report.is_compatible());
    assert!(matches!(report, ReplayReport::Compatible { turns: 2, events: 4 }), "{report:?}");
}

#[test]
fn e4_an_incompatible_history_says_where() {
    let report = replay(greeting("Salute"), &recorded());
    assert!(!report.is_compatible());
    match report {
        ReplayReport::Incompatible(TurnFailure::Nondeterminism(divergence)) => {
            assert_eq!((divergence.turn, divergence.event.0), (1, 2));
            assert_eq!(divergence.instance, "instance-1");
        }
        other => panic!("expected nondeterminism, got {other:?}"),
    }
    let panics = |_: OrchestrationContext, _: Payload| async move { panic!("a bug") };
    match replay(panics, &recorded()) {
        ReplayReport::Incompatible(TurnFailure::Panicked { message, .. }) => assert_eq!(message, "a bug"),
        other => panic!("expected a panic, got {other:?}"),
    }
}

#[test]
fn e4_code_that_is_not_there_is_named_with_its_version() {
    let handlers = Handlers::default().with("orchestration", "2.0.0", greeting("Greet"));
    match Replayer::new(handlers).replay("instance-1", &recorded()) {
        ReplayReport::MissingHandler { name, version } => {
            assert_eq!((&*name, &*version), ("orchestration", "1.0.0"));
        }
        other => panic!("expected a missing handler, got {other:?}"),
    }
}

#[test]
fn e4_a_history_that_no_code_can_replay_is_told_apart() {
    let mut gap = recorded();
    gap.turns[1].events[0].id.0 += 1;
    match replay(greeting("Greet"), &gap) {
        ReplayReport::Unusable(HistoryError::Corrupt(corrupt)) => assert_eq!(corrupt.turn, 2),
        other => panic!("expected corruption, got {other:?}"),
    }
    let mut newer = recorded();
    newer.turns[1].format += 1;
    assert!(matches!(
        replay(greeting("Greet"), &newer),
        ReplayReport::Unusable(HistoryError::NewerEngine { turn: 2, .. })
    ));
}

#[test]
fn e4_a_hydrated_execution_takes_the_next_turn() {
    let history = recorded();
    let replayer = Replayer::new(Handlers::default().with("orchestration", "1.0.0", greeting("Greet")));
    let mut execution =
        replayer.hydrate("instance-1", &history).unwrap_or_else(|report| panic!("it replays: {report:?}"));
    let turn = execution
        .take_turn(5_000, vec![Drive::event("end", ())])
        .expect("the turn is taken")
        .turn
        .expect("a turn");
    let lines: Vec<String> =
        turn.events.iter().map(|event| format!("{} {}", event.id, event.summary())).collect();
    assert_eq!(turn.number, 3);
    assert_eq!(lines, [r#"5 ExternalEvent "end" null"#, r#"6 OrchestrationCompleted "Hello, Ada!""#]);
}

#[test]
fn e4_replaying_twice_changes_nothing() {
    let history = recorded();
    for _ in 0..3 {
        assert!(replay(greeting("Greet"), &history).is_compatible());
    }
    assert_eq!(history, recorded());
}
