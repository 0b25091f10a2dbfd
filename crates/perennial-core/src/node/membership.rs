//! Membership: what this node knows of the other nodes of its store, and how many shards its lanes should hold.

use std::time::Duration;

use crate::lane::{Moment, TurnClock};
use crate::store::{Directory, SessionId};

use super::calls::RETRY_PAUSE;
use super::options::NodeOptions;
use super::output::NodeOutput;
use super::share::{self, LiveOwners, PeerCode};

/// Hints about owners lead to one read of the directory in this time.
const HINTED_LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What the directory of sessions said last, and when it is read again.
pub(super) struct Membership {
    node: SessionId,
    owns_shards: bool,
    /// The machine, if its nodes share the lanes that are useful on it.
    host: Option<String>,
    /// The store's clock as far as this node knows it.
    clock: TurnClock,
    /// How many shards this node should hold, once it has read the directory.
    share: Option<usize>,
    /// How many shards each lane should hold, as the driver knows it.
    targets: Vec<Option<usize>>,
    /// As the driver knows it.
    peer_code: PeerCode,
    /// When a session of another node in the directory expires: its shards may be claimed then.
    look_at: Option<Moment>,
    /// When to read the directory because of a hint.
    hinted_look_at: Option<Moment>,
    looked_at: Option<Moment>,
    /// Whether the directory is being read because a session has expired.
    expects_free_shards: bool,
}

impl Membership {
    pub(super) fn new(node: SessionId, options: &NodeOptions) -> Membership {
        let NodeOptions { info, lanes, shares_machine, .. } = options;
        Membership {
            node,
            owns_shards: info.owns_shards,
            host: shares_machine.then(|| info.host.clone()),
            clock: TurnClock::default(),
            share: None,
            targets: vec![None; *lanes],
            peer_code: PeerCode::default(),
            look_at: None,
            hinted_look_at: None,
            looked_at: None,
            expects_free_shards: false,
        }
    }

    pub(super) fn clock(&self) -> TurnClock {
        self.clock
    }

    pub(super) fn share(&self) -> Option<usize> {
        self.share
    }

    pub(super) fn lanes(&self) -> usize {
        self.targets.len()
    }

    /// When [`Membership::take_look`] has something to do.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        self.look_at.into_iter().chain(self.hinted_look_at).min()
    }

    /// Whether the directory has to be read now. Returns `true` once.
    pub(super) fn take_look(&mut self, now: Moment) -> bool {
        let is_due = self.next_wake().is_some_and(|at| now >= at);
        if is_due {
            self.expects_free_shards |= self.look_at.is_some_and(|at| now >= at);
            self.stop_looking();
        }
        is_due
    }

    /// Shards may have changed hands, or nodes have joined or left.
    pub(super) fn handle_hint(&mut self, now: Moment) {
        if !self.targets.is_empty() {
            // A read in progress may have missed it, so it is read again; many hints in a row are one read.
            let at = self.looked_at.map_or(now, |looked| now.max(looked + HINTED_LOOK_PAUSE));
            self.hinted_look_at.get_or_insert(at);
        }
    }

    /// The directory is being read.
    pub(super) fn handle_looking(&mut self, now: Moment) {
        self.looked_at = Some(now);
    }

    /// The directory could not be read.
    pub(super) fn handle_not_read(&mut self, now: Moment) {
        self.look_at = Some(now + RETRY_PAUSE);
    }

    /// No further look is needed.
    pub(super) fn stop_looking(&mut self) {
        (self.look_at, self.hinted_look_at) = (None, None);
    }

    /// Divides the shards among the live nodes, and this node's part among its lanes. Returns what has changed for the
    /// driver.
    pub(super) fn handle_directory(
        &mut self,
        now: Moment,
        directory: &Directory,
        is_stopping: bool,
    ) -> Vec<NodeOutput> {
        // The lanes report a clock that was set back.
        let _ = self.clock.handle_reading(now, directory.now_ms);
        let owners = LiveOwners::of(directory);
        let share = if self.owns_shards { owners.share_of(self.node) } else { 0 };
        self.share = Some(share);
        let mut outputs = Vec::new();
        let peer_code = owners.peer_code(self.node);
        if peer_code != self.peer_code {
            self.peer_code = peer_code.clone();
            outputs.push(NodeOutput::PeerCode(peer_code));
        }
        // Shards that are free or whose owner has expired can be claimed, even by a lane whose target has not changed.
        // After a hint the lanes look for themselves.
        let can_be_had = std::mem::take(&mut self.expects_free_shards) && share::has_free_shards(directory)
            || share::has_expired_owner(self.node, directory);
        let lanes = self.targets.len();
        let neighbours = self.host.as_ref().map_or(0, |host| owners.neighbours_of(self.node, host));
        let used = (lanes / (neighbours + 1)).max(1);
        for (lane, target) in self.targets.iter_mut().enumerate() {
            let shards = if lane < used { share::part(share, used, lane) } else { 0 };
            if target.replace(shards) != Some(shards) || can_be_had {
                outputs.push(NodeOutput::Target { lane, shards });
            }
        }
        // A renewed session is seen again, with its next expiry, after this node's own renewal.
        let expires_in = share::next_expiry(self.node, directory);
        self.look_at = expires_in.filter(|_| !is_stopping && lanes > 0).map(|left| now + left);
        outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{NodeInfo, SessionRole, SessionRow};

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn n12_many_hints_in_a_row_are_one_read_of_the_directory() {
        let mut membership = Membership::new(SessionId(1), &NodeOptions::default());
        membership.handle_hint(at(1_000));
        membership.handle_hint(at(1_000));
        assert!(membership.take_look(at(1_000)));
        membership.handle_looking(at(1_000));
        assert!(!membership.take_look(at(1_000)));
        membership.handle_hint(at(1_001));
        membership.handle_hint(at(1_002));
        assert!(!membership.take_look(at(1_049)), "not twice in so short a time");
        assert!(membership.take_look(at(1_050)));
        assert_eq!(membership.next_wake(), None);
    }

    #[test]
    fn n7_nodes_on_one_machine_use_as_many_lanes_together_as_one_alone() {
        let info = |host: &str| NodeInfo { owns_shards: true, host: host.to_owned(), ..NodeInfo::default() };
        let row = |id: u128, host: &str| SessionRow {
            id: SessionId(id),
            role: SessionRole::Node,
            node: SessionId(id),
            opened_ms: 0,
            expires_ms: 9_000,
            shards: 0,
            info: info(host).encode(),
        };
        let targets = |lanes: usize, shares_machine: bool, others: &[&str]| -> Vec<usize> {
            let options = NodeOptions { info: info("a"), lanes, shares_machine, ..NodeOptions::default() };
            let mut node = Membership::new(SessionId(1), &options);
            let others = (2..).zip(others).map(|(id, host)| row(id, host));
            let sessions = std::iter::once(row(1, "a")).chain(others).collect();
            let outputs =
                node.handle_directory(at(1_000), &Directory { now_ms: 5_000, sessions }, false).into_iter();
            let target =
                |output| if let NodeOutput::Target { shards, .. } = output { Some(shards) } else { None };
            outputs.filter_map(target).collect()
        };
        assert_eq!(targets(2, true, &[]), [128, 128]);
        assert_eq!(targets(2, true, &["b"]), [64, 64], "another machine");
        assert_eq!(targets(2, true, &["a"]), [128, 0]);
        assert_eq!(targets(4, true, &["a", "b"]), [43, 43, 0, 0]);
        assert_eq!(targets(4, true, &["a"; 7]), [32, 0, 0, 0], "each uses one at least");
        assert_eq!(targets(2, false, &["a"]), [64, 64], "its operator chose the number");
    }

    #[test]
    fn n7_a_worker_does_not_look_for_shards() {
        let info = NodeInfo { owns_shards: false, ..NodeInfo::default() };
        let options = NodeOptions { info, lanes: 0, ..NodeOptions::default() };
        let mut worker = Membership::new(SessionId(1), &options);
        worker.handle_hint(at(1_000));
        assert_eq!(worker.next_wake(), None);
        let directory = Directory { now_ms: 5_000, sessions: Vec::new() };
        assert!(worker.handle_directory(at(1_000), &directory, false).is_empty());
        assert_eq!((worker.share(), worker.next_wake()), (Some(0), None));
        assert_eq!(worker.clock().now_ms(at(2_000)), 6_000, "it knows the store's time");
    }
}
