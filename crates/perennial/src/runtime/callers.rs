//! Callers in this process that wait for a response.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use perennial_core::shard::{RequestId, Response};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::driver::lock;

/// Identifies a caller.
pub(super) type Caller = RequestId;

#[derive(Default)]
pub(super) struct Callers {
    next: AtomicU64,
    waiting: Mutex<FxHashMap<Caller, oneshot::Sender<Response>>>,
}

/// A new caller, with the receiver of its response.
pub(super) struct Added {
    pub(super) id: Caller,
    pub(super) answer: oneshot::Receiver<Response>,
}

impl Callers {
    pub(super) fn add(&self) -> Added {
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        lock(&self.waiting).insert(id, sender);
        Added { id, answer }
    }

    pub(super) fn answer(&self, caller: Caller, answer: Response) {
        let sender = lock(&self.waiting).remove(&caller);
        if let Some(sender) = sender {
            // The caller may have dropped its future.
            let _ = sender.send(answer);
        }
    }

    pub(super) fn forget(&self, caller: Caller) {
        let sender = lock(&self.waiting).remove(&caller);
        drop(sender);
    }

    /// Fails all remaining callers.
    pub(super) fn dismiss(&self, reason: &str) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for sender in waiting.into_values() {
            let _ = sender.send(Response::Unknown { reason: reason.to_owned() });
        }
    }
}
