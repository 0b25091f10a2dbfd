//! The texts of all kinds of waits, as people read them.

use perennial_core::EventId;
use perennial_core::store::Status;

use super::text::{line, remedy, short, span};
use super::wait::{ActivityState, ActivityWait, Explanation, FailedAttempt, Wait, WaitReason};

/// Monday 2026-11-16, 14:02:02 UTC.
const NOW_MS: u64 = 1_794_837_722_000;
const HOUR: u64 = 3_600_000;

fn ago(ms: u64) -> u64 {
    NOW_MS - ms
}

fn activity(attempt: u32, state: ActivityState) -> ActivityWait {
    ActivityWait {
        id: None,
        name: "charge".to_owned(),
        event: EventId(12),
        tag: None,
        scheduled_ms: ago(20_000),
        attempt,
        max_attempts: Some(5),
        deadline_ms: None,
        failed: None,
        interruptions: 0,
        stopping: false,
        state,
    }
}

fn failed(activity: ActivityWait) -> ActivityWait {
    let failed = FailedAttempt { at_ms: ago(20_000), error: "card service 503".to_owned(), node: None };
    ActivityWait { failed: Some(failed), ..activity }
}

fn running(heard_ms: Option<u64>, details: Option<&str>) -> ActivityState {
    let (node, details) = ("node-2".to_owned(), details.map(str::to_owned));
    ActivityState::Running { node, since_ms: Some(ago(20_000)), heard_ms, details }
}

fn activities() -> Vec<ActivityWait> {
    let held = ActivityState::Held { due_ms: NOW_MS + 60_000 };
    let elsewhere = FailedAttempt {
        at_ms: ago(1_000),
        error: "timeout: attempt".to_owned(),
        node: Some("node-2".to_owned()),
    };
    vec![
        activity(1, ActivityState::WithOwner { node: "node-1".to_owned(), since_ms: ago(20_000) }),
        activity(1, running(Some(ago(2_000)), Some("40 %"))),
        ActivityWait { max_attempts: None, stopping: true, ..activity(9, running(None, None)) },
        activity(
            2,
            ActivityState::Interrupted { node: Some("node-2".to_owned()), since_ms: Some(ago(5_000)) },
        ),
        activity(2, ActivityState::Interrupted { node: None, since_ms: None }),
        activity(1, ActivityState::NotStarted),
        failed(activity(4, ActivityState::Retry { due_ms: NOW_MS + 8_000 })),
        ActivityWait { failed: Some(elsewhere), ..activity(2, ActivityState::Retry { due_ms: NOW_MS }) },
        ActivityWait { interruptions: 3, ..activity(1, held) },
        failed(activity(2, ActivityState::Due { since_ms: ago(500) })),
        activity(
            1,
            ActivityState::Queued {
                since_ms: Some(ago(90_000)),
                nodes: vec!["node-1".to_owned(), "node-2".to_owned()],
                queued: 41,
            },
        ),
        activity(1, ActivityState::NotRegistered { since_ms: Some(ago(90_000)), nodes: 2 }),
        activity(1, ActivityState::NotRegistered { since_ms: None, nodes: 0 }),
        ActivityWait {
            tag: Some("gpu".to_owned()),
            ..activity(1, ActivityState::NotRegistered { since_ms: Some(ago(90_000)), nodes: 2 })
        },
        activity(1, ActivityState::Token { since_ms: ago(HOUR), gives_up_ms: Some(NOW_MS + HOUR) }),
        activity(1, ActivityState::Token { since_ms: ago(HOUR), gives_up_ms: None }),
    ]
}

fn child(status: Option<Status>, waits: Vec<WaitReason>) -> WaitReason {
    let (id, name, since_ms) = ("order-42::1.3".to_owned(), "parcel".to_owned(), ago(HOUR));
    let waits = waits.into_iter().map(|reason| Wait::new(reason, NOW_MS)).collect();
    WaitReason::Child { id, name, event: EventId(3), since_ms, status, waits }
}

fn event(gives_up_ms: Option<u64>) -> WaitReason {
    let name = "approved".to_owned();
    WaitReason::Event { name, event: EventId(4), since_ms: ago(3 * HOUR), gives_up_ms }
}

fn timer(due_ms: u64) -> WaitReason {
    WaitReason::Timer { event: EventId(5), due_ms }
}

fn paused(reason: &str, by: Option<&str>, orchestration: bool) -> WaitReason {
    let (reason, by) = (reason.to_owned(), by.map(str::to_owned));
    WaitReason::Paused { since_ms: ago(7_322_000), reason, by, orchestration }
}

fn not_registered(version: &str, registered: &[&str]) -> WaitReason {
    let registered = registered.iter().map(|version| (*version).to_owned()).collect();
    WaitReason::OrchestrationNotRegistered {
        name: "order".to_owned(),
        version: version.to_owned(),
        registered,
    }
}

fn reasons() -> Vec<WaitReason> {
    let nested = child(Some(Status::Running), vec![event(None), timer(NOW_MS + 1)]);
    let mut reasons = vec![
        WaitReason::NoRuntime { since_ms: Some(ago(7_142_000)), due: true },
        WaitReason::NoRuntime { since_ms: None, due: false },
        WaitReason::NoOwner { since_ms: Some(ago(3_000)) },
        WaitReason::NoOwner { since_ms: None },
        paused("an incident", Some("ada"), false),
        paused("", None, true),
        WaitReason::Blocked {
            code: "PER-0203".to_owned(),
            reason: "PER-0203 nondeterminism: turn 3".to_owned(),
            since_ms: ago(65_000),
            attempts: 1,
        },
        not_registered("1.2.0", &["1.1.0", "2.0.0"]),
        not_registered("", &[]),
        WaitReason::Start { due_ms: NOW_MS + 42 * HOUR },
        WaitReason::Messages { count: 1, more: false, since_ms: ago(250) },
        WaitReason::Messages { count: 100, more: true, since_ms: ago(61_000) },
        WaitReason::Full,
        WaitReason::Cancellation {
            reason: "no stock".to_owned(),
            since_ms: ago(10_000),
            until_ms: NOW_MS + 20_000,
        },
        event(Some(NOW_MS + 21 * HOUR)),
        event(None),
        timer(1_795_420_800_000),
        timer(ago(1_000)),
        timer(u64::MAX),
        child(None, Vec::new()),
        child(Some(Status::Completed), Vec::new()),
        child(Some(Status::Running), Vec::new()),
        child(Some(Status::Running), vec![nested]),
        child(Some(Status::Running), vec![paused("an incident", None, false)]),
        WaitReason::Update { name: "add".to_owned(), event: EventId(6), since_ms: ago(1_500) },
        WaitReason::Delivery { to: "order-7".to_owned(), event: EventId(7), since_ms: ago(1_500) },
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
            format!("{}\n    short: {}{remedy}", line(reason, NOW_MS), short(reason, NOW_MS))
        })
        .collect();
    insta::assert_snapshot!(described.join("\n"));
}

#[test]
fn h42_waits_are_read_back_from_json_as_they_were_written() {
    let waits: Vec<Wait> = reasons().into_iter().map(|reason| Wait::new(reason, NOW_MS)).collect();
    let json: Vec<String> = waits.iter().map(|wait| serde_json::to_string(wait).unwrap()).collect();
    for (wait, json) in waits.iter().zip(&json) {
        assert_eq!(serde_json::from_str::<Wait>(json).unwrap(), *wait, "{json}");
    }
    insta::assert_snapshot!(json.join("\n"));
}

#[test]
fn h42_an_explanation_has_a_line_for_each_wait_and_fits_into_a_column() {
    let (id, key) = ("a".to_owned(), perennial_core::InstanceKey::new(1, 1));
    let waits = [event(None), timer(NOW_MS + 60_000)].map(|reason| Wait::new(reason, NOW_MS)).to_vec();
    let open = Explanation { id, key, status: Status::Running, at_ms: NOW_MS, waits, more: 7 };
    assert_eq!(
        open.to_string(),
        "event `approved` for 3 h\ntimer until 2026-11-16T14:03:02Z (in 1 min)\nand 7 more"
    );
    assert_eq!((open.short().as_str(), open.is_stuck()), ("event approved (+8)", false));
    let ended = Explanation { status: Status::Cancelled, waits: Vec::new(), more: 0, ..open };
    assert_eq!((ended.to_string().as_str(), ended.short().as_str()), ("nothing: it has been cancelled", ""));
}

#[test]
fn h42_lengths_of_time_are_written_in_their_two_largest_units() {
    let spans = [0, 999, 59_999, 60_000, 61_000, HOUR, 25 * HOUR, 24 * HOUR, u64::MAX].map(span);
    let expected =
        ["0 ms", "999 ms", "59 s", "1 min", "1 min 1 s", "1 h", "1 d 1 h", "1 d", "213503982334 d 14 h"];
    assert_eq!(spans, expected);
}

#[test]
fn h42_texts_of_users_are_shortened_to_one_line() {
    let long = format!("first\nsecond {}", "é".repeat(5_000));
    let failed = FailedAttempt { at_ms: ago(1), error: long, node: None };
    let retry = activity(2, ActivityState::Retry { due_ms: NOW_MS });
    let line = line(&WaitReason::Activity(ActivityWait { failed: Some(failed), ..retry }), NOW_MS);
    assert!(line.contains("with first second é") && line.contains("…, next now"), "{line}");
    assert!(line.chars().count() < 300 && !line.contains('\n'), "{line}");
}
