//! TurnThreads: run orchestration code, away from tokio, under a deadline.
//!
//! A turn past its deadline is told to unwind at its next context call. One that makes none keeps its thread, which is
//! written off and replaced; its instance is blocked and not tried again in this process.

use std::collections::VecDeque;
use std::panic;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use perennial_core::lane::LaneOutput;
use perennial_core::shard::{Tenure, TurnTask};
use perennial_core::{Execution, InstanceKey, Interrupter, ShardId};

use super::driver::{Driver, Failure};

/// How often running turns are looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// How long after its deadline a turn may take to unwind.
const UNWIND_GRACE: Duration = Duration::from_secs(1);

/// What runs on a turn thread.
pub(crate) enum TurnWork {
    Turn(Box<TurnTask>),
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
    turn: TurnName,
    since: Instant,
    interrupter: Option<Interrupter>,
    written_off: bool,
}

/// Names a turn that is being taken.
#[derive(Clone, Copy)]
struct TurnName {
    shard: ShardId,
    tenure: Tenure,
    key: InstanceKey,
    number: u64,
}

/// Has the places of panics noted, before the process's own hook is called. Instances that one line of code blocks are
/// grouped by it; a hook that the user sets later takes this one's place, and then they are grouped less finely.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let own = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            perennial_core::note_panic(info);
            own(info);
        }));
    });
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

    /// Lets the threads finish what they do, and end.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.ready.notify_all();
        self.watch.notify_one();
    }

    pub(crate) fn start(driver: &Arc<Driver>, threads: usize) {
        note_panics();
        for _ in 0..threads {
            TurnThreads::spawn(driver);
        }
        let weak = Arc::downgrade(driver);
        let watch = move || while TurnThreads::watch(&weak) {};
        thread::Builder::new().name("perennial-watch".to_owned()).spawn(watch).expect("a thread starts");
    }

    fn spawn(driver: &Arc<Driver>) {
        let seat: Arc<Seat> = Arc::default();
        driver.turn_threads.lock().running.push(Arc::clone(&seat));
        let weak = Arc::downgrade(driver);
        let run = move || {
            while let Some(driver) = weak.upgrade() {
                let Some(work) = driver.turn_threads.next() else {
                    return;
                };
                if !run_one(&driver, &seat, work) {
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
    fn watch(driver: &Weak<Driver>) -> bool {
        let Some(driver) = driver.upgrade() else { return false };
        driver.turn_threads.wait_to_watch();
        let deadline = driver.options.turn_deadline;
        let seats = driver.turn_threads.lock().running.clone();
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
                let lost = running.turn;
                drop(turn);
                TurnThreads::write_off(&driver, &seat, lost);
            }
        }
        !driver.turn_threads.lock().stopped
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

    fn write_off(driver: &Arc<Driver>, seat: &Arc<Seat>, turn: TurnName) {
        let lost = {
            let mut queue = driver.turn_threads.lock();
            queue.running.retain(|other| !Arc::ptr_eq(other, seat));
            queue.lost += 1;
            queue.lost
        };
        let TurnName { shard, tenure, key, number } = turn;
        tracing::error!(%key, lost, "a turn did not end; its thread is given up");
        driver.with_lane(|lane, now| lane.handle_turn_lost(now, shard, tenure, key, number));
        if lost > driver.options.max_lost_threads {
            let reason = "too many turns did not end and kept their threads; restart the process";
            return driver.fail(Failure::Other(reason.to_owned()));
        }
        TurnThreads::spawn(driver);
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
fn run_one(driver: &Arc<Driver>, seat: &Seat, work: TurnWork) -> bool {
    let task = match work {
        TurnWork::Turn(task) => task,
        TurnWork::Drop(execution) => {
            drop(execution);
            return true;
        }
    };
    if !driver.may_act() {
        driver.with_lane(|lane, now| lane.hold_back(now, LaneOutput::TakeTurn(task)));
        return true;
    }
    let turn = TurnName { shard: task.shard, tenure: task.tenure, key: task.key, number: task.number };
    *seat.lock() = Some(RunningTurn { turn, since: Instant::now(), interrupter: None, written_off: false });
    let done = task.run(&driver.registry, |execution| {
        if let Some(turn) = seat.lock().as_mut() {
            turn.interrupter = Some(execution.interrupter());
        }
    });
    let written_off = seat.lock().take().is_some_and(|turn| turn.written_off);
    if written_off {
        return false;
    }
    driver.with_lane(|lane, now| lane.handle_turn_done(now, done));
    true
}
