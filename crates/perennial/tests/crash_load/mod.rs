//! The mixed load of the crash test: what its worker runs, and what it writes down beside the store.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial::{
    ActivityContext, Client, ClientError, Either, EventId, Handlers, OrchestrationContext, Payload, Runtime,
    RuntimeOptions,
};
use perennial_testkit::invariants::ClientLog;

use crate::support::{failed, number};

/// How many instances of each kind the worker has under way.
const AT_A_TIME: usize = 4;
const KINDS: [&str; 4] = ["sequence", "fanout", "timers", "events"];
const STEPS: u64 = 6;
const WIDTH: u64 = 15;
const PINGS: usize = 3;

type Outcome = Result<Payload, Payload>;

/// One activity after another, each given the result of the one before.
async fn sequence(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut value = 0;
    for _ in 0..STEPS {
        value = ctx.schedule_activity("add_one", number(value)).typed::<u64>().await.map_err(failed)?;
    }
    Ok(number(value))
}

/// Many activities at once.
async fn fanout(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let calls = (0..WIDTH).map(|value| ctx.schedule_activity("add_one", number(value)).typed::<u64>());
    let results = ctx.try_join(calls.collect::<Vec<_>>()).await.map_err(failed)?;
    Ok(number(results.into_iter().sum()))
}

/// Timers between activities, and a race that the activity wins, so that a timer is cancelled.
async fn timers(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut value = 0;
    for pause in [5, 40, 120] {
        ctx.schedule_timer(Duration::from_millis(pause)).await;
        value = ctx.schedule_activity("add_one", number(value)).typed::<u64>().await.map_err(failed)?;
    }
    let call = ctx.schedule_activity("add_one", number(value)).typed::<u64>();
    match ctx.select2(call, ctx.schedule_timer(Duration::from_secs(3_600))).await {
        Either::First(value) => value.map(number).map_err(failed),
        Either::Second(()) => Err(Payload::from("an hour has passed")),
    }
}

/// Events, one at a time, with an activity between them.
async fn events(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..PINGS {
        seen.push(ctx.schedule_wait("ping").typed::<String>().await);
        ctx.schedule_activity("add_one", number(0)).await.map_err(failed)?;
    }
    Ok(Payload::encode(&seen).unwrap())
}

/// Letters from a sender outside of the process.
async fn mail(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(ctx.schedule_wait("letter").typed::<String>().await);
    }
    ctx.schedule_activity("add_one", number(0)).await.map_err(failed)?;
    Ok(Payload::encode(&seen).unwrap())
}

/// The code of all of them.
pub(crate) fn handlers() -> Handlers {
    Handlers::default()
        .with("sequence", "1.0.0", sequence)
        .with("fanout", "1.0.0", fanout)
        .with("timers", "1.0.0", timers)
        .with("events", "1.0.0", events)
        .with("mail", "1.0.0", mail)
}

/// What an instance has to return.
pub(crate) fn expected_output(id: &str) -> String {
    match id.split('-').next().unwrap() {
        "sequence" => STEPS.to_string(),
        "fanout" => (WIDTH * (WIDTH + 1) / 2).to_string(),
        "timers" => "4".to_owned(),
        "events" => r#"["ping 0","ping 1","ping 2"]"#.to_owned(),
        "mail" => r#"["letter 0","letter 1","letter 2"]"#.to_owned(),
        other => panic!("nothing is called {other}"),
    }
}

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
        let runs = self.clone();
        let add_one = move |ctx: ActivityContext, value: Payload| {
            runs.note(&format!("run|{}|{}|{}", ctx.instance(), ctx.execution(), ctx.event_id()));
            async move {
                tokio::time::sleep(Duration::from_millis(value.size() as u64)).await;
                let value: u64 = value.decode().map_err(failed)?;
                Ok(number(value + 1))
            }
        };
        let mut options = RuntimeOptions::default();
        options.shard.max_resident = max_resident;
        let runtime = Runtime::open(self.url())
            .options(options)
            .orchestration("sequence", "1.0.0", sequence)
            .orchestration("fanout", "1.0.0", fanout)
            .orchestration("timers", "1.0.0", timers)
            .orchestration("events", "1.0.0", events)
            .orchestration("mail", "1.0.0", mail)
            .activity("add_one", add_one)
            .start()
            .await
            .unwrap();
        let client = runtime.client();
        let starts: Vec<String> =
            self.lines().iter().filter_map(|line| line.strip_prefix("start|").map(str::to_owned)).collect();
        // Events that were never sent, or never acknowledged, before the last kill.
        let halted = starts.iter().filter(|id| id.starts_with("events-")).cloned();
        let helpers = halted.map(|id| {
            let (load, client) = (self.clone(), client.clone());
            tokio::spawn(async move { load.ping(&client, &id).await })
        });
        let helpers: Vec<_> = helpers.collect();
        if drain {
            for helper in helpers {
                helper.await.unwrap();
            }
            for id in starts {
                client.result(&id).await.unwrap();
            }
            runtime.shutdown().await.unwrap();
            return;
        }
        let next = Arc::new(AtomicUsize::new(starts.len()));
        let mut starters = Vec::new();
        for kind in KINDS {
            for _ in 0..AT_A_TIME {
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
        for ping in 0..PINGS {
            let payload = format!("ping {ping}");
            match client.raise_event_once(id, "ping", &payload, payload.as_str()).await {
                Ok(()) => self.note_event("worker", id, "ping", &payload),
                Err(ClientError::Ended { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
