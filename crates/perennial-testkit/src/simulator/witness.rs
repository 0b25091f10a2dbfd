//! What must hold at every step, seen from the store's side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perennial_core::history::{decode_history, decode_turn};
use perennial_core::shard::{ActivityTask, Message};
use perennial_core::store::{Commit, CommitOutcome, InboxNumber, SessionId};
use perennial_core::{Decision, EventId, EventKind, History, InstanceKey, Job, Payload, ShardId, UnitId};

use super::Simulation;

/// What the store has seen, kept apart from the store.
#[derive(Default)]
pub(super) struct Witness {
    /// Who claimed each shard last.
    pub(super) owners: BTreeMap<ShardId, SessionId>,
    /// Sessions that were ended.
    pub(super) ended: BTreeSet<SessionId>,
    /// Every turn as it was first written.
    pub(super) turns: BTreeMap<(InstanceKey, u64, u64), Arc<[u8]>>,
    /// Messages that were put into the inbox, and those that were taken out by a commit.
    pub(super) sent: BTreeSet<InboxNumber>,
    pub(super) consumed: BTreeSet<InboxNumber>,
}

/// The messages that a commit consumes, as they are before it.
pub(super) type Before = Vec<(InboxNumber, Option<Arc<[u8]>>)>;

impl Simulation {
    pub(super) fn messages_before(&self, batch: &[Commit]) -> Vec<Before> {
        let tables = self.store.tables();
        let body = |number: &InboxNumber| tables.inbox.get(number).map(|message| Arc::clone(&message.body));
        let before = |commit: &Commit| commit.consumed.iter().map(|number| (*number, body(number))).collect();
        batch.iter().map(before).collect()
    }

    pub(super) fn witness_commit(
        &mut self,
        session: SessionId,
        commit: &Commit,
        outcome: &CommitOutcome,
        before: &Before,
    ) {
        let sent = match outcome {
            CommitOutcome::Durable { sent } => sent,
            CommitOutcome::Fenced => return self.count("commit fenced"),
            CommitOutcome::Conflict(_) => return self.count("commit conflict"),
            CommitOutcome::Rejected(_) => return,
        };
        self.witness.sent.extend(sent.iter().flatten());
        if self.witness.owners.get(&commit.shard) != Some(&session) || self.witness.ended.contains(&session) {
            let what = format!(
                "I3: a commit for shard {} was made under a session that is not its owner's",
                commit.shard.0
            );
            return self.fail(what);
        }
        if let Some(turn) = &commit.turn {
            let place = (commit.key, turn.execution, turn.number);
            let known = self.witness.turns.get(&place).cloned();
            let stored = self.store.tables().turns.get(&place).cloned();
            if stored.as_ref() != Some(&turn.bytes) {
                return self.fail(format!("I4: turn {} was durable and is not what is stored", turn.number));
            }
            match known {
                Some(known) if known == turn.bytes => return self.count("same turn again"),
                Some(_) => {
                    return self.fail(format!("I1: turn {} was written again, otherwise", turn.number));
                }
                None => {}
            }
            let decoded = decode_turn(turn.number, &turn.bytes).expect("the engine wrote it");
            if decoded.at_ms > self.now_ms() {
                let what =
                    format!("I10: turn {} is of {}, and it is not that late", turn.number, decoded.at_ms);
                return self.fail(what);
            }
            self.witness.turns.insert(place, Arc::clone(&turn.bytes));
        }
        for (number, body) in before {
            self.witness.consumed.insert(*number);
            if self.store.tables().inbox.contains_key(number) {
                return self.fail(format!("I4: message {number} was applied and is still there"));
            }
            if let Some(Ok(Message::Job(Job::ExternalEvent { payload, .. }))) =
                body.as_ref().map(|body| Message::decode(body))
                && !self.is_applied(commit.key, &payload)
            {
                return self.fail(format!("I8: {payload:?} was taken out of the inbox and not applied"));
            }
        }
    }

    /// Whether an instance has taken an event in one of its executions, or has ended.
    fn is_applied(&self, key: InstanceKey, payload: &Payload) -> bool {
        let Some(row) = self.store.tables().instances.get(&key).cloned() else { return false };
        let is_it = |kind: &EventKind| matches!(kind, EventKind::Job(Job::ExternalEvent { payload: other, .. }) if other == payload);
        let mut histories = (1..=row.execution).filter_map(|execution| self.history_of(key, execution));
        row.status.is_final() || histories.any(|history| history.flatten().any(|event| is_it(&event.kind)))
    }

    /// What is stored of an instance's current execution, if it is a history.
    pub(super) fn history(&self, key: InstanceKey) -> Option<History> {
        let execution = self.store.tables().instances.get(&key)?.execution;
        self.history_of(key, execution)
    }

    fn history_of(&self, key: InstanceKey, execution: u64) -> Option<History> {
        let tables = self.store.tables();
        let range = (key, execution, 0)..=(key, execution, u64::MAX);
        let turns: Vec<Arc<[u8]>> = tables.turns.range(range).map(|(_, bytes)| Arc::clone(bytes)).collect();
        drop(tables);
        decode_history(turns).ok()
    }

    /// An activity is about to start: its schedule is durable, and the node owns its shard.
    pub(super) fn witness_activity(&mut self, node: usize, shard: ShardId, task: &ActivityTask) {
        self.note(|| format!("n{node} activity {} of {} starts", task.event, task.instance));
        self.callers.log.ran(&task.instance, task.execution, task.event);
        let session = self.nodes[node].session;
        if session.is_none() || self.witness.owners.get(&shard) != session.as_ref() {
            return self.fail(format!("G8: activity {} starts on a node that is not its owner", task.event));
        }
        let is_it = |(event, _, decision): (EventId, &UnitId, &Decision)| {
            event == task.event && matches!(decision, Decision::ActivityScheduled { .. })
        };
        let is_durable = self
            .history_of(task.key, task.execution)
            .is_some_and(|history| history.turns.iter().any(|turn| turn.decisions().any(is_it)));
        if !is_durable {
            self.fail(format!("G5: activity {} starts before its schedule is durable", task.event));
        }
    }
}
