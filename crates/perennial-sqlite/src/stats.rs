//! Row counts. Every count stops at a bound and uses an index, so that the cost does not grow with the data.

use std::path::Path;

use perennial_core::store::{Count, Status, StoreDetails, StoreStats};
use rusqlite::{Connection, OptionalExtension, Params};

use crate::reader::Fault;
use crate::row::{bound, status_code};

pub(crate) const OF_STATUS: &str = "SELECT count(*) FROM \
     (SELECT 1 FROM instances INDEXED BY instances_by_status WHERE status = ?2 AND status <> 2 LIMIT ?1)";
pub(crate) const COMPLETED: &str = "SELECT count(*) FROM \
     (SELECT 1 FROM instances INDEXED BY instances_ended WHERE status = 2 AND status >= 2 LIMIT ?1)";
pub(crate) const BLOCKED: &str = "SELECT count(*) FROM \
     (SELECT 1 FROM instances INDEXED BY instances_blocked WHERE blocked IS NOT NULL LIMIT ?1)";
pub(crate) const BLOCKED_CODES: &str = "SELECT substr(blocked, 1, ?2) FROM instances INDEXED BY instances_blocked \
     WHERE blocked IS NOT NULL LIMIT ?1";
pub(crate) const INBOX: &str =
    "SELECT count(*) FROM (SELECT 1 FROM inbox INDEXED BY inbox_by_instance LIMIT ?1)";
pub(crate) const TASKS: &str =
    "SELECT count(*) FROM (SELECT 1 FROM tasks INDEXED BY tasks_by_state WHERE state = ?2 LIMIT ?1)";
pub(crate) const REQUESTS: &str =
    "SELECT count(*) FROM (SELECT 1 FROM requests INDEXED BY requests_by_deadline LIMIT ?1)";
/// The most overdue instance. Only a limited number of blocked ones is skipped.
pub(crate) const LATE: &str = "SELECT wake_at_ms FROM \
     (SELECT wake_at_ms, blocked FROM instances INDEXED BY instances_due \
      WHERE wake_at_ms < ?2 AND status < 2 ORDER BY wake_at_ms, key LIMIT ?1) \
     WHERE blocked IS NULL LIMIT 1";

/// The first due times, with their shards.
pub(crate) const EARLIEST: &str = "SELECT shard, wake_at_ms FROM \
     (SELECT shard, wake_at_ms, blocked FROM instances INDEXED BY instances_due \
      WHERE wake_at_ms IS NOT NULL AND status < 2 ORDER BY wake_at_ms, key LIMIT ?1) WHERE blocked IS NULL";

pub(crate) fn stats(connection: &Connection, now_ms: u64) -> Result<StoreStats, Fault> {
    // All counts from one snapshot.
    let transaction = connection.unchecked_transaction()?;
    let one_over = bound(Count::EXACT + 1);
    let mut instances = Vec::with_capacity(Status::ALL.len());
    for status in Status::ALL {
        let rows = match status {
            Status::Completed => counted(connection, COMPLETED, [one_over])?,
            other => counted(connection, OF_STATUS, [one_over, status_code(other)])?,
        };
        instances.push((status, rows));
    }
    let late = connection
        .prepare_cached(LATE)?
        .query_row([one_over, bound(now_ms)], |row| row.get::<_, i64>(0))
        .optional()?;
    let stats = StoreStats {
        instances,
        blocked: counted(connection, BLOCKED, [one_over])?,
        inbox: counted(connection, INBOX, [one_over])?,
        tasks_queued: counted(connection, TASKS, [one_over, 0])?,
        tasks_leased: counted(connection, TASKS, [one_over, 1])?,
        tasks_waiting: counted(connection, TASKS, [one_over, 2])?,
        requests: counted(connection, REQUESTS, [one_over])?,
        lag_ms: late.map_or(0, |at_ms| now_ms.saturating_sub(at_ms.cast_unsigned())),
    };
    transaction.finish()?;
    Ok(stats)
}

/// Blocked instances by code, and the sizes of the file and its log.
pub(crate) fn details(connection: &Connection, path: &Path) -> Result<StoreDetails, Fault> {
    let mut blocked = connection.prepare_cached(BLOCKED_CODES)?;
    let limits = [bound(Count::EXACT + 1), bound(StoreDetails::CODE_TEXT)];
    let begins = blocked.query_map(limits, |row| row.get::<_, String>(0))?;
    let begins = begins.collect::<Result<Vec<_>, _>>()?;
    let pages = |name: &str| -> rusqlite::Result<u64> {
        let pages: i64 = connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))?;
        Ok(pages.cast_unsigned())
    };
    let file = pages("page_count")? * pages("page_size")?;
    // A store in memory has no log.
    let log = std::fs::metadata(format!("{}-wal", path.display())).map_or(0, |log| log.len());
    Ok(StoreDetails {
        blocked: StoreDetails::count_blocked(begins.iter().map(String::as_str)),
        bytes: vec![("file", file), ("log", log)],
        earliest: earliest(connection)?,
    })
}

/// The earliest due time of each shard, as far as it is among the first.
fn earliest(connection: &Connection) -> Result<Vec<(u8, u64)>, Fault> {
    let mut due = connection.prepare_cached(EARLIEST)?;
    let due = due.query_map([bound(StoreDetails::EARLIEST)], |row| {
        Ok((row.get::<_, u8>(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
    })?;
    Ok(StoreDetails::earliest_of(due.collect::<Result<Vec<_>, _>>()?))
}

fn counted(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<Count> {
    let rows: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
    Ok(Count::bounded(rows.cast_unsigned(), Count::EXACT))
}
