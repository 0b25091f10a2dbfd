//! The checkers of I2 and I18 notice every way in which the tasks of an instance can disagree with its row, its history
//! and its inbox. The rows are made by hand.

use std::sync::Arc;

use perennial::Payload;
use perennial::history::{Decision, EventKind, Job, Started};
use perennial::history::{Ending, EventId};
use perennial_core::shard::{Message, Start};
use perennial_core::store::{InstanceRow, SessionId, Status, TaskId, TaskRow, TaskState};
use perennial_testkit::invariants::{ClientLog, StoredInstance, stored_breaches};

use crate::hand_made::{decided, instance, numbers, send, snapshot, started, turns};

/// The event that schedules the activity.
const CALL: EventId = EventId(2);

fn call() -> EventKind {
    decided(Decision::ActivityScheduled {
        name: "work".to_owned(),
        id: None,
        input: Payload::null(),
        options: None,
    })
}

/// An instance that waits for one activity.
fn caller() -> StoredInstance {
    instance(1, "c", &[turns(vec![(10, vec![EventKind::Started(Box::new(started("caller"))), call()])])])
}

fn task(state: TaskState, due_ms: Option<u64>) -> TaskRow {
    let InstanceRow { key, shard, .. } = caller().row;
    TaskRow {
        id: TaskId { key, execution: 1, event: CALL },
        shard,
        attempt: 2,
        state,
        due_ms,
        since_ms: None,
        heard_ms: None,
        details: None,
        interruptions: 0,
        begun: None,
        past: Default::default(),
        name: "work".to_owned(),
        tag: None,
        work: Some(Arc::from(*b"{}")),
    }
}

fn leased(cancelled: bool) -> TaskState {
    TaskState::Leased { holder: SessionId(7), cancelled }
}

/// The instance with a task, and what its row says.
fn with(task: Option<TaskRow>, owed: bool, wake_at_ms: Option<u64>) -> StoredInstance {
    let mut caller = caller();
    caller.tasks = Some(task.into_iter().collect());
    (caller.row.owed, caller.row.wake_at_ms) = (owed, wake_at_ms);
    caller
}

fn found(instance: StoredInstance) -> Vec<&'static str> {
    numbers(&stored_breaches(&snapshot(vec![instance]), &ClientLog::default()))
}

#[test]
fn i2_an_activity_without_a_row_is_owed() {
    assert_eq!(found(with(None, true, None)), [""; 0]);
    assert_eq!(found(with(None, false, Some(5))), ["I2"]);
    let unseen = StoredInstance { tasks: None, ..with(None, false, Some(5)) };
    assert_eq!(found(unseen), [""; 0], "nobody could look");
}

#[test]
fn i2_a_waiting_task_is_not_owed_and_its_instance_is_woken_in_time() {
    let waiting = || Some(task(TaskState::Waiting, Some(500)));
    assert_eq!(found(with(waiting(), false, Some(500))), [""; 0]);
    assert_eq!(found(with(waiting(), false, Some(400))), [""; 0], "early costs a look");
    assert_eq!(found(with(waiting(), false, Some(501))), ["I2"]);
    assert_eq!(found(with(waiting(), false, None)), ["I2"]);
    assert_eq!(found(with(waiting(), true, Some(500))), ["I2"], "nobody has to look after it before");
    assert_eq!(
        found(with(Some(task(TaskState::Waiting, None)), false, None)),
        ["I2"],
        "it would wait for ever"
    );
}

#[test]
fn i2_a_queued_task_says_what_to_do_and_when_it_is_given_up() {
    assert_eq!(found(with(Some(task(TaskState::Queued, None)), false, None)), [""; 0]);
    assert_eq!(found(with(Some(task(TaskState::Queued, Some(500))), false, Some(500))), [""; 0]);
    assert_eq!(found(with(Some(task(TaskState::Queued, Some(500))), false, None)), ["I2"]);
    let mute = TaskRow { work: None, ..task(TaskState::Queued, None) };
    assert_eq!(found(with(Some(mute), false, None)), ["I2"]);
}

#[test]
fn i2_a_task_that_the_owner_runs_is_owed_and_one_of_another_node_is_not() {
    assert_eq!(found(with(Some(task(leased(false), None)), true, None)), [""; 0]);
    assert_eq!(found(with(Some(task(leased(false), None)), false, None)), ["I2"]);
    assert_eq!(found(with(Some(task(leased(false), Some(500))), false, None)), [""; 0]);
    assert_eq!(found(with(Some(task(leased(false), Some(500))), true, None)), ["I2"]);
}

#[test]
fn i2_a_result_on_its_way_stands_for_its_row() {
    let with_result = |execution: u64, owed: bool| {
        let mut caller = with(None, owed, None);
        let result = Ok(Payload::null());
        let result =
            Message::Attempt { execution, event: CALL, attempt: 2, result, details: None, ran: None };
        send(&mut caller, &result);
        found(caller)
    };
    assert_eq!((with_result(1, false), with_result(1, true)), (vec![], vec![]));
    assert_eq!(with_result(2, false), ["I2"], "it is another execution's");
}

#[test]
fn i2_a_task_belongs_to_an_open_activity_or_is_marked() {
    let done = |task: TaskRow| {
        let result = Job::ActivityCompleted {
            source_event_id: CALL,
            result: Payload::null(),
            attempts: 2,
            trail: Default::default(),
        };
        let begin = EventKind::Started(Box::new(started("caller")));
        let wait = Decision::ExternalSubscribed { name: "go".to_owned() };
        let given = vec![(10, vec![begin, call()]), (20, vec![EventKind::Job(result), decided(wait)])];
        StoredInstance { tasks: Some(vec![task]), ..instance(1, "c", &[turns(given)]) }
    };
    for state in [TaskState::Waiting, TaskState::Queued, leased(false)] {
        let mut left = done(task(state, Some(500)));
        left.row.wake_at_ms = Some(500);
        assert_eq!(found(left), ["I2"], "{state:?}");
    }
    assert_eq!(found(done(task(leased(true), Some(500)))), [""; 0], "its holder is yet to learn it");
    assert_eq!(found(done(task(leased(true), None))), ["I2"], "the owner itself knows");
    let stranger = TaskRow { name: "other".to_owned(), ..task(TaskState::Queued, None) };
    assert_eq!(found(with(Some(stranger), false, None)), ["I2"]);
}

#[test]
fn i18_an_ended_execution_leaves_no_task_that_is_not_marked() {
    let ended = |task: TaskRow| {
        let begin = EventKind::Started(Box::new(started("caller")));
        let end = EventKind::Ended(Ending::OrchestrationCompleted { output: Payload::null() });
        let mut ended = instance(1, "c", &[turns(vec![(10, vec![begin, call(), end])])]);
        assert_eq!(ended.row.status, Status::Completed);
        ended.tasks = Some(vec![task]);
        found(ended)
    };
    assert_eq!(ended(task(TaskState::Waiting, Some(500))), ["I18"]);
    assert_eq!(ended(task(leased(false), Some(500))), ["I18"]);
    assert_eq!(ended(task(leased(true), Some(500))), [""; 0]);
    let mut earlier = task(TaskState::Waiting, Some(500));
    earlier.id.execution = 9;
    let mut rows = snapshot(vec![with(None, true, None)]);
    rows.rows.as_mut().unwrap().tasks.push((&earlier).into());
    assert_eq!(numbers(&stored_breaches(&rows, &ClientLog::default())), ["I18"], "of another execution");
}

#[test]
fn i2_a_deadline_a_grace_and_a_delayed_start_are_woken_in_time() {
    let timed = |wake_at_ms: Option<u64>| {
        let begin = Started { deadline_ms: Some(900), ..started("caller") };
        let events = vec![EventKind::Started(Box::new(begin)), call()];
        let mut caller = instance(1, "c", &[turns(vec![(10, events)])]);
        (caller.row.owed, caller.row.wake_at_ms) = (true, wake_at_ms);
        found(caller)
    };
    assert_eq!((timed(Some(900)), timed(Some(901)), timed(None)), (vec![], vec!["I2"], vec!["I2"]));

    let cancelled = |wake_at_ms: Option<u64>| {
        let begin = EventKind::Started(Box::new(started("caller")));
        let cancel = Job::OrchestrationCancelRequested { reason: "enough".to_owned(), grace_ms: 700 };
        let given = vec![(10, vec![begin, call()]), (20, vec![EventKind::Job(cancel)])];
        let mut caller = instance(1, "c", &[turns(given)]);
        (caller.row.owed, caller.row.wake_at_ms) = (true, wake_at_ms);
        found(caller)
    };
    // When its grace ends is known to its owner alone, who knows the times in which nobody owned it.
    assert_eq!((cancelled(Some(9_000)), cancelled(None)), (vec![], vec!["I2"]));

    let delayed = |wake_at_ms: Option<u64>| {
        let mut unborn =
            instance(1, "c", &[turns(vec![(1, vec![EventKind::Started(Box::new(started("c")))])])]);
        unborn.executions.insert(1, Vec::new());
        (unborn.row.status, unborn.row.wake_at_ms) = (Status::Pending, wake_at_ms);
        let start = Start { not_before_ms: Some(600), ..Start::new(started("c")) };
        send(&mut unborn, &Message::Start(Box::new(start)));
        found(unborn)
    };
    assert_eq!((delayed(Some(600)), delayed(Some(601)), delayed(None)), (vec![], vec!["I2"], vec!["I2"]));
}
