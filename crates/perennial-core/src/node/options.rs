//! How a node behaves.

use std::time::Duration;

use crate::store::{NodeInfo, Served};

/// Tunables of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// What the node is and runs. Whether it owns shards is said here.
    pub info: NodeInfo,
    /// Which activities it takes from the store.
    pub served: Served,
    /// How many lanes it has. Default 1.
    pub lanes: usize,
    /// How long the node's session, and each task that it takes, is leased without a renewal. Default 30 s for tasks,
    /// 10 s for the session. Tasks need twice the session's lease at least: what has run out when the session of its
    /// holder still lives counts as a renewal that was missed, not as the holder's end.
    pub task_lease_ms: u64,
    /// See [`NodeOptions::task_lease_ms`].
    pub lease_ms: u64,
    /// From this many interruptions on, an activity runs alone. Default 4.
    pub quarantine_after: u32,
    /// An attempt that has run for so long is healthy. Default 1 minute.
    pub healthy: Duration,
    /// An activity with more interruptions than this is poison.
    pub max_interruptions: u32,
    /// How many tasks are taken at a time at most. Default 100.
    pub max_take: usize,
    /// The shortest and the longest pause between two looks for tasks. Default 20 ms and 5 s.
    pub poll_pauses: (Duration, Duration),
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            info: NodeInfo { owns_shards: true, ..NodeInfo::default() },
            served: Served::default(),
            lanes: 1,
            task_lease_ms: 30_000,
            lease_ms: 10_000,
            quarantine_after: 4,
            healthy: Duration::from_secs(60),
            max_interruptions: 5,
            max_take: 100,
            poll_pauses: (Duration::from_millis(20), Duration::from_secs(5)),
        }
    }
}
