//! Deployments: nodes that stop in good order and come back with other code, one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use perennial_core::shard::{HandlerSource, Shard};
use perennial_core::{Handlers, OrchestrationHandler, ShardId};

use super::Simulation;
use super::taken::task_id;
use crate::program::{PROGRAM, PROGRAM_VERSION};

/// The version that a deployment adds.
pub(super) const NEXT_VERSION: &str = "2.0.0";
/// How long a node tries to stop in good order.
const STOP_MS: u64 = 6_000;

/// The versions of programs that a node has.
pub(super) type Code = BTreeSet<&'static str>;

/// What a node runs turns with.
pub(super) struct Deployed {
    pub(super) handlers: Handlers,
    pub(super) code: Code,
    /// The latest version that all live nodes have.
    pub(super) latest: Option<&'static str>,
}

impl HandlerSource for Deployed {
    fn handler(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>> {
        if name == PROGRAM && !self.code.contains(version) {
            return None;
        }
        self.handlers.get(name, version)
    }

    fn latest(&self, name: &str) -> Option<String> {
        match name {
            PROGRAM => self.latest.map(str::to_owned),
            _ => self.handlers.latest_version(name),
        }
    }
}

impl Simulation {
    pub(super) fn deployed(&self, node: usize) -> Deployed {
        let live = (0..self.nodes.len()).filter(|other| self.nodes[*other].is_up);
        let common = live.map(|other| self.code[other].clone()).reduce(|all, code| &all & &code);
        Deployed {
            handlers: self.handlers.clone(),
            code: self.code[node].clone(),
            latest: common.unwrap_or_default().last().copied(),
        }
    }

    /// Draws the deployments: one that adds a version, and one that removes the old one and brings it back.
    pub(super) fn plan_deployments(&mut self) {
        if self.plan.adds_version {
            let at_ms = self.chance.between(0, self.plan.trouble_ms / 2);
            self.roll_out(at_ms, "adds a version", |code| {
                code.insert(NEXT_VERSION);
            });
        }
        if self.plan.removes_version {
            let at_ms = self.chance.between(0, self.plan.trouble_ms / 2);
            self.roll_out(at_ms, "removes a version", |code| {
                code.remove(PROGRAM_VERSION);
            });
            let back_ms = at_ms + self.chance.between(1_000, self.plan.trouble_ms / 2);
            self.roll_out(back_ms, "restores a version", |code| {
                code.insert(PROGRAM_VERSION);
            });
        }
    }

    fn roll_out(&mut self, at_ms: u64, what: &'static str, change: fn(&mut Code)) {
        let gap_ms = self.chance.between(100, 2_000);
        for node in 0..self.nodes.len() {
            let at_ms = at_ms + gap_ms * node as u64;
            self.later(at_ms, format!("n{node} is deployed and {what}"), move |this| {
                if !this.is_healed {
                    this.count(what);
                    this.stop(node, move |this| {
                        // Healing brings all code, whatever was about to be deployed.
                        if !this.is_healed {
                            change(&mut this.code[node]);
                        }
                    });
                }
            });
        }
    }

    /// A node stops in good order, is changed, and starts again.
    pub(super) fn stop(&mut self, node: usize, change: impl FnOnce(&mut Simulation) + 'static) {
        let it = &mut self.nodes[node];
        if !it.is_up || it.is_stopping || it.session.is_none() {
            // It is down, or on its way: the change comes with its next start.
            return change(self);
        }
        self.count("stop");
        self.begin_stopping(node);
        let until_ms = self.now_ms() + STOP_MS;
        self.stop_later(node, until_ms, Box::new(change));
    }

    fn stop_later(&mut self, node: usize, until_ms: u64, change: Box<dyn FnOnce(&mut Simulation)>) {
        let incarnation = self.nodes[node].incarnation;
        self.later(50, format!("n{node} is stopping"), move |this| {
            if this.nodes[node].incarnation != incarnation {
                this.count("crash while stopping");
                return change(this);
            }
            if this.nodes[node].paused_until_ms > this.now_ms() {
                return this.stop_later(node, until_ms, change);
            }
            let it = &this.nodes[node];
            let is_quiet = it.committer.is_idle() && it.shards.values().all(Shard::is_quiet);
            if !is_quiet && this.now_ms() < until_ms {
                return this.stop_later(node, until_ms, change);
            }
            this.count(if is_quiet { "stopped in good order" } else { "stop given up" });
            change(this);
            if is_quiet && let Some(session) = this.nodes[node].session {
                this.give_up(node);
                // The process waits for this one before it exits.
                this.ended(session).expect("the store is open");
            }
            this.fall(node);
        });
    }

    /// Begins nothing more; what runs is given back.
    fn begin_stopping(&mut self, node: usize) {
        self.nodes[node].is_stopping = true;
        let shards: Vec<ShardId> = self.nodes[node].shards.keys().copied().collect();
        for shard in shards {
            self.with_shard(node, shard, |shard, _| shard.handle_stopping());
        }
        let running: Vec<u64> = self.nodes[node].runs.all.keys().copied().collect();
        for number in running {
            let Some(run) = self.end_run(node, number) else { continue };
            self.count("attempt given back");
            match run.holder {
                Some(holder) => self.give_back(node, holder, task_id(&run.task)),
                None => self.with_shard(node, run.shard, |shard, now_ms| {
                    shard.handle_activity_released(now_ms, &run.task);
                }),
            }
        }
    }
}
