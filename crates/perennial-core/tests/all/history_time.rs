//! Time in a history never goes back: corruption where it is recorded, clamped where it is live (E1).

use crate::history_builders::{activity, begun, corruption, job, root, started, stored, timer, turns, wait};
use perennial_core::{EventKind, ExecutionOptions, Ledger, OrchestrationContext, Payload, Started};
use perennial_testkit::Drive;

#[test]
fn e1_recorded_time_never_goes_back() {
    let recorded = |at_ms| {
        turns([(1_000, vec![begun(), root(activity("a"))]), (at_ms, vec![job(Drive::completed(2, ()))])])
    };
    let problem = "time goes backwards from 1000 to 999".to_owned();
    assert_eq!(corruption(&recorded(999)), (2, None, problem));
    assert!(stored(&recorded(1_000)).is_ok(), "but it may stand still");
}

#[test]
fn e1_a_recorded_timer_never_fires_early() {
    let recorded = |at_ms| {
        turns([
            (1_000, vec![begun(), root(timer(5_000)), root(timer(4_000))]),
            (at_ms, vec![job(Drive::fired(3)), job(Drive::fired(2))]),
        ])
    };
    let early = |event| (2, Some(event), "a timer fired before it was due".to_owned());
    assert_eq!(corruption(&recorded(4_999)), early(5));
    assert_eq!(corruption(&recorded(3_999)), early(4));
    assert!(stored(&recorded(5_000)).is_ok());
}

#[test]
fn e1_a_recorded_execution_begins_no_earlier_than_its_predecessor_ended() {
    let recorded = |at_ms| {
        let started = Started { execution: 2, predecessor_at_ms: Some(1_000), ..started() };
        turns([(at_ms, vec![EventKind::Started(Box::new(started))])])
    };
    let problem = "it starts before the previous execution ended".to_owned();
    assert_eq!(corruption(&recorded(999)), (1, Some(1), problem));
    assert!(stored(&recorded(1_000)).is_ok());
}

async fn two_timers(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let seconds = std::time::Duration::from_secs;
    let (long, short) = (ctx.schedule_timer(seconds(5)), ctx.schedule_timer(seconds(2)));
    ctx.join2(long, short).await;
    Ok(Payload::encode(&ctx.now().as_millis()).expect("a number"))
}

#[test]
fn e1_a_live_turn_is_no_earlier_than_the_one_before() {
    let mut drive = Drive::start(two_timers, ());
    drive.at(10).raise("noise", ());
    assert_eq!(drive.last_turn().at_ms, 1_000);
    drive.at(1_500).raise("noise", ());
    assert_eq!(drive.last_turn().at_ms, 1_500);
    drive.at(0).evict().raise("noise", ());
    assert_eq!(drive.last_turn().at_ms, 1_500, "nor than a replayed one");
}

#[test]
fn e1_a_live_turn_is_no_earlier_than_its_timers_are_due() {
    let mut drive = Drive::start(two_timers, ());
    drive.evict().at(1_100).fire(3);
    assert_eq!(drive.last_turn().at_ms, 3_000);
    drive.evict().at(5_999).turn([Drive::event("noise", ()), Drive::fired(2)]);
    assert_eq!(drive.last_turn().at_ms, 6_000);
    assert_eq!(drive.last_lines().last().map(String::as_str), Some("7 OrchestrationCompleted 6000"));
    drive.evict();
}

#[test]
fn e1_a_stale_firing_does_not_move_time() {
    let mut drive = Drive::start(two_timers, ());
    drive.at(1_100).turn([Drive::fired(3), Drive::fired(3), Drive::fired(99)]);
    assert_eq!((drive.last_turn().at_ms, drive.last_turn().events.len()), (3_000, 1));
    drive.turn([Drive::fired(3), Drive::event("noise", ())]);
    assert_eq!(drive.last_turn().at_ms, 3_000);
}

#[test]
fn e1_a_live_execution_begins_no_earlier_than_its_predecessor_ended() {
    let started = Started { execution: 2, predecessor_at_ms: Some(7_000), ..started() };
    let handler = std::sync::Arc::new(two_timers);
    let mut drive =
        Drive::prepare(handler, started, ExecutionOptions::default()).expect("nothing is wrong with it");
    drive.turn([]);
    assert_eq!(drive.last_turn().at_ms, 7_000);
    assert_eq!(drive.last_lines()[1..], ["2 TimerCreated due 12000", "3 TimerCreated due 9000"]);
    drive.evict();
}

#[test]
fn e1_termination_is_no_earlier_than_the_last_turn() {
    let mut ledger = Ledger::default();
    let mut recorded = turns([(1_000, vec![begun(), root(wait("go"))])]);
    ledger.apply_turn(&recorded[0]).expect("it applies");
    recorded.push(ledger.terminate(10, "timeout"));
    assert_eq!((recorded[1].number, recorded[1].at_ms), (2, 1_000));
    assert_eq!(stored(&recorded).map(|history| history.turns), Ok(recorded));
    assert_eq!(ledger.ended(), Some("OrchestrationTerminated"));
    assert_eq!(ledger.open().count(), 1, "what was open is still known, to be told");
}

#[test]
fn e1_termination_before_the_first_turn_is_no_earlier_than_the_predecessor_ended() {
    let started = Started { execution: 2, predecessor_at_ms: Some(7_000), ..started() };
    let turn = Ledger::terminate_unstarted(&started, 10, "timeout").expect("nothing is wrong with it");
    assert_eq!((turn.number, turn.at_ms), (1, 7_000));
    let lines: Vec<String> =
        turn.events.iter().map(|event| format!("{} {}", event.id, event.summary())).collect();
    assert_eq!(lines, ["1 OrchestrationStarted orchestration null", "2 OrchestrationTerminated \"timeout\""]);
    assert_eq!(stored(std::slice::from_ref(&turn)).map(|history| history.turns), Ok(vec![turn]));
}
