//! What all connections have in common: waiting for one another.

use std::thread;
use std::time::{Duration, Instant};

use perennial_core::log;
use rusqlite::Connection;

use crate::failure::Trouble;

/// A longer wait is logged as a warning.
const BUSY_WARNING: Duration = Duration::from_secs(5);

/// The pause between two attempts. Short and constant: under load the owner leaves only short gaps between its
/// transactions, and with growing pauses a waiter would rarely hit one.
const BUSY_WAIT: Duration = Duration::from_millis(1);

/// Begins a write transaction, waiting for other writers.
pub(crate) fn begin_immediate(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    wait_out(patience, || connection.execute_batch("BEGIN IMMEDIATE"))
}

/// Retries until the file is free, or the patience ends.
pub(crate) fn wait_out<T>(
    patience: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let begun = Instant::now();
    let mut warned = false;
    loop {
        match attempt() {
            Err(error) if Trouble::of(&error) == Trouble::Busy && begun.elapsed() < patience => {
                if !warned && begun.elapsed() > BUSY_WARNING {
                    warned = true;
                    let waited_s = BUSY_WARNING.as_secs();
                    tracing::warn!(target: log::STORE, waited_s, "database locked by another process");
                }
                thread::sleep(BUSY_WAIT);
            }
            other => return other,
        }
    }
}
