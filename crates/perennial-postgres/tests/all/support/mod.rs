//! Stores in separate schemas, on a server that all tests share.

mod pooler;

pub(crate) use pooler::through_pooler;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use perennial_core::store::{Commit, CommitOutcome, InstanceRow, SpawnedStore};
use perennial_postgres::{PostgresOptions, PostgresStore, open};
use perennial_testkit::conformance::instances::{Build, outgoing, row};
use perennial_testkit::conformance::{Candidate, Subject, TestClock};
use perennial_testkit::postgres::TestServer;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

/// Many tests run concurrently, so each uses few connections.
pub(crate) fn options() -> PostgresOptions {
    PostgresOptions::default().connections(4)
}

/// An empty store that uses the test's clock.
pub(crate) fn store(clock: TestClock) -> SpawnedStore<PostgresStore> {
    let options = options().hints(false).clock(move || clock.now_ms());
    open(&TestServer::shared().new_schema(), options).unwrap()
}

pub(crate) fn candidate(clock: TestClock) -> Candidate {
    Candidate::new(store(clock))
}

/// A store at a URL, with the server's clock.
pub(crate) fn subject(url: &str) -> Subject {
    Subject::over(open(url, options()).unwrap())
}

/// The outcome of a member that sends nothing.
pub(crate) fn durable() -> CommitOutcome {
    CommitOutcome::Durable { sent: vec![] }
}

/// The two ways in which a batch is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// With one statement, if its members do nothing that is rare.
    Statement,
    /// With a call of the function that can do everything.
    Function,
}

impl Path {
    pub(crate) const BOTH: [Path; 2] = [Path::Statement, Path::Function];

    /// Makes a member take this path. The path of a plain member is the statement's.
    pub(crate) fn of(self, member: Commit) -> Commit {
        match self {
            Path::Statement => member,
            // A message that nobody receives.
            Path::Function => member.sending([outgoing(&row(999, "nobody"), None, "lost")]),
        }
    }

    /// The outcome of a member that took this path.
    pub(crate) fn durable(self) -> CommitOutcome {
        let sent = if self == Path::Function { vec![None] } else { vec![] };
        CommitOutcome::Durable { sent }
    }

    /// A pattern of the running statement.
    pub(crate) fn pattern(self, url: &str) -> String {
        let schema = schema_of(url);
        match self {
            Path::Statement => format!("plain_commit%{schema}\".turns"),
            Path::Function => format!("{schema}\".commit_batch"),
        }
    }
}

/// The schema that a URL names.
pub(crate) fn schema_of(url: &str) -> &str {
    url.rsplit_once("schema=").expect("the URL names a schema").1
}

/// The URL without its schema.
pub(crate) fn without_schema(url: &str) -> &str {
    url.split_once("?schema=").or(url.split_once("&schema=")).map_or(url, |(url, _)| url)
}

/// A connection that bypasses the store.
pub(crate) struct Sql {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Sql {
    pub(crate) fn connect(url: &str) -> Sql {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let connecting = tokio_postgres::connect(without_schema(url), NoTls);
        let (client, connection) = runtime.block_on(connecting).unwrap();
        runtime.spawn(async move { connection.await.unwrap_or_default() });
        Sql { client, runtime }
    }

    /// Connects, with the schema in the search path.
    pub(crate) fn in_schema(url: &str) -> Sql {
        let sql = Sql::connect(url);
        sql.run(&format!("SET search_path TO \"{}\"", schema_of(url)));
        sql
    }

    pub(crate) fn run(&self, statements: &str) {
        self.runtime.block_on(self.client.batch_execute(statements)).unwrap();
    }

    pub(crate) fn query(&self, statement: &str, values: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        self.runtime.block_on(self.client.query(statement, values)).unwrap()
    }

    pub(crate) fn count(&self, table: &str) -> i64 {
        self.query(&format!("SELECT count(*) FROM {table}"), &[])[0].get(0)
    }

    /// Inserts a turn in a transaction that stays open. Who inserts the same turn waits for the end of the transaction.
    pub(crate) fn begin_turn(&self, of: &InstanceRow, number: u64) {
        let key = of.key.to_string();
        self.run(&format!("BEGIN; INSERT INTO turns VALUES ('{key}', 1, {number}, 0, 'x')"));
    }

    /// Waits until `waiters` statements that match are waiting for a lock.
    pub(crate) fn wait_for_waiters(&self, waiters: i64, statement: &str) {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
        let pattern = format!("%{statement}%");
        while self.query(waiting, &[&pattern])[0].get::<_, i64>(0) < waiters {
            thread::yield_now();
        }
    }
}

/// A proxy between a store and the server that can cut connections.
pub(crate) struct Wire {
    port: u16,
    /// Set while responses of the server are dropped.
    is_deaf: Arc<AtomicBool>,
}

impl Wire {
    pub(crate) fn to(url: &str) -> (Wire, String) {
        let target = host_of(url).to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wire = Wire { port: listener.local_addr().unwrap().port(), is_deaf: Arc::default() };
        let is_deaf = Arc::clone(&wire.is_deaf);
        let server = target.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(&server).unwrap();
                forward(client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::default());
                forward(server, client, Arc::clone(&is_deaf));
            }
        });
        let through = url.replace(&target, &format!("127.0.0.1:{}", wire.port));
        (wire, through)
    }

    /// Cuts every connection at the server's next response, which is dropped.
    pub(crate) fn lose_answers(&self) {
        self.is_deaf.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.is_deaf.store(false, Ordering::SeqCst);
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.rsplit_once('@').expect("the URL has a login").1;
    rest.split(['/', '?']).next().unwrap()
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_cut: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut bytes = [0; 65_536];
        loop {
            let read = from.read(&mut bytes).unwrap_or(0);
            if read == 0 || is_cut.load(Ordering::SeqCst) || to.write_all(&bytes[..read]).is_err() {
                from.shutdown(Shutdown::Both).unwrap_or_default();
                to.shutdown(Shutdown::Both).unwrap_or_default();
                return;
            }
        }
    });
}
