//! The execution whose code is running on this thread.
//!
//! For the duration of one step, query or validation, an execution's state is lent to the thread, where contexts and
//! futures access it. So whether a call is made in turn is decided by a thread-local, no lock is needed, and no handle
//! owns the state. The state is borrowed only for the moment of a call: no user code runs, wakes or is dropped while it
//! is borrowed.

use std::cell::RefCell;
use std::sync::Arc;

use super::failure::catching;
use super::shared_flags::SharedFlags;
use super::state::ExecutionState;

thread_local! {
    static ON_TURN: RefCell<Option<Box<ExecutionState>>> = const { RefCell::new(None) };
}

/// Runs `f` with `state` lent to this thread; a panic of `f` becomes an error with its message.
pub(crate) fn lend<R>(
    state: Box<ExecutionState>,
    f: impl FnOnce() -> R,
) -> (Result<R, String>, Box<ExecutionState>) {
    let outer = ON_TURN.replace(Some(state));
    let result = catching(f);
    let state = ON_TURN.replace(outer).expect("the state stays lent until it is taken back here");
    (result, state)
}

/// Calls `f` with the state of the execution that `flags` belongs to, if it is lent to this thread.
pub(crate) fn with<R>(flags: &Arc<SharedFlags>, f: impl FnOnce(&mut ExecutionState) -> R) -> Option<R> {
    // A thread that is ending has no thread-locals left; no turn can be running there.
    let on_turn = ON_TURN.try_with(|on_turn| match &mut *on_turn.borrow_mut() {
        Some(state) if Arc::ptr_eq(&state.flags, flags) => Some(f(state)),
        _ => None,
    });
    on_turn.ok().flatten()
}
