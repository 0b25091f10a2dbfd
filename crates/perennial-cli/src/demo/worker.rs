//! The process that runs the orders and is killed repeatedly.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use perennial::{Runtime, RuntimeOptions};

use super::ledger::Ledger;
use super::orders;
use crate::arguments::STORE_VARIABLE;
use crate::exit::Failure;

/// The line that a worker prints once it works.
const READY: &str = "ready";
/// Other workers take the work of a killed one over after this time.
const LEASE: Duration = Duration::from_secs(2);
/// The time that a worker has to print it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs orders until it is killed, or the process that started it has ended.
pub(crate) async fn run(store: &str, ledger: &Path, node: String) -> Result<(), Failure> {
    let ledger = Ledger::open(ledger)?;
    let options = RuntimeOptions { node, lease: LEASE, ..RuntimeOptions::default() };
    let builder = Runtime::open(store).options(options).registrations(orders::registrations());
    let _runtime = builder.state(ledger).start().await?;
    println!("{READY}");
    std::io::stdout().flush()?;
    let gone = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0; 1]));
    gone.await.map_err(Failure::failed)??;
    Ok(())
}

/// A running worker, which is killed when this is dropped.
pub(crate) struct Worker(Child);

impl Worker {
    /// Starts a worker and waits until it works.
    pub(crate) async fn start(store: &str, ledger: &Path, log: &Path, node: &str) -> Result<Worker, Failure> {
        let log_file = File::options().create(true).append(true).open(log)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["demo-worker", "--node", node, "--ledger"])
            .arg(ledger)
            // Not an argument: a URL may have a password, and everybody on the machine can read arguments.
            .env(STORE_VARIABLE, store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let worker = Worker(child);
        let first_line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let is_ready = tokio::time::timeout(PATIENCE, first_line).await;
        if !matches!(is_ready, Ok(Ok(Ok(line))) if line.trim() == READY) {
            let output = std::fs::read_to_string(log).unwrap_or_default();
            return Err(Failure::failed(format!("the worker did not start: {}", output.trim())));
        }
        Ok(worker)
    }

    /// Kills the worker with SIGKILL, which it cannot handle.
    pub(crate) fn kill(mut self) -> Result<(), Failure> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
