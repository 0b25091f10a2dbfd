//! Work over all instances that a filter shows. It goes on when its caller leaves, and ends with the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use perennial::client::{self, Action};
use perennial::{Client, ErrorCode, Timestamp};
use serde::{Deserialize, Serialize};

use crate::listing::Selection;
use crate::problem::Problem;
use crate::routes::CountView;
use crate::stop::Stop;

/// How long an operation that has ended is remembered, and how many are.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
const MAX_KEPT: usize = 1_000;
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
    /// Makes the attempts that activities wait for now.
    RetryActivities,
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
    pub(crate) action: Action,
    pub(crate) at_most: Option<u64>,
    pub(crate) total: CountView,
    pub(crate) reason: Option<String>,
    pub(crate) event: Option<String>,
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
    reasons: Vec<Reason>,
    /// How many instances the filter showed when it began.
    total: CountView,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_because: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Failure {
    id: String,
    error: String,
}

/// How many failed for one reason.
#[derive(Clone, Debug, Serialize)]
struct Reason {
    code: String,
    text: &'static str,
    count: u64,
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
        with_key(&lock(&self.0), key).map(Operation::shown)
    }

    /// Begins an operation, unless one with its key began in the meantime.
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
            reasons: Vec::new(),
            total: plan.total,
            reason: plan.reason.clone(),
            event: plan.event.clone(),
            ended_ms: None,
            ended_because: None,
        };
        let operation = Arc::new(Operation {
            progress: Mutex::new(progress.clone()),
            stops: AtomicBool::new(false),
            began: Instant::now(),
            key: key.map(str::to_owned),
        });
        let mut operations = lock(&self.0);
        if let Some(begun) = key.and_then(|key| with_key(&operations, key)) {
            return begun.shown();
        }
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
        let now = client.now().await.ok();
        let mut progress = lock(&self.progress);
        progress.ended_ms = now.map(Timestamp::as_millis);
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
        let (mut after, mut report) = (None, client::Progress::default());
        loop {
            let page = selection.page(client, after, PAGE).await?;
            let tell = |so_far: &client::Progress| lock(&self.progress).note(so_far);
            let why_not = |so_far: &client::Progress| match () {
                () if self.stops.load(Ordering::Relaxed) => Some("it was told to stop"),
                () if stop.is_stopped() => Some("the server stopped"),
                () if plan.at_most.is_some_and(|at_most| so_far.done >= at_most) => {
                    Some("at_most was reached")
                }
                () => None,
            };
            let goes_on = |so_far: &client::Progress| why_not(so_far).is_none();
            if !client.act_on(&page.rows, &plan.action, &mut report, tell, goes_on).await? {
                return Ok(why_not(&report).or(Some("it was told to stop")));
            }
            after = page.next;
            if after.is_none() {
                return Ok(None);
            }
        }
    }
}

impl Progress {
    fn note(&mut self, so_far: &client::Progress) {
        (self.seen, self.done) = (so_far.seen, so_far.done);
        (self.skipped, self.failed) = (so_far.skipped, so_far.failed);
        for (id, error) in so_far.failures.iter().skip(self.failures.len()) {
            self.failures.push(Failure { id: id.clone(), error: error.clone() });
        }
        let title = |code: &str| code.parse::<ErrorCode>().map_or("", ErrorCode::title);
        let reason =
            |(code, count): (&String, &u64)| Reason { code: code.clone(), text: title(code), count: *count };
        self.reasons = so_far.reasons.iter().map(reason).collect();
    }
}

fn with_key<'a>(operations: &'a BTreeMap<String, Arc<Operation>>, key: &str) -> Option<&'a Operation> {
    operations.values().map(|kept| &**kept).find(|kept| kept.key.as_deref() == Some(key))
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().expect("no code panics while it holds an operation")
}
