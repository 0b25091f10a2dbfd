//! The texts of all kinds of waits.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial_core::store::Status;
use perennial_core::{EventId, Timestamp};

use super::text::{line, remedy, short, span};
use super::wait::{ActivityState, ActivityWait, Explanation, FailedAttempt, Wait, WaitReason};

/// Monday 2026-11-16, 14:02:02 UTC.
const NOW: Timestamp = Timestamp::from_millis(1_794_837_722_000);
const HOUR: u64 = 3_600_000;

fn ago(ms: u64) -> Timestamp {
    NOW - Duration::from_millis(ms)
}

fn later(ms: u64) -> Timestamp {
    NOW + Duration::from_millis(ms)
}

fn activity(attempt: u32, state: ActivityState) -> ActivityWait {
    ActivityWait {
        id: None,
        name: "charge".to_owned(),
        event: EventId(12),
        tag: None,
        scheduled: ago(20_000),
        attempt,
        max_attempts: Some(5),
        deadline: None,
        failed: None,
        interruptions: 0,
        stopping: false,
        state,
    }
}

fn failed(activity: ActivityWait) -> ActivityWait {
    let failed = FailedAttempt { at: ago(20_000), error: "card service 503".to_owned(), node: None };
    ActivityWait { failed: Some(failed), ..activity }
}

fn running(heard: Option<Timestamp>, details: Option<&str>) -> ActivityState {
    let (node, details) = ("node-2".to_owned(), details.map(str::to_owned));
    ActivityState::Running { node, since: Some(ago(20_000)), heard, details }
}

fn activities() -> Vec<ActivityWait> {
    let held = ActivityState::Held { due: later(60_000) };
    let elsewhere = FailedAttempt {
        at: ago(1_000),
        error: "timeout: attempt".to_owned(),
        node: Some("node-2".to_owned()),
    };
    vec![
        activity(1, ActivityState::WithOwner { node: "node-1".to_owned(), since: ago(20_000) }),
        activity(1, running(Some(ago(2_000)), Some("40 %"))),
        ActivityWait { max_attempts: None, stopping: true, ..activity(9, running(None, None)) },
        activity(2, ActivityState::Interrupted { node: Some("node-2".to_owned()), since: Some(ago(5_000)) }),
        activity(2, ActivityState::Interrupted { node: None, since: None }),
        activity(1, ActivityState::NotStarted),
        failed(activity(4, ActivityState::Retry { due: later(8_000) })),
        ActivityWait { failed: Some(elsewhere), ..activity(2, ActivityState::Retry { due: NOW }) },
        ActivityWait { interruptions: 3, ..activity(1, held) },
        failed(activity(2, ActivityState::Due { since: ago(500) })),
        activity(
            1,
            ActivityState::Queued {
                since: Some(ago(90_000)),
                nodes: vec!["node-1".to_owned(), "node-2".to_owned()],
                queued: 41,
            },
        ),
        activity(1, ActivityState::NotRegistered { since: Some(ago(90_000)), nodes: 2 }),
        activity(1, ActivityState::NotRegistered { since: None, nodes: 0 }),
        ActivityWait {
            tag: Some("gpu".to_owned()),
            ..activity(1, ActivityState::NotRegistered { since: Some(ago(90_000)), nodes: 2 })
        },
        activity(1, ActivityState::Token { since: ago(HOUR), gives_up: Some(later(HOUR)) }),
        activity(1, ActivityState::Token { since: ago(HOUR), gives_up: None }),
    ]
}

fn child(status: Option<Status>, waits: Vec<WaitReason>) -> WaitReason {
    let (id, name, since) = ("order-42::1.3".to_owned(), "parcel".to_owned(), ago(HOUR));
    let waits = waits.into_iter().map(|reason| Wait::new(reason, NOW)).collect();
    WaitReason::Child { id, name, event: EventId(3), since, status, waits }
}

fn event(timer: Option<Timestamp>) -> WaitReason {
    let name = "approved".to_owned();
    WaitReason::Event { name, event: EventId(4), since: ago(3 * HOUR), timer }
}

fn timer(due: Timestamp) -> WaitReason {
    WaitReason::Timer { event: EventId(5), due }
}

fn paused(reason: &str, by: Option<&str>, orchestration: bool) -> WaitReason {
    let (reason, by) = (reason.to_owned(), by.map(str::to_owned));
    WaitReason::Paused { since: ago(7_322_000), reason, by, orchestration }
}

fn not_registered(version: &str, registered: &[&str]) -> WaitReason {
    let registered = registered.iter().map(|version| (*version).to_owned()).collect();
    WaitReason::OrchestrationNotRegistered {
        name: "order".to_owned(),
        version: version.to_owned(),
        registered,
        similar: None,
    }
}

fn reasons() -> Vec<WaitReason> {
    let nested = child(Some(Status::Running), vec![event(None), timer(later(1))]);
    let mut reasons = vec![
        WaitReason::NoRuntime { since: Some(ago(7_142_000)), has_work: true },
        WaitReason::NoRuntime { since: None, has_work: false },
        WaitReason::NoOwner { since: Some(ago(3_000)) },
        WaitReason::NoOwner { since: None },
        paused("an incident", Some("ada"), false),
        paused("", None, true),
        WaitReason::Blocked {
            code: "PER-0203".to_owned(),
            reason: "PER-0203 nondeterminism: turn 3".to_owned(),
            since: ago(65_000),
            attempts: 1,
        },
        WaitReason::Blocked {
            code: "PER-0999".to_owned(),
            reason: "PER-0999 written by a newer version".to_owned(),
            since: ago(65_000),
            attempts: 2,
        },
        not_registered("1.2.0", &["1.1.0", "2.0.0"]),
        not_registered("", &[]),
        WaitReason::Start { due: later(42 * HOUR) },
        WaitReason::Messages { count: 1, more: false, since: ago(250) },
        WaitReason::Messages { count: 100, more: true, since: ago(61_000) },
        WaitReason::Full,
        WaitReason::Cancellation { reason: "no stock".to_owned(), since: ago(10_000), until: later(20_000) },
        event(Some(later(21 * HOUR))),
        event(Some(ago(1))),
        event(None),
        timer(Timestamp::from_millis(1_795_420_800_000)),
        timer(ago(1_000)),
        timer(Timestamp::MAX),
        child(None, Vec::new()),
        child(Some(Status::Completed), Vec::new()),
        child(Some(Status::Running), Vec::new()),
        child(Some(Status::Pending), Vec::new()),
        child(Some(Status::Running), vec![nested]),
        child(Some(Status::Running), vec![paused("an incident", None, false)]),
        WaitReason::Update { name: "add".to_owned(), event: EventId(6), since: ago(1_500) },
        WaitReason::Delivery { to: "order-7".to_owned(), event: EventId(7), since: ago(1_500) },
        WaitReason::Condition,
        WaitReason::Unread { problem: "PER-0101 corrupt history: turn 2".to_owned(), too_long: false },
        WaitReason::Unread { problem: "its history has more than 200000 turns".to_owned(), too_long: true },
    ];
    reasons.extend(activities().into_iter().map(WaitReason::Activity));
    reasons
}

#[test]
fn h42_every_wait_has_a_line_a_short_form_and_a_remedy_if_it_is_stuck() {
    let described: Vec<String> = reasons()
        .iter()
        .map(|reason| {
            let remedy = remedy(reason).map_or_else(String::new, |remedy| format!("\n    remedy: {remedy}"));
            format!("{}\n    short: {}{remedy}", line(reason, NOW), short(reason, NOW))
        })
        .collect();
    insta::assert_snapshot!(described.join("\n"));
}

#[test]
fn h42_waits_are_read_back_from_json_as_they_were_written() {
    let waits: Vec<Wait> = reasons().into_iter().map(|reason| Wait::new(reason, NOW)).collect();
    let json: Vec<String> = waits.iter().map(|wait| serde_json::to_string(wait).unwrap()).collect();
    for (wait, json) in waits.iter().zip(&json) {
        assert_eq!(serde_json::from_str::<Wait>(json).unwrap(), *wait, "{json}");
    }
    insta::assert_snapshot!(json.join("\n"));
}

#[test]
fn h42_an_explanation_has_a_line_for_each_wait_and_fits_into_a_column() {
    let (id, key) = ("a".to_owned(), perennial_core::InstanceKey::new(1, 1));
    let waits = [event(None), timer(later(60_000))].map(|reason| Wait::new(reason, NOW)).to_vec();
    let untaken_events = BTreeMap::from([("aproved".to_owned(), 2), ("paid".to_owned(), 1)]);
    let ending = None;
    let open = Explanation {
        id,
        key,
        status: Status::Running,
        at: NOW,
        waits,
        more: 7,
        untaken_events,
        ending,
        history_bytes: None,
    };
    assert_eq!(
        open.to_string(),
        "event `approved` for 3 h\ntimer until 2026-11-16T14:03:02Z (in 1 min)\nand 7 more\nevents that no wait has taken, so \
         they are unread unless a handler takes them: `aproved` (2), `paid` (1)"
    );
    assert_eq!((open.short().as_str(), open.is_stuck()), ("event approved (+8)", false));
    let ended = Explanation { status: Status::Cancelled, waits: Vec::new(), more: 0, ..open };
    assert_eq!((ended.to_string().as_str(), ended.short().as_str()), ("nothing: it has been cancelled", ""));
    let ending = Some("the card was declined".to_owned());
    let failed = Explanation { status: Status::Failed, ending, ..ended };
    assert_eq!(failed.to_string(), "nothing: it has failed: the card was declined");
}

#[test]
fn h42_lengths_of_time_are_written_in_their_two_largest_units() {
    let spans = [0, 999, 59_999, 60_000, 61_000, HOUR, 25 * HOUR, 24 * HOUR, u64::MAX]
        .map(Duration::from_millis)
        .map(span);
    let expected =
        ["0 ms", "999 ms", "59 s", "1 min", "1 min 1 s", "1 h", "1 d 1 h", "1 d", "213503982334 d 14 h"];
    assert_eq!(spans, expected);
}

#[test]
fn h42_texts_of_users_are_shortened_to_one_line() {
    let long = format!("first\nsecond {}", "é".repeat(5_000));
    let failed = FailedAttempt { at: ago(1), error: long, node: None };
    let retry = activity(2, ActivityState::Retry { due: NOW });
    let line = line(&WaitReason::Activity(ActivityWait { failed: Some(failed), ..retry }), NOW);
    assert!(line.contains("with first second é") && line.contains("…, next now"), "{line}");
    assert!(line.chars().count() < 300 && !line.contains('\n'), "{line}");
}
