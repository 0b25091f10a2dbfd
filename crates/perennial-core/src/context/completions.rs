//! Taking the results of many futures one after another, in the order in which they are recorded.
//!
//! Each operand has a waker of its own, as in a join, so that a result costs one poll however many are left.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll};

use super::join::Operands;
use super::{Operand, OrchestrationContext};

impl OrchestrationContext {
    /// Takes the results of many futures one after another, as they come.
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

/// See [`OrchestrationContext::completions`]. Dropping it drops the futures that have not returned, hence cancels them.
#[must_use = "dropping it drops the futures"]
pub struct Completions<O> {
    operands: Operands<O>,
    /// Woken, and not polled since.
    woken: VecDeque<usize>,
}

impl<O: Operand> Completions<O> {
    /// The next result and its place among the futures, or nothing once all have returned. Of results that are recorded
    /// already, the earliest is taken first. Dropping what this returns loses nothing.
    pub async fn next(&mut self) -> Option<(usize, O::Output)> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// How many have not returned.
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
