//! What end-to-end tests share: a place for a store, ways to wait, and the check that runs after each of them.
#![allow(dead_code, reason = "no test file needs all of it")]

pub(crate) mod hands;
pub(crate) mod tapped;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use perennial::history::encode_turn;
use perennial::{Client, ClientError, Filter, Handlers, InstanceStatus, Payload, RuntimeOptions, Status};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::invariants::{ClientLog, Snapshot, StoredInstance, assert_invariants};
use tempfile::TempDir;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with a database in it.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// A connection of somebody who goes behind the store's back.
    pub(crate) fn connection(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// All rows, read by somebody else.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let guest = SqliteStore::open_guest(self.path(), SqliteOptions::default()).unwrap();
        Snapshot::read(&guest).unwrap()
    }

    /// Checks the invariants of all rows.
    #[track_caller]
    pub(crate) fn check(&self, log: &ClientLog, handlers: &Handlers) {
        assert_invariants(&self.snapshot(), log, handlers);
    }
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
        let page = client.list(Filter::default(), after, 500).await.unwrap();
        for row in page.rows {
            let history = client.history(&row.id).await.unwrap();
            let turns = history.turns.iter().map(|turn| Arc::from(encode_turn(turn))).collect();
            snapshot.instances.push(StoredInstance { row, executions: vec![turns], inbox: None });
        }
        after = page.next;
        if after.is_none() {
            return snapshot;
        }
    }
}

/// Options for tests that do not lose power.
pub(crate) fn relaxed() -> RuntimeOptions {
    RuntimeOptions { relaxed: true, ..RuntimeOptions::default() }
}

/// Gives up where a test would wait for ever.
#[track_caller]
pub(crate) fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
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
    is_so: impl Fn(&InstanceStatus) -> bool + 'a,
) -> impl Future<Output = InstanceStatus> + 'a {
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
) -> impl Future<Output = InstanceStatus> + 'a {
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
