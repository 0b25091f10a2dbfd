//! Histories written by hand, for tests of what may be recorded.
#![allow(dead_code, reason = "each test file uses the part it needs")]

use std::time::Duration;

use perennial_core::history::{FORMAT, SEMANTICS, decode_history, encode_turn};
use perennial_core::{
    ActivityError, ActivityOptions, Attributes, Backoff, ChildError, ChildOptions, ClosePolicy,
    CorruptHistory, Decision, Delivery, Ending, Event, EventId, EventKind, History, HistoryError, Job,
    OnTakenId, ParentLink, Payload, Reset, RetryPolicy, Segment, Started, TimeoutKind, Turn, UnitId, Why,
};

/// A payload with exactly this JSON text.
pub(crate) fn json(text: &str) -> Payload {
    Payload::from_json(text).expect("a test's payload is JSON")
}

/// An attempt that failed elsewhere, and one that did not.
fn trail() -> perennial_core::Trail {
    let failed = perennial_core::PastAttempt::new(1, 2, 3).failed(&ActivityError::Poisoned).on("node");
    perennial_core::Trail::default().and(failed).and(perennial_core::PastAttempt::new(4, 5, 6))
}

/// A trace context with both of its parts.
fn trace() -> perennial_core::TraceContext {
    perennial_core::TraceContext::new("00-0af7-b7ad-01", Some("vendor=é")).expect("it is short")
}

pub(crate) fn started() -> Started {
    Started::new("orchestration", "1.0.0", (), 42)
}

pub(crate) fn begun() -> EventKind {
    EventKind::Started(Box::new(started()))
}

pub(crate) fn job(job: Job) -> EventKind {
    EventKind::Job(job)
}

/// A decision of the root.
pub(crate) fn root(decision: Decision) -> EventKind {
    let unit = UnitId::ROOT;
    EventKind::Decision { unit, decision }
}

pub(crate) fn ended(ending: Ending) -> EventKind {
    EventKind::Ended(ending)
}

pub(crate) fn completed() -> EventKind {
    let output = Payload::null();
    ended(Ending::OrchestrationCompleted { output })
}

pub(crate) fn activity(name: &str) -> Decision {
    let (name, id, input, options) = (name.to_owned(), None, Payload::null(), None);
    Decision::ActivityScheduled { name, id, input, options }
}

pub(crate) fn timer(due_ms: u64) -> Decision {
    Decision::TimerCreated { due_ms }
}

pub(crate) fn wait(name: &str) -> Decision {
    let name = name.to_owned();
    Decision::ExternalSubscribed { name }
}

pub(crate) fn child(name: &str) -> Decision {
    Decision::SubOrchestrationScheduled {
        name: name.to_owned(),
        version: None,
        instance: None,
        input: Payload::null(),
        close: ClosePolicy::Cancel,
        options: None,
    }
}

pub(crate) fn status(text: &str) -> Decision {
    let status = Payload::from(text);
    Decision::StatusSet { status }
}

/// Every kind of job that completes something, as a completion of `source`.
pub(crate) fn completions(source: u64) -> [Job; 5] {
    let source_event_id = EventId(source);
    let (result, attempts) = (Payload::null(), 1);
    [
        Job::ActivityCompleted {
            source_event_id,
            result: result.clone(),
            attempts,
            trail: Default::default(),
        },
        Job::ActivityFailed {
            source_event_id,
            error: ActivityError::Poisoned,
            attempts,
            trail: Default::default(),
        },
        Job::TimerFired { source_event_id },
        Job::SubOrchestrationCompleted { source_event_id, result: result.clone() },
        Job::SubOrchestrationFailed { source_event_id, error: ChildError::Application(result) },
    ]
}

/// Turns at these times with these events, numbered as they have to be.
pub(crate) fn turns<const N: usize>(turns: [(u64, Vec<EventKind>); N]) -> Vec<Turn> {
    let mut next = 1;
    let mut numbered = |kind| {
        let id = EventId(next);
        next += 1;
        Event { id, kind }
    };
    (1..)
        .zip(turns)
        .map(|(number, (at_ms, kinds))| Turn {
            format: FORMAT,
            number,
            at_ms,
            draws: 0,
            events: kinds.into_iter().map(&mut numbered).collect(),
        })
        .collect()
}

/// Stores turns and reads them back.
pub(crate) fn stored(turns: &[Turn]) -> Result<History, HistoryError> {
    decode_history(turns.iter().map(encode_turn))
}

/// What is wrong with stored turns: the turn, the event, and the words.
#[track_caller]
pub(crate) fn corruption(turns: &[Turn]) -> (u64, Option<u64>, String) {
    corrupt(stored(turns).expect_err("this is no history"))
}

#[track_caller]
pub(crate) fn corrupt(error: HistoryError) -> (u64, Option<u64>, String) {
    assert_eq!(error.code(), "PER-0101", "{error}");
    match error {
        HistoryError::Corrupt(CorruptHistory { turn, event, problem }) => {
            (turn, event.map(|id| id.0), problem)
        }
        other => panic!("not corruption: {other}"),
    }
}

/// One of each kind of event, with every field set to something of its own. Payloads are no objects, so that every
/// object in the encoded form is part of the format.
pub(crate) fn every_kind() -> Vec<EventKind> {
    let mut kinds = vec![EventKind::Started(Box::new(Started {
        name: "order".to_owned(),
        version: "2.1.0".to_owned(),
        input: json("[1, 2]"),
        parent: Some(ParentLink {
            instance: "parent-1".to_owned(),
            key: "0190-key".to_owned(),
            execution: 3,
            event_id: EventId(17),
        }),
        seed: u64::MAX,
        semantics: SEMANTICS,
        execution: 4,
        predecessor_at_ms: Some(900),
        deadline_ms: Some(90_000),
        attributes: attributes(),
        status: Some(json("\"carried\"")),
        recent_keys: vec!["k1".to_owned(), "k2".to_owned()],
        crossing_keys: vec![(1, 2)],
        drawn_keys: vec![(800, "~1.1".to_owned())],
        trace: Some(Box::new(trace())),
        chain: 77,
        reset: Some(Box::new(Reset {
            began_as: 1,
            execution: 3,
            turn: 1,
            at_ms: 950,
            why: Why::new("a repair").by("ada"),
            adopted: vec![(EventId(2), 1)],
            same: vec![(3, EventId(2))],
        })),
    }))];
    kinds.extend(every_job().into_iter().map(job));
    let unit = UnitId::ROOT.child(Segment::Handler(2)).child(Segment::Parallel(0));
    kinds.extend(
        every_decision().into_iter().map(|decision| EventKind::Decision { unit: unit.clone(), decision }),
    );
    kinds.extend(every_ending().into_iter().map(ended));
    kinds
}

fn attributes() -> Attributes {
    let attribute = |name: &str, text: &str| (name.to_owned(), json(text));
    Attributes::from([attribute("colour", "\"red\""), attribute("gone", "null")])
}

pub(crate) fn every_job() -> Vec<Job> {
    let source_event_id = EventId(2);
    let mut jobs = vec![
        Job::ActivityCompleted { source_event_id, result: json("7"), attempts: 3, trail: trail() },
        Job::TimerFired { source_event_id },
        Job::ExternalEvent {
            name: "paid".to_owned(),
            payload: json("12.50"),
            key: Some("event-key".to_owned()),
            trace: Some(Box::new(trace())),
        },
        Job::SubOrchestrationCompleted { source_event_id, result: json("true") },
        Job::SubOrchestrationStarted { source_event_id },
        Job::DeliveryReported { source_event_id, outcome: Delivery::NotFound },
        Job::OrchestrationCancelRequested { reason: "enough".to_owned(), grace_ms: 31_000 },
        Job::InstanceResumed {
            why: Why::new("it is repaired").by("ada"),
            paused_ms: 7,
            paused: Why::new("for repair").by("grace"),
        },
        Job::MessageSkipped { number: 9, problem: "it is \"damaged\"".to_owned() },
        Job::UpdateRequested {
            name: "rename".to_owned(),
            payload: json("\"new\""),
            key: Some("update-key".to_owned()),
            trace: Some(Box::new(trace())),
        },
    ];
    let failures = [
        ActivityError::Application(json("\"broke\"")),
        ActivityError::Timeout(TimeoutKind::Queue),
        ActivityError::Timeout(TimeoutKind::Attempt),
        ActivityError::Timeout(TimeoutKind::Total),
        ActivityError::Timeout(TimeoutKind::Heartbeat),
        ActivityError::Cancelled,
        ActivityError::Poisoned,
    ];
    jobs.extend(failures.map(|error| Job::ActivityFailed {
        source_event_id,
        error,
        attempts: 5,
        trail: Default::default(),
    }));
    let reason = || "because".to_owned();
    let failures = [
        ChildError::Application(json("\"broke\"")),
        ChildError::Cancelled { reason: reason(), output: Some(json("null")) },
        ChildError::Terminated { reason: reason() },
        ChildError::NotStarted { reason: reason() },
    ];
    jobs.extend(failures.map(|error| Job::SubOrchestrationFailed { source_event_id, error }));
    jobs
}

pub(crate) fn every_decision() -> Vec<Decision> {
    let source_event_id = EventId(2);
    let backoffs = [
        Backoff::Fixed { pause: Duration::from_millis(10) },
        Backoff::Linear { step: Duration::from_millis(20), max: Duration::from_millis(200) },
        Backoff::Exponential {
            first: Duration::from_millis(30),
            factor_percent: 150,
            max: Duration::from_millis(300),
        },
    ];
    let scheduled = |backoff| Decision::ActivityScheduled {
        id: None,
        name: "charge".to_owned(),
        input: json("\"card\""),
        options: Some(Box::new(ActivityOptions {
            retry: Some(RetryPolicy {
                max_attempts: 6,
                backoff,
                jitter_percent: 25,
                non_retryable: vec!["Declined".to_owned()],
            }),
            queue_timeout_ms: Some(1),
            attempt_timeout_ms: Some(2),
            total_timeout_ms: Some(3),
            heartbeat_timeout_ms: Some(4),
            tag: Some("gpu".to_owned()),
            completes_later: false,
        })),
    };
    let mut decisions: Vec<Decision> = backoffs.map(scheduled).into();
    decisions.extend([
        Decision::ActivityCancelRequested { source_event_id },
        Decision::TimerCreated { due_ms: u64::MAX },
        Decision::TimerCancelled { source_event_id },
        wait("paid"),
        Decision::ExternalUnsubscribed { source_event_id },
        Decision::SubOrchestrationScheduled {
            name: "ship".to_owned(),
            version: Some("1.2.3".to_owned()),
            instance: Some("ship-9".to_owned()),
            input: json("[]"),
            close: ClosePolicy::Abandon,
            options: Some(Box::new(ChildOptions {
                timeout_ms: Some(5),
                retry: Some(
                    RetryPolicy::fixed(Duration::from_millis(10)).attempts(3).non_retryable(["Declined"]),
                ),
                on_existing: OnTakenId::TerminateAndReplace,
                reports_start: true,
            })),
        },
        Decision::ActivityStopRequested { source_event_id },
        Decision::SubOrchestrationStopRequested {
            source_event_id,
            reason: "enough".to_owned(),
            grace_ms: Some(9),
        },
        Decision::CancelSent {
            instance: "other-1".to_owned(),
            reason: "enough".to_owned(),
            grace_ms: Some(9),
            reported: true,
        },
        Decision::SubOrchestrationCancelRequested { source_event_id },
        Decision::OrchestrationChained {
            name: "audit".to_owned(),
            version: Some("0.1.0".to_owned()),
            instance: "audit-9".to_owned(),
            input: json("null"),
            reported: true,
        },
        Decision::ExternalEventSent {
            instance: "other-1".to_owned(),
            name: "hello".to_owned(),
            payload: json("-0.0"),
            key: Some("hello-1".to_owned()),
            reported: true,
        },
        Decision::SystemCall { op: "side_effect:dice".to_owned(), value: json("4") },
        Decision::PatchMarked { id: "new-tax".to_owned() },
        Decision::AttributesUpserted { attributes: attributes() },
        Decision::StatusSet { status: json("\"busy\"") },
        Decision::UpdateCompleted { source_event_id, result: Ok(json("81")) },
        Decision::UpdateCompleted { source_event_id, result: Err(json("\"no\"")) },
    ]);
    decisions
}

pub(crate) fn every_ending() -> Vec<Ending> {
    let (output, reason) = (json("\"done\""), || "because".to_owned());
    vec![
        Ending::OrchestrationCompleted { output: output.clone() },
        Ending::OrchestrationFailed { error: output.clone() },
        Ending::OrchestrationContinuedAsNew { input: output, version: Some("3.0.0".to_owned()) },
        Ending::OrchestrationCancelled { reason: reason(), output: Some(json("null")) },
        Ending::OrchestrationTerminated { reason: reason() },
    ]
}
