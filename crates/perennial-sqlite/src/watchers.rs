//! Who wants to hear that something may have changed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perennial_core::store::Hint;

#[derive(Default)]
pub(crate) struct Watchers {
    hints: Mutex<Vec<Hint>>,
}

impl Watchers {
    pub(crate) fn add(&self, hint: Hint) {
        self.lock().push(hint);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Tells everybody.
    pub(crate) fn hint(&self) {
        let hints = self.lock().clone();
        for hint in hints {
            calling("a hint", || hint());
        }
    }

    pub(crate) fn clear(&self) {
        let dropped = std::mem::take(&mut *self.lock());
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Hint>> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls somebody else's code on a thread of the store. If it panics, that is its own loss: others wait for this thread.
pub(crate) fn calling(what: &str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("{what} of the SQLite store panicked; the store goes on");
    }
}
