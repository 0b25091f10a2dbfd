//! Runtimes with some orchestrations, and servers over them.

use std::net::SocketAddr;
use std::path::PathBuf;

use perennial::prelude::*;
use perennial_server::{Access, Options, Role, Stop};
use perennial_testkit::postgres::TestServer;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::wire::Place;

#[activity]
async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

#[activity]
async fn sign(ctx: ActivityContext, mailbox: String) -> Result<Later<bool>, String> {
    let token = ctx.completion_token();
    std::fs::write(format!("{mailbox}.part"), token).map_err(|error| error.to_string())?;
    std::fs::rename(format!("{mailbox}.part"), mailbox).map_err(|error| error.to_string())?;
    Ok(Later::Pending)
}

#[orchestration]
async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(greet, name).await?)
}

#[orchestration]
async fn fails(_: OrchestrationContext, _input: Payload) -> Result<(), String> {
    Err("out of stock".to_owned())
}

#[orchestration]
async fn panics(_: OrchestrationContext, _input: Payload) -> Result<(), String> {
    panic!("oh no")
}

/// Fails until a file exists.
#[activity]
async fn charge(_: ActivityContext, gate: String) -> Result<u32, String> {
    match std::path::Path::new(&gate).exists() {
        true => Ok(42),
        false => Err("order-17: card service 503".to_owned()),
    }
}

/// Retries an activity, with pauses that no test waits for.
#[orchestration]
async fn flaky(ctx: OrchestrationContext, gate: String) -> Result<u32, String> {
    let hour = RetryPolicy::fixed(Duration::from_secs(3_600)).attempts(5);
    Ok(ctx.schedule_activity(charge, gate).retry(hour).await?)
}

/// Waits for an event and returns its payload.
#[orchestration]
async fn approval(ctx: OrchestrationContext, _input: Payload) -> Result<Payload, String> {
    Ok(ctx.schedule_wait(ExternalEvent::<Payload>::named("approved")).await)
}

#[orchestration]
async fn dial(ctx: OrchestrationContext, _input: Payload) -> Result<u8, String> {
    let position = ctx.state(0_u8);
    ctx.on_query("position", &position, |position, ()| position.read(|position| *position));
    ctx.on_update(Update::<u8, u8>::named("set"), &position, |position, to| async move {
        if to == 13 {
            return Err("unlucky".to_owned());
        }
        Ok(position.update(|position| std::mem::replace(position, to)))
    })
    .validate(|_, to| if *to > 20 { Err(format!("{to} is too loud")) } else { Ok(()) });
    ctx.wait_until(&position, |position| *position == 10).await;
    ctx.handlers_idle().await;
    Ok(10)
}

#[orchestration]
async fn signed(ctx: OrchestrationContext, mailbox: String) -> Result<bool, String> {
    Ok(ctx.schedule_activity(sign, mailbox).await?)
}

#[orchestration]
async fn parent(ctx: OrchestrationContext, children: u32) -> Result<u32, String> {
    let started: Vec<_> = (0..children)
        .map(|child| ctx.schedule_sub_orchestration(approval, Payload::from(format!("{child}"))))
        .collect();
    let done = ctx.join(started).await;
    Ok(u32::try_from(done.len()).unwrap_or(0))
}

/// Greets, then continues as new, so many times.
#[orchestration]
async fn rounds(ctx: OrchestrationContext, left: u32) -> Result<String, String> {
    ctx.schedule_activity(greet, format!("round {left}")).await?;
    if left > 0 {
        return ctx.continue_as_new(left - 1).await;
    }
    Ok("done".to_owned())
}

/// Runs so many activities one after another.
#[orchestration]
async fn sequence(ctx: OrchestrationContext, steps: u32) -> Result<u32, String> {
    for step in 0..steps {
        ctx.schedule_activity(greet, format!("step {step}")).await?;
    }
    Ok(steps)
}

pub(crate) fn builder(url: &str) -> perennial::RuntimeBuilder {
    let options = RuntimeOptions { keep_executions: None, ..RuntimeOptions::default() };
    Runtime::open(url)
        .options(options)
        .register(hello)
        .register(fails)
        .register(panics)
        .register(approval)
        .register(flaky)
        .register(charge)
        .register(dial)
        .register(signed)
        .register(parent)
        .register(rounds)
        .register(sequence)
        .register(greet)
        .register(sign)
}

/// Where a store is, and how its API is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    MemoryMounted,
    SqliteMounted,
    SqliteServed,
    PostgresMounted,
    PostgresServed,
}

impl Setup {
    pub(crate) const ALL: [Setup; 5] = [
        Setup::MemoryMounted,
        Setup::SqliteMounted,
        Setup::SqliteServed,
        Setup::PostgresMounted,
        Setup::PostgresServed,
    ];

    fn is_served(self) -> bool {
        matches!(self, Setup::SqliteServed | Setup::PostgresServed)
    }
}

/// A runtime, and a server over its store.
pub(crate) struct World {
    pub(crate) runtime: Option<Runtime>,
    pub(crate) client: Client,
    pub(crate) place: Place,
    pub(crate) stop: Stop,
    pub(crate) url: String,
    directory: tempfile::TempDir,
    _server: Option<TestServer>,
}

impl World {
    /// With everybody as an operator.
    pub(crate) async fn new(setup: Setup) -> World {
        World::with(setup, Options::default().access(Access::everybody(Role::Operator))).await
    }

    pub(crate) async fn with(setup: Setup, options: Options) -> World {
        let directory = tempfile::tempdir().unwrap();
        let (url, server) = match setup {
            Setup::MemoryMounted => ("memory:".to_owned(), None),
            Setup::SqliteMounted | Setup::SqliteServed => {
                (format!("sqlite:{}", directory.path().join("store.db").display()), None)
            }
            Setup::PostgresMounted | Setup::PostgresServed => {
                let server = TestServer::shared();
                (server.new_schema(), Some(server))
            }
        };
        let runtime = builder(&url).start().await.unwrap();
        let stop = Stop::default();
        let options = options.stop(stop.clone());
        let place = match setup.is_served() {
            true => serve(Client::open(&url).unwrap(), options).await,
            false => mount(runtime.client(), options).await,
        };
        let client = runtime.client();
        World { runtime: Some(runtime), client, place, stop, url, directory, _server: server }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts an instance over HTTP and returns the answer.
    pub(crate) async fn start(&self, name: &str, id: &str, input: Value) -> Value {
        let body = json!({"name": name, "id": id, "input": input});
        self.place.post("instances", body).expect(201).await.json()
    }

    /// Waits until an instance has taken a turn.
    pub(crate) async fn running(&self, id: &str) {
        while self.client.last_turn(id, 1).await.unwrap() == 0 {
            self.client.changed(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Waits for an instance to end.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        self.place.get(&format!("instances/{id}/result?wait_ms=30000")).expect(200).await.json()
    }

    /// Waits until an activity of an instance waits for its next attempt. Returns its event.
    pub(crate) async fn retrying(&self, id: &str, attempt: u32) -> u64 {
        loop {
            let changed = self.client.changed(Duration::from_millis(50));
            let tasks = self.client.tasks(id).await.unwrap();
            let waits = |task: &&perennial::client::TaskRow| {
                task.attempt == attempt && task.state == perennial::client::TaskState::Waiting
            };
            if let Some(task) = tasks.iter().find(waits) {
                return task.id.event.0;
            }
            changed.await;
        }
    }

    /// Waits until an instance is blocked.
    pub(crate) async fn blocked(&self, id: &str) {
        let blocked = self.client.result_unless_blocked(id).await;
        assert!(matches!(blocked, Err(Error::Client(ClientError::Blocked { .. }))), "{blocked:?}");
    }

    pub(crate) async fn end(mut self) {
        self.stop.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown().await.unwrap();
        }
    }
}

/// Mounts the router in an application, under a prefix.
pub(crate) async fn mount(client: Client, options: Options) -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().nest("/ops", perennial_server::router(client, options));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Place { address, prefix: "/ops" }
}

/// Serves the API on a listener of its own.
pub(crate) async fn serve(client: Client, options: Options) -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(perennial_server::serve(listener, client, options, None));
    Place { address, prefix: "" }
}
