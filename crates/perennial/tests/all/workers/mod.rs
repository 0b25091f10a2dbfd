//! Worker processes: this test's own program, run again to be one.
#![allow(dead_code, reason = "no test file needs all of it")]

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Names the directory of a worker process.
pub(crate) const DIRECTORY: &str = "PERENNIAL_WORKER_DIRECTORY";

/// A process that runs one ignored test of this program. It dies with the test that started it.
pub(crate) struct Worker {
    child: Child,
}

impl Worker {
    pub(crate) fn spawn(test: &str, directory: &Path, settings: &[(&str, String)]) -> Worker {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", test, "--nocapture"])
            .env(DIRECTORY, directory)
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Worker { child }
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn signal(&self, signal: &str) {
        let command = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    }

    /// Waits for it to end by itself.
    pub(crate) fn end_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
