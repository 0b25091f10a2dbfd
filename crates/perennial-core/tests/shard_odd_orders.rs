//! Inputs in orders that nobody plans: late, twice, for what is gone. Nothing panics, hangs or is lost.

mod shard_cases;

use perennial_core::shard::{
    ActivityTask, Answer, Output, Request, RequestId, Shard, ShardOptions, StartRequest, TurnTask,
    TurnTaskDone,
};
use perennial_core::store::{CommitOutcome, Conflict};
use perennial_core::{EventId, InstanceKey, Payload, ShardId, Started};
use perennial_testkit::Desk;
use shard_cases::{handlers, number};

fn collecting() -> Desk {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk
}

fn conflict() -> CommitOutcome {
    CommitOutcome::Conflict(Conflict::OtherTurn)
}

/// What a collector has collected, once it is told to end.
fn collected(desk: &mut Desk) -> String {
    desk.raise("a", "n", "end");
    desk.settle();
    let last = desk.last_lines("a", 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ").expect("it is complete").1.to_owned()
}

#[test]
fn g3_after_a_conflict_the_turn_is_taken_again_from_what_is_stored_and_nothing_is_lost() {
    let mut desk = collecting();
    let raised = ["1", "2", "3"].map(|event| desk.raise("a", "n", event));
    desk.take_turns();
    desk.send_event("a", "n", "5");
    let meanwhile = desk.raise("a", "n", "4");
    desk.commit_as("a", conflict());
    desk.settle();
    assert_eq!(desk.told_all(raised), ["accepted"; 3]);
    assert_eq!(desk.told(meanwhile), "accepted");
    assert!(desk.inbox("a").is_empty());
    let collected = collected(&mut desk);
    assert!(
        collected == r#"["5","1","2","3","4"]"# || collected == r#"["1","2","3","4","5"]"#,
        "{collected}"
    );
}

#[test]
fn g3_conflicts_in_a_row_lose_nothing() {
    let mut desk = collecting();
    let raised = desk.raise("a", "n", "1");
    for _ in 0..3 {
        while desk.load() || desk.take_turns() {}
        desk.commit_as("a", conflict());
    }
    let terminated = desk.terminate("a", "enough");
    desk.load();
    desk.commit_as("a", conflict());
    desk.settle();
    assert_eq!(desk.told(terminated), "accepted");
    assert_ne!(desk.told(raised), "nothing");
    assert_eq!(desk.counters("a").conflicts, 4);
}

#[test]
fn g3_a_conflict_over_messages_of_the_inbox_applies_them_once() {
    let mut desk = collecting();
    desk.send_event("a", "n", "1");
    desk.pass_inbox().take_turns();
    desk.send_event("a", "n", "2");
    desk.pass_inbox();
    desk.commit_as("a", conflict());
    desk.pass_inbox().settle();
    assert!(desk.inbox("a").is_empty());
    assert_eq!(collected(&mut desk), r#"["1","2"]"#);
}

#[test]
fn g15_a_message_that_somebody_else_applied_is_not_applied_again_after_a_conflict() {
    let mut desk = collecting();
    desk.send_event("a", "n", "1");
    desk.pass_inbox().take_turns();
    desk.write_otherwise("a");
    desk.settle();
    assert_eq!((desk.counters("a").conflicts, desk.inbox("a").len()), (1, 0));
    assert_eq!(collected(&mut desk), r#"["1"]"#);
}

#[test]
fn g17_a_commit_for_an_instance_that_is_gone_answers_not_found() {
    let mut desk = collecting();
    let raised = desk.raise("a", "n", "1");
    desk.take_turns();
    let key = desk.row("a").key;
    desk.tables().ids.remove("a");
    desk.tables().instances.remove(&key);
    desk.tables().turns.clear();
    desk.settle();
    assert_eq!((desk.told(raised), desk.in_memory("a")), ("not found".into(), 0));
}

#[test]
fn g4_a_turn_taken_before_the_shard_was_lost_is_not_taken_for_one_after() {
    let mut desk = collecting();
    desk.raise("a", "n", "from before");
    let before = desk.pick_turn("a");
    desk.lose_shards();
    let after = desk.raise("a", "n", "from after");
    desk.look_up();
    desk.load();
    let done = desk.run_turn(before);
    desk.bring_turn("a", done);
    desk.settle();
    assert_eq!(desk.told(after), "accepted");
    assert!(desk.is_quiet(), "it does not hang");
    let lines = desk.lines("a");
    assert!(
        lines.contains(&r#"3 ExternalEvent "n" "from after""#.to_owned()),
        "acknowledged, not lost: {lines:?}"
    );
}

#[test]
fn g4_a_shard_that_was_lost_and_won_back_goes_on() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(2));
    desk.settle();
    desk.finish("a", "A1", "one").take_turns();
    desk.lose_shards();
    desk.take_over().settle();
    assert_eq!((desk.running("a"), desk.runs().len()), (vec!["A1".to_owned()], 2));
    desk.finish("a", "A1", "again").settle();
    desk.finish("a", "A2", "two").settle();
    assert_eq!(desk.status("a"), "completed");
}

#[test]
fn g13_a_finished_instance_that_is_loaded_by_mistake_leaves_nothing() {
    let mut desk = Desk::new(handlers());
    desk.start("echo", "a", ());
    desk.settle();
    let key = desk.row("a").key;
    desk.tables().instances.get_mut(&key).expect("it is stored").owed = true;
    let before = desk.writes("a");
    desk.crash().take_over().settle();
    desk.bring_owed("a", key);
    desk.settle();
    assert_eq!((desk.writes("a"), desk.in_memory("a")), (before, 0));
}

#[test]
fn g15_a_message_and_a_request_for_one_dormant_instance_load_it_once() {
    let mut desk = collecting();
    desk.crash();
    desk.send_event("a", "n", "1");
    desk.raise("a", "n", "2");
    desk.pass_inbox();
    assert_eq!(desk.loads_to_make(), ["a"]);
    desk.look_up();
    assert_eq!(desk.loads_to_make(), ["a"]);
    desk.settle();
    assert_eq!(collected(&mut desk), r#"["1","2"]"#);
}

// ---- a shard by itself --------------------------------------------------------------------------------------------

/// One shard, inputs by hand.
struct Alone {
    shard: Shard,
    key: InstanceKey,
}

impl Alone {
    /// A shard that was asked to start a collector.
    fn starting() -> (Alone, TurnTask) {
        let key = InstanceKey::new(1_000, 1);
        let mut alone = Alone { shard: Shard::new(ShardId::of("a"), ShardOptions::default(), 1), key };
        let started = Started::new("collect", Desk::VERSION, (), 1);
        let start = Request::Start(Box::new(StartRequest { key, started, jobs: Vec::new() }));
        alone.shard.handle_request(1_000, RequestId(1), "a", start);
        let task = alone.task();
        (alone, task)
    }

    /// The only output, a turn to take.
    fn task(&mut self) -> TurnTask {
        match self.shard.take_outputs().pop() {
            Some(Output::TakeTurn(task)) => *task,
            other => panic!("no turn is to be taken, but {other:?}"),
        }
    }

    fn run(task: TurnTask) -> TurnTaskDone {
        task.run(&handlers(), |_| ())
    }

    fn commit(&mut self) {
        self.shard.handle_committed(1_000, self.key, CommitOutcome::Durable { sent: Vec::new() });
    }

    fn raise(&mut self, request: u64) {
        let raise = Request::Raise { name: "n".to_owned(), payload: "1".into(), key: None };
        self.shard.handle_request(1_000, RequestId(request), "a", raise);
    }

    /// The requests that were answered with success.
    fn accepted(&mut self) -> Vec<u64> {
        let accepted = |output: Output| match output {
            Output::Reply(RequestId(request), Answer::Started(_) | Answer::Accepted) => Some(request),
            _ => None,
        };
        self.shard.take_outputs().into_iter().filter_map(accepted).collect()
    }

    /// Takes an event through a turn and a commit.
    fn assert_goes_on(mut self) {
        self.raise(99);
        let task = self.task();
        self.shard.handle_turn_done(1_000, Alone::run(task));
        self.commit();
        assert_eq!(self.accepted(), [99]);
        assert!(self.shard.is_quiet());
    }
}

#[test]
fn g3_the_outcome_of_a_commit_counts_once() {
    let (mut alone, task) = Alone::starting();
    alone.shard.handle_turn_done(1_000, Alone::run(task));
    alone.commit();
    alone.commit();
    alone.shard.handle_committed(1_000, alone.key, CommitOutcome::Fenced);
    assert_eq!(alone.accepted(), [1]);
    alone.assert_goes_on();
}

#[test]
fn g3_an_outcome_that_comes_while_a_turn_is_taken_is_nobodys() {
    let (mut alone, task) = Alone::starting();
    alone.commit();
    alone.shard.handle_turn_done(1_000, Alone::run(task));
    alone.commit();
    assert_eq!(alone.accepted(), [1]);
    alone.assert_goes_on();
}

#[test]
fn g29_a_turn_that_is_given_up_after_it_was_done_was_not_lost() {
    let (mut alone, task) = Alone::starting();
    let number = task.number;
    alone.shard.handle_turn_done(1_000, Alone::run(task));
    alone.shard.handle_turn_lost(1_000, alone.key, number);
    alone.commit();
    alone.shard.handle_turn_lost(1_000, alone.key, number);
    assert_eq!(alone.accepted(), [1]);
    alone.assert_goes_on();
}

#[test]
fn g3_inputs_for_what_is_not_in_memory_do_nothing() {
    let (mut alone, task) = Alone::starting();
    let other = InstanceKey::new(5, 5);
    let mut stray = Alone::run(task);
    stray.key = other;
    let shard = &mut alone.shard;
    shard.handle_turn_done(1_000, stray);
    assert!(
        matches!(shard.take_outputs()[..], [Output::Drop(_)]),
        "an execution is handed out to be dropped"
    );
    shard.handle_turn_lost(1_000, other, 1);
    shard.handle_committed(1_000, other, CommitOutcome::Fenced);
    shard.handle_loaded(1_000, other, None);
    shard.handle_load_failed(1_000, other, "gone".to_owned());
    shard.handle_found(1_000, RequestId(7), None);
    shard.handle_find_failed(RequestId(7), "gone".to_owned());
    let stray = ActivityTask {
        key: other,
        instance: "other".into(),
        execution: 1,
        event: EventId(2),
        attempt: 1,
        interruptions: 0,
        details: None,
        deadline_ms: None,
        name: "work".to_owned(),
        input: Payload::null(),
        options: None,
    };
    shard.handle_activity_done(1_000, &stray, Ok(Payload::null()));
    shard.handle_heartbeat(1_000, &stray, Payload::null());
    shard.handle_asks(1_000, Vec::new());
    shard.handle_inbox(1_000, Vec::new());
    shard.handle_time(1_000);
    assert!(shard.take_outputs().is_empty());
    assert_eq!((shard.slots(), shard.counters().stale), (1, 1));
}

#[test]
fn g3_inputs_that_an_idle_instance_did_not_ask_for_do_nothing() {
    let (mut alone, task) = Alone::starting();
    alone.shard.handle_turn_done(1_000, Alone::run(task));
    alone.commit();
    assert_eq!(alone.accepted(), [1]);
    let key = alone.key;
    alone.shard.handle_loaded(1_000, key, None);
    alone.shard.handle_load_failed(1_000, key, "gone".to_owned());
    alone.shard.handle_owed(1_000, key);
    alone.shard.handle_due(key, 500);
    alone.shard.handle_time(1_000);
    assert!(alone.shard.take_outputs().is_empty());
    alone.assert_goes_on();
}
