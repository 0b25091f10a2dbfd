//! Shards that change owners without the owner's knowledge, and the rules of tenures (N10): inputs of one
//! tenure are refused in another, and a tenure continues at exactly the next epoch.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::ShardId;
use perennial_core::lane::{CallId, Lane, Moment, StoreCall, StoreResponse, StoreResult};
use perennial_core::shard::Tenure;
use perennial_core::store::{CommitOutcome, OwnedShard, SessionId, ShardSet, Store};

use super::Simulation;
use super::store_calls::wait_for;

/// The tenures in which the calls of a process were made, by lane.
pub(super) type CalledTenures = BTreeMap<(usize, CallId), Vec<(ShardId, Option<Tenure>)>>;

impl Simulation {
    /// Takes shards away from one of the owners.
    pub(super) fn seize(&mut self) {
        let owners: BTreeSet<SessionId> = self.owners().iter().filter_map(|(_, (owner, _))| owner).collect();
        let owners: Vec<SessionId> = owners.into_iter().collect();
        if owners.is_empty() || self.is_healed {
            return;
        }
        let session = *self.rng.pick(&owners);
        self.seize_from(session);
    }

    /// Takes shards away now and then during a commit with an unknown outcome.
    pub(super) fn seize_in_doubt(&mut self, session: SessionId) {
        if self.plan.faults.seizures > 0 && !self.is_healed && self.rng.percent(50) {
            self.count("shards taken away with a commit in doubt");
            self.seize_from(session);
        }
    }

    /// Takes shards away from a session. It may get them back at once, as by a claim whose answer is lost.
    fn seize_from(&mut self, session: SessionId) {
        self.count("shards taken away");
        let share = self.rng.between(1, 100);
        let shards: ShardSet = ShardId::all().filter(|_| self.rng.percent(share)).collect();
        let had = self.owned_by(session);
        wait_for(|reply| self.store.release_shards(session, shards, reply)).expect("the store is open");
        if self.rng.percent(50) && wait_for(|reply| self.store.claim_shards(session, had, reply)).is_ok() {
            self.count("shards taken away and given back");
        }
    }

    fn owned_by(&self, session: SessionId) -> usize {
        self.owners().iter().filter(|(_, (owner, _))| *owner == Some(session)).count()
    }

    fn tenure_of(&self, process: usize, lane: usize, shard: ShardId) -> Option<Tenure> {
        self.lane(process, lane)?.tenure_of(shard).map(|(tenure, _)| tenure)
    }

    /// The number of inputs that a lane has recognized as stale.
    pub(super) fn stale(&self, process: usize, lane: usize) -> u64 {
        self.lane(process, lane).map_or(0, |lane| lane.counters().stale)
    }

    /// Records the current tenures of a lane's shards for a call.
    pub(super) fn note_called_tenures(&mut self, process: usize, lane: usize, id: CallId, call: &StoreCall) {
        let shards: Vec<ShardId> = match call {
            StoreCall::Load { shard, .. } | StoreCall::ReadTurns { shard, .. } => vec![*shard],
            StoreCall::Find { id } => vec![ShardId::of(id)],
            StoreCall::Commit { batch, .. } => batch.iter().map(|commit| commit.shard).collect(),
            _ => return,
        };
        let tenures = shards.into_iter().map(|shard| (shard, self.tenure_of(process, lane, shard))).collect();
        self.processes[process].called_tenures.insert((lane, id), tenures);
    }

    /// Passes an answer of the store to a lane.
    pub(super) fn bring_lane_answer(&mut self, process: usize, lane: usize, id: CallId, answer: StoreResult) {
        let called_tenures = self.processes[process].called_tenures.remove(&(lane, id)).unwrap_or_default();
        let foreign = called_tenures.iter().zip(0..).find_map(|((shard, tenure), place)| {
            let is_foreign = *tenure != self.tenure_of(process, lane, *shard) && brings(&answer, place);
            is_foreign.then_some(*shard)
        });
        let owned = match &answer {
            Ok(StoreResponse::Shards(shards)) => Some((0, shards.clone())),
            Ok(StoreResponse::Replaced(replaced)) => Some((1, replaced.shards.clone())),
            _ => None,
        };
        let before = owned.map(|(steps, shards)| (steps, self.held(process, lane, &shards)));
        let stale_before = before.as_ref().map_or(0, |_| self.stale(process, lane));
        self.lane_input_of(
            process,
            lane,
            foreign.map(|shard| (shard, "the answer to a call")),
            |lane, now| {
                lane.handle_response(now, id, answer);
            },
        );
        for (shard, tenure, epoch, stored) in before.iter().flat_map(|(steps, held)| {
            held.iter().map(move |(owned, tenure, epoch)| (owned.shard, *tenure, epoch + steps, owned.epoch))
        }) {
            let is_taken = || self.stale(process, lane) == stale_before;
            if stored > epoch && is_taken() && self.tenure_of(process, lane, shard) == Some(tenure) {
                let what = format!(
                    "N10: p{process} continues with shard {} at epoch {stored}, not {epoch}",
                    shard.0
                );
                return self.fail(what);
            }
        }
    }

    /// The tenures and epochs of those of these shards that a lane owns.
    fn held(&self, process: usize, lane: usize, shards: &[OwnedShard]) -> Vec<(OwnedShard, Tenure, u64)> {
        let Some(lane) = self.lane(process, lane) else { return Vec::new() };
        let held = |owned: &OwnedShard| {
            lane.tenure_of(owned.shard).map(|(tenure, epoch)| (owned.clone(), tenure, epoch))
        };
        shards.iter().filter_map(held).collect()
    }

    /// Passes an input of a tenure to a lane.
    pub(super) fn tenure_input(
        &mut self,
        process: usize,
        lane: usize,
        (shard, tenure): (ShardId, Tenure),
        what: &'static str,
        input: impl FnOnce(&mut Lane, Moment),
    ) {
        let is_foreign = self.tenure_of(process, lane, shard) != Some(tenure);
        self.lane_input_of(process, lane, is_foreign.then_some((shard, what)), input);
    }

    /// N10: an input of another tenure than the current one is recognized as stale.
    fn lane_input_of(
        &mut self,
        process: usize,
        lane: usize,
        foreign: Option<(ShardId, &'static str)>,
        input: impl FnOnce(&mut Lane, Moment),
    ) {
        let before = foreign.map_or(0, |_| self.stale(process, lane));
        self.lane_input(process, lane, input);
        let Some((shard, what)) = foreign.filter(|_| self.lane(process, lane).is_some()) else { return };
        if self.tenure_of(process, lane, shard).is_some() {
            self.count("input of an earlier tenure");
        }
        if self.stale(process, lane) == before {
            let what = format!("N10: p{process} accepts {what} of another tenure of shard {}", shard.0);
            self.fail(what);
        }
    }
}

/// Whether an answer contains rows for a shard.
fn brings(answer: &StoreResult, place: usize) -> bool {
    match answer {
        Ok(StoreResponse::Committed(outcomes)) => {
            matches!(outcomes.get(place), Some(CommitOutcome::Durable { .. } | CommitOutcome::Conflict(_)))
        }
        Ok(_) => true,
        Err(_) => false,
    }
}
