//! Waiting for all of several futures, within one unit.
//!
//! Each operand of a wide join has its own waker, so that one result costs one poll regardless of the width of the
//! join.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::OrchestrationContext;

impl OrchestrationContext {
    /// Waits for all futures. The results are in input order.
    pub fn join<F: Future>(&self, futures: impl IntoIterator<Item = F>) -> Join<F> {
        let operands = Operands::new(futures);
        Join { outputs: operands.no_outputs(), operands }
    }

    /// Waits for all futures, or for the first error; the others are then dropped, which cancels them.
    pub fn try_join<F, T, E>(&self, futures: impl IntoIterator<Item = F>) -> TryJoin<F, T>
    where
        F: Future<Output = Result<T, E>>,
    {
        let operands = Operands::new(futures);
        TryJoin { outputs: operands.no_outputs(), operands }
    }

    /// Waits for two futures.
    pub fn join2<A: Future, B: Future>(&self, a: A, b: B) -> Join2<A, B> {
        Join2 { a: Part::new(a), b: Part::new(b) }
    }

    /// Waits for three futures.
    pub fn join3<A: Future, B: Future, C: Future>(&self, a: A, b: B, c: C) -> Join3<A, B, C> {
        Join3 { a: Part::new(a), b: Part::new(b), c: Part::new(c) }
    }
}

/// Futures that are polled only after they were woken.
pub(super) struct Operands<F> {
    futures: Vec<Option<Pin<Box<F>>>>,
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
    pub(super) pending: usize,
}

/// Which operands were woken, in wake order, and the waker of the task that polls the join.
#[derive(Default)]
struct Woken {
    queue: Mutex<WokenQueue>,
}

#[derive(Default)]
struct WokenQueue {
    operands: Vec<usize>,
    parent: Option<Waker>,
}

struct OperandWaker {
    operand: usize,
    woken: Arc<Woken>,
}

impl Wake for OperandWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let parent = {
            let mut queue = self.woken.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.operands.push(self.operand);
            queue.parent.clone()
        };
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

impl<F: Future> Operands<F> {
    pub(super) fn new(futures: impl IntoIterator<Item = F>) -> Operands<F> {
        let futures: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
        let woken: Arc<Woken> = Arc::default();
        let waker = |operand| Waker::from(Arc::new(OperandWaker { operand, woken: Arc::clone(&woken) }));
        let wakers = (0..futures.len()).map(waker).collect();
        let pending = futures.len();
        woken.queue.lock().unwrap_or_else(PoisonError::into_inner).operands.extend(0..pending);
        Operands { futures, wakers, woken, pending }
    }

    /// Polls the operands that were woken before this poll and passes their outputs to `returned`, until it asks to
    /// stop.
    fn poll(&mut self, cx: &Context<'_>, mut returned: impl FnMut(usize, F::Output) -> bool) {
        for operand in self.take_woken(cx) {
            if let Some(output) = self.poll_one(operand)
                && !returned(operand, output)
            {
                return;
            }
        }
    }

    /// The operands woken since the last call; all of them on the first call.
    pub(super) fn take_woken(&mut self, cx: &Context<'_>) -> Vec<usize> {
        let (operands, old_parent) = {
            let mut queue = self.woken.queue.lock().unwrap_or_else(PoisonError::into_inner);
            (mem::take(&mut queue.operands), queue.parent.replace(cx.waker().clone()))
        };
        drop(old_parent);
        operands
    }

    /// Polls an operand that has not completed, and removes it once it completes.
    pub(super) fn poll_one(&mut self, operand: usize) -> Option<F::Output> {
        let future = self.futures[operand].as_mut()?;
        match future.as_mut().poll(&mut Context::from_waker(&self.wakers[operand])) {
            Poll::Ready(output) => {
                self.futures[operand] = None;
                self.pending -= 1;
                Some(output)
            }
            Poll::Pending => None,
        }
    }

    /// An operand that has not completed.
    pub(super) fn get(&self, operand: usize) -> Option<&F> {
        self.futures[operand].as_deref()
    }

    fn clear(&mut self) {
        self.futures.clear();
        self.pending = 0;
    }

    /// An empty slot for the output of each operand.
    fn no_outputs<T>(&self) -> Outputs<T> {
        Some(self.futures.iter().map(|_| None).collect())
    }
}

/// The outputs by operand; `None` once the join itself has completed.
type Outputs<T> = Option<Vec<Option<T>>>;

const POLLED_AGAIN: &str = "a join was polled after it returned";

/// See [`OrchestrationContext::join`].
#[must_use = "futures do nothing unless awaited"]
pub struct Join<F: Future> {
    operands: Operands<F>,
    outputs: Outputs<F::Output>,
}

impl<F: Future> Future for Join<F> {
    type Output = Vec<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Join { operands, outputs } = &mut *self;
        let gathered = outputs.as_mut().expect(POLLED_AGAIN);
        operands.poll(cx, |operand, output| {
            gathered[operand] = Some(output);
            true
        });
        if operands.pending > 0 {
            return Poll::Pending;
        }
        Poll::Ready(outputs.take().into_iter().flatten().flatten().collect())
    }
}

/// See [`OrchestrationContext::try_join`].
#[must_use = "futures do nothing unless awaited"]
pub struct TryJoin<F, T> {
    operands: Operands<F>,
    outputs: Outputs<T>,
}

impl<F: Future<Output = Result<T, E>>, T, E> Future for TryJoin<F, T> {
    type Output = Result<Vec<T>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let TryJoin { operands, outputs } = &mut *self;
        let gathered = outputs.as_mut().expect(POLLED_AGAIN);
        let mut first_error = None;
        operands.poll(cx, |operand, output| match output {
            Ok(output) => {
                gathered[operand] = Some(output);
                true
            }
            Err(error) => {
                first_error = Some(error);
                false
            }
        });
        if let Some(error) = first_error {
            operands.clear();
            *outputs = None;
            return Poll::Ready(Err(error));
        }
        if operands.pending > 0 {
            return Poll::Pending;
        }
        Poll::Ready(Ok(outputs.take().into_iter().flatten().flatten().collect()))
    }
}

/// One operand of a narrow join: first the future, then its output.
enum Part<F: Future> {
    Pending(Pin<Box<F>>),
    Returned(F::Output),
    Taken,
}

impl<F: Future> Part<F> {
    fn new(future: F) -> Part<F> {
        Part::Pending(Box::pin(future))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if let Part::Pending(future) = self {
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => *self = Part::Returned(output),
                Poll::Pending => return false,
            }
        }
        true
    }

    fn take(&mut self) -> F::Output {
        match mem::replace(self, Part::Taken) {
            Part::Returned(output) => output,
            Part::Pending(_) | Part::Taken => panic!("{POLLED_AGAIN}"),
        }
    }
}

/// See [`OrchestrationContext::join2`].
#[must_use = "futures do nothing unless awaited"]
pub struct Join2<A: Future, B: Future> {
    a: Part<A>,
    b: Part<B>,
}

impl<A: Future, B: Future> Future for Join2<A, B> {
    type Output = (A::Output, B::Output);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Join2 { a, b } = &mut *self;
        let done = [a.poll(cx), b.poll(cx)] == [true; 2];
        if done { Poll::Ready((a.take(), b.take())) } else { Poll::Pending }
    }
}

/// See [`OrchestrationContext::join3`].
#[must_use = "futures do nothing unless awaited"]
pub struct Join3<A: Future, B: Future, C: Future> {
    a: Part<A>,
    b: Part<B>,
    c: Part<C>,
}

impl<A: Future, B: Future, C: Future> Future for Join3<A, B, C> {
    type Output = (A::Output, B::Output, C::Output);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Join3 { a, b, c } = &mut *self;
        let done = [a.poll(cx), b.poll(cx), c.poll(cx)] == [true; 3];
        if done { Poll::Ready((a.take(), b.take(), c.take())) } else { Poll::Pending }
    }
}

// Operands are boxed, so a join never needs to be pinned itself.
impl<F: Future> Unpin for Join<F> {}
impl<F, T> Unpin for TryJoin<F, T> {}
impl<A: Future, B: Future> Unpin for Join2<A, B> {}
impl<A: Future, B: Future, C: Future> Unpin for Join3<A, B, C> {}

impl<F: Future> fmt::Debug for Join<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").field("pending", &self.operands.pending).finish_non_exhaustive()
    }
}
