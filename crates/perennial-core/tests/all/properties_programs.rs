//! What the other properties rest on: programs do what they say, end, and leave nothing out.

use std::collections::BTreeMap;

use perennial_core::{Decision, Ending, EventKind, Job, Segment, UnitId};
use perennial_testkit::program::{
    ActivityInput, Awaitable, Block, Cancellation, End, Fate, Handler, HandlerKind, Node, Program, Statement,
};
use perennial_testkit::{Case, Drive, Features, ProgramHandler, ProgramInput, Recording, for_each_case};
use serde::Serialize;

#[test]
fn a_program_is_the_orchestration_it_stands_for() {
    let activity =
        |name: &str| Awaitable::Activity { name: name.to_owned(), input: ActivityInput::Fixed, tuned: false };
    let event = |name: &str| Awaitable::Event { name: name.to_owned() };
    let program = Program {
        body: Block(vec![
            Statement::Await(Awaitable::Parallel(vec![
                Block(vec![Statement::Await(activity("left"))]),
                Block(vec![Statement::Await(Awaitable::Timer { delay_ms: 500 })]),
            ])),
            Statement::Hold {
                what: event("never"),
                polled: true,
                meanwhile: Block(vec![Statement::Await(Awaitable::Raced {
                    operands: vec![activity("fast"), activity("slow")],
                    named: true,
                })]),
                fate: Fate::Dropped,
            },
            Statement::Await(Awaitable::Signals { name: "handled".to_owned(), at_least: 1 }),
        ]),
        handlers: vec![Handler {
            name: "handled".to_owned(),
            kind: HandlerKind::Event,
            installed_before: 1,
            body: Block(vec![Statement::SetStatus]),
        }],
        cancellation: Cancellation::LeftToEngine,
        end: End::Complete,
        rounds: 0,
    };
    let mut drive = Drive::start(ProgramHandler::default(), ProgramInput::from(program).payload());
    drive.evict().complete(2, "a").evict().fire(3).evict().complete(7, "b").evict().raise("handled", "c");
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "left" "fixed" in p0"#,
            r#"3 TimerCreated due 1500 in p1"#,
            r#"4 ActivityCompleted of 2 "a""#,
            r#"5 TimerFired of 3"#,
            r#"6 ExternalSubscribed "never""#,
            r#"7 ActivityScheduled "fast" "fixed""#,
            r#"8 ActivityScheduled "slow" "fixed""#,
            r#"9 ActivityCompleted of 7 "b""#,
            r#"10 ExternalUnsubscribed of 6"#,
            r#"11 ActivityCancelRequested of 8"#,
            r#"12 ExternalEvent "handled" "c""#,
            r#"13 StatusSet "9d45259506a13b47" in h0"#,
            r#"14 OrchestrationCompleted "30f31f10995dbd54""#,
        ]
    );
}

const STATEMENTS: [&str; 19] = [
    "RaiseHeard",
    "CancelOther",
    "Await",
    "Hold",
    "If",
    "Repeat",
    "Patched",
    "SideEffect",
    "UtcNow",
    "NewGuid",
    "Random",
    "Look",
    "ReadState",
    "ChangeState",
    "SetStatus",
    "UpsertAttribute",
    "Start",
    "Raise",
    "ContinueAsNew",
];
const AWAITABLES: [&str; 17] = [
    "Uncancellable",
    "Stopped",
    "Attempted",
    "Activity",
    "Timer",
    "Event",
    "Child",
    "Signals",
    "HandlersIdle",
    "Sequence",
    "Parallel",
    "Spawned",
    "Shielded",
    "Joined",
    "TryJoined",
    "Raced",
    "Limited",
];
/// What no history shows: jobs that left no trace, updates that were not accepted.
const UNRECORDED: [&str; 6] = [
    "stale: not open",
    "stale: wrong kind",
    "stale: known key",
    "stale: already cancelling",
    "update refused: no handler",
    "update refused: by its validator",
];
/// What makes a recording a hard one to replay.
const SITUATIONS: [&str; 10] = [
    "turn with several jobs",
    "first turn with jobs",
    "turn without decisions",
    "turn with draws",
    "third execution",
    "successor with carried events",
    "successor with a carried cancel request",
    "cancellation taken over",
    "unit of a branch of a branch",
    "unit below a handler",
];

/// How often things occurred.
#[derive(Debug, Default)]
struct Counts(BTreeMap<String, u64>);

impl Counts {
    fn add(&mut self, what: impl Into<String>, times: u64) {
        *self.0.entry(what.into()).or_default() += times;
    }

    fn assert_each(&self, names: &[&str], at_least: u64) {
        for name in names {
            let times = self.0.get(*name).copied().unwrap_or_default();
            assert!(times >= at_least, "{name} occurred {times} times, not {at_least}: {:#?}", self.0);
        }
    }

    fn program(&mut self, program: &Program) {
        program.walk(&mut |node| match node {
            Node::Statement(statement) => self.add(tag(statement), 1),
            Node::Awaitable(awaitable) => self.add(tag(awaitable), 1),
        });
    }

    fn recording(&mut self, recording: &Recording) {
        recording.unrecorded.iter().for_each(|(what, times)| self.add(*what, *times));
        let mut when = |situation: &str, holds: bool| self.add(situation, u64::from(holds));
        when("third execution", recording.executions.len() > 2);
        for recorded in &recording.executions {
            for turn in &recorded.history {
                when("turn with several jobs", turn.jobs().count() > 1);
                when("first turn with jobs", turn.number == 1 && turn.jobs().next().is_some());
                when("turn without decisions", turn.decisions().next().is_none());
                when("turn with draws", turn.draws > 0);
            }
            let carried = recorded.successor.iter().flat_map(|successor| &successor.jobs);
            for job in carried {
                when("successor with carried events", job.name() == "ExternalEvent");
                when("successor with a carried cancel request", job.name() == "OrchestrationCancelRequested");
            }
            when("cancellation taken over", recorded.views.iter().any(|view| view.took_over_cancellation));
            for event in recorded.history.flatten() {
                when(event.kind.name(), true);
                if let EventKind::Decision { unit, .. } = &event.kind {
                    when("unit of a branch of a branch", is_nested_branch(unit));
                    when("unit below a handler", !unit.is_handler() && is_in_handler(unit));
                }
            }
        }
    }
}

fn is_in_handler(unit: &UnitId) -> bool {
    matches!(unit.segments(), [Segment::Handler(_), ..])
}

fn is_nested_branch(unit: &UnitId) -> bool {
    matches!(unit.segments(), [Segment::Parallel(_), Segment::Parallel(_), ..])
}

/// The name of an enum's variant.
fn tag(value: &impl Serialize) -> String {
    match serde_json::to_value(value).expect("it encodes") {
        serde_json::Value::String(name) => name,
        serde_json::Value::Object(fields) => fields.keys().next().expect("a variant has a name").clone(),
        other => panic!("{other} is no variant"),
    }
}

fn record(case: &Case) -> Recording {
    case.world().run(&case.program).unwrap_or_else(|unfinished| panic!("{unfinished}"))
}

#[test]
fn everything_occurs_in_the_generated_cases() {
    let mut counts = Counts::default();
    let mut cases = 0;
    for_each_case(1_000, &Features::all(), |case| {
        cases += 1;
        counts.program(&case.program);
        counts.recording(&record(case));
    });
    if cases >= 1_000 {
        counts.assert_each(&STATEMENTS, 200);
        counts.assert_each(&AWAITABLES, 100);
        counts.assert_each(&Decision::NAMES, 50);
        counts.assert_each(&Job::NAMES, 100);
        counts.assert_each(&Ending::NAMES, 50);
        counts.assert_each(&UNRECORDED, 10);
        counts.assert_each(&SITUATIONS, 10);
    }
}

#[test]
fn what_is_switched_off_does_not_occur() {
    type Switch = fn(&mut Features);
    let families: [(Switch, &[&str]); 12] = [
        (|on| (on.timers, on.timeouts) = (false, false), &["TimerCreated"]),
        (|on| on.events = false, &["ExternalSubscribed"]),
        (|on| on.children = false, &["SubOrchestrationScheduled", "SubOrchestrationStarted"]),
        (|on| on.starts = false, &["OrchestrationChained"]),
        (|on| on.sent_events = false, &["ExternalEventSent", "CancelSent", "DeliveryReported"]),
        (|on| on.updates = false, &["UpdateRequested", "UpdateCompleted"]),
        (|on| on.system_calls = false, &["SystemCall"]),
        (|on| on.random = false, &["Random"]),
        (|on| on.patches = false, &["PatchMarked"]),
        (|on| on.status = false, &["StatusSet", "AttributesUpserted"]),
        (|on| on.continue_as_new = false, &["OrchestrationContinuedAsNew", "third execution"]),
        (
            |on| *on = Features::none(),
            &[
                "TimerCreated",
                "ActivityCancelRequested",
                "OrchestrationFailed",
                "turn with draws",
                "cancellation taken over",
                "If",
                "Hold",
                "Joined",
                "Raced",
                "Parallel",
            ],
        ),
    ];
    for (switch, absent) in families {
        let mut features = Features::all();
        switch(&mut features);
        let mut counts = Counts::default();
        for_each_case(100, &features, |case| {
            counts.program(&case.program);
            counts.recording(&record(case));
        });
        for name in absent {
            assert_eq!(
                counts.0.get(*name).copied().unwrap_or_default(),
                0,
                "{name} occurs without {features:?}"
            );
        }
    }
}
