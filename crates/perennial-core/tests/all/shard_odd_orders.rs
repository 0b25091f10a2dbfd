//! Inputs in orders that nobody plans: late, twice, for what is gone. Nothing panics, hangs or is lost.

use crate::shard_cases::{handlers, number};
use perennial_core::shard::{ActivityTask, Tenure, TurnTask};
use perennial_core::store::{CommitOutcome, Conflict};
use perennial_core::{EventId, InstanceKey, Payload, ShardId};
use perennial_testkit::ManualNode;

fn collecting() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node
}

fn conflict() -> CommitOutcome {
    CommitOutcome::Conflict(Conflict::OtherTurn)
}

/// What a collector has collected, once it is told to end.
fn collected(node: &mut ManualNode) -> String {
    node.raise("a", "n", "end");
    node.settle();
    let last = node.last_lines("a", 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ").expect("it is complete").1.to_owned()
}

#[test]
fn g3_after_a_conflict_the_turn_is_taken_again_from_what_is_stored_and_nothing_is_lost() {
    let mut node = collecting();
    let raised = ["1", "2", "3"].map(|event| node.raise("a", "n", event));
    node.take_turns();
    node.send_event("a", "n", "5");
    let meanwhile = node.raise("a", "n", "4");
    node.commit_as("a", conflict());
    node.settle();
    assert_eq!(node.told_all(raised), ["accepted"; 3]);
    assert_eq!(node.told(meanwhile), "accepted");
    assert!(node.inbox("a").is_empty());
    let collected = collected(&mut node);
    assert!(
        collected == r#"["5","1","2","3","4"]"# || collected == r#"["1","2","3","4","5"]"#,
        "{collected}"
    );
}

#[test]
fn g3_conflicts_in_a_row_lose_nothing() {
    let mut node = collecting();
    let raised = node.raise("a", "n", "1");
    for _ in 0..3 {
        while node.load() || node.take_turns() {}
        node.commit_as("a", conflict());
    }
    let terminated = node.terminate("a", "enough");
    node.load();
    node.commit_as("a", conflict());
    node.settle();
    assert_eq!(node.told(terminated), "accepted");
    assert_ne!(node.told(raised), "nothing");
    assert_eq!(node.counters("a").conflicts, 4);
}

#[test]
fn g3_a_conflict_over_messages_of_the_inbox_applies_them_once() {
    let mut node = collecting();
    node.send_event("a", "n", "1");
    node.pass_inbox().take_turns();
    node.send_event("a", "n", "2");
    node.pass_inbox();
    node.commit_as("a", conflict());
    node.pass_inbox().settle();
    assert!(node.inbox("a").is_empty());
    assert_eq!(collected(&mut node), r#"["1","2"]"#);
}

#[test]
fn g15_a_message_that_somebody_else_applied_is_not_applied_again_after_a_conflict() {
    let mut node = collecting();
    node.send_event("a", "n", "1");
    node.pass_inbox().take_turns();
    node.write_otherwise("a");
    node.settle();
    assert_eq!((node.counters("a").conflicts, node.inbox("a").len()), (1, 0));
    assert_eq!(collected(&mut node), r#"["1"]"#);
}

#[test]
fn g17_a_commit_for_an_instance_that_is_gone_answers_not_found() {
    let mut node = collecting();
    let raised = node.raise("a", "n", "1");
    node.take_turns();
    let key = node.row("a").key;
    node.tables().ids.remove("a");
    node.tables().instances.remove(&key);
    node.tables().turns.clear();
    node.settle();
    assert_eq!((node.told(raised), node.in_memory("a")), ("not found".into(), 0));
}

#[test]
fn g4_a_turn_taken_before_the_shard_was_lost_is_not_taken_for_one_after() {
    let mut node = collecting();
    node.raise("a", "n", "from before");
    let before = node.pick_turn("a");
    node.lose_shards();
    let after = node.raise("a", "n", "from after");
    node.look_up();
    node.load();
    let done = node.run_turn(before);
    node.bring_turn(done);
    node.settle();
    assert_eq!(node.told(after), "accepted");
    assert!(node.is_quiet(), "it does not hang");
    let lines = node.lines("a");
    assert!(
        lines.contains(&r#"3 ExternalEvent "n" "from after""#.to_owned()),
        "acknowledged, not lost: {lines:?}"
    );
}

#[test]
fn g4_a_shard_that_was_lost_and_won_back_goes_on() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(2));
    node.settle();
    node.finish("a", "A1", "one").take_turns();
    node.lose_shards();
    node.take_over().settle();
    assert_eq!((node.running("a"), node.runs().len()), (vec!["A1".to_owned()], 2));
    node.finish("a", "A1", "again").settle();
    node.finish("a", "A2", "two").settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g14_an_instance_that_ended_after_it_was_found_to_be_owed_leaves_nothing() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle().crash();
    let owed = node.read_owed();
    node.raise("a", "n", "1");
    node.settle();
    node.finish("a", "A1", ()).settle();
    let before = node.writes("a");
    assert_eq!((node.status("a"), node.in_memory("a")), ("completed".to_owned(), 0));
    owed.into_iter().for_each(|page| node.bring(page));
    assert_eq!(node.loads_to_make(), ["a"]);
    node.settle();
    assert_eq!((node.writes("a"), node.in_memory("a")), (before, 0));
}

#[test]
fn g15_a_message_and_a_request_for_one_dormant_instance_load_it_once() {
    let mut node = collecting();
    node.crash();
    node.send_event("a", "n", "1");
    node.raise("a", "n", "2");
    node.pass_inbox();
    assert_eq!(node.loads_to_make(), ["a"]);
    node.look_up();
    assert_eq!(node.loads_to_make(), ["a"]);
    node.settle();
    assert_eq!(collected(&mut node), r#"["1","2"]"#);
}

// ---- inputs that nobody waits for ----------------------------------------------------------------------------------

/// What tells a turn task from all others.
fn place(task: &TurnTask) -> (ShardId, Tenure, InstanceKey, u64) {
    (task.shard, task.tenure, task.key, task.number)
}

/// Takes an event through a turn and a commit.
fn assert_goes_on(mut node: ManualNode) {
    let raised = node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.told(raised), "accepted");
    assert!(node.is_quiet());
}

#[test]
fn g3_the_outcome_of_a_batch_counts_once() {
    let mut node = ManualNode::new(handlers());
    let started = node.start("collect", "a", ());
    node.take_turns();
    let again = node.held_batch();
    node.commit();
    node.raise("a", "n", "1");
    node.take_turns();
    // Another batch is in flight.
    node.bring(again);
    assert_eq!((node.told(started), node.lines("a").len()), ("started".to_owned(), 2));
    assert_goes_on(node);
}

#[test]
fn g29_a_turn_that_is_given_up_after_it_was_done_was_not_lost() {
    let mut node = ManualNode::new(handlers());
    let started = node.start("collect", "a", ());
    let task = node.pick_turn("a");
    let (shard, tenure, key, number) = place(&task);
    let done = node.run_turn(task);
    node.bring_turn(done);
    node.give_up_turn(shard, tenure, key, number);
    node.commit();
    node.give_up_turn(shard, tenure, key, number);
    assert_eq!((node.told(started), node.status("a")), ("started".to_owned(), "running".to_owned()));
    assert_goes_on(node);
}

#[test]
fn g3_results_for_what_is_not_in_memory_do_nothing() {
    let mut node = collecting();
    let (raised, other) = (node.raise("a", "n", "0"), InstanceKey::new(5, 5));
    let task = node.pick_turn("a");
    let (shard, tenure, _, number) = place(&task);
    let mut stray = node.run_turn(task);
    let key = std::mem::replace(&mut stray.key, other);
    node.bring_turn(stray);
    node.give_up_turn(shard, tenure, other, number);
    let stray = ActivityTask {
        activity_id: None,
        tenure,
        key: other,
        instance: "a".into(),
        execution: 1,
        event: EventId(2),
        attempt: 1,
        interruptions: 0,
        begun: None,
        details: None,
        queued_ms: 0,
        past: Default::default(),
        deadline_ms: None,
        name: "work".to_owned(),
        input: Payload::null(),
        options: None,
        secret: None,
        trace: None,
    };
    node.bring_result(&stray, Ok(Payload::null()));
    node.bring_heartbeat(&stray, Payload::null());
    node.tick();
    assert!(node.loads_to_make().is_empty() && node.turns_to_take().is_empty() && node.batch().is_empty());
    assert_eq!((node.in_memory("a"), node.counters("a").stale), (1, 1));
    node.give_up_turn(shard, tenure, key, number);
    node.settle();
    assert_eq!(node.told(raised), "accepted", "only the turn's own end counts");
}
