//! Options of a node.

use std::time::Duration;

use crate::store::{NodeInfo, Served};

/// Options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// What the node is and runs, including whether it owns shards.
    pub info: NodeInfo,
    /// The activities that it takes from the store.
    pub served: Served,
    /// How many lanes it has; none if it only works on tasks. Default 1.
    pub lanes: usize,
    /// Whether it is a maintenance owner: it has lanes, but is no node among others. It opens no session, so that nobody
    /// divides shards with it, takes no tasks, and gives its lanes no targets. Default `false`.
    pub is_visitor: bool,
    /// Whether lanes give up their shards while other nodes on the same machine own some: together they use as many lanes
    /// as one of them would alone. More lanes than cores make batches smaller, and each batch costs more. Default `false`.
    pub shares_machine: bool,
    /// The lease of each task that it takes. Default 30 s. It must be at least twice the lease of the session: if a
    /// task's lease expires while its holder's session is live, that counts as a missed renewal, not as the end of the
    /// holder.
    pub task_lease_ms: u64,
    /// The lease of the node's session. Default 10 s.
    pub lease_ms: u64,
    /// From this many interruptions on, an activity runs alone. Default 4.
    pub quarantine_after: u32,
    /// An attempt that has run this long is healthy. Default 1 minute.
    pub healthy: Duration,
    /// An activity with more interruptions than this is poisoned.
    pub max_interruptions: u32,
    /// The maximum number of tasks taken at a time. Default 100.
    pub max_take: usize,
    /// An attempt that has waited this long for a free slot is queued for other nodes, if one of them has room. Default
    /// 1 s.
    pub spill_after: Duration,
    /// The shortest and the longest pause between two takes. Default 20 ms and 15 s.
    pub poll_pauses: (Duration, Duration),
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            info: NodeInfo { owns_shards: true, ..NodeInfo::default() },
            served: Served::default(),
            lanes: 1,
            is_visitor: false,
            shares_machine: false,
            task_lease_ms: 30_000,
            lease_ms: 10_000,
            quarantine_after: 4,
            healthy: Duration::from_secs(60),
            max_interruptions: 5,
            max_take: 100,
            spill_after: Duration::from_secs(1),
            poll_pauses: (Duration::from_millis(20), Duration::from_secs(15)),
        }
    }
}
