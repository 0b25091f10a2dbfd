//! The checker of I13 notices each way in which a parent and its child can disagree. The rows are made by hand.

use perennial::history::ChildError;
use perennial::history::{Decision, EventKind, Job, Started, Turn};
use perennial::history::{Ending, EventId, ParentLink};
use perennial::{ClosePolicy, Payload};
use perennial_core::shard::{Message, Start};
use perennial_testkit::invariants::{ClientLog, Snapshot, StoredInstance, StoredRows, stored_breaches};

use crate::hand_made::{decided, instance, key, numbers, send, snapshot, started, turns};

/// The event that schedules the child.
const SCHEDULE: EventId = EventId(2);

fn link() -> ParentLink {
    ParentLink { instance: "p".to_owned(), key: key(1).to_string(), execution: 1, event_id: SCHEDULE }
}

fn begun_parent() -> (u64, Vec<EventKind>) {
    let scheduled = Decision::SubOrchestrationScheduled {
        name: "child".to_owned(),
        version: None,
        instance: None,
        input: "input".into(),
        close: ClosePolicy::Cancel,
        options: None,
    };
    (10, vec![EventKind::Started(Box::new(started("parent"))), decided(scheduled)])
}

/// A parent that waits for its child.
fn waiting() -> StoredInstance {
    instance(1, "p", &[turns(vec![begun_parent()])])
}

/// A parent that was told something, and ended.
fn told(outcome: Job) -> StoredInstance {
    let end = EventKind::Ended(Ending::OrchestrationCompleted { output: Payload::null() });
    instance(1, "p", &[turns(vec![begun_parent(), (30, vec![EventKind::Job(outcome), end])])])
}

fn child_started() -> Started {
    Started { parent: Some(link()), ..started("child") }
}

fn child_turns(started: Started, ending: Option<Ending>) -> Vec<Turn> {
    let mut events = vec![EventKind::Started(Box::new(started))];
    events.extend(ending.map(EventKind::Ended));
    turns(vec![(20, events)])
}

fn child(ending: Option<Ending>) -> StoredInstance {
    let mut child = instance(2, "p::1.2", &[child_turns(child_started(), ending.clone())]);
    // One that runs on has a timer's look coming, say.
    child.row.wake_at_ms = ending.is_none().then_some(1_000);
    child
}

fn completed(output: &str) -> Option<Ending> {
    Some(Ending::OrchestrationCompleted { output: output.into() })
}

fn result(result: &str) -> Job {
    Job::SubOrchestrationCompleted { source_event_id: SCHEDULE, result: result.into() }
}

fn failure(error: ChildError) -> Job {
    Job::SubOrchestrationFailed { source_event_id: SCHEDULE, error }
}

fn not_started() -> Job {
    failure(ChildError::NotStarted { reason: "its id is taken".to_owned() })
}

/// The message that brings an outcome.
fn on_its_way(job: Job) -> Message {
    Message::Outcome { execution: 1, job }
}

#[track_caller]
fn assert_sound(snapshot: &Snapshot) {
    let found = stored_breaches(snapshot, &ClientLog::default());
    assert!(found.is_empty(), "{found:#?}");
}

#[track_caller]
fn assert_broken(snapshot: &Snapshot) {
    let found = stored_breaches(snapshot, &ClientLog::default());
    assert!(numbers(&found).contains(&"I13"), "a breach of I13 went unnoticed: {found:#?}");
}

#[test]
fn i13_families_in_order_are_left_in_peace() {
    assert_sound(&snapshot(vec![told(result("x")), child(completed("x"))]));
    assert_sound(&snapshot(vec![waiting(), child(None)]));
    assert_sound(&snapshot(vec![told(not_started())]));
    let endings = [
        (Ending::OrchestrationFailed { error: "e".into() }, ChildError::Application("e".into())),
        (
            Ending::OrchestrationCancelled { reason: "r".into(), output: None },
            ChildError::Cancelled { reason: "r".into(), output: None },
        ),
        (
            Ending::OrchestrationTerminated { reason: "r".into() },
            ChildError::Terminated { reason: "r".into() },
        ),
    ];
    for (ending, error) in endings {
        assert_sound(&snapshot(vec![told(failure(error)), child(Some(ending))]));
    }
    // The outcome is on its way; the start is on its way.
    let mut parent = waiting();
    send(&mut parent, &on_its_way(result("x")));
    assert_sound(&snapshot(vec![parent, child(completed("x"))]));
    let mut unborn = snapshot(vec![waiting()]);
    let start = Message::Start(Box::new(Start::new(child_started()))).encode();
    unborn.rows.as_mut().unwrap().inbox.push((key(2), start));
    assert_sound(&unborn);
}

#[test]
fn i13_a_second_child_of_one_schedule_is_noticed() {
    let second = instance(3, "p::1.2 again", &[child_turns(child_started(), completed("x"))]);
    assert_broken(&snapshot(vec![told(result("x")), child(completed("x")), second]));
}

#[test]
fn i13_an_outcome_that_is_not_the_childs_end_is_noticed() {
    assert_broken(&snapshot(vec![told(result("y")), child(completed("x"))]));
    assert_broken(&snapshot(vec![told(result("x")), child(None)]));
    let as_failed = failure(ChildError::Application("x".into()));
    assert_broken(&snapshot(vec![told(as_failed), child(completed("x"))]));
    assert_broken(&snapshot(vec![told(not_started()), child(completed("x"))]));
}

#[test]
fn i13_the_outcome_of_a_child_that_does_not_exist_is_noticed_unless_it_was_deleted() {
    let childless = snapshot(vec![told(result("x"))]);
    assert_broken(&childless);
    let mut log = ClientLog::default();
    log.deleted("p::1.2");
    assert_eq!(stored_breaches(&childless, &log), []);
}

#[test]
fn i13_an_outcome_that_is_lost_or_doubled_is_noticed() {
    assert_broken(&snapshot(vec![waiting(), child(completed("x"))]));
    let mut parent = waiting();
    send(&mut parent, &Message::Job(event_of_nobody()));
    assert_broken(&snapshot(vec![parent, child(completed("x"))]));
    let mut parent = waiting();
    send(&mut parent, &on_its_way(result("x")));
    send(&mut parent, &on_its_way(result("x")));
    assert_broken(&snapshot(vec![parent, child(completed("x"))]));
}

/// Mail that has nothing to do with the child.
fn event_of_nobody() -> Job {
    crate::hand_made::event("hello")
}

#[test]
fn i13_a_child_that_nobody_starts_is_noticed() {
    let alone = Snapshot { rows: Some(StoredRows::default()), ..snapshot(vec![waiting()]) };
    assert_broken(&alone);
    assert_sound(&Snapshot { rows: None, ..alone });
}

#[test]
fn i13_a_child_that_is_not_what_its_parent_scheduled_is_noticed() {
    let changed = |id: &str, change: &dyn Fn(&mut Started)| {
        let mut started = child_started();
        change(&mut started);
        let child = instance(2, id, &[child_turns(started, completed("x"))]);
        snapshot(vec![told(result("x")), child])
    };
    assert_sound(&changed("p::1.2", &|_| {}));
    assert_broken(&changed("p::1.3", &|_| {}));
    assert_broken(&changed("p::1.2", &|started| started.name = "stranger".to_owned()));
    assert_broken(&changed("p::1.2", &|started| started.input = "other".into()));
    assert_broken(&changed("p::1.2", &|started| started.parent.as_mut().unwrap().event_id = EventId(1)));
    // Its row knows its parent, its history does not.
    let mut orphan = instance(2, "p::1.2", &[child_turns(started("child"), completed("x"))]);
    orphan.row.parent = Some(link());
    assert_broken(&snapshot(vec![told(result("x")), orphan]));
}

#[test]
fn i13_a_child_keeps_its_parent_through_continue_as_new() {
    let continued = Ending::OrchestrationContinuedAsNew { input: "more".into(), version: None };
    let first = child_turns(child_started(), Some(continued));
    let next = |parent: Option<ParentLink>| Started {
        execution: 2,
        input: "more".into(),
        predecessor_at_ms: Some(20),
        parent,
        ..started("child")
    };
    let second = |parent| instance(2, "p::1.2", &[first.clone(), child_turns(next(parent), completed("x"))]);
    assert_sound(&snapshot(vec![told(result("x")), second(Some(link()))]));
    assert_broken(&snapshot(vec![told(result("y")), second(Some(link()))]));
    let mut forgetful = second(None);
    forgetful.row.parent = Some(link());
    assert_broken(&snapshot(vec![told(result("x")), forgetful]));
}
