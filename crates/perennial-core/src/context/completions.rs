//! Consuming the results of many futures in the order in which they were recorded.
//!
//! Each operand has its own waker, as in a join, so that one result costs one poll regardless of how many operands are
//! left.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll};

use super::join::Operands;
use super::{Operand, OrchestrationContext};

impl OrchestrationContext {
    /// Returns the results of many futures one after another, in the order of their completion.
    ///
    /// ```
    /// # use perennial_core::{OrchestrationContext, Payload};
    /// async fn sum(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    ///     let mut parts = ctx.completions((0..1_000).map(|_| ctx.schedule_activity("part", ()).typed::<u64>()));
    ///     let mut sum = 0;
    ///     while let Some((_index, part)) = parts.next().await {
    ///         sum += part.map_err(|_| Payload::from("a part failed"))?;
    ///     }
    ///     Ok(Payload::encode(&sum).expect("a number encodes"))
    /// }
    /// ```
    pub fn completions<O: Operand>(&self, operands: impl IntoIterator<Item = O>) -> Completions<O> {
        Completions { operands: Operands::new(operands), woken: VecDeque::new() }
    }
}

/// See [`OrchestrationContext::completions`]. Dropping it drops, and so cancels, the futures that have not completed.
#[must_use = "dropping it drops the futures"]
pub struct Completions<O> {
    operands: Operands<O>,
    /// Operands that were woken and have not been polled since.
    woken: VecDeque<usize>,
}

impl<O: Operand> Completions<O> {
    /// Waits for the next result and returns it with the index of its future, or `None` once all have completed. If
    /// several results are already recorded, the earliest is returned first. Dropping the returned future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<(usize, O::Output)> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The number of futures that have not completed.
    pub fn pending(&self) -> usize {
        self.operands.pending
    }

    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<(usize, O::Output)>> {
        let mut woken = self.operands.take_woken(cx);
        if woken.len() > 1 {
            let stored = |operand: &usize| self.operands.get(*operand).and_then(Operand::stored_event);
            woken.sort_by_cached_key(|operand| (stored(operand).is_none(), stored(operand)));
        }
        self.woken.extend(woken);
        while let Some(operand) = self.woken.pop_front() {
            if let Some(output) = self.operands.poll_one(operand) {
                return Poll::Ready(Some((operand, output)));
            }
        }
        if self.operands.pending == 0 { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl<O> fmt::Debug for Completions<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions").field("pending", &self.operands.pending).finish_non_exhaustive()
    }
}
