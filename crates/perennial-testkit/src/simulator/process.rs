//! A simulated process: its memory and its life cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perennial_core::ShardId;
use perennial_core::lane::{CallId, Lane, LaneOptions};
use perennial_core::node::{Node, NodeOptions};
use perennial_core::shard::{Counters, ShardOptions, Tenure};
use perennial_core::store::{NodeInfo, SessionId, SessionRole, TaskId};

use super::Simulation;
use super::activities::Runs;
use super::clocks::SteadyClock;
use super::stopping::Stage;
use super::tenures::CalledTenures;

/// The session of a batch, and its shards and epochs.
pub(super) type SentBatch = (SessionId, Vec<(ShardId, u64)>);

#[derive(Default)]
pub(super) struct Process {
    /// The number of its life; entries of an earlier life are dropped.
    pub(super) incarnation: u64,
    pub(super) paused_until_ms: u64,
    pub(super) clock: SteadyClock,
    /// `None` while it is down.
    pub(super) engine: Option<Engine>,
    pub(super) runs: Runs,
    /// The number of turns in progress, by lane, shard and tenure.
    pub(super) turns: BTreeMap<(usize, ShardId, Tenure), usize>,
    /// The unanswered batches of each lane, with their session, shards and epochs.
    pub(super) batches: BTreeMap<(usize, CallId), SentBatch>,
    /// The tenures in which unanswered calls were made.
    pub(super) called_tenures: CalledTenures,
    /// The time of its next time input.
    pub(super) wakes_ms: Option<u64>,
    /// The attempts of tasks whose results its node has received.
    pub(super) task_results: BTreeSet<(TaskId, u32)>,
    /// The progress of its shutdown.
    pub(super) stage: Option<Stage>,
}

/// The node and the lanes of a process.
pub(super) struct Engine {
    pub(super) node: Node,
    pub(super) lanes: Vec<Lane>,
}

impl Simulation {
    /// Draws the times of the faults.
    pub(super) fn plan_faults(&mut self) {
        for _ in 0..self.plan.faults.crashes {
            let (anywhere, at_ms) = self.somewhere_sometime();
            // A storm of kills usually hits one process.
            let process = if self.plan.lasting.is_some() && self.rng.percent(70) { 0 } else { anywhere };
            self.fault_later(at_ms, format!("p{process} crashes"), move |this| this.crash(process));
        }
        for _ in 0..self.plan.faults.pauses {
            let (process, at_ms) = self.somewhere_sometime();
            let pause_ms = self.rng.between(10, 3 * self.plan.lease_ms);
            self.fault_later(at_ms, format!("p{process} stands still for {pause_ms}"), move |this| {
                this.count("pause");
                this.processes[process].paused_until_ms = this.now_ms + pause_ms;
            });
        }
        for _ in 0..self.plan.faults.stops {
            let (process, at_ms) = self.somewhere_sometime();
            if self.rng.percent(25) {
                self.fault_later(at_ms, format!("p{process} is dropped"), move |this| this.abandon(process));
                continue;
            }
            self.fault_later(at_ms, format!("p{process} is stopped"), move |this| {
                if !this.is_healed {
                    this.stop(process, |_| ());
                }
            });
        }
        for _ in 0..self.plan.faults.seizures {
            let (_, at_ms) = self.somewhere_sometime();
            self.fault_later(at_ms, "shards are taken away", Simulation::seize);
        }
        self.plan_clock();
        self.plan_outages();
        self.plan_damage();
        self.plan_mistypes();
        self.plan_repairs();
        self.plan_deployments();
        self.prune_later();
    }

    /// Schedules a fault, unless it is left out.
    pub(super) fn fault_later(
        &mut self,
        at_ms: u64,
        label: impl Into<String>,
        run: impl FnOnce(&mut Simulation) + 'static,
    ) {
        if !self.left_out.takes_fault() {
            self.later(at_ms, label, run);
        }
    }

    fn somewhere_sometime(&mut self) -> (usize, u64) {
        (self.rng.below(self.processes.len()), self.rng.between(0, self.plan.faults_ms))
    }

    pub(super) fn boot(&mut self, process: usize) {
        if self.processes[process].engine.is_some() {
            return;
        }
        let down_ms = self.down_ms();
        if down_ms > 0 {
            return self.later(down_ms, format!("p{process} is up again"), move |this| this.boot(process));
        }
        self.count("boot");
        self.witness.calm_from_ms = self.now_ms;
        let clock = SteadyClock::draw(&mut self.rng, self.plan.drift_ppm[process], self.now_ms);
        self.processes[process].clock = clock;
        let (now, lanes) = (clock.at(self.now_ms), self.plan.roles[process]);
        let served = self.plan.served[process].clone();
        let info = NodeInfo {
            owns_shards: lanes > 0,
            activities: served.names.iter().cloned().collect(),
            tags: served.tags.iter().cloned().collect(),
            slots: self.plan.slots,
            free: Some(self.plan.slots),
            ..NodeInfo::default()
        };
        let node = NodeOptions {
            info: info.clone(),
            served: served.clone(),
            lanes,
            is_visitor: false,
            shares_machine: false,
            task_lease_ms: self.plan.task_lease_ms,
            lease_ms: self.plan.lease_ms,
            quarantine_after: self.plan.shard.quarantine_after,
            max_interruptions: self.plan.shard.max_interruptions,
            healthy: self.plan.shard.healthy,
            max_take: 2,
            spill_after: self.plan.spill_after(),
            poll_pauses: self.plan.poll_pauses,
        };
        let node = Node::new(node, self.rng.draw(), now);
        let lane = LaneOptions {
            shard: ShardOptions {
                served: Some(Arc::new(served)),
                missing_code_wait: self.plan.missing_code_wait(),
                ..self.plan.shard.clone()
            },
            role: SessionRole::Lane,
            node: node.id(),
            info: info.encode(),
            lease_ms: self.plan.lease_ms,
            task_lease_ms: self.plan.task_lease_ms,
            max_batch: self.plan.max_batch,
            page_rows: self.plan.page_rows,
            max_loads: self.plan.max_loads,
            releases_per_renewal: self.plan.releases_per_renewal,
            poll_pauses: self.plan.poll_pauses,
            keep_executions: self.plan.keep_executions,
            keep_executions_ms: None,
            ..LaneOptions::default()
        };
        let lanes = (0..lanes).map(|_| Lane::new(lane.clone(), self.rng.draw(), now)).collect();
        self.processes[process].engine = Some(Engine { node, lanes });
        self.node_input(process, |_, _, _| ());
        for lane in 0..self.plan.roles[process] {
            self.lane_input(process, lane, |_, _| ());
        }
    }

    /// Crashes the process; its sessions remain.
    pub(super) fn crash(&mut self, process: usize) {
        if self.processes[process].engine.is_none() || self.is_healed {
            return;
        }
        self.count("crash");
        if self.runs_lasting(process) {
            self.count("crash under an activity that lasts");
        }
        if !self.processes[process].batches.is_empty() {
            self.count("crash with a batch in flight");
        }
        self.count_accepted_updates();
        self.fall(process);
    }

    fn runs_lasting(&self, process: usize) -> bool {
        self.processes[process].runs.all.values().any(|run| run.has_begun && self.is_lasting(&run.task))
    }

    /// Ends the process, and starts it again after a while.
    pub(super) fn fall(&mut self, process: usize) {
        self.forget(process);
        let pause_ms = self.rng.between(0, 2 * self.plan.lease_ms);
        self.later(pause_ms, format!("p{process} restarts"), move |this| this.boot(process));
    }

    /// Drops all memory of a process.
    pub(super) fn forget(&mut self, process: usize) {
        let lanes = self.processes[process].engine.iter().flat_map(|engine| &engine.lanes);
        let counters: Vec<Counters> = lanes.map(Lane::counters).collect();
        for Counters { stale, conflicts, evictions, hydrations, .. } in counters {
            for (what, count) in [
                ("stale input", stale),
                ("conflict", conflicts),
                ("eviction", evictions),
                ("hydration", hydrations),
            ] {
                *self.tally.0.entry(what).or_default() += count;
            }
        }
        self.witness.calm_from_ms = self.now_ms;
        let incarnation = self.processes[process].incarnation + 1;
        self.processes[process] = Process { incarnation, ..Process::default() };
        self.witness.forget_process(process);
    }

    pub(super) fn is_up(&self, process: usize) -> bool {
        self.processes[process].engine.is_some()
    }

    /// Whether a process is up and not suspended.
    pub(super) fn is_awake(&self, process: usize) -> bool {
        self.is_up(process) && self.processes[process].paused_until_ms <= self.now_ms
    }
}
