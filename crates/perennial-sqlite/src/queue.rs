//! Calls on their way to the writer thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// At most this many are taken at once, so that the first of many does not wait for the last.
const MOST_AT_ONCE: usize = 4_096;

/// A queue with one reader, which takes everything that has accumulated.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    closed: bool,
    /// The reader sleeps and has to be woken.
    asleep: bool,
    /// The reader has to wake up, even if the queue is empty.
    woken: bool,
}

/// What the reader gets.
pub(crate) enum Taken<T> {
    /// Items, in order of arrival.
    Items(Vec<T>),
    /// No item arrived in time.
    Nothing,
    /// No item arrived, but the reader was woken.
    Woken,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue {
            state: Mutex::new(State { waiting: VecDeque::new(), closed: false, asleep: false, woken: false }),
            changed: Condvar::new(),
        }
    }

    /// Appends an item; returns it if the queue is closed.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        state.waiting.push_back(item);
        self.notify(state);
        Ok(())
    }

    /// Appends the last item.
    pub(crate) fn close(&self, last: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(last);
        }
        state.closed = true;
        state.waiting.push_back(last);
        self.notify(state);
        Ok(())
    }

    /// Wakes the reader.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        state.woken = true;
        self.notify(state);
    }

    /// Takes everything that has accumulated; waits until something arrives, or for this long.
    pub(crate) fn take(&self, timeout: Option<Duration>) -> Taken<T> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.woken {
            state.asleep = true;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.asleep = false;
        let woken = std::mem::take(&mut state.woken);
        match state.waiting.len().min(MOST_AT_ONCE) {
            0 if woken => Taken::Woken,
            0 => Taken::Nothing,
            count => Taken::Items(state.waiting.drain(..count).collect()),
        }
    }

    fn notify(&self, state: MutexGuard<'_, State<T>>) {
        let asleep = state.asleep;
        drop(state);
        if asleep {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(taken: Taken<u32>) -> Vec<u32> {
        match taken {
            Taken::Items(items) => items,
            Taken::Nothing | Taken::Woken => Vec::new(),
        }
    }

    #[test]
    fn s0_what_has_gathered_is_taken_at_once_and_in_order() {
        let queue = Queue::new();
        (0..5_000).for_each(|number| queue.push(number).unwrap());
        assert_eq!(items(queue.take(None)), (0..4_096).collect::<Vec<u32>>());
        assert_eq!(items(queue.take(None)), (4_096..5_000).collect::<Vec<u32>>());
        assert_eq!(items(queue.take(Some(Duration::ZERO))), Vec::<u32>::new());
    }

    #[test]
    fn a_closed_queue_gives_back_what_comes_later() {
        let queue = Queue::new();
        queue.push(1).unwrap();
        queue.close(2).unwrap();
        assert_eq!((queue.push(3), queue.close(4)), (Err(3), Err(4)));
        assert_eq!(items(queue.take(None)), [1, 2]);
    }

    #[test]
    fn a_reader_is_woken_once() {
        let queue = Queue::<u32>::new();
        queue.wake();
        assert!(matches!(queue.take(None), Taken::Woken));
        assert!(matches!(queue.take(Some(Duration::ZERO)), Taken::Nothing));
        queue.push(1).unwrap();
        assert_eq!(items(queue.take(None)), [1]);
    }
}
