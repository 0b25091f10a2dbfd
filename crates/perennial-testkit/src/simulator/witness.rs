//! What must hold at every step, seen from the store's side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perennial_core::history::{decode_history, decode_turn};
use perennial_core::shard::Message;
use perennial_core::store::{
    Commit, CommitOutcome, InboxNumber, Outgoing, SessionId, TaskChange, TaskId, TaskState,
};
use perennial_core::{
    ActivityFailure, ChildFailure, ClosePolicy, Decision, Ending, EventId, EventKind, History, InstanceKey,
    Job, Payload, ShardId, Turn, UnitId,
};

use super::Simulation;
use super::activities::Run;
use super::deployments::NEXT_VERSION;
use super::flaws::is_outcome;
use super::taken::task_id;

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
    /// Instances that were deleted, and how often each id was.
    pub(super) deleted: BTreeSet<InstanceKey>,
    pub(super) deletions: BTreeMap<String, u64>,
    /// Attempts whose rows were durable before they ran.
    rows: BTreeSet<(TaskId, u32, u32)>,
    /// Schedules whose outcome was sent to the parent.
    outcomes: BTreeSet<(InstanceKey, u64, EventId)>,
    /// The keys of the children that a turn starts, as it was sent to the store first.
    children: BTreeMap<(InstanceKey, Arc<[u8]>), Vec<InstanceKey>>,
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
        for change in &commit.tasks {
            self.note(|| match change {
                TaskChange::Put(row) => {
                    format!("task {} of {}: {:?} {:?}", row.id.event, row.id.key, row.state, row.due_ms)
                }
                TaskChange::Cancel(id) => format!("task {} of {}: cancelled", id.event, id.key),
            });
            if let TaskChange::Put(row) = change
                && matches!(row.state, TaskState::Leased { .. })
            {
                self.witness.rows.insert((row.id, row.attempt, row.interruptions));
            }
        }
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
            self.count_events(&decoded);
            self.witness_outcomes(commit);
            if self.failure.is_some() {
                return;
            }
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

    /// What is stored of all executions of an instance.
    pub(super) fn executions(&self, key: InstanceKey) -> Vec<History> {
        let execution = self.store.tables().instances.get(&key).map_or(0, |row| row.execution);
        (1..=execution).filter_map(|execution| self.history_of(key, execution)).collect()
    }

    fn history_of(&self, key: InstanceKey, execution: u64) -> Option<History> {
        let tables = self.store.tables();
        let range = (key, execution, 0)..=(key, execution, u64::MAX);
        let turns: Vec<Arc<[u8]>> = tables.turns.range(range).map(|(_, bytes)| Arc::clone(bytes)).collect();
        drop(tables);
        decode_history(turns).ok()
    }

    /// I13: a parent is told once what became of a child.
    fn witness_outcomes(&mut self, commit: &Commit) {
        for message in commit.send.iter().filter(|message| is_outcome(message)) {
            let Outgoing::ToKey { to, body, .. } = message else { continue };
            let Ok(Message::Outcome { execution, job }) = Message::decode(body) else { continue };
            let Some(event) = job.source_event_id() else { continue };
            if *to != commit.key && !self.witness.outcomes.insert((*to, execution, event)) {
                return self.fail(format!("I13: the outcome of {event} was sent to its parent {to} twice"));
            }
        }
    }

    /// I13: a turn that is sent again starts the same children.
    pub(super) fn witness_attempt(&mut self, batch: &[Commit]) {
        for commit in batch {
            let Some(turn) = &commit.turn else { continue };
            let started = commit.send.iter().filter_map(|message| match message {
                Outgoing::Start { row, .. } => Some(row.key),
                _ => None,
            });
            let started: Vec<InstanceKey> = started.collect();
            if started.is_empty() {
                continue;
            }
            let place = (commit.key, Arc::clone(&turn.bytes));
            let first = self.witness.children.entry(place).or_insert_with(|| started.clone());
            if *first != started {
                return self.fail(format!("I13: turn {} was sent again with other children", turn.number));
            }
        }
    }

    fn count_events(&mut self, turn: &Turn) {
        for (_, _, decision) in turn.decisions() {
            match decision {
                Decision::SubOrchestrationScheduled { close: ClosePolicy::Abandon, .. } => {
                    self.count("child that may outlive its parent");
                }
                Decision::SubOrchestrationScheduled { .. } => self.count("child"),
                Decision::SubOrchestrationCancelRequested { .. } => self.count("child cancelled"),
                Decision::OrchestrationChained { .. } => self.count("detached start"),
                Decision::ExternalEventSent { .. } => self.count("event to another instance"),
                Decision::AttributesUpserted { .. } => self.count("attributes"),
                Decision::StatusSet { .. } => self.count("published status"),
                Decision::UpdateCompleted { .. } => self.count("update completed"),
                _ => {}
            }
        }
        for (_, job) in turn.jobs() {
            match job {
                Job::SubOrchestrationCompleted { .. } => self.count("child completed"),
                Job::SubOrchestrationFailed { error: ChildFailure::NotStarted { .. }, .. } => {
                    self.count("child id taken");
                }
                Job::SubOrchestrationFailed { .. } => self.count("child failed"),
                Job::ActivityFailed { error: ActivityFailure::Poisoned, .. } => self.count("poisoned"),
                Job::ActivityCompleted { attempts: 2.., .. } => self.count("completed by a retry"),
                _ => {}
            }
        }
        match turn.ending() {
            Some(Ending::OrchestrationContinuedAsNew { .. }) => self.count("continued as new"),
            Some(Ending::OrchestrationTerminated { reason }) if reason == "timeout" => {
                self.count("timed out")
            }
            _ => {}
        }
        if let Some(started) = turn.started() {
            if started.version == NEXT_VERSION {
                self.count("begun at the next version");
            }
            if started.execution > 1 && turn.jobs().next().is_some() {
                self.count("events carried");
            }
        }
    }

    /// An activity is about to start: its schedule is durable, so is the row of all but a first attempt, and the node
    /// owns its shard, or has taken it from the store.
    pub(super) fn witness_activity(&mut self, node: usize, run: &Run) {
        let Run { shard, task, holder } = run;
        self.note(|| {
            format!("n{node} activity {} of {} starts, attempt {}", task.event, task.instance, task.attempt)
        });
        self.callers.log.ran(&task.instance, task.execution, task.event);
        let session = self.nodes[node].session;
        if holder.is_none() && (session.is_none() || self.witness.owners.get(shard) != session.as_ref()) {
            return self.fail(format!("G8: activity {} starts on a node that is not its owner", task.event));
        }
        let is_it = |(event, _, decision): (EventId, &UnitId, &Decision)| {
            event == task.event && matches!(decision, Decision::ActivityScheduled { .. })
        };
        let is_durable = self
            .history_of(task.key, task.execution)
            .is_some_and(|history| history.turns.iter().any(|turn| turn.decisions().any(is_it)));
        if !is_durable && !self.witness.deleted.contains(&task.key) {
            return self.fail(format!("G5: activity {} starts before its schedule is durable", task.event));
        }
        let is_first = task.attempt == 1 && task.interruptions == 0;
        let row = (task_id(task), task.attempt, task.interruptions);
        if holder.is_none() && !is_first && !self.witness.rows.contains(&row) {
            self.fail(format!(
                "G22: attempt {} of {} starts before its row is durable",
                task.attempt, task.event
            ));
        }
    }
}
