//! What end-to-end tests share: a place for a store, ways to wait, and the check that runs after each of them.
#![allow(dead_code, reason = "no test file needs all of it")]

pub(crate) mod hands;
pub(crate) mod home;
#[path = "../../../../perennial-core/tests/all/log/mod.rs"]
pub(crate) mod log;
mod place;
pub(crate) mod stage;
pub(crate) mod tapped;

pub(crate) use place::Place;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use perennial::{
    Client, ClientError, ExternalEvent, Filter, InstanceView, Payload, RuntimeOptions, StartOptions, Status,
};
use perennial_core::Handlers;
use perennial_core::history::encode_turn;
use perennial_testkit::invariants::{ClientLog, Snapshot, StoredInstance, assert_invariants};

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn now_ms() -> u64 {
    milliseconds(SystemTime::now())
}

fn milliseconds(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Checks the invariants of a store that only its client can look into.
pub(crate) async fn check_client(client: &Client, log: &ClientLog, handlers: &Handlers) {
    assert_invariants(&client_snapshot(client).await, log, handlers);
}

/// All rows as far as a client can see them.
pub(crate) async fn client_snapshot(client: &Client) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut after = None;
    loop {
        let page = client.list_rows(Filter::new(), after, 500).await.unwrap();
        for row in page.rows {
            let history = client.history(&row.id).await.unwrap();
            let turns = history.turns.iter().map(|turn| Arc::from(encode_turn(turn))).collect();
            let executions = BTreeMap::from([(row.execution, turns)]);
            snapshot.instances.push(StoredInstance { row, executions, inbox: None, tasks: None });
        }
        after = page.next;
        if after.is_none() {
            return snapshot;
        }
    }
}

/// Options for tests that do not lose power.
pub(crate) fn relaxed() -> RuntimeOptions {
    // All executions are kept, so that the invariants can be checked over all of them.
    let mut options = RuntimeOptions { relaxed: true, keep_executions: None, ..RuntimeOptions::default() };
    // Missing code blocks at once; what happens before that has tests of its own.
    options.shard.missing_code_wait = Duration::ZERO;
    options
}

/// Gives up where a test would wait for ever.
#[track_caller]
pub(crate) fn soon<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("nothing came of what was awaited at {caller}"),
        }
    }
}

/// The status of an instance once it is as it should be.
#[track_caller]
pub(crate) fn until<'a>(
    client: &'a Client,
    id: &'a str,
    is_so: impl Fn(&InstanceView) -> bool + 'a,
) -> impl Future<Output = InstanceView> + 'a {
    soon(async move {
        loop {
            let status = client.status(id).await.unwrap();
            if is_so(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// The status of an instance once it is blocked for a reason.
#[track_caller]
pub(crate) fn until_blocked<'a>(
    client: &'a Client,
    id: &'a str,
    code: &'a str,
) -> impl Future<Output = InstanceView> + 'a {
    until(client, id, move |status| status.blocked.as_ref().is_some_and(|blocked| blocked.code == code))
}

/// The status of an instance that has ended.
pub(crate) async fn ended_as(client: &Client, id: &str) -> Status {
    client.status(id).await.unwrap().status
}

/// An id that names nothing.
pub(crate) fn not_found(id: &str) -> ClientError {
    ClientError::NotFound { id: id.to_owned() }
}

/// A number as a payload.
pub(crate) fn number(number: u64) -> Payload {
    Payload::encode(&number).unwrap()
}

/// What went wrong, as an orchestration's or activity's error.
pub(crate) fn failed(error: impl std::fmt::Debug) -> Payload {
    Payload::from(format!("{error:?}"))
}

/// A start at an exact version.
pub(crate) fn at(version: &str) -> StartOptions {
    StartOptions::default().version(version)
}

/// An event that comes with a payload as it is.
pub(crate) fn event(name: &'static str) -> ExternalEvent<Payload> {
    ExternalEvent::named(name)
}
