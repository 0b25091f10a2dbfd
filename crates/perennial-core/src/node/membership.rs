//! Membership: how the shards are divided among nodes, and when to read the directory again.
//!
//! The directory is read with every renewal of the node's session, when the session of another node expires, and after a
//! hint that a node was added, has left or has released shards.

use std::time::Duration;

use crate::lane::Moment;
use crate::store::{Directory, SessionId};

use super::output::NodeOutput;
use super::share::{self, PeerCode};

/// Hints lead to one read of the directory in this time.
const HINTED_LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What is known of other nodes, and what follows for this node's lanes.
#[derive(Debug)]
pub(super) struct Membership {
    /// How many shards each lane should hold, as it was told.
    targets: Vec<Option<usize>>,
    /// As the driver knows it.
    peer_code: PeerCode,
    /// When a session of another node expires: its shards may be claimed then.
    look_at: Option<Moment>,
    /// When to read the directory because of a hint.
    hinted_look_at: Option<Moment>,
    looked_at: Option<Moment>,
}

impl Membership {
    pub(super) fn new(lanes: usize) -> Membership {
        Membership {
            targets: vec![None; lanes],
            peer_code: PeerCode::default(),
            look_at: None,
            hinted_look_at: None,
            looked_at: None,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.targets.len()
    }

    /// Notes that owners may have changed. A read in progress may have missed it, so the directory is read again; many
    /// hints in a row are one read.
    pub(super) fn handle_hint(&mut self, now: Moment) {
        if !self.targets.is_empty() {
            let at = self.looked_at.map_or(now, |looked| now.max(looked + HINTED_LOOK_PAUSE));
            self.hinted_look_at.get_or_insert(at);
        }
    }

    /// Whether the directory is to be read now. Returns `true` once.
    pub(super) fn take_look(&mut self, now: Moment) -> bool {
        let is_due = self.next_wake().is_some_and(|at| now >= at);
        if is_due {
            self.stop_looking();
        }
        is_due
    }

    /// Notes that the directory is being read.
    pub(super) fn handle_looking(&mut self, now: Moment) {
        self.looked_at = Some(now);
    }

    /// Plans to read the directory because it could not be read.
    pub(super) fn look_again(&mut self, at: Moment) {
        self.look_at = Some(at);
    }

    pub(super) fn stop_looking(&mut self) {
        (self.look_at, self.hinted_look_at) = (None, None);
    }

    /// When [`Membership::take_look`] has something to do.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        self.look_at.into_iter().chain(self.hinted_look_at).min()
    }

    /// Divides the shards among the live nodes, and this node's part among its lanes. Returns what has changed.
    pub(super) fn divide(
        &mut self,
        now: Moment,
        node: SessionId,
        owns_shards: bool,
        directory: &Directory,
    ) -> Vec<NodeOutput> {
        let mut outputs = Vec::new();
        let peer_code = share::peer_code(node, directory);
        if peer_code != self.peer_code {
            self.peer_code = peer_code.clone();
            outputs.push(NodeOutput::PeerCode(peer_code));
        }
        let share = if owns_shards { share::of_node(node, directory) } else { 0 };
        // Shards of an expired session can be claimed, even by a lane whose target has not changed.
        let can_be_had = share::has_expired_owner(node, directory);
        let lanes = self.targets.len();
        for (lane, target) in self.targets.iter_mut().enumerate() {
            let shards = share::part(share, lanes, lane);
            if target.replace(shards) != Some(shards) || can_be_had {
                outputs.push(NodeOutput::Target { lane, shards });
            }
        }
        // A renewed session is seen again, with its next expiry, after this node's own renewal.
        let expires_in = share::next_expiry(node, directory);
        self.look_at = expires_in.filter(|_| lanes > 0).map(|left| now + left);
        outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn n12_many_hints_are_one_look_and_none_is_missed_while_it_is_made() {
        let mut membership = Membership::new(1);
        membership.handle_hint(at(100));
        membership.handle_hint(at(100));
        assert!(membership.take_look(at(100)) && !membership.take_look(at(100)));
        membership.handle_looking(at(100));
        membership.handle_hint(at(101));
        assert_eq!(membership.next_wake(), Some(at(150)));
        membership.divide(at(102), SessionId(1), true, &Directory::default());
        assert!(!membership.take_look(at(149)) && membership.take_look(at(150)));
    }

    #[test]
    fn n7_a_node_without_lanes_does_not_look() {
        let mut membership = Membership::new(0);
        membership.handle_hint(at(100));
        assert_eq!(membership.next_wake(), None);
    }
}
