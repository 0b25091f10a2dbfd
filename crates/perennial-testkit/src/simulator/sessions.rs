//! Sessions: opened, renewed, lost, and replaced when the outcome of a commit is not known.

use perennial_core::shard::Output;
use perennial_core::store::{SessionId, Store, StoreError};
use perennial_core::{SHARDS, ShardId};

use super::Simulation;
use super::store_calls::ask;

/// A shard that was claimed, and who had it before.
type Claimed = (ShardId, Option<SessionId>);

impl Simulation {
    pub(super) fn open(&mut self, node: usize) {
        let (sent_ms, lane) = (self.now_ms(), self.nodes[node].lane);
        self.call(node, "open_session", Simulation::opened, move |this, session| {
            if this.nodes[node].lane != lane || this.nodes[node].session.is_some() {
                return;
            }
            match session {
                Err(_) => this.again(node, "open a session", move |this| {
                    if this.nodes[node].session.is_none() {
                        this.open(node);
                    }
                }),
                Ok(session) => {
                    this.nodes[node].session = Some(session);
                    this.lease_until(node, sent_ms);
                    this.claim_more(node);
                }
            }
        });
    }

    fn opened(&mut self) -> Result<SessionId, StoreError> {
        let lease_ms = self.plan.lease_ms;
        ask(|reply| self.store.open_session("simulated", lease_ms, reply)).map(|session| session.id)
    }

    /// The deadline counts from before the renewal was sent, less a margin.
    fn lease_until(&mut self, node: usize, sent_ms: u64) {
        self.nodes[node].deadline_ms = sent_ms + self.plan.lease_ms - self.plan.lease_ms / 10;
    }

    pub(super) fn claim_more(&mut self, node: usize) {
        let share = SHARDS.div_ceil(self.nodes.len());
        let it = &mut self.nodes[node];
        let Some(session) = it.session else { return };
        if it.is_settling || (it.holds_claims && !it.committer.is_idle()) {
            return;
        }
        it.holds_claims = false;
        let effect = move |this: &mut Simulation| this.claimed(session, share);
        self.call(node, "claim_shards", effect, move |this, claimed| {
            let it = &this.nodes[node];
            if it.session != Some(session) || it.is_settling || it.holds_claims {
                return;
            }
            match claimed {
                Err(StoreError::SessionGone) => this.lose_session(node),
                Err(_) => {}
                Ok(claimed) => this.gain(node, claimed.into_iter().map(|(shard, _)| shard).collect()),
            }
        });
    }

    fn claimed(&mut self, session: SessionId, at_most: usize) -> Result<Vec<Claimed>, StoreError> {
        let shards = ask(|reply| self.store.claim_shards(session, at_most, reply))?;
        let owners = &mut self.witness.owners;
        let claimed: Vec<Claimed> =
            shards.into_iter().map(|shard| (shard, owners.insert(shard, session))).collect();
        if claimed.iter().any(|(_, before)| before.is_some()) {
            self.count("takeover");
        }
        Ok(claimed)
    }

    fn gain(&mut self, node: usize, shards: Vec<ShardId>) {
        if shards.is_empty() {
            return;
        }
        self.tenures += 1;
        for shard in shards {
            self.nodes[node].owned.insert(shard, self.tenures);
        }
        self.take_over(node);
    }

    /// Looks at everything that a new owner has to look at.
    fn take_over(&mut self, node: usize) {
        self.read_owed(node, None);
        self.read_blocked(node);
        self.read_inbox(node);
        self.read_due(node);
    }

    pub(super) fn renew_later(&mut self, node: usize) {
        let pause_ms = self.plan.lease_ms / 3;
        self.later_on(node, pause_ms, format!("n{node} renews"), move |this| {
            this.renew_later(node);
            let sent_ms = this.now_ms();
            let Some(session) = this.nodes[node].session.filter(|_| !this.nodes[node].is_settling) else {
                return;
            };
            let effect = move |this: &mut Simulation| ask(|reply| this.store.renew_session(session, reply));
            this.call(node, "renew_session", effect, move |this, lease| {
                if this.nodes[node].session != Some(session) || this.nodes[node].is_settling {
                    return;
                }
                match lease {
                    Ok(_) => {
                        this.lease_until(node, sent_ms);
                        this.let_go(node);
                    }
                    Err(StoreError::SessionGone) => {
                        this.count("session found gone by a renewal");
                        this.lose_session(node);
                    }
                    Err(_) => {}
                }
            });
        });
    }

    /// Whether the batch in flight was written is not known: end the session it was sent under, open another, and send
    /// the same again.
    pub(super) fn settle(&mut self, node: usize) {
        let Some(old) = self.nodes[node].session else { return };
        self.nodes[node].is_settling = true;
        self.count("commit settled");
        let lane = self.nodes[node].lane;
        let effect = move |this: &mut Simulation| this.ended(old);
        self.call(node, "end_session", effect, move |this, ended| {
            if this.nodes[node].lane != lane {
                return;
            }
            if ended.is_err() {
                return this.again(node, "settle", move |this| this.settle_again(node, lane));
            }
            let sent_ms = this.now_ms();
            this.call(node, "open_session", Simulation::opened, move |this, session| {
                if this.nodes[node].lane != lane {
                    return;
                }
                match session {
                    Err(_) => this.again(node, "settle", move |this| this.settle_again(node, lane)),
                    Ok(session) => this.reclaim(node, lane, old, session, sent_ms),
                }
            });
        });
    }

    fn settle_again(&mut self, node: usize, lane: u64) {
        if self.nodes[node].lane == lane {
            self.settle(node);
        }
    }

    pub(super) fn ended(&mut self, session: SessionId) -> Result<(), StoreError> {
        self.witness.ended.insert(session);
        ask(|reply| self.store.end_session(session, reply))
    }

    fn reclaim(&mut self, node: usize, lane: u64, old: SessionId, session: SessionId, sent_ms: u64) {
        let effect = move |this: &mut Simulation| this.claimed(session, SHARDS);
        self.call(node, "claim_shards", effect, move |this, claimed| {
            if this.nodes[node].lane != lane {
                return;
            }
            let Ok(claimed) = claimed else {
                return this.again(node, "settle", move |this| this.settle_again(node, lane));
            };
            this.nodes[node].session = Some(session);
            this.nodes[node].is_settling = false;
            this.lease_until(node, sent_ms);
            // What nobody had in between is as it was. The rest is lost, even if it is this node's again.
            let owned: Vec<ShardId> = this.nodes[node].owned.keys().copied().collect();
            let is_kept = |shard: &ShardId| claimed.contains(&(*shard, Some(old)));
            for shard in owned.iter().filter(|shard| !is_kept(shard)) {
                this.count("shard lost while settling");
                this.nodes[node].holds_claims = true;
                this.lose_shard(node, *shard);
            }
            let is_new = |shard: &ShardId| !this.nodes[node].owned.contains_key(shard);
            let gained: Vec<ShardId> = claimed.into_iter().map(|(shard, _)| shard).filter(is_new).collect();
            // A shard that was lost and is back begins only when no commit of before is on its way: one without a turn
            // would be written over what another owner did meanwhile.
            let is_back = this.nodes[node].holds_claims && !gained.is_empty();
            if let Some(batch) = this.nodes[node].committer.in_flight().filter(|_| !is_back) {
                this.send_batch(node, session, batch, true);
            }
            if !this.nodes[node].holds_claims {
                this.gain(node, gained);
                this.let_go(node);
            } else if !gained.is_empty() {
                this.count("session given up while settling");
                this.lose_session(node);
            }
            this.read_inbox(node);
        });
    }

    fn lose_shard(&mut self, node: usize, id: ShardId) {
        let it = &mut self.nodes[node];
        it.owned.remove(&id);
        it.wakes.remove(&id);
        if let Some(mut shard) = it.shards.remove(&id) {
            self.count_shard(&shard);
            shard.handle_lost();
            for output in shard.take_outputs() {
                match output {
                    Output::Reply(request, answer) => self.answered(request, answer),
                    Output::CancelActivity { .. } => self.count("activity told to stop"),
                    _ => {}
                }
            }
        }
        self.drop_withheld(node, Some(id));
    }

    /// The session is gone, and all its shards: forget them, and begin anew.
    pub(super) fn lose_session(&mut self, node: usize) {
        self.count("session lost");
        self.give_up(node);
        self.open(node);
    }

    fn give_up(&mut self, node: usize) {
        let owned: Vec<ShardId> = self.nodes[node].owned.keys().copied().collect();
        for shard in owned {
            self.lose_shard(node, shard);
        }
        self.drop_withheld(node, None);
        let it = &mut self.nodes[node];
        it.committer.clear();
        it.lane += 1;
        it.session = None;
        it.is_settling = false;
        it.holds_claims = false;
    }

    /// A node ends its session by itself and takes part again.
    pub(super) fn release(&mut self, node: usize) {
        let Some(session) = self.nodes[node].session.filter(|_| !self.is_healed) else { return };
        if self.nodes[node].paused_until_ms > self.now_ms() {
            return;
        }
        self.count("release");
        self.give_up(node);
        self.call(node, "end_session", move |this| this.ended(session), |_, _| ());
        self.open(node);
    }
}
