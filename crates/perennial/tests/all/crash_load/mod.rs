//! The mixed load of the crash test: what its worker runs, and what it writes down beside the store.
#![allow(dead_code, reason = "no test file needs all of it")]

pub(crate) mod guests;
pub(crate) mod kinds;
pub(crate) mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial::history::EventId;
use perennial::{ActivityContext, Client, ClientError, Filter, Payload, Runtime, RuntimeOptions, Status};
use perennial_testkit::invariants::ClientLog;
use tempfile::TempDir;

use crate::support::{Place, failed, number};
use crate::workers::{DIRECTORY, Worker};
use kinds::{GOOD_ATTEMPT, PROGRESS, pings};

/// What the worker starts itself, and how many of each it has under way.
const KINDS: [(&str, usize); 7] = [
    ("sequence", 3),
    ("fanout", 2),
    ("timers", 3),
    ("events", 3),
    ("retries", 3),
    ("heartbeats", 2),
    ("family", 2),
];

/// Names the store of a worker process.
const STORE: &str = "PERENNIAL_CRASH_STORE";

/// How a worker process works. It is told through its environment.
#[derive(Clone, Copy)]
pub(crate) struct WorkOptions {
    /// Whether it starts nothing itself.
    pub(crate) drains: bool,
    /// How many executions it keeps in memory per shard: with none, each is replayed for each of its turns.
    pub(crate) max_resident: usize,
    pub(crate) lease_ms: u64,
}

impl WorkOptions {
    const NAMES: [&str; 3] =
        ["PERENNIAL_CRASH_DRAINS", "PERENNIAL_CRASH_RESIDENT", "PERENNIAL_CRASH_LEASE_MS"];

    pub(crate) fn settings(self) -> Vec<(&'static str, String)> {
        let values = [u64::from(self.drains), self.max_resident as u64, self.lease_ms];
        WorkOptions::NAMES.into_iter().zip(values.map(|value| value.to_string())).collect()
    }

    fn of_environment() -> WorkOptions {
        let [drains, max_resident, lease_ms] =
            WorkOptions::NAMES.map(|name| std::env::var(name).unwrap().parse::<u64>().unwrap());
        WorkOptions { drains: drains > 0, max_resident: usize::try_from(max_resident).unwrap(), lease_ms }
    }
}

impl Default for WorkOptions {
    fn default() -> WorkOptions {
        WorkOptions { drains: false, max_resident: 1_000, lease_ms: 30_000 }
    }
}

/// Is a worker process, if this process is one.
pub(crate) fn work_here() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let load = Load::of(directory.into(), std::env::var(STORE).unwrap());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(load.work(WorkOptions::of_environment()));
}

/// The store and the logs beside it. Every line is written at once, after what it says was acknowledged.
#[derive(Clone)]
pub(crate) struct Load {
    directory: Arc<PathBuf>,
    store: Arc<str>,
    log: Arc<File>,
    /// Deletes the directory in the end, where it is not that of the store.
    _own: Option<Arc<TempDir>>,
}

impl Load {
    /// A load on a store that is empty.
    pub(crate) fn at(place: &Place) -> Load {
        match place.directory() {
            Some(directory) => Load::of(directory, place.url()),
            None => {
                let own = tempfile::tempdir().unwrap();
                let load = Load::of(own.path().to_owned(), place.url());
                Load { _own: Some(Arc::new(own)), ..load }
            }
        }
    }

    fn of(directory: PathBuf, store: String) -> Load {
        let log = OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
        Load { directory: Arc::new(directory), store: store.into(), log: Arc::new(log), _own: None }
    }

    /// Starts a worker process: this program, as its test of this name.
    pub(crate) fn worker(&self, test: &str, options: WorkOptions) -> Worker {
        let mut settings = options.settings();
        settings.push((STORE, self.url()));
        Worker::spawn(test, &self.directory, &settings)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn url(&self) -> String {
        self.store.to_string()
    }

    fn note(&self, line: &str) {
        (&*self.log).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn note_start(&self, id: &str) {
        self.note(&format!("start|{id}"));
    }

    pub(crate) fn note_event(&self, sender: &str, id: &str, event: &str, payload: &str) {
        self.note(&format!("event|{sender}|{id}|{event}|{payload}"));
    }

    pub(crate) fn note_update(&self, id: &str, key: &str) {
        self.note(&format!("update|{id}|{key}"));
    }

    /// The keys of acknowledged updates, by instance.
    pub(crate) fn updates(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut updates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in self.lines() {
            if let ["update", id, key] = line.split('|').collect::<Vec<_>>()[..] {
                updates.entry(id.to_owned()).or_default().insert(key.to_owned());
            }
        }
        updates
    }

    /// How often an activity ran again, other than as a retry and for instances that replace each other.
    pub(crate) fn interrupted_runs(&self) -> usize {
        let mut runs: BTreeMap<String, usize> = BTreeMap::new();
        let is_meant =
            |line: &&String| !line.starts_with("run|retries-") && !line.starts_with("run|phoenix|");
        for line in self.lines().iter().filter(|line| line.starts_with("run|")).filter(is_meant) {
            *runs.entry(line.clone()).or_default() += 1;
        }
        runs.values().map(|runs| runs - 1).sum()
    }

    /// How many activities have run: that is how far the load is.
    pub(crate) fn runs(&self) -> usize {
        self.lines().iter().filter(|line| line.starts_with("run|")).count()
    }

    /// Where the last worker is told that nobody wants anything of it any more.
    fn finish_file(&self) -> PathBuf {
        self.directory.join("finish")
    }

    pub(crate) fn finish(&self) {
        fs::write(self.finish_file(), "").unwrap();
    }

    /// Where a worker says that it owns the store.
    fn at_work_file(&self) -> PathBuf {
        self.directory.join("at-work")
    }

    /// Whether a worker has said so since this was asked last.
    pub(crate) fn worker_is_at_work(&self) -> bool {
        fs::remove_file(self.at_work_file()).is_ok()
    }

    /// What was written down. An event that was sent again with its key is one event.
    pub(crate) fn client_log(&self) -> ClientLog {
        let mut log = ClientLog::default();
        let mut events = BTreeSet::new();
        for line in self.lines() {
            match line.split('|').collect::<Vec<_>>()[..] {
                ["start", id] => log.started(id),
                ["event", sender, id, event, payload] => {
                    if events.insert((id.to_owned(), event.to_owned(), payload.to_owned())) {
                        log.raised(sender, id, event, payload);
                    }
                }
                ["run", id, execution, event] => {
                    log.ran(id, execution.parse().unwrap(), EventId(event.parse().unwrap()));
                }
                ["update", ..] => {}
                _ => panic!("half a line: {line:?}"),
            }
        }
        log
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.directory.join("log")).unwrap().lines().map(str::to_owned).collect()
    }

    /// What the worker process does: goes on with what is there, and keeps starting more unless it only drains; when
    /// nobody wants anything of it any more, it waits for all of it.
    pub(crate) async fn work(self, options: WorkOptions) {
        let runtime = self.runtime(&options).await;
        fs::write(self.at_work_file(), "").unwrap();
        let client = runtime.client();
        // Events that were never sent, or never acknowledged, before the last kill; also of those whose start was not.
        let statuses = vec![Status::Pending, Status::Running];
        let filter = Filter::new().statuses(statuses).id_prefix("events-");
        let halted = client.list(filter, None, 1_000).await.unwrap().rows.into_iter().map(|row| row.id);
        let helpers = halted.map(|id| {
            let (load, client) = (self.clone(), client.clone());
            tokio::spawn(async move { load.ping(&client, &id).await })
        });
        let mut tasks: Vec<_> = helpers.collect();
        let number_of =
            |line: &String| line.strip_prefix("start|")?.rsplit('-').next()?.parse::<usize>().ok();
        let next = self.lines().iter().filter_map(number_of).max().map_or(0, |last| last + 1);
        let next = Arc::new(AtomicUsize::new(next));
        for (kind, at_a_time) in KINDS.into_iter().filter(|_| !options.drains) {
            for _ in 0..at_a_time {
                let (load, client, next) = (self.clone(), client.clone(), Arc::clone(&next));
                tasks.push(tokio::spawn(async move {
                    while !load.finish_file().exists() {
                        load.run_one(&client, kind, next.fetch_add(1, Ordering::Relaxed)).await;
                    }
                }));
            }
        }
        futures::future::try_join_all(tasks).await.unwrap();
        while !self.finish_file().exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for line in self.lines() {
            if let Some(id) = line.strip_prefix("start|") {
                client.wait(id).await.unwrap();
            }
        }
        runtime.shutdown().await.unwrap();
    }

    async fn runtime(&self, work: &WorkOptions) -> Runtime {
        let mut options =
            RuntimeOptions { lease: Duration::from_millis(work.lease_ms), ..RuntimeOptions::default() };
        options.shard.max_resident = work.max_resident;
        // Nobody is to blame: what is interrupted again and again is tried alone, and soon.
        options.shard.healthy = Duration::from_millis(200);
        let (added, tried, progressed) = (self.clone(), self.clone(), self.clone());
        let add_one = move |ctx: ActivityContext, value: Payload| {
            added.note_run(&ctx);
            async move {
                tokio::time::sleep(Duration::from_millis(value.size() as u64)).await;
                let value: u64 = value.decode().map_err(failed)?;
                Ok::<_, Payload>(number(value + 1))
            }
        };
        let flaky = move |ctx: ActivityContext, value: Payload| {
            tried.note_run(&ctx);
            async move {
                match value.decode::<u64>().map_err(failed)? {
                    0 => Err(Payload::from("hopeless")),
                    _ if ctx.attempt() < GOOD_ATTEMPT => Err(Payload::from("not yet")),
                    _ => Ok(value),
                }
            }
        };
        let progress = move |ctx: ActivityContext, _: Payload| {
            progressed.note_run(&ctx);
            async move {
                let done: u64 = ctx.decode_details().unwrap_or(0);
                for step in done..PROGRESS {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    ctx.heartbeat(number(step + 1));
                }
                Ok::<_, Payload>(number(PROGRESS))
            }
        };
        kinds::register(Runtime::open(self.url()).options(options))
            .activity("add_one", add_one)
            .activity("flaky", flaky)
            .activity("progress", progress)
            .start()
            .await
            .unwrap()
    }

    fn note_run(&self, ctx: &ActivityContext) {
        self.note(&format!("run|{}|{}|{}", ctx.instance(), ctx.execution(), ctx.event_id()));
    }

    async fn run_one(&self, client: &Client, kind: &str, count: usize) {
        let id = format!("{kind}-{count}");
        match client.start(kind, &id, Payload::null()).await {
            // It was durable, and the process died before it could say so.
            Ok(_) | Err(ClientError::AlreadyExists { .. }) => self.note_start(&id),
            Err(error) => panic!("{error}"),
        }
        if kind == "events" {
            self.ping(client, &id).await;
        }
        client.result(&id).await.unwrap();
    }

    /// Sends the events that an instance waits for, each once however often this is done.
    async fn ping(&self, client: &Client, id: &str) {
        for payload in pings() {
            match client.raise_event(id, "ping", payload.as_str()).once(&payload).await {
                Ok(()) => self.note_event("worker", id, "ping", &payload),
                Err(ClientError::Ended { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
