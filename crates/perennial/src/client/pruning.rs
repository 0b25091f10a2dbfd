//! Deleting past executions.

use std::time::{Duration, Instant};

use super::Client;
use crate::error::ClientError;

/// How many rows one transaction deletes.
const ROWS: usize = 2_000;
/// The shortest rest between two transactions.
const REST: Duration = Duration::from_millis(5);

impl Client {
    /// Deletes the histories of executions that were continued as new at least this long ago, by the store's
    /// clock, in all instances. Current executions are never deleted. Returns the number of deleted rows;
    /// `progress` is called after each transaction. Pauses between transactions are as long as the work, so
    /// that others get at least half of the store's time.
    ///
    /// Instances that continue as new also delete their old executions automatically, see
    /// [`RuntimeOptions::keep_executions`](crate::RuntimeOptions).
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # async fn tidy(client: &Client) -> Result<(), ClientError> {
    /// let week = Duration::from_secs(7 * 24 * 60 * 60);
    /// let rows = client.prune_executions(week, |_| ()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn prune_executions(
        &self,
        older_than: Duration,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, ClientError> {
        let keep_ms = u64::try_from(older_than.as_millis()).unwrap_or(u64::MAX);
        let mut deleted = 0;
        loop {
            let began = Instant::now();
            let swept = self.call("", |store, reply| store.sweep(ROWS, Some(keep_ms), reply)).await?;
            deleted += swept.rows;
            progress(deleted);
            if !swept.more {
                return Ok(deleted);
            }
            tokio::time::sleep(began.elapsed().max(REST)).await;
        }
    }
}
