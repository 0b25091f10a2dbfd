//! Filters of lists. Most are answered from indexes; the others are scanned, within limits of rows and time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use perennial::client::{Count, PageKey, TaskState};
use perennial::explain::WaitReason;
use perennial::{Client, ClientError, Filter, InstanceKey, InstanceView, Payload, Status, Timestamp};

use crate::problem::Problem;
use crate::query::{Kind, Parameter, Query, parameter};

/// A scan looks at this many rows, or for this long.
const SCAN_ROWS: u64 = 50_000;
const SCAN_TIME: Duration = Duration::from_millis(500);
/// How many ids a request may name.
const IDS: usize = 100;
/// How many rows are read at a time.
const CHUNK: usize = 500;
/// How many are explained at a time, which reads their histories.
const EXPLAINED: usize = 20;
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
    parameter("order", Kind::OneOf(&["newest", "oldest"]), "The newest first (the default), or the oldest."),
];

/// A condition that no index answers.
#[derive(Debug)]
enum Scan {
    Names(Vec<String>),
    Versions(Vec<String>),
    Id(String),
    IdContains(String),
    Root(bool),
    BlockedCode(String),
    BlockedCause(String),
    MinDuration { ms: u64, now_ms: u64 },
    Retrying { keys: BTreeSet<InstanceKey>, wanted: bool },
    WaitsFor(String),
}

/// Which instances a list shows.
#[derive(Debug)]
pub(crate) struct Selection {
    filter: Filter,
    scans: Vec<Scan>,
    /// If several ids are asked for: these instances, and no other condition.
    ids: Vec<String>,
    /// Names the list in its cursors.
    pub(crate) list: String,
}

/// A part of a list.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    pub(crate) rows: Vec<InstanceView>,
    /// Where the list goes on.
    pub(crate) next: Option<PageKey>,
    /// How many rows were looked at, if the list was scanned.
    pub(crate) scanned: Option<u64>,
    /// Whether the scan ended before the page was full.
    pub(crate) partial: bool,
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
        let newest = query.text("order") != Some("oldest");
        let mut filter = Filter::new().statuses(statuses).newest_first(newest);
        let mut scans = Vec::new();
        filter = match query.list("name").as_slice() {
            [] => filter,
            [name] => filter.orchestration(*name),
            names => {
                scans.push(Scan::Names(owned(names)));
                filter
            }
        };
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
        let ids = several_ids(query)?;
        if !ids.is_empty() {
            return Ok(Selection { filter, scans: Vec::new(), ids, list });
        }
        let selection = Selection { filter, scans, ids, list };
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
        if let Some(wanted) = query.flag("retrying") {
            self.scans.push(Scan::Retrying { keys: retrying(client).await?, wanted });
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

    /// A page of the list.
    pub(crate) async fn page(
        &self,
        client: &Client,
        after: Option<PageKey>,
        limit: usize,
    ) -> Result<Selected, Problem> {
        if !self.ids.is_empty() {
            return self.named(client).await;
        }
        if self.scans.is_empty() {
            let page = client.list(self.filter.clone(), after, limit).await?;
            return Ok(Selected { rows: page.rows, next: page.next, ..Selected::default() });
        }
        let (began, mut after, mut scanned) = (Instant::now(), after, 0);
        let mut rows = Vec::new();
        let chunk = if self.explains() { EXPLAINED } else { CHUNK };
        loop {
            let page = client.list(self.filter.clone(), after, chunk).await?;
            let found = self.matching(client, &page.rows).await?;
            for (row, found) in page.rows.into_iter().zip(found) {
                scanned += 1;
                let key = row.key;
                if found {
                    rows.push(row);
                }
                if rows.len() == limit {
                    // There may be more, even in this chunk.
                    return Ok(Selected { rows, next: Some(key), scanned: Some(scanned), partial: false });
                }
            }
            after = page.next;
            if after.is_none() || scanned >= SCAN_ROWS || began.elapsed() >= SCAN_TIME {
                let partial = after.is_some();
                return Ok(Selected { rows, next: after, scanned: Some(scanned), partial });
            }
        }
    }

    /// Counts the list: exactly up to 10,000, and as far as a scan goes. Also returns how many rows a scan looked at.
    pub(crate) async fn count(&self, client: &Client) -> Result<(Count, Option<u64>), Problem> {
        if self.scans.is_empty() && self.ids.is_empty() {
            return Ok((client.count(self.filter.clone()).await?, None));
        }
        let exact = usize::try_from(Count::EXACT).unwrap_or(usize::MAX);
        let selected = self.page(client, None, exact).await?;
        let rows = selected.rows.len() as u64;
        Ok((Count { rows, more: selected.next.is_some() }, selected.scanned))
    }

    /// The instances with several ids, in their order.
    async fn named(&self, client: &Client) -> Result<Selected, Problem> {
        let mut rows = Vec::new();
        for id in &self.ids {
            match client.status(id).await {
                Ok(view) => rows.push(view),
                Err(ClientError::NotFound { .. } | ClientError::InvalidName { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Selected { rows, ..Selected::default() })
    }

    fn explains(&self) -> bool {
        self.scans.iter().any(|scan| matches!(scan, Scan::WaitsFor(_)))
    }

    /// Which rows meet the scanned conditions.
    async fn matching(&self, client: &Client, rows: &[InstanceView]) -> Result<Vec<bool>, Problem> {
        let mut found: Vec<bool> =
            rows.iter().map(|row| self.scans.iter().all(|scan| scan.meets(row))).collect();
        for scan in &self.scans {
            let Scan::WaitsFor(waits_for) = scan else { continue };
            let candidates = rows.iter().zip(&found).filter(|(_, found)| **found).map(|(row, _)| row.clone());
            let candidates: Vec<InstanceView> = candidates.collect();
            let explained = client.explain_each(&candidates).await?;
            let mut explained = explained.iter();
            for found in found.iter_mut().filter(|found| **found) {
                let waits = explained.next().map(|explained| explained.waits.as_slice()).unwrap_or_default();
                *found = waits.iter().any(|wait| is_for(&wait.reason, waits_for));
            }
        }
        Ok(found)
    }
}

/// The ids of a request that asks for several.
fn several_ids(query: &Query) -> Result<Vec<String>, Problem> {
    let ids: Vec<String> = query.all("id").map(str::to_owned).collect();
    if ids.len() < 2 {
        return Ok(Vec::new());
    }
    let others = query.canonical(&["id", "cursor", "limit", "include", "wait_ms", "by", "order"]);
    if ids.len() > IDS || !others.is_empty() {
        return Err(Problem::bad_request(format!(
            "several ids, at most {IDS}, are asked for without other filters"
        )));
    }
    Ok(ids)
}

impl Scan {
    fn meets(&self, row: &InstanceView) -> bool {
        let ended_ms = row.ended.map(Timestamp::as_millis);
        match self {
            Scan::Names(names) => names.contains(&row.name),
            Scan::Versions(versions) => versions.contains(&row.version),
            Scan::Id(id) => row.id == *id,
            Scan::IdContains(part) => row.id.contains(part.as_str()),
            Scan::Root(wanted) => row.parent.is_none() == *wanted,
            Scan::BlockedCode(code) => row.blocked.as_ref().is_some_and(|blocked| blocked.code == *code),
            Scan::BlockedCause(cause) => row.blocked.as_ref().is_some_and(|blocked| blocked.cause == *cause),
            Scan::MinDuration { ms, now_ms } => {
                ended_ms.unwrap_or(*now_ms).saturating_sub(row.created.as_millis()) >= *ms
            }
            Scan::Retrying { keys, wanted } => keys.contains(&row.key) == *wanted,
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

fn is_for(reason: &WaitReason, waits_for: &str) -> bool {
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
