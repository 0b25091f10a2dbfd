//! Which shard an instance belongs to, and that nothing reaches it that is not its own (G1, G2).

mod shard_cases;

use perennial_core::{EventId, InstanceKey, SHARDS, ShardId};
use perennial_testkit::Desk;
use shard_cases::{handlers, number};

/// Removes the rows of an instance as a delete would, its mail aside.
fn delete(desk: &Desk, id: &str) -> InstanceKey {
    let key = desk.row(id).key;
    let mut tables = desk.tables();
    tables.ids.remove(id);
    tables.instances.remove(&key);
    tables.turns.retain(|(other, _, _), _| *other != key);
    key
}

#[test]
fn g1_an_instance_lives_in_the_shard_of_its_id() {
    let mut desk = Desk::new(handlers());
    let ids: Vec<String> = (0..1_000).map(|number| format!("order-{number}")).collect();
    for id in &ids {
        desk.start("collect", id, ());
    }
    desk.settle();
    let mut expected = vec![0; SHARDS];
    for id in &ids {
        assert_eq!(desk.row(id).shard, ShardId::of(id));
        expected[usize::from(ShardId::of(id).0)] += 1;
    }
    for id in &ids {
        assert_eq!(desk.in_memory(id), expected[usize::from(ShardId::of(id).0)]);
    }
    assert_eq!(expected.iter().filter(|count| **count > 0).count(), 250, "these ids spread over the shards");
}

#[test]
fn g1_the_shard_of_an_id_is_the_same_in_the_next_process() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "order-1", ());
    desk.settle().restart();
    let raised = desk.raise("order-1", "n", "end");
    desk.settle();
    assert_eq!((desk.told(raised), desk.row("order-1").shard), ("accepted".into(), ShardId::of("order-1")));
    assert_eq!(desk.status("order-1"), "completed");
}

#[test]
fn g2_a_result_that_names_another_execution_key_or_event_is_dropped_and_counted() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(1));
    desk.settle();
    let task = desk.pick_activity("a", "A1");
    let mut other_execution = task.clone();
    other_execution.execution = 2;
    let mut other_key = task.clone();
    other_key.key = InstanceKey::new(1, 1);
    let mut other_event = task.clone();
    other_event.event = EventId(1);
    for (count, wrong) in (1..).zip([other_execution, other_key, other_event]) {
        desk.bring_result(&wrong, Ok("wrong".into()));
        assert_eq!(desk.counters("a").stale, count);
        assert!(desk.turns_to_take().is_empty() && desk.loads_to_make().is_empty(), "nothing comes of it");
    }
    desk.bring_result(&task, Ok("right".into()));
    desk.settle();
    assert_eq!(desk.last_lines("a", 1), [r#"4 OrchestrationCompleted "right""#]);
}

#[test]
fn g2_a_second_result_of_one_attempt_is_dropped_and_counted() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(2));
    desk.settle();
    let task = desk.pick_activity("a", "A1");
    desk.bring_result(&task, Ok("one".into()));
    desk.bring_result(&task, Ok("two".into()));
    desk.settle();
    desk.bring_result(&task, Ok("three".into()));
    desk.settle();
    assert_eq!(desk.counters("a").stale, 2);
    assert_eq!(
        desk.last_lines("a", 2),
        [r#"3 ActivityCompleted of 2 "one""#, r#"4 ActivityScheduled "A2" "one""#]
    );
}

#[test]
fn g2_a_reused_id_never_gets_a_result_of_its_predecessor() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(1));
    desk.settle();
    let old = desk.pick_activity("a", "A1");
    desk.terminate("a", "enough");
    desk.settle();
    delete(&desk, "a");
    let started = desk.start("steps", "a", number(1));
    desk.settle();
    desk.bring_result(&old, Ok("old".into()));
    desk.settle();
    assert_eq!((desk.told(started), desk.counters("a").stale), ("started".into(), 1));
    assert_eq!(desk.lines("a").len(), 2, "the new one still waits for its own result");
    assert_eq!(desk.running("a"), ["A1"]);
}

#[test]
fn g2_a_reused_id_never_gets_a_message_of_its_predecessor() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.send_event("a", "n", "for the first");
    let mail = desk.read_inbox();
    assert_eq!(mail.len(), 1);
    delete(&desk, "a");
    desk.crash();
    desk.start("collect", "a", ());
    desk.settle();
    desk.bring_inbox(mail);
    desk.settle();
    assert_eq!(desk.lines("a"), ["1 OrchestrationStarted collect null", r#"2 ExternalSubscribed "n""#]);
    assert_eq!(desk.in_memory("a"), 1, "what was loaded in vain leaves nothing behind");
}

#[test]
fn g2_a_message_whose_instance_is_gone_is_counted() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.send_event("a", "n", "for nobody");
    let mail = desk.read_inbox();
    delete(&desk, "a");
    desk.crash();
    desk.bring_inbox(mail);
    desk.settle();
    assert_eq!(desk.counters("a").stale, 1);
}

#[test]
fn g2_a_request_is_bound_to_the_key_that_was_found_for_it() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle().crash();
    let raised = desk.raise("a", "n", "for the first");
    let found = desk.read_finds();
    delete(&desk, "a");
    desk.start("collect", "a", ());
    desk.settle();
    found.into_iter().for_each(|found| desk.bring_found(found));
    let beside = desk.raise("a", "n", "for the second");
    desk.settle();
    assert_eq!(desk.told(raised), "not found");
    assert_eq!(desk.told(beside), "accepted", "the id has an instance all the while");
    assert_eq!(
        desk.last_lines("a", 2),
        [r#"3 ExternalEvent "n" "for the second""#, r#"4 ExternalSubscribed "n""#]
    );
}
