//! One server for all tests of a run. With cargo-nextest these are many processes, one for each test.

use std::fs::{self, File};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::ServerOptions;
use super::process::Cluster;

/// The variable in which cargo-nextest passes the id of a run.
const RUN_VARIABLE: &str = "NEXTEST_RUN_ID";

/// Returns the URL of the server. The first caller starts it.
pub(super) fn url() -> Result<String, String> {
    static URL: OnceLock<Result<String, String>> = OnceLock::new();
    URL.get_or_init(|| Run::current().url()).clone()
}

/// A run whose tests share a server, and a process that lives until the end of the run.
struct Run {
    name: String,
    lives_as_long_as: u32,
}

impl Run {
    fn current() -> Run {
        let of_nextest = std::env::var(RUN_VARIABLE).ok();
        // The name becomes part of a path.
        let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        match of_nextest.filter(is_plain) {
            Some(name) => Run { name, lives_as_long_as: parent_id() },
            None => Run { name: std::process::id().to_string(), lives_as_long_as: std::process::id() },
        }
    }

    fn directory(&self) -> PathBuf {
        std::env::temp_dir().join(format!("perennial_postgres_run_{}", self.name))
    }

    /// The process that gets the lock first starts the server and writes its URL; the others wait and read it.
    fn url(&self) -> Result<String, String> {
        let directory = self.directory();
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(failed)?;
        let lock = File::create(directory.join("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let place = directory.join("url");
        if let Ok(url) = fs::read_to_string(&place) {
            return Ok(url);
        }
        let options = ServerOptions::default().unsynced().set("max_connections", "600");
        let cluster = Cluster::create(&directory, &options)?;
        cluster.start(self.lives_as_long_as)?.leave();
        let url = cluster.url();
        fs::write(&place, &url).map_err(failed)?;
        // The keeper deletes the files when it stops the server.
        std::mem::forget(cluster);
        Ok(url)
    }
}
