//! Fair share: dividing the 256 shards among live nodes, and a node's part among its lanes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::instance::SHARDS;
use crate::pattern;
use crate::store::{Directory, NodeInfo, SessionId, SessionRole, SessionRow};

/// What the other live nodes that own shards can run. A new instance gets a version that each of them has, so that it can
/// continue wherever its shard moves while nodes of two releases run side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCode {
    /// The orchestrations of each node, as (name or pattern, version). Nodes that have the same are one.
    nodes: BTreeSet<Vec<(String, String)>>,
}

impl PeerCode {
    /// Whether every one of them can run an orchestration at a version.
    pub fn all_have(&self, name: &str, version: &str) -> bool {
        let is_it = |(known, has): &(String, String)| has == version && pattern::names(known, name);
        self.nodes.iter().all(|node| node.iter().any(is_it))
    }
}

/// From the orchestrations of each node, as (name or pattern, version).
impl FromIterator<Vec<(String, String)>> for PeerCode {
    fn from_iter<I: IntoIterator<Item = Vec<(String, String)>>>(nodes: I) -> PeerCode {
        PeerCode { nodes: nodes.into_iter().collect() }
    }
}

/// The live nodes that own shards, with what they have published.
pub(super) struct LiveOwners(BTreeMap<SessionId, NodeInfo>);

impl LiveOwners {
    /// Reads them from a directory.
    pub(super) fn of(directory: &Directory) -> LiveOwners {
        let is_live = |session: &&SessionRow| {
            session.role == SessionRole::Node && session.expires_ms > directory.now_ms
        };
        let live = directory.sessions.iter().filter(is_live);
        let known = live.map(|session| (session.node, NodeInfo::decode(&session.info)));
        LiveOwners(known.filter(|(_, info)| info.owns_shards).collect())
    }

    /// How many shards a node should hold. It always counts, even if it is not in the directory.
    pub(super) fn share_of(&self, node: SessionId) -> usize {
        // Ordered by id, so that all nodes divide in the same way.
        let place = self.0.keys().filter(|owner| **owner < node).count();
        let others = self.0.keys().filter(|owner| **owner != node).count();
        part(SHARDS, others + 1, place)
    }

    /// How many nodes except one own shards on a machine.
    pub(super) fn neighbours_of(&self, node: SessionId, host: &str) -> usize {
        self.0.iter().filter(|(owner, info)| **owner != node && info.host == host).count()
    }

    /// What the nodes except one can run.
    pub(super) fn peer_code(&self, node: SessionId) -> PeerCode {
        let others = self.0.iter().filter(|(owner, _)| **owner != node);
        others.map(|(_, info)| info.orchestrations.clone()).collect()
    }
}

/// The part of `total` that number `place` of `parts` gets: as even as possible, remainders to the first.
pub(super) fn part(total: usize, parts: usize, place: usize) -> usize {
    let parts = parts.max(1);
    total / parts + usize::from(place < total % parts)
}

/// Whether nobody owns some shards: another node may have ended an expired session and taken only its own part.
pub(super) fn has_free_shards(directory: &Directory) -> bool {
    directory.sessions.iter().map(|session| session.shards).sum::<usize>() < SHARDS
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
    use crate::store::SessionRow;

    fn row(id: u128, role: SessionRole, owns_shards: bool, expires_ms: u64) -> SessionRow {
        let info = NodeInfo { owns_shards, ..NodeInfo::default() }.encode();
        let (id, node) = (SessionId(id), SessionId(id));
        SessionRow { id, role, node, opened_ms: 0, expires_ms, shards: 0, info }
    }

    #[test]
    fn n7_shards_are_divided_evenly_with_remainders_by_node_id() {
        let sessions: Vec<_> = (1..=3).map(|id| row(id, SessionRole::Node, true, 2_000)).collect();
        let directory = Directory { now_ms: 1_000, sessions };
        let shares: Vec<usize> =
            (1..=3).map(|id| LiveOwners::of(&directory).share_of(SessionId(id))).collect();
        assert_eq!(shares, [86, 85, 85]);
        assert_eq!((0..2).map(|lane| part(85, 2, lane)).collect::<Vec<_>>(), [43, 42]);
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
        let owners = LiveOwners::of(&directory);
        assert_eq!(owners.share_of(SessionId(1)), 256);
        assert_eq!(owners.share_of(SessionId(9)), 128, "a node that is not listed yet counts itself");
    }

    #[test]
    fn n11_shards_can_be_claimed_if_nobody_owns_them_or_their_owner_has_expired() {
        let lane =
            |id, shards, expires_ms| SessionRow { shards, ..row(id, SessionRole::Lane, true, expires_ms) };
        let directory = |sessions: &[SessionRow]| Directory { now_ms: 1_000, sessions: sessions.to_vec() };
        let is_free = |sessions: &[SessionRow]| {
            let directory = directory(sessions);
            has_free_shards(&directory) || has_expired_owner(SessionId(1), &directory)
        };
        assert!(!is_free(&[lane(1, 128, 2_000), lane(2, 128, 2_000)]));
        assert!(is_free(&[lane(1, 128, 2_000), lane(2, 128, 900)]));
        assert!(
            is_free(&[lane(1, 128, 2_000), lane(3, 43, 2_000)]),
            "another node ended the session of the owner"
        );
        assert!(!is_free(&[lane(1, 256, 900)]), "this node renews its own");
    }

    #[test]
    fn n14_a_version_counts_if_every_other_live_owner_has_it() {
        let node = |id, code: &[(&str, &str)], owns_shards, expires_ms| {
            let orchestrations = code.iter().map(|(name, version)| (name.to_string(), version.to_string()));
            let info = NodeInfo { owns_shards, orchestrations: orchestrations.collect(), ..<_>::default() };
            SessionRow { info: info.encode(), ..row(id, SessionRole::Node, owns_shards, expires_ms) }
        };
        let old: &[_] = &[("order", "1.0.0"), ("job/*", "1.0.0")];
        let new: &[_] = &[("order", "1.0.0"), ("order", "2.0.0"), ("job/*", "1.0.0")];
        let mut directory = Directory {
            now_ms: 1_000,
            sessions: vec![
                node(1, new, true, 2_000),
                node(2, old, true, 2_000),
                node(3, &[], false, 2_000),
                node(4, &[], true, 900),
            ],
        };
        let code = LiveOwners::of(&directory).peer_code(SessionId(1));
        assert!(code.all_have("order", "1.0.0") && code.all_have("job/7", "1.0.0"));
        assert!(!code.all_have("order", "2.0.0") && !code.all_have("job/7", "2.0.0"));
        let of_others = LiveOwners::of(&directory).peer_code(SessionId(2));
        assert!(of_others.all_have("order", "2.0.0"), "of the others");
        directory.sessions.truncate(1);
        let of_none = LiveOwners::of(&directory).peer_code(SessionId(1));
        assert!(of_none.all_have("anything", "9.0.0"), "there is no other");
    }
}
