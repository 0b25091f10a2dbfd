//! Workers: run activities on tokio, a bounded number at a time.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use perennial_core::shard::ActivityTask;
use perennial_core::{ActivityFailure, EventId, InstanceKey, Payload};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use crate::activity::{ActivityContext, ActivityHandler};

pub(crate) struct Workers {
    handle: Handle,
    slots: Semaphore,
    grace: Duration,
    running: Mutex<HashMap<(InstanceKey, EventId), CancellationToken>>,
    idle: tokio::sync::Notify,
    /// Fires when no more attempts are to begin.
    closing: CancellationToken,
    /// Fires when the results of those that run no longer count: they are told to stop for the node's sake, and run
    /// again in the next one.
    abandoned: CancellationToken,
}

impl Workers {
    pub(crate) fn new(handle: Handle, slots: usize, grace: Duration) -> Workers {
        let slots = Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS));
        Workers {
            handle,
            slots,
            grace,
            running: Mutex::default(),
            idle: tokio::sync::Notify::new(),
            closing: CancellationToken::new(),
            abandoned: CancellationToken::new(),
        }
    }

    /// Runs one attempt and brings its result to the shard.
    pub(crate) fn run(&self, node: &Arc<Node>, task: ActivityTask) {
        if self.closing.is_cancelled() {
            return;
        }
        let Some(handler) = node.registry.activity(&task.name) else {
            tracing::warn!(
                instance = &*task.instance,
                activity = task.name,
                "the activity is not registered here and stays open; register it and restart"
            );
            return;
        };
        let cancellation = CancellationToken::new();
        self.lock().insert((task.key, task.event), cancellation.clone());
        let (node, grace) = (Arc::clone(node), self.grace);
        self.handle.spawn(async move {
            let slot = tokio::select! {
                slot = async {
                    let slot = node.workers.slots.acquire().await;
                    // An attempt begins only while the node may act.
                    node.lease_keeper.held().await;
                    slot
                } => Some(slot),
                () = cancellation.cancelled() => None,
                () = node.workers.closing.cancelled() => return node.workers.forget(task.key, task.event),
            };
            let result = match slot {
                Some(_slot) => attempt(&*handler, &task, cancellation, grace).await,
                None => Err(ActivityFailure::Cancelled),
            };
            if !node.workers.abandoned.is_cancelled() {
                node.activity_done(&task, result);
            }
            node.workers.forget(task.key, task.event);
        });
    }

    /// Runs a small chore beside the activities.
    pub(crate) fn spawn(&self, chore: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(chore);
    }

    /// Tells a running attempt that nobody waits for it.
    pub(crate) fn cancel(&self, key: InstanceKey, event: EventId) {
        if let Some(cancellation) = self.lock().get(&(key, event)) {
            cancellation.cancel();
        }
    }

    /// Begins no more attempts. What waits for a slot stays open and runs in the next node.
    pub(crate) fn stop_taking(&self) {
        self.closing.cancel();
    }

    /// Tells all attempts to stop, for the node's sake and not for their instances': their results do not count.
    pub(crate) fn abandon_all(&self) {
        self.closing.cancel();
        self.abandoned.cancel();
        self.lock().values().for_each(CancellationToken::cancel);
    }

    /// Resolves when no attempt runs.
    pub(crate) async fn finished(&self) {
        loop {
            let idle = self.idle.notified();
            if self.lock().is_empty() {
                return;
            }
            idle.await;
        }
    }

    fn forget(&self, key: InstanceKey, event: EventId) {
        let mut running = self.lock();
        running.remove(&(key, event));
        if running.is_empty() {
            self.idle.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(InstanceKey, EventId), CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn attempt(
    handler: &dyn ActivityHandler,
    task: &ActivityTask,
    cancellation: CancellationToken,
    grace: Duration,
) -> Result<Payload, ActivityFailure> {
    let ctx = ActivityContext {
        instance: Arc::clone(&task.instance),
        execution: task.execution,
        event: task.event,
        attempt: task.attempt,
        cancellation: cancellation.clone(),
    };
    let run = CatchPanic(Box::pin(async { handler.run(ctx, task.input.clone()).await }));
    let told_off = async {
        cancellation.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    let result = tokio::select! {
        result = run => result,
        () = told_off => return Err(ActivityFailure::Cancelled),
    };
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
