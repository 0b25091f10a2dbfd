//! Explanations of why an instance does not make progress.
//!
//! An explanation is computed from stored data: the history (open operations), task rows (the state of open
//! activities), sessions (live nodes and their registrations), the instance's row and its inbox. So it is the
//! same in the process of the runtime and in any other. Reading is bounded: a history is read in pages up to
//! a limit, only the first operations of a large fan-out are listed, and children are followed to a limited
//! depth.

mod activities;
mod kept;
mod nodes;
mod open_work;
mod past;
mod reading;
mod stuck;
mod text;
mod unregistered;
mod wait;

#[cfg(test)]
mod text_tests;

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::child_id;
use perennial_core::store::{
    Blocked, InstanceRow, LoadedInstance, PausedOrchestrations, Status, StoreError, TaskRow, TaskState,
};
use perennial_core::{Decision, Ending, EventId, InstanceKey, ShardId, Timestamp};

use self::activities::{Around, decoded_text, last_failure, max_attempts};
use self::nodes::{Nodes, Ownership};
use self::open_work::{OpenOperation, OpenWork, timers_beside};
use self::reading::Looked;
use super::{Client, InstanceView};
use crate::error::ClientError;

pub(super) use kept::KeptWork;
pub use past::PastState;
pub use stuck::{Finding, FindingKind, StuckReport};
pub(super) use text::untaken as untaken_text;
pub use wait::{ActivityState, ActivityWait, Explanation, FailedAttempt, Wait, WaitReason};

/// How many open operations are listed. Of more, those that are stuck come before others.
const LISTED_OPERATIONS: usize = 50;

/// Limits of one explanation.
#[derive(Clone, Copy)]
struct Depth {
    /// How many levels of children are followed.
    levels: usize,
    /// How many turns of a history are read.
    turns: u64,
}

impl Depth {
    /// For one instance.
    const WHOLE: Depth = Depth { levels: 5, turns: 200_000 };
    /// For a list of instances.
    const LIST: Depth = Depth { levels: 0, turns: 2_000 };
}

/// How many children are read for one explanation.
const FOLLOWED_CHILDREN: usize = 20;

/// Whether orchestrations run. See [`Client::runtime_presence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RuntimePresence {
    /// The number of live nodes that run orchestrations.
    pub live: usize,
    /// If there is none, when the last one is known to have run; `None` if none ever has.
    #[serde(rename = "last_seen_ms")]
    pub last_seen: Option<Timestamp>,
}

/// What an explanation tells of an instance.
#[derive(Default)]
struct Found {
    waits: Vec<Wait>,
    /// The number of operations that were left out.
    more: usize,
    /// The numbers of events that no wait has taken, by name.
    untaken: BTreeMap<String, usize>,
    /// The error or the reason with which it ended.
    ending: Option<String>,
    /// The approximate size of its history.
    bytes: Option<u64>,
}

impl Found {
    fn only(reason: WaitReason, now: Timestamp) -> Found {
        Found { waits: vec![Wait::new(reason, now)], ..Found::default() }
    }
}

/// Data that is the same for all instances of an explanation.
struct Surroundings {
    nodes: Nodes,
    paused: PausedOrchestrations,
    /// The number of activities that are queued in the store, once it was read.
    queued: Option<u64>,
    /// The instances that were read for this explanation.
    seen: BTreeSet<InstanceKey>,
}

impl Client {
    /// Explains why an instance does not make progress: what it waits for, since when, and what happens next.
    ///
    /// Works from any process that can open the store, whether a runtime is running or not.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
    ///
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext, _: u32) -> Result<bool, String> {
    ///     let day = Duration::from_secs(86_400);
    ///     ctx.timeout(day, ctx.schedule_wait(APPROVED)).await.map_err(|_| "too late".to_owned())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(order).start().await?;
    /// # let client = runtime.client();
    /// client.start(order, "order-42", 7).await?;
    /// let explanation = client.explain("order-42").await?;
    /// let line = explanation.to_string();
    /// assert!(line.starts_with("event `approved` for "), "{line}");
    /// assert!(line.contains("; a timer set with it fires in "), "{line}");
    /// assert!(!explanation.is_stuck());
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn explain(&self, id: &str) -> Result<Explanation, ClientError> {
        let row = self.row(id).await?;
        let mut around = self.surroundings().await?;
        self.unbound().explained(&InstanceView::from(row), &mut around, Depth::WHOLE).await
    }

    /// Explains the instances of a list, in their order. Reads less than [`Client::explain`]: children are
    /// not followed, and long histories are skipped. [`Explanation::short`] fits into a column.
    pub async fn explain_each(&self, instances: &[InstanceView]) -> Result<Vec<Explanation>, ClientError> {
        let mut around = self.surroundings().await?;
        let mut explanations = Vec::with_capacity(instances.len());
        for instance in instances {
            let explanation = match self.explained(instance, &mut around, Depth::LIST).await {
                Err(ClientError::NotFound { .. }) => {
                    let now = around.nodes.now;
                    let deleted = unread("it was deleted in the meantime".to_owned());
                    Explanation::of(instance, now, Found::only(deleted, now))
                }
                explained => explained?,
            };
            explanations.push(explanation);
        }
        Ok(explanations)
    }

    /// Returns how many live nodes run orchestrations, and if none does, until when one is known to have.
    pub async fn runtime_presence(&self) -> Result<RuntimePresence, ClientError> {
        let directory = self.call("", |store, reply| store.directory(reply)).await?;
        let nodes = Nodes::new(directory);
        if nodes.has_owners() {
            return Ok(RuntimePresence { live: nodes.owners(), last_seen: None });
        }
        let owner = self.call("", |store, reply| store.shard_owner(ShardId(0), reply)).await?;
        let last_seen = match nodes.ownership(owner) {
            Ownership::NoRuntime(since) | Ownership::NoOwner(since) => since,
            Ownership::Live(_) => None,
        };
        Ok(RuntimePresence { live: 0, last_seen })
    }

    async fn surroundings(&self) -> Result<Surroundings, ClientError> {
        let directory = self.call("", |store, reply| store.directory(reply)).await?;
        let (paused, _) = self.read_paused().await?;
        let nodes = Nodes::new(directory);
        Ok(Surroundings { nodes, paused, queued: None, seen: BTreeSet::new() })
    }

    async fn explained(
        &self,
        instance: &InstanceView,
        around: &mut Surroundings,
        depth: Depth,
    ) -> Result<Explanation, ClientError> {
        let InstanceView { id, key, status, .. } = instance;
        let now = around.nodes.now;
        let found = match status.is_final() {
            // The error of an instance is in its history, which is not read for each instance of a list.
            true if depth.levels == 0 => Ok(Found::default()),
            true => self.ending(id, *key, depth).await,
            false => self.waits(id, *key, around, depth).await,
        };
        let found = match found {
            Err(error) if concerns_instance(&error) => Found::only(unread(error.to_string()), now),
            found => found?,
        };
        Ok(Explanation::of(instance, now, found))
    }

    /// The error or the reason with which an instance ended, if there is one and its history can be read.
    async fn ending(&self, id: &str, key: InstanceKey, depth: Depth) -> Result<Found, ClientError> {
        let row = self.row_of(id, Some(key)).await?;
        let Ok(work) = self.read_work(&row, depth).await? else { return Ok(Found::default()) };
        let ending = match work.ending() {
            Some(Ending::OrchestrationFailed { error }) => Some(decoded_text(error, key, &self.codecs)),
            Some(
                Ending::OrchestrationCancelled { reason, .. } | Ending::OrchestrationTerminated { reason },
            ) => Some(text::cut(reason)).filter(|reason| !reason.is_empty()),
            _ => None,
        };
        let bytes = Some(work.history_bytes());
        self.keep(&row, work);
        Ok(Found { ending, bytes, ..Found::default() })
    }

    async fn waits(
        &self,
        id: &str,
        key: InstanceKey,
        around: &mut Surroundings,
        depth: Depth,
    ) -> Result<Found, ClientError> {
        around.seen.insert(key);
        let shard = ShardId::of(id);
        let Some(Looked { loaded, work }) = self.look(id, shard, key, depth).await? else {
            return Err(ClientError::NotFound { id: id.to_owned() });
        };
        let owner = self.call(id, |store, reply| store.shard_owner(shard, reply)).await?;
        let ownership = around.nodes.ownership(owner);
        let now = around.nodes.now;
        let mut reasons = of_instance(&loaded, around, &ownership);
        let LoadedInstance { row, tasks, .. } = loaded;
        let mut found = Found::default();
        let mut waits: Vec<Wait> = Vec::new();
        match work {
            Err(unread) => reasons.push(unread),
            Ok(work) if !row.status.is_final() && !work.has_ended() => {
                reasons.extend(of_code(&work));
                let tasks = tasks.into_iter().map(|task| (task.id.event, task)).collect();
                let (open, left_out) =
                    self.operations(&row, &work, &tasks, &ownership, around, depth).await?;
                (found.more, found.untaken) = (left_out, work.untaken_events());
                found.bytes = Some(work.history_bytes());
                let is_idle = reasons.is_empty() && open.is_empty() && work.turns() > 0;
                reasons.extend(open);
                reasons.extend(is_idle.then_some(WaitReason::Condition));
                let of_unit = |reason| Wait::of_unit(reason, now, |event| work.unit_of(event));
                waits = reasons.drain(..).map(of_unit).collect();
                self.keep(&row, work);
            }
            Ok(work) => self.keep(&row, work),
        }
        waits.extend(reasons.into_iter().map(|reason| Wait::new(reason, now)));
        found.waits = waits;
        Ok(found)
    }

    /// The waits of the code of an instance, and the number of operations that were left out.
    async fn operations(
        &self,
        row: &InstanceRow,
        work: &OpenWork,
        tasks: &BTreeMap<EventId, TaskRow>,
        ownership: &Ownership,
        around: &mut Surroundings,
        depth: Depth,
    ) -> Result<(Vec<WaitReason>, usize), ClientError> {
        let operations = work.operations();
        let timers = timers_beside(&operations);
        let folded: BTreeSet<EventId> = timers.values().map(|(timer, _)| *timer).collect();
        let is_stuck = |operation: &OpenOperation| {
            let task = tasks.get(&operation.event);
            let wait = task.and_then(|task| activity(operation, Some(task), work, ownership, around, self));
            wait.is_some_and(|wait| wait.is_stuck())
        };
        let shown = operations.iter().filter(|operation| !folded.contains(&operation.event)).collect();
        let (listed, left_out) = listed(shown, is_stuck);
        let mut reasons = Vec::new();
        for operation in listed {
            let timer = timers.get(&operation.event).map(|(_, due)| *due);
            let reason = match &operation.decision {
                Decision::ActivityScheduled { .. } => {
                    let task = tasks.get(&operation.event);
                    if task.is_some_and(|task| task.state == TaskState::Queued) && around.queued.is_none() {
                        let stats = self.call(&row.id, |store, reply| store.stats(reply)).await?;
                        around.queued = Some(stats.tasks_queued.rows);
                    }
                    activity(operation, task, work, ownership, around, self)
                }
                Decision::SubOrchestrationScheduled { .. } => {
                    Box::pin(self.child(row, operation, work, around, depth)).await?
                }
                _ => other(operation, timer),
            };
            reasons.extend(reason);
        }
        Ok((reasons, left_out))
    }

    /// A child, with its own waits.
    async fn child(
        &self,
        row: &InstanceRow,
        operation: &OpenOperation,
        work: &OpenWork,
        around: &mut Surroundings,
        depth: Depth,
    ) -> Result<Option<WaitReason>, ClientError> {
        let Decision::SubOrchestrationScheduled { name, instance, .. } = &operation.decision else {
            return Ok(None);
        };
        let event = operation.event;
        let starter = work.starter_of(event, row.execution);
        let id = instance.clone().unwrap_or_else(|| child_id(&row.id, starter, event));
        let found = self.call(&id, |store, reply| store.find(&id, reply)).await?;
        // Another instance may have the id.
        let parent = row.key.to_string();
        let is_child = |found: &InstanceRow| {
            found.parent.as_ref().is_some_and(|link| link.key == parent && link.event_id == event)
        };
        let found = found.filter(is_child);
        let is_followed = |found: &&InstanceRow| {
            depth.levels > 0
                && !found.status.is_final()
                && around.seen.len() <= FOLLOWED_CHILDREN
                && !around.seen.contains(&found.key)
        };
        let waits = match &found {
            Some(found) if is_followed(&found) => {
                let depth = Depth { levels: depth.levels - 1, ..depth };
                match self.waits(&id, found.key, around, depth).await {
                    // The parent's explanation already says that no runtime is running.
                    Ok(found) => {
                        let is_news = |wait: &Wait| !matches!(wait.reason, WaitReason::NoRuntime { .. });
                        found.waits.into_iter().filter(is_news).collect()
                    }
                    // Deleted in the meantime.
                    Err(ClientError::NotFound { .. }) => Vec::new(),
                    Err(error) if concerns_instance(&error) => {
                        vec![Wait::new(unread(error.to_string()), around.nodes.now)]
                    }
                    Err(error) => return Err(error),
                }
            }
            // Its row alone shows whether it can take turns.
            Some(found) if !found.status.is_final() => {
                let delay = delayed_start(found, around.nodes.now).map(|due| WaitReason::Start { due });
                let states = of_row(found, around).into_iter().chain(delay);
                states.map(|reason| Wait::new(reason, around.nodes.now)).collect()
            }
            _ => Vec::new(),
        };
        let (name, since, status) = (name.clone(), operation.at, found.map(|found| found.status));
        Ok(Some(WaitReason::Child { id, name, event, since, status, waits }))
    }
}

/// The operations that are listed, in their order, and the number of those that are left out: of many, the ones that
/// are stuck, and as many of the first ones as there is room for.
fn listed(
    mut operations: Vec<&OpenOperation>,
    is_stuck: impl Fn(&OpenOperation) -> bool,
) -> (Vec<&OpenOperation>, usize) {
    let left_out = operations.len().saturating_sub(LISTED_OPERATIONS);
    if left_out > 0 {
        operations.sort_by_cached_key(|operation| (!is_stuck(operation), operation.event));
        operations.truncate(LISTED_OPERATIONS);
        operations.sort_by_key(|operation| operation.event);
    }
    (operations, left_out)
}

/// Whether an error concerns one instance: a damaged row, or a history that changes faster than it is read. Other
/// instances can be explained all the same.
fn concerns_instance(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Unknown { .. } | ClientError::Store { source: StoreError::CorruptRow(_), .. }
    )
}

fn unread(problem: String) -> WaitReason {
    WaitReason::Unread { problem, too_long: false }
}

/// Reasons that stop the whole instance.
fn of_instance(loaded: &LoadedInstance, around: &Surroundings, ownership: &Ownership) -> Vec<WaitReason> {
    let LoadedInstance { row, inbox, tasks, .. } = loaded;
    let now = around.nodes.now;
    let wake_at = row.wake_at_ms.map(Timestamp::from_millis);
    let starts = delayed_start(row, now);
    let mut reasons = Vec::new();
    match ownership {
        Ownership::Live(_) => {}
        Ownership::NoOwner(since) => reasons.push(WaitReason::NoOwner { since: *since }),
        Ownership::NoRuntime(since) => {
            let has_messages = !inbox.rows.is_empty() && starts.is_none() && row.blocked.is_none();
            let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
            let waits = |task: &TaskRow| {
                task.state == TaskState::Waiting && !is_due(task.due_ms.map(Timestamp::from_millis))
            };
            let has_tasks = row.blocked.is_none() && tasks.iter().any(|task| !waits(task));
            let has_work = row.owed || has_messages || has_tasks || is_due(wake_at);
            reasons.push(WaitReason::NoRuntime { since: *since, has_work });
        }
    }
    reasons.extend(of_row(row, around));
    if let Some(due) = starts {
        reasons.push(WaitReason::Start { due });
    } else if let Some(first) = inbox.rows.first().filter(|_| row.blocked.is_none()) {
        let (count, more) = (inbox.rows.len(), inbox.next.is_some());
        reasons.push(WaitReason::Messages { count, more, since: Timestamp::from_millis(first.arrived_ms) });
    }
    reasons.extend(row.full.then_some(WaitReason::Full));
    reasons
}

/// The time of a start that is delayed.
fn delayed_start(row: &InstanceRow, now: Timestamp) -> Option<Timestamp> {
    // The wake time of a blocked instance is that of its next retry.
    let is_delayed = row.status == Status::Pending && row.blocked.is_none();
    row.wake_at_ms.map(Timestamp::from_millis).filter(|due| is_delayed && *due > now)
}

/// A pause, a block, or code that is not registered.
fn of_row(row: &InstanceRow, around: &Surroundings) -> Vec<WaitReason> {
    let paused = |since_ms, why: &perennial_core::Why, orchestration| WaitReason::Paused {
        since: Timestamp::from_millis(since_ms),
        reason: why.reason.clone(),
        by: why.by.clone(),
        orchestration,
    };
    let mut reasons = Vec::new();
    match (&row.blocked, around.paused.get(&row.name)) {
        (Some(blocked), setting) => match (&blocked.pause, setting) {
            (Some(pause), _) => reasons.push(paused(blocked.since_ms, &pause.why, pause.orchestration)),
            (None, _) if blocked.is_waiting() => return vec![missing_code(row, blocked, &around.nodes)],
            (None, _) => reasons.push(WaitReason::Blocked {
                code: blocked.code.clone(),
                reason: blocked.reason.clone(),
                since: Timestamp::from_millis(blocked.since_ms),
                attempts: blocked.attempts,
            }),
        },
        // The instance has not taken a turn since the pause.
        (None, Some(setting)) => reasons.push(paused(setting.since_ms, &setting.why, true)),
        (None, None) => {}
    }
    if around.nodes.has_owners()
        && let Some(reason) = around.nodes.missing(&row.name, &row.version)
    {
        reasons.push(reason);
    }
    reasons
}

/// The wait of an instance for code that its owner does not have.
fn missing_code(row: &InstanceRow, blocked: &Blocked, nodes: &Nodes) -> WaitReason {
    WaitReason::MissingCode {
        name: row.name.clone(),
        version: row.version.clone(),
        nodes: nodes.with_code(&row.name, &row.version),
        similar: nodes.similar_to(&row.name),
        since: blocked.since(),
        until: Timestamp::from_millis(blocked.waits_until_ms.unwrap_or(blocked.since_ms)),
    }
}

/// A cancel request, and running handlers of updates.
fn of_code(work: &OpenWork) -> Vec<WaitReason> {
    let cancellation = work.cancel_request().map(|cancel| WaitReason::Cancellation {
        reason: cancel.reason.clone(),
        since: Timestamp::from_millis(cancel.delivered_ms),
        until: Timestamp::from_millis(cancel.until_ms()),
    });
    let updates = work.updates().map(|(event, name, since)| {
        let name = name.to_owned();
        WaitReason::Update { name, event, since }
    });
    cancellation.into_iter().chain(updates).collect()
}

fn activity(
    operation: &OpenOperation,
    task: Option<&TaskRow>,
    work: &OpenWork,
    ownership: &Ownership,
    around: &Surroundings,
    client: &Client,
) -> Option<WaitReason> {
    let Decision::ActivityScheduled { name, id, options, .. } = &operation.decision else { return None };
    let (event, deadline) = (operation.event, work.activity_deadline(operation.event));
    let of =
        Around { nodes: &around.nodes, ownership, codecs: &client.codecs, scheduled: operation.at, deadline };
    Some(WaitReason::Activity(ActivityWait {
        name: name.clone(),
        id: id.clone(),
        event,
        tag: options.as_ref().and_then(|options| options.tag.clone()),
        scheduled: operation.at,
        attempt: task.map_or(1, |task| task.attempt),
        max_attempts: max_attempts(options.as_deref()),
        deadline,
        failed: task.and_then(last_failure),
        interruptions: task.map_or(0, |task| task.interruptions),
        stopping: work.is_stopping(event),
        state: activities::state(task, &of, around.queued.unwrap_or_default()),
    }))
}

/// Operations that are explained by the history alone.
fn other(operation: &OpenOperation, timer: Option<Timestamp>) -> Option<WaitReason> {
    let (event, since) = (operation.event, operation.at);
    match &operation.decision {
        Decision::ExternalSubscribed { name } => {
            Some(WaitReason::Event { name: name.clone(), event, since, timer })
        }
        Decision::TimerCreated { due_ms } => {
            Some(WaitReason::Timer { event, due: Timestamp::from_millis(*due_ms) })
        }
        Decision::OrchestrationChained { instance, .. }
        | Decision::ExternalEventSent { instance, .. }
        | Decision::CancelSent { instance, .. } => {
            Some(WaitReason::Delivery { to: instance.clone(), event, since })
        }
        _ => None,
    }
}
