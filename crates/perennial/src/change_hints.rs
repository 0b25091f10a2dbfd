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
    /// For those that wait for the end of an instance alone.
    endings: Box<[Notify]>,
}

impl Default for ChangeHints {
    fn default() -> ChangeHints {
        let each = || (0..SHARDS).map(|_| Notify::new()).collect();
        ChangeHints { any: Arc::default(), shards: each(), endings: each() }
    }
}

impl ChangeHints {
    /// Wakes who waits for a change of these shards, or for any change.
    pub(crate) fn notify(&self, shards: &ShardSet) {
        self.wake(shards, shards);
    }

    fn wake(&self, shards: &ShardSet, endings: &ShardSet) {
        shards.iter().for_each(|shard| self.shards[usize::from(shard.0)].notify_waiters());
        endings.iter().for_each(|shard| self.endings[usize::from(shard.0)].notify_waiters());
        self.any.notify_waiters();
    }

    /// Wakes who waits for a change that a hint of the store is about, whatever its kind.
    pub(crate) fn notify_of(&self, changes: &Changes) {
        let Changes { inbox, requests, tasks, replies, endings, owners } = changes;
        let mut shards = ShardSet::EMPTY;
        [inbox, requests, tasks, replies, endings, owners].iter().for_each(|set| shards.extend_from(set));
        self.wake(&shards, endings);
    }

    /// Resolves at the next hint about a shard after this call.
    pub(crate) fn of(&self, shard: ShardId) -> Notified<'_> {
        self.shards[usize::from(shard.0)].notified()
    }

    /// Resolves at the next hint after this call that an instance of a shard may have ended. Whoever waits for many
    /// instances would otherwise read all of them again for each message to one.
    pub(crate) fn ending_in(&self, shard: ShardId) -> Notified<'_> {
        self.endings[usize::from(shard.0)].notified()
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
        let (ending, message) = (hints.ending_in(ShardId(5)), hints.of(ShardId(5)));
        let inbox = [ShardId(5)].into_iter().collect();
        hints.notify_of(&Changes { inbox, ..Changes::default() });
        assert!(message.now_or_never().is_some());
        assert!(ending.now_or_never().is_none(), "nothing has ended");
        let (late, last) = (hints.of(ShardId(4)), hints.ending_in(ShardId(4)));
        hints.notify_of(&Changes::ALL);
        assert!(late.now_or_never().is_some() && last.now_or_never().is_some());
    }
}
