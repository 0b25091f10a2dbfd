//! Work over all instances that a filter shows. It goes on when its caller leaves, and ends with the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use perennial::{Client, ClientError, InstanceView, Payload, Timestamp};
use serde::{Deserialize, Serialize};

use crate::listing::Selection;
use crate::problem::Problem;
use crate::stop::Stop;

/// How long an operation that has ended is remembered, and how many are.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
const MAX_KEPT: usize = 1_000;
/// How many failures are named.
const NAMED_FAILURES: usize = 20;
/// How many instances are listed at a time.
const PAGE: usize = 200;

/// What is done to each instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verb {
    Cancel,
    Terminate,
    Raise,
    Retry,
    Pause,
    Resume,
    Delete,
    /// Deletes those that have ended, and skips the others.
    Prune,
}

/// An action over a filter.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) verb: Verb,
    pub(crate) filter: String,
    pub(crate) reason: String,
    pub(crate) event: String,
    pub(crate) payload: Payload,
    pub(crate) force: bool,
    pub(crate) at_most: Option<u64>,
}

/// Where an operation stands.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Progress {
    pub(crate) id: String,
    action: Verb,
    filter: String,
    by: String,
    state: &'static str,
    began_ms: u64,
    seen: u64,
    done: u64,
    skipped: u64,
    failed: u64,
    failures: Vec<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_because: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Failure {
    id: String,
    error: String,
}

#[derive(Debug)]
struct Operation {
    progress: Mutex<Progress>,
    stops: AtomicBool,
    began: Instant,
    /// Finds it when the request is repeated.
    key: Option<String>,
}

/// The operations of this server.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<BTreeMap<String, Arc<Operation>>>);

impl Operations {
    /// The operation that a request with the same key began before.
    pub(crate) fn begun(&self, key: &str) -> Option<Progress> {
        let operations = lock(&self.0);
        operations.values().find(|operation| operation.key.as_deref() == Some(key)).map(|found| found.shown())
    }

    /// Begins an operation.
    pub(crate) fn begin(
        &self,
        client: Client,
        (selection, plan): (Selection, Plan),
        by: &str,
        key: Option<&str>,
        (now, stop): (Timestamp, Stop),
    ) -> Progress {
        let progress = Progress {
            id: uuid::Uuid::now_v7().simple().to_string(),
            action: plan.verb,
            filter: plan.filter.clone(),
            by: by.to_owned(),
            state: "running",
            began_ms: now.as_millis(),
            seen: 0,
            done: 0,
            skipped: 0,
            failed: 0,
            failures: Vec::new(),
            ended_because: None,
        };
        let operation = Arc::new(Operation {
            progress: Mutex::new(progress.clone()),
            stops: AtomicBool::new(false),
            began: Instant::now(),
            key: key.map(str::to_owned),
        });
        let mut operations = lock(&self.0);
        operations.retain(|_, kept| kept.began.elapsed() < KEPT || !kept.has_ended());
        while operations.len() >= MAX_KEPT
            && let Some(oldest) =
                operations.iter().find(|(_, kept)| kept.has_ended()).map(|(id, _)| id.clone())
        {
            operations.remove(&oldest);
        }
        operations.insert(progress.id.clone(), Arc::clone(&operation));
        tokio::spawn(async move { operation.run(&client, &selection, &plan, &stop).await });
        progress
    }

    pub(crate) fn all(&self) -> Vec<Progress> {
        lock(&self.0).values().rev().map(|operation| operation.shown()).collect()
    }

    pub(crate) fn get(&self, id: &str) -> Option<Progress> {
        lock(&self.0).get(id).map(|operation| operation.shown())
    }

    /// Stops an operation after its current instance.
    pub(crate) fn stop(&self, id: &str) -> Option<Progress> {
        let operation = lock(&self.0).get(id).cloned()?;
        operation.stops.store(true, Ordering::Relaxed);
        Some(operation.shown())
    }
}

impl Operation {
    fn shown(&self) -> Progress {
        lock(&self.progress).clone()
    }

    fn has_ended(&self) -> bool {
        lock(&self.progress).state != "running"
    }

    async fn run(&self, client: &Client, selection: &Selection, plan: &Plan, stop: &Stop) {
        let ended = self.work(client, selection, plan, stop).await;
        let mut progress = lock(&self.progress);
        (progress.state, progress.ended_because) = match ended {
            Ok(None) => ("done", None),
            Ok(Some(reason)) => ("stopped", Some(reason.to_owned())),
            Err(problem) => ("failed", Some(problem.text())),
        };
    }

    /// Works until the list ends. Returns why it ended earlier, if it did.
    async fn work(
        &self,
        client: &Client,
        selection: &Selection,
        plan: &Plan,
        stop: &Stop,
    ) -> Result<Option<&'static str>, Problem> {
        let mut after = None;
        loop {
            let page = selection.page(client, after, PAGE).await?;
            for row in &page.rows {
                if self.stops.load(Ordering::Relaxed) {
                    return Ok(Some("it was told to stop"));
                }
                if stop.is_stopped() {
                    return Ok(Some("the server stopped"));
                }
                if plan.at_most.is_some_and(|at_most| lock(&self.progress).done >= at_most) {
                    return Ok(Some("at_most was reached"));
                }
                let outcome = plan.apply(client, row).await;
                let mut progress = lock(&self.progress);
                progress.seen += 1;
                match outcome {
                    Ok(true) => progress.done += 1,
                    Ok(false) => progress.skipped += 1,
                    Err(error @ ClientError::Stopped { .. }) => return Err(error.into()),
                    Err(error) => {
                        progress.failed += 1;
                        if progress.failures.len() < NAMED_FAILURES {
                            progress.failures.push(Failure { id: row.id.clone(), error: error.to_string() });
                        }
                    }
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(None);
            }
        }
    }
}

impl Plan {
    /// Acts on an instance that was listed, and on no other that has its id by now. Returns whether it applied.
    async fn apply(&self, client: &Client, row: &InstanceView) -> Result<bool, ClientError> {
        let (client, id) = (client.bound_to(row.key), row.id.as_str());
        let is_final = row.status.is_final();
        let is_paused = row.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some());
        let done = match self.verb {
            Verb::Prune if !is_final => return Ok(false),
            Verb::Prune => client.delete(id, false).await.map(drop),
            Verb::Delete => client.delete(id, self.force).await.map(drop),
            _ if is_final => return Ok(false),
            Verb::Cancel => client.cancel(id, &self.reason).await,
            Verb::Terminate => client.terminate(id, &self.reason).await,
            Verb::Raise => client.raise_event(id, self.event.as_str(), self.payload.clone()).await,
            Verb::Retry if is_paused || row.blocked.is_none() => return Ok(false),
            Verb::Retry => client.retry(id).await,
            Verb::Pause => client.pause(id, self.reason.as_str()).await,
            Verb::Resume if !is_paused => return Ok(false),
            Verb::Resume => client.resume(id, self.reason.as_str()).await,
        };
        match done {
            Ok(()) => Ok(true),
            Err(
                ClientError::NotFound { .. }
                | ClientError::AnotherInstance { .. }
                | ClientError::Ended { .. }
                | ClientError::NotBlocked { .. }
                | ClientError::OrchestrationPaused { .. }
                | ClientError::NotEnded { .. },
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().expect("no code panics while it holds an operation")
}
