//! TurnThreads: run orchestration code, away from tokio, under a deadline.
//!
//! A turn past its deadline is told to unwind at its next context call. One that makes none keeps its thread, which is
//! written off and replaced; its instance is blocked and not tried again in this process.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use perennial_core::shard::TurnTask;
use perennial_core::{Execution, InstanceKey, Interrupter, ShardId};

use super::node::Node;

/// How often running turns are looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// How long after its deadline a turn may take to unwind.
const UNWIND_GRACE: Duration = Duration::from_secs(1);

/// What runs on a turn thread.
pub(crate) enum TurnWork {
    Turn(ShardId, Box<TurnTask>),
    /// Executions that are gone from memory: their destructors are user code.
    Drop(Box<Execution>),
}

#[derive(Default)]
pub(crate) struct TurnThreads {
    queue: Mutex<Queue>,
    ready: Condvar,
    /// Wakes the watch.
    watch: Condvar,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<TurnWork>,
    idle: usize,
    /// The watch sleeps until there is a turn to watch.
    watch_sleeps: bool,
    stopped: bool,
    running: Vec<Arc<Seat>>,
    lost: usize,
}

/// Where a thread says what it is doing.
#[derive(Default)]
struct Seat {
    turn: Mutex<Option<RunningTurn>>,
}

struct RunningTurn {
    shard: ShardId,
    key: InstanceKey,
    number: u64,
    since: Instant,
    interrupter: Option<Interrupter>,
    written_off: bool,
}

impl TurnThreads {
    pub(crate) fn submit(&self, work: impl IntoIterator<Item = TurnWork>) {
        let mut queue = self.lock();
        let before = queue.work.len();
        queue.work.extend(work);
        let wanted = (queue.work.len() - before).min(queue.idle);
        let wakes_watch = std::mem::take(&mut queue.watch_sleeps);
        drop(queue);
        if wakes_watch {
            self.watch.notify_one();
        }
        for _ in 0..wanted {
            self.ready.notify_one();
        }
    }

    /// How many turns wait for a thread.
    pub(crate) fn queued(&self) -> usize {
        self.lock().work.len()
    }

    /// Lets the threads finish what they do, and end.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.ready.notify_all();
        self.watch.notify_one();
    }

    pub(crate) fn start(node: &Arc<Node>, threads: usize) {
        for _ in 0..threads {
            TurnThreads::spawn(node);
        }
        let weak = Arc::downgrade(node);
        let watch = move || while TurnThreads::watch(&weak) {};
        thread::Builder::new().name("perennial-watch".to_owned()).spawn(watch).expect("a thread starts");
    }

    fn spawn(node: &Arc<Node>) {
        let seat: Arc<Seat> = Arc::default();
        node.turn_threads.lock().running.push(Arc::clone(&seat));
        let weak = Arc::downgrade(node);
        let run = move || {
            while let Some(node) = weak.upgrade() {
                let Some(work) = node.turn_threads.next() else {
                    return;
                };
                if !run_one(&node, &seat, work) {
                    return;
                }
            }
        };
        thread::Builder::new().name("perennial-turn".to_owned()).spawn(run).expect("a thread starts");
    }

    fn next(&self) -> Option<TurnWork> {
        let mut queue = self.lock();
        loop {
            if let Some(work) = queue.work.pop_front() {
                return Some(work);
            }
            if queue.stopped {
                return None;
            }
            queue.idle += 1;
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    /// Looks at the running turns once. Returns whether to go on.
    fn watch(node: &Weak<Node>) -> bool {
        let Some(node) = node.upgrade() else { return false };
        node.turn_threads.wait_to_watch();
        let deadline = node.options.turn_deadline;
        let seats = node.turn_threads.lock().running.clone();
        for seat in seats {
            let mut turn = seat.lock();
            let Some(running) = turn.as_mut().filter(|turn| turn.since.elapsed() > deadline) else {
                continue;
            };
            if let Some(interrupter) = &running.interrupter {
                interrupter.raise();
            }
            if running.since.elapsed() > deadline + UNWIND_GRACE && !running.written_off {
                running.written_off = true;
                let lost = (running.shard, running.key, running.number);
                drop(turn);
                TurnThreads::write_off(&node, &seat, lost);
            }
        }
        !node.turn_threads.lock().stopped
    }

    /// Waits until running turns are to be looked at: for as long as there is none, and a while.
    fn wait_to_watch(&self) {
        let mut queue = self.lock();
        queue.watch_sleeps = queue.work.is_empty() && queue.idle == queue.running.len();
        let asleep = |queue: &mut Queue| queue.watch_sleeps && !queue.stopped;
        let queue = self.watch.wait_while(queue, asleep).unwrap_or_else(PoisonError::into_inner);
        let awake = |queue: &mut Queue| !queue.stopped;
        let _ = self.watch.wait_timeout_while(queue, WATCH_INTERVAL, awake);
    }

    fn write_off(node: &Arc<Node>, seat: &Arc<Seat>, (shard, key, number): (ShardId, InstanceKey, u64)) {
        let lost = {
            let mut queue = node.turn_threads.lock();
            queue.running.retain(|other| !Arc::ptr_eq(other, seat));
            queue.lost += 1;
            queue.lost
        };
        tracing::error!(%key, lost, "a turn did not end; its thread is given up");
        node.with_shard(shard, |shard, now_ms| shard.handle_turn_lost(now_ms, key, number));
        node.turn_settled(key);
        if lost > node.options.max_lost_threads {
            return node
                .fail("too many turns did not end and kept their threads; restart the process".to_owned());
        }
        TurnThreads::spawn(node);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, Option<RunningTurn>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one piece of work. Returns whether the thread is still wanted.
fn run_one(node: &Arc<Node>, seat: &Seat, work: TurnWork) -> bool {
    let (shard, task) = match work {
        TurnWork::Turn(shard, task) => (shard, task),
        TurnWork::Drop(execution) => {
            drop(execution);
            return true;
        }
    };
    if !node.lease_keeper.wait() {
        return true;
    }
    let (key, number, since) = (task.key, task.number, Instant::now());
    *seat.lock() = Some(RunningTurn { shard, key, number, since, interrupter: None, written_off: false });
    let done = task.run(&node.registry, |execution| {
        if let Some(turn) = seat.lock().as_mut() {
            turn.interrupter = Some(execution.interrupter());
        }
    });
    let written_off = seat.lock().take().is_some_and(|turn| turn.written_off);
    if written_off {
        return false;
    }
    node.with_shard(shard, |shard, now_ms| shard.handle_turn_done(now_ms, done));
    node.turn_settled(key);
    true
}
