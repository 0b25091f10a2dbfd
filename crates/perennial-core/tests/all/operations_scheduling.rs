//! Decisions are made at the call, and options count until the first poll or the end of the step (E13).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::poll;
use perennial_core::{ClosePolicy, Decision, OrchestrationContext, Payload, RetryPolicy, TurnFailure};
use perennial_testkit::Drive;

/// What the turn was failed for, given that it was misuse.
fn misuse<T>(outcome: Result<T, TurnFailure>) -> String {
    match outcome {
        Err(TurnFailure::Misuse { what }) => what,
        Err(other) => panic!("not a misuse: {other}"),
        Ok(_) => panic!("the turn did not fail"),
    }
}

const AFTER_POLL: &str =
    "an option was set on a future after its first poll; set options in the call that schedules it";
const AFTER_STEP: &str = "an option was set on event 2 after the step that scheduled it; set options in the call that \
                          schedules it";

#[test]
fn e13_decisions_are_made_at_the_call_in_call_order_even_if_never_polled() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let timer = ctx.schedule_timer(Duration::from_secs(1));
            let activity = ctx.schedule_activity("A", ());
            ctx.schedule_orchestration("Other", "other-1", ());
            let wait = ctx.schedule_wait("go");
            ctx.set_status("waiting");
            let child = ctx.schedule_sub_orchestration("Child", ());
            ctx.raise_event("other-1", "ping", ());
            ctx.upsert_attributes([("colour", "red")]);
            let last = ctx.schedule_activity("Last", ()).await;
            drop((timer, activity, wait, child));
            Ok(last.unwrap())
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            "2 TimerCreated due 2000",
            r#"3 ActivityScheduled "A" null"#,
            r#"4 OrchestrationChained "Other" latest as "other-1" null"#,
            r#"5 ExternalSubscribed "go""#,
            r#"6 StatusSet "waiting""#,
            r#"7 SubOrchestrationScheduled "Child" latest as derived id null"#,
            r#"8 ExternalEventSent "ping" to "other-1" null"#,
            "9 AttributesUpserted colour=\"red\"",
            r#"10 ActivityScheduled "Last" null"#,
        ]
    );
    drive.evict().complete(10, ()).evict();
}

#[test]
fn e13_a_combinator_with_decisions_makes_them_at_the_call() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let slow = ctx.schedule_activity("Slow", ());
            let limited = ctx.timeout(Duration::from_secs(1), slow);
            ctx.schedule_activity("After", ()).await.unwrap();
            Ok(limited.await.unwrap().unwrap())
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "Slow" null"#,
            "3 TimerCreated due 2000",
            r#"4 ActivityScheduled "After" null"#,
        ]
    );
    // The limit was never polled, and counts from the call all the same.
    drive.evict().complete(2, "slow").complete(4, ()).evict();
    assert_eq!(drive.last_lines(), ["6 ActivityCompleted of 4 null", r#"7 OrchestrationCompleted "slow""#]);
}

#[test]
fn e13_a_decision_belongs_to_the_unit_that_called_not_to_the_one_that_polls() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let activity = ctx.schedule_activity("A", ());
            let from = ctx.clone();
            let unit = ctx.spawn(async move {
                let result = activity.await.unwrap();
                from.set_status(result);
            });
            unit.await;
            Ok(Payload::null())
        },
        (),
    );
    drive.evict().complete(2, "a").evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "A" null"#,
            r#"3 ActivityCompleted of 2 "a""#,
            r#"4 StatusSet "a" in p0"#,
            "5 OrchestrationCompleted null",
        ]
    );
}

#[test]
fn e13_options_are_recorded_with_the_decision() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let plain = ctx.schedule_activity("Plain", ());
            let tuned = ctx
                .schedule_activity("Tuned", ())
                .retry(RetryPolicy::fixed(Duration::from_millis(250)).attempts(3))
                .timeout(Duration::from_secs(1))
                .queue_timeout(Duration::from_secs(2))
                .total_timeout(Duration::from_secs(3))
                .heartbeat_timeout(Duration::from_secs(4))
                .tag("gpu");
            let child = ctx.schedule_sub_orchestration("Child", ()).close_policy(ClosePolicy::Abandon);
            let _all = ctx.join3(plain, tuned, child).await;
            Ok(Payload::null())
        },
        (),
    );
    drive.evict();
    let decisions: Vec<&Decision> = drive.last_turn().decisions().map(|(_, _, decision)| decision).collect();
    let [
        Decision::ActivityScheduled { options: None, .. },
        Decision::ActivityScheduled { options: Some(tuned), .. },
        Decision::SubOrchestrationScheduled { close, .. },
    ] = decisions[..]
    else {
        panic!("{decisions:?}")
    };
    assert_eq!(tuned.retry, Some(RetryPolicy::fixed(Duration::from_millis(250)).attempts(3)));
    assert_eq!(tuned.attempt_timeout_ms, Some(1_000));
    assert_eq!(tuned.queue_timeout_ms, Some(2_000));
    assert_eq!(tuned.total_timeout_ms, Some(3_000));
    assert_eq!(tuned.heartbeat_timeout_ms, Some(4_000));
    assert_eq!(tuned.tag.as_deref(), Some("gpu"));
    assert_eq!(*close, ClosePolicy::Abandon);
}

#[test]
fn e13_options_count_until_the_end_of_the_step() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let first = ctx.schedule_activity("First", ());
            let second = ctx.schedule_activity("Second", ());
            ctx.set_status("set later in the step");
            let first = first.tag("a");
            let second = second.tag("b");
            let _both = ctx.join2(first, second).await;
            Ok(Payload::null())
        },
        (),
    );
    let tags: Vec<_> = drive.last_turn().decisions().map(|(_, _, decision)| tag(decision)).collect();
    assert_eq!(tags, [Some("a"), Some("b"), None]);
}

fn tag(decision: &Decision) -> Option<&str> {
    match decision {
        Decision::ActivityScheduled { options, .. } => options.as_ref()?.tag.as_deref(),
        _ => None,
    }
}

#[test]
fn e13_an_option_after_the_first_poll_is_misuse() {
    let outcome = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut activity = ctx.schedule_activity("A", ());
            assert!(poll!(&mut activity).is_pending());
            Ok(activity.tag("late").await.unwrap())
        },
        (),
    );
    assert_eq!(misuse(outcome.map(drop)), AFTER_POLL);
}

#[test]
fn e13_an_option_after_the_step_is_misuse() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let activity = ctx.schedule_activity("A", ());
            ctx.schedule_activity("B", ()).await.unwrap();
            Ok(activity.tag("late").await.unwrap())
        },
        (),
    );
    assert_eq!(misuse(drive.try_turn([Drive::completed(3, ())])), AFTER_STEP);
    assert_eq!(drive.history().turns.len(), 1, "nothing of the turn is recorded");
}

#[test]
fn e13_a_late_option_fails_the_turn_even_if_the_panic_is_caught() {
    let outcome = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut activity = ctx.schedule_activity("A", ());
            assert!(poll!(&mut activity).is_pending());
            let caught = catch_unwind(AssertUnwindSafe(|| activity.tag("late")));
            assert!(caught.is_err(), "the call panics");
            Ok(Payload::null())
        },
        (),
    );
    assert_eq!(misuse(outcome.map(drop)), AFTER_POLL);

    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let child = ctx.schedule_sub_orchestration("Child", ());
            ctx.schedule_activity("B", ()).await.unwrap();
            let caught = catch_unwind(AssertUnwindSafe(|| child.close_policy(ClosePolicy::Abandon)));
            assert!(caught.is_err(), "the call panics");
            Ok(Payload::null())
        },
        (),
    );
    assert_eq!(misuse(drive.try_turn([Drive::completed(3, ())])), AFTER_STEP);
}

#[test]
fn e13_an_option_on_a_future_that_has_returned_is_misuse() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut activity = ctx.schedule_activity("A", ());
            let result = (&mut activity).await.unwrap();
            drop(activity.tag("far too late"));
            Ok(result)
        },
        (),
    );
    assert_eq!(misuse(drive.try_turn([Drive::completed(2, ())])), AFTER_POLL);
}
