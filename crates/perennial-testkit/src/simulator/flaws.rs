//! Mistakes that are planted into the glue, on the way from a shard to the store.

use std::sync::Arc;

use perennial_core::history::decode_turn;
use perennial_core::shard::{ActivityTask, Message};
use perennial_core::store::{Commit, Outgoing, TaskChange, TaskState};
use perennial_core::{Decision, InstanceKey, Payload, ShardId};

use super::{Flaw, Simulation};

impl Simulation {
    /// What a planted mistake makes of a commit before it is sent.
    pub(super) fn spoil(&mut self, node: usize, shard: ShardId, commit: &mut Commit) {
        match self.flaw {
            Some(Flaw::EffectsBeforeCommit) => self.start_early(node, shard, commit),
            Some(Flaw::OutcomeTwice) => {
                let outcomes: Vec<Outgoing> =
                    commit.send.iter().filter(|message| is_outcome(message)).cloned().collect();
                commit.send.extend(outcomes);
            }
            Some(Flaw::ForgottenEvents) => self.forget_carried(commit),
            Some(Flaw::RetryBeforeRow) => self.retry_early(node, shard, commit),
            Some(Flaw::AnswerBeforeTurn) => {
                for answer in &commit.answers {
                    let mut tables = self.store.tables();
                    if let Some(deadline_ms) = tables.asks.get(&answer.number).map(|ask| ask.deadline_ms) {
                        tables.answers.insert(answer.number, (Arc::clone(&answer.body), deadline_ms));
                    }
                }
            }
            Some(Flaw::UncountedInterruptions) => {
                for change in &mut commit.tasks {
                    if let TaskChange::Put(row) = change {
                        row.interruptions = 0;
                    }
                }
            }
            _ => {}
        }
    }

    fn forget_carried(&mut self, commit: &mut Commit) {
        for message in &mut commit.send {
            if let Outgoing::ToKey { to, body, .. } = message
                && *to == commit.key
                && let Ok(Message::Start(mut start)) = Message::decode(body)
                && !start.jobs.is_empty()
            {
                start.jobs.clear();
                *body = Message::Start(start).encode();
                self.forgotten.insert(commit.key);
            }
        }
    }

    /// Other keys for the children of a batch, each time it is sent.
    pub(super) fn with_fresh_keys(&mut self, batch: &Arc<[Commit]>) -> Arc<[Commit]> {
        let mut commits = batch.to_vec();
        for message in commits.iter_mut().flat_map(|commit| &mut commit.send) {
            if let Outgoing::Start { row, .. } = message {
                let random = u128::from(self.chance.draw()) << 64 | u128::from(self.chance.draw());
                row.key = InstanceKey::new(row.created_ms, random);
            }
        }
        commits.into()
    }

    /// Starts the attempts of rows that are not durable.
    fn retry_early(&mut self, node: usize, shard: ShardId, commit: &Commit) {
        let id = self.store.tables().instances.get(&commit.key).map(|row| row.id.clone());
        for change in &commit.tasks {
            let (TaskChange::Put(row), Some(id)) = (change, &id) else { continue };
            if !matches!(row.state, TaskState::Leased { .. }) || row.due_ms.is_some() || row.details.is_some()
            {
                continue;
            }
            let task = ActivityTask {
                key: commit.key,
                instance: Arc::from(id.as_str()),
                execution: row.id.execution,
                event: row.id.event,
                attempt: row.attempt,
                interruptions: row.interruptions,
                details: None,
                deadline_ms: None,
                name: row.name.clone(),
                input: Payload::null(),
                options: None,
            };
            self.run_activity(node, shard, &task);
        }
    }

    /// Starts the activities of a turn that is not durable.
    fn start_early(&mut self, node: usize, shard: ShardId, commit: &Commit) {
        let Some(turn) = &commit.turn else { return };
        let decoded = decode_turn(turn.number, &turn.bytes).expect("it was just made");
        let id = commit.insert.as_ref().map(|row| row.id.clone());
        let id = id.or_else(|| self.store.tables().instances.get(&commit.key).map(|row| row.id.clone()));
        for (event, _, decision) in decoded.decisions() {
            if let (Decision::ActivityScheduled { name, input, options }, Some(id)) = (decision, &id) {
                let task = ActivityTask {
                    key: commit.key,
                    instance: Arc::from(id.as_str()),
                    execution: turn.execution,
                    event,
                    attempt: 1,
                    interruptions: 0,
                    details: None,
                    deadline_ms: None,
                    name: name.clone(),
                    input: input.clone(),
                    options: options.clone(),
                };
                self.run_activity(node, shard, &task);
            }
        }
    }
}

/// Whether a message tells a parent what became of its child.
pub(super) fn is_outcome(message: &Outgoing) -> bool {
    let Outgoing::ToKey { body, .. } = message else { return false };
    matches!(Message::decode(body), Ok(Message::Outcome { job, .. }) if job.name().starts_with("SubOrchestration"))
}
