//! The mixed load of the crash test: what its worker runs, and what it writes down beside the store.

pub(crate) mod guests;
pub(crate) mod kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial::{
    ActivityContext, Client, ClientError, EventId, Filter, Payload, Runtime, RuntimeOptions, Status,
};
use perennial_testkit::invariants::ClientLog;

use crate::support::{failed, number};
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

/// The store and the logs beside it. Every line is written at once, after what it says was acknowledged.
#[derive(Clone)]
pub(crate) struct Load {
    directory: Arc<PathBuf>,
    log: Arc<File>,
}

impl Load {
    pub(crate) fn at(directory: PathBuf) -> Load {
        let log = OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
        Load { directory: Arc::new(directory), log: Arc::new(log) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.directory.join("shop.db").display())
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

    /// Where the last worker is told that nobody wants anything of it any more.
    fn finish_file(&self) -> PathBuf {
        self.directory.join("finish")
    }

    pub(crate) fn finish(&self) {
        fs::write(self.finish_file(), "").unwrap();
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

    /// What the worker process does: goes on with what is there, and keeps starting more, or waits for all of it.
    pub(crate) async fn work(self, drain: bool, max_resident: usize) {
        let runtime = self.runtime(max_resident).await;
        let client = runtime.client();
        // Events that were never sent, or never acknowledged, before the last kill; also of those whose start was not.
        let statuses = vec![Status::Pending, Status::Running];
        let filter = Filter { statuses, id_prefix: Some("events-".to_owned()), ..Filter::default() };
        let halted = client.list(filter, None, 1_000).await.unwrap().rows.into_iter().map(|row| row.id);
        let helpers = halted.map(|id| {
            let (load, client) = (self.clone(), client.clone());
            tokio::spawn(async move { load.ping(&client, &id).await })
        });
        let helpers: Vec<_> = helpers.collect();
        if drain {
            for helper in helpers {
                helper.await.unwrap();
            }
            while !self.finish_file().exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Those of the guests, too.
            for line in self.lines() {
                if let Some(id) = line.strip_prefix("start|") {
                    client.wait(id).await.unwrap();
                }
            }
            runtime.shutdown().await.unwrap();
            return;
        }
        let number_of =
            |line: &String| line.strip_prefix("start|")?.rsplit('-').next()?.parse::<usize>().ok();
        let next = self.lines().iter().filter_map(number_of).max().map_or(0, |last| last + 1);
        let next = Arc::new(AtomicUsize::new(next));
        let mut starters = Vec::new();
        for (kind, at_a_time) in KINDS {
            for _ in 0..at_a_time {
                let (load, client, next) = (self.clone(), client.clone(), Arc::clone(&next));
                starters.push(tokio::spawn(async move {
                    loop {
                        load.run_one(&client, kind, next.fetch_add(1, Ordering::Relaxed)).await;
                    }
                }));
            }
        }
        panic!("a starter ended: {:?}", futures::future::select_all(starters).await.0.err());
    }

    async fn runtime(&self, max_resident: usize) -> Runtime {
        let mut options = RuntimeOptions::default();
        options.shard.max_resident = max_resident;
        // Whoever is killed this often interrupts everybody.
        options.shard.max_interruptions = 1_000;
        let (added, tried, progressed) = (self.clone(), self.clone(), self.clone());
        let add_one = move |ctx: ActivityContext, value: Payload| {
            added.note_run(&ctx);
            async move {
                tokio::time::sleep(Duration::from_millis(value.size() as u64)).await;
                let value: u64 = value.decode().map_err(failed)?;
                Ok(number(value + 1))
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
                Ok(number(PROGRESS))
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
            match client.raise_event_once(id, "ping", &payload, payload.as_str()).await {
                Ok(()) => self.note_event("worker", id, "ping", &payload),
                Err(ClientError::Ended { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
