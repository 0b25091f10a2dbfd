//! The flags that an execution shares with other threads. They contain no user code.
//!
//! Contexts, durable futures and wakers hold only this part of the execution, so no reference cycle can form, and a
//! clone that escapes to another thread can only be detected, not do harm.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct SharedFlags {
    inert: AtomicBool,
    interrupted: AtomicBool,
    foreign_wake: AtomicBool,
    misuse: Mutex<Option<String>>,
}

impl SharedFlags {
    /// Marks the execution as gone: calls and drops through leftover handles do nothing from now on.
    pub(crate) fn make_inert(&self) {
        self.inert.store(true, Ordering::Release);
    }

    pub(crate) fn is_inert(&self) -> bool {
        self.inert.load(Ordering::Acquire)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn clear_interrupt(&self) {
        self.interrupted.store(false, Ordering::Relaxed);
    }

    /// Notes that a waker of this execution was woken by something that is not part of it.
    pub(crate) fn note_foreign_wake(&self) {
        if !self.is_inert() {
            self.foreign_wake.store(true, Ordering::Release);
        }
    }

    pub(crate) fn had_foreign_wake(&self) -> bool {
        self.foreign_wake.load(Ordering::Acquire)
    }

    /// Notes that a handle of this execution was used in a way that is not allowed. The first report is kept.
    pub(crate) fn note_misuse(&self, what: String) {
        self.misuse.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }

    pub(crate) fn take_misuse(&self) -> Option<String> {
        self.misuse.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Lets a watchdog on another thread end a turn that takes too long.
///
/// Once raised, every context call of the turn unwinds, no further step is taken, and the turn fails. Code that neither
/// makes a context call nor returns from its step cannot be stopped this way; its thread has to be abandoned.
#[derive(Clone, Debug)]
pub struct Interrupter(pub(crate) Arc<SharedFlags>);

impl Interrupter {
    /// Ends the current turn. The flag is cleared when the next turn starts.
    pub fn raise(&self) {
        self.0.interrupted.store(true, Ordering::Relaxed);
    }
}
