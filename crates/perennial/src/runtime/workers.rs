//! Workers: run attempts of activities on tokio, a bounded number at a time.
//!
//! An attempt ends with a result, by one of its timeouts, or because nobody waits for it; then its token fires, and
//! after a grace its future is dropped. When the node stops, what still runs is given back, to run in the next one.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use perennial_core::shard::ActivityTask;
use perennial_core::{ActivityFailure, ActivityOptions, EventId, InstanceKey, Payload, TimeoutKind};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::pulse::{Pulse, sleep_until};
use crate::activity::{ActivityContext, ActivityHandler};
use crate::client::Client;

pub(crate) struct Workers {
    handle: Handle,
    slots: Semaphore,
    grace: Duration,
    running: Mutex<Running>,
    idle: tokio::sync::Notify,
    /// Fires when no more attempts are to begin.
    closing: CancellationToken,
    /// Fires when the results of those that run no longer count: they are told to stop for the node's sake, and run
    /// again in the next one.
    abandoned: CancellationToken,
}

/// The attempts that run or wait for a slot.
///
/// An attempt that is told off may outlive its execution, and the next execution's activity has the same event, or the
/// next attempt has begun before it cleared its place. So each has a number of its own.
#[derive(Default)]
struct Running {
    attempts: BTreeMap<Place, CancellationToken>,
    next: u64,
}

type Place = (InstanceKey, u64, EventId, u64);

impl Running {
    fn add(&mut self, task: &ActivityTask) -> (Place, CancellationToken) {
        let place = (task.key, task.execution, task.event, self.next);
        let cancellation = CancellationToken::new();
        self.next += 1;
        self.attempts.insert(place, cancellation.clone());
        (place, cancellation)
    }
}

/// What came of an attempt.
enum Ended {
    Result(Result<Payload, ActivityFailure>),
    /// It never began, or was stopped for the node's sake.
    Released,
}

impl Workers {
    pub(crate) fn new(handle: Handle, slots: usize, grace: Duration) -> Workers {
        Workers {
            handle,
            slots: Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)),
            grace,
            running: Mutex::default(),
            idle: tokio::sync::Notify::new(),
            closing: CancellationToken::new(),
            abandoned: CancellationToken::new(),
        }
    }

    /// Runs one attempt and brings its result to the shard.
    pub(crate) fn run(&self, node: &Arc<Node>, task: ActivityTask) {
        let Some(handler) = node.registry.activity(&task.name) else {
            tracing::error!(
                instance = &*task.instance,
                activity = task.name,
                "an activity that is not registered was to run"
            );
            return;
        };
        if self.closing.is_cancelled() {
            return node.activity_released(&task);
        }
        let (place, cancellation) = self.lock().add(&task);
        node.lone_begun(task.key, task.event);
        let (node, task) = (Arc::clone(node), Arc::new(task));
        self.handle.spawn(async move {
            let pulse = Arc::new(Pulse::new());
            let write = |details| node.heartbeat(&task, details);
            let ended = attempt(&node, &*handler, &task, cancellation, &pulse, write).await;
            let ended = if node.workers.abandoned.is_cancelled() { Ended::Released } else { ended };
            if !matches!(ended, Ended::Result(Ok(_)))
                && let Some(details) = pulse.take_unwritten()
            {
                node.heartbeat(&task, details);
            }
            match ended {
                Ended::Result(result) => node.activity_done(&task, result),
                Ended::Released => node.activity_released(&task),
            }
            node.workers.forget(place);
            node.lone_ended(task.key, task.event);
        });
    }

    /// Runs one attempt of a task that was taken from the store.
    pub(crate) fn run_taken(&self, node: &Arc<Node>, task: ActivityTask) {
        let handler = node.registry.activity(&task.name).filter(|_| !self.closing.is_cancelled());
        let Some(handler) = handler else {
            return node.give_back_taken(&task);
        };
        let (place, cancellation) = self.lock().add(&task);
        let (node, task) = (Arc::clone(node), Arc::new(task));
        self.handle.spawn(async move {
            let pulse = Arc::new(Pulse::new());
            let lease = cancellation.clone();
            let write = |details| node.renew_taken(&task, Some(details), lease.clone());
            let may_run = async {
                tokio::select! {
                    () = node.alone_if_it_must(&task) => true,
                    () = cancellation.cancelled() => false,
                    () = node.workers.closing.cancelled() => false,
                }
            };
            let attempt = async {
                match may_run.await {
                    true => attempt(&node, &*handler, &task, cancellation.clone(), &pulse, write).await,
                    false => Ended::Released,
                }
            };
            let ended = tokio::select! {
                ended = attempt => ended,
                () = node.keep_lease(&task, &lease) => Ended::Released,
            };
            match ended {
                Ended::Result(result) if !node.workers.abandoned.is_cancelled() => {
                    let details = pulse.latest().or_else(|| task.details.clone());
                    node.finish_taken(&task, result, details);
                }
                Ended::Result(_) | Ended::Released => node.give_back_taken(&task),
            }
            node.workers.forget(place);
            node.lone_ended(task.key, task.event);
        });
    }

    /// Whether an attempt could begin at once.
    pub(super) fn has_room(&self) -> bool {
        !self.closing.is_cancelled() && self.slots.available_permits() > 0
    }

    /// Runs a small chore beside the activities.
    pub(crate) fn spawn(&self, chore: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(chore);
    }

    /// Tells a running attempt that nobody waits for it.
    pub(crate) fn cancel(&self, key: InstanceKey, execution: u64, event: EventId) {
        let all = (key, execution, event, 0)..=(key, execution, event, u64::MAX);
        self.lock().attempts.range(all).for_each(|(_, cancellation)| cancellation.cancel());
    }

    /// Begins no more attempts. What waits for a slot is given back and runs in the next node.
    pub(crate) fn stop_taking(&self) {
        self.closing.cancel();
    }

    /// Tells all attempts to stop, for the node's sake and not for their instances': their results do not count.
    pub(crate) fn abandon_all(&self) {
        self.closing.cancel();
        self.abandoned.cancel();
        self.lock().attempts.values().for_each(CancellationToken::cancel);
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

    fn forget(&self, place: Place) {
        let mut running = self.lock();
        running.attempts.remove(&place);
        if running.attempts.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// A slot for an attempt.
    async fn slot(&self, node: &Node) -> SemaphorePermit<'_> {
        let slot = self.slots.acquire().await.expect("slots are never closed");
        // An attempt begins only while the node may act.
        node.lease_keeper.held().await;
        slot
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn attempt(
    node: &Arc<Node>,
    handler: &dyn ActivityHandler,
    task: &Arc<ActivityTask>,
    cancellation: CancellationToken,
    pulse: &Arc<Pulse>,
    write: impl FnMut(Payload),
) -> Ended {
    let options = task.options.as_deref();
    let after = |ms: fn(&ActivityOptions) -> Option<u64>| options.and_then(ms).map(Duration::from_millis);
    let until = |span: Option<Duration>| span.and_then(|span| Instant::now().checked_add(span));
    let left = |deadline_ms: u64| Duration::from_millis(deadline_ms.saturating_sub(node.now_ms()));
    let total_until = until(task.deadline_ms.map(left));
    let queue_until = until(after(|options| options.queue_timeout_ms));
    let timed_out = |kind| Ended::Result(Err(ActivityFailure::Timeout(kind)));

    let _slot = tokio::select! {
        biased;
        () = cancellation.cancelled() => return Ended::Result(Err(ActivityFailure::Cancelled)),
        () = node.workers.closing.cancelled() => return Ended::Released,
        slot = node.workers.slot(node) => slot,
        () = sleep_until(total_until) => return timed_out(TimeoutKind::Total),
        () = sleep_until(queue_until) => return timed_out(TimeoutKind::Queue),
    };

    let client = Client::of_node(Arc::clone(node));
    let grace = node.workers.grace;
    Ended::Result(run_attempt(handler, task, cancellation, pulse, client, grace, total_until, write).await)
}

/// Runs the code of one attempt under its timeouts, from the moment that it has a slot.
#[allow(clippy::too_many_arguments, reason = "they are what an attempt consists of")]
pub(super) async fn run_attempt(
    handler: &dyn ActivityHandler,
    task: &Arc<ActivityTask>,
    cancellation: CancellationToken,
    pulse: &Arc<Pulse>,
    client: Client,
    grace: Duration,
    total_until: Option<Instant>,
    write: impl FnMut(Payload),
) -> Result<Payload, ActivityFailure> {
    let options = task.options.as_deref();
    let after = |ms: fn(&ActivityOptions) -> Option<u64>| options.and_then(ms).map(Duration::from_millis);
    let attempt_until =
        after(|options| options.attempt_timeout_ms).and_then(|span| Instant::now().checked_add(span));
    let silence = after(|options| options.heartbeat_timeout_ms);
    let ctx = ActivityContext {
        task: Arc::clone(task),
        cancellation: cancellation.clone(),
        pulse: Arc::clone(pulse),
        client,
        state: None,
    };
    pulse.begin();
    let mut run = CatchPanic(Box::pin(async { handler.run(ctx, task.input.clone()).await }));
    let told_off = async {
        cancellation.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    let kind = tokio::select! {
        result = &mut run => return settle(result),
        () = told_off => return Err(ActivityFailure::Cancelled),
        () = sleep_until(total_until) => TimeoutKind::Total,
        () = sleep_until(attempt_until) => TimeoutKind::Attempt,
        () = pulse.watch(silence, write) => TimeoutKind::Heartbeat,
    };
    // It is told, and has a moment to stop before another attempt runs beside it.
    cancellation.cancel();
    let _ = tokio::time::timeout(grace, run).await;
    Err(ActivityFailure::Timeout(kind))
}

fn settle(result: Result<Result<Payload, Payload>, String>) -> Result<Payload, ActivityFailure> {
    match result {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(ActivityFailure::Application(error)),
        Err(panic) => {
            Err(ActivityFailure::Application(Payload::from(format!("the activity panicked: {panic}"))))
        }
    }
}

/// Turns a panic of the future into a message.
struct CatchPanic<F>(Pin<Box<F>>);

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(text.unwrap_or_else(|| "no message".to_owned())))
            }
        }
    }
}
