//! Calls on their way to the reader threads.
//!
//! The engine waits for some of them; others come from people and tools and may take long. One thread never takes
//! those, so that nobody's list delays the engine.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Who waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The engine.
    Engine,
    /// A person or a tool.
    Looker,
}

/// Which calls a thread takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Only the engine's calls.
    Engine,
    /// Calls of people and tools, and the engine's if there are none.
    All,
}

/// A queue with several readers.
pub(crate) struct ReadQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    engine: VecDeque<T>,
    lookers: VecDeque<T>,
    closed: bool,
}

impl<T> ReadQueue<T> {
    pub(crate) fn new() -> ReadQueue<T> {
        ReadQueue {
            state: Mutex::new(State { engine: VecDeque::new(), lookers: VecDeque::new(), closed: false }),
            changed: Condvar::new(),
        }
    }

    /// Appends a call; returns it if the queue is closed.
    pub(crate) fn push(&self, caller: Caller, arguments: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(arguments);
        }
        match caller {
            Caller::Engine => state.engine.push_back(arguments),
            Caller::Looker => state.lookers.push_back(arguments),
        }
        drop(state);
        // All of them: not every thread takes every call.
        self.changed.notify_all();
        Ok(())
    }

    /// Accepts no more calls; those that wait are still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The next call for a thread; `None` when the queue is closed and empty.
    pub(crate) fn take(&self, takes: Takes) -> Option<T> {
        let mut state = self.lock();
        loop {
            let next = match takes {
                Takes::Engine => state.engine.pop_front(),
                Takes::All => state.lookers.pop_front().or_else(|| state.engine.pop_front()),
            };
            if next.is_some() || state.closed {
                return next;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_a_list_never_stands_in_the_engines_way() {
        let queue = ReadQueue::new();
        queue.push(Caller::Looker, "list").unwrap();
        queue.push(Caller::Engine, "load").unwrap();
        assert_eq!(queue.take(Takes::Engine), Some("load"));
        queue.push(Caller::Engine, "due").unwrap();
        assert_eq!(queue.take(Takes::All), Some("list"));
        assert_eq!(queue.take(Takes::All), Some("due"));
    }

    #[test]
    fn what_waits_when_the_queue_closes_is_still_answered() {
        let queue = ReadQueue::new();
        queue.push(Caller::Engine, 1).unwrap();
        queue.close();
        assert_eq!(queue.push(Caller::Engine, 2), Err(2));
        assert_eq!((queue.take(Takes::Engine), queue.take(Takes::Engine)), (Some(1), None));
    }
}
