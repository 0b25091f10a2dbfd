//! What shards want done: look-ups, loads, turns, activities, answers.

use std::sync::Arc;

use perennial_core::shard::{ActivityTask, Answer, Output, RequestId, TurnTask};
use perennial_core::store::{Store, StoreError};
use perennial_core::{ActivityFailure, InstanceKey, Payload, ShardId};

use super::store_calls::ask;
use super::{Flaw, Simulation};

impl Simulation {
    pub(super) fn carry_out(&mut self, node: usize, shard: ShardId, outputs: Vec<Output>) {
        let past_deadline = self.is_past_deadline(node);
        let mut commits = false;
        for output in outputs {
            match output {
                Output::TakeTurn(task) => self.take_turn(node, shard, task),
                Output::Drop(execution) => drop(execution),
                Output::Commit(commit) => {
                    commits = true;
                    if self.flaw == Some(Flaw::EffectsBeforeCommit) {
                        self.start_early(node, shard, &commit);
                    }
                    self.nodes[node].committer.add(*commit);
                }
                Output::RunActivity(_) | Output::Reply(..) if past_deadline => {
                    self.count("withheld past the deadline");
                    self.nodes[node].withheld.push((shard, output));
                }
                Output::RunActivity(task) => self.run_activity(node, shard, &task),
                Output::CancelActivity { .. } => self.count("activity told to stop"),
                Output::Reply(request, answer) => self.answered(request, answer),
                Output::Find { request, id } => self.find(node, shard, request, id),
                Output::Load { key } => self.load(node, shard, key),
                Output::Refresh { key } => self.refresh(node, shard, key),
            }
        }
        if commits {
            self.submit(node);
        }
    }

    pub(super) fn is_past_deadline(&self, node: usize) -> bool {
        let it = &self.nodes[node];
        it.is_settling || it.session.is_none() || it.deadline_ms < self.now_ms()
    }

    fn find(&mut self, node: usize, shard: ShardId, request: RequestId, id: Arc<str>) {
        let Some(tenure) = self.nodes[node].owned.get(&shard).copied() else { return };
        let effect = move |this: &mut Simulation| ask(|reply| this.store.find(&id, reply));
        self.call(node, "find", effect, move |this, row| {
            if this.still_has(node, shard, tenure) {
                this.with_shard(node, shard, |shard, now_ms| match row {
                    Ok(row) => shard.handle_found(now_ms, request, row),
                    Err(error) => shard.handle_find_failed(request, error.to_string()),
                });
            }
        });
    }

    fn load(&mut self, node: usize, shard: ShardId, key: InstanceKey) {
        let Some(tenure) = self.nodes[node].owned.get(&shard).copied() else { return };
        let effect = move |this: &mut Simulation| ask(|reply| this.store.load(key, 0, reply));
        self.call(node, "load", effect, move |this, loaded| {
            if !this.still_has(node, shard, tenure) {
                return;
            }
            match loaded {
                Err(StoreError::Unavailable(_)) => {
                    this.again(node, "load", move |this| {
                        if this.still_has(node, shard, tenure) {
                            this.load(node, shard, key);
                        }
                    });
                }
                Err(error) => this.with_shard(node, shard, |shard, now_ms| {
                    shard.handle_load_failed(now_ms, key, error.to_string());
                }),
                Ok(loaded) => {
                    this.with_shard(node, shard, |shard, now_ms| shard.handle_loaded(now_ms, key, loaded));
                }
            }
        });
    }

    /// Reads the tasks of an instance again.
    fn refresh(&mut self, node: usize, shard: ShardId, key: InstanceKey) {
        let Some(tenure) = self.nodes[node].owned.get(&shard).copied() else { return };
        let effect = move |this: &mut Simulation| ask(|reply| this.store.load(key, u64::MAX, reply));
        self.call(node, "refresh", effect, move |this, loaded| {
            if this.still_has(node, shard, tenure) {
                let loaded = loaded.ok().flatten();
                this.with_shard(node, shard, |shard, now_ms| shard.handle_refreshed(now_ms, key, loaded));
            }
        });
    }

    fn take_turn(&mut self, node: usize, shard: ShardId, task: Box<TurnTask>) {
        let Some(tenure) = self.nodes[node].owned.get(&shard).copied() else { return };
        let (key, number) = (task.key, task.number);
        let turn_lost = self.faults(|faults| faults.turn_lost);
        let is_lost = self.chance.percent(turn_lost);
        let delay_ms = self.chance.weighted(&[(8, 0), (4, 3), (1, 200)]);
        let label = format!("n{node} takes a turn of {} with {} jobs", task.instance, task.jobs.len());
        self.later_on(node, delay_ms, label, move |this| {
            let done = task.run(&this.handlers, |_| ());
            if is_lost {
                this.count("turn given up");
            }
            if this.still_has(node, shard, tenure) {
                this.with_shard(node, shard, |shard, now_ms| match is_lost {
                    true => shard.handle_turn_lost(now_ms, key, number),
                    false => shard.handle_turn_done(now_ms, done),
                });
            } else {
                this.count("late turn");
            }
        });
    }

    /// Starts an activity, which ends some time, perhaps twice.
    pub(super) fn run_activity(&mut self, node: usize, shard: ShardId, task: &ActivityTask) {
        self.witness_activity(node, shard, task);
        let duplicate = self.faults(|faults| faults.duplicate);
        let ends = if self.chance.percent(duplicate) { 2 } else { 1 };
        let result = match self.chance.below(5) {
            0 => Err(ActivityFailure::Application(Payload::from("no"))),
            _ => Ok(Payload::from(format!("{} of {}", task.event, task.instance))),
        };
        for end in 0..ends {
            let spans = [(6, (0, 50)), (3, (50, 1_500)), (1, (1_500, 15_000))];
            let (low, high) = self.chance.weighted(&spans);
            let delay_ms = self.chance.between(low, high);
            let (task, result) = (task.clone(), result.clone());
            let label = format!("n{node} activity {} of {} ends", task.event, task.instance);
            self.later_on(node, delay_ms, label, move |this| {
                if end > 0 {
                    this.count("duplicate result");
                }
                this.with_shard(node, shard, |shard, now_ms| {
                    shard.handle_activity_done(now_ms, &task, result);
                });
            });
        }
    }

    /// What was withheld may leave: the session is known to live on.
    pub(super) fn let_go(&mut self, node: usize) {
        if self.is_past_deadline(node) {
            return;
        }
        for (shard, output) in std::mem::take(&mut self.nodes[node].withheld) {
            self.carry_out(node, shard, vec![output]);
        }
    }

    /// What was withheld for a shard never leaves.
    pub(super) fn drop_withheld(&mut self, node: usize, lost: Option<ShardId>) {
        let withheld = std::mem::take(&mut self.nodes[node].withheld);
        for (shard, output) in withheld {
            if lost.is_some_and(|lost| lost != shard) {
                self.nodes[node].withheld.push((shard, output));
            } else if let Output::Reply(request, _) = output {
                self.answered(request, Answer::Unknown { reason: "the session is gone".to_owned() });
            }
        }
    }
}
