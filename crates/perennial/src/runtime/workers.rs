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
    slots: Arc<Semaphore>,
    grace: Duration,
    running: Mutex<HashMap<(InstanceKey, EventId), CancellationToken>>,
    idle: tokio::sync::Notify,
}

impl Workers {
    pub(crate) fn new(handle: Handle, slots: usize, grace: Duration) -> Workers {
        let slots = Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)));
        Workers { handle, slots, grace, running: Mutex::default(), idle: tokio::sync::Notify::new() }
    }

    /// Runs one attempt and brings its result to the shard.
    pub(crate) fn run(&self, node: &Arc<Node>, task: ActivityTask) {
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
        let (node, slots, grace) = (Arc::clone(node), Arc::clone(&self.slots), self.grace);
        self.handle.spawn(async move {
            let result = attempt(&*handler, &task, &slots, cancellation, grace).await;
            node.workers.forget(task.key, task.event);
            node.activity_done(&task, result);
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

    pub(crate) fn cancel_all(&self) {
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
    slots: &Semaphore,
    cancellation: CancellationToken,
    grace: Duration,
) -> Result<Payload, ActivityFailure> {
    let slot = tokio::select! {
        slot = slots.acquire() => slot,
        () = cancellation.cancelled() => return Err(ActivityFailure::Cancelled),
    };
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
    drop(slot);
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
