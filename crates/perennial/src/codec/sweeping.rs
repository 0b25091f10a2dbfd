//! Deleting blobs without references.
//!
//! Candidates are blobs that have not been put for a while. The sweep searches all stored data for their
//! names and deletes those without a reference, if they are still old enough. A reference is only written
//! after its blob was put, which makes the blob young. So a blob whose reference moves from a message to a
//! turn during the sweep is kept.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use perennial_core::store::{Criteria, InstanceRow, LoadedInstance, PageLimit, Store, StoreError};

use super::{BlobStore, offload};
use crate::client::Client;
use crate::error::{ClientError, Error};

/// Younger blobs are never deleted: they may belong to a commit that has not been written yet.
const MIN_AGE: Duration = Duration::from_secs(3_600);
const ROWS_PER_PAGE: usize = 200;

/// The result of [`Client::sweep_blobs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweptBlobs {
    /// Number of deleted blobs.
    pub deleted: u64,
    /// Number of blobs that were old enough but are referred to.
    pub kept: u64,
}

impl Client {
    /// Deletes the blobs of [`Offload`](crate::codec::Offload) that nothing in the store refers to and that
    /// were last written more than `older_than` ago (at least an hour). The call reads the whole store; use
    /// it occasionally, after instances were deleted or pruned. Blobs that several stores share must not be
    /// swept.
    ///
    /// The age has to exceed the longest time a runtime may wait for its store: payloads encoded before such
    /// a wait are committed after it. If anything cannot be read, nothing is deleted.
    pub async fn sweep_blobs(
        &self,
        blobs: Arc<dyn BlobStore>,
        older_than: Duration,
    ) -> Result<SweptBlobs, Error> {
        let age = older_than.max(MIN_AGE);
        let listed = Arc::clone(&blobs);
        let candidates = on_its_thread(move || listed.older_than(age)).await?;
        let mut unmarked: BTreeSet<String> = candidates.into_iter().collect();
        let total = unmarked.len() as u64;
        if !unmarked.is_empty() {
            self.as_stored().unmark_all(&mut unmarked).await?;
        }
        let kept = total - unmarked.len() as u64;
        let deleted = on_its_thread(move || {
            unmarked
                .iter()
                .try_fold(0, |deleted, name| Ok(deleted + u64::from(blobs.delete_older_than(name, age)?)))
        });
        Ok(SweptBlobs { deleted: deleted.await?, kept })
    }

    /// Removes all names that stored data refers to.
    async fn unmark_all(&self, unmarked: &mut BTreeSet<String>) -> Result<(), ClientError> {
        let mut after = None;
        loop {
            let from = after.take();
            let list = |store: &dyn Store, reply| store.list(Criteria::default(), from, ROWS_PER_PAGE, reply);
            let page = self.call("", list).await?;
            for row in &page.rows {
                self.unmark_instance(row, unmarked).await?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let mut place = None;
        loop {
            let from = place.take();
            let page = self.call("", |store, reply| store.check_rows(from, ROWS_PER_PAGE, reply)).await?;
            page.requests.iter().for_each(|request| unmark(&request.body, unmarked));
            page.replies.iter().for_each(|(_, body)| unmark(body, unmarked));
            match page.next {
                Some(next) => place = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn unmark_instance(
        &self,
        listed: &InstanceRow,
        unmarked: &mut BTreeSet<String>,
    ) -> Result<(), ClientError> {
        let (shard, key) = (listed.shard, listed.key);
        let load = |store: &dyn Store, reply| store.load(shard, key, 0, PageLimit::rows(usize::MAX), reply);
        let Some(LoadedInstance { row, turns, inbox, tasks }) = self.call(&listed.id, load).await? else {
            if listed.is_sound() {
                return Ok(());
            }
            let source = StoreError::CorruptRow("it cannot be read by its key".to_owned());
            return Err(ClientError::Store { id: listed.id.clone(), source });
        };
        turns.iter().for_each(|turn| unmark(&turn.bytes, unmarked));
        inbox.rows.iter().for_each(|message| unmark(&message.body, unmarked));
        for task in &tasks {
            task.work.iter().for_each(|work| unmark(work, unmarked));
            task.details.iter().for_each(|details| unmark(details.as_json().as_bytes(), unmarked));
        }
        row.published.iter().for_each(|published| unmark(published.as_json().as_bytes(), unmarked));
        for execution in 1..row.execution {
            let turns = self.turn_rows(&row, execution).await?;
            turns.iter().for_each(|turn| unmark(&turn.bytes, unmarked));
        }
        Ok(())
    }
}

/// Removes the names that occur in some stored bytes.
fn unmark(bytes: &[u8], unmarked: &mut BTreeSet<String>) {
    let before = format!(r#"["{}",""#, offload::NAME);
    let before = before.as_bytes();
    for place in 0..bytes.len().saturating_sub(before.len()) {
        if bytes[place] == b'['
            && let Some(rest) = bytes[place..].strip_prefix(before)
            && let Some(name) = rest.split(|byte| *byte == b'"').next()
            && let Ok(name) = str::from_utf8(name)
        {
            unmarked.remove(name);
        }
    }
}

/// Runs file operations, which block, on a blocking thread.
async fn on_its_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(Error::Blobs)
}
