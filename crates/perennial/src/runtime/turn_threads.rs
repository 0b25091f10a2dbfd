//! TurnThreads: run orchestration code on threads outside of tokio, under a deadline.
//!
//! A turn past its deadline unwinds at its next context call. A turn that makes no such call keeps its
//! thread, which is written off and replaced; its instance is blocked and not retried in this process. Long
//! before that, if other turns wait, a slow turn's thread gets a stand-in, so that the others do not wait for
//! the deadline.

use std::collections::VecDeque;
use std::panic;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use perennial_core::lane::LaneOutput;
use perennial_core::log;
use perennial_core::shard::{Tenure, TurnTask};
use perennial_core::{Execution, InstanceKey, Interrupter, ShardId};

use super::driver::Driver;
use super::lanes::LaneIndex;
use super::standing::Failure;

/// How often running turns are checked. Nothing is checked while there are none.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// A turn that takes longer than this gets a stand-in if others wait.
const SLOW_AFTER: Duration = Duration::from_millis(150);
/// How long after its deadline a turn may take to unwind.
const UNWIND_GRACE: Duration = Duration::from_secs(1);

/// Work of a turn thread.
pub(crate) enum TurnWork {
    /// A turn that this lane requested.
    Turn(LaneIndex, Box<TurnTask>),
    /// Executions that were evicted: their destructors are user code.
    Drop(Box<Execution>),
}

#[derive(Default)]
pub(crate) struct TurnThreads {
    queue: Mutex<Queue>,
    ready: Condvar,
    /// Wakes the watch thread.
    watch: Condvar,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<TurnWork>,
    /// Number of threads that wait for work.
    idle: usize,
    /// Number of those that were notified and have not run since.
    notified: usize,
    /// The watch thread sleeps until there is a turn.
    watch_sleeps: bool,
    stopped: bool,
    running: Vec<Arc<Seat>>,
    lost: usize,
    /// Number of threads that stand in for those with slow turns.
    stand_ins: usize,
}

/// The current work of a thread.
#[derive(Default)]
struct Seat {
    turn: Mutex<Option<RunningTurn>>,
}

struct RunningTurn {
    turn: TurnName,
    since: Instant,
    interrupter: Option<Interrupter>,
    written_off: bool,
    /// Whether another thread takes turns instead of this one, which ends after its turn.
    is_replaced: bool,
}

/// Identifies a running turn.
#[derive(Clone, Copy)]
struct TurnName {
    lane: LaneIndex,
    shard: ShardId,
    tenure: Tenure,
    key: InstanceKey,
    number: u64,
}

/// Installs a panic hook that notes the locations of panics and then calls the previous hook. Blocked
/// instances are grouped by location; if the user sets another hook later, they are grouped less precisely.
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
        // Notifying a thread is a system call. One that is about to run takes all work that it finds.
        let wanted = (queue.work.len() - before).min(queue.idle.saturating_sub(queue.notified));
        queue.notified += wanted;
        let wakes_watch = std::mem::take(&mut queue.watch_sleeps);
        drop(queue);
        if wakes_watch {
            self.watch.notify_one();
        }
        for _ in 0..wanted {
            self.ready.notify_one();
        }
    }

    /// The number of turns that run.
    pub(super) fn busy(&self) -> usize {
        self.lock().running.len()
    }

    /// The number of threads that were written off.
    pub(super) fn lost(&self) -> usize {
        self.lock().lost
    }

    /// Lets the threads finish their work and end.
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
                match run_one(&driver, &seat, work) {
                    Ran::Wanted => {}
                    Ran::Replaced => return driver.turn_threads.leave(&seat),
                    Ran::WrittenOff => return,
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
            queue.notified = queue.notified.saturating_sub(1);
        }
    }

    /// Checks the running turns once. Returns whether to continue.
    fn watch(driver: &Weak<Driver>) -> bool {
        let Some(driver) = driver.upgrade() else { return false };
        driver.turn_threads.wait_to_watch();
        let deadline = driver.options.turn_deadline;
        let seats = driver.turn_threads.lock().running.clone();
        for seat in seats {
            TurnThreads::stand_in(&driver, &seat);
            let mut turn = seat.lock();
            let Some(running) = turn.as_mut().filter(|turn| turn.since.elapsed() > deadline) else {
                continue;
            };
            if let Some(interrupter) = &running.interrupter {
                interrupter.raise();
            }
            if running.since.elapsed() > deadline + UNWIND_GRACE && !running.written_off {
                running.written_off = true;
                let (lost, is_replaced) = (running.turn, running.is_replaced);
                drop(turn);
                TurnThreads::write_off(&driver, &seat, lost, is_replaced);
            }
        }
        !driver.turn_threads.lock().stopped
    }

    /// Starts a stand-in for a thread with a slow turn, if others wait. The number is limited: if everything
    /// is slow, more threads do not help.
    fn stand_in(driver: &Arc<Driver>, seat: &Seat) {
        let mut turn = seat.lock();
        let Some(running) = turn.as_mut().filter(|turn| turn.since.elapsed() > SLOW_AFTER) else { return };
        if running.is_replaced {
            return;
        }
        let mut queue = driver.turn_threads.lock();
        if queue.work.is_empty() || queue.idle > 0 || queue.stand_ins >= driver.options.max_lost_threads {
            return;
        }
        queue.stand_ins += 1;
        running.is_replaced = true;
        drop((queue, turn));
        TurnThreads::spawn(driver);
    }

    /// Ends a thread that was replaced.
    fn leave(&self, seat: &Arc<Seat>) {
        let mut queue = self.lock();
        queue.running.retain(|other| !Arc::ptr_eq(other, seat));
        queue.stand_ins -= 1;
    }

    /// Waits until there are running turns, then for one interval.
    fn wait_to_watch(&self) {
        let mut queue = self.lock();
        queue.watch_sleeps = queue.work.is_empty() && queue.idle == queue.running.len();
        let asleep = |queue: &mut Queue| queue.watch_sleeps && !queue.stopped;
        let queue = self.watch.wait_while(queue, asleep).unwrap_or_else(PoisonError::into_inner);
        let awake = |queue: &mut Queue| !queue.stopped;
        let _ = self.watch.wait_timeout_while(queue, WATCH_INTERVAL, awake);
    }

    fn write_off(driver: &Arc<Driver>, seat: &Arc<Seat>, turn: TurnName, is_replaced: bool) {
        let lost = {
            let mut queue = driver.turn_threads.lock();
            queue.running.retain(|other| !Arc::ptr_eq(other, seat));
            queue.lost += 1;
            queue.stand_ins -= usize::from(is_replaced);
            queue.lost
        };
        let TurnName { lane, shard, tenure, key, number } = turn;
        tracing::error!(target: log::NODE, %key, lost, "turn did not end; its thread is abandoned");
        driver.with_lane(lane, |lane, now| lane.handle_turn_lost(now, shard, tenure, key, number));
        if lost > driver.options.max_lost_threads {
            let reason = "too many turns did not end and kept their threads; restart the process";
            return driver.fail(Failure::Other(reason.to_owned()));
        }
        if !is_replaced {
            TurnThreads::spawn(driver);
        }
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

/// The outcome of one piece of work for its thread.
enum Ran {
    Wanted,
    Replaced,
    WrittenOff,
}

/// Runs one piece of work.
fn run_one(driver: &Arc<Driver>, seat: &Seat, work: TurnWork) -> Ran {
    let (lane, task) = match work {
        TurnWork::Turn(lane, task) => (lane, task),
        TurnWork::Drop(execution) => {
            drop(execution);
            return Ran::Wanted;
        }
    };
    if !driver.may_act(Some(lane)) {
        driver.with_lane(lane, |lane, now| lane.hold_back(now, LaneOutput::TakeTurn(task)));
        return Ran::Wanted;
    }
    let turn = TurnName { lane, shard: task.shard, tenure: task.tenure, key: task.key, number: task.number };
    let since = Instant::now();
    *seat.lock() =
        Some(RunningTurn { turn, since, interrupter: None, written_off: false, is_replaced: false });
    let watch = |execution: &Execution| {
        if let Some(turn) = seat.lock().as_mut() {
            turn.interrupter = Some(execution.interrupter());
        }
    };
    let done = match &driver.meters {
        Some(_) => task.run_timed(&driver.registry, watch, || since.elapsed()),
        None => task.run(&driver.registry, watch),
    };
    let ran = seat.lock().take();
    if ran.as_ref().is_some_and(|turn| turn.written_off) {
        return Ran::WrittenOff;
    }
    driver.with_lane(lane, |lane, now| lane.handle_turn_done(now, done));
    if ran.is_some_and(|turn| turn.is_replaced) { Ran::Replaced } else { Ran::Wanted }
}
