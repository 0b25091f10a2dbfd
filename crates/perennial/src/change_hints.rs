//! Hints that the store may have changed, by shard, for callers that read it again.
//!
//! A caller that waits for one instance is woken by hints about its shard alone. Otherwise every batch of a busy node would
//! make all callers read that wait for instances of other nodes.

use std::sync::Arc;

use perennial_core::store::{Changes, ShardSet};
use perennial_core::{SHARDS, ShardId};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

pub(crate) struct ChangeHints {
    any: Arc<Notify>,
    shards: Box<[Notify]>,
}

impl Default for ChangeHints {
    fn default() -> ChangeHints {
        ChangeHints { any: Arc::default(), shards: (0..SHARDS).map(|_| Notify::new()).collect() }
    }
}

impl ChangeHints {
    /// Wakes who waits for a change of these shards, or for any change.
    pub(crate) fn notify(&self, shards: &ShardSet) {
        shards.iter().for_each(|shard| self.shards[usize::from(shard.0)].notify_waiters());
        self.any.notify_waiters();
    }

    /// Wakes who waits for a change that a hint of the store is about, whatever its kind.
    pub(crate) fn notify_of(&self, changes: &Changes) {
        let Changes { inbox, requests, tasks, replies, endings, owners } = changes;
        let mut shards = ShardSet::EMPTY;
        [inbox, requests, tasks, replies, endings, owners].iter().for_each(|set| shards.extend_from(set));
        self.notify(&shards);
    }

    /// Resolves at the next hint about a shard after this call.
    pub(crate) fn of(&self, shard: ShardId) -> Notified<'_> {
        self.shards[usize::from(shard.0)].notified()
    }

    /// Resolves at the next hint after this call.
    pub(crate) fn any(&self) -> Notified<'_> {
        self.any.notified()
    }

    /// Notified of every hint.
    pub(crate) fn shared(&self) -> Arc<Notify> {
        Arc::clone(&self.any)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn n12_a_hint_wakes_the_waiters_of_its_shards_and_no_others() {
        let hints = ChangeHints::default();
        let (one, other, any) = (hints.of(ShardId(3)), hints.of(ShardId(4)), hints.any());
        let endings = [ShardId(3)].into_iter().collect();
        hints.notify_of(&Changes { endings, ..Changes::default() });
        assert!(one.now_or_never().is_some());
        assert!(other.now_or_never().is_none());
        assert!(any.now_or_never().is_some());
        let late = hints.of(ShardId(4));
        hints.notify_of(&Changes::ALL);
        assert!(late.now_or_never().is_some());
    }
}
