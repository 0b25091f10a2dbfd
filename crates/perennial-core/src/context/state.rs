//! State shared by the root, its branches and its handlers.
//!
//! It is accessed through synchronous closures, one at a time, so that no unit can hold it across an await. It lives in
//! memory, not in the history: a replay rebuilds it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::code::ErrorCode;
use crate::execution::state::{Access, Closure};
use crate::execution::turn_local;

use super::{InsideClosure, OrchestrationContext, WaitUntil};

impl OrchestrationContext {
    /// Creates a state with an initial value.
    pub fn state<T: Send + 'static>(&self, value: T) -> State<T> {
        let id = self.call("state", Access::Act, || 0, |state| Ok(state.add_state()));
        State { ctx: self.clone(), id, value: Arc::new(Mutex::new(value)) }
    }

    /// Waits until the state meets a condition. The condition is evaluated after each step that changed the state.
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
    /// Reads the value. The closure must not make decisions or access another state.
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _inside = self.enter("state.read", Access::Look);
        f(&self.lock())
    }

    /// Changes the value. The closure must not make decisions or access another state.
    pub fn update<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _inside = self.enter("state.update", Access::Act);
        // Noted before the closure runs: a closure that panics may have changed the value, and the code may catch the
        // panic.
        turn_local::with(&self.ctx.flags, |state| state.changed_states.push(self.id));
        f(&mut self.lock())
    }

    fn enter(&self, call: &'static str, access: Access) -> InsideClosure<'_> {
        self.ctx.enter_closure(call, access, Closure::State)
    }

    /// A poisoned lock is accepted: a closure that panicked has failed its turn unless the code caught the panic, and a
    /// query may still read.
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
