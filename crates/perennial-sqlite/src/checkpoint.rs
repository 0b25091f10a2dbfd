//! Checkpoints: moves the write-ahead log into the database, between transactions.
//!
//! Always passive checkpoints, which wait for nobody: after a complete checkpoint the log is written from its beginning
//! again, and never shrinks. That speeds up every commit: a sync that has to grow the file takes twice as long as one
//! that overwrites existing space.

use std::path::Path;
use std::time::{Duration, Instant};

use perennial_core::log;
use rusqlite::{Connection, ffi};

use crate::connection::{begin_immediate, wait_out};
use crate::failure::Trouble;

/// With this many pages a checkpoint is made even if there is work.
const PAGES_AT_ANY_TIME: i64 = 1_024;
/// With this many pages a checkpoint is made as soon as there is no work.
const PAGES_WHEN_IDLE: i64 = 512;
/// After this long without work everything is moved.
const LONG_IDLE: Duration = Duration::from_secs(1);
/// How many members or batches are written before the log is measured.
const MEASURE_EVERY: usize = 64;

/// The initial size of the log: everything that accumulates before a checkpoint, and one more batch.
const LAID_OUT_BYTES: u64 = 5 << 20;

/// Grows the log to its expected size, so that commits overwrite existing space. The filler is never committed; it only
/// has to pass through the log. If this fails, commits are slower at first, or fail themselves.
pub(crate) fn lay_out_log(connection: &Connection, log: &Path, patience: Duration) -> rusqlite::Result<()> {
    if log.metadata().is_ok_and(|metadata| metadata.len() >= LAID_OUT_BYTES) {
        return Ok(());
    }
    let cache: i64 = connection.query_row("PRAGMA cache_size", [], |row| row.get(0))?;
    // Pages that do not fit into the cache are written to the log immediately.
    connection.execute_batch("PRAGMA cache_size=10")?;
    begin_immediate(connection, patience)?;
    let filled = connection.execute_batch(&format!(
        "CREATE TABLE filler (bytes BLOB); INSERT INTO filler VALUES (zeroblob({LAID_OUT_BYTES}))"
    ));
    if let Err(error) = filled {
        tracing::debug!(target: log::STORE, %error, "write-ahead log cannot be preallocated");
    }
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    connection.execute_batch(&format!("PRAGMA cache_size={cache}"))
}

/// Moves everything into the database and syncs it, then empties the log. Returns whether that was possible: a reader
/// that uses old pages prevents it.
pub(crate) fn move_log(connection: &Connection, patience: Duration) -> rusqlite::Result<bool> {
    let moved = wait_out(patience, || {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| match row.get::<_, i64>(0)? {
            0 => Ok(()),
            // Reported as a row, not as an error.
            _ => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)),
        })
    });
    match moved {
        Err(error) if Trouble::of(&error) == Trouble::Busy => Ok(false),
        moved => moved.map(|()| true),
    }
}

pub(crate) struct Checkpoints {
    /// What was written since the log was last measured.
    unmeasured: usize,
    /// Pages that had not been moved when the log was last measured.
    pages: i64,
    /// When the last batch was written that may not have been moved.
    last_write: Option<Instant>,
    /// Whether a checkpoint moved everything, so that the next commit begins the log again.
    is_log_moved: bool,
}

impl Checkpoints {
    pub(crate) fn new() -> Checkpoints {
        // The log may contain what the last owner left in it.
        Checkpoints {
            unmeasured: MEASURE_EVERY,
            pages: 0,
            last_write: Some(Instant::now()),
            is_log_moved: true,
        }
    }

    /// Called after a batch was written and its replies sent.
    pub(crate) fn after_batch(&mut self, connection: &Connection, members: usize) -> rusqlite::Result<()> {
        self.unmeasured += members.max(1);
        self.last_write = Some(Instant::now());
        if self.unmeasured >= MEASURE_EVERY {
            self.measure(connection)?;
        }
        if self.pages >= PAGES_AT_ANY_TIME {
            self.checkpoint(connection)?;
        }
        Ok(())
    }

    /// Called when there is no work.
    pub(crate) fn when_idle(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(last_write) = self.last_write else {
            return Ok(());
        };
        if self.unmeasured > 0 {
            self.measure(connection)?;
        }
        if self.pages >= PAGES_WHEN_IDLE || (self.pages > 0 && last_write.elapsed() >= LONG_IDLE) {
            self.checkpoint(connection)?;
        }
        if self.pages == 0 {
            self.last_write = None;
        }
        Ok(())
    }

    /// How long to wait for work before [`Checkpoints::when_idle`] has something to do.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let last_write = self.last_write?;
        Some(LONG_IDLE.saturating_sub(last_write.elapsed()).max(Duration::from_millis(20)))
    }

    pub(crate) fn checkpoint(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.pages = remaining_pages(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
        self.unmeasured = 0;
        self.is_log_moved |= self.pages == 0;
        if self.pages > 0 {
            // A reader still uses the old pages; wait for a while instead of trying after every batch.
            self.last_write = Some(Instant::now());
        }
        Ok(())
    }

    /// Whether the next commit begins the log again; afterwards it does not.
    pub(crate) fn take_log_moved(&mut self) -> bool {
        std::mem::take(&mut self.is_log_moved)
    }

    fn measure(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.pages = remaining_pages(connection, "PRAGMA wal_checkpoint(NOOP)")?;
        self.unmeasured = 0;
        Ok(())
    }
}

/// How many pages of the log are not in the database yet.
fn remaining_pages(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.prepare_cached(pragma)?.query_row([], |row| {
        let (in_log, moved): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(in_log - moved)
    })
}
