//! Which shard an instance belongs to, and that nothing reaches it that is not its own (G1, G2).

use crate::shard_cases::{handlers, number};
use perennial_core::shard::{Request, Response};
use perennial_core::{EventId, InstanceKey, SHARDS, ShardId};
use perennial_testkit::ManualNode;

/// Removes the rows of an instance as a delete would, whatever its status.
fn delete(node: &ManualNode, id: &str) -> InstanceKey {
    let key = node.row(id).key;
    let mut tables = node.tables();
    tables.ids.remove(id);
    tables.instances.remove(&key);
    tables.turns.retain(|(other, _, _), _| *other != key);
    tables.inbox.retain(|_, message| message.to != key);
    key
}

#[test]
fn g1_an_instance_lives_in_the_shard_of_its_id() {
    let mut node = ManualNode::new(handlers());
    let ids: Vec<String> = (0..1_000).map(|number| format!("order-{number}")).collect();
    for id in &ids {
        node.start("collect", id, ());
    }
    node.settle();
    let mut expected = vec![0; SHARDS];
    for id in &ids {
        assert_eq!(node.row(id).shard, ShardId::of(id));
        expected[usize::from(ShardId::of(id).0)] += 1;
    }
    for id in &ids {
        assert_eq!(node.in_memory(id), expected[usize::from(ShardId::of(id).0)]);
    }
    assert_eq!(expected.iter().filter(|count| **count > 0).count(), 250, "these ids spread over the shards");
}

#[test]
fn g1_the_shard_of_an_id_is_the_same_in_the_next_process() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "order-1", ());
    node.settle().restart();
    let raised = node.raise("order-1", "n", "end");
    node.settle();
    assert_eq!((node.told(raised), node.row("order-1").shard), ("accepted".into(), ShardId::of("order-1")));
    assert_eq!(node.status("order-1"), "completed");
}

#[test]
fn g2_a_result_that_names_another_execution_key_or_event_is_dropped_and_counted() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    let task = node.pick_activity("a", "A1");
    let mut other_execution = task.clone();
    other_execution.execution = 2;
    let mut other_key = task.clone();
    other_key.key = InstanceKey::new(1, 1);
    let mut other_event = task.clone();
    other_event.event = EventId(1);
    for (count, wrong) in (1..).zip([other_execution, other_key, other_event]) {
        node.bring_result(&wrong, Ok("wrong".into()));
        assert_eq!(node.counters("a").stale, count);
        assert!(node.turns_to_take().is_empty() && node.loads_to_make().is_empty(), "nothing comes of it");
    }
    node.bring_result(&task, Ok("right".into()));
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"4 OrchestrationCompleted "right""#]);
}

#[test]
fn g2_a_second_result_of_one_attempt_is_dropped_and_counted() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(2));
    node.settle();
    let task = node.pick_activity("a", "A1");
    node.bring_result(&task, Ok("one".into()));
    node.bring_result(&task, Ok("two".into()));
    node.settle();
    node.bring_result(&task, Ok("three".into()));
    node.settle();
    assert_eq!(node.counters("a").stale, 2);
    assert_eq!(
        node.last_lines("a", 2),
        [r#"3 ActivityCompleted of 2 "one""#, r#"4 ActivityScheduled "A2" "one""#]
    );
}

#[test]
fn g2_a_reused_id_never_gets_a_result_of_its_predecessor() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    let old = node.pick_activity("a", "A1");
    node.terminate("a", "enough");
    node.settle();
    delete(&node, "a");
    let started = node.start("steps", "a", number(1));
    node.settle();
    node.bring_result(&old, Ok("old".into()));
    node.settle();
    assert_eq!((node.told(started), node.counters("a").stale), ("started".into(), 1));
    assert_eq!(node.lines("a").len(), 2, "the new one still waits for its own result");
    assert_eq!(node.running("a"), ["A1"]);
}

#[test]
fn g2_a_reused_id_never_gets_a_message_of_its_predecessor() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle().crash();
    node.send_event("a", "n", "for the first");
    let mail = node.read_inbox();
    delete(&node, "a");
    node.start("collect", "a", ());
    node.settle();
    node.bring(mail);
    assert_eq!(node.loads_to_make().len(), 1, "it is for another instance");
    node.settle();
    assert_eq!(node.lines("a"), ["1 OrchestrationStarted collect null", r#"2 ExternalSubscribed "n""#]);
    assert_eq!(node.in_memory("a"), 1, "what was loaded in vain leaves nothing behind");
}

#[test]
fn g2_a_message_whose_instance_is_gone_is_counted() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle().crash();
    node.send_event("a", "n", "for nobody");
    let mail = node.read_inbox();
    delete(&node, "a");
    node.bring(mail);
    node.settle();
    assert_eq!(node.counters("a").stale, 1);
}

#[test]
fn g2_a_request_is_bound_to_the_key_that_was_found_for_it() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle().crash();
    let raised = node.raise("a", "n", "for the first");
    let found = node.read_finds();
    delete(&node, "a");
    node.start("collect", "a", ());
    node.settle();
    found.into_iter().for_each(|found| node.bring(found));
    let beside = node.raise("a", "n", "for the second");
    node.settle();
    assert_eq!(node.told(raised), "not found");
    assert_eq!(node.told(beside), "accepted", "the id has an instance all the while");
    assert_eq!(
        node.last_lines("a", 2),
        [r#"3 ExternalEvent "n" "for the second""#, r#"4 ExternalSubscribed "n""#]
    );
}

#[test]
fn g2_a_request_that_is_bound_to_a_key_never_reaches_another_instance() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "order-1", ());
    node.settle();
    let (own, other) = (node.row("order-1").key, InstanceKey::new(1, 7));
    for evicted in [false, true] {
        if evicted {
            node.restart();
        }
        let bound = |key| Request::Bound { key, request: Box::new(Request::Retry) };
        let asked = [other, own].map(|key| node.request("order-1", bound(key)));
        node.settle();
        assert!(matches!(node.answer(asked[0]), Some(Response::NotFound)), "{:?}", node.answer(asked[0]));
        assert!(matches!(node.answer(asked[1]), Some(Response::NotBlocked)), "{:?}", node.answer(asked[1]));
    }
}
