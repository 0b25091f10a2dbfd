//! Life and death of the process, and of its ownership.

use std::sync::Arc;

use perennial_core::lane::{Lane, LaneOptions};
use perennial_core::shard::ShardOptions;
use perennial_core::store::{NewSession, SessionId, SessionRole, ShardSet, Store};
use perennial_core::{Handlers, SHARDS, ShardId};

use super::{FOR_EVER_MS, ManualNode, wait_for_store};

impl ManualNode {
    /// The process ends and another begins: memory is gone, and a new session owns the shards. Nothing has been looked
    /// at. The shards are released first, as by a runtime that is dropped: it is a clean end.
    pub fn crash(&mut self) -> &mut ManualNode {
        self.end_session(self.lane.session());
        self.die()
    }

    /// The process is killed and another begins, which owns the shards at once: the session of the dead one has expired
    /// meanwhile. Nothing has been looked at. It is an unclean end.
    pub fn kill(&mut self) -> &mut ManualNode {
        let session = self.lane.session();
        if let Some(entry) = self.tables().ownership.sessions.get_mut(&session) {
            entry.expires_ms = 0;
        }
        self.die()
    }

    /// The process is killed, and the next one goes on.
    pub fn restart_after_kill(&mut self) -> &mut ManualNode {
        self.kill().take_over().settle()
    }

    /// The process dies and another begins, which owns nothing before the session of the dead one has expired.
    pub fn die(&mut self) -> &mut ManualNode {
        self.process += 1;
        self.options.node = SessionId(ManualNode::NODE.0 + (u128::from(self.process) << 64));
        self.waiting.clear();
        self.waiting.is_new_owner = true;
        self.quarantine_wishes.clear();
        self.turns.clear();
        self.held_histories = None;
        self.running.clear();
        self.handed_over.clear();
        self.cancelled.clear();
        self.seen.turning.clear();
        self.seen.committing.clear();
        self.lane = Lane::new(self.options.clone(), self.number(), self.moment());
        self.set_target(SHARDS)
    }

    /// The process dies, and nobody owns the shards until a time, at which another begins. Nothing has been looked at.
    pub fn outage_until(&mut self, at_ms: u64) -> &mut ManualNode {
        self.end_session(self.lane.session());
        self.set_clock(at_ms);
        self.die()
    }

    /// Looks at everything that a new owner has to look at: what is owed, blocked, in the inbox and due.
    pub fn take_over(&mut self) -> &mut ManualNode {
        self.look_around();
        self.waiting.is_new_owner = false;
        self.pass_inbox().pass_requests().tick()
    }

    /// The process ends in good order, and the next one goes on.
    pub fn restart(&mut self) -> &mut ManualNode {
        self.crash().take_over().settle()
    }

    /// How the shards of the next process behave.
    pub fn set_options(&mut self, shard: ShardOptions) -> &mut ManualNode {
        self.options = LaneOptions { shard, ..self.options.clone() };
        self
    }

    /// Other code from now on, in the same process.
    pub fn replace_code(&mut self, handlers: Handlers) -> &mut ManualNode {
        self.handlers = handlers;
        self
    }

    /// Another node owns the shards for a moment; then they are this one's again, which notices. Nothing has been looked
    /// at. Activities have stopped by then.
    pub fn lose_shards(&mut self) {
        let rival = self.open_rival_of(&ShardSet::ALL);
        self.end_session(rival);
        self.waiting.is_new_owner = true;
        self.notice();
        self.running.clear();
    }

    /// Another node takes every shard: what is committed from now on is fenced.
    pub fn fence(&mut self) -> SessionId {
        self.end_session(self.lane.session());
        self.open_rival_of(&ShardSet::ALL)
    }

    /// Another node gets these shards, behind the lane's back.
    ///
    /// # Panics
    ///
    /// If there are other shards that nobody owns.
    pub fn open_rival_of(&mut self, shards: &ShardSet) -> SessionId {
        let session = self.lane.session();
        wait_for_store(|reply| self.store.release_shards(session, *shards, reply))
            .expect("the store is open");
        let id = SessionId(1_000_000_000 + u128::from(self.number()));
        let (role, node, info) = (SessionRole::Lane, SessionId(2), Arc::from([]));
        let rival = NewSession { id, role, node, lease_ms: FOR_EVER_MS, info };
        wait_for_store(|reply| self.store.open_session(rival, reply)).expect("the store is open");
        let claimed = wait_for_store(|reply| self.store.claim_shards(id, shards.len(), reply));
        let claimed: ShardSet = claimed.into_iter().flatten().map(|owned| owned.shard).collect();
        assert_eq!(claimed, *shards, "somebody else owns a shard, or nobody owns another");
        id
    }

    /// A session ends in good order.
    pub fn end_session(&mut self, session: SessionId) {
        wait_for_store(|reply| self.store.end_session(session, reply)).expect("the store is open");
    }

    /// The lane's session claims all shards, and the lane never hears of it.
    pub fn claim_behind(&mut self) {
        let session = self.lane.session();
        wait_for_store(|reply| self.store.claim_shards(session, SHARDS, reply))
            .expect("the session is there");
    }

    /// Has the lane read something, so that it notices what it does not own any more.
    pub fn notice(&mut self) {
        self.pass_requests();
    }

    /// How often the owner of an id's shard has changed.
    pub fn epoch(&self, id: &str) -> u64 {
        self.tables().ownership.shards.get(&ShardId::of(id)).map_or(0, |entry| entry.epoch)
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.tables().ownership.sessions.len()
    }
}
