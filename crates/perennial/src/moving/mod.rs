//! Moving all instances of a store to another store, for example from a SQLite file to PostgreSQL.
//!
//! Both stores must be stopped: no runtime, worker or sending client uses them. Everything is moved that the next
//! runtime needs: instances with their ids, keys, attributes and statuses, the histories of all executions, timers,
//! unread messages with their numbers and deduplication keys, tasks, and paused orchestrations. Requests that wait for
//! an answer are not moved: their callers wait at the old store.
//!
//! Rows are copied in batches and compared at the end. A move that was interrupted is repeated with the same call: rows
//! that are there already are compared and skipped. Nothing is deleted from the source, but it is marked, so that nobody
//! continues on both stores by accident: runtimes and clients refuse it until [`reopen_store`] removes the mark.

mod marks;
mod side;

use perennial_core::store::{
    Criteria, MovedKey, MovedRow, MovedTable, PageLimit, RowDigest, StoreError, shown_url,
};

use crate::client::Client;
use crate::error::{ClientError, StartError};

pub use crate::error::MoveError;
pub use perennial_core::store::{MoveMark, MoveSide};
use side::Side;

/// The size of a batch.
const BATCH: PageLimit = PageLimit { rows: 1_000, bytes: 4 << 20 };

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveProgress {
    /// Whether rows are copied, or both stores are compared.
    pub phase: MovePhase,
    /// The table that is copied or compared: instances, turns, messages and so on.
    pub table: &'static str,
    /// How many rows of the table are done.
    pub rows: u64,
    /// How many rows the table has, if that is known.
    pub of: Option<u64>,
}

/// A phase of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovePhase {
    /// Rows are copied.
    Copying,
    /// Both stores are read and compared.
    Comparing,
}

/// What was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveReport {
    /// Whether an earlier call had begun the move.
    pub is_resumed: bool,
    /// All tables, in the order in which they were moved.
    pub tables: Vec<MovedTableReport>,
}

/// The rows of one table that were moved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedTableReport {
    /// The name of the table.
    pub name: &'static str,
    /// How many rows both stores have.
    pub rows: u64,
    /// How many of them this call wrote.
    pub written: u64,
    /// The hash of the rows, which is the same for both stores.
    pub hash: String,
}

/// Moves all rows of a stopped store to an empty one. See the [module](self).
///
/// The target is created if it does not exist. `progress` is called after every batch.
///
/// ```
/// use perennial::moving::move_store;
/// use perennial::prelude::*;
///
/// #[orchestration]
/// async fn nap(ctx: OrchestrationContext, ms: u64) -> Result<String, String> {
///     ctx.schedule_timer(Duration::from_millis(ms)).await;
///     Ok("rested".to_owned())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> perennial::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let (old, new) = (directory.path().join("old.db"), directory.path().join("new.db"));
/// # let (old, new) = (format!("sqlite:{}", old.display()), format!("sqlite:{}", new.display()));
/// let runtime = Runtime::open(&old).register(nap).start().await?;
/// runtime.client().start(nap, "nap-1", 50).await?;
/// runtime.shutdown().await?;
///
/// move_store(&old, &new, |_| {}).await?;
///
/// let runtime = Runtime::open(&new).register(nap).start().await?;
/// assert_eq!(runtime.client().result("nap-1").await?.to_text(), "rested");
/// assert!(Runtime::open(&old).start().await.is_err(), "it was moved");
/// # runtime.shutdown().await
/// # }
/// ```
pub async fn move_store(
    from: &str,
    to: &str,
    mut progress: impl FnMut(MoveProgress),
) -> Result<MoveReport, MoveError> {
    if from == to {
        return Err(refused(format!("{} is both the source and the target", shown_url(from))));
    }
    let source = Side::open(from, MoveSide::Source).await?;
    let moved = match Side::open(to, MoveSide::Target).await {
        Ok(target) => {
            let moved = run(&source, &target, &mut progress).await;
            let closed = target.close().await;
            moved.and_then(|report| closed.map(|()| report))
        }
        Err(error) => Err(error),
    };
    let closed = source.close().await;
    moved.and_then(|report| closed.map(|()| report))
}

/// Removes the mark that a move left in its source, so that runtimes and clients use that store again. Returns the mark.
///
/// Make sure that nobody works on the other store: the two would go different ways.
pub async fn reopen_store(url: &str) -> Result<MoveMark, MoveError> {
    let side = Side::open(url, MoveSide::Source).await?;
    let reopened = marks::remove(&side).await;
    side.close().await.and(reopened)
}

impl Client {
    /// The mark that a move left in this store, if it was moved or is being moved.
    pub async fn move_mark(&self) -> Result<Option<MoveMark>, ClientError> {
        let value = self.call("", |store, reply| store.read_setting(MoveMark::SETTING, reply)).await?;
        let mark = value.as_deref().map(MoveMark::decode).transpose();
        mark.map_err(|source| ClientError::Store { id: String::new(), source })
    }
}

async fn run(
    source: &Side,
    target: &Side,
    progress: &mut impl FnMut(MoveProgress),
) -> Result<MoveReport, MoveError> {
    let marks = marks::agree(source, target).await?;
    let mut written = Vec::new();
    for table in MovedTable::ALL {
        written.push(copy(source, target, table, progress).await?);
    }
    let mut tables = Vec::new();
    for (table, (copied, written)) in MovedTable::ALL.into_iter().zip(written) {
        let digest = compare(source, target, table, copied, progress).await?;
        tables.push(MovedTableReport {
            name: table.name(),
            rows: digest.rows,
            written,
            hash: digest.to_string(),
        });
    }
    // If a session was lost meanwhile, somebody else may have written.
    source.renew().await?;
    target.renew().await?;
    let is_resumed = marks.is_resumed;
    marks::finish(source, target, marks).await?;
    Ok(MoveReport { is_resumed, tables })
}

/// Copies a table. Returns how many rows it has, and how many of them were written.
async fn copy(
    source: &Side,
    target: &Side,
    table: MovedTable,
    progress: &mut impl FnMut(MoveProgress),
) -> Result<(u64, u64), MoveError> {
    let of = match table {
        MovedTable::Instances => {
            let all = source.call(|store, reply| store.count(Criteria::default(), u64::MAX, reply));
            Some(all.await?.rows)
        }
        _ => None,
    };
    let (mut rows, mut written) = (0, 0);
    let mut page = source.page(table, None).await?;
    while let Some(last) = page.last().map(MovedRow::key) {
        rows += page.len() as u64;
        // The next rows are read while these are written.
        let (imported, next) = tokio::join!(target.import(page), source.page(table, Some(last)));
        let imported = imported?;
        if let Some(key) = imported.differs {
            return Err(differs(source, target, &key).await?);
        }
        written += imported.written as u64;
        progress(MoveProgress { phase: MovePhase::Copying, table: table.name(), rows, of });
        page = next?;
    }
    Ok((rows, written))
}

/// The error for a row that the target has with another content.
async fn differs(source: &Side, target: &Side, key: &MovedKey) -> Result<MoveError, MoveError> {
    let place = match key.instance() {
        Some(instance) => match source.instance(instance).await? {
            Some(id) => format!(" of instance {id:?}"),
            None => format!(" of the instance with key {instance}"),
        },
        None => String::new(),
    };
    let reason = format!("{} has {key}{place} with another content than {}", target.shown, source.shown);
    Ok(MoveError::Mismatch { reason })
}

/// Reads a table of both stores and compares counts and hashes.
async fn compare(
    source: &Side,
    target: &Side,
    table: MovedTable,
    copied: u64,
    progress: &mut impl FnMut(MoveProgress),
) -> Result<RowDigest, MoveError> {
    let digest_of =
        async |side: &Side, mut told: Option<&mut dyn FnMut(u64)>| -> Result<RowDigest, MoveError> {
            let mut digest = RowDigest::default();
            let mut page = side.page(table, None).await?;
            while let Some(last) = page.last().map(MovedRow::key) {
                page.iter().for_each(|row| digest.add(row));
                if let Some(told) = &mut told {
                    told(digest.rows);
                }
                page = side.page(table, Some(last)).await?;
            }
            Ok(digest)
        };
    let mut told = |rows| {
        progress(MoveProgress { phase: MovePhase::Comparing, table: table.name(), rows, of: Some(copied) });
    };
    let (here, there) = tokio::join!(digest_of(source, Some(&mut told)), digest_of(target, None));
    let (here, there) = (here?, there?);
    if here == there {
        return Ok(here);
    }
    let (table, source, target) = (table.name(), &source.shown, &target.shown);
    let reason = match here.rows == copied {
        true => format!(
            "{target} has {} rows of {table} with hash {there}, and {source} has {} with hash {here}",
            there.rows, here.rows
        ),
        false => {
            format!("{source} had {copied} rows of {table} when they were copied, and now has {}", here.rows)
        }
    };
    Err(MoveError::Mismatch { reason })
}

fn refused(reason: String) -> MoveError {
    MoveError::Refused { reason }
}

/// A store that is used, or may not be used, is a reason to refuse the move; other errors are told as they are.
fn of_store(shown: &str, error: StoreError) -> MoveError {
    match error {
        StoreError::InUse(reason) => {
            refused(format!("{reason}; a move needs {shown} to be stopped: stop every process that uses it"))
        }
        StoreError::SessionGone => refused(format!(
            "somebody else began to use {shown} during the move; stop it, then repeat the move"
        )),
        error => MoveError::Store { url: shown.to_owned(), source: error },
    }
}

fn of_start(shown: &str, error: StartError) -> MoveError {
    match error {
        StartError::Store(error) => of_store(shown, error),
        error => MoveError::Start(error),
    }
}
