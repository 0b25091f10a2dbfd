//! How many tasks a node takes (N2, N17), and what it says about those that it ran (H39).

use std::sync::Arc;
use std::time::Duration;

use perennial_core::lane::{CallId, StoreCall, StoreResponse};
use perennial_core::node::{Node, NodeOptions, NodeOutput};
use perennial_core::shard::{ActivityTask, Message, TaskWork};
use perennial_core::store::{
    Changes, Lease, NodeInfo, Served, SessionId, ShardSet, TaskId, TaskRow, TaskState,
};
use perennial_core::{EventId, InstanceKey, Payload, ShardId};

const START: Duration = Duration::from_secs(1);

/// What a node wants done: calls, and tasks to run.
fn wanted(node: &mut Node) -> (Vec<(CallId, StoreCall)>, Vec<ActivityTask>) {
    let (mut calls, mut tasks) = (Vec::new(), Vec::new());
    for output in node.take_outputs() {
        match output {
            NodeOutput::Call(id, call) => calls.push((id, call)),
            NodeOutput::RunTask(task) => tasks.push(*task),
            _ => {}
        }
    }
    (calls, tasks)
}

/// A node whose session is open, while so many activities could run there, and the calls that it makes.
fn opened(free: usize) -> (Node, Vec<(CallId, StoreCall)>) {
    let served = Served { names: ["remote".to_owned()].into(), ..Served::default() };
    let info = NodeInfo { name: "berlin-1".to_owned(), ..NodeInfo::default() };
    let mut node = Node::new(NodeOptions { served, info, ..NodeOptions::default() }, 1, Duration::ZERO);
    let (open, _) = wanted(&mut node).0.pop().expect("it opens its session");
    let lease = StoreResponse::Lease(Lease { now_ms: 1_000, expires_ms: 60_000 });
    node.handle_response(START, open, Ok(lease), free);
    let calls = wanted(&mut node).0;
    (node, calls)
}

/// How many tasks are taken by each call that takes some.
fn limits(calls: &[(CallId, StoreCall)]) -> Vec<usize> {
    let limit = |(_, call): &(CallId, StoreCall)| match call {
        StoreCall::TakeTasks { limit, .. } => Some(*limit),
        _ => None,
    };
    calls.iter().filter_map(limit).collect()
}

fn task(event: u64) -> TaskRow {
    let work = TaskWork {
        activity_id: None,
        instance: "a".to_owned(),
        input: Payload::null(),
        options: None,
        deadline_ms: None,
        queued_ms: 700,
        handed_over: None,
        open: None,
        trace: None,
    };
    TaskRow {
        id: TaskId { key: InstanceKey::new(1, 7), execution: 1, event: EventId(event) },
        shard: ShardId::of("a"),
        attempt: 1,
        state: TaskState::Leased { holder: SessionId(1), cancelled: false },
        due_ms: Some(90_000),
        since_ms: None,
        heard_ms: None,
        details: None,
        interruptions: 0,
        begun: None,
        past: Default::default(),
        name: "remote".to_owned(),
        tag: None,
        work: Some(work.encode()),
    }
}

fn new_tasks() -> Changes {
    Changes { tasks: ShardSet::ALL, ..Changes::default() }
}

#[test]
fn n17_a_node_takes_as_many_tasks_as_it_has_room_for() {
    let (mut node, calls) = opened(3);
    assert_eq!(limits(&calls), [3]);
    let is_take = |(_, call): &&(CallId, StoreCall)| matches!(call, StoreCall::TakeTasks { .. });
    let (take, _) = calls.iter().find(is_take).expect("it takes tasks");
    node.handle_response(START, *take, Ok(StoreResponse::Tasks((2..5).map(task).collect())), 3);
    let (calls, tasks) = wanted(&mut node);
    assert_eq!((limits(&calls).len(), tasks.len()), (0, 3), "all room is taken");
    node.handle_changes(START, &new_tasks(), 0);
    assert!(limits(&wanted(&mut node).0).is_empty(), "there is no room");
    node.handle_changes(START, &new_tasks(), 1);
    assert_eq!(limits(&wanted(&mut node).0), [1]);
}

#[test]
fn n17_a_node_without_room_takes_nothing() {
    let (mut node, calls) = opened(0);
    assert!(limits(&calls).is_empty());
    node.handle_time(START + Duration::from_secs(1), 0);
    assert!(limits(&wanted(&mut node).0).is_empty());
    node.handle_time(START + Duration::from_secs(2), 1_000);
    assert_eq!(limits(&wanted(&mut node).0), [100], "nor more than is bounded");
}

#[test]
fn h39_a_result_says_on_which_node_it_was_made() {
    let (mut node, calls) = opened(1);
    let is_take = |(_, call): &&(CallId, StoreCall)| matches!(call, StoreCall::TakeTasks { .. });
    let (take, _) = calls.iter().find(is_take).expect("it takes tasks");
    node.handle_response(START, *take, Ok(StoreResponse::Tasks(vec![task(2)])), 1);
    let (_, tasks) = wanted(&mut node);
    let ended = START + Duration::from_millis(250);
    node.handle_task_done(ended, &tasks[0], Ok(Payload::from("done")), None);
    let (calls, _) = wanted(&mut node);
    let body: Arc<[u8]> = calls
        .into_iter()
        .find_map(|(_, call)| match call {
            StoreCall::FinishTask { body, .. } => Some(body),
            _ => None,
        })
        .expect("the result is written");
    let Ok(Message::Attempt { ran: Some(ran), .. }) = Message::decode(&body) else { panic!("an attempt") };
    assert_eq!((ran.node.as_str(), ran.queued_ms, ran.took_ms), ("berlin-1", 700, 250));
}

#[test]
fn n17_tasks_of_two_executions_that_wait_to_begin_do_not_take_each_others_place() {
    let (mut node, calls) = opened(2);
    let is_take = |(_, call): &&(CallId, StoreCall)| matches!(call, StoreCall::TakeTasks { .. });
    let (take, _) = calls.iter().find(is_take).expect("it takes tasks");
    // The first execution continued as new meanwhile; the next one schedules its activity under the same event.
    let suspect = |execution| {
        let row = task(2);
        let id = TaskId { execution, ..row.id };
        TaskRow { id, begun: Some(SessionId::NOBODY), ..row }
    };
    node.handle_response(START, *take, Ok(StoreResponse::Tasks(vec![suspect(1), suspect(2)])), 2);
    node.handle_time(START + Duration::from_millis(1), 2);
    let begun = |(_, call): (CallId, StoreCall)| match call {
        StoreCall::RenewTasks { tasks, .. } => {
            tasks.into_iter().map(|report| report.task.execution).collect()
        }
        _ => Vec::new(),
    };
    let executions: Vec<u64> = wanted(&mut node).0.into_iter().flat_map(begun).collect();
    assert_eq!(executions, [1, 2], "the start of each is noted");
}
