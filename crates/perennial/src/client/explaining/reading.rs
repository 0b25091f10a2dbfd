//! Reading an instance for an explanation: a consistent snapshot of its row, tasks and messages, and the open
//! operations of its history.

use perennial_core::store::{InstanceRow, LoadedInstance, PageLimit, Reply, Store, StoreError, TurnRow};
use perennial_core::{HistoryError, InstanceKey, ShardId, TurnFailure};

use super::Depth;
use super::open_work::OpenWork;
use super::wait::WaitReason;
use crate::client::Client;
use crate::error::ClientError;

/// How many turns are read at a time.
const TURNS_PER_PAGE: PageLimit = PageLimit { rows: 1_000, bytes: 4 << 20 };
/// How many messages of an instance are counted.
const MESSAGES: PageLimit = PageLimit { rows: 100, bytes: 64 << 10 };
/// How often an instance is read again if it continues as new in the meantime.
const LOOKS: usize = 3;

/// An instance as it was read.
pub(super) struct Looked {
    pub(super) loaded: LoadedInstance,
    /// The open operations, or the reason why they cannot be determined.
    pub(super) work: Result<OpenWork, WaitReason>,
}

impl Client {
    /// Reads an instance with its open operations. `None` if it does not exist.
    pub(super) async fn look(
        &self,
        id: &str,
        shard: ShardId,
        key: InstanceKey,
        depth: Depth,
    ) -> Result<Option<Looked>, ClientError> {
        for _ in 0..LOOKS {
            let nothing = |store: &dyn Store, reply: Reply<Option<LoadedInstance>>| {
                store.load(shard, key, u64::MAX, PageLimit { rows: 1, bytes: 0 }, reply);
            };
            let Some(before) = self.call_stored(id, nothing).await? else { return Ok(None) };
            let execution = before.row.execution;
            let mut work = self.read_work(&before.row, depth).await?;
            // One read, so that the last turns, the tasks and the messages are consistent.
            let read = work.as_ref().map_or(u64::MAX, OpenWork::turns);
            let rest = |store: &dyn Store, reply: Reply<Option<LoadedInstance>>| {
                store.load(shard, key, read, MESSAGES, reply);
            };
            let Some(loaded) = self.call_stored(id, rest).await? else { return Ok(None) };
            if loaded.row.execution != execution {
                continue;
            }
            if let Ok(read) = &mut work
                && let Err(error) = read.read(&loaded.turns)
            {
                work = Err(unreadable(error));
            }
            return Ok(Some(Looked { loaded, work }));
        }
        let problem = "the instance continues as new faster than it can be read".to_owned();
        Err(ClientError::Unknown { id: id.to_owned(), reason: problem })
    }

    /// The open operations of the current execution, from as many turns as are read in pages.
    pub(super) async fn read_work(
        &self,
        row: &InstanceRow,
        depth: Depth,
    ) -> Result<Result<OpenWork, WaitReason>, ClientError> {
        let (shard, key, execution) = (row.shard, row.key, row.execution);
        let kept = self.histories.as_ref().and_then(|kept| kept.take((key, execution)));
        let mut work = kept.unwrap_or_else(|| OpenWork::new(key));
        let known = work.turns();
        loop {
            let after = work.turns();
            if after - known >= depth.turns {
                self.keep(row, work);
                let problem =
                    format!("its history has more than {after} turns, which is too long to be read here");
                return Ok(Err(WaitReason::Unread { problem, too_long: true }));
            }
            let page = |store: &dyn Store, reply: Reply<Vec<TurnRow>>| {
                store.read_turns(shard, key, execution, after, TURNS_PER_PAGE, reply);
            };
            let page = self.call_stored(&row.id, page).await?;
            if page.is_empty() {
                return Ok(Ok(work));
            }
            if let Err(error) = work.read(&page) {
                return Ok(Err(unreadable(error)));
            }
        }
    }

    /// Keeps what was read for the next time.
    pub(super) fn keep(&self, row: &InstanceRow, work: OpenWork) {
        if let Some(kept) = &self.histories {
            kept.put((row.key, row.execution), work);
        }
    }

    /// Calls the store without decoding payloads, which are not needed.
    async fn call_stored<T: Send + 'static>(
        &self,
        id: &str,
        call: impl FnOnce(&dyn Store, Reply<T>),
    ) -> Result<T, ClientError> {
        self.as_stored().call(id, call).await
    }
}

fn unreadable(error: HistoryError) -> WaitReason {
    let problem = StoreError::CorruptRow(TurnFailure::from(error).to_string()).to_string();
    WaitReason::Unread { problem, too_long: false }
}
