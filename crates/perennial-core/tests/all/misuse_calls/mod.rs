//! What the tests of misuse share: every call that only running code may make.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use perennial_core::{ExecutionOptions, OrchestrationContext, OrchestrationHandler, Started, TurnFailure};
use perennial_testkit::Drive;

/// Starts without a shadow, so that what the code does outside of its history happens once.
pub(crate) fn try_start_alone(handler: impl OrchestrationHandler) -> Result<Drive, TurnFailure> {
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler), started, options)?;
    drive.try_turn([])?;
    Ok(drive)
}

/// The same, for first turns that must not fail.
pub(crate) fn start_alone(handler: impl OrchestrationHandler) -> Drive {
    try_start_alone(handler).unwrap_or_else(|failure| panic!("the first turn failed: {failure}"))
}

/// What the misuse was that failed a turn.
pub(crate) fn misuse(turn: Result<impl Sized, TurnFailure>) -> String {
    match turn {
        Err(TurnFailure::Misuse { what }) => what,
        Err(other) => panic!("expected misuse, got {other}"),
        Ok(_) => panic!("the turn was taken"),
    }
}

/// Does what panics, and goes on.
pub(crate) fn caught(f: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "misuse panics at the call");
}

/// A call, by its name.
type Call = (&'static str, fn(&OrchestrationContext));

/// Everything that only running code may do.
pub(crate) const DECISIONS: [Call; 21] = [
    ("set_status", |ctx| ctx.set_status("s")),
    ("upsert_attributes", |ctx| ctx.upsert_attributes([("a", "b")])),
    ("schedule_activity", |ctx| drop(ctx.schedule_activity("A", ""))),
    ("schedule_timer", |ctx| drop(ctx.schedule_timer(Duration::ZERO))),
    ("schedule_wait", |ctx| drop(ctx.schedule_wait("event"))),
    ("schedule_sub_orchestration", |ctx| {
        drop(ctx.schedule_sub_orchestration("C", ""));
    }),
    ("schedule_orchestration", |ctx| {
        ctx.schedule_orchestration("O", "o", "");
    }),
    ("raise_event", |ctx| drop(ctx.raise_event("o", "e", ""))),
    ("utc_now", |ctx| drop(ctx.utc_now())),
    ("new_guid", |ctx| drop(ctx.new_guid())),
    ("side_effect", |ctx| drop(ctx.side_effect("e", || 1))),
    ("random", |ctx| {
        let _ = ctx.random();
    }),
    ("uuid4", |ctx| drop(ctx.uuid4())),
    ("patched", |ctx| {
        let _ = ctx.patched("p");
    }),
    ("continue_as_new", |ctx| drop(ctx.continue_as_new::<()>(""))),
    ("spawn", |ctx| drop(ctx.spawn(async {}))),
    ("on_event", |ctx| ctx.on_event("x", |_| async {})),
    ("on_query", |ctx| ctx.on_query("x", Ok)),
    ("on_cancel", |ctx| ctx.on_cancel(|| async {})),
    ("cancelled", |ctx| drop(ctx.cancelled())),
    ("state", |ctx| drop(ctx.state(0))),
];
