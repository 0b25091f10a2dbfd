//! A node without threads: the outputs of its lane wait until a test handles them.
//!
//! The lane and the store are the real ones. The test decides when an id is looked up, an instance is loaded,
//! a turn is taken, a batch is written (and with which result), a page of the inbox is read, an activity
//! finishes, and when the process crashes. Calls about sessions, shards and maintenance are made at once.
//! Properties that hold in any order are checked at every output: one turn or commit in progress per
//! instance, no activity before its schedule is durable, one answer per request.

mod activities;
mod batches;
mod callers;
mod calls;
mod life;
mod lookout;
mod others;
mod store_faults;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perennial_core::lane::{Lane, LaneOptions, LaneOutput, Moment};
use perennial_core::shard::{
    ActivityTask, Fact, RequestId, Response, ShardOptions, Tenure, TurnTask, TurnTaskDone,
};
use perennial_core::store::{Changes, Commit, MemoryStore, SessionId, ShardSet, TaskId};
use perennial_core::{EventId, Handlers, InstanceKey, SHARDS, ShardId};

pub use calls::HeldResponse;
use calls::{Kind, WaitingCalls, wait_for_store};
use store_faults::StoreFaults;

/// Longer than any test, and small enough to be added to a timestamp without overflow.
const FOR_EVER_MS: u64 = 1 << 52;

/// One node with one lane over a store in memory. Time starts at 1,000 ms and moves only when the test sets
/// it.
pub struct ManualNode {
    store: Arc<MemoryStore>,
    clock: Arc<AtomicU64>,
    handlers: Handlers,
    options: LaneOptions,
    lane: Lane,
    /// The number of the process: requests to one process are not answered by another.
    process: u64,
    waiting: WaitingCalls,
    quarantine_wishes: VecDeque<QuarantineWish>,
    turns: VecDeque<TurnTask>,
    /// Histories that wait to be read; `None` if they are read at once.
    held_histories: Option<Vec<TurnTask>>,
    running: Vec<ActivityTask>,
    /// Attempts that became task rows of the node's own session and are still running.
    handed_over: Vec<ActivityTask>,
    /// Cancelled activities.
    cancelled: Vec<(InstanceKey, EventId)>,
    faults: StoreFaults,
    /// Instances that the store fails to read.
    unreadable: BTreeSet<InstanceKey>,
    seen: Seen,
    next_number: u64,
}

/// An activity that waits to run in quarantine.
struct QuarantineWish {
    shard: ShardId,
    tenure: Tenure,
    key: InstanceKey,
    event: EventId,
}

/// Events so far, across crashes.
#[derive(Default)]
struct Seen {
    names: BTreeMap<InstanceKey, Arc<str>>,
    answers: BTreeMap<RequestId, Response>,
    turning: BTreeMap<InstanceKey, ShardId>,
    committing: BTreeMap<InstanceKey, ShardId>,
    /// Durable schedule events of activities.
    schedules: BTreeSet<(InstanceKey, u64, EventId)>,
    activities: BTreeMap<(InstanceKey, EventId), String>,
    runs: Vec<String>,
    stops: Vec<String>,
    running_stops: Vec<String>,
    written: Vec<(InstanceKey, Commit)>,
    histories_read: usize,
    /// The number of turns by instance.
    turns: BTreeMap<InstanceKey, u64>,
    turns_taken: u64,
}

impl ManualNode {
    /// The version of every orchestration that is started here.
    pub const VERSION: &'static str = "1.0.0";

    /// The node's own session, which holds the tasks that its lane hands over.
    pub const NODE: SessionId = SessionId(1);

    /// Ids that belong to one shard, so that their instances share its limits.
    pub fn ids_of_one_shard(count: usize) -> Vec<String> {
        let ids = (0..).map(|number| format!("instance-{number}"));
        ids.filter(|id| ShardId::of(id) == ShardId(7)).take(count).collect()
    }

    /// Creates a node that runs these orchestrations over an empty store.
    pub fn new(handlers: Handlers) -> ManualNode {
        ManualNode::with_options(handlers, ShardOptions::default())
    }

    /// Creates a node with options for its shards.
    pub fn with_options(handlers: Handlers, shard: ShardOptions) -> ManualNode {
        ManualNode::with_lane_options(handlers, LaneOptions { shard, ..ManualNode::lane_options() })
    }

    /// Options without pressure: the lease never expires, the lane does not poll, and it keeps every
    /// execution.
    pub fn lane_options() -> LaneOptions {
        let for_ever = Duration::from_millis(FOR_EVER_MS);
        LaneOptions {
            node: ManualNode::NODE,
            lease_ms: FOR_EVER_MS,
            poll_pauses: (for_ever, for_ever),
            news_pause: Duration::ZERO,
            keep_executions: None,
            keep_executions_ms: None,
            ..LaneOptions::default()
        }
    }

    /// Creates a node with options for its lane. It has claimed every shard and read the store.
    pub fn with_lane_options(handlers: Handlers, options: LaneOptions) -> ManualNode {
        let clock = Arc::new(AtomicU64::new(1_000));
        let time = Arc::clone(&clock);
        let store = Arc::new(MemoryStore::new(move || time.load(Ordering::Relaxed)));
        let lane = Lane::new(options.clone(), 0, Duration::from_secs(1));
        let mut node = ManualNode {
            store,
            clock,
            handlers,
            options,
            lane,
            process: 0,
            waiting: WaitingCalls::default(),
            quarantine_wishes: VecDeque::new(),
            turns: VecDeque::new(),
            held_histories: None,
            running: Vec::new(),
            handed_over: Vec::new(),
            cancelled: Vec::new(),
            faults: StoreFaults::default(),
            unreadable: BTreeSet::new(),
            seen: Seen::default(),
            next_number: 0,
        };
        node.set_target(SHARDS);
        node.take_over();
        node
    }

    /// The store.
    pub fn store(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.store)
    }

    /// The lane, for inspection.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Takes the facts that the lane has stated since, if its options ask for any.
    pub fn take_facts(&mut self) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.lane.swap_facts(&mut facts);
        facts
    }

    // ---- turns ----------------------------------------------------------------------------------------------------

    /// Removes the turn task of an instance from the queue.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick_turn(&mut self, id: &str) -> TurnTask {
        let position = self.turns.iter().position(|task| &*task.instance == id);
        let position = position.unwrap_or_else(|| panic!("{id:?} has no turn task"));
        self.turns.remove(position).expect("it was just found")
    }

    /// Runs a turn task with the current code.
    pub fn run_turn(&self, task: TurnTask) -> TurnTaskDone {
        task.run(&self.handlers, |_| ())
    }

    /// Returns the result of a turn task to the lane.
    pub fn bring_turn(&mut self, done: TurnTaskDone) {
        self.seen.turning.remove(&done.key);
        *self.seen.turns.entry(done.key).or_default() += 1;
        self.seen.turns_taken += 1;
        self.feed(|lane, now| lane.handle_turn_done(now, done));
    }

    /// The number of turns of all instances.
    pub fn turns_taken(&self) -> u64 {
        self.seen.turns_taken
    }

    /// The id of the instance with the most turns, and their number.
    pub fn most_turns(&self) -> Option<(&str, u64)> {
        let (key, turns) = self.seen.turns.iter().max_by_key(|(_, turns)| **turns)?;
        Some((self.seen.names.get(key)?, *turns))
    }

    /// Runs the turn task of an instance.
    pub fn take_turn(&mut self, id: &str) {
        let task = self.pick_turn(id);
        let done = self.run_turn(task);
        self.bring_turn(done);
    }

    /// Drops the turn task of an instance, as if its thread was lost.
    pub fn lose_turn(&mut self, id: &str) {
        let TurnTask { shard, tenure, key, number, .. } = self.pick_turn(id);
        self.give_up_turn(shard, tenure, key, number);
    }

    /// Reports a removed turn task as lost.
    pub fn give_up_turn(&mut self, shard: ShardId, tenure: Tenure, key: InstanceKey, number: u64) {
        self.seen.turning.remove(&key);
        self.feed(|lane, now| lane.handle_turn_lost(now, shard, tenure, key, number));
    }

    /// Runs all turn tasks. Returns whether there was one.
    pub fn take_turns(&mut self) -> bool {
        let ids: Vec<Arc<str>> = self.turns.iter().map(|task| Arc::clone(&task.instance)).collect();
        ids.iter().for_each(|id| self.take_turn(id));
        !ids.is_empty()
    }

    /// Sets whether histories that are read without running code are held back. With `false`, those held back
    /// are read.
    pub fn hold_histories(&mut self, is_held: bool) -> &mut ManualNode {
        let held = std::mem::replace(&mut self.held_histories, is_held.then(Vec::new));
        for task in held.into_iter().flatten() {
            let done = self.run_turn(task);
            self.feed(|lane, now| lane.handle_turn_done(now, done));
        }
        self
    }

    /// The number of histories that were, or are to be, read without running code.
    pub fn histories_read(&self) -> usize {
        self.seen.histories_read
    }

    /// Does everything that can be done, except finishing activities.
    pub fn settle(&mut self) -> &mut ManualNode {
        while self.look_up()
            || self.load()
            || self.take_turns()
            || self.replace_session()
            || self.commit() > 0
            || self.follow_hint()
        {}
        self
    }

    // ---- time -----------------------------------------------------------------------------------------------------

    /// The current time.
    pub fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// The time of the node's monotonic clock, which agrees with the store's.
    pub fn moment(&self) -> Moment {
        Duration::from_millis(self.now_ms())
    }

    /// Sets the clock without informing the lane.
    pub fn set_clock(&mut self, now_ms: u64) {
        self.clock.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Tells the lane the current time, and handles due work.
    pub fn tick(&mut self) -> &mut ManualNode {
        loop {
            self.feed(|lane, now| lane.handle_time(now));
            let has_read = self.make(Kind::Due);
            let now = self.moment();
            if !has_read && self.lane.next_wake(now).is_none_or(|at| at > now) {
                return self;
            }
        }
    }

    /// Sets the clock and informs the lane.
    pub fn at(&mut self, now_ms: u64) -> &mut ManualNode {
        self.set_clock(now_ms);
        self.tick()
    }

    /// Delivers a hint that the store may have changed.
    pub fn hint(&mut self, changes: &Changes) {
        self.feed(|lane, now| lane.handle_changes(now, changes));
    }

    /// Sets the number of shards that the lane should own.
    pub fn set_target(&mut self, target: usize) -> &mut ManualNode {
        self.feed(|lane, now| lane.handle_target(now, target));
        self
    }

    // ---- outputs of the lane
    // --------------------------------------------------------------------------------------

    /// Passes an input to the lane, and queues its outputs.
    fn feed(&mut self, input: impl FnOnce(&mut Lane, Moment)) {
        let now = self.moment();
        input(&mut self.lane, now);
        let mut outputs = VecDeque::from(self.lane.take_outputs(now));
        while let Some(output) = outputs.pop_front() {
            self.lay_down(now, output);
            outputs.extend(self.lane.take_outputs(now));
        }
    }

    fn lay_down(&mut self, now: Moment, output: LaneOutput) {
        match output {
            LaneOutput::Call(id, call) => {
                self.note_call(&call);
                if self.waiting.is_held_back(Kind::of(&call)) || self.faults.is_slow(&call) {
                    self.waiting.add(id, call);
                } else {
                    let answer = self.answer_of(call);
                    self.lane.handle_response(now, id, answer);
                }
            }
            // It runs no code, so it is not a turn of the test.
            LaneOutput::TakeTurn(task) if !task.source.runs_code() => {
                self.seen.histories_read += 1;
                match &mut self.held_histories {
                    Some(held) => held.push(*task),
                    None => {
                        let done = self.run_turn(*task);
                        self.lane.handle_turn_done(now, done);
                    }
                }
            }
            LaneOutput::TakeTurn(task) => {
                let (key, instance) = (task.key, &task.instance);
                self.seen.names.insert(key, Arc::clone(instance));
                let beside = self.seen.turning.insert(key, task.shard);
                assert!(beside.is_none(), "two concurrent turns of {instance:?}");
                assert!(!self.seen.committing.contains_key(&key), "a turn of {instance:?} during a commit");
                self.turns.push_back(*task);
            }
            LaneOutput::RunActivity(task) => self.run_activity(*task),
            LaneOutput::HandOver(task) => self.hand_over(&task),
            LaneOutput::WantQuarantineSlot { shard, tenure, task: TaskId { key, event, .. }, .. } => {
                if self.waiting.holds_back {
                    self.quarantine_wishes.push_back(QuarantineWish { shard, tenure, key, event });
                } else {
                    self.lane.handle_slot_granted(now, shard, tenure, key, event);
                }
            }
            LaneOutput::CancelActivity { key, event, .. } => {
                let name = self.seen.activities.get(&(key, event));
                let name = name.cloned().unwrap_or_else(|| event.to_string());
                let line = format!("{} {name}", self.name(key));
                if self.running.iter().any(|task| (task.key, task.event) == (key, event)) {
                    self.seen.running_stops.push(line.clone());
                }
                self.seen.stops.push(line);
                self.cancelled.push((key, event));
            }
            LaneOutput::Reply { request, answer, .. } => {
                let earlier = self.seen.answers.insert(request, answer);
                assert!(earlier.is_none(), "{request:?} was answered before: {earlier:?}");
            }
            LaneOutput::Lost(shards) => self.forget(&shards),
            LaneOutput::Failed(error) => panic!("the node stops: {error}"),
            LaneOutput::Drop(execution) => drop(execution),
            LaneOutput::Gained(_) | LaneOutput::StoreTime { .. } | LaneOutput::Ended => {}
        }
    }

    /// Discards everything in progress in these shards.
    fn forget(&mut self, shards: &ShardSet) {
        self.seen.turning.retain(|_, shard| !shards.contains(*shard));
        self.seen.committing.retain(|_, shard| !shards.contains(*shard));
    }

    fn new_key(&mut self) -> InstanceKey {
        InstanceKey::new(self.now_ms(), u128::from(self.number()))
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}
