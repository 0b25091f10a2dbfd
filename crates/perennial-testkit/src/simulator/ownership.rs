//! Checks of ownership at every step: acting for a shard, releasing and dropping shards, and holding tasks.

use std::collections::BTreeSet;

use perennial_core::ShardId;
use perennial_core::lane::{CallId, StoreCall, StoreResponse, StoreResult};
use perennial_core::shard::{RequestId, Response};
use perennial_core::store::{SessionId, ShardSet, StoreError, TaskId, TaskState};

use super::Simulation;
use super::plan::Faults;
use super::process::SentBatch;
use super::store_calls::From;

/// The owner and the epoch of each shard.
pub(super) struct Owners(Vec<(Option<SessionId>, u64)>);

impl Owners {
    pub(super) fn of(&self, shard: ShardId) -> (Option<SessionId>, u64) {
        self.0[usize::from(shard.0)]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ShardId, (Option<SessionId>, u64))> + '_ {
        ShardId::all().map(|shard| (shard, self.of(shard)))
    }
}

/// The known state of ownership.
#[derive(Default)]
pub(super) struct Standing {
    /// Processes with an unknown result of their last take of tasks, and those that are asking for it.
    takes_in_doubt: BTreeSet<usize>,
    takes: BTreeSet<(usize, CallId)>,
    lists: BTreeSet<(usize, CallId)>,
    /// Lanes that were past their deadline at the last check.
    suspended: BTreeSet<(usize, usize)>,
    /// The answered requests.
    replies: BTreeSet<RequestId>,
}

impl super::witness::Witness {
    pub(super) fn forget_process(&mut self, process: usize) {
        self.standing.takes_in_doubt.remove(&process);
        self.standing.takes.retain(|(of, _)| *of != process);
        self.standing.lists.retain(|(of, _)| *of != process);
        self.standing.suspended.retain(|(of, _)| *of != process);
    }
}

impl Simulation {
    pub(super) fn owners(&self) -> Owners {
        let mut owners = vec![(None, 0); ShardId::all().count()];
        for (shard, it) in &self.store.tables().ownership.shards {
            owners[usize::from(shard.0)] = (it.owner, it.epoch);
        }
        Owners(owners)
    }

    /// Describes the shards that no lane serves although their instances need it, with their owners.
    pub(super) fn unserved(&self) -> String {
        let served: Vec<(SessionId, ShardSet)> = self
            .processes
            .iter()
            .flat_map(|process| process.engine.iter().flat_map(|engine| &engine.lanes))
            .map(|lane| (lane.session(), lane.shards().iter().filter(|shard| lane.takes(*shard)).collect()))
            .collect();
        let wanted: BTreeSet<ShardId> = {
            let tables = self.store.tables();
            tables.instances.values().map(|row| row.shard).collect()
        };
        let owners = self.owners();
        let owner = |shard: &ShardId| owners.of(*shard).0;
        let is_served = |shard: &ShardId| {
            served.iter().any(|(session, shards)| shards.contains(*shard) && owner(shard) == Some(*session))
        };
        let lost: Vec<String> = wanted
            .iter()
            .filter(|shard| !is_served(shard))
            .map(|shard| {
                let lane = served.iter().position(|(session, _)| owner(shard) == Some(*session));
                format!("{} owned by {:?}, lane {lane:?}", shard.0, owner(shard))
            })
            .collect();
        format!("unserved shards: {lost:?}")
    }

    /// N10: a new owner of a shard has a later epoch.
    pub(super) fn witness_owners(&mut self, call: &StoreCall, answer: &StoreResult, before: &Owners) {
        let (mut taken_over, mut claimed) = (0, 0);
        for (shard, (owner, epoch)) in self.owners().iter() {
            let (old_owner, old_epoch) = before.of(shard);
            if owner.is_some() && owner != old_owner && epoch <= old_epoch || epoch < old_epoch {
                return self.fail(format!("N10: shard {} changed its owner at epoch {epoch}", shard.0));
            }
            if owner != old_owner && owner.is_some() {
                claimed += 1;
                taken_over += usize::from(old_epoch > 0);
            }
        }
        let sessions_gone = matches!(answer, Err(StoreError::SessionGone));
        match call {
            StoreCall::ClaimShards { .. } if taken_over > 0 => self.count("takeover"),
            StoreCall::ReleaseShards { .. } => self.count("drained shards released"),
            StoreCall::ReplaceSession { .. } if claimed > 0 => self.count("session replaced with its shards"),
            StoreCall::ReplaceSession { .. } => self.count("session replaced without its shards"),
            _ if sessions_gone => self.count("call under a session that is gone"),
            _ => {}
        }
    }

    /// Checks a call that a process is about to make.
    pub(super) fn witness_call(&mut self, process: usize, from: From, id: CallId, call: &StoreCall) {
        if let From::Lane(lane) = from {
            self.note_called_tenures(process, lane, id, call);
        }
        match (from, call) {
            (From::Lane(lane), StoreCall::Commit { session, batch }) => {
                self.meet_edges(batch);
                let places = batch.iter().map(|commit| (commit.shard, commit.epoch)).collect();
                self.processes[process].batches.insert((lane, id), (*session, places));
            }
            (From::Lane(lane), StoreCall::ReleaseShards { session, shards }) => {
                self.witness_release(process, lane, *session, shards);
            }
            (From::Node, StoreCall::TakeTasks { .. }) => {
                let standing = &mut self.witness.standing;
                standing.takes.insert((process, id));
                if standing.takes_in_doubt.contains(&process) {
                    let what =
                        format!("N17: p{process} takes tasks, and has not listed those it took before");
                    self.fail(what);
                }
            }
            (From::Node, StoreCall::HeldTasks { .. }) => {
                self.witness.standing.lists.insert((process, id));
            }
            _ => {}
        }
    }

    /// Checks the answer to a call before a process gets it.
    pub(super) fn witness_answer(&mut self, process: usize, from: From, id: CallId, answer: &StoreResult) {
        if let From::Lane(lane) = from {
            self.processes[process].batches.remove(&(lane, id));
            return;
        }
        let standing = &mut self.witness.standing;
        let was_take = standing.takes.remove(&(process, id));
        if was_take && matches!(answer, Err(StoreError::Unknown(_))) {
            standing.takes_in_doubt.insert(process);
        }
        if standing.lists.remove(&(process, id))
            && matches!(answer, Ok(StoreResponse::Tasks(_)))
            && standing.takes_in_doubt.remove(&process)
        {
            self.count("tasks listed after a lost reply");
        }
    }

    /// N8: released shards are drained. Calls under an earlier session or epoch have no effect.
    fn witness_release(&mut self, process: usize, lane: usize, session: SessionId, shards: &ShardSet) {
        let (it, owners) = (&self.processes[process], self.owners());
        let Some(engine) = &it.engine else { return };
        for shard in shards.iter() {
            let (_, epoch) = owners.of(shard);
            // Calls of an earlier tenure have no effect.
            let Some((tenure, _)) = engine.lanes.get(lane).and_then(|lane| lane.tenure_of(shard)) else {
                continue;
            };
            let turns = it.turns.get(&(lane, shard, tenure)).copied().unwrap_or_default();
            let is_sent = |((of, _), (under, batch)): &(&(usize, CallId), &SentBatch)| {
                *of == lane && *under == session && batch.contains(&(shard, epoch))
            };
            let commits = it.batches.iter().filter(is_sent);
            let is_own = |run: &super::activities::Run| {
                run.lane == Some(lane)
                    && (ShardId::of(&run.task.instance), run.task.tenure) == (shard, tenure)
                    && !run.is_cancel_requested
                    && !engine.node.holds(&run.task)
            };
            let runs = it.runs.all.iter().filter(|(_, run)| is_own(run));
            let (commits, attempts): (_, Vec<u64>) =
                (commits.count(), runs.map(|(number, _)| *number).collect());
            if turns + commits + attempts.len() > 0 {
                let what = format!(
                    "N8: p{process} releases shard {} with {turns} turns, {commits} commits, attempts {attempts:?}",
                    shard.0
                );
                return self.fail(what);
            }
        }
    }

    /// N9: a lane drops a shard only if the store says that its session no longer owns it.
    pub(super) fn witness_lane(&mut self, process: usize, lane: usize, before: (SessionId, ShardSet)) {
        let now = self.moment(process);
        let Some(it) = self.lane(process, lane) else { return };
        let (session, shards, is_past) = (it.session(), it.shards(), now >= it.deadline());
        let (old_session, old_shards) = before;
        if shards != old_shards {
            let owners = self.owners();
            let is_own = |owner: SessionId| owner == session || owner == old_session;
            let forgotten = old_shards
                .iter()
                .find(|shard| !shards.contains(*shard) && owners.of(*shard).0.is_some_and(is_own));
            if let Some(shard) = forgotten.filter(|_| self.plan.faults.seizures == 0) {
                return self.fail(format!("N9: p{process} drops shard {}, which it owns", shard.0));
            }
            if old_shards.iter().any(|shard| !shards.contains(shard)) {
                self.count("shards forgotten");
            }
        }
        let suspended = &mut self.witness.standing.suspended;
        if !is_past {
            if suspended.remove(&(process, lane)) {
                self.count("renewed after a gap");
            }
        } else if !shards.is_empty() && suspended.insert((process, lane)) {
            self.count("suspended past a deadline");
        }
    }

    /// Whether lanes may wrongly believe that they own shards: the store's clock jumps past their leases, or
    /// their shards are taken away.
    fn owners_may_err(&self) -> bool {
        let Faults { clock_leaps, seizures, .. } = self.plan.faults;
        clock_leaps + seizures > 0 || self.plan.classes.hours_back.is_some()
    }

    /// N9: a lane acts only while its session is alive.
    pub(super) fn witness_standing(&mut self, process: usize, lane: usize, what: &str) {
        let Some(session) = self.lane(process, lane).map(|lane| lane.session()) else { return };
        if self.owners_may_err() {
            return;
        }
        let expires_ms = self.store.tables().ownership.sessions.get(&session).map(|it| it.expires_ms);
        if expires_ms.is_none_or(|expires_ms| expires_ms < self.store_ms()) {
            self.fail(format!("N9: p{process} {what} after its session has expired"));
        }
    }

    /// N9: a lane acts for a shard only while its session is alive and owns the shard.
    pub(super) fn witness_owner(&mut self, process: usize, lane: usize, shard: ShardId, what: &str) {
        self.witness_standing(process, lane, what);
        let Some(session) = self.lane(process, lane).map(|lane| lane.session()) else { return };
        let owner = self.store.tables().ownership.owner(shard);
        if !self.owners_may_err() && owner != Some(session) {
            self.fail(format!("G8: p{process} {what} for shard {}, which it does not own", shard.0));
        }
    }

    /// N9: under an expired session, the only answer is that the shard has moved. Outputs from before that
    /// the lane got back were correct at the time.
    pub(super) fn witness_reply(
        &mut self,
        process: usize,
        lane: usize,
        shard: ShardId,
        request: RequestId,
        answer: &Response,
    ) {
        if self.witness.standing.replies.insert(request) && !matches!(answer, Response::Moved { .. }) {
            self.witness_owner(process, lane, shard, "answers");
        }
    }

    /// N17: a task is cancelled only if it is not wanted, or another session holds it.
    pub(super) fn witness_task_cancelled(&mut self, process: usize, id: TaskId) {
        let Some(node) = self.node(process).map(|node| node.id()) else { return };
        let state = self.store.tables().tasks.get(&id).map(|row| row.state);
        // It may have been lost, and is just being taken again.
        let is_taking = self.witness.standing.takes.iter().any(|(of, _)| *of == process);
        if is_taking {
            return;
        }
        if matches!(state, Some(TaskState::Leased { holder, cancelled: false }) if holder == node) {
            self.fail(format!("N17: p{process} stops task {}, which it holds and which is wanted", id.event));
        }
    }
}
