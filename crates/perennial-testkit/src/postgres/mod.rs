//! PostgreSQL servers for tests: private ones that a test starts, stops and kills, and one that all tests of a run
//! share.
//!
//! A server runs in a temporary directory, listens only on a free port of the loopback address, and requires a random
//! password. It is stopped by its process id, even if the test panics or its process is killed. Tests are not skipped
//! if PostgreSQL is not installed: they fail with a message that says what to install.
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

/// The superuser of started servers.
const USER: &str = "perennial";

/// Options for starting a server.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    unsynced: bool,
    settings: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
}

impl ServerOptions {
    /// Turns off syncing to disk. Commits survive a crash of the server, but not of the machine.
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

    /// Adds a file to the data directory that only the server can read, such as a certificate or its key.
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
    /// `None` if the server was not started by this process.
    own: Option<Own>,
}

/// A private server, which stops when it is dropped.
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
    /// If no server can be started. The message says what to do.
    pub fn start(options: &ServerOptions) -> TestServer {
        TestServer::try_start(options).unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Like [`start`](TestServer::start), but returns the reason if no server can be started.
    pub fn try_start(options: &ServerOptions) -> Result<TestServer, String> {
        let cluster = Cluster::create(&process::new_directory("private"), options)?;
        let process = cluster.start(std::process::id())?;
        let url = cluster.url();
        Ok(TestServer { url, own: Some(Own { cluster, process: Mutex::new(Some(process)) }) })
    }

    /// Returns the server that all tests of a run share: the one that [`URL_VARIABLE`] names, or else one that the
    /// first test starts and that stops at the end of the run. A run is a process, or all processes of one run of
    /// cargo-nextest. A started server does not sync to disk.
    ///
    /// # Panics
    ///
    /// If no server can be started.
    pub fn shared() -> TestServer {
        let url = match std::env::var(URL_VARIABLE) {
            Ok(url) => url,
            Err(_) => shared::url().unwrap_or_else(|problem| panic!("{problem}")),
        };
        TestServer { url, own: None }
    }

    /// The URL of the server's database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL of a schema that no other test uses. The schema does not exist yet.
    pub fn new_schema(&self) -> String {
        self.with_schema(&unique("test"))
    }

    /// The URL of a schema.
    pub fn with_schema(&self, schema: &str) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{separator}schema={schema}", self.url)
    }

    /// The port that the server listens on. A restarted server keeps its port.
    pub fn port(&self) -> u16 {
        self.own().cluster.port()
    }

    /// The path of the server's log.
    pub fn log(&self) -> PathBuf {
        self.own().cluster.log()
    }

    /// The path of the data directory.
    pub fn data(&self) -> &Path {
        self.own().cluster.data()
    }

    /// Stops the server without a checkpoint (`pg_ctl stop -m immediate`), like a crash. It recovers when it is started
    /// again.
    pub fn kill(&self) {
        self.end(process::Stop::Immediate);
    }

    /// Kills the server's main process (`kill -9`). Its other processes notice this and exit.
    pub fn kill_first_process(&self) {
        self.end(process::Stop::Kill);
    }

    /// Stops the server cleanly, without waiting for its clients (`pg_ctl stop -m fast`).
    pub fn stop(&self) {
        self.end(process::Stop::Fast);
    }

    fn end(&self, how: process::Stop) {
        if let Some(process) = self.process().take() {
            process.stop(how);
        }
    }

    /// Restarts the server after it was stopped or killed, on the same port and with the same data.
    ///
    /// # Panics
    ///
    /// If the server does not start.
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

/// Returns a name that is unique on this machine.
fn unique(prefix: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let (process, count) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{prefix}_{process:x}_{count:x}_{:x}", now % (1 << 48))
}

/// Returns a random password. The standard library seeds `RandomState` randomly.
fn draw_password() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}
