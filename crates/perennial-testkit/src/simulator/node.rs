//! What a node has in memory, and how it lives and dies.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::ShardId;
use perennial_core::shard::{Committer, Counters, Output, Shard, ShardOptions};
use perennial_core::store::SessionId;

use super::Simulation;
use super::activities::Runs;

/// A process with the runtime in it.
pub(super) struct Node {
    pub(super) is_up: bool,
    /// Counts lives; what belongs to an earlier one does not happen.
    pub(super) incarnation: u64,
    pub(super) paused_until_ms: u64,
    pub(super) session: Option<SessionId>,
    /// Past it, the node starts nothing and answers nothing.
    pub(super) deadline_ms: u64,
    /// The outcome of a commit is being found out.
    pub(super) is_settling: bool,
    /// Shards were lost while commits for them may still be gathered.
    pub(super) holds_claims: bool,
    /// Counts what the Committer was cleared; answers to earlier batches are late.
    pub(super) lane: u64,
    pub(super) committer: Committer,
    /// The shards it believes to own, and since which tenure.
    pub(super) owned: BTreeMap<ShardId, u64>,
    pub(super) shards: BTreeMap<ShardId, Shard>,
    /// When each shard was promised the time.
    pub(super) wakes: BTreeMap<ShardId, u64>,
    /// What may not leave past the deadline.
    pub(super) withheld: Vec<(ShardId, Output)>,
    /// Calls of one session take effect in the order they are made.
    pub(super) last_effect_ms: u64,
    pub(super) inbox_running: bool,
    pub(super) inbox_again: bool,
    /// It stops in good order.
    pub(super) is_stopping: bool,
    pub(super) runs: Runs,
}

impl Node {
    pub(super) fn new(max_batch: usize) -> Node {
        Node {
            is_up: false,
            incarnation: 0,
            paused_until_ms: 0,
            session: None,
            deadline_ms: 0,
            is_settling: false,
            holds_claims: false,
            lane: 0,
            committer: Committer::new(max_batch),
            owned: BTreeMap::new(),
            shards: BTreeMap::new(),
            wakes: BTreeMap::new(),
            withheld: Vec::new(),
            last_effect_ms: 0,
            inbox_running: false,
            inbox_again: false,
            is_stopping: false,
            runs: Runs::default(),
        }
    }
}

impl Simulation {
    /// Draws the moments of trouble.
    pub(super) fn plan_trouble(&mut self) {
        let (crashes, pauses, releases) =
            (self.plan.faults.crashes, self.plan.faults.pauses, self.plan.faults.releases);
        for _ in 0..crashes {
            let (node, at_ms) = self.somewhere_sometime();
            self.later(at_ms, format!("n{node} crashes"), move |this| this.crash(node));
        }
        for _ in 0..pauses {
            let (node, at_ms) = self.somewhere_sometime();
            let pause_ms = self.chance.between(10, 2 * self.plan.lease_ms);
            self.later(at_ms, format!("n{node} stands still for {pause_ms}"), move |this| {
                this.count("pause");
                this.nodes[node].paused_until_ms = this.now_ms() + pause_ms;
            });
        }
        for _ in 0..releases {
            let (node, at_ms) = self.somewhere_sometime();
            self.later(at_ms, format!("n{node} lets go"), move |this| this.release(node));
        }
        for _ in 0..self.plan.faults.stops {
            let (node, at_ms) = self.somewhere_sometime();
            self.later(at_ms, format!("n{node} is told to stop"), move |this| {
                if !this.is_healed {
                    this.stop(node, |_| ());
                }
            });
        }
        self.plan_deployments();
        self.prune_later();
    }

    fn somewhere_sometime(&mut self) -> (usize, u64) {
        (self.chance.below(self.nodes.len()), self.chance.between(0, self.plan.trouble_ms))
    }

    pub(super) fn boot(&mut self, node: usize) {
        self.nodes[node].is_up = true;
        self.open(node);
        self.tick_later(node);
        self.renew_later(node);
    }

    /// The process dies; its session stays.
    pub(super) fn crash(&mut self, node: usize) {
        if !self.nodes[node].is_up || self.is_healed {
            return;
        }
        self.count("crash");
        if self.nodes[node].committer.in_flight().is_some() {
            self.count("crash with a batch in flight");
        }
        self.count_accepted_updates();
        self.fall(node);
    }

    /// The process is gone, and starts again after a while.
    pub(super) fn fall(&mut self, node: usize) {
        self.forget(node);
        let pause_ms = self.chance.between(0, 2 * self.plan.lease_ms);
        self.later(pause_ms, format!("n{node} restarts"), move |this| {
            if !this.nodes[node].is_up {
                this.boot(node);
            }
        });
    }

    /// Takes over what a shard has counted before it goes.
    pub(super) fn count_shard(&mut self, shard: &Shard) {
        let Counters { stale, conflicts, evictions, hydrations, .. } = shard.counters();
        for (what, count) in [
            ("stale input", stale),
            ("conflict", conflicts),
            ("eviction", evictions),
            ("hydration", hydrations),
        ] {
            *self.tally.0.entry(what).or_default() += count;
        }
    }

    /// All memory of a node is gone.
    pub(super) fn forget(&mut self, node: usize) {
        for shard in std::mem::take(&mut self.nodes[node].shards).values() {
            self.count_shard(shard);
        }
        let incarnation = self.nodes[node].incarnation + 1;
        let lane = self.nodes[node].lane + 1;
        self.nodes[node] = Node { incarnation, lane, ..Node::new(self.plan.max_batch) };
    }

    /// A node looks around now and then.
    pub(super) fn tick_later(&mut self, node: usize) {
        let pause_ms = self.chance.between(200, 900);
        self.later_on(node, pause_ms, format!("n{node} looks around"), move |this| {
            this.tick_later(node);
            if this.nodes[node].is_stopping {
                return;
            }
            this.claim_more(node);
            this.read_due(node);
            this.read_inbox(node);
            this.read_asks(node);
            this.take_tasks(node);
            if this.chance.percent(20) {
                this.sweep_asks(node);
            }
            let shards: Vec<ShardId> = this.nodes[node].shards.keys().copied().collect();
            for shard in shards {
                this.with_shard(node, shard, Shard::handle_time);
            }
        });
    }

    /// Gives a shard of a node an input and does what it wants done about it.
    pub(super) fn with_shard(&mut self, node: usize, id: ShardId, input: impl FnOnce(&mut Shard, u64)) {
        let now_ms = self.time_of_nodes();
        let it = &mut self.nodes[node];
        if !it.owned.contains_key(&id) {
            return;
        }
        let served = Arc::new(self.plan.served[node].clone());
        let options = ShardOptions { served: Some(served), ..self.plan.shard.clone() };
        let nonce = (node as u128) << 100 | u128::from(it.incarnation) << 64 | u128::from(it.owned[&id]);
        let is_stopping = it.is_stopping;
        let shard = it.shards.entry(id).or_insert_with(|| {
            let mut shard = Shard::new(id, options, nonce);
            if is_stopping {
                shard.handle_stopping();
            }
            shard
        });
        input(shard, now_ms);
        let (outputs, wake_ms) = (shard.take_outputs(), shard.next_wake_ms());
        if let Some(wake_ms) = wake_ms
            && it.wakes.get(&id).is_none_or(|promised_ms| *promised_ms > wake_ms)
        {
            it.wakes.insert(id, wake_ms);
            let late_ms = self.chance.weighted(&[(6, 0), (1, 3), (1, 40)]);
            let delay_ms = wake_ms.saturating_sub(now_ms) + late_ms;
            self.later_on(node, delay_ms, format!("n{node} brings the time to s{}", id.0), move |this| {
                this.nodes[node].wakes.remove(&id);
                this.with_shard(node, id, Shard::handle_time);
            });
        }
        self.carry_out(node, id, outputs);
    }

    fn time_of_nodes(&self) -> u64 {
        let ahead_ms = if self.flaw == Some(super::Flaw::EarlyTimers) { 700 } else { 0 };
        self.now_ms() + ahead_ms
    }

    /// Whether a node still has a shard since that tenure.
    pub(super) fn still_has(&self, node: usize, shard: ShardId, tenure: u64) -> bool {
        self.nodes[node].owned.get(&shard) == Some(&tenure)
    }
}
