//! Ownership: passing inputs to shards, the session's lease, shards that are gained and lost, and replacing sessions.
//! [`LeaseKeeper`](super::lease::LeaseKeeper) and [`Tenures`](super::tenures::Tenures) decide what is kept, lost,
//! gained and released; this module carries out the consequences.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::code::ErrorCode;
use crate::execution::Stream;
use crate::instance::{InstanceKey, ShardId};
use crate::log;
use crate::shard::{ActivityTask, Output, Shard, Tenure};
use crate::store::{
    Gap, Lease, OwnedShard, PausedOrchestrations, Replaced, SessionId, SessionRole, ShardSet,
};

use super::clock::Moment;
use super::machine::{Lane, SWEEP_PAUSE};
use super::output::LaneOutput;
use super::purpose::Purpose;
use super::tenures::Difference;

/// The pause between two claims of a maintenance owner that waits for its shards. Its client does nothing else meanwhile.
const MAINTENANCE_PAUSE: Duration = Duration::from_millis(50);

/// A larger output buffer is not kept.
const KEPT_OUTPUTS: usize = 256;

impl Lane {
    /// Passes an input to a shard, and carries out the outputs.
    pub(super) fn feed(&mut self, now: Moment, id: ShardId, input: impl FnOnce(&mut Shard, u64)) {
        let now_ms = self.clock.now_ms(now);
        let Some(held) = self.tenures.get_mut(id) else { return };
        let tenure = held.tenure();
        if let Some(from) = self.lease.gap_from(now) {
            // Grace periods do not run while the lane cannot act.
            held.shard.handle_gap(Gap { from_ms: self.clock.now_ms(from), until_ms: now_ms });
        }
        held.shard.swap_facts(&mut self.facts);
        input(&mut held.shard, now_ms);
        held.shard.swap_facts(&mut self.facts);
        let mut outputs = mem::take(&mut self.shard_outputs);
        held.shard.swap_outputs(&mut outputs);
        self.tenures.note_wake(id);
        for output in outputs.drain(..) {
            self.carry(now, id, tenure, output);
        }
        if outputs.capacity() <= KEPT_OUTPUTS {
            self.shard_outputs = outputs;
        }
    }

    /// Passes an input of a tenure to its shard, unless the tenure has ended.
    pub(super) fn feed_tenure(
        &mut self,
        now: Moment,
        id: ShardId,
        tenure: Tenure,
        input: impl FnOnce(&mut Shard, u64),
    ) {
        if self.tenures.has(id, tenure) && !self.stage.is_failed() {
            self.feed(now, id, input);
        } else {
            self.counted.stale += 1;
        }
    }

    pub(super) fn feed_activity(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        input: impl FnOnce(&mut Shard, u64),
    ) {
        self.feed_tenure(now, ShardId::of(&task.instance), task.tenure, input);
        self.go_on(now);
    }

    fn carry(&mut self, now: Moment, shard: ShardId, tenure: Tenure, output: Output) {
        let output = match output {
            Output::Find { request, id } => {
                return self.issue(now, Purpose::Find { tenure, shard, request, id });
            }
            Output::Load { key } => return self.loads.add((tenure, shard, key)),
            Output::Refresh { key } => return self.issue(now, Purpose::Refresh { tenure, shard, key }),
            Output::Commit(commit) => return self.committer.add(tenure, commit),
            Output::TakeTurn(task) if task.is_on_probation => return self.probation.admit(task),
            Output::TakeTurn(task) => match self.suspects.admit(task) {
                Some(task) => LaneOutput::TakeTurn(task),
                None => return,
            },
            Output::Continued { key, execution } => return self.prune(now, shard, tenure, key, execution),
            Output::RunActivity(task) => LaneOutput::RunActivity(task),
            Output::HandOver(task) => LaneOutput::HandOver(task),
            Output::WantQuarantineSlot { interruptions, task } => {
                let wanted = LaneOutput::WantQuarantineSlot { shard, tenure, interruptions, task };
                return self.outbox.push_quarantine_wish(wanted);
            }
            Output::CancelActivity { key, execution, event, .. } => {
                LaneOutput::CancelActivity { key, execution, event }
            }
            Output::Reply { request, answer, key } => LaneOutput::Reply { shard, request, answer, key },
            Output::Drop(execution) => LaneOutput::Drop(execution),
        };
        self.outbox.push(output);
    }

    /// Deletes old executions of a running instance, a bounded number of rows at a time.
    fn prune(&mut self, now: Moment, shard: ShardId, tenure: Tenure, key: InstanceKey, execution: u64) {
        let kept = self.options.keep_executions.map(|keep| keep.max(1));
        if let Some(keep) = kept.filter(|keep| execution > *keep && self.reads_by_itself()) {
            let execution = execution - keep + 1;
            self.calls.at(now + SWEEP_PAUSE, Purpose::Prune { tenure, shard, key, execution });
        }
    }

    /// Handles a new lease: everything that waited for it continues.
    pub(super) fn leased(&mut self, now: Moment, sent: Moment, lease: Lease) {
        self.read_clock(now, lease.now_ms);
        let is_due = self.paused.is_none() || now >= self.reads_paused_from;
        if self.options.role == SessionRole::Lane
            && is_due
            && !self.calls.has(|purpose| matches!(purpose, Purpose::Paused))
        {
            // Once per lease: most stores have no paused orchestration, and every read costs a transaction.
            self.reads_paused_from = now + Duration::from_millis(self.lease.lease_ms());
            self.issue(now, Purpose::Paused);
        }
        let gap_from = self.lease.handle_leased(sent, now);
        if let Some(gap_from) = gap_from.filter(|_| !self.tenures.set().is_empty()) {
            self.note_gap(now, gap_from);
            // Somebody may have ended the session and given its shards away, and a delayed call to open it may have
            // created it again without them.
            self.lease.handle_unsure(now);
            self.issue(now, Purpose::Confirm);
        }
        self.resume(now);
    }

    /// Notes that the lane could not act since then: grace periods have not run meanwhile.
    fn note_gap(&mut self, now: Moment, from: Moment) {
        let gap = Gap { from_ms: self.clock.now_ms(from), until_ms: self.clock.now_ms(now) };
        let held = self.tenures.set();
        self.gaps.add(gap, held);
        for shard in held.iter() {
            self.feed(now, shard, |shard, _| shard.handle_gap(gap));
        }
    }

    /// Continues with everything that waited until the lane may act again.
    pub(super) fn resume(&mut self, now: Moment) {
        for commit in self.calls.take_commits() {
            self.issue(now, commit);
        }
        self.balance(now);
    }

    fn read_clock(&mut self, now: Moment, store_ms: u64) {
        let set_back_ms = self.clock.handle_reading(now, store_ms);
        self.outbox.push(LaneOutput::StoreTime { store_ms, set_back_ms });
    }

    /// Handles the list of shards that the session owns.
    pub(super) fn claimed(&mut self, now: Moment, shards: Vec<OwnedShard>) {
        let Difference { lost, gained } = self.tenures.compare(shards);
        self.lose_some(now, lost);
        self.gain(now, &gained);
        // A claim that found nothing is not repeated immediately.
        if self.tenures.is_over() {
            self.balance(now);
        }
        let is_visitor = self.options.role == SessionRole::Maintenance;
        if is_visitor && self.tenures.is_short() && !self.stage.is_stopping() {
            // Another client owns the store for a moment. Or a node has come, which the next claim learns.
            self.calls.at(now + MAINTENANCE_PAUSE, Purpose::Claim);
        }
    }

    pub(super) fn lose_some(&mut self, now: Moment, lost: ShardSet) {
        if lost.is_empty() {
            return;
        }
        tracing::warn!(target: log::NODE, shards = lost.len(), "shards lost to another node");
        lost.iter().for_each(|shard| self.lose(now, shard));
        self.outbox.push(LaneOutput::Lost(lost));
    }

    fn gain(&mut self, now: Moment, gained: &[OwnedShard]) {
        if gained.is_empty() {
            return;
        }
        if self.reads_by_itself()
            && let Some(unclean_ends) = self.suspects.handle_gained(now, gained)
        {
            tracing::warn!(
                target: log::NODE,
                unclean_ends,
                "previous owners of these shards crashed repeatedly; turns are taken in small batches to find the cause"
            );
        }
        if self.reads_by_itself() {
            let crashed = gained.iter().filter(|owned| owned.unclean_ends > 0).count();
            tracing::info!(target: log::NODE, shards = gained.len(), crashed, "shards taken over");
        }
        for owned in gained {
            let nonce = u128::from(self.stream.draw()) << 64 | u128::from(self.stream.draw());
            let (options, is_stopping) = (self.options.shard.clone(), self.stage.is_stopping());
            let node = self.options.node;
            let paused = self.paused.clone().unwrap_or_default();
            let gaps = owned.gaps.iter().copied().chain(self.gaps.of(owned.shard)).collect();
            self.tenures.gain(owned.shard, owned.epoch, |tenure| {
                let shard = Shard::new(owned.shard, tenure, options, nonce).with_gaps(gaps);
                let mut shard = shard.on_node(node, owned.unclean_ends > 0).with_paused(paused);
                if is_stopping {
                    shard.handle_stopping();
                }
                shard
            });
        }
        let shards: ShardSet = gained.iter().map(|owned| owned.shard).collect();
        self.outbox.push(LaneOutput::Gained(shards));
        if self.reads_by_itself() {
            self.issue(now, Purpose::Owed { shards, after: None });
            self.issue(now, Purpose::Blocked { shards, after: None });
            self.passes.want_all(&shards);
            self.passes.want_ahead(self.clock.now_ms(now));
        }
    }

    /// Handles the list of paused orchestrations. Instances of those that are no longer paused may run again.
    pub(super) fn handle_paused(&mut self, now: Moment, setting: Option<&[u8]>) {
        let known = self.paused.clone().unwrap_or_default();
        let paused = PausedOrchestrations::decode(setting).map_or_else(
            |error| {
                tracing::error!(target: log::STORE, %error, "list of paused orchestrations cannot be read; the last known one is used");
                Arc::clone(&known)
            },
            Arc::new,
        );
        let is_first = self.paused.replace(Arc::clone(&paused)).is_none();
        if paused != known {
            let shards = self.tenures.set();
            for shard in shards.iter() {
                self.feed(now, shard, |shard, _| shard.handle_paused(Arc::clone(&paused)));
            }
            if paused.resumes(&known) && self.reads_by_itself() {
                self.issue(now, Purpose::Blocked { shards, after: None });
            }
        }
        if is_first {
            self.balance(now);
        }
    }

    /// Handles an unknown outcome: the session is replaced, which either waits for the batch or fences it. Then the
    /// batch in flight is submitted again, with the same content; parts that are already stored stay as they are.
    pub(super) fn settle(&mut self, now: Moment, reason: &str) {
        tracing::warn!(target: log::STORE, %reason, "outcome of a store call unknown; settling it under a new session");
        self.committer.handle_unknown();
        let new = draw_session(&mut self.stream);
        self.lease.handle_replacing(new);
        self.issue(now, Purpose::Replace);
    }

    pub(super) fn replaced(&mut self, now: Moment, sent: Moment, replaced: Replaced) {
        let Replaced { lease, shards } = replaced;
        self.read_clock(now, lease.now_ms);
        if let Some(gap_from) = self.lease.handle_replaced(sent, now) {
            self.note_gap(now, gap_from);
        }
        let Difference { lost, gained } = self.tenures.handle_replaced(shards);
        self.lose_some(now, lost);
        // The result of an earlier claim may have come too late.
        if !self.stage.is_stopping() {
            self.gain(now, &gained);
        }
        for (tenure, commit) in self.committer.take_doubtful() {
            self.issue(now, Purpose::ReadBack { tenure, commit: Box::new(commit), refused: None });
        }
        self.issue(now, Purpose::Commit);
        let held = self.tenures.readable();
        self.passes.want_all(&held);
        self.balance(now);
    }

    /// Handles a shard that belongs, or may belong, to another owner: its memory is dropped, and callers are told to
    /// ask elsewhere.
    pub(super) fn lose(&mut self, now: Moment, id: ShardId) {
        for task in self.suspects.handle_lost(id).into_iter().chain(self.probation.handle_lost(id)) {
            self.outbox.drop_turn(task);
        }
        let Some(mut held) = self.tenures.lose(id) else { return };
        held.shard.swap_facts(&mut self.facts);
        held.shard.handle_lost();
        held.shard.swap_facts(&mut self.facts);
        self.counted = self.counted.plus(&held.shard.counters());
        for output in held.shard.take_outputs() {
            match output {
                // Another owner may run it, so it is stopped even if this lane may not act.
                Output::CancelActivity { key, execution, event, .. } => {
                    self.outbox.push_parting(LaneOutput::CancelActivity { key, execution, event });
                }
                output => self.carry(now, id, held.tenure(), output),
            }
        }
        self.outbox.drop_stale(&self.tenures);
    }

    /// Handles the end of the session: all shards are dropped, and the next session is opened.
    pub(super) fn lose_session(&mut self, now: Moment) {
        tracing::warn!(
            target: log::NODE,
            code = ErrorCode::SessionGone.as_str(),
            "session gone: another node may own this node's shards"
        );
        let lost = self.tenures.set();
        self.calls.clear();
        self.committer.clear();
        self.loads.clear();
        self.passes.handle_lost();
        for task in self.suspects.handle_session_lost() {
            self.outbox.drop_turn(task);
        }
        lost.iter().for_each(|shard| self.lose(now, shard));
        if !lost.is_empty() {
            self.outbox.push(LaneOutput::Lost(lost));
        }
        let next = draw_session(&mut self.stream);
        self.lease.handle_gone(next, now);
        self.issue(now, Purpose::Open);
    }

    /// Claims missing shards, and starts to release surplus ones. Called with every renewal and with a new target.
    pub(super) fn balance(&mut self, now: Moment) {
        if self.stage.is_stopping() || self.is_moving() || self.claim_missing(now) {
            return;
        }
        let gone = self.tenures.surplus(self.options.releases_per_renewal);
        if gone.is_empty() || !self.lease.holds(now) || now < self.releases_from {
            return;
        }
        // A few at a time, so that a new node does not cause a stall; less than the time between two renewals.
        self.releases_from = now + Duration::from_millis(self.lease.lease_ms() / 4);
        self.outbox.push(LaneOutput::Lost(gone));
        let (holder, lease_ms) = (self.options.node, self.options.task_lease_ms);
        for shard in gone.iter() {
            self.tenures.leave(shard);
            self.feed(now, shard, |shard, now_ms| shard.handle_releasing(now_ms, holder, lease_ms));
        }
    }

    /// Whether shards are being claimed, confirmed or released.
    pub(super) fn is_moving(&self) -> bool {
        self.calls.has(Purpose::is_moving)
    }

    /// Claims missing shards. Returns whether there are any.
    pub(super) fn claim_missing(&mut self, now: Moment) -> bool {
        // A lane that may claim has a live session.
        let is_missing = self.tenures.is_short()
            && !self.stage.is_stopping()
            && self.paused.is_some()
            && self.lease.may_claim(now);
        if is_missing && !self.is_moving() {
            self.issue(now, Purpose::Claim);
        }
        is_missing
    }

    /// Handles that shards were released. If others were lost meanwhile, because a commit was fenced, it may be that the
    /// session owns them again under another epoch: then nobody else can claim them, so the store is asked.
    pub(super) fn released(&mut self, now: Moment, shards: &ShardSet, has_lost_others: bool) {
        shards.iter().for_each(|shard| self.lose(now, shard));
        if has_lost_others {
            self.issue(now, Purpose::Confirm);
        } else {
            // The next ones are released with the next renewal, so that a new node does not cause a stall.
            self.claim_missing(now);
        }
    }

    /// Releases the shards that have come to rest.
    pub(super) fn release_drained(&mut self, now: Moment) {
        // Withheld outputs of a shard have to be handed out before it is released.
        if self.is_moving() || !self.lease.holds(now) {
            return;
        }
        let drained = self.tenures.drained(|tenure| self.committer.concerns(tenure));
        if !drained.is_empty() {
            self.issue(now, Purpose::Release(drained));
        }
    }
}

pub(super) fn draw_session(stream: &mut Stream) -> SessionId {
    SessionId(u128::from(stream.draw()) << 64 | u128::from(stream.draw()))
}
