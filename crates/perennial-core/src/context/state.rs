//! State that the root, its branches and its handlers share.
//!
//! It is reached through synchronous closures, one at a time, so that no unit can hold it across an await. It is
//! memory, not history: replay rebuilds it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::code::ErrorCode;
use crate::execution::state::{Access, Closure};
use crate::execution::turn_local;

use super::{InsideClosure, OrchestrationContext, WaitUntil};

impl OrchestrationContext {
    /// Makes a state with this first value.
    pub fn state<T: Send + 'static>(&self, value: T) -> State<T> {
        let id = self.call("state", Access::Act, || 0, |state| Ok(state.add_state()));
        State { ctx: self.clone(), id, value: Arc::new(Mutex::new(value)) }
    }

    /// Waits until the state meets a condition. It is looked at when a step has changed the state.
    pub fn wait_until<T, P>(&self, state: &State<T>, condition: P) -> WaitUntil<T, P>
    where
        T: Send + 'static,
        P: FnMut(&T) -> bool,
    {
        WaitUntil::new(state.clone(), condition)
    }
}

/// A value shared by the units and handlers of one execution.
pub struct State<T> {
    pub(super) ctx: OrchestrationContext,
    pub(super) id: usize,
    value: Arc<Mutex<T>>,
}

impl<T> Clone for State<T> {
    fn clone(&self) -> State<T> {
        State { ctx: self.ctx.clone(), id: self.id, value: Arc::clone(&self.value) }
    }
}

impl<T> State<T> {
    /// Looks at the value. Nothing may be decided in the closure, and no other state be used.
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _inside = self.enter("state.read", Access::Look);
        f(&self.lock())
    }

    /// Changes the value. Nothing may be decided in the closure, and no other state be used.
    pub fn update<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _inside = self.enter("state.update", Access::Act);
        // Noted beforehand: a closure that panics may have changed it, and the code may go on.
        turn_local::with(&self.ctx.flags, |state| state.changed_states.push(self.id));
        f(&mut self.lock())
    }

    fn enter(&self, call: &'static str, access: Access) -> InsideClosure<'_> {
        self.ctx.enter_closure(call, access, Closure::State)
    }

    /// A closure that panicked has failed its turn, unless the code caught that; a query may still look.
    fn lock(&self) -> MutexGuard<'_, T> {
        match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                panic!("{}: a state was used inside a closure on itself", ErrorCode::Misuse.prefix())
            }
        }
    }
}

impl<T> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("id", &self.id).finish_non_exhaustive()
    }
}
