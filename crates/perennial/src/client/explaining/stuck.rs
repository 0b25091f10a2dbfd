//! Stuck instances and activities of a store, grouped by cause. Reading is bounded: of a large store only a
//! part is read.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::store::{
    InstanceRow, PageLimit, Reply, Status, Store, StoreError, TaskId, TaskRow, TaskState,
};
use perennial_core::{InstanceKey, ShardId, Timestamp};
use serde::{Deserialize, Serialize};

use super::activities::last_failure;
use super::missing_code;
use super::nodes::{Nodes, Ownership};
use super::text::{self, span};
use super::wait::{ActivityState, ActivityWait, WaitReason};
use crate::client::Client;
use crate::error::ClientError;
use crate::filter::Filter;

/// How many tasks, and how many unfinished instances, are read.
const TASKS: usize = 10_000;
const INSTANCES: usize = 2_000;
/// How many rows are read at a time.
const PAGE: usize = 500;
/// How many instances a finding names.
const NAMED: usize = 5;

/// The result of [`Client::find_stuck`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StuckReport {
    /// The store's clock when it was computed.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// One finding per cause.
    pub findings: Vec<Finding>,
    /// Instances that wait for code that their owner does not have, by orchestration and version. They are not stuck:
    /// an upgrade brings the code, or they are blocked later.
    #[serde(default)]
    pub waiting: Vec<Finding>,
    /// Whether all unfinished instances were checked. Of very many, only the oldest are.
    pub is_complete: bool,
}

/// Instances that are stuck for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of the reason.
    pub kind: FindingKind,
    /// A description in one line.
    pub text: String,
    /// The action to take.
    pub remedy: String,
    /// The number of affected instances.
    pub count: usize,
    /// The ids of the first affected instances.
    pub instances: Vec<String>,
}

/// The kinds of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// No runtime is running, and instances have work to do.
    NoRuntime,
    /// Instances are blocked.
    Blocked,
    /// Instances wait for code that their owner does not have, and are blocked later.
    MissingCode,
    /// Instances have so many unread events that senders are refused.
    Full,
    /// No live node has an orchestration registered.
    OrchestrationNotRegistered,
    /// No live node has an activity registered.
    ActivityNotRegistered,
    /// The attempts of an activity fail repeatedly.
    ActivityFailing,
    /// The process ended repeatedly while an activity ran.
    ActivityInterrupted,
}

/// The members of a finding.
#[derive(Default)]
struct Group {
    members: BTreeSet<InstanceKey>,
    /// The places of the first instances whose ids are not known yet.
    places: Vec<(ShardId, InstanceKey)>,
    ids: Vec<String>,
    /// An example for the text.
    example: Option<ActivityWait>,
    text: String,
    remedy: String,
}

impl Group {
    fn add(&mut self, row: &InstanceRow) {
        self.members.insert(row.key);
        if self.ids.len() < NAMED {
            self.ids.push(row.id.clone());
        }
    }

    fn add_task(&mut self, task: &TaskRow, example: impl FnOnce() -> ActivityWait) {
        // A fan-out has many tasks of one instance.
        if self.members.insert(task.id.key) && self.places.len() < NAMED {
            self.places.push((task.shard, task.id.key));
        }
        self.example.get_or_insert_with(example);
    }
}

impl Client {
    /// Finds work that does not continue without intervention: blocked instances, orchestrations and
    /// activities that no live node has registered, activities that fail repeatedly, and work that is due
    /// while no runtime is running.
    ///
    /// Reads at most 10,000 activities and the 2,000 oldest unfinished instances.
    pub async fn find_stuck(&self) -> Result<StuckReport, ClientError> {
        let nodes = self.surroundings().await?.nodes;
        let mut report = StuckReport { at: nodes.now, is_complete: true, ..StuckReport::default() };
        let mut groups: BTreeMap<(FindingKind, String), Group> = BTreeMap::new();
        report.is_complete &= self.stuck_instances(&nodes, &mut groups).await?;
        report.is_complete &= self.stuck_tasks(&nodes, &mut groups).await?;
        for ((kind, _), group) in groups {
            let finding = self.finding(kind, group, nodes.now).await?;
            match kind {
                FindingKind::MissingCode => report.waiting.push(finding),
                _ => report.findings.push(finding),
            }
        }
        Ok(report)
    }

    /// Collects stuck instances. Returns whether all were checked.
    async fn stuck_instances(
        &self,
        nodes: &Nodes,
        groups: &mut BTreeMap<(FindingKind, String), Group>,
    ) -> Result<bool, ClientError> {
        let open = Filter::new().status(Status::Pending).status(Status::Running);
        let (mut after, mut seen) = (None, 0);
        loop {
            let page = self.list_rows(open.clone(), after, PAGE).await?;
            for row in &page.rows {
                self.stuck_instance(row, nodes, groups).await?;
            }
            seen += page.rows.len();
            after = page.next;
            if after.is_none() || seen >= INSTANCES {
                return Ok(after.is_none());
            }
        }
    }

    async fn stuck_instance(
        &self,
        row: &InstanceRow,
        nodes: &Nodes,
        groups: &mut BTreeMap<(FindingKind, String), Group>,
    ) -> Result<(), ClientError> {
        if let Some(blocked) = row.blocked.as_ref().filter(|blocked| blocked.is_waiting()) {
            let reason = missing_code(row, blocked, nodes);
            let place = format!("{} {}", row.name, row.version);
            let group = groups.entry((FindingKind::MissingCode, place)).or_default();
            group.text = format!("instances are {}", text::line(&reason, nodes.now));
            group.remedy =
                "finish the upgrade, or register the missing version; they go on by themselves".to_owned();
            group.add(row);
            return Ok(());
        }
        if let Some(blocked) = row.blocked.as_ref().filter(|blocked| blocked.pause.is_none()) {
            let cause = if blocked.cause.is_empty() { &blocked.reason } else { &blocked.cause };
            let place = format!("{} {} {cause}", row.name, blocked.code);
            let group = groups.entry((FindingKind::Blocked, place)).or_default();
            group.text = format!("instances of `{}` are blocked: {}", row.name, text::cut(cause));
            group.remedy = text::blocked_remedy(&blocked.code).to_owned();
            group.add(row);
        }
        if row.full {
            let group = groups.entry((FindingKind::Full, row.name.clone())).or_default();
            group.text =
                format!("instances of `{}` have so many unread events that senders are refused", row.name);
            group.remedy = text::FULL_REMEDY.to_owned();
            group.add(row);
        }
        if row.blocked.is_some() {
            return Ok(());
        }
        if !nodes.has_owners() {
            let is_due = row.owed || row.status == Status::Pending && row.wake_at_ms.is_none();
            if is_due || row.wake_at_ms.is_some_and(|at_ms| Timestamp::from_millis(at_ms) <= nodes.now) {
                let key = (FindingKind::NoRuntime, String::new());
                if !groups.contains_key(&key) {
                    let owner =
                        self.call(&row.id, |store, reply| store.shard_owner(row.shard, reply)).await?;
                    let since = match nodes.ownership(owner) {
                        Ownership::NoRuntime(since) => since,
                        Ownership::Live(_) | Ownership::NoOwner(_) => None,
                    };
                    let reason = WaitReason::NoRuntime { since, has_work: true };
                    let line = text::line(&reason, nodes.now);
                    let text = format!("instances have work to do, and {line}");
                    let remedy = text::remedy(&reason).unwrap_or_default();
                    groups.insert(key.clone(), Group { text, remedy, ..Group::default() });
                }
                groups.entry(key).or_default().add(row);
            }
        } else if let Some(reason) = nodes.missing(&row.name, &row.version) {
            let place = format!("{} {}", row.name, row.version);
            let group = groups.entry((FindingKind::OrchestrationNotRegistered, place)).or_default();
            group.text = text::line(&reason, nodes.now);
            group.remedy = text::remedy(&reason).unwrap_or_default();
            group.add(row);
        }
        Ok(())
    }

    /// Collects stuck activities. Returns whether all were checked.
    async fn stuck_tasks(
        &self,
        nodes: &Nodes,
        groups: &mut BTreeMap<(FindingKind, String), Group>,
    ) -> Result<bool, ClientError> {
        let (mut after, mut seen): (Option<TaskId>, usize) = (None, 0);
        while seen < TASKS {
            let page = self.call("", |store, reply| store.list_tasks(after, PAGE, reply)).await?;
            let Some(last) = page.last() else { return Ok(true) };
            after = Some(last.id);
            seen += page.len();
            for task in &page {
                stuck_task(task, nodes, groups);
            }
        }
        Ok(false)
    }

    /// A finding, with the ids of its instances.
    async fn finding(&self, kind: FindingKind, group: Group, now: Timestamp) -> Result<Finding, ClientError> {
        let Group { members, places, mut ids, example, mut text, mut remedy } = group;
        for (shard, key) in places {
            let load = |store: &dyn Store, reply: Reply<_>| {
                store.load(shard, key, u64::MAX, PageLimit { rows: 1, bytes: 0 }, reply);
            };
            match self.call("", load).await {
                Ok(loaded) => ids.extend(loaded.map(|loaded| loaded.row.id)),
                // Its rows are damaged, which other checks report. Its key names it as well.
                Err(ClientError::Store { source: StoreError::CorruptRow(_), .. }) => {
                    ids.push(key.to_string())
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(example) = example {
            text = activity_text(kind, &example, now);
            remedy = text::remedy(&WaitReason::Activity(example)).unwrap_or_default();
        }
        Ok(Finding { kind, text, remedy, count: members.len(), instances: ids })
    }
}

fn stuck_task(task: &TaskRow, nodes: &Nodes, groups: &mut BTreeMap<(FindingKind, String), Group>) {
    let is_unregistered = task.state == TaskState::Queued
        && nodes.count() > 0
        && nodes.serving(&task.name, task.tag.as_deref()).is_empty();
    let state = match is_unregistered {
        true => ActivityState::NotRegistered {
            since: task.since_ms.map(Timestamp::from_millis),
            nodes: nodes.count(),
        },
        false => ActivityState::Retry { due: Timestamp::from_millis(task.due_ms.unwrap_or_default()) },
    };
    let activity = ActivityWait {
        name: task.name.clone(),
        // Rows are grouped by name; ids are only in the histories.
        id: None,
        event: task.id.event,
        tag: task.tag.clone(),
        scheduled: Timestamp::from_millis(task.since_ms.unwrap_or_default()),
        attempt: task.attempt,
        max_attempts: None,
        deadline: None,
        failed: last_failure(task),
        interruptions: task.interruptions,
        stopping: false,
        state,
    };
    let kind = match () {
        () if is_unregistered => FindingKind::ActivityNotRegistered,
        () if task.interruptions > 0 => FindingKind::ActivityInterrupted,
        () if activity.is_failing() => FindingKind::ActivityFailing,
        () => return,
    };
    let place = format!("{} {}", task.name, task.tag.as_deref().unwrap_or_default());
    groups.entry((kind, place)).or_default().add_task(task, || activity);
}

fn activity_text(kind: FindingKind, example: &ActivityWait, now: Timestamp) -> String {
    let tag = example.tag.as_ref().map_or_else(String::new, |tag| format!(" with tag `{tag}`"));
    let name = format!("activity `{}`{tag}", example.name);
    match (kind, &example.failed) {
        (FindingKind::ActivityNotRegistered, _) => {
            let serves = if example.tag.is_some() { " and serves the tag" } else { "" };
            format!("{name} is queued, and no live node has it registered{serves}")
        }
        (FindingKind::ActivityInterrupted, _) => format!("the process ended while {name} ran"),
        (_, Some(failed)) => {
            let (attempts, age) = (example.attempt - 1, span(now - failed.at));
            format!("{name} fails repeatedly: {attempts} attempts, the last {age} ago with {}", failed.error)
        }
        (_, None) => format!("{name} fails repeatedly"),
    }
}
