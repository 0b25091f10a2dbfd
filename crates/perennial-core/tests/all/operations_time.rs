//! Timers are due by recorded time (E18), and replays keep quiet (E19).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::log::Log;
use perennial_core::{ExecutionOptions, OrchestrationContext, OrchestrationHandler, Payload, Started};
use perennial_testkit::Drive;

/// When a timer of this length is due that is created at 1,000 ms.
fn due(delay: Duration) -> String {
    let drive = Drive::start(
        move |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_timer(delay).await;
            Ok(Payload::null())
        },
        (),
    );
    drive.lines().pop().unwrap()
}

#[test]
fn e18_timers_are_rounded_up_to_the_millisecond() {
    assert_eq!(due(Duration::ZERO), "2 TimerCreated due 1000");
    assert_eq!(due(Duration::from_nanos(1)), "2 TimerCreated due 1001");
    assert_eq!(due(Duration::from_micros(999)), "2 TimerCreated due 1001");
    assert_eq!(due(Duration::from_millis(1)), "2 TimerCreated due 1001");
    assert_eq!(due(Duration::from_nanos(1_000_001)), "2 TimerCreated due 1002");
    assert_eq!(due(Duration::new(2, 999_999_999)), "2 TimerCreated due 4000");
}

#[test]
fn e18_timers_saturate_at_the_end_of_time() {
    let end = format!("2 TimerCreated due {}", u64::MAX);
    assert_eq!(due(Duration::MAX), end);
    assert_eq!(due(Duration::from_millis(u64::MAX)), end);
    assert_eq!(due(Duration::from_millis(u64::MAX - 1_000)), end);
    assert_eq!(due(Duration::from_millis(u64::MAX - 1_001)), format!("2 TimerCreated due {}", u64::MAX - 1));
}

#[test]
fn e18_timers_count_from_the_time_of_their_turn_and_match_exactly_on_replay() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("go").await;
            ctx.schedule_timer(Duration::from_micros(1_500)).await;
            let never = std::future::pending::<()>();
            let elapsed = ctx.timeout(Duration::from_nanos(1), never).await;
            Ok(elapsed.unwrap_err().to_string().into())
        },
        (),
    );
    drive.at(5_000).raise("go", ());
    assert_eq!(drive.last_lines()[1], "4 TimerCreated due 5002");
    // The clock says less than is due; the turn says no less.
    drive.at(4_000).evict().fire(4);
    assert_eq!(drive.last_lines(), ["5 TimerFired of 4", "6 TimerCreated due 5003"]);
    assert_eq!(drive.last_turn().at_ms, 5_002);
    // Fired late: what comes next counts from then.
    drive.at(9_999).evict().fire(6).evict();
    let last = &drive.last_lines()[1];
    assert!(last.starts_with(r#"8 OrchestrationCompleted "PER-0417 time limit elapsed"#), "{last}");
    assert_eq!(drive.last_turn().at_ms, 9_999);
}

/// Drives without a shadow, so that every run of the code is one that the test asked for.
fn without_shadow(handler: impl OrchestrationHandler) -> Drive {
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler), started, options).unwrap();
    drive.turn([]);
    drive
}

#[test]
fn e19_is_replaying_is_true_while_recorded_turns_are_replayed() {
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let log = Arc::clone(&seen);
    let take = move || std::mem::take(&mut *seen.lock().unwrap());
    let mut drive = without_shadow(move |ctx: OrchestrationContext, _: Payload| {
        let log = Arc::clone(&log);
        async move {
            loop {
                log.lock().unwrap().push(ctx.is_replaying());
                ctx.schedule_wait("go").await;
            }
        }
    });
    assert_eq!(take(), [false]);
    drive.raise("go", ());
    assert_eq!(take(), [false]);
    drive.evict();
    assert_eq!(take(), [true, true]);
    drive.raise("go", ());
    assert_eq!(take(), [false]);
}

#[test]
fn e19_a_query_is_no_replay_whether_the_execution_was_replayed_or_not() {
    let mut drive = without_shadow(|ctx: OrchestrationContext, _: Payload| async move {
        let asked = ctx.clone();
        ctx.on_query("replaying", move |_| Ok(asked.is_replaying().to_string().into()));
        Ok(ctx.schedule_wait("go").await)
    });
    let replaying = |drive: &mut Drive| drive.execution().query("replaying", ().into()).unwrap();
    assert_eq!(replaying(&mut drive), "false".into());
    assert_eq!(replaying(drive.evict()), "false".into(), "after a replay");
}

#[test]
fn e19_the_trace_helpers_are_silent_in_replays() {
    let log = Log::default();
    let shared = log.clone();
    tracing::subscriber::with_default(shared, || {
        let handler = |ctx: OrchestrationContext, _: Payload| async move {
            ctx.trace_error("one");
            ctx.trace_warn("two");
            ctx.schedule_wait("go").await;
            ctx.trace_info("three");
            ctx.trace_debug(format_args!("{}", "four"));
            Ok(Payload::null())
        };
        // The shadow replays are silent too.
        let mut drive = Drive::start(handler, ());
        assert_eq!(log.take(), ["ERROR one", "WARN two"]);
        drive.evict();
        assert_eq!(log.take(), [""; 0]);
        drive.raise("go", ());
        assert_eq!(log.take(), ["INFO three", "DEBUG four"]);
        drive.evict();
        assert_eq!(log.take(), [""; 0]);
    });
}
