//! Sessions: the right of one lane of one node to commit for some shards.
//!
//! A session is opened by its owner under an id that the owner drew, so that a call whose answer was lost can be made
//! again. It lives until its lease runs out by the store's clock *and* somebody ends it: an expired session that nobody
//! has ended can still be renewed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::instance::ShardId;

/// Names a session. Drawn at random by its owner and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl SessionId {
    /// No session has this id.
    pub const NOBODY: SessionId = SessionId(0);
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({:032x})", self.0)
    }
}

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionRole {
    /// The node itself: it holds tasks and owns no shards.
    Node,
    /// A lane: it owns shards and commits for them.
    Lane,
    /// A client that owns shards for a moment while no node does, to end or delete instances. It is refused while any
    /// lane is live, and a lane that opens ends it.
    Maintenance,
}

impl SessionRole {
    /// The name in rows and lists.
    pub fn name(self) -> &'static str {
        match self {
            SessionRole::Node => "node",
            SessionRole::Lane => "lane",
            SessionRole::Maintenance => "maintenance",
        }
    }

    /// The role of a name.
    pub fn from_name(name: &str) -> Option<SessionRole> {
        [SessionRole::Node, SessionRole::Lane, SessionRole::Maintenance]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// A session to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// Its id, drawn by the caller.
    pub id: SessionId,
    /// What it is for.
    pub role: SessionRole,
    /// The node that opens it. All sessions of one process carry the same id.
    pub node: SessionId,
    /// How long it lives without a renewal.
    pub lease_ms: u64,
    /// What the node is and runs, for people and for other nodes: an encoded [`NodeInfo`].
    pub info: Arc<[u8]>,
}

/// How long a session lives unless renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The store's clock when the lease was written.
    pub now_ms: u64,
    /// When it expires, by the store's clock.
    pub expires_ms: u64,
}

/// A shard that a session owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedShard {
    /// The shard.
    pub shard: ShardId,
    /// Counts the changes of its owner. A commit names it.
    pub epoch: u64,
    /// How many owners in a row ended without releasing the shard.
    pub unclean_ends: u32,
    /// What the last owner noted with [`write_shard_notes`](super::Store::write_shard_notes) and did not take back.
    pub note: Option<Arc<[u8]>>,
    /// The latest times in which nobody owned the shard, oldest first, at most [`OwnedShard::MAX_GAPS`].
    pub gaps: Vec<Gap>,
}

impl OwnedShard {
    /// How many gaps are kept for a shard.
    pub const MAX_GAPS: usize = 16;
}

/// A time in which nobody owned a shard, by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// When the last owner released the shard, or its lease ran out.
    pub from_ms: u64,
    /// When the next owner claimed it.
    pub until_ms: u64,
}

/// A session that took the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The lease of the new session.
    pub lease: Lease,
    /// The shards it owns. One that the old session owned until now has exactly the next epoch.
    pub shards: Vec<OwnedShard>,
}

/// A session as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// What it is for.
    pub role: SessionRole,
    /// The node that opened it.
    pub node: SessionId,
    /// When it was opened, by the store's clock.
    pub opened_ms: u64,
    /// When it expires unless renewed, by the store's clock.
    pub expires_ms: u64,
    /// How many shards it owns.
    pub shards: usize,
    /// What the node is and runs: an encoded [`NodeInfo`].
    pub info: Arc<[u8]>,
}

/// Who owns a shard, as anybody may look it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardOwner {
    /// The session that owns it. It may have expired: the [directory](super::Store::directory) tells.
    pub session: Option<SessionId>,
    /// Since when no lane has owned it, by the store's clock. `None` while one does, and if none ever did.
    pub idle_since_ms: Option<u64>,
}

/// All sessions that were not ended, and the store's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// The store's clock.
    pub now_ms: u64,
    /// The sessions, by id. Expired ones are among them until somebody ends them.
    pub sessions: Vec<SessionRow>,
}

/// What a node is and what it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// The name that its operator gave it.
    pub name: String,
    /// The machine it runs on.
    pub host: String,
    /// Its process id.
    pub process: u32,
    /// The version of Perennial in it.
    pub version: String,
    /// When the process started, by its own clock.
    pub since_ms: u64,
    /// Whether it owns shards; a node that does not only runs activities.
    pub owns_shards: bool,
    /// The orchestrations it can run, as (name, version).
    pub orchestrations: Vec<(String, String)>,
    /// The activities it can run.
    pub activities: Vec<String>,
    /// The tags it serves.
    pub tags: Vec<String>,
    /// How many activities it runs at a time.
    pub slots: usize,
}

impl NodeInfo {
    /// The bytes that a session keeps.
    pub fn encode(&self) -> Arc<[u8]> {
        serde_json::to_vec(self).expect("a node's record encodes as JSON").into()
    }

    /// Reads what a session keeps. A record of another version that cannot be read is empty.
    pub fn decode(bytes: &[u8]) -> NodeInfo {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}
