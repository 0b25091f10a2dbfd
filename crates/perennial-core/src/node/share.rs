//! Fair share: dividing the 256 shards among live nodes, and a node's part among its lanes.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::instance::SHARDS;
use crate::store::{Directory, NodeInfo, SessionId, SessionRole, SessionRow};

/// The part of `total` that number `place` of `parts` gets: as even as possible, remainders to the first.
pub(super) fn part(total: usize, parts: usize, place: usize) -> usize {
    let parts = parts.max(1);
    total / parts + usize::from(place < total % parts)
}

/// The live nodes that own shards.
fn owners(directory: &Directory) -> impl Iterator<Item = (SessionId, NodeInfo)> {
    let is_live = |session: &&SessionRow| session.expires_ms > directory.now_ms;
    let nodes = directory.sessions.iter().filter(|session| session.role == SessionRole::Node);
    let infos = nodes.filter(is_live).map(|session| (session.node, NodeInfo::decode(&session.info)));
    infos.filter(|(_, info)| info.owns_shards)
}

/// The other live nodes that own shards.
pub(super) fn peers(node: SessionId, directory: &Directory) -> Vec<NodeInfo> {
    owners(directory).filter(|(other, _)| *other != node).map(|(_, info)| info).collect()
}

/// How many shards a node should hold, according to the directory.
pub(super) fn of_node(node: SessionId, directory: &Directory) -> usize {
    // Sorted by id, so that all nodes divide in the same way; this node always counts, even if it is not in the
    // directory.
    let owners: BTreeSet<SessionId> = owners(directory).map(|(owner, _)| owner).chain([node]).collect();
    let place = owners.iter().position(|owner| *owner == node).unwrap_or(0);
    part(SHARDS, owners.len(), place)
}

/// Whether an expired session of another node owns shards: the next claim gets them.
pub(super) fn has_expired_owner(node: SessionId, directory: &Directory) -> bool {
    let mut others = directory.sessions.iter().filter(|session| session.node != node);
    others.any(|session| session.shards > 0 && session.expires_ms < directory.now_ms)
}

/// How long until the first session of another node has expired, unless it is renewed.
pub(super) fn next_expiry(node: SessionId, directory: &Directory) -> Option<Duration> {
    let others = directory.sessions.iter().filter(|session| session.node != node);
    let expiries = others.map(|session| session.expires_ms).filter(|at_ms| *at_ms >= directory.now_ms);
    // A session can be ended only after the moment at which it expires.
    expiries.min().map(|at_ms| Duration::from_millis(at_ms - directory.now_ms + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u128, role: SessionRole, owns_shards: bool, expires_ms: u64) -> SessionRow {
        let info = NodeInfo { owns_shards, ..NodeInfo::default() }.encode();
        let (id, node) = (SessionId(id), SessionId(id));
        SessionRow { id, role, node, opened_ms: 0, expires_ms, shards: 0, info }
    }

    #[test]
    fn n7_shards_are_divided_evenly_with_remainders_by_node_id() {
        let sessions: Vec<_> = (1..=3).map(|id| row(id, SessionRole::Node, true, 2_000)).collect();
        let directory = Directory { now_ms: 1_000, sessions };
        let shares: Vec<usize> = (1..=3).map(|id| of_node(SessionId(id), &directory)).collect();
        assert_eq!(shares, [86, 85, 85]);
        assert_eq!((0..2).map(|lane| part(85, 2, lane)).collect::<Vec<_>>(), [43, 42]);
    }

    #[test]
    fn n14_peers_are_the_other_live_nodes_that_own_shards() {
        let sessions = vec![
            row(1, SessionRole::Node, true, 2_000),
            row(2, SessionRole::Node, true, 2_000),
            row(3, SessionRole::Node, false, 2_000),
            row(4, SessionRole::Node, true, 900),
            row(5, SessionRole::Lane, true, 2_000),
        ];
        let directory = Directory { now_ms: 1_000, sessions };
        assert_eq!(peers(SessionId(1), &directory).len(), 1);
        assert_eq!(peers(SessionId(3), &directory).len(), 2);
    }

    #[test]
    fn n7_workers_expired_nodes_and_maintenance_do_not_count() {
        let sessions = vec![
            row(1, SessionRole::Node, true, 2_000),
            row(2, SessionRole::Node, false, 2_000),
            row(3, SessionRole::Node, true, 900),
            row(4, SessionRole::Maintenance, true, 2_000),
            row(5, SessionRole::Lane, true, 2_000),
        ];
        let directory = Directory { now_ms: 1_000, sessions };
        assert_eq!(of_node(SessionId(1), &directory), 256);
        assert_eq!(of_node(SessionId(9), &directory), 128, "a node that is not listed yet counts itself");
    }
}
