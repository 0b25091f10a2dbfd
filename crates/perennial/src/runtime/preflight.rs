//! Preflight: replays every open instance of a store with the code of this binary, before a deployment.
//!
//! It is read-only: the store is opened beside its owner, and decisions of the code are discarded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perennial_core::ErrorCode;
use perennial_core::history::PayloadSource;
use perennial_core::shard::{HandlerSource, Message};
use perennial_core::store::{
    Count, Criteria, InstanceRow, LoadedInstance, PageLimit, Reply, Status, Store, StoreError,
    read_turns_with,
};
use perennial_core::{EventId, Execution, ExecutionOptions, HistoryError, Interrupter, Turn, TurnFailure};
use serde::Serialize;
use tokio::sync::oneshot;

use super::builder::{RuntimeBuilder, RuntimeOptions};
use super::registry::Registry;
use crate::codec::encoded;
use crate::error::{Error, StartError};
use crate::store_url::open_guest;

/// How many rows are listed at a time.
const PAGE: usize = 200;
/// How many ids of a kind are kept; the rest are counted.
const IDS_KEPT: usize = 20;
/// How long a turn past its deadline may take to unwind.
const UNWIND_GRACE: Duration = Duration::from_secs(1);

/// Progress of a preflight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreflightProgress {
    /// Number of instances that were checked.
    pub checked: u64,
    /// Number of instances at the beginning.
    pub total: Count,
}

/// The result of a preflight.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PreflightReport {
    /// Number of open instances that were checked.
    pub checked: u64,
    /// Number of instances that can continue with this code.
    pub compatible: u64,
    /// Instances that cannot: the code diverges from the history, or fails.
    pub incompatible: Vec<Incompatible>,
    /// Versions that open instances are pinned to and that are not registered.
    pub missing: Vec<MissingVersion>,
}

/// An open instance that cannot continue with this code.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Incompatible {
    /// The id of the instance.
    pub id: String,
    /// The name of the orchestration.
    pub name: String,
    /// The version that it is pinned to.
    pub version: String,
    /// The number of the execution.
    pub execution: u64,
    /// The stable code of the error.
    pub code: ErrorCode,
    /// The event at which the code diverges from the history, or whose payload cannot be decoded.
    pub event: Option<EventId>,
    /// The source line that diverged, as `file:line:column`, if known.
    pub location: Option<String>,
    /// The error in one line, without payloads.
    pub reason: String,
    /// The whole report, with the beginning of payloads.
    pub report: String,
}

/// A version that is not registered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MissingVersion {
    /// The name of the orchestration.
    pub name: String,
    /// The version; empty if any version would do.
    pub version: String,
    /// The number of open instances that need it.
    pub instances: u64,
    /// The ids of the first of them.
    pub ids: Vec<String>,
}

impl PreflightReport {
    /// Whether every open instance can continue with this code.
    pub fn is_ok(&self) -> bool {
        self.incompatible.is_empty() && self.missing.is_empty()
    }
}

/// Writes one line per problem, and a summary.
impl fmt::Display for PreflightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.incompatible {
            write!(f, "{}", found.reason)?;
            match &found.location {
                Some(location) => writeln!(f, ", at {location}")?,
                None => writeln!(f)?,
            }
        }
        for MissingVersion { name, version, instances, ids } in &self.missing {
            let version = if version.is_empty() { "(any version)" } else { version };
            let more = if *instances > ids.len() as u64 { ", …" } else { "" };
            writeln!(
                f,
                "{}: {name} {version} is not registered; {instances} open instance{} it: {}{more}",
                ErrorCode::MissingCode.prefix(),
                if *instances == 1 { " needs" } else { "s need" },
                ids.join(", "),
            )?;
        }
        let missing: u64 = self.missing.iter().map(|missing| missing.instances).sum();
        let PreflightReport { checked, compatible, incompatible, .. } = self;
        write!(
            f,
            "{checked} open: {compatible} compatible, {} incompatible, {missing} without code",
            incompatible.len()
        )
    }
}

/// The result for one instance.
enum Finding {
    Compatible,
    Incompatible(Box<Incompatible>),
    Missing {
        name: String,
        version: String,
    },
    /// The instance has ended or was deleted.
    Gone,
}

impl RuntimeBuilder {
    /// Replays every open instance of the store with the code that is registered here, and reports which of
    /// them can continue with it. Run it before a deployment, beside the process that owns the store. Nothing
    /// is changed. No activity runs, so the state that activities declare need not be there.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn hello(_: OrchestrationContext, name: String) -> Result<String, String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), perennial::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    /// # Runtime::open(&url).register(hello).start().await?.shutdown().await?;
    /// let report = Runtime::open(&url).register(hello).preflight().await?;
    /// println!("{report}");
    /// assert!(report.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preflight(self) -> Result<PreflightReport, Error> {
        self.preflight_with(|_| ()).await
    }

    /// Like [`RuntimeBuilder::preflight`], and calls `progress` after each instance.
    pub async fn preflight_with(
        self,
        mut progress: impl FnMut(PreflightProgress),
    ) -> Result<PreflightReport, Error> {
        let (url, options, registry, given) = self.into_parts();
        let registry = Arc::new(registry?);
        let is_given = given.is_some();
        let store = match given {
            Some(store) => store.on(tokio::runtime::Handle::try_current().map_err(|_| StartError::NoTokio)?),
            None => open_guest(&url)?,
        };
        let store = encoded(store, &options.shard.codecs);
        let outcome = check_all(&*store, &registry, &options, &mut progress).await;
        if !is_given {
            let _ = call(&*store, |store, reply| store.close(reply)).await;
        }
        Ok(outcome?)
    }
}

async fn check_all(
    store: &dyn Store,
    registry: &Arc<Registry>,
    options: &RuntimeOptions,
    progress: &mut impl FnMut(PreflightProgress),
) -> Result<PreflightReport, StoreError> {
    let open = Criteria { statuses: vec![Status::Pending, Status::Running], ..Criteria::default() };
    let total = call(store, |store, reply| store.count(open.clone(), Count::EXACT, reply)).await?;
    let mut report = PreflightReport::default();
    let mut missing: BTreeMap<(String, String), (u64, Vec<String>)> = BTreeMap::new();
    let mut after = None;
    loop {
        let page = call(store, |store, reply| store.list(open.clone(), after, PAGE, reply)).await?;
        for row in page.rows {
            match check(store, registry, options, &row).await? {
                Finding::Gone => continue,
                Finding::Compatible => report.compatible += 1,
                Finding::Incompatible(found) => report.incompatible.push(*found),
                Finding::Missing { name, version } => {
                    let (instances, ids) = missing.entry((name, version)).or_default();
                    *instances += 1;
                    if ids.len() < IDS_KEPT {
                        ids.push(row.id);
                    }
                }
            }
            report.checked += 1;
            progress(PreflightProgress { checked: report.checked, total });
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let versions = missing.into_iter();
    let versions =
        versions.map(|((name, version), (instances, ids))| MissingVersion { name, version, instances, ids });
    report.missing = versions.collect();
    Ok(report)
}

async fn check(
    store: &dyn Store,
    registry: &Arc<Registry>,
    options: &RuntimeOptions,
    row: &InstanceRow,
) -> Result<Finding, StoreError> {
    let load = |store: &dyn Store, reply| store.load(row.shard, row.key, 0, PageLimit::rows(1_000), reply);
    let loaded = match call(store, load).await {
        Ok(Some(loaded)) if !loaded.row.status.is_final() => loaded,
        Ok(_) => return Ok(Finding::Gone),
        Err(StoreError::CorruptRow(problem)) => {
            let reason = format!("{:?} cannot be read: {problem}", row.id);
            return Ok(incompatible(row, ErrorCode::CorruptRow, None, None, reason.clone(), reason));
        }
        Err(error) => return Err(error),
    };
    if loaded.turns.is_empty() {
        return Ok(check_start(registry, &loaded));
    }
    let turns = match read_turns_with(&options.shard.codecs, row.key, &loaded.turns) {
        Ok(read) => read.turns,
        Err(error) => return Ok(failed(&loaded.row, TurnFailure::from(error))),
    };
    let Some(started) = turns.first().and_then(Turn::started).cloned() else {
        let reason = format!("{:?} does not begin with a start event", row.id);
        return Ok(incompatible(&loaded.row, ErrorCode::CorruptHistory, None, None, reason.clone(), reason));
    };
    let Some(handler) = registry.handler(&started.name, &started.version) else {
        return Ok(Finding::Missing { name: started.name, version: started.version });
    };
    let deadline = options.turn_deadline;
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    Ok(match Execution::new(row.id.as_str(), handler, started, options) {
        Err(error) => failed(&loaded.row, TurnFailure::from(error)),
        Ok(execution) => match replay(execution, turns, deadline).await {
            Ok(()) => Finding::Compatible,
            Err(failure) => failed(&loaded.row, failure),
        },
    })
}

/// Checks an execution that has not begun: its code must be registered, at the requested version if there is
/// one, and must be able to decode the input.
fn check_start(registry: &Registry, loaded: &LoadedInstance) -> Finding {
    let start = loaded.inbox.rows.iter().find_map(|message| match Message::decode(&message.body) {
        Ok(Message::Start(start)) => Some(start),
        _ => None,
    });
    let (name, asked, input) = match start {
        Some(start) => (start.started.name, start.started.version, Some(start.started.input)),
        None => (loaded.row.name.clone(), loaded.row.version.clone(), None),
    };
    let version = if asked.is_empty() { registry.latest(&name) } else { Some(asked.clone()) };
    let Some(handler) = version.and_then(|version| registry.handler(&name, &version)) else {
        return Finding::Missing { name, version: asked };
    };
    match input.map_or(Ok(()), |input| handler.check_input(&input)) {
        Ok(()) => Finding::Compatible,
        Err(mismatch) => {
            let (type_name, problem) = (mismatch.type_name, mismatch.reason());
            let failure = HistoryError::PayloadMismatch {
                event: EventId(1),
                type_name,
                problem,
                came_with: PayloadSource::Other,
            };
            failed(&loaded.row, TurnFailure::from(failure))
        }
    }
}

/// Replays on a separate thread, without a tokio context, as the runtime does.
async fn replay(mut execution: Execution, turns: Vec<Turn>, deadline: Duration) -> Result<(), TurnFailure> {
    let interrupter: Interrupter = execution.interrupter();
    let done: Arc<AtomicU64> = Arc::default();
    let (sender, mut receiver) = oneshot::channel();
    let counter = Arc::clone(&done);
    std::thread::spawn(move || {
        let outcome = turns.iter().try_for_each(|turn| {
            execution.replay_turn(turn)?;
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        drop(execution);
        let _ = sender.send(outcome);
    });
    let lost = |_| Err(TurnFailure::DeadlinePassed);
    let mut seen = 0;
    loop {
        if let Ok(outcome) = tokio::time::timeout(deadline, &mut receiver).await {
            return outcome.unwrap_or_else(lost);
        }
        let now = done.load(Ordering::Relaxed);
        if now == seen {
            interrupter.raise();
            let unwound = tokio::time::timeout(UNWIND_GRACE, &mut receiver).await;
            return unwound.map_or(Err(TurnFailure::DeadlinePassed), |outcome| outcome.unwrap_or_else(lost));
        }
        seen = now;
    }
}

fn failed(row: &InstanceRow, failure: TurnFailure) -> Finding {
    let code = failure.code();
    match failure {
        TurnFailure::Nondeterminism(found) => {
            let (reason, report) = (found.to_string(), found.report());
            incompatible(row, code, Some(found.event), found.location, reason, report)
        }
        other => {
            let event = match &other {
                TurnFailure::History(HistoryError::PayloadMismatch { event, .. }) => Some(*event),
                _ => None,
            };
            let reason = format!("{other}, in instance {:?} ({} {})", row.id, row.name, row.version);
            incompatible(row, code, event, None, reason.clone(), reason)
        }
    }
}

fn incompatible(
    row: &InstanceRow,
    code: ErrorCode,
    event: Option<EventId>,
    location: Option<String>,
    reason: String,
    report: String,
) -> Finding {
    Finding::Incompatible(Box::new(Incompatible {
        id: row.id.clone(),
        name: row.name.clone(),
        version: row.version.clone(),
        execution: row.execution,
        code,
        event,
        location,
        reason,
        report,
    }))
}

async fn call<T: Send + 'static>(
    store: &dyn Store,
    call: impl FnOnce(&dyn Store, Reply<T>),
) -> Result<T, StoreError> {
    let (sender, receiver) = oneshot::channel();
    call(
        store,
        Box::new(move |answer| {
            let _ = sender.send(answer);
        }),
    );
    receiver.await.unwrap_or(Err(StoreError::Closed))
}
