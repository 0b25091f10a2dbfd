//! Options of a lane.

use std::sync::Arc;
use std::time::Duration;

use crate::shard::ShardOptions;
use crate::store::{SessionId, SessionRole};

/// Options of a lane. The defaults are suitable for production.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// Options of shards and executions.
    pub shard: ShardOptions,
    /// The purpose of the lane's session. Default: a lane. A maintenance lane only serves requests and reads nothing on
    /// its own.
    pub role: SessionRole,
    /// The node's own session, to which running activities are handed over when a shard is released.
    pub node: SessionId,
    /// What the node is and runs, as an encoded [`NodeInfo`](crate::store::NodeInfo).
    pub info: Arc<[u8]>,
    /// How long the session lives without a renewal; it is renewed after a third of this time. Default 10 s.
    pub lease_ms: u64,
    /// The first lease of running activities that are handed over to the node, which renews it: the same as
    /// [`NodeOptions::task_lease_ms`](crate::node::NodeOptions::task_lease_ms). Default 30 s.
    pub task_lease_ms: u64,
    /// The maximum number of commits in one transaction. Default 1,024.
    pub max_batch: usize,
    /// The approximate maximum size of one transaction in bytes. Default 32 MiB.
    pub max_batch_bytes: u64,
    /// The maximum number of rows of a page. Default 1,000.
    pub page_rows: usize,
    /// The maximum size of a page's bodies in bytes. Default 8 MiB.
    pub page_bytes: u64,
    /// The maximum number of concurrent loads. Default 256.
    pub max_loads: usize,
    /// How many shards are released with one renewal. Default 32.
    pub releases_per_renewal: usize,
    /// The shortest and the longest pause between two polls. Default 20 ms and 15 s.
    pub poll_pauses: (Duration, Duration),
    /// After new messages, instances that are due soon are read immediately, but not more often than this: a start that
    /// another process delays by less may be late by this much. Default 1 s.
    pub news_pause: Duration,
    /// How many executions of a running instance are kept, including the current one; all if `None`. Default 10.
    pub keep_executions: Option<u64>,
    /// How long executions of a running instance are kept after they were continued as new, even if `keep_executions`
    /// would keep them; forever if `None`. Default `None`.
    pub keep_executions_ms: Option<u64>,
}

impl Default for LaneOptions {
    fn default() -> LaneOptions {
        LaneOptions {
            shard: ShardOptions::default(),
            role: SessionRole::Lane,
            node: SessionId(0),
            info: Arc::from([]),
            lease_ms: 10_000,
            task_lease_ms: 30_000,
            max_batch: 1_024,
            max_batch_bytes: 32 << 20,
            page_rows: 1_000,
            page_bytes: 8 << 20,
            max_loads: 256,
            releases_per_renewal: 32,
            poll_pauses: (Duration::from_millis(20), Duration::from_secs(15)),
            news_pause: Duration::from_secs(1),
            keep_executions: Some(10),
            keep_executions_ms: None,
        }
    }
}
