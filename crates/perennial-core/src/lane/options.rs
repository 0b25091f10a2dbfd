//! How a lane behaves.

use std::sync::Arc;
use std::time::Duration;

use crate::shard::ShardOptions;
use crate::store::{SessionId, SessionRole};

/// Tunables of a lane. The defaults need no tuning.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// How shards and executions behave.
    pub shard: ShardOptions,
    /// What the lane's session is for. Default a lane. A maintenance lane does what it is asked and reads nothing by
    /// itself.
    pub role: SessionRole,
    /// The node's own session, to which running activities are handed over when a shard is released.
    pub node: SessionId,
    /// What the node is and runs, as an encoded [`NodeInfo`](crate::store::NodeInfo).
    pub info: Arc<[u8]>,
    /// How long the session lives without a renewal; it is renewed at a third of it. Default 10 s.
    pub lease_ms: u64,
    /// How many commits one transaction holds at most. Default 1,024.
    pub max_batch: usize,
    /// About how many bytes one transaction writes at most. Default 32 MiB.
    pub max_batch_bytes: u64,
    /// How many rows a page has. Default 1,000.
    pub page_rows: usize,
    /// How many bytes of bodies a page has. Default 8 MiB.
    pub page_bytes: u64,
    /// How many instances are loaded at the same time. Default 256.
    pub max_loads: usize,
    /// How many shards are given up with one renewal. Default 32.
    pub releases_per_renewal: usize,
    /// The shortest and the longest pause between two polls. Default 20 ms and 5 s.
    pub poll_pauses: (Duration, Duration),
    /// When messages have come, what will be due is read ahead at once, but no more often than this: a start that another
    /// process delays by less may begin late by as much. Default 1 s.
    pub news_pause: Duration,
    /// How many executions of a running instance are kept, the current one included; all if `None`. Default 10.
    pub keep_executions: Option<u64>,
    /// For how long executions of a running instance are kept after they were continued as new, even if they are among
    /// those that `keep_executions` keeps; forever if `None`. Default `None`.
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
            max_batch: 1_024,
            max_batch_bytes: 32 << 20,
            page_rows: 1_000,
            page_bytes: 8 << 20,
            max_loads: 256,
            releases_per_renewal: 32,
            poll_pauses: (Duration::from_millis(20), Duration::from_secs(5)),
            news_pause: Duration::from_secs(1),
            keep_executions: Some(10),
            keep_executions_ms: None,
        }
    }
}
