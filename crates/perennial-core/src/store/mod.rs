//! The contract between the engine and a store.
//!
//! A store deals with rows, turns and messages, never with their meaning: bodies are opaque bytes, and everything that
//! is searched is in columns. Every call takes a [`Reply`] and may reply from any thread, or immediately on the
//! caller's thread, so callers hold no lock during a call. Calls are not ordered among each other, except when a caller
//! waits for a reply before making the next call. An asynchronous store is written as an [`AsyncStore`], with `async
//! fn`, and wrapped in a [`SpawnedStore`].
//!
//! | role | calls |
//! |---|---|
//! | ownership | [`open_session`](Store::open_session) to [`directory`](Store::directory): who may commit for which shards, until when |
//! | commits | [`commit`](Store::commit), [`send`](Store::send): everything that is written about instances |
//! | reading | [`read_inbox`](Store::read_inbox) to [`read_turns`](Store::read_turns): what an owner has to look at |
//! | tasks | [`take_tasks`](Store::take_tasks) to [`give_back_tasks`](Store::give_back_tasks): activities that any node may run |
//! | requests | [`put_request`](Store::put_request) to [`withdraw_request`](Store::withdraw_request): queries and updates from elsewhere |
//! | looking | [`list`](Store::list) to [`check_rows`](Store::check_rows): for people and programs, without touching the hot path |
//! | moving | [`export_rows`](Store::export_rows), [`import_rows`](Store::import_rows): all rows, for another store |
//! | upkeep | deleting, sweeping, settings, hints, closing |
//!
//! # What every store guarantees
//!
//! - **Time** is the store's own clock, read at the moment of writing. Callers pass durations, or times derived from a
//!   reading of that clock, never from their own clock. It should not go backwards, not even between two processes.
//! - **A batch is one transaction**, synced before the reply. Each member has its own outcome. See [`Commit`].
//! - **Reads under a session that has ended reply with [`StoreError::SessionGone`]**, never with an empty page; so do
//!   reads that name a shard that the session does not own.
//! - **Opening, claiming, replacing and releasing are idempotent**: a caller that lost the reply repeats the call and
//!   learns the current state.
//! - **Pages** contain at least one row if there is one, and otherwise respect their limit.

mod async_store;
mod blocked;
mod change;
mod check;
mod commit;
mod condition;
mod criteria;
mod error;
pub mod memory;
mod move_mark;
mod moving;
mod order_key;
mod page;
mod paused;
mod request;
mod row;
mod row_digest;
mod session;
mod shard_set;
mod shown_url;
mod sources;
mod stats;
mod task;
mod turn;

pub use async_store::{AsyncStore, SpawnedStore, StoreTask};
pub use blocked::{Blocked, Divergence, DivergenceRow, DivergenceSide, Pause, Skippable};
pub use change::{Changes, Watcher};
pub use check::{CheckedRows, DamagedRow, RowPlace};
pub use commit::{
    Commit, CommitOutcome, Conflict, DeleteOutcome, DeliveryReport, InboxNumber, InboxPage, InboxQuery,
    InboxRow, Outgoing, SendOutcome, SendRequest,
};
pub use condition::{AttributeName, Comparison, Condition, FilterError, KeyRange, attribute};
pub use criteria::{Criteria, EndPlace, Page, PageKey};
pub use error::StoreError;
pub use memory::MemoryStore;
pub use move_mark::{MoveMark, MoveSide};
pub use moving::{Imported, MovedKey, MovedMessage, MovedRow, MovedShard, MovedTable};
pub use order_key::order_key;
pub use page::{PageFill, PageLimit};
pub use paused::{PausedOrchestration, PausedOrchestrations};
pub use request::{NewRequest, RequestNumber, RequestOutcome, RequestPage, RequestReply, RequestRow};
pub use row::{InstanceRow, NewInstance, RowChange, Status, row_checksum};
pub use row_digest::RowDigest;
pub use session::{
    Directory, Gap, Lease, NewSession, NodeInfo, NodeLoad, OwnedShard, Replaced, SessionId, SessionRole,
    SessionRow, ShardOwner,
};
pub use shard_set::ShardSet;
pub use shown_url::shown_url;
pub use sources::{Source, SourceChoice};
pub use stats::{Count, StoreDetails, StoreStats};
pub use task::{Evidence, Served, TaskChange, TaskId, TaskRenewal, TaskReport, TaskRow, TaskState};
pub use turn::{ReadTurns, TurnReader, TurnRow, read_turns, read_turns_with};

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

/// The callback that receives the result of a call.
pub type Reply<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// An instance with turns of its current execution.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedInstance {
    /// The row of the instance.
    pub row: InstanceRow,
    /// The requested turns of its current execution, in order.
    pub turns: Vec<TurnRow>,
    /// Its messages ordered by number, within the page limit, including those of a blocked instance and parked ones.
    pub inbox: InboxPage,
    /// The tasks of its current execution, ordered by event.
    pub tasks: Vec<TaskRow>,
}

/// An instance with a wake time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueInstance {
    /// The key of the instance.
    pub key: InstanceKey,
    /// The shard of the instance.
    pub shard: ShardId,
    /// The wake time.
    pub wake_at_ms: u64,
}

/// The outcome of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many rows were deleted.
    pub rows: u64,
    /// Whether there is more to delete now.
    pub more: bool,
}

/// Stores instances, turns, messages, tasks and requests.
pub trait Store: Send + Sync + 'static {
    // ---- ownership ------------------------------------------------------------------------------------------------

    /// Opens a session. It lives for its lease, by the store's clock, unless it is renewed.
    ///
    /// If a session with this id exists, it is renewed instead. A maintenance session is refused with
    /// [`StoreError::InUse`] while the session of a lane is live; opening the session of a lane ends all maintenance
    /// sessions. While the store has a [`MoveMark`], sessions of nodes and lanes are refused with
    /// [`MoveMark::refusal`], here and when a session is replaced.
    fn open_session(&self, session: NewSession, reply: Reply<Lease>);

    /// Renews a session for another lease, even if it has expired, unless it was ended: then the reply is
    /// [`StoreError::SessionGone`]. `info`, if given, replaces the record with which it was opened.
    fn renew_session(&self, session: SessionId, info: Option<Arc<[u8]>>, reply: Reply<Lease>);

    /// Releases the shards of a session, as [`release_shards`](Store::release_shards) does, and ends it. A commit in
    /// progress completes first or is fenced. Ending a session that does not exist is not an error.
    fn end_session(&self, session: SessionId, reply: Reply<()>);

    /// Ends expired sessions, then gives the session shards without an owner until it owns `target`. Replies with all
    /// shards that the session owns afterwards; if it already owns more, none are taken away.
    ///
    /// Each shard that changes its owner gets the next epoch. If its last owner did not release it, its count of
    /// unclean ends is incremented.
    fn claim_shards(&self, session: SessionId, target: usize, reply: Reply<Vec<OwnedShard>>);

    /// Takes shards away from the session that owns them, so that others can claim them. Their notes and counts of
    /// unclean ends are cleared. Shards that the session does not own are ignored.
    fn release_shards(&self, session: SessionId, shards: ShardSet, reply: Reply<()>);

    /// Replaces a session with a new one, in one transaction: the old session is deleted, after its batch in progress
    /// has completed or by fencing it; the new one is inserted and receives the shards that the old one still owned,
    /// each at the next epoch. Unclean ends, notes and gaps are kept.
    ///
    /// If the old session does not exist, the new one owns nothing. If the new one exists, this call was made before:
    /// the reply contains what the new session owns.
    fn replace_session(&self, old: SessionId, new: NewSession, reply: Reply<Replaced>);

    /// Sets or clears notes on shards of a session; the next owner's claim returns them. With `is_steady`, the counts
    /// of unclean ends are cleared. Shards that the session does not own are ignored. Replies with
    /// [`StoreError::SessionGone`] if the session has ended.
    fn write_shard_notes(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
        reply: Reply<()>,
    );

    /// All sessions that have not been ended.
    fn directory(&self, reply: Reply<Directory>);

    /// The owner of a shard, or since when it has none.
    fn shard_owner(&self, shard: ShardId, reply: Reply<ShardOwner>);

    // ---- commits --------------------------------------------------------------------------------------------------

    /// Writes a batch in one transaction, synced before the reply. Each member has its own outcome: a bad member does
    /// not affect the others. The reply has one outcome per member, in order.
    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>);

    /// Appends messages from processes that do not own the instances, synced before the reply. Each has its own
    /// outcome. No instance row is changed.
    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>);

    // ---- reading --------------------------------------------------------------------------------------------------

    /// A page of the inbox of a session's shards, without parked rows; of blocked instances only urgent rows. A pass
    /// starts at 0.
    fn read_inbox(&self, session: SessionId, query: InboxQuery, reply: Reply<InboxPage>);

    /// The unfinished instances of a session's shards that are due before a time, in due order, after `after`.
    fn read_due(
        &self,
        session: SessionId,
        shards: ShardSet,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
        reply: Reply<Vec<DueInstance>>,
    );

    /// The instances of a session's shards with owed work, ordered by key, after `after`.
    fn read_owed(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    );

    /// The unfinished instances of a session's shards that are blocked, ordered by key, after `after`.
    fn read_blocked(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    );

    /// The row of the instance with an id.
    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>);

    /// An instance with the turns of its current execution after turn `after_turn`, its messages within `inbox`, and
    /// its tasks, read from one snapshot.
    fn load(
        &self,
        shard: ShardId,
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
        reply: Reply<Option<LoadedInstance>>,
    );

    /// Turns of one execution after turn `after_turn`, within the limit.
    fn read_turns(
        &self,
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: PageLimit,
        reply: Reply<Vec<TurnRow>>,
    );

    // ---- tasks ----------------------------------------------------------------------------------------------------

    /// Leases up to `limit` queued tasks that a node can run to a holder, for `lease_ms` by the store's clock. Tasks
    /// with an expired lease are queued again first; cancelled ones among them are deleted. If the session of the
    /// previous holder has ended or expired, [`TaskRow::queue_after_lease`] applies.
    fn take_tasks(
        &self,
        holder: SessionId,
        served: Served,
        limit: usize,
        lease_ms: u64,
        reply: Reply<Vec<TaskRow>>,
    );

    /// The tasks leased to a holder, for a holder that lost a reply.
    fn held_tasks(&self, holder: SessionId, reply: Reply<Vec<TaskRow>>);

    /// Renews a holder's leases and applies its reports ([`TaskReport::apply`]). The reply is in the same order.
    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<TaskReport>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    );

    /// Completes a holder's attempt: its result is appended to the instance's inbox and the row is deleted, in one
    /// transaction. Replies with `false`, having written nothing, if the holder no longer has the attempt.
    fn finish_task(&self, holder: SessionId, task: TaskId, attempt: u32, body: Arc<[u8]>, reply: Reply<bool>);

    /// Returns a holder's tasks to the queue, for other nodes.
    fn give_back_tasks(&self, holder: SessionId, tasks: Vec<TaskId>, reply: Reply<()>);

    // ---- requests -------------------------------------------------------------------------------------------------

    /// Writes a request to the instance that currently has an id.
    fn put_request(&self, request: NewRequest, reply: Reply<RequestOutcome>);

    /// The requests to instances of a session's shards, starting with number `from`, without those past their deadline.
    fn read_requests(
        &self,
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
        reply: Reply<RequestPage>,
    );

    /// The reply to a request, if there is one.
    fn read_reply(&self, number: RequestNumber, reply: Reply<Option<Arc<[u8]>>>);

    /// Withdraws a request. Replies with `false` if it does not exist because it was answered or swept.
    fn withdraw_request(&self, number: RequestNumber, reply: Reply<bool>);

    // ---- looking --------------------------------------------------------------------------------------------------

    /// A page of rows, in the filter's order: at least one, if there are any.
    fn list(&self, filter: Criteria, after: Option<PageKey>, limit: usize, reply: Reply<Page>);

    /// The number of matching rows, exact up to `at_most`.
    fn count(&self, filter: Criteria, at_most: u64, reply: Reply<Count>);

    /// Tasks of all instances, ordered by id, after `after`. They are returned without [work](TaskRow::work) and
    /// [details](TaskRow::details), which can be large. Damaged rows are skipped.
    fn list_tasks(&self, after: Option<TaskId>, limit: usize, reply: Reply<Vec<TaskRow>>);

    /// Row counts and scheduling lag.
    fn stats(&self, reply: Reply<StoreStats>);

    /// Blocked instances by code, and sizes on disk. Counts are exact up to [`Count::EXACT`] blocked instances, and lower
    /// bounds beyond that.
    fn details(&self, reply: Reply<StoreDetails>);

    /// Checks rows that do not belong to an instance's own tables, `rows` at a time: returns all requests and replies,
    /// and names every row that is damaged or belongs to no instance. A check begins without a place and continues page
    /// by page.
    fn check_rows(&self, after: Option<RowPlace>, rows: usize, reply: Reply<CheckedRows>);

    // ---- moving ---------------------------------------------------------------------------------------------------

    /// A page of all rows of a table, after the row with the key `after`: at least one, if there are more. The order is
    /// the store's own. Rows that belong to no instance are left out; a row that cannot be read is an error.
    ///
    /// Nothing may write while the pages are read.
    fn export_rows(
        &self,
        table: MovedTable,
        after: Option<MovedKey>,
        limit: PageLimit,
        reply: Reply<Vec<MovedRow>>,
    );

    /// Writes rows of one table as another store exported them, under a session. Rows that are stored with the same
    /// content are skipped, so that the call can be repeated. A stored row is never changed, except that the last number
    /// of a message is only ever increased and that a shard takes everything as long as no lane has owned it.
    fn import_rows(&self, session: SessionId, rows: Vec<MovedRow>, reply: Reply<Imported>);

    // ---- upkeep ---------------------------------------------------------------------------------------------------

    /// Deletes instances that have ended, with all their rows; the status is checked in the same transaction. An
    /// instance whose row is damaged ([`InstanceRow::is_sound`]) is deleted in any status: it cannot run, and it may
    /// have no id by which it could be addressed. An instance with many turns disappears immediately for all readers,
    /// and its rows are deleted by later sweeps.
    fn delete(&self, instances: Vec<(ShardId, InstanceKey)>, reply: Reply<Vec<DeleteOutcome>>);

    /// Deletes turns of an instance's executions before `execution`, oldest first and at most `rows` of them, under the
    /// session that owns the instance. The current execution is never changed.
    fn prune_executions(
        &self,
        session: SessionId,
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
        rows: usize,
        reply: Reply<Swept>,
    );

    /// Deletes at most `rows` rows that are no longer needed: requests and replies past their deadline, rows of deleted
    /// large instances, and, with `keep_executions_ms`, turns of executions that were continued as new that long ago.
    /// The current execution is never changed.
    ///
    /// An execution counts as continued from the commit that changed its instance's
    /// [`execution`](RowChange::execution), by the store's clock.
    fn sweep(&self, rows: usize, keep_executions_ms: Option<u64>, reply: Reply<Swept>);

    /// Reads a setting. Any process may write settings.
    fn read_setting(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>);

    /// Writes or deletes a setting, if its value is still `read`. Replies whether it was written.
    fn write_setting(
        &self,
        name: &str,
        read: Option<Arc<[u8]>>,
        value: Option<Arc<[u8]>>,
        reply: Reply<bool>,
    );

    /// Registers a callback for possible changes: another process sent a message, or a commit concerns others.
    fn watch(&self, watcher: Watcher);

    /// How many lanes of one process are useful, because their batches are written side by side. A store with one writer
    /// has no use for more than one.
    fn useful_lanes(&self) -> usize {
        1
    }

    /// Completes earlier calls and releases all resources. Later calls reply with [`StoreError::Closed`].
    fn close(&self, reply: Reply<()>);
}
