//! What a node that stops waits for, and for how long (G31, N3).

use std::time::Duration;

use perennial_core::lane::{CallId, Moment, StoreCall, StoreResponse, StoreResult};
use perennial_core::node::{Node, NodeOptions, NodeOutput, StopPatience, Unfinished};
use perennial_core::shard::{ActivityTask, TaskWork};
use perennial_core::store::{Lease, Served, SessionId, StoreError, TaskId, TaskRenewal, TaskRow, TaskState};
use perennial_core::{EventId, InstanceKey, Payload, ShardId};

const PATIENCE: StopPatience = StopPatience {
    grace: Duration::from_secs(10),
    last_words: Duration::from_secs(6),
    store: Duration::from_secs(5),
};

const fn at(ms: u64) -> Moment {
    Duration::from_millis(1_000 + ms)
}

fn row(event: u64, interruptions: u32) -> TaskRow {
    let work = TaskWork {
        activity_id: None,
        instance: "a".to_owned(),
        input: Payload::null(),
        options: None,
        deadline_ms: None,
        queued_ms: 0,
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
        interruptions,
        past: Default::default(),
        name: "remote".to_owned(),
        tag: None,
        work: Some(work.encode()),
        begun: None,
    }
}

/// A node by hand.
struct Bench {
    node: Node,
    calls: Vec<(CallId, StoreCall)>,
    /// What else it wanted, by name.
    wanted: Vec<String>,
    runs: Vec<ActivityTask>,
}

impl Bench {
    /// A node that took these tasks.
    fn with(rows: Vec<TaskRow>) -> Bench {
        let served = Served { names: ["remote".to_owned()].into(), ..Served::default() };
        let node = Node::new(NodeOptions { served, ..NodeOptions::default() }, 1, Duration::ZERO);
        let mut bench = Bench { node, calls: Vec::new(), wanted: Vec::new(), runs: Vec::new() };
        bench.look();
        bench.answer(
            at(0),
            "open_session",
            Ok(StoreResponse::Lease(Lease { now_ms: 0, expires_ms: 60_000 })),
        );
        bench.answer(at(0), "take_tasks", Ok(StoreResponse::Tasks(rows)));
        bench
    }

    fn look(&mut self) {
        for output in self.node.take_outputs() {
            match output {
                NodeOutput::Call(id, call) => self.calls.push((id, call)),
                NodeOutput::RunTask(task) => self.runs.push(*task),
                NodeOutput::StoppedShort(Unfinished { lanes, tasks }) => {
                    self.wanted.push(format!("short by {lanes} lanes, {tasks} tasks"));
                }
                NodeOutput::Target { .. } => {}
                output => self.wanted.push(format!("{output:?}")),
            }
        }
    }

    /// The oldest call of a name is answered.
    #[track_caller]
    fn answer(&mut self, now: Moment, name: &str, answer: StoreResult) {
        let place = self.calls.iter().position(|(_, call)| call.name() == name);
        let place = place.unwrap_or_else(|| panic!("no {name} among {:?}", self.names()));
        let (id, _) = self.calls.remove(place);
        self.node.handle_response(now, id, answer, 10);
        self.look();
    }

    fn time(&mut self, now: Moment) {
        self.node.handle_time(now, 10);
        self.look();
    }

    /// Told to stop, without an attempt that runs; its lane has nothing to do.
    fn stops(&mut self, now: Moment) {
        self.node.handle_stop(now, PATIENCE);
        self.node.handle_idle(now);
        self.look();
        self.node.handle_lane_ended(now, 0);
        self.look();
    }

    fn names(&self) -> Vec<&'static str> {
        self.calls.iter().map(|(_, call)| call.name()).filter(|name| *name != "directory").collect()
    }

    fn take_wanted(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wanted)
    }
}

#[test]
fn n3_a_result_that_the_store_refused_is_written_before_the_session_ends() {
    let mut bench = Bench::with(vec![row(2, 0)]);
    let task = bench.runs.pop().expect("it runs");
    bench.node.handle_task_done(at(10), &task, Ok(Payload::from("done")), None);
    bench.look();
    bench.answer(at(20), "finish_task", Err(StoreError::Unavailable("away".to_owned())));
    bench.stops(at(30));
    assert_eq!(bench.take_wanted(), ["StopTaking", "CloseLanes"]);
    assert!(!bench.names().contains(&"end_session"), "its result would be lost");
    bench.time(at(300));
    bench.answer(at(310), "finish_task", Ok(StoreResponse::Finished(true)));
    bench.answer(at(320), "end_session", Ok(StoreResponse::Done));
    assert_eq!(bench.take_wanted().last().map(String::as_str), Some("Ended"));
}

#[test]
fn g31_the_node_ends_after_its_lanes() {
    let mut bench = Bench::with(Vec::new());
    bench.node.handle_stop(at(10), PATIENCE);
    bench.node.handle_idle(at(10));
    bench.look();
    assert!(!bench.names().contains(&"end_session"));
    bench.node.handle_lane_ended(at(20), 0);
    bench.look();
    assert!(bench.names().contains(&"end_session"));
}

#[test]
fn g31_what_a_take_that_is_under_way_brings_is_given_back_first() {
    let mut bench = Bench::with(Vec::new());
    bench.time(at(100));
    assert_eq!(bench.names(), ["take_tasks"]);
    bench.stops(at(110));
    assert_eq!(bench.names(), ["take_tasks"], "it may bring something");
    bench.answer(at(120), "take_tasks", Ok(StoreResponse::Tasks(vec![row(2, 0)])));
    assert!(bench.runs.is_empty());
    bench.answer(at(130), "give_back_tasks", Err(StoreError::Unavailable("away".to_owned())));
    bench.time(at(400));
    bench.answer(at(410), "give_back_tasks", Ok(StoreResponse::Done));
    assert_eq!(bench.names(), ["end_session"]);
}

#[test]
fn g31_tasks_that_wait_to_run_alone_are_given_back() {
    // The one waits until its process has lived for a while, the other for its start to be noted.
    let mut bench = Bench::with(vec![row(2, 4), row(3, 3)]);
    bench.time(at(1));
    bench.answer(at(2), "take_tasks", Ok(StoreResponse::Tasks(Vec::new())));
    assert_eq!((bench.runs.len(), bench.names()), (0, vec!["renew_tasks"]));
    bench.node.handle_stop(at(10), PATIENCE);
    bench.look();
    assert_eq!(bench.names(), ["renew_tasks", "give_back_tasks"]);
    bench.answer(at(20), "renew_tasks", Ok(StoreResponse::Renewals(vec![TaskRenewal::Kept])));
    assert_eq!((bench.runs.len(), bench.names()), (0, vec!["give_back_tasks", "give_back_tasks"]));
    bench.answer(at(30), "give_back_tasks", Ok(StoreResponse::Done));
    bench.answer(at(30), "give_back_tasks", Ok(StoreResponse::Done));
    bench.stops(at(50));
    assert_eq!(bench.names(), ["end_session"]);
}

#[test]
fn g31_tasks_that_wait_for_others_to_end_are_given_back() {
    let mut bench = Bench::with((2..11).map(|event| row(event, 3)).collect());
    bench.time(at(0));
    for _ in 0..8 {
        bench.answer(at(1), "renew_tasks", Ok(StoreResponse::Renewals(vec![TaskRenewal::Kept])));
    }
    assert_eq!(bench.runs.len(), 8, "the ninth waits until one of them has ended");
    bench.answer(at(5), "take_tasks", Ok(StoreResponse::Tasks(Vec::new())));
    bench.node.handle_stop(at(10), PATIENCE);
    bench.look();
    assert_eq!(bench.names(), ["give_back_tasks"]);
    bench.answer(at(20), "give_back_tasks", Ok(StoreResponse::Done));
    for task in std::mem::take(&mut bench.runs) {
        bench.node.handle_task_done(at(30), &task, Ok(Payload::null()), None);
        bench.look();
        bench.answer(at(40), "finish_task", Ok(StoreResponse::Finished(true)));
    }
    bench.stops(at(50));
    assert_eq!(bench.names(), ["end_session"]);
}

#[test]
fn g31_a_task_that_was_to_be_given_back_later_is_given_back_at_once() {
    let newer = TaskRow { work: Some(br#"{"v":9,"crc":"00000000","task":{}}"#[..].into()), ..row(2, 0) };
    let mut bench = Bench::with(vec![newer]);
    assert_eq!(bench.names(), Vec::<&str>::new());
    bench.stops(at(10));
    assert_eq!(bench.names(), ["give_back_tasks"]);
    bench.answer(at(20), "give_back_tasks", Ok(StoreResponse::Done));
    assert_eq!(bench.names(), ["end_session"]);
}

#[test]
fn g31_a_store_that_does_not_answer_is_given_up_in_time() {
    let mut bench = Bench::with(vec![row(2, 0)]);
    let task = bench.runs.pop().expect("it runs");
    bench.node.handle_task_done(at(10), &task, Ok(Payload::null()), None);
    bench.node.handle_stop(at(20), PATIENCE);
    bench.node.handle_idle(at(20));
    bench.look();
    bench.take_wanted();
    let give_up_at = at(20) + PATIENCE.grace + PATIENCE.store;
    bench.time(give_up_at - Duration::from_millis(1));
    assert_eq!(bench.take_wanted(), Vec::<String>::new());
    bench.time(give_up_at);
    assert_eq!(bench.take_wanted(), ["short by 1 lanes, 1 tasks"]);
}

#[test]
fn g31_an_end_that_the_store_refused_is_tried_again() {
    let mut bench = Bench::with(Vec::new());
    bench.stops(at(10));
    bench.answer(at(20), "end_session", Err(StoreError::Unavailable("away".to_owned())));
    assert_eq!(bench.names(), Vec::<&str>::new());
    bench.time(at(300));
    bench.answer(at(310), "end_session", Ok(StoreResponse::Done));
    assert_eq!(bench.take_wanted().last().map(String::as_str), Some("Ended"));
}

#[test]
fn g31_a_node_that_is_abandoned_ends_its_sessions_at_once() {
    let mut bench = Bench::with(vec![row(2, 0)]);
    bench.node.handle_abandoned(at(10));
    bench.look();
    assert_eq!(bench.take_wanted(), ["EndLanes"]);
    assert_eq!(bench.names(), ["give_back_tasks", "end_session"], "another node may run what it took");
}
