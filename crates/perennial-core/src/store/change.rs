//! Hints about what may have changed, and where. Losing a hint costs latency, never progress.

use std::sync::Arc;

use super::shard_set::ShardSet;

/// What may have changed since the last hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Shards whose inbox received messages, or with instances that became due.
    pub inbox: ShardSet,
    /// Shards with requests.
    pub requests: ShardSet,
    /// Shards with tasks that can be taken.
    pub tasks: ShardSet,
    /// Shards with replies to requests.
    pub replies: ShardSet,
    /// Shards with instances that ended or whose published status changed.
    pub endings: ShardSet,
    /// Shards that were released, or whose owner may change because a node was added or has left.
    pub owners: ShardSet,
}

impl Changes {
    /// Everything may have changed.
    pub const ALL: Changes = Changes {
        inbox: ShardSet::ALL,
        requests: ShardSet::ALL,
        tasks: ShardSet::ALL,
        replies: ShardSet::ALL,
        endings: ShardSet::ALL,
        owners: ShardSet::ALL,
    };

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Adds the changes of another hint.
    pub fn extend_from(&mut self, other: &Changes) {
        self.inbox.extend_from(&other.inbox);
        self.requests.extend_from(&other.requests);
        self.tasks.extend_from(&other.tasks);
        self.replies.extend_from(&other.replies);
        self.endings.extend_from(&other.endings);
        self.owners.extend_from(&other.owners);
    }
}

/// Called when something may have changed.
pub type Watcher = Arc<dyn Fn(&Changes) + Send + Sync>;
