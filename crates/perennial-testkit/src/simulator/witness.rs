//! Checks at every step from the store's side: commits, turns, messages, attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perennial_core::lane::{Lane, StoreCall, StoreResponse, StoreResult};
use perennial_core::shard::{ActivityTask, Message};
use perennial_core::store::{
    Commit, CommitOutcome, InboxNumber, Outgoing, SessionId, ShardSet, Status, TaskChange, TaskId, TaskRow,
    TaskState, TurnRow,
};
use perennial_core::{
    ActivityError, ChildError, ClosePolicy, Decision, Ending, EventId, EventKind, History, InstanceKey, Job,
    Payload, ShardId, Turn, UnitId,
};

use super::Simulation;
use super::activities::{Place, Run, place_of, task_id};
use super::clocks::MAX_DRIFT_PPM;
use super::deployments::NEXT_VERSION;
use super::histories::Histories;
use super::ownership::{Owners, Standing};
use super::promptness::Unread;
use super::pruning::Replaceable;
use crate::invariants::is_left_open;

/// An independent record of the calls that the store has executed.
#[derive(Default)]
pub(super) struct Witness {
    /// Every turn as it was first written.
    pub(super) turns: BTreeMap<(InstanceKey, u64, u64), TurnRow>,
    /// The same, decoded.
    pub(super) histories: Histories,
    /// Messages that were inserted into the inbox, and those that a commit has removed.
    pub(super) sent: BTreeSet<InboxNumber>,
    pub(super) consumed: BTreeSet<InboxNumber>,
    /// Deleted instances, and the number of deletions of each id.
    pub(super) deleted: BTreeSet<InstanceKey>,
    pub(super) deletions: BTreeMap<String, u64>,
    pub(super) standing: Standing,
    /// Attempts whose rows were durable before they ran.
    rows: BTreeSet<(TaskId, u32, u32)>,
    /// Attempts that were left open for the holders of their tokens.
    pub(super) left_open: BTreeSet<(TaskId, u32)>,
    /// The last started run of each activity, among those that a node holds or that started where its shard was owned. A
    /// lane that has lost the shard without noticing may start a run, too: it replaces no run of the owner, and its result
    /// is refused (G20).
    begun: BTreeMap<Place, u64>,
    /// The runs whose results were accepted.
    finished: BTreeSet<u64>,
    /// The node of each run.
    runners: BTreeMap<u64, SessionId>,
    /// Schedules whose outcome was sent to the parent.
    outcomes: BTreeSet<(InstanceKey, u64, EventId)>,
    /// The keys of the children that a turn starts, as first sent to the store.
    children: BTreeMap<(InstanceKey, Arc<[u8]>), Vec<InstanceKey>>,
    /// Since when no process has started or ended.
    pub(super) calm_from_ms: u64,
    /// The latest possible turn time anywhere, in microseconds, and the time of that reading.
    latest_us: u64,
    at_ms: u64,
}

/// The state of the store before a call.
pub(super) enum Before {
    Nothing,
    Batch(Vec<Member>),
    Owners(Owners),
}

/// A member of a batch, with its state before the batch.
pub(super) struct Member {
    /// Whether the session owns the shard at the epoch that the member names.
    is_owned: bool,
    /// The messages that it consumes.
    messages: Vec<(InboxNumber, Option<Arc<[u8]>>)>,
    /// Whether its instance was full.
    was_full: bool,
    /// The instances that its starts may replace.
    replaceable: Vec<Replaceable>,
    /// The unread events of its instance.
    unread: Vec<Unread>,
}

impl Witness {
    pub(super) fn new(now_ms: u64) -> Witness {
        Witness { latest_us: now_ms * 1_000, at_ms: now_ms, ..Witness::default() }
    }

    /// The latest possible turn time anywhere.
    pub(super) fn latest_ms(&self) -> u64 {
        self.latest_us.div_ceil(1_000)
    }

    /// Turn time advances with clocks that may be fast, starting from any reading of the store's clock.
    pub(super) fn pass_time(&mut self, now_ms: u64, store_ms: u64) {
        let elapsed_us = (now_ms - self.at_ms) * 1_000;
        let drift_us = elapsed_us * MAX_DRIFT_PPM.unsigned_abs() / 1_000_000;
        self.latest_us = (self.latest_us + elapsed_us + drift_us).max(store_ms * 1_000);
        self.at_ms = now_ms;
    }
}

impl Simulation {
    /// Records the state before a call.
    pub(super) fn before_call(&mut self, call: &StoreCall) -> Before {
        match call {
            StoreCall::ReleaseShards { session, shards } => self.forget_death(*session, shards),
            StoreCall::EndSession(session) => self.forget_death(*session, &ShardSet::ALL),
            _ => {}
        }
        match call {
            StoreCall::Commit { session, batch } => {
                self.witness_children(batch);
                Before::Batch(self.members_before(*session, batch))
            }
            StoreCall::OpenSession(_)
            | StoreCall::ClaimShards { .. }
            | StoreCall::ReleaseShards { .. }
            | StoreCall::ReplaceSession { .. }
            | StoreCall::EndSession(_) => Before::Owners(self.owners()),
            _ => Before::Nothing,
        }
    }

    /// Checks the state after a call.
    pub(super) fn after_call(&mut self, call: &StoreCall, answer: &StoreResult, before: Before) {
        match (call, answer, before) {
            (
                StoreCall::Commit { batch, .. },
                Ok(StoreResponse::Committed(outcomes)),
                Before::Batch(before),
            ) => {
                for ((commit, outcome), before) in batch.iter().zip(outcomes).zip(&before) {
                    self.witness_commit(commit, outcome, before);
                }
                // One member may end an instance that another one replaces.
                before.iter().for_each(|member| self.witness_replaced(&member.replaceable));
            }
            (call, answer, Before::Owners(before)) => self.witness_owners(call, answer, &before),
            (StoreCall::PruneExecutions { key, execution, .. }, ..) => self.witness_pruning(*key, *execution),
            (StoreCall::FinishTask { holder, task, body, .. }, Ok(StoreResponse::Finished(true)), _) => {
                self.witness_finish(*holder, *task, body);
            }
            (StoreCall::Load { .. }, Ok(StoreResponse::Loaded(Some(loaded))), _) if loaded.row.full => {
                self.count("full instance loaded");
            }
            _ => {}
        }
        self.witness_messages();
    }

    /// Records the messages that were inserted into the inbox.
    pub(super) fn witness_messages(&mut self) {
        let last = self.witness.sent.last().copied().unwrap_or_default();
        let new: Vec<InboxNumber> =
            self.store.tables().inbox.range(last + 1..).map(|(number, _)| *number).collect();
        self.witness.sent.extend(new);
    }

    fn members_before(&self, session: SessionId, batch: &[Commit]) -> Vec<Member> {
        let mut replaceable =
            batch.iter().map(|commit| self.replaceable(commit)).collect::<Vec<_>>().into_iter();
        let mut unread =
            batch.iter().map(|commit| self.unread_before(commit)).collect::<Vec<_>>().into_iter();
        let tables = self.store.tables();
        let body = |number: &InboxNumber| tables.inbox.get(number).map(|message| Arc::clone(&message.body));
        let before = |commit: &Commit| {
            let shard = tables.ownership.shards.get(&commit.shard);
            let is_live = tables.ownership.sessions.contains_key(&session);
            Member {
                is_owned: is_live
                    && shard.is_some_and(|it| it.owner == Some(session) && it.epoch == commit.epoch),
                messages: commit.consumed.iter().map(|number| (*number, body(number))).collect(),
                was_full: tables.instances.get(&commit.key).is_some_and(|row| row.full),
                replaceable: replaceable.next().unwrap_or_default(),
                unread: unread.next().unwrap_or_default(),
            }
        };
        batch.iter().map(before).collect()
    }

    fn witness_commit(&mut self, commit: &Commit, outcome: &CommitOutcome, before: &Member) {
        self.note(|| {
            let (key, epoch, name) = (commit.key, commit.epoch, outcome_name(outcome));
            let turn = commit.turn.as_ref().map(|turn| (turn.execution, turn.number));
            format!("commit of {key} at epoch {epoch}: turn {turn:?}, {name}")
        });
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
                    let TaskRow { id, state, due_ms, interruptions, begun, .. } = &**row;
                    format!(
                        "task {} of {}: {state:?} {due_ms:?}, {interruptions} {begun:?}",
                        id.event, id.key
                    )
                }
                TaskChange::Cancel(id) => format!("task {} of {}: cancelled", id.event, id.key),
            });
            if let TaskChange::Put(row) = change {
                if matches!(row.state, TaskState::Leased { .. }) {
                    self.witness.rows.insert((row.id, row.attempt, row.interruptions));
                }
                if is_left_open(row) {
                    self.witness.left_open.insert((row.id, row.attempt));
                }
                self.damage_new_task(row);
            }
        }
        if !before.is_owned {
            let what = format!(
                "I3: a commit for shard {} was made under a session that does not own it at epoch {}",
                commit.shard.0, commit.epoch
            );
            return self.fail(what);
        }
        self.witness_damage(commit);
        self.witness_mistype(commit);
        self.count_full(commit, before.was_full);
        for turn in commit.turn.iter().chain(&commit.more_turns) {
            let place = (commit.key, turn.execution, turn.number);
            let known = self.witness.turns.get(&place).cloned();
            let stored = self.store.tables().turns.get(&place).cloned();
            let is_there = self.store.tables().instances.contains_key(&commit.key);
            if stored.as_ref() != Some(turn) && is_there {
                return self.fail(format!("I4: turn {} was durable and is not what is stored", turn.number));
            }
            match known {
                Some(known) if known == *turn => return self.count("same turn again"),
                Some(_) => {
                    return self.fail(format!("I1: turn {} was written again, changed", turn.number));
                }
                None => {}
            }
            let decoded = self.with_sound_codecs(|codecs| turn.decode(codecs, commit.key));
            let decoded = decoded.expect("the engine wrote it");
            if decoded.at_ms > self.witness.latest_ms() {
                let what = format!("I10: turn {} at {} is in the future", turn.number, decoded.at_ms);
                return self.fail(what);
            }
            self.witness.turns.insert(place, turn.clone());
            self.witness_timers(commit, turn.execution, &decoded, &before.unread);
            self.witness_bound(commit.key, &decoded);
            self.count_events(&decoded);
            self.witness_poison(commit.key, turn.execution, &decoded);
            self.witness_repair(commit, Some((turn, &decoded)));
            self.witness_outcomes(commit);
            self.witness_results(commit.key, turn.execution, &decoded);
            self.witness.histories.add(commit.key, turn.execution, decoded);
            self.witness_taking(commit, turn.execution);
            if self.failure.is_some() {
                return;
            }
        }
        if commit.turn.is_none() {
            self.witness_repair(commit, None);
        }
        self.witness_wake(commit);
        for (number, body) in &before.messages {
            self.witness.consumed.insert(*number);
            if self.store.tables().inbox.contains_key(number) {
                return self.fail(format!("I4: message {number} was applied and is still there"));
            }
            let message = self.with_sound_codecs(|codecs| {
                body.as_ref().and_then(|body| Message::decode_with(codecs, body).ok())
            });
            if let Some(Message::Job(Job::ExternalEvent { payload, .. })) = message
                && !self.is_applied(commit.key, &payload)
            {
                return self.fail(format!("I8: {payload:?} was taken out of the inbox and not applied"));
            }
        }
    }

    /// Whether an instance has received an event in one of its executions, or has ended.
    fn is_applied(&self, key: InstanceKey, payload: &Payload) -> bool {
        let status = self.store.tables().instances.get(&key).map(|row| row.status);
        let is_it = |kind: &EventKind| matches!(kind, EventKind::Job(Job::ExternalEvent { payload: other, .. }) if other == payload);
        let is_taken = || {
            let turns = self.executions(key).flat_map(|history| history.turns.iter().rev());
            turns.flat_map(|turn| &turn.events).any(|event| is_it(&event.kind))
        };
        status.is_some_and(|status| status.is_final() || is_taken())
    }

    /// The committed history of an instance's current execution.
    pub(super) fn history(&self, key: InstanceKey) -> Option<&History> {
        let execution = self.store.tables().instances.get(&key)?.execution;
        self.witness.histories.of(key, execution)
    }

    /// The committed histories of all executions of an instance, pruned or not.
    pub(super) fn executions(&self, key: InstanceKey) -> impl Iterator<Item = &History> {
        self.witness.histories.executions(key)
    }

    /// G33: of a running instance, only executions older than those to be kept are deleted.
    fn witness_pruning(&mut self, key: InstanceKey, before: u64) {
        let keep = self.plan.keep_executions.unwrap_or(u64::MAX);
        let current = self.store.tables().instances.get(&key).map_or(u64::MAX, |row| row.execution);
        if before.saturating_add(keep) > current.saturating_add(1) {
            return self.fail(format!("G33: executions before {before} are pruned, and {current} runs"));
        }
        self.count("executions pruned");
    }

    /// I6: a task is finished by a run of the node that holds it.
    fn witness_finish(&mut self, holder: SessionId, task: TaskId, body: &[u8]) {
        let Ok(Message::Attempt { result: Ok(result), .. }) = Message::decode(body) else { return };
        let Some(run) = run_of(&result) else { return };
        if self.witness.runners.get(&run) != Some(&holder) {
            let event = task.event;
            return self
                .fail(format!("I6: task {event} was finished by run {run}, which is not its holder's"));
        }
        self.witness.finished.insert(run);
    }

    /// I6: a lane that owns the shard accepts the result of an attempt only if no later one has started.
    pub(super) fn witness_result(
        &mut self,
        process: usize,
        lane: usize,
        task: &ActivityTask,
        result: &Payload,
    ) {
        let (Some(run), last) = (run_of(result), self.witness.begun.get(&place_of(task)).copied()) else {
            return;
        };
        if last == Some(run) {
            self.witness.finished.insert(run);
            return;
        }
        // A lane that has lost the shard without noticing cannot commit the result.
        if self.owns_shard_of(process, lane, task) {
            let event = task.event;
            self.fail(format!("I6: the result of run {run} of {event} was taken, and {last:?} ran last"));
        }
    }

    /// Whether a lane owns the shard of an attempt's instance, by the store.
    fn owns_shard_of(&self, process: usize, lane: usize, task: &ActivityTask) -> bool {
        let owner = self.store.tables().ownership.owner(ShardId::of(&task.instance));
        owner.is_some() && owner == self.lane(process, lane).map(Lane::session)
    }

    /// I6: a result is that of the last started attempt, or was accepted before another one started.
    fn witness_results(&mut self, key: InstanceKey, execution: u64, turn: &Turn) {
        for (_, job) in turn.jobs() {
            let Job::ActivityCompleted { source_event_id: event, result, .. } = job else { continue };
            let Some(run) = run_of(result).filter(|run| !self.witness.finished.contains(run)) else {
                continue;
            };
            let last = self.witness.begun.get(&(key, execution, *event)).copied();
            if last != Some(run) {
                let what = format!(
                    "I6: activity {event} of {key} has the result of run {run}, and {last:?} ran last"
                );
                return self.fail(what);
            }
        }
    }

    /// G22: only an activity that crashes its process fails as poisoned.
    fn witness_poison(&mut self, key: InstanceKey, execution: u64, turn: &Turn) {
        for (_, job) in turn.jobs() {
            let Job::ActivityFailed { source_event_id: event, error: ActivityError::Poisoned, .. } = job
            else {
                continue;
            };
            if self.deadly != Some((key, execution, *event)) {
                return self.fail(format!(
                    "G22: activity {event} of {key} failed as poisoned, and never crashed a process"
                ));
            }
        }
    }

    /// I13: a parent receives the outcome of a child once.
    fn witness_outcomes(&mut self, commit: &Commit) {
        for message in commit.send.iter().filter(|message| is_outcome(message)) {
            let Outgoing::ToKey { to, body, .. } = message else { continue };
            let Ok(Message::Outcome { execution, job }) = Message::decode(body) else { continue };
            let Some(event) = job.source_event_id() else { continue };
            // A parent that was recreated under its key has the children of its second life as well.
            let is_first = self.witness.outcomes.insert((*to, execution, event));
            // A child that was reset ends again, and its parent accepts the first of its outcomes.
            let is_excused = self.witness.deleted.contains(to) || self.was_reset(commit.key);
            if *to != commit.key && !is_first && !is_excused {
                return self.fail(format!("I13: the outcome of {event} was sent to its parent {to} twice"));
            }
        }
    }

    /// I13: a turn that is sent again starts the same children.
    fn witness_children(&mut self, batch: &[Commit]) {
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

    fn count_full(&mut self, commit: &Commit, was_full: bool) {
        let status = self.store.tables().instances.get(&commit.key).map(|row| row.status);
        let has_ended = status.is_none_or(Status::is_final);
        match commit.change.full {
            Some(true) => self.count("instance full"),
            Some(false) if !has_ended => self.count("instance has room again"),
            _ => {}
        }
        if was_full && commit.change.execution.is_some() {
            self.count("full instance renewed");
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
                Decision::ActivityStopRequested { .. } => self.count("activity asked to stop"),
                Decision::SubOrchestrationStopRequested { .. } => self.count("child asked to stop"),
                Decision::OrchestrationChained { reported: true, .. } => self.count("start heard of"),
                Decision::OrchestrationChained { .. } => self.count("detached start"),
                Decision::CancelSent { .. } => self.count("cancel of another instance"),
                Decision::ExternalEventSent { key: Some(_), .. } => {
                    self.count("event to another instance, once");
                }
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
                Job::SubOrchestrationFailed { error: ChildError::NotStarted { .. }, .. } => {
                    self.count("child id taken");
                }
                Job::SubOrchestrationFailed { .. } => self.count("child failed"),
                Job::ActivityFailed { error: ActivityError::Poisoned, .. } => self.count("poisoned"),
                Job::ActivityCompleted { attempts: 2.., .. } => self.count("completed by a retry"),
                Job::ExternalEventSkipped { .. } => self.count("mistyped event skipped"),
                Job::SubOrchestrationStarted { .. } => self.count("start of a child reported"),
                Job::DeliveryReported { .. } => self.count("delivery reported"),
                Job::InstanceResumed { .. } => self.count("resume recorded"),
                Job::MessageSkipped { .. } => self.count("unreadable message skipped"),
                _ => {}
            }
        }
        match turn.ending() {
            Some(Ending::OrchestrationContinuedAsNew { .. }) => self.count("continued as new"),
            Some(Ending::OrchestrationCancelled { output: Some(_), .. }) => {
                self.count("ended as cancelled by itself");
            }
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

    /// A process must not run an attempt that it already runs.
    pub(super) fn witness_run(&mut self, process: usize, task: &ActivityTask) {
        let is_same = |other: &ActivityTask| {
            (place_of(other), other.attempt, other.interruptions)
                == (place_of(task), task.attempt, task.interruptions)
        };
        // A lane that has lost the shard without noticing lets its attempts continue, and its node may take
        // the task that the new owner offers.
        let is_owned = |run: &Run| {
            let lane = run.lane.filter(|_| !self.node(process).is_some_and(|node| node.holds(&run.task)));
            lane.is_none_or(|lane| self.owns_shard_of(process, lane, task))
        };
        let mut runs = self.processes[process].runs.all.values();
        if runs.any(|run| !run.is_cancel_requested && is_same(&run.task) && is_owned(run)) {
            let (event, attempt) = (task.event, task.attempt);
            self.fail(format!(
                "G22: p{process} is to run attempt {attempt} of {event}, which it runs already"
            ));
        }
    }

    /// Checks an activity that is about to start: its schedule is durable, and so is the row of every attempt
    /// but the first, and the lane that requested it owns its shard, unless it is the node's.
    pub(super) fn witness_activity(
        &mut self,
        process: usize,
        lane: Option<usize>,
        number: u64,
        task: &ActivityTask,
    ) {
        self.note(|| {
            let (event, attempt) = (task.event, task.attempt);
            format!(
                "p{process} activity {event} of {} starts, attempt {attempt}, run {number}",
                task.instance
            )
        });
        if lane.is_none_or(|lane| self.owns_shard_of(process, lane, task)) {
            self.witness.begun.insert(place_of(task), number);
        } else {
            self.count("attempt begun by a lane that lost its shard");
        }
        if let Some(node) = self.node(process).map(|node| node.id()) {
            self.witness.runners.insert(number, node);
        }
        self.callers.log.ran(&task.instance, task.execution, task.event);
        if let Some(lane) = lane {
            self.witness_owner(process, lane, ShardId::of(&task.instance), "starts an activity");
            self.witness_not_left_open(task);
        }
        let is_it = |(event, _, decision): (EventId, &UnitId, &Decision)| {
            event == task.event && matches!(decision, Decision::ActivityScheduled { .. })
        };
        let is_durable = self
            .witness
            .histories
            .of(task.key, task.execution)
            .is_some_and(|history| history.turns.iter().any(|turn| turn.decisions().any(is_it)));
        if !is_durable && !self.witness.deleted.contains(&task.key) {
            return self.fail(format!("G5: activity {} starts before its schedule is durable", task.event));
        }
        let is_first = task.attempt == 1 && task.interruptions == 0 && task.begun.is_none();
        let row = (task_id(task), task.attempt, task.interruptions);
        if lane.is_some() && !is_first && !self.witness.rows.contains(&row) {
            self.fail(format!(
                "G22: attempt {} of {} starts before its row is durable",
                task.attempt, task.event
            ));
        }
    }
}

pub(super) fn outcome_name(outcome: &CommitOutcome) -> &'static str {
    match outcome {
        CommitOutcome::Durable { .. } => "durable",
        CommitOutcome::Fenced => "fenced",
        CommitOutcome::Conflict(_) => "conflict",
        CommitOutcome::Rejected(_) => "rejected",
    }
}

/// The run that a result came from.
fn run_of(result: &Payload) -> Option<u64> {
    result.as_json().trim_matches('"').rsplit(' ').next()?.parse().ok()
}

/// Whether a message is the outcome of a child for its parent.
fn is_outcome(message: &Outgoing) -> bool {
    let Outgoing::ToKey { body, .. } = message else { return false };
    matches!(Message::decode(body), Ok(Message::Outcome { job, .. }) if job.name().starts_with("SubOrchestration"))
}
