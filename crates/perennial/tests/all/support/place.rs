//! A store that outlives the runtimes of a test: a file, or a schema of the PostgreSQL server that tests share.

#[cfg(feature = "postgres")]
mod database;
mod file;

use std::fmt::Write;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use perennial::Client;
use perennial_core::Handlers;
use perennial_core::store::Store;
use perennial_testkit::invariants::{
    ClientLog, Snapshot, assert_invariants, assert_stored_invariants, stalled, unswept,
};

use self::file::File;
use super::{now_ms, soon};

/// Requests and answers past their time are swept within this, while a node runs: with each look at what is due soon.
const SWEEP_MS: u64 = 30_000;

/// A store. Whatever a test does there, it leaves rows behind that are in order.
pub(crate) struct Place {
    kind: Kind,
    /// The rows that were found in order last.
    checked: Mutex<Option<String>>,
    /// Whether payloads are encoded for each instance, so that those of parents and children cannot be compared.
    is_encoded: AtomicBool,
}

enum Kind {
    File(File),
    #[cfg(feature = "postgres")]
    Schema(database::Schema),
}

impl Place {
    /// A file.
    pub(crate) fn new() -> Place {
        Place::of(Kind::File(File::new()))
    }

    /// A schema of the server that all tests share.
    #[cfg(feature = "postgres")]
    pub(crate) fn on_postgres() -> Place {
        Place::of(Kind::Schema(database::Schema::new()))
    }

    fn of(kind: Kind) -> Place {
        Place { kind, checked: Mutex::default(), is_encoded: AtomicBool::new(false) }
    }

    /// Payloads will be encoded: in the end, rows are not compared with those of other instances.
    pub(crate) fn expect_encoded(&self) {
        self.is_encoded.store(true, Ordering::Relaxed);
    }

    /// One of each kind.
    pub(crate) fn each() -> Vec<Place> {
        vec![
            Place::new(),
            #[cfg(feature = "postgres")]
            Place::on_postgres(),
        ]
    }

    pub(crate) fn url(&self) -> String {
        match &self.kind {
            Kind::File(file) => format!("sqlite:{}", file.path().display()),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.url().to_owned(),
        }
    }

    /// A client of another process. It may be there before the first runtime.
    pub(crate) fn guest(&self) -> Client {
        if !self.exists() {
            match &self.kind {
                Kind::File(file) => file.make(),
                #[cfg(feature = "postgres")]
                Kind::Schema(schema) => schema.make(),
            }
        }
        Client::open(&self.url()).unwrap()
    }

    /// The store under another clock, for a runtime.
    pub(crate) fn store(&self, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Arc<dyn Store> {
        match &self.kind {
            Kind::File(file) => file.store(now_ms),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.store(now_ms),
        }
    }

    pub(crate) fn exists(&self) -> bool {
        match &self.kind {
            Kind::File(file) => file.path().exists(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.exists(),
        }
    }

    fn file(&self) -> &File {
        match &self.kind {
            Kind::File(file) => file,
            #[cfg(feature = "postgres")]
            Kind::Schema(_) => panic!("this test works on a file"),
        }
    }

    /// The path of the file. Tests that use it cannot run on other stores.
    pub(crate) fn path(&self) -> PathBuf {
        self.file().path()
    }

    /// The directory of the file, if it is one.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::File(file) => file.path().parent().map(PathBuf::from),
            #[cfg(feature = "postgres")]
            Kind::Schema(_) => None,
        }
    }

    /// A connection to the file of somebody who goes behind the store's back.
    pub(crate) fn connection(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// Changes rows behind the store's back. Returns how many.
    pub(crate) fn execute(&self, sql: &str) -> u64 {
        match &self.kind {
            Kind::File(_) => u64::try_from(self.connection().execute(sql, []).unwrap()).unwrap(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.execute(sql),
        }
    }

    /// Puts a message into the inbox of every instance behind the store's back.
    pub(crate) fn insert_messages(&self, body: &[u8]) -> u64 {
        let body = self.literal(body);
        self.execute(&match &self.kind {
            Kind::File(_) => {
                format!("INSERT INTO inbox (key, shard, body) SELECT key, shard, {body} FROM instances")
            }
            #[cfg(feature = "postgres")]
            Kind::Schema(_) => format!(
                "INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, body) \
                 SELECT shard, nextval('inbox_numbers'), key, 0, false, false, {body} FROM instances"
            ),
        })
    }

    /// The one number that a query returns.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        match &self.kind {
            Kind::File(_) => self.connection().query_row(sql, [], |row| row.get(0)).unwrap(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.number(sql),
        }
    }

    /// The one text that a query returns, if any.
    pub(crate) fn text(&self, sql: &str) -> Option<String> {
        match &self.kind {
            Kind::File(_) => self.connection().query_row(sql, [], |row| row.get(0)).unwrap(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.text(sql),
        }
    }

    /// The bytes that a query returns.
    pub(crate) fn bytes(&self, sql: &str) -> Vec<u8> {
        match &self.kind {
            Kind::File(_) => self.connection().query_row(sql, [], |row| row.get(0)).unwrap(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.bytes(sql),
        }
    }

    /// Bytes as a literal in SQL.
    pub(crate) fn literal(&self, bytes: &[u8]) -> String {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        match &self.kind {
            Kind::File(_) => format!("x'{hex}'"),
            #[cfg(feature = "postgres")]
            Kind::Schema(_) => format!("'\\x{hex}'::bytea"),
        }
    }

    /// Everything that is stored, as text: what somebody finds who looks for words in it.
    pub(crate) fn stored_text(&self) -> String {
        match &self.kind {
            Kind::File(file) => file.stored_text(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.stored_text(),
        }
    }

    /// All rows of one moment, whoever is at work meanwhile.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match &self.kind {
            Kind::File(file) => file.snapshot(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.snapshot(),
        }
    }

    /// Checks the invariants of all rows.
    #[track_caller]
    pub(crate) fn check(&self, log: &ClientLog, handlers: &Handlers) {
        let snapshot = self.snapshot();
        assert_invariants(&snapshot, log, handlers);
        *self.checked.lock().unwrap() = Some(format!("{snapshot:?}"));
    }

    /// Until when somebody owned the store, at least. An owner that is killed does not say when.
    fn owned_until_ms(&self) -> u64 {
        match &self.kind {
            Kind::File(file) => file.owned_until_ms(),
            #[cfg(feature = "postgres")]
            Kind::Schema(schema) => schema.owned_until_ms(),
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
        if thread::panicking() || !self.exists() {
            return;
        }
        let snapshot = self.snapshot();
        let is_encoded = self.is_encoded.load(Ordering::Relaxed);
        if !is_encoded && self.checked.get_mut().unwrap().take() != Some(format!("{snapshot:?}")) {
            assert_stored_invariants(&snapshot, &ClientLog::default());
        }
        assert_eq!(unswept(&snapshot, self.owned_until_ms(), SWEEP_MS), []);
    }
}
