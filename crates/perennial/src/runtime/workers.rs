//! Workers: run a limited number of attempts of activities on tokio.
//!
//! An attempt ends with a result, by one of its timeouts, or because it is cancelled; in the last two cases
//! its cancellation token fires, and after a grace period its future is dropped. When the node stops,
//! unfinished attempts are released and run again on the next node.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use perennial_core::codec::{is_encoded, unquoted};
use perennial_core::lane::{LaneOutput, Moment};
use perennial_core::log;
use perennial_core::node::{AttemptNumber, WaitingAttempt};
use perennial_core::shard::ActivityTask;
use perennial_core::{ActivityError, ActivityOptions, EventId, InstanceKey, Payload, TimeoutKind};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::attempt_span::AttemptSpan;
use super::driver::Driver;
use super::heartbeat_monitor::{HeartbeatMonitor, sleep_until};
use super::lanes::LaneIndex;
use super::meters::AttemptEnd;
use crate::activity::{ActivityContext, ActivityHandler};
use crate::client::Client;

pub(crate) struct Workers {
    handle: Handle,
    slots: Semaphore,
    all_slots: usize,
    grace: Duration,
    running: Mutex<Running>,
    idle: tokio::sync::Notify,
    /// Whether this node has ever held a task.
    has_tasks: AtomicBool,
    /// Fires when no more attempts may begin.
    closing: CancellationToken,
    /// Fires when the results of running attempts no longer count: they are cancelled because the node stops,
    /// and run again on the next node.
    abandoned: CancellationToken,
}

/// The attempts that run or wait for a slot.
///
/// Each has a unique number: a cancelled attempt may outlive its execution, and the next execution's activity
/// may have the same event, or the next attempt may begin before the first has cleared its place.
#[derive(Default)]
struct Running {
    attempts: BTreeMap<AttemptKey, Entry>,
    /// The attempts that wait for a slot, in the order in which they were requested. One that was withdrawn, or has
    /// its slot, is not in it: whoever removes it decides whether it begins.
    waiting: BTreeMap<AttemptNumber, Waiting>,
    next: u64,
}

/// An attempt that waits for a slot.
struct Waiting {
    since: Moment,
    task: Arc<ActivityTask>,
    /// Fires when it is withdrawn.
    withdrawn: CancellationToken,
}

struct Entry {
    cancellation: CancellationToken,
    /// Whether it is a task of this node, so that its end is reported to the node and not to a lane. Read and
    /// changed under the lane's lock.
    is_task: bool,
}

/// Identifies a running attempt.
pub(super) type AttemptKey = (InstanceKey, u64, EventId, u64);

/// A running attempt and who requested it.
#[derive(Clone, Copy)]
pub(super) struct AttemptPlace {
    pub(super) key: AttemptKey,
    /// The lane that requested it; `None` if the node took its task from the store.
    pub(super) lane: Option<LaneIndex>,
}

impl AttemptPlace {
    fn number(self) -> AttemptNumber {
        AttemptNumber(self.key.3)
    }
}

/// An attempt that has a place and may begin.
pub(super) struct Admitted {
    key: AttemptKey,
    cancellation: CancellationToken,
}

impl Running {
    fn add(&mut self, task: &ActivityTask, is_task: bool) -> Admitted {
        let key = (task.key, task.execution, task.event, self.next);
        self.next += 1;
        let cancellation = CancellationToken::new();
        self.attempts.insert(key, Entry { cancellation: cancellation.clone(), is_task });
        Admitted { key, cancellation }
    }

    fn of(&mut self, key: InstanceKey, execution: u64, event: EventId) -> impl Iterator<Item = &mut Entry> {
        let all = (key, execution, event, 0)..=(key, execution, event, u64::MAX);
        self.attempts.range_mut(all).map(|(_, entry)| entry)
    }
}

/// The outcome of an attempt.
enum Ended {
    Result(Result<Payload, ActivityError>),
    /// The code ran for this long and returned without a result, which is reported with the token.
    LeftOpen(Duration),
    /// It never began, or was stopped because the node stops.
    Released,
    /// It waited too long for a slot: another node has room.
    Spilled,
}

impl Workers {
    pub(crate) fn new(handle: Handle, slots: usize, grace: Duration) -> Workers {
        let all_slots = slots.clamp(1, Semaphore::MAX_PERMITS);
        Workers {
            handle,
            slots: Semaphore::new(all_slots),
            all_slots,
            grace,
            running: Mutex::default(),
            idle: tokio::sync::Notify::new(),
            has_tasks: AtomicBool::new(false),
            closing: CancellationToken::new(),
            abandoned: CancellationToken::new(),
        }
    }

    /// Notes the places of the attempts among a lane's outputs, and marks those that are handed over to the
    /// node. Called under the lane's lock, so that later outputs find them.
    pub(super) fn admit(&self, outputs: &[LaneOutput]) -> Vec<Admitted> {
        let concerns =
            |output: &LaneOutput| matches!(output, LaneOutput::RunActivity(_) | LaneOutput::HandOver(_));
        if !outputs.iter().any(concerns) {
            return Vec::new();
        }
        let mut running = self.lock();
        let mut admitted = Vec::new();
        for output in outputs {
            match output {
                LaneOutput::RunActivity(task) => admitted.push(running.add(task, false)),
                LaneOutput::HandOver(task) => {
                    running.of(task.key, task.execution, task.event).for_each(|entry| entry.is_task = true);
                    self.has_tasks.store(true, Ordering::Release);
                }
                _ => {}
            }
        }
        admitted
    }

    /// Whether an attempt is a task of this node.
    pub(super) fn is_task(&self, key: AttemptKey) -> bool {
        // Most nodes never have tasks.
        self.has_tasks.load(Ordering::Acquire)
            && self.lock().attempts.get(&key).is_some_and(|entry| entry.is_task)
    }

    /// Runs the attempts that a lane requested.
    pub(super) fn run(driver: &Arc<Driver>, lane: LaneIndex, attempts: Vec<(Box<ActivityTask>, Admitted)>) {
        let mut runs: Vec<AttemptRun> = attempts
            .into_iter()
            .filter_map(|(task, admitted)| Workers::prepare(driver, Some(lane), *task, admitted))
            .collect();
        let Some(last) = runs.pop() else { return };
        let handle = &driver.workers.handle;
        let driver = Arc::clone(driver);
        if runs.is_empty() {
            handle.spawn(Box::pin(last.run(driver)));
            return;
        }
        // A spawn from outside of tokio's threads wakes one of them; from inside it is cheap.
        handle.spawn(async move {
            runs.into_iter().for_each(|run| drop(tokio::spawn(Box::pin(run.run(Arc::clone(&driver))))));
            Box::pin(last.run(driver)).await;
        });
    }

    /// Runs one attempt of a task that was taken from the store.
    pub(super) fn run_task(driver: &Arc<Driver>, task: ActivityTask) {
        driver.workers.has_tasks.store(true, Ordering::Release);
        let admitted = driver.workers.lock().add(&task, true);
        if let Some(run) = Workers::prepare(driver, None, task, admitted) {
            driver.workers.handle.spawn(Box::pin(run.run(Arc::clone(driver))));
        }
    }

    /// Prepares an attempt; `None` if it cannot run here.
    fn prepare(
        driver: &Arc<Driver>,
        lane: Option<LaneIndex>,
        task: ActivityTask,
        Admitted { key, cancellation }: Admitted,
    ) -> Option<AttemptRun> {
        let (workers, place) = (&driver.workers, AttemptPlace { key, lane });
        let handler = driver.registry.activity(&task.name).filter(|_| !workers.closing.is_cancelled());
        let Some(handler) = handler else {
            driver.activity_released(place, &task);
            workers.forget(key);
            return None;
        };
        let is_gated = driver.options.shard.is_gated(&task);
        if is_gated {
            driver.with_node(|node, now, _| node.handle_quarantined_begun(now, &task));
        }
        Some(AttemptRun { task: Arc::new(task), handler, place, cancellation, is_gated })
    }

    /// The number of free slots.
    pub(super) fn free(&self) -> usize {
        if self.closing.is_cancelled() { 0 } else { self.slots.available_permits() }
    }

    /// The number of slots in use.
    pub(super) fn slots_used(&self) -> usize {
        self.all_slots.saturating_sub(self.slots.available_permits())
    }

    /// Lists the attempts that wait for a slot, in the order in which they were requested.
    pub(super) fn with_waiting<T>(
        &self,
        list: impl for<'a> FnOnce(&mut dyn Iterator<Item = WaitingAttempt<'a>>) -> T,
    ) -> T {
        let running = self.lock();
        let mut waiting = running.waiting.iter().map(|(number, waiting)| WaitingAttempt {
            number: *number,
            since: waiting.since,
            name: &waiting.task.name,
            tag: waiting.task.tag(),
        });
        list(&mut waiting)
    }

    /// Withdraws an attempt, if it still waits for a slot.
    pub(super) fn withdraw(&self, number: AttemptNumber) {
        let waiting = self.lock().waiting.remove(&number);
        if let Some(waiting) = waiting {
            waiting.withdrawn.cancel();
        }
    }

    /// Notes that an attempt waits for a slot from now on. Returns what fires when it is withdrawn, and whether no other
    /// attempt waits.
    fn begin_waiting(
        &self,
        number: AttemptNumber,
        since: Moment,
        task: &Arc<ActivityTask>,
    ) -> (CancellationToken, bool) {
        let withdrawn = CancellationToken::new();
        let waiting = Waiting { since, task: Arc::clone(task), withdrawn: withdrawn.clone() };
        let mut running = self.lock();
        let is_first = running.waiting.is_empty();
        running.waiting.insert(number, waiting);
        (withdrawn, is_first)
    }

    /// Ends the wait of an attempt. Returns `false` if it was withdrawn.
    fn end_waiting(&self, number: AttemptNumber) -> bool {
        self.lock().waiting.remove(&number).is_some()
    }

    /// Cancels a running attempt.
    pub(crate) fn cancel(&self, key: InstanceKey, execution: u64, event: EventId) {
        let tokens: Vec<CancellationToken> =
            self.lock().of(key, execution, event).map(|entry| entry.cancellation.clone()).collect();
        tokens.iter().for_each(CancellationToken::cancel);
    }

    /// Lets no more attempts begin. Attempts that wait for a slot are released and run on the next node.
    pub(crate) fn stop_taking(&self) {
        self.closing.cancel();
    }

    /// Cancels all attempts because the node stops; their results do not count.
    pub(crate) fn abandon_all(&self) {
        self.closing.cancel();
        self.abandoned.cancel();
        let tokens: Vec<CancellationToken> =
            self.lock().attempts.values().map(|entry| entry.cancellation.clone()).collect();
        tokens.iter().for_each(CancellationToken::cancel);
    }

    /// Resolves when no attempt runs.
    pub(crate) async fn finished(&self) {
        loop {
            let idle = self.idle.notified();
            if self.lock().attempts.is_empty() {
                return;
            }
            idle.await;
        }
    }

    fn forget(&self, key: AttemptKey) {
        let mut running = self.lock();
        running.attempts.remove(&key);
        if running.attempts.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// A slot for an attempt, if one is free and the attempt may begin.
    fn try_slot(&self, driver: &Driver, lane: Option<LaneIndex>) -> Option<SemaphorePermit<'_>> {
        let slot = self.slots.try_acquire().ok()?;
        driver.may_act(lane).then_some(slot)
    }

    /// Waits for a slot. A gated attempt does not wait: it was granted because there was a slot, and waiting
    /// would count as its own time.
    async fn slot(
        &self,
        driver: &Driver,
        lane: Option<LaneIndex>,
        is_gated: bool,
    ) -> Option<SemaphorePermit<'_>> {
        let slot = match is_gated {
            true => self.slots.try_acquire().ok(),
            false => Some(self.slots.acquire().await.expect("slots are never closed")),
        };
        // An attempt begins only while its lane, or the node for its tasks, may act.
        driver.until_acting(lane).await;
        slot
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An attempt with all it needs to run.
struct AttemptRun {
    task: Arc<ActivityTask>,
    handler: Arc<dyn ActivityHandler>,
    place: AttemptPlace,
    cancellation: CancellationToken,
    /// Whether it was granted its turn among activities that were interrupted before.
    is_gated: bool,
}

impl AttemptRun {
    /// Runs the attempt to its end. The future is large, and tokio moves its argument, so it is spawned in a
    /// box.
    async fn run(self, driver: Arc<Driver>) {
        let AttemptRun { task, handler, place, cancellation, is_gated } = self;
        let heartbeats = Arc::new(HeartbeatMonitor::new());
        let write = |details| driver.heartbeat(place, &task, details);
        let ended = attempt(&driver, &*handler, (&task, place), cancellation, &heartbeats, write).await;
        let ended = if driver.workers.abandoned.is_cancelled() { Ended::Released } else { ended };
        if !matches!(ended, Ended::Result(Ok(_)))
            && let Some(details) = heartbeats.take_unwritten()
        {
            driver.heartbeat(place, &task, details);
        }
        match ended {
            Ended::Result(result) => {
                let details = heartbeats.latest().or_else(|| task.details.clone());
                driver.activity_done(place, &task, result, details);
            }
            Ended::LeftOpen(ran) => {
                let details = heartbeats.latest().or_else(|| task.details.clone());
                driver.activity_left_open(place, &task, ran, details);
            }
            Ended::Released => driver.activity_released(place, &task),
            Ended::Spilled => driver.activity_spilled(place, &task),
        }
        driver.workers.forget(place.key);
        if is_gated {
            driver.with_node(|node, now, free| node.handle_quarantined_ended(now, &task, free));
        }
    }
}

impl Driver {
    /// Notes that an attempt waits for a slot. Returns what fires when it is withdrawn.
    fn attempt_waits(self: &Arc<Driver>, place: AttemptPlace, task: &Arc<ActivityTask>) -> CancellationToken {
        let since = self.clock.running();
        let (withdrawn, is_first) = self.workers.begin_waiting(place.number(), since, task);
        if is_first {
            self.with_node(|node, now, _| node.handle_waiting_began(now));
        }
        withdrawn
    }
}

async fn attempt(
    driver: &Arc<Driver>,
    handler: &dyn ActivityHandler,
    (task, place): (&Arc<ActivityTask>, AttemptPlace),
    cancellation: CancellationToken,
    heartbeats: &Arc<HeartbeatMonitor>,
    write: impl FnMut(Payload),
) -> Ended {
    let options = task.options.as_deref();
    let after = |ms: fn(&ActivityOptions) -> Option<u64>| options.and_then(ms).map(Duration::from_millis);
    let until = |span: Option<Duration>| span.and_then(|span| Instant::now().checked_add(span));
    let left = |deadline_ms: u64| Duration::from_millis(deadline_ms.saturating_sub(driver.now_ms()));
    let total_until = until(task.deadline_ms.map(left));
    let queue_until = until(after(|options| options.queue_timeout_ms));
    let timed_out = |kind| Ended::Result(Err(ActivityError::Timeout(kind)));

    let (workers, lane) = (&driver.workers, place.lane);
    let is_wanted = !cancellation.is_cancelled() && !workers.closing.is_cancelled();
    let _slot = match workers.try_slot(driver, lane).filter(|_| is_wanted) {
        Some(slot) => Some(slot),
        None => {
            // Boxed separately: most attempts do not wait, and should not reserve space for it.
            let waiting = Box::pin(async {
                let is_gated = driver.options.shard.is_gated(task);
                // An attempt with a quarantine slot begins at once or is released.
                let withdrawn = match is_gated {
                    true => CancellationToken::new(),
                    false => driver.attempt_waits(place, task),
                };
                let ended = tokio::select! {
                    biased;
                    () = cancellation.cancelled() => Err(Ended::Result(Err(ActivityError::Cancelled))),
                    () = workers.closing.cancelled() => Err(Ended::Released),
                    () = withdrawn.cancelled() => Err(Ended::Spilled),
                    slot = workers.slot(driver, lane, is_gated) => Ok(slot),
                    () = sleep_until(total_until) => Err(timed_out(TimeoutKind::Total)),
                    () = sleep_until(queue_until) => Err(timed_out(TimeoutKind::Queue)),
                };
                // It may have been withdrawn just when it got a slot, or ended.
                match is_gated || workers.end_waiting(place.number()) {
                    true => ended,
                    false => Err(Ended::Spilled),
                }
            });
            match waiting.await {
                Ok(slot) => slot,
                Err(ended) => {
                    if let Ended::Result(Err(error)) = &ended {
                        driver.attempt_missed(task, error);
                    }
                    return ended;
                }
            }
        }
    };

    let span = AttemptSpan::open(task);
    let client = Client::of_driver(Arc::clone(driver)).of_attempt(span.trace(task));
    let (grace, began) = (driver.workers.grace, Instant::now());
    let running = driver.attempt_begins(task);
    let code = (handler, &span.span);
    let result = run_attempt(code, task, cancellation, heartbeats, client, grace, total_until, write).await;
    if let Some(running) = running {
        running.end(match &result {
            _ if driver.workers.abandoned.is_cancelled() => AttemptEnd::Interrupted,
            Ok(_) => AttemptEnd::Completed,
            Err(_) if heartbeats.has_panicked() => AttemptEnd::Panicked,
            Err(error) => AttemptEnd::of(error),
        });
    }
    if !workers.abandoned.is_cancelled() {
        span.end(&driver.options.shard.node, &result, heartbeats.is_left_open());
    }
    if result.is_ok() && heartbeats.is_left_open() {
        return Ended::LeftOpen(began.elapsed());
    }
    Ended::Result(result)
}

/// Runs the code of one attempt under its timeouts, from the moment it has a slot.
#[allow(clippy::too_many_arguments, reason = "they are what an attempt consists of")]
pub(super) async fn run_attempt(
    (handler, span): (&dyn ActivityHandler, &tracing::Span),
    task: &Arc<ActivityTask>,
    cancellation: CancellationToken,
    heartbeats: &Arc<HeartbeatMonitor>,
    client: Client,
    grace: Duration,
    total_until: Option<Instant>,
    write: impl FnMut(Payload),
) -> Result<Payload, ActivityError> {
    let options = task.options.as_deref();
    let after = |ms: fn(&ActivityOptions) -> Option<u64>| options.and_then(ms).map(Duration::from_millis);
    let attempt_until =
        after(|options| options.attempt_timeout_ms).and_then(|span| Instant::now().checked_add(span));
    let silence = after(|options| options.heartbeat_timeout_ms);
    let ctx = ActivityContext {
        task: as_reported(task),
        cancellation: cancellation.clone(),
        heartbeats: Arc::clone(heartbeats),
        client,
        state: None,
    };
    heartbeats.begin();
    let code = async {
        tracing::debug!(target: log::ACTIVITY, "attempt started");
        handler.run(ctx, task.input.clone()).await
    };
    let mut run = AssertUnwindSafe(code.instrument(span.clone()).boxed()).catch_unwind();
    if let Poll::Ready(result) = std::future::poll_fn(|cx| Poll::Ready(run.poll_unpin(cx))).await {
        return settle(result, heartbeats);
    }
    // Boxed separately: an attempt that ends at once needs no timers.
    Box::pin(async {
        let cancel_requested = async {
            cancellation.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        let kind = tokio::select! {
            // A result has precedence over a timeout or cancel at the same time.
            biased;
            result = &mut run => return settle(result, heartbeats),
            () = cancel_requested => return Err(ActivityError::Cancelled),
            () = sleep_until(total_until) => TimeoutKind::Total,
            () = sleep_until(attempt_until) => TimeoutKind::Attempt,
            () = heartbeats.watch(silence, write) => TimeoutKind::Heartbeat,
        };
        // The attempt is cancelled and has a moment to stop before another attempt runs beside it.
        cancellation.cancel();
        let _ = tokio::time::timeout(grace, run).await;
        Err(ActivityError::Timeout(kind))
    })
    .await
}

/// The task with the details as earlier attempts reported them.
fn as_reported(task: &Arc<ActivityTask>) -> Arc<ActivityTask> {
    match &task.details {
        Some(details) if is_encoded(details) => {
            // Attempts whose details are still encoded do not begin.
            Arc::new(ActivityTask { details: unquoted(details).ok(), ..(**task).clone() })
        }
        _ => Arc::clone(task),
    }
}

fn settle(
    result: std::thread::Result<Result<Payload, Payload>>,
    heartbeats: &HeartbeatMonitor,
) -> Result<Payload, ActivityError> {
    let panicked = |panic: Box<dyn Any + Send>| {
        heartbeats.note_panicked();
        Err(panic_message(&*panic))
    };
    result.unwrap_or_else(panicked).map_err(ActivityError::Application)
}

fn panic_message(panic: &(dyn Any + Send)) -> Payload {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Payload::from(format!("the activity panicked: {}", text.unwrap_or("no message")))
}
