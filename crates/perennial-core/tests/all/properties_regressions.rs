//! Failures that generated programs found, each as the smallest code that shows it.

use std::time::Duration;

use perennial_core::{OrchestrationContext, Payload, TurnFailure};
use perennial_testkit::Drive;

#[test]
fn e6_the_size_of_the_history_is_the_same_for_code_in_every_replay_marks_included() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.patched("new way");
        ctx.spawn(async {}).await;
        let events = ctx.info().history_events;
        Ok(Payload::encode(&events).expect("a number encodes"))
    };
    let mut drive = Drive::start(code, ());
    let kinds: Vec<_> = drive.history().flatten().map(|event| event.kind.name()).collect();
    assert_eq!(kinds, ["OrchestrationStarted", "PatchMarked", "OrchestrationCompleted"]);
    drive.evict();
}

#[test]
fn e17_a_missing_call_is_reported_at_its_event_though_the_step_unwinds() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let timer = ctx.schedule_timer(Duration::from_secs(1));
            ctx.set_status("waiting");
            timer.await;
            Ok(Payload::null())
        },
        (),
    );
    // Where the record has a status, this code takes the time. There is no value to go on with, so the step unwinds,
    // and drops the timer that it scheduled before.
    let failure = drive.replay_with(|ctx: OrchestrationContext, _: Payload| async move {
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        ctx.utc_now().await;
        timer.await;
        Ok(Payload::null())
    });
    assert_parts_at(failure.err(), 3, "StatusSet", "SystemCall");
}

#[test]
fn e24_a_panic_in_a_replay_is_a_panic_though_unwinding_drops_what_was_open() {
    let code = |panics: bool| {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let timer = ctx.schedule_timer(Duration::from_secs(1));
            ctx.schedule_wait("go on").await;
            assert!(!panics, "it does not get further");
            timer.await;
            Ok(Payload::null())
        }
    };
    let mut drive = Drive::start(code(false), ());
    drive.raise("go on", ());
    let failure = drive.replay_with(code(true)).err();
    assert!(matches!(failure, Some(TurnFailure::Panicked { .. })), "{failure:?}");
}

fn assert_parts_at(failure: Option<TurnFailure>, event: u64, recorded: &str, code: &str) {
    let Some(TurnFailure::Nondeterminism(difference)) = failure else {
        panic!("no divergence, but {failure:?}");
    };
    let parts = (difference.event.0, difference.recorded.kind.as_str(), difference.code.kind.as_str());
    assert_eq!(parts, (event, recorded, code), "{}", difference.report());
}
