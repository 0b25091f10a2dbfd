//! What shards want done: look-ups, loads, turns, activities, answers.

use std::sync::Arc;

use perennial_core::shard::{Answer, Output, RequestId, TurnTask};
use perennial_core::store::{Store, StoreError};
use perennial_core::{InstanceKey, ShardId};

use super::Simulation;
use super::activities::place_of;
use super::store_calls::ask;

impl Simulation {
    pub(super) fn carry_out(&mut self, node: usize, shard: ShardId, outputs: Vec<Output>) {
        let past_deadline = self.is_past_deadline(node);
        let mut commits = false;
        for output in outputs {
            match output {
                Output::TakeTurn(task) => self.take_turn(node, shard, task),
                Output::Drop(execution) => drop(execution),
                Output::Commit(mut commit) => {
                    commits = true;
                    self.spoil(node, shard, &mut commit);
                    self.nodes[node].committer.add(*commit);
                }
                Output::RunActivity(_) | Output::Reply(..) if past_deadline => {
                    self.count("withheld past the deadline");
                    self.nodes[node].withheld.push((shard, output));
                }
                Output::RunActivity(task) => self.run_activity(node, shard, &task),
                Output::CancelActivity { key, execution, event } => {
                    let place = (key, execution, event);
                    let is_it = |withheld: &Output| matches!(withheld, Output::RunActivity(task) if place_of(task) == place);
                    self.nodes[node].withheld.retain(|(_, withheld)| !is_it(withheld));
                    self.cancel_run(node, place);
                }
                Output::Reply(request, answer) => self.answered(request, answer),
                Output::Find { request, id } => self.find(node, shard, request, id),
                Output::Load { key } => self.load(node, shard, key),
                Output::Refresh { key } => self.refresh(node, shard, key),
                Output::WantLone { key, event } => self.want_lone(node, shard, key, event),
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
            if !this.still_has(node, shard, tenure) {
                return;
            }
            match loaded {
                Ok(loaded) => {
                    this.with_shard(node, shard, |shard, now_ms| shard.handle_refreshed(now_ms, key, loaded));
                    this.read_inbox(node);
                }
                Err(_) => this.again(node, "refresh", move |this| {
                    if this.still_has(node, shard, tenure) {
                        this.refresh(node, shard, key);
                    }
                }),
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
            let done = task.run(&this.deployed(node), |_| ());
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
