//! PostgreSQL servers for tests: private ones that a test starts, stops and kills, and one that a whole test run shares.
//!
//! A server lives in a temporary directory, listens on a free port of the loopback address alone, and wants a password that
//! is drawn for it. It is stopped by its process id, even if the test panics or its process is killed. Nothing is
//! skipped where no PostgreSQL is installed: the test fails with a line that says what to install.
//!
//! ```no_run
//! use perennial_testkit::postgres::TestServer;
//!
//! let server = TestServer::shared();
//! let url = server.new_schema();
//! // `Runtime::open(&url)`: an empty store of its own.
//! ```

mod binaries;
mod process;
mod shared;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use process::{Cluster, Process};

/// The environment variable that names a server to use instead of starting one, as a `postgres://` URL.
pub const URL_VARIABLE: &str = "PERENNIAL_TEST_POSTGRES";

/// The user that servers are made with.
const USER: &str = "perennial";

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    unsynced: bool,
    settings: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
}

impl ServerOptions {
    /// Does not wait for the disk. Commits are lost in a crash of the machine, not in one of the server.
    #[must_use]
    pub fn unsynced(mut self) -> ServerOptions {
        self.unsynced = true;
        self
    }

    /// Sets a parameter of the server, as in `postgresql.conf`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> ServerOptions {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a file into the data directory, readable for the server alone: a certificate, or the key to it.
    #[must_use]
    pub fn file(mut self, name: &str, content: &[u8]) -> ServerOptions {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }
}

/// A PostgreSQL server for tests. See the [module](self).
#[derive(Debug)]
pub struct TestServer {
    /// Ends with the name of the database.
    url: String,
    /// Nothing if somebody else runs the server.
    own: Option<Own>,
}

/// A server that ends with the value that holds it.
#[derive(Debug)]
struct Own {
    cluster: Cluster,
    process: Mutex<Option<Process>>,
}

impl TestServer {
    /// Starts a private server, which stops when it is dropped.
    ///
    /// # Panics
    ///
    /// With one line that says what to do if no server can be started.
    pub fn start(options: &ServerOptions) -> TestServer {
        TestServer::try_start(options).unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// The same, with the reason if there is no server.
    pub fn try_start(options: &ServerOptions) -> Result<TestServer, String> {
        let cluster = Cluster::create(&process::new_directory("private"), options)?;
        let process = cluster.start(std::process::id())?;
        let url = cluster.url();
        Ok(TestServer { url, own: Some(Own { cluster, process: Mutex::new(Some(process)) }) })
    }

    /// The server that all tests of a run share: the one that [`URL_VARIABLE`] names, or else one that the first test starts
    /// and that ends with the run. A run is a process, or all processes of one run of cargo-nextest. It does not wait for
    /// the disk.
    ///
    /// # Panics
    ///
    /// As [`start`](TestServer::start) does.
    pub fn shared() -> TestServer {
        let url = match std::env::var(URL_VARIABLE) {
            Ok(url) => url,
            Err(_) => shared::url().unwrap_or_else(|problem| panic!("{problem}")),
        };
        TestServer { url, own: None }
    }

    /// The URL of its database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of a schema that no other test uses. It does not exist yet.
    pub fn new_schema(&self) -> String {
        self.with_schema(&unique("test"))
    }

    /// The URL of a schema.
    pub fn with_schema(&self, schema: &str) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{separator}schema={schema}", self.url)
    }

    /// The port it listens on. A server that is started again keeps it.
    pub fn port(&self) -> u16 {
        self.own().cluster.port()
    }

    /// What it logs.
    pub fn log(&self) -> PathBuf {
        self.own().cluster.log()
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        self.own().cluster.data()
    }

    /// Ends the server's processes at once, as a crash does (`pg_ctl stop -m immediate`). It recovers when it is started
    /// again.
    pub fn kill(&self) {
        self.end(process::Stop::Immediate);
    }

    /// Kills the server's first process (`kill -9`). Its other processes notice, and end by themselves.
    pub fn kill_first_process(&self) {
        self.end(process::Stop::Kill);
    }

    /// Stops the server in order, without waiting for its clients (`pg_ctl stop -m fast`).
    pub fn stop(&self) {
        self.end(process::Stop::Fast);
    }

    fn end(&self, how: process::Stop) {
        if let Some(process) = self.process().take() {
            process.stop(how);
        }
    }

    /// Starts the server again after it was stopped or killed, on the same port, with everything that it had synced.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_again(&self) {
        let mut process = self.process();
        if process.is_none() {
            let started = self.own().cluster.start_again(std::process::id());
            *process = Some(started.unwrap_or_else(|problem| panic!("{problem}")));
        }
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("a private server: a shared one is not for one test to stop")
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.own().process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.kill();
        }
    }
}

/// A name that nobody on this machine has drawn before.
fn unique(prefix: &str) -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let (process, drawn) = (std::process::id(), DRAWN.fetch_add(1, Ordering::Relaxed));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{prefix}_{process:x}_{drawn:x}_{:x}", now % (1 << 48))
}

/// A password that cannot be guessed from outside of the machine: keys of hash maps are random.
fn draw_password() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}
