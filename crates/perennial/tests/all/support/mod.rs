//! What end-to-end tests share: a place for a store, ways to wait, and the check that runs after each of them.
#![allow(dead_code, reason = "no test file needs all of it")]

pub(crate) mod hands;
pub(crate) mod home;
#[path = "../../../../perennial-core/tests/all/log/mod.rs"]
pub(crate) mod log;
pub(crate) mod stage;
pub(crate) mod tapped;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use perennial::history::EventId;
use perennial::{
    Client, ClientError, ExternalEvent, Filter, InstanceKey, InstanceView, Payload, RuntimeOptions,
    StartOptions, Status,
};
use perennial_core::Handlers;
use perennial_core::history::encode_turn;
use perennial_core::store::TaskId;
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::invariants::{
    ClientLog, Snapshot, StoredInstance, StoredRows, StoredTask, assert_invariants, assert_stored_invariants,
    stalled, unswept,
};
use tempfile::TempDir;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Requests and answers past their time are swept within this, while a node runs: with each look at what is due soon.
const SWEEP_MS: u64 = 30_000;

/// A directory with a database in it. Whatever a test does there, it leaves rows behind that are in order.
pub(crate) struct Place {
    directory: TempDir,
    copies: AtomicUsize,
    /// The bytes of the copy whose rows were found in order last.
    checked: Mutex<Option<Vec<u8>>>,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            directory: tempfile::tempdir().unwrap(),
            copies: AtomicUsize::new(0),
            checked: Mutex::default(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// A client of another process. It may be there before the first runtime.
    pub(crate) fn guest(&self) -> Client {
        if !self.path().exists() {
            drop(SqliteStore::open(self.path(), SqliteOptions::default().relaxed(true)).unwrap());
        }
        Client::open(&self.url()).unwrap()
    }

    /// A connection of somebody who goes behind the store's back.
    pub(crate) fn connection(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// All rows of one moment, whoever is at work meanwhile.
    pub(crate) fn snapshot(&self) -> Snapshot {
        read_copy(&self.copy())
    }

    /// Checks the invariants of all rows.
    #[track_caller]
    pub(crate) fn check(&self, log: &ClientLog, handlers: &Handlers) {
        let copy = self.copy();
        // Whoever opens it, changes it.
        let bytes = fs::read(&copy).unwrap();
        assert_invariants(&read_copy(&copy), log, handlers);
        *self.checked.lock().unwrap() = Some(bytes);
    }

    /// A copy of the database as it is at one moment.
    fn copy(&self) -> PathBuf {
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let copy = self.directory.path().join(format!("copy-{number}.db"));
        let connection = self.connection();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        copy
    }

    /// Until when somebody owned the store, at least. An owner that is killed does not say when.
    fn owned_until_ms(&self) -> u64 {
        let Ok(lock) = fs::File::open(self.directory.path().join("shop.db-lock")) else { return 0 };
        match lock.try_lock() {
            Ok(()) => milliseconds(lock.metadata().unwrap().modified().unwrap()),
            Err(_) => now_ms(),
        }
    }

    /// Waits until everybody who is not blocked has taken what there is for them.
    #[track_caller]
    pub(crate) fn nobody_is_stalled(&self) -> impl Future<Output = ()> + '_ {
        soon(async move {
            while !stalled(&self.snapshot(), now_ms()).is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    }
}

impl Drop for Place {
    /// The net under all tests: what can be checked without their code and their log, unless they just did.
    fn drop(&mut self) {
        if thread::panicking() || !self.path().exists() {
            return;
        }
        let last = self.copy();
        let is_checked = *self.checked.get_mut().unwrap() == Some(fs::read(&last).unwrap());
        let snapshot = read_copy(&last);
        if !is_checked {
            assert_stored_invariants(&snapshot, &ClientLog::default());
        }
        assert_eq!(unswept(&snapshot, self.owned_until_ms(), SWEEP_MS), []);
    }
}

/// All rows of a copy, read by somebody else than who wrote them.
fn read_copy(copy: &Path) -> Snapshot {
    let guest = SqliteStore::open_guest(copy, SqliteOptions::default()).unwrap();
    let rows = stored_rows(&rusqlite::Connection::open(copy).unwrap()).unwrap();
    Snapshot { rows: Some(rows), ..Snapshot::read(&guest).unwrap() }
}

/// The rows beside the instances, of every table that names instances by their key.
fn stored_rows(connection: &rusqlite::Connection) -> rusqlite::Result<StoredRows> {
    let key = |row: &rusqlite::Row<'_>| row.get(0).map(InstanceKey::from_bytes);
    let number = |row: &rusqlite::Row<'_>, column| row.get(column).map(i64::cast_unsigned);
    let mut turns = connection.prepare("SELECT key, execution, number FROM turns")?;
    let turns = turns
        .query_map([], |row| Ok((key(row)?, number(row, 1)?, number(row, 2)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut inbox = connection.prepare("SELECT key, body FROM inbox")?;
    let inbox = inbox
        .query_map([], |row| Ok((key(row)?, Arc::from(row.get::<_, Vec<u8>>(1)?))))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut tables = connection.prepare(
        "SELECT t.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c ON c.name = 'key' \
         WHERE t.type = 'table' AND t.name NOT IN ('instances', 'turns', 'inbox', 'tasks')",
    )?;
    let tables = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let mut others = Vec::new();
    for table in tables {
        let mut keys = connection.prepare(&format!("SELECT key FROM {table}"))?;
        for found in keys.query_map([], key)? {
            others.push((table.clone(), found?));
        }
    }
    let mut tasks = connection.prepare(
        "SELECT key, execution, event, state = 1 AND cancelled = 1 AND due_ms IS NOT NULL FROM tasks",
    )?;
    let tasks = tasks
        .query_map([], |row| {
            let id = TaskId { key: key(row)?, execution: number(row, 1)?, event: EventId(number(row, 2)?) };
            Ok(StoredTask { id, is_marked: row.get(3)? })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut deadlines =
        connection.prepare("SELECT deadline_ms FROM requests UNION ALL SELECT deadline_ms FROM replies")?;
    let request_deadlines_ms =
        deadlines.query_map([], |row| number(row, 0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(StoredRows { turns, inbox, tasks, request_deadlines_ms, others })
}

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
