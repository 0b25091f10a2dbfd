//! Filters of lists. Most are answered from indexes; the others are scanned, see `list_pages`.

use std::collections::BTreeSet;

use perennial::client::TaskState;
use perennial::explain::WaitReason;
use perennial::{Client, ClientError, Filter, InstanceKey, InstanceView, Payload, Status, Timestamp};

use crate::problem::{self, Problem};
use crate::query::{Kind, Parameter, Query, parameter};

/// How many ids and keys a request may name.
const IDS: usize = 100;
const KEYS: usize = 1_000;
/// How many activities are read at a time.
const CHUNK: usize = 500;
/// How many activities are read to find the instances that retry one.
const TASKS: usize = 50_000;

pub(crate) const STATUSES: &[&str] =
    &["pending", "running", "completed", "failed", "cancelled", "terminated"];
const MAX_TIME: u64 = u64::MAX >> 1;

/// The parameters of a filter.
pub(crate) const FILTERS: &[Parameter] = &[
    parameter("status", Kind::SomeOf(STATUSES), "One of these statuses, separated by commas."),
    parameter("name", Kind::Text, "One of these orchestrations, separated by commas."),
    parameter("version", Kind::Text, "One of these versions, separated by commas."),
    Parameter {
        many: true,
        ..parameter("id", Kind::Text, "The id; several times, one of these (at most 100).")
    },
    parameter("keys", Kind::Text, "One of these keys (at most 1,000), separated by commas."),
    parameter("id_prefix", Kind::Text, "How the id begins."),
    parameter("id_contains", Kind::Text, "A part of the id. Scanned."),
    parameter("parent", Kind::Key, "The key of the parent."),
    parameter("root", Kind::Flag, "Whether it is nobody's child. Scanned."),
    parameter("blocked", Kind::Flag, "Whether it is blocked."),
    parameter("paused", Kind::Flag, "Whether it is paused."),
    parameter("blocked_code", Kind::Text, "The code of what blocks it."),
    parameter("blocked_cause", Kind::Text, "The cause that blocks it."),
    parameter("retrying", Kind::Flag, "Whether one of its activities is retried."),
    parameter("waits_for", Kind::Text, "`activity:NAME`, `event:NAME`, `child:NAME` or `timer`. Scanned."),
    parameter("attr.", Kind::Json, "The value of an attribute: `attr.NAME=JSON`."),
    parameter("created_from_ms", Kind::Number(0, MAX_TIME), "Started then or later."),
    parameter("created_before_ms", Kind::Number(0, MAX_TIME), "Started before then."),
    parameter("ended_from_ms", Kind::Number(0, MAX_TIME), "Ended then or later."),
    parameter("ended_before_ms", Kind::Number(0, MAX_TIME), "Ended before then."),
    parameter("min_age_ms", Kind::Number(0, MAX_TIME), "Started at least so long ago. Scanned."),
    parameter("min_duration_ms", Kind::Number(0, MAX_TIME), "Took, or has taken, at least so long. Scanned."),
    parameter(
        "order",
        Kind::OneOf(&["newest", "oldest", "ended"]),
        "The newest first (the default), the oldest, or those that have ended, the last first.",
    ),
];

/// A condition that no index answers.
#[derive(Debug)]
pub(crate) enum Scan {
    Versions(Vec<String>),
    Id(String),
    IdContains(String),
    Root(bool),
    BlockedCode(String),
    BlockedCause(String),
    MinDuration { ms: u64, now_ms: u64 },
    NotRetrying(BTreeSet<InstanceKey>),
    WaitsFor(String),
}

/// Which instances a list shows.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) filter: Filter,
    /// If several orchestrations are asked for: one of these.
    pub(crate) names: Vec<String>,
    pub(crate) scans: Vec<Scan>,
    /// If instances are asked for one by one: these, and no other condition.
    pub(crate) named: Named,
    /// Those of which an activity is retried, if only they are asked for.
    pub(crate) retrying: Option<BTreeSet<InstanceKey>>,
    /// Whether the last ended come first.
    pub(crate) by_end: bool,
    /// Names the list in its cursors.
    pub(crate) list: String,
}

/// Instances that a request names one by one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) ids: Vec<String>,
    pub(crate) keys: Vec<InstanceKey>,
}

impl Named {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.keys.is_empty()
    }

    /// The instances of a request that names some.
    fn of(query: &Query) -> Result<Named, Problem> {
        let ids: Vec<String> = query.all("id").map(str::to_owned).collect();
        let keys: Vec<InstanceKey> =
            query.list("keys").into_iter().map(problem::key).collect::<Result<_, _>>()?;
        // One id is a filter like others.
        if ids.len() < 2 && query.text("keys").is_none() {
            return Ok(Named::default());
        }
        let others = query.canonical(&["id", "keys", "cursor", "limit", "include", "wait_ms", "by", "order"]);
        if ids.len() > IDS || keys.len() > KEYS || !others.is_empty() || ids.is_empty() == keys.is_empty() {
            return Err(Problem::bad_request(format!(
                "several ids (at most {IDS}) or keys (at most {KEYS}) are asked for without other filters"
            )));
        }
        Ok(Named { ids, keys })
    }
}

impl Selection {
    /// Reads a filter from text, in the form of a query.
    pub(crate) async fn parse(client: &Client, text: &str) -> Result<Selection, Problem> {
        let query = Query::parse(Some(text), FILTERS)?;
        Selection::of(client, &query).await
    }

    /// Reads the filter of a request.
    pub(crate) async fn of(client: &Client, query: &Query) -> Result<Selection, Problem> {
        let statuses = query.list("status").into_iter().filter_map(Status::from_name);
        let (newest, by_end) = (query.text("order") != Some("oldest"), query.text("order") == Some("ended"));
        let mut filter = Filter::new().statuses(statuses).newest_first(newest);
        let mut scans = Vec::new();
        let mut names = owned(&query.list("name"));
        names.sort();
        names.dedup();
        if let [name] = names.as_slice() {
            filter = filter.orchestration(name.as_str());
            names.clear();
        }
        filter = match query.list("version").as_slice() {
            [] => filter,
            [version] => filter.version(*version),
            versions => {
                scans.push(Scan::Versions(owned(versions)));
                filter
            }
        };
        if let Some(prefix) = query.text("id_prefix") {
            filter = filter.id_prefix(prefix);
        }
        if let Some(parent) = query.key("parent")? {
            filter = filter.parent(parent);
        }
        if let Some(blocked) = query.flag("blocked") {
            filter = filter.blocked(blocked);
        }
        if let Some(paused) = query.flag("paused") {
            filter = filter.paused(paused);
        }
        for (name, value) in query.beginning("attr.") {
            let value =
                Payload::from_json(value).map_err(|_| Problem::bad_request("an attribute is not JSON"))?;
            filter = filter.attribute(name, value);
        }
        filter = times(filter, query);
        let list = query.canonical(&["cursor", "limit", "include", "wait_ms", "by"]);
        let named = Named::of(query)?;
        let is_named = !named.is_empty();
        let selection = Selection { filter, names, scans, named, retrying: None, by_end, list };
        if is_named {
            return Ok(selection);
        }
        selection.with_scans(client, query).await
    }

    async fn with_scans(mut self, client: &Client, query: &Query) -> Result<Selection, Problem> {
        if let Some(id) = query.text("id") {
            // Its time narrows the rows to a few, whatever other ids begin with this one.
            self.filter = match client.status(id).await {
                Ok(view) => {
                    let next = Timestamp::from_millis(view.created.as_millis().saturating_add(1));
                    self.filter.id_prefix(id).created_from(view.created).created_before(next)
                }
                // No instance has the id, or can have it.
                Err(ClientError::NotFound { .. } | ClientError::InvalidName { .. }) => {
                    self.filter.id_prefix(id).created_before(Timestamp::UNIX_EPOCH)
                }
                Err(error) => return Err(error.into()),
            };
            self.scans.push(Scan::Id(id.to_owned()));
        }
        self.scans.extend(query.text("id_contains").map(|part| Scan::IdContains(part.to_owned())));
        self.scans.extend(query.flag("root").map(Scan::Root));
        for (name, scan) in [
            ("blocked_code", Scan::BlockedCode as fn(String) -> Scan),
            ("blocked_cause", Scan::BlockedCause as fn(String) -> Scan),
        ] {
            if let Some(text) = query.text(name) {
                self.filter = self.filter.blocked(true);
                self.scans.push(scan(text.to_owned()));
            }
        }
        let now_ms = match query.number("min_age_ms").or(query.number("min_duration_ms")) {
            Some(_) => client.now().await?.as_millis(),
            None => 0,
        };
        if let Some(age_ms) = query.number("min_age_ms") {
            self.filter = self.filter.created_before(Timestamp::from_millis(now_ms.saturating_sub(age_ms)));
        }
        self.scans.extend(query.number("min_duration_ms").map(|ms| Scan::MinDuration { ms, now_ms }));
        match query.flag("retrying") {
            Some(true) => self.retrying = Some(retrying(client).await?),
            Some(false) => self.scans.push(Scan::NotRetrying(retrying(client).await?)),
            None => {}
        }
        if let Some(waits_for) = query.text("waits_for") {
            let (kind, name) = waits_for.split_once(':').unwrap_or((waits_for, ""));
            match (kind, name) {
                ("timer", "") => {}
                ("activity" | "event" | "child", name) if !name.is_empty() => {}
                _ => {
                    let problem = "waits_for is `activity:NAME`, `event:NAME`, `child:NAME` or `timer`";
                    return Err(Problem::bad_request(problem));
                }
            }
            self.filter = self.filter.statuses([Status::Pending, Status::Running]);
            self.scans.push(Scan::WaitsFor(waits_for.to_owned()));
        }
        Ok(self)
    }
}

impl Scan {
    pub(crate) fn meets(&self, row: &InstanceView) -> bool {
        let ended_ms = row.ended.map(Timestamp::as_millis);
        match self {
            Scan::Versions(versions) => versions.contains(&row.version),
            Scan::Id(id) => row.id == *id,
            Scan::IdContains(part) => row.id.contains(part.as_str()),
            Scan::Root(wanted) => row.parent.is_none() == *wanted,
            Scan::BlockedCode(code) => row.blocked.as_ref().is_some_and(|blocked| blocked.code == *code),
            Scan::BlockedCause(cause) => row.blocked.as_ref().is_some_and(|blocked| blocked.cause == *cause),
            Scan::MinDuration { ms, now_ms } => {
                ended_ms.unwrap_or(*now_ms).saturating_sub(row.created.as_millis()) >= *ms
            }
            Scan::NotRetrying(keys) => !keys.contains(&row.key),
            // Decided by reading histories.
            Scan::WaitsFor(_) => true,
        }
    }
}

fn times(mut filter: Filter, query: &Query) -> Filter {
    let time = |name: &str| query.number(name).map(Timestamp::from_millis);
    if let Some(time) = time("created_from_ms") {
        filter = filter.created_from(time);
    }
    if let Some(time) = time("created_before_ms") {
        filter = filter.created_before(time);
    }
    if let Some(time) = time("ended_from_ms") {
        filter = filter.ended_from(time);
    }
    if let Some(time) = time("ended_before_ms") {
        filter = filter.ended_before(time);
    }
    filter
}

/// The instances with an activity that waits for another attempt.
async fn retrying(client: &Client) -> Result<BTreeSet<InstanceKey>, Problem> {
    let (mut keys, mut after, mut read) = (BTreeSet::new(), None, 0);
    loop {
        let page = client.task_page(after, CHUNK).await?;
        read += page.rows.len();
        let retried = page.rows.iter().filter(|task| task.attempt > 1 && task.state == TaskState::Waiting);
        keys.extend(retried.map(|task| task.id.key));
        after = page.next;
        if after.is_none() || read >= TASKS {
            return Ok(keys);
        }
    }
}

pub(crate) fn is_for(reason: &WaitReason, waits_for: &str) -> bool {
    match reason {
        WaitReason::Activity(activity) => waits_for.strip_prefix("activity:") == Some(activity.name.as_str()),
        WaitReason::Event { name, .. } => waits_for.strip_prefix("event:") == Some(name.as_str()),
        WaitReason::Child { name, .. } => waits_for.strip_prefix("child:") == Some(name.as_str()),
        WaitReason::Timer { .. } => waits_for == "timer",
        _ => false,
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
