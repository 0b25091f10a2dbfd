//! Calls of one kind that share a statement. While one is in progress, the following ones wait, and then go together, as
//! the commits of a lane do: a process with many callers makes few round trips and transactions.
//!
//! Whoever finds nobody at work begins at once with its own item. At the end the turn passes to the caller that has waited
//! longest, which takes everything that waits, within the bounds. A caller that goes away (its future is dropped) passes
//! its turn on; those whose items it was working on learn that their outcome is unknown.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perennial_core::store::StoreError;
use tokio::sync::oneshot;

/// How much one statement takes on. A single item may exceed this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Statements in progress at the same time.
    pub(crate) turns: usize,
    pub(crate) rows: usize,
    pub(crate) bytes: u64,
}

/// The size of an item.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) bytes: u64,
}

pub(crate) struct Gather<I, O> {
    shared: Arc<Shared<I, O>>,
}

struct Shared<I, O> {
    bounds: Bounds,
    queue: Mutex<Queue<I, O>>,
}

struct Queue<I, O> {
    waiting: VecDeque<Waiting<I, O>>,
    /// How many callers have a turn.
    working: usize,
}

struct Waiting<I, O> {
    item: I,
    size: Size,
    reply: oneshot::Sender<News<I, O>>,
}

/// What a caller that waits hears.
enum News<I, O> {
    /// It is its turn; it gets its item back.
    Turn(I, Turn<I, O>),
    /// Another caller has done its work.
    Done(Result<O, StoreError>),
}

/// The right to run a statement. It passes on when it is dropped.
struct Turn<I, O>(Arc<Shared<I, O>>);

impl<I, O> Gather<I, O> {
    pub(crate) fn new(bounds: Bounds) -> Gather<I, O> {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), working: 0 });
        Gather { shared: Arc::new(Shared { bounds, queue }) }
    }

    /// Has an item worked on, and returns its outcome. `work` gets some items and returns the outcome of each, in order.
    pub(crate) async fn call<F>(
        &self,
        item: I,
        size: Size,
        work: impl FnOnce(Vec<I>) -> F,
    ) -> Result<O, StoreError>
    where
        F: Future<Output = Vec<Result<O, StoreError>>>,
    {
        let (item, turn) = match self.begin_or_wait(item, size) {
            Ok(begun) => begun,
            Err(news) => match news.await {
                Ok(News::Turn(item, turn)) => (item, turn),
                Ok(News::Done(outcome)) => return outcome,
                Err(_) => return Err(StoreError::Unknown("another call was interrupted".to_owned())),
            },
        };
        let (mut items, mut replies) = (vec![item], Vec::new());
        for waiting in self.shared.take(size) {
            items.push(waiting.item);
            replies.push(waiting.reply);
        }
        let mut outcomes = work(items).await.into_iter();
        // First the next ones begin.
        drop(turn);
        let missing = || Err(StoreError::CorruptRow("a call has no outcome".to_owned()));
        let own = outcomes.next().unwrap_or_else(missing);
        for reply in replies {
            // A caller that has gone away needs no outcome.
            let _ = reply.send(News::Done(outcomes.next().unwrap_or_else(missing)));
        }
        own
    }

    /// Gives a turn to the caller, or makes it wait.
    #[allow(clippy::type_complexity, reason = "a name for this pair would say no more")]
    fn begin_or_wait(&self, item: I, size: Size) -> Result<(I, Turn<I, O>), oneshot::Receiver<News<I, O>>> {
        let mut queue = self.shared.lock();
        if queue.working < self.shared.bounds.turns {
            queue.working += 1;
            return Ok((item, Turn(Arc::clone(&self.shared))));
        }
        let (reply, news) = oneshot::channel();
        queue.waiting.push_back(Waiting { item, size, reply });
        Err(news)
    }
}

impl<I, O> Shared<I, O> {
    fn lock(&self) -> MutexGuard<'_, Queue<I, O>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that wait and fit beside an item.
    fn take(&self, beside: Size) -> Vec<Waiting<I, O>> {
        let (mut rows, mut bytes) = (beside.rows, beside.bytes);
        let mut taken = Vec::new();
        let mut queue = self.lock();
        while let Some(Waiting { size, .. }) = queue.waiting.front() {
            rows = rows.saturating_add(size.rows);
            bytes = bytes.saturating_add(size.bytes);
            if rows > self.bounds.rows || bytes > self.bounds.bytes {
                break;
            }
            taken.extend(queue.waiting.pop_front().filter(|waiting| !waiting.reply.is_closed()));
        }
        taken
    }
}

impl<I, O> Drop for Turn<I, O> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        let next = loop {
            match queue.waiting.pop_front() {
                Some(waiting) if waiting.reply.is_closed() => {}
                next => break next,
            }
        };
        let Some(Waiting { item, reply, .. }) = next else {
            queue.working -= 1;
            return;
        };
        // If the caller has gone away meanwhile, this drops the new turn, which takes the lock again.
        drop(queue);
        let _ = reply.send(News::Turn(item, Turn(Arc::clone(&self.0))));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, join_all};

    use super::*;

    type Numbers = Gather<u64, u64>;
    type Batches = Arc<Mutex<Vec<Vec<u64>>>>;

    fn gather(rows: usize) -> Numbers {
        Gather::new(Bounds { turns: 1, rows, bytes: 100 })
    }

    /// A call that doubles its number; 0 is refused. Each batch takes a few polls.
    fn doubled<'g>(
        gather: &'g Numbers,
        batches: &Batches,
        number: u64,
    ) -> BoxFuture<'g, Result<u64, StoreError>> {
        let batches = Arc::clone(batches);
        let work = move |numbers: Vec<u64>| async move {
            tokio::task::yield_now().await;
            let double = |number: &u64| match number {
                0 => Err(StoreError::BatchRefused("zero".to_owned())),
                number => Ok(2 * number),
            };
            let outcomes = numbers.iter().map(double).collect();
            batches.lock().unwrap().push(numbers);
            outcomes
        };
        gather.call(number, Size { rows: 1, bytes: number }, work).boxed()
    }

    #[tokio::test]
    async fn s3_calls_wait_for_the_one_in_progress_and_then_share_a_statement() {
        let (gather, batches) = (gather(3), Batches::default());
        let outcomes = join_all((1..=6).map(|number| doubled(&gather, &batches, number))).await;
        assert_eq!(outcomes, (1..=6).map(|number| Ok(2 * number)).collect::<Vec<_>>());
        assert_eq!(*batches.lock().unwrap(), [vec![1], vec![2, 3, 4], vec![5, 6]], "three rows at most");
        assert_eq!(gather.shared.lock().working, 0);
        assert_eq!(doubled(&gather, &batches, 7).await, Ok(14), "nobody waits, so it begins");
    }

    #[tokio::test]
    async fn s3_calls_that_share_a_statement_have_outcomes_and_bounds_of_their_own() {
        let (gather, batches) = (gather(10), Batches::default());
        let numbers = [1, 99, 2, 0, 500, 3];
        let outcomes = join_all(numbers.map(|number| doubled(&gather, &batches, number))).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
        assert!(outcomes[3].is_err());
        let shared = [vec![1], vec![99], vec![2, 0], vec![500], vec![3]];
        assert_eq!(*batches.lock().unwrap(), shared, "a hundred bytes at most, unless one is larger");
    }

    #[tokio::test]
    async fn s3_a_caller_that_goes_away_neither_stops_nor_delays_the_others() {
        let (gather, batches) = (gather(10), Batches::default());
        let mut calls: Vec<_> = (1..=4).map(|number| doubled(&gather, &batches, number)).collect();
        for call in &mut calls {
            assert!(call.now_or_never().is_none());
        }
        // One waits, and one works.
        drop(calls.remove(2));
        drop(calls.remove(0));
        assert_eq!(join_all(calls).await, [Ok(4), Ok(8)]);
        assert_eq!(*batches.lock().unwrap(), [vec![2, 4]]);
        assert_eq!(gather.shared.lock().working, 0);
    }

    #[tokio::test]
    async fn s3_the_outcome_of_a_call_whose_worker_went_away_is_unknown() {
        let (gather, batches) = (gather(10), Batches::default());
        let mut calls: Vec<_> = (1..=3).map(|number| doubled(&gather, &batches, number)).collect();
        for call in &mut calls {
            assert!(call.now_or_never().is_none());
        }
        let (mut second, third) = (calls.remove(1), calls.remove(1));
        assert_eq!(calls.remove(0).await, Ok(2));
        assert!((&mut second).now_or_never().is_none(), "it works for the third one, too");
        drop(second);
        assert!(matches!(third.await, Err(StoreError::Unknown(_))));
        assert_eq!(gather.shared.lock().working, 0);
    }
}
