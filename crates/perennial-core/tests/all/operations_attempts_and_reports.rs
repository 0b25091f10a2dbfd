//! Children that are scheduled again, their starts, and what becomes of what is sent (E32, E33).

use std::time::Duration;

use perennial_core::{
    ChildError, ClosePolicy, Delivery, EventId, Job, OnTakenId, OrchestrationContext, Payload, RetryPolicy,
    TurnFailure,
};
use perennial_testkit::Drive;

type Outcome = Result<Payload, Payload>;

fn failed(source: u64, error: ChildError) -> Job {
    Job::SubOrchestrationFailed { source_event_id: EventId(source), error }
}

fn broke(source: u64) -> Job {
    failed(source, ChildError::Application("broke".into()))
}

fn reported(source: u64, outcome: Delivery) -> Job {
    Job::DeliveryReported { source_event_id: EventId(source), outcome }
}

fn policy(attempts: u32) -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_secs(1)).attempts(attempts).jitter(0)
}

fn tries(
    attempts: u32,
) -> impl Fn(OrchestrationContext, Payload) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>> {
    move |ctx, _| {
        Box::pin(async move {
            let child = ctx.schedule_sub_orchestration_with_id("child", "mine", ()).retry(policy(attempts));
            child.await.map_err(|failure| Payload::from(format!("{failure:?}")))
        })
    }
}

#[test]
fn e32_a_child_that_fails_is_scheduled_again_after_a_pause() {
    let mut drive = Drive::start(tries(3), ());
    drive.turn([broke(2)]).evict();
    assert_eq!(drive.last_lines()[1], "4 TimerCreated due 2000");
    drive.at(2_000).fire(4).evict();
    assert_eq!(drive.last_lines()[1], r#"6 SubOrchestrationScheduled "child" latest as "mine" null"#);
    drive.turn([failed(6, ChildError::Terminated { reason: "timeout".to_owned() })]).evict();
    drive.at(3_000).fire(8).evict();
    drive.turn([Drive::child_completed(10, "third time lucky")]).evict();
    assert_eq!(drive.last_lines()[1], r#"12 OrchestrationCompleted "third time lucky""#);
}

#[test]
fn e32_attempts_end_and_some_failures_are_final() {
    let reason = || "because".to_owned();
    let finals = [
        ChildError::Cancelled { reason: reason(), output: None },
        ChildError::Terminated { reason: reason() },
        ChildError::NotStarted { reason: reason() },
    ];
    for error in finals {
        let mut drive = Drive::start(tries(3), ());
        drive.turn([failed(2, error)]).evict();
        assert!(drive.execution().has_ended(), "{:?}", drive.last_lines());
    }
    let mut drive = Drive::start(tries(2), ());
    drive.turn([broke(2)]).at(2_000).fire(4).turn([broke(6)]).evict();
    assert!(drive.last_lines()[1].contains("OrchestrationFailed"), "{:?}", drive.last_lines());
}

#[test]
fn e32_the_recorded_policy_wins_over_a_changed_one() {
    let mut drive = Drive::start(tries(2), ());
    drive.turn([broke(2)]).at(2_000).fire(4).turn([broke(6)]);
    drive.replay_with(tries(9)).expect("a policy is no part of what was decided");
}

#[test]
fn e32_a_pause_is_given_up_with_its_child() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let child = ctx.schedule_sub_orchestration("child", ()).retry(policy(3));
            ctx.select2(child, ctx.schedule_wait("n")).await;
            ctx.schedule_wait("n").await;
            Ok(Payload::null())
        },
        (),
    );
    drive.turn([broke(2)]).evict().raise("n", ()).evict();
    assert_eq!(drive.last_lines()[1..], [r#"7 ExternalSubscribed "n""#, "8 TimerCancelled of 5"]);
}

#[test]
fn e32_in_a_wide_select_a_child_that_is_tried_again_hides_no_other_result() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let children: Vec<_> =
                (0..3).map(|_| ctx.schedule_sub_orchestration("child", ()).retry(policy(3))).collect();
            let (index, outcome) = ctx.select(children).await;
            Ok(format!("{index} {outcome:?}").into())
        },
        (),
    );
    drive.turn([broke(2), broke(3), Drive::child_completed(4, "done")]).evict();
    assert!(drive.last_lines().last().expect("lines").contains(r#"2 Ok"#), "{:?}", drive.last_lines());
}

#[test]
fn e32_the_start_of_a_child_is_awaited_apart_from_its_end() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let mut child = ctx.schedule_sub_orchestration("child", ()).close_policy(ClosePolicy::Abandon);
        let started = child.started().await;
        ctx.set_status(format!("{started:?}"));
        Ok(format!("{:?}", child.await).into())
    };
    let mut drive = Drive::start(code, ());
    drive.evict().turn([Job::SubOrchestrationStarted { source_event_id: EventId(2) }]).evict();
    assert_eq!(drive.last_lines()[1], r#"4 StatusSet "Ok(())""#);
    drive.turn([Drive::child_completed(2, "done")]).evict();
    assert!(drive.execution().has_ended());

    let mut drive = Drive::start(code, ());
    drive.turn([failed(2, ChildError::NotStarted { reason: "taken".to_owned() })]).evict();
    assert!(drive.lines()[3].starts_with(r#"4 StatusSet "Err(NotStarted"#), "{:?}", drive.lines());
    assert!(drive.execution().has_ended());
}

#[test]
fn e32_the_start_that_is_awaited_is_that_of_the_first_attempt() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let child = ctx.schedule_sub_orchestration_with_id("child", "x", ());
        let mut child = child.on_existing(OnTakenId::TerminateAndReplace);
        ctx.set_status(format!("{:?}", child.started().await));
        Ok(format!("{:?}", child.await).into())
    };
    let mut drive = Drive::start(code, ());
    let taken = "PER-0306 child id taken".to_owned();
    drive.turn([failed(2, ChildError::NotStarted { reason: taken })]).evict();
    assert!(drive.lines()[3].contains(r#"StatusSet "Err(NotStarted"#), "{:?}", drive.lines());
    assert!(drive.lines()[4].contains("TimerCreated"), "it is tried on: {:?}", drive.lines());
    drive.turn([Drive::fired(5)]).evict();
    assert!(drive.last_lines()[1].contains("SubOrchestrationScheduled"), "{:?}", drive.last_lines());
    drive.turn([Drive::child_completed(7, "done")]).evict();
    assert!(drive.last_lines().last().expect("lines").contains("Ok"), "{:?}", drive.last_lines());
}

#[test]
fn e32_a_start_whose_child_was_dropped_says_so() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut child = ctx.schedule_sub_orchestration("child", ());
            let started = child.started();
            ctx.schedule_wait("n").await;
            drop(child);
            Ok(format!("{:?}", started.await).into())
        },
        (),
    );
    drive.raise("n", ()).evict();
    assert!(drive.last_lines()[1].contains("Err(NotStarted"), "{:?}", drive.last_lines());
}

#[test]
fn e33_what_became_of_something_sent_is_told_to_code_that_asks() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.raise_event("other", "ping", "nobody asks");
            let raised = ctx.raise_event("other", "ping", ()).delivered();
            let started = ctx.schedule_orchestration("job", "job-1", ()).delivered();
            let cancelled =
                ctx.cancel_orchestration("old", "replaced").grace(Duration::from_secs(3)).delivered();
            Ok(format!("{:?}", ctx.join3(raised, started, cancelled).await).into())
        },
        (),
    );
    drive.evict();
    assert_eq!(drive.execution().ledger().open().count(), 3, "what nobody asks for is not open");
    drive.turn([reported(2, Delivery::Delivered), reported(4, Delivery::AlreadyExists)]).evict();
    assert_eq!(drive.last_lines(), ["6 DeliveryReported of 4 AlreadyExists"], "the other one is stale");
    drive.turn([reported(3, Delivery::Delivered), reported(5, Delivery::NotFound)]).evict();
    assert_eq!(drive.last_lines()[2], r#"9 OrchestrationCompleted "(Delivered, AlreadyExists, NotFound)""#);
}

#[test]
fn e33_dropping_the_report_takes_nothing_back() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drop(ctx.raise_event("other", "ping", ()).delivered());
            let report = ctx.raise_event("other", "pong", ()).delivered();
            ctx.schedule_wait("n").await;
            drop(report);
            ctx.schedule_wait("n").await;
            Ok(Payload::null())
        },
        (),
    );
    assert_eq!(drive.lines()[1], r#"2 ExternalEventSent "ping" to "other" null"#);
    drive.raise("n", ()).evict();
    assert_eq!(drive.last_lines()[1..], [r#"6 ExternalSubscribed "n""#], "nothing is cancelled");
    drive.turn([reported(2, Delivery::Ended), reported(3, Delivery::Ended)]).evict();
    assert_eq!(drive.last_lines().len(), 2, "reports that nobody awaits are recorded and harmless");
}

#[test]
fn e33_asking_after_the_step_is_misuse() {
    let failure = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let sent = ctx.raise_event("other", "ping", ());
            ctx.schedule_wait("n").await;
            sent.delivered().await;
            Ok(Payload::null())
        },
        (),
    )
    .try_turn([Drive::event("n", ())])
    .err();
    assert!(
        matches!(&failure, Some(TurnFailure::Misuse { what }) if what.contains("delivered()")),
        "{failure:?}"
    );
}
