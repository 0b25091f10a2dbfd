//! Callbacks for possible changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perennial_core::log;
use perennial_core::store::{Changes, Watcher};

#[derive(Default)]
pub(crate) struct Watchers {
    watchers: Mutex<Vec<Watcher>>,
}

impl Watchers {
    pub(crate) fn add(&self, watcher: Watcher) {
        self.lock().push(watcher);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Notifies all watchers.
    pub(crate) fn tell(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        let watchers = self.lock().clone();
        for watcher in watchers {
            calling("a watcher", || watcher(changes));
        }
    }

    pub(crate) fn clear(&self) {
        let dropped = std::mem::take(&mut *self.lock());
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls foreign code on a thread of the store. A panic is contained, because others wait for this thread.
pub(crate) fn calling(what: &str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!(target: log::STORE, what, "callback of the store panicked");
    }
}
