//! The life cycle of the process, and of its ownership.

use std::sync::Arc;

use perennial_core::lane::{Lane, LaneOptions};
use perennial_core::shard::ShardOptions;
use perennial_core::store::{NewSession, SessionId, SessionRole, ShardSet, Store};
use perennial_core::{Handlers, SHARDS, ShardId};

use super::{FOR_EVER_MS, ManualNode, wait_for_store};

impl ManualNode {
    /// Ends the process cleanly and starts another: memory is lost, and a new session owns the shards but has
    /// not read them. The shards are released first, as by a runtime that is dropped.
    pub fn crash(&mut self) -> &mut ManualNode {
        self.end_session(self.lane.session());
        self.die()
    }

    /// Kills the process and starts another, which owns the shards at once because the session of the killed
    /// one has expired, but has not read them. This is an unclean end.
    pub fn kill(&mut self) -> &mut ManualNode {
        let session = self.lane.session();
        if let Some(entry) = self.tables().ownership.sessions.get_mut(&session) {
            entry.expires_ms = 0;
        }
        self.die()
    }

    /// Kills the process, and lets the next one take over.
    pub fn restart_after_kill(&mut self) -> &mut ManualNode {
        self.kill().take_over().settle()
    }

    /// Kills the process and starts another, which owns nothing before the session of the killed one has
    /// expired.
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

    /// Kills the process and leaves the shards without an owner until a time, at which another process
    /// starts. It has not read them.
    pub fn outage_until(&mut self, at_ms: u64) -> &mut ManualNode {
        self.end_session(self.lane.session());
        self.set_clock(at_ms);
        self.die()
    }

    /// Reads everything that a new owner must read: owed and blocked instances, the inbox, and due timers.
    pub fn take_over(&mut self) -> &mut ManualNode {
        self.look_around();
        self.waiting.is_new_owner = false;
        self.pass_inbox().pass_requests().tick()
    }

    /// Ends the process cleanly, and lets the next one take over.
    pub fn restart(&mut self) -> &mut ManualNode {
        self.crash().take_over().settle()
    }

    /// Sets the shard options of the next process.
    pub fn set_options(&mut self, shard: ShardOptions) -> &mut ManualNode {
        self.options = LaneOptions { shard, ..self.options.clone() };
        self
    }

    /// Replaces the code in the same process.
    pub fn replace_code(&mut self, handlers: Handlers) -> &mut ManualNode {
        self.handlers = handlers;
        self
    }

    /// Gives the shards to another node for a moment; then this node owns them again, and notices. It has not
    /// read them. Activities have stopped by then.
    pub fn lose_shards(&mut self) {
        let rival = self.open_rival_of(&ShardSet::ALL);
        self.end_session(rival);
        self.waiting.is_new_owner = true;
        self.notice();
        self.running.clear();
    }

    /// Gives every shard to another node: later commits are fenced.
    pub fn fence(&mut self) -> SessionId {
        self.end_session(self.lane.session());
        self.open_rival_of(&ShardSet::ALL)
    }

    /// Gives these shards to another node, without the lane's knowledge.
    ///
    /// # Panics
    ///
    /// If there are other shards without an owner.
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
        assert_eq!(claimed, *shards, "another session owns a shard, or other shards are free");
        id
    }

    /// Ends a session cleanly.
    pub fn end_session(&mut self, session: SessionId) {
        wait_for_store(|reply| self.store.end_session(session, reply)).expect("the store is open");
    }

    /// Claims all shards with the lane's session, without the lane's knowledge.
    pub fn claim_behind(&mut self) {
        let session = self.lane.session();
        wait_for_store(|reply| self.store.claim_shards(session, SHARDS, reply)).expect("the session exists");
    }

    /// Makes the lane read, so that it notices lost shards.
    pub fn notice(&mut self) {
        self.pass_requests();
    }

    /// The number of times that the owner of an id's shard has changed.
    pub fn epoch(&self, id: &str) -> u64 {
        self.tables().ownership.shards.get(&ShardId::of(id)).map_or(0, |entry| entry.epoch)
    }

    /// The number of sessions.
    pub fn sessions(&self) -> usize {
        self.tables().ownership.sessions.len()
    }
}
