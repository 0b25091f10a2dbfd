//! The state machines of a runtime, made from its options.

use std::time::Duration;

use perennial_core::lane::{Lane, LaneOptions, Moment};
use perennial_core::node::{Node, NodeOptions};
use perennial_core::shard::{ShardOptions, TokenKey};
use perennial_core::store::SessionRole;

use super::builder::RuntimeOptions;
use super::registry::Registry;

/// The node and its lane. They have random identities, drawn here.
pub(super) fn of(
    options: &RuntimeOptions,
    registry: &Registry,
    role: SessionRole,
    now: Moment,
) -> (Node, Lane) {
    let draw = || uuid::Uuid::new_v4().as_u64_pair().0;
    let info = registry.node_info(options);
    let lease_ms = in_ms(options.lease);
    // A node's session has expired by the time that the leases of its tasks do.
    let task_lease_ms = lease_ms.saturating_mul(3);
    let node = NodeOptions {
        served: registry.served(&options.tags),
        lease_ms,
        task_lease_ms,
        quarantine_after: options.shard.quarantine_after,
        max_interruptions: options.shard.max_interruptions,
        healthy: options.shard.healthy,
        info: info.clone(),
        ..NodeOptions::default()
    };
    let node = Node::new(node, draw(), now);
    let token_key = TokenKey(uuid::Uuid::new_v4().as_u128());
    let lane = LaneOptions {
        shard: ShardOptions { token_key, ..options.shard.clone() },
        role,
        node: node.id(),
        info: info.encode(),
        lease_ms,
        task_lease_ms,
        max_batch: options.max_batch,
        keep_executions: options.keep_executions,
        keep_executions_ms: options.keep_executions_for.map(in_ms),
        ..LaneOptions::default()
    };
    (node, Lane::new(lane, draw(), now))
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
