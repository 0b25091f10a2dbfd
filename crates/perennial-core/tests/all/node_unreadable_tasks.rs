//! Tasks that a node took and cannot read (E3, G22).

use std::sync::Arc;
use std::time::Duration;

use perennial_core::EventId;
use perennial_core::lane::{CallId, StoreCall, StoreResponse};
use perennial_core::node::{Node, NodeOptions, NodeOutput};
use perennial_core::shard::Message;
use perennial_core::store::{Lease, Served, SessionId, TaskId, TaskRow, TaskState};
use perennial_core::{InstanceKey, ShardId};

const START: Duration = Duration::from_secs(1);

fn task(event: u64, work: &[u8]) -> TaskRow {
    TaskRow {
        id: TaskId { key: InstanceKey::new(1, 7), execution: 1, event: EventId(event) },
        shard: ShardId(3),
        attempt: 2,
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
        work: Some(Arc::from(work)),
    }
}

fn calls(node: &mut Node) -> Vec<(CallId, StoreCall)> {
    let is_call = |output| match output {
        NodeOutput::Call(id, call) => Some((id, call)),
        NodeOutput::RunTask(task) => panic!("{} runs", task.name),
        _ => None,
    };
    node.take_outputs().into_iter().filter_map(is_call).collect()
}

/// A node that took these tasks, and the calls that it makes then.
fn took(rows: Vec<TaskRow>) -> (Node, Vec<StoreCall>) {
    let served = Served { names: ["remote".to_owned()].into(), ..Served::default() };
    let mut node = Node::new(NodeOptions { served, ..NodeOptions::default() }, 1, Duration::ZERO);
    let (open, _) = calls(&mut node).pop().expect("it opens its session");
    let lease = StoreResponse::Lease(Lease { now_ms: 1_000, expires_ms: 60_000 });
    node.handle_response(START, open, Ok(lease), 10);
    let is_take = |(_, call): &(CallId, StoreCall)| matches!(call, StoreCall::TakeTasks { .. });
    let (take, _) = calls(&mut node).into_iter().find(is_take).expect("it takes tasks");
    node.handle_response(START, take, Ok(StoreResponse::Tasks(rows)), 10);
    let after = calls(&mut node).into_iter().map(|(_, call)| call).collect();
    (node, after)
}

#[test]
fn e3_a_damaged_task_goes_back_to_its_owner_who_writes_it_again() {
    for work in [&b"{"[..], b"", br#"{"v":1,"crc":"00000000","task":{"instance":"a","input":1}}"#] {
        let (_, made) = took(vec![task(2, work)]);
        let [StoreCall::FinishTask { task, attempt: 2, body, .. }] = &made[..] else { panic!("{made:?}") };
        assert_eq!(task.event, EventId(2));
        let requeue =
            Message::Requeue { execution: 1, event: EventId(2), attempt: 2, past: Default::default() };
        assert_eq!(Message::decode(body).expect("it is a message"), requeue);
    }
}

#[test]
fn e3_a_task_of_a_newer_engine_is_given_back_after_a_pause_and_blames_nobody() {
    let (mut node, made) = took(vec![task(2, br#"{"v":9,"crc":"00000000","task":{}}"#)]);
    assert!(made.is_empty(), "nothing at once: {made:?}");
    let pause = Duration::from_millis(NodeOptions::default().task_lease_ms / 2);
    node.handle_time(START + pause / 2, 0);
    let is_return = |(_, call): &(CallId, StoreCall)| matches!(call, StoreCall::GiveBackTasks { .. });
    assert!(!calls(&mut node).iter().any(is_return));
    node.handle_time(START + pause, 0);
    assert!(calls(&mut node).iter().any(is_return), "before its lease runs out, which would count");
}
