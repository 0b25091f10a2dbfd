//! Spill-over: attempts that have waited too long for a free slot here are queued for nodes that have room.
//!
//! Each node publishes with the renewal of its session how many more activities it could run. This node gives at most
//! that many attempts away until the other one has renewed again: an attempt that is queued while nobody has room would
//! only wait elsewhere. The driver knows which attempts wait; they are listed when the first of them has waited long
//! enough and somebody has room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::lane::Moment;
use crate::store::{Directory, NodeInfo, NodeLoad, Served, SessionId, SessionRole};

/// How many waiting attempts are examined at a time.
const MAX_LISTED: usize = 10_000;

/// Identifies an attempt to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptNumber(pub u64);

/// An attempt that waits for a free slot.
#[derive(Clone, Copy, Debug)]
pub struct WaitingAttempt<'a> {
    /// Identifies it in [`NodeOutput::Withdraw`](super::NodeOutput::Withdraw).
    pub number: AttemptNumber,
    /// Since when it waits.
    pub since: Moment,
    /// The activity.
    pub name: &'a str,
    /// The tag that a node has to serve to run it.
    pub tag: Option<&'a str>,
}

/// What another node could run.
#[derive(Debug)]
struct Peer {
    /// Its record, from which the next two were read.
    info: Arc<[u8]>,
    served: Served,
    free: usize,
    /// Changes with each renewal of its session.
    expires_ms: u64,
    /// How many more activities it could run at its last renewal, less what was queued since.
    room: usize,
}

#[derive(Debug)]
pub(super) struct SpillOver {
    node: SessionId,
    after: Duration,
    /// The other live nodes.
    peers: BTreeMap<SessionId, Peer>,
    /// When the waiting attempts should be examined, if a peer has room; `None` while none waits.
    look_at: Option<Moment>,
    /// The number of free slots and the load that were published last, if they are known.
    published: Option<(usize, Option<NodeLoad>)>,
}

impl SpillOver {
    pub(super) fn new(node: SessionId, after: Duration, free: Option<usize>) -> SpillOver {
        let published = free.map(|free| (free, None));
        SpillOver { node, after, peers: BTreeMap::new(), look_at: None, published }
    }

    /// Whether these are published with the next renewal: other nodes should know the number of free slots, and operators
    /// the load, if somebody notes it.
    pub(super) fn take_news(&mut self, free: usize, load: Option<NodeLoad>) -> bool {
        let is_asked_for = load.is_some() || !self.peers.is_empty();
        let is_news = is_asked_for && self.published != Some((free, load));
        if is_news {
            self.published = Some((free, load));
        }
        is_news
    }

    /// A renewal has failed: what it published may not have arrived.
    pub(super) fn handle_not_published(&mut self) {
        self.published = None;
    }

    /// Takes over what the other nodes have published.
    pub(super) fn handle_directory(&mut self, directory: &Directory) {
        let mut earlier = std::mem::take(&mut self.peers);
        for session in &directory.sessions {
            let is_peer = session.role == SessionRole::Node && session.node != self.node;
            if !is_peer || session.expires_ms <= directory.now_ms {
                continue;
            }
            // Directories are read often, and records rarely change.
            let known = earlier.remove(&session.node).filter(|peer| peer.info == session.info);
            let mut peer = known.unwrap_or_else(|| Peer::new(&session.info));
            if peer.expires_ms != session.expires_ms {
                (peer.expires_ms, peer.room) = (session.expires_ms, peer.free);
            }
            self.peers.insert(session.node, peer);
        }
    }

    /// An attempt waits for a slot from now on, and none did before.
    pub(super) fn handle_began(&mut self, now: Moment) {
        self.look_at.get_or_insert(now + self.after);
    }

    /// When [`SpillOver::take_look`] has something to do.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        self.look_at.filter(|_| self.has_room())
    }

    /// Whether the waiting attempts should be listed now. Returns `true` once.
    pub(super) fn take_look(&mut self, now: Moment) -> bool {
        let is_due = self.next_wake().is_some_and(|at| now >= at);
        if is_due {
            // Until the list arrives; it says when to look next.
            self.look_at = Some(now + self.after);
        }
        is_due
    }

    /// Chooses the attempts that other nodes should run, of those that wait here, longest first.
    pub(super) fn handle_waiting<'a>(
        &mut self,
        now: Moment,
        waiting: impl IntoIterator<Item = WaitingAttempt<'a>>,
    ) -> Vec<AttemptNumber> {
        let mut chosen = Vec::new();
        self.look_at = None;
        for attempt in waiting.into_iter().take(MAX_LISTED) {
            let due = attempt.since + self.after;
            if now < due || !self.has_room() {
                // Without room, as soon as somebody has some.
                self.look_at = Some(due);
                break;
            }
            match self.peers.values_mut().find(|peer| peer.room > 0 && peer.runs(&attempt)) {
                Some(peer) => {
                    peer.room -= 1;
                    chosen.push(attempt.number);
                }
                None => self.look_at = Some(now + self.after),
            }
        }
        if !chosen.is_empty() {
            // Others may begin to wait while the chosen ones are still there, which is not announced.
            self.look_at.get_or_insert(now + self.after);
        }
        chosen
    }

    fn has_room(&self) -> bool {
        self.peers.values().any(|peer| peer.room > 0)
    }
}

impl Peer {
    fn new(info: &Arc<[u8]>) -> Peer {
        let record = NodeInfo::decode(info);
        let (served, free) = (record.served(), record.free.unwrap_or(0));
        Peer { info: Arc::clone(info), served, free, expires_ms: 0, room: 0 }
    }

    fn runs(&self, attempt: &WaitingAttempt<'_>) -> bool {
        self.served.serves(attempt.name, attempt.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SessionRow;

    const AFTER: Duration = Duration::from_secs(1);

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    fn directory(peers: &[(u128, &[&str], usize, u64)]) -> Directory {
        let row = |(id, names, free, expires_ms): &(u128, &[&str], usize, u64)| {
            let activities = names.iter().map(ToString::to_string).collect();
            let info =
                NodeInfo { activities, tags: vec!["gpu".to_owned()], free: Some(*free), ..<_>::default() };
            let (id, node, role) = (SessionId(*id), SessionId(*id), SessionRole::Node);
            SessionRow {
                id,
                role,
                node,
                opened_ms: 0,
                expires_ms: *expires_ms,
                shards: 0,
                info: info.encode(),
            }
        };
        Directory { now_ms: 1_000, sessions: peers.iter().map(row).collect() }
    }

    fn waiting(number: u64, since_ms: u64, name: &'static str) -> WaitingAttempt<'static> {
        WaitingAttempt { number: AttemptNumber(number), since: at(since_ms), name, tag: None }
    }

    fn numbers(chosen: &[AttemptNumber]) -> Vec<u64> {
        chosen.iter().map(|number| number.0).collect()
    }

    #[test]
    fn g22_no_attempt_spills_while_nobody_has_room() {
        let mut spill_over = SpillOver::new(SessionId(1), AFTER, Some(4));
        spill_over.handle_directory(&directory(&[
            (1, &["a"], 4, 9_000),
            (2, &["a"], 0, 9_000),
            (3, &["a"], 4, 900),
        ]));
        spill_over.handle_began(at(0));
        assert_eq!(spill_over.next_wake(), None, "this node, a full one and a dead one");
        assert!(!spill_over.take_look(at(60_000)));
        spill_over.handle_directory(&directory(&[(2, &["a"], 1, 9_001)]));
        assert_eq!(spill_over.next_wake(), Some(at(1_000)), "it has waited long enough by now");
        assert!(spill_over.take_look(at(60_000)) && !spill_over.take_look(at(60_000)));
    }

    #[test]
    fn g22_attempts_spill_after_their_time_and_up_to_the_room_of_others() {
        let mut spill_over = SpillOver::new(SessionId(1), AFTER, Some(4));
        spill_over.handle_directory(&directory(&[(2, &["a"], 2, 9_000)]));
        let all = [waiting(1, 0, "a"), waiting(2, 100, "a"), waiting(3, 200, "a"), waiting(4, 300, "a")];
        assert_eq!(numbers(&spill_over.handle_waiting(at(1_050), all)), [1]);
        assert_eq!(spill_over.next_wake(), Some(at(1_100)), "when the second one has waited long enough");
        assert_eq!(numbers(&spill_over.handle_waiting(at(5_000), all[1..].to_vec())), [2]);
        assert_eq!(spill_over.next_wake(), None, "its room is used up");
        spill_over.handle_directory(&directory(&[(2, &["a"], 2, 9_000)]));
        assert_eq!(spill_over.next_wake(), None, "it has not renewed since");
        spill_over.handle_directory(&directory(&[(2, &["a"], 1, 9_500)]));
        assert_eq!(numbers(&spill_over.handle_waiting(at(6_000), all[2..].to_vec())), [3]);
    }

    #[test]
    fn g22_attempts_that_begin_to_wait_while_others_are_withdrawn_are_found() {
        let mut spill_over = SpillOver::new(SessionId(1), AFTER, Some(4));
        spill_over.handle_directory(&directory(&[(2, &["a"], 2, 9_000)]));
        assert_eq!(numbers(&spill_over.handle_waiting(at(1_000), [waiting(1, 0, "a")])), [1]);
        assert_eq!(spill_over.next_wake(), Some(at(2_000)));
        assert!(spill_over.take_look(at(2_000)));
        assert_eq!(numbers(&spill_over.handle_waiting(at(2_000), [waiting(2, 1_000, "a")])), [2]);
    }

    #[test]
    fn g22_attempts_spill_only_to_nodes_that_serve_them() {
        let mut spill_over = SpillOver::new(SessionId(1), AFTER, Some(4));
        spill_over.handle_directory(&directory(&[(2, &["b/*"], 1, 9_000), (3, &["c"], 5, 9_000)]));
        let tagged = |tag| WaitingAttempt { tag: Some(tag), ..waiting(5, 0, "c") };
        let all =
            [waiting(1, 0, "a"), waiting(2, 0, "b/1"), waiting(3, 0, "b/2"), tagged("gpu"), tagged("no")];
        assert_eq!(numbers(&spill_over.handle_waiting(at(2_000), all)), [2, 5]);
        assert_eq!(
            spill_over.next_wake(),
            Some(at(3_000)),
            "the others wait on, and are looked at with pauses"
        );
        assert!(spill_over.handle_waiting(at(3_000), []).is_empty());
        assert_eq!(spill_over.next_wake(), None, "nothing waits");
    }

    #[test]
    fn g22_free_slots_are_published_to_other_nodes_when_they_change() {
        let mut spill_over = SpillOver::new(SessionId(1), AFTER, Some(4));
        assert!(!spill_over.take_news(3, None), "there is nobody to know it");
        spill_over.handle_directory(&directory(&[(2, &["a"], 2, 9_000)]));
        assert_eq!((spill_over.take_news(3, None), spill_over.take_news(3, None)), (true, false));
        spill_over.handle_not_published();
        assert!(spill_over.take_news(3, None));
        // A load that is noted is for operators, who look at a single node, too.
        let mut alone = SpillOver::new(SessionId(1), Duration::ZERO, Some(3));
        let load = |residents| Some(NodeLoad { residents, ..NodeLoad::default() });
        let news = [load(1), load(1), load(2)].map(|load| alone.take_news(3, load));
        assert_eq!(news, [true, false, true]);
    }
}
