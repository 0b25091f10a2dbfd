//! The contract between the engine and what keeps its rows.
//!
//! A store speaks of rows, turns and messages, never of what they mean: bodies are opaque bytes, and what must be
//! searched is in columns. Every call takes a [`Reply`] and may answer from any thread, or at once on the caller's
//! thread, so callers hold no lock across a call. Calls have no order among each other except what a caller waits for. A
//! store that is naturally asynchronous is written as an [`AsyncStore`], with `async fn`, and wrapped in a [`SpawnedStore`].
//!
//! | role | calls |
//! |---|---|
//! | ownership | [`open_session`](Store::open_session) to [`directory`](Store::directory): who may commit for which shards, until when |
//! | commits | [`commit`](Store::commit), [`send`](Store::send): everything that is written about instances |
//! | reading | [`read_inbox`](Store::read_inbox) to [`read_turns`](Store::read_turns): what an owner has to look at |
//! | tasks | [`take_tasks`](Store::take_tasks) to [`give_back_tasks`](Store::give_back_tasks): activities that any node may run |
//! | requests | [`put_request`](Store::put_request) to [`withdraw_request`](Store::withdraw_request): queries and updates from elsewhere |
//! | looking | [`list`](Store::list) to [`check_rows`](Store::check_rows): for people and programs, without touching the hot path |
//! | upkeep | deleting, sweeping, settings, hints, closing |
//!
//! # What every store guarantees
//!
//! - **Time** is the store's own clock, read at the moment of writing. Callers pass durations, or times reckoned from a
//!   reading of that clock, never from one of theirs. It should not go back, not even between two processes.
//! - **A batch is one transaction**, synced before it is answered. Each member stands for itself. See [`Commit`].
//! - **Reads under a session that is gone answer [`StoreError::SessionGone`]**, never an empty page; so do reads that name
//!   a shard which the session does not own.
//! - **Opening, claiming, replacing and releasing are idempotent**: a caller that lost the answer makes the same call
//!   again and learns where it stands.
//! - **Pages** hold at least one row if there is one, and otherwise no more than their limit.

mod async_store;
mod blocked;
mod change;
mod check;
mod commit;
mod condition;
mod criteria;
mod error;
pub mod memory;
mod order_key;
mod page;
mod paused;
mod request;
mod row;
mod session;
mod shard_set;
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
pub use criteria::{Criteria, Page, PageKey};
pub use error::StoreError;
pub use memory::MemoryStore;
pub use order_key::order_key;
pub use page::{PageFill, PageLimit};
pub use paused::{PausedOrchestration, PausedOrchestrations};
pub use request::{NewRequest, RequestNumber, RequestOutcome, RequestPage, RequestReply, RequestRow};
pub use row::{InstanceRow, NewInstance, RowChange, Status, row_checksum};
pub use session::{
    Directory, Gap, Lease, NewSession, NodeInfo, OwnedShard, Replaced, SessionId, SessionRole, SessionRow,
    ShardOwner,
};
pub use shard_set::ShardSet;
pub use stats::{Count, StoreStats};
pub use task::{Evidence, Served, TaskChange, TaskId, TaskRenewal, TaskReport, TaskRow, TaskState};
pub use turn::{ReadTurns, TurnReader, TurnRow, read_turns, read_turns_with};

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

/// Where an answer goes.
pub type Reply<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// An instance with turns of its current execution.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedInstance {
    /// Its row.
    pub row: InstanceRow,
    /// The turns of its current execution that were asked for, in order.
    pub turns: Vec<TurnRow>,
    /// Its messages by number, within the page limit; blocked or parked makes no difference.
    pub inbox: InboxPage,
    /// The tasks of its current execution, by event.
    pub tasks: Vec<TaskRow>,
}

/// An instance that wants attention at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueInstance {
    /// The instance.
    pub key: InstanceKey,
    /// Its shard.
    pub shard: ShardId,
    /// When.
    pub wake_at_ms: u64,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many rows it deleted.
    pub rows: u64,
    /// Whether there is more to delete now.
    pub more: bool,
}

/// Keeps instances, turns, messages, tasks and requests.
pub trait Store: Send + Sync + 'static {
    // ---- ownership ------------------------------------------------------------------------------------------------

    /// Opens a session that lives for its lease by the store's clock unless renewed.
    ///
    /// A session that exists under this id is renewed instead. A maintenance session is refused with
    /// [`StoreError::InUse`] while a lane's session is live; opening a lane's session ends all maintenance sessions.
    fn open_session(&self, session: NewSession, reply: Reply<Lease>);

    /// Renews a session for as long again, even if it has expired, as long as nobody ended it.
    /// [`StoreError::SessionGone`] if somebody did.
    fn renew_session(&self, session: SessionId, reply: Reply<Lease>);

    /// Ends a session, having released its shards as [`release_shards`](Store::release_shards) does. A commit under
    /// way is waited for, or beaten. A session that is gone is not an error.
    fn end_session(&self, session: SessionId, reply: Reply<()>);

    /// Gives a session shards that no session owns until it owns `target`, having first ended the sessions that expired.
    /// Answers all shards that the session owns then; none are taken away if they are more.
    ///
    /// Each shard that is given away counts up its epoch. One whose last owner did not release it counts an unclean end.
    fn claim_shards(&self, session: SessionId, target: usize, reply: Reply<Vec<OwnedShard>>);

    /// Takes shards away from a session that owns them: others may claim them now. Their notes and their counts of
    /// unclean ends are cleared. Shards that the session does not own are left alone.
    fn release_shards(&self, session: SessionId, shards: ShardSet, reply: Reply<()>);

    /// Puts a new session in the place of an old one, in one transaction: the old session is deleted, which waits for
    /// its batch or beats it; the new one is inserted and gets the shards that the old one still owned, each at the next
    /// epoch. Unclean ends, notes and gaps stay as they are.
    ///
    /// If the old session is gone, the new one owns nothing. If the new one exists already, this call was made before:
    /// it is answered with what the new session owns.
    fn replace_session(&self, old: SessionId, new: NewSession, reply: Reply<Replaced>);

    /// Notes something about shards of a session, or nothing any more: the next owner's claim returns it. With
    /// `is_steady`, their counts of unclean ends are cleared. Shards that the session does not own are left alone.
    /// [`StoreError::SessionGone`] if the session is gone.
    fn write_shard_notes(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
        reply: Reply<()>,
    );

    /// All sessions that were not ended.
    fn directory(&self, reply: Reply<Directory>);

    /// Who owns a shard, and if nobody does, since when.
    fn shard_owner(&self, shard: ShardId, reply: Reply<ShardOwner>);

    // ---- commits --------------------------------------------------------------------------------------------------

    /// Writes a batch in one transaction, synced before it answers. Each member stands for itself: a bad one does not
    /// sink its neighbours. The answer has one outcome for each member, in order.
    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>);

    /// Appends messages from outside of the owner, each standing for itself, synced before it answers. It changes no
    /// instance's row.
    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>);

    // ---- reading --------------------------------------------------------------------------------------------------

    /// A page of the inbox of a session's shards: without parked rows, and of blocked instances only the urgent ones. A
    /// pass starts at 0.
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

    /// The instances of a session's shards that are owed work, by key, after `after`.
    fn read_owed(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    );

    /// The unfinished instances of a session's shards that are blocked, by key, after `after`.
    fn read_blocked(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    );

    /// The row of an id.
    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>);

    /// An instance with the turns of its current execution after turn `after_turn`, its messages within `inbox`, and its
    /// tasks, all of one moment.
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

    /// Leases up to `limit` queued tasks that a node can run to a holder, for `lease_ms` by the store's clock, having
    /// first queued again those whose lease ran out; cancelled ones among them are deleted. If the holder's session is
    /// gone or has expired, that counts as [`TaskRow::queue_after_lease`] says.
    fn take_tasks(
        &self,
        holder: SessionId,
        served: Served,
        limit: usize,
        lease_ms: u64,
        reply: Reply<Vec<TaskRow>>,
    );

    /// The tasks that are leased to a holder: what it took, if an answer was lost.
    fn held_tasks(&self, holder: SessionId, reply: Reply<Vec<TaskRow>>);

    /// Renews a holder's leases and writes what it has to say about them ([`TaskReport::apply`]). Answers in the same
    /// order.
    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<TaskReport>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    );

    /// Ends a holder's attempt: its result is appended to the instance's inbox and the row is deleted, together. `false`
    /// if the attempt is no longer the holder's: nothing was written.
    fn finish_task(&self, holder: SessionId, task: TaskId, attempt: u32, body: Arc<[u8]>, reply: Reply<bool>);

    /// Gives a holder's tasks back, to be taken by another node.
    fn give_back_tasks(&self, holder: SessionId, tasks: Vec<TaskId>, reply: Reply<()>);

    // ---- requests -------------------------------------------------------------------------------------------------

    /// Writes a request to whichever instance has an id.
    fn put_request(&self, request: NewRequest, reply: Reply<RequestOutcome>);

    /// The requests to instances of a session's shards from number `from` on, without those past their deadline.
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

    /// Takes a request back. `false` if it is gone: it was answered, or swept.
    fn withdraw_request(&self, number: RequestNumber, reply: Reply<bool>);

    // ---- looking --------------------------------------------------------------------------------------------------

    /// A page of rows, in the filter's order: at least one, if there are any.
    fn list(&self, filter: Criteria, after: Option<PageKey>, limit: usize, reply: Reply<Page>);

    /// How many rows there are, exact up to `at_most`.
    fn count(&self, filter: Criteria, at_most: u64, reply: Reply<Count>);

    /// Tasks of all instances, by id, after `after`. They come without [work](TaskRow::work) and
    /// [details](TaskRow::details), which can be large. Rows that are damaged are left out.
    fn list_tasks(&self, after: Option<TaskId>, limit: usize, reply: Reply<Vec<TaskRow>>);

    /// Row counts and scheduling lag.
    fn stats(&self, reply: Reply<StoreStats>);

    /// Checks some rows beside the instances, `rows` at a time: all requests and replies are returned, and whatever the store
    /// finds damaged, or belonging to no instance, is named. A check begins without a place and goes on from page to
    /// page.
    fn check_rows(&self, after: Option<RowPlace>, rows: usize, reply: Reply<CheckedRows>);

    // ---- upkeep ---------------------------------------------------------------------------------------------------

    /// Deletes instances that have ended, with all their rows; whether they have is checked while deleting. One whose row is
    /// damaged ([`InstanceRow::is_sound`]) is deleted whatever it says: nobody can run it, and it may have no id that
    /// others could name it by. An instance with many turns is gone at once for everybody who looks, and its rows are
    /// deleted by the sweeps that follow.
    fn delete(&self, instances: Vec<(ShardId, InstanceKey)>, reply: Reply<Vec<DeleteOutcome>>);

    /// Deletes turns of an instance's executions before `execution`, oldest first and at most `rows` of them, under the
    /// session that owns the instance. The current execution is never touched.
    fn prune_executions(
        &self,
        session: SessionId,
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
        rows: usize,
        reply: Reply<Swept>,
    );

    /// Deletes at most `rows` rows that nobody needs any more: requests and replies past their deadline, what large
    /// instances left behind when they were deleted, and, with `keep_executions_ms`, turns of executions that were
    /// continued as new that long ago. The current execution is never touched.
    ///
    /// An execution was continued when a commit changed its instance's [`execution`](RowChange::execution), by the
    /// store's clock.
    fn sweep(&self, rows: usize, keep_executions_ms: Option<u64>, reply: Reply<Swept>);

    /// A setting that anybody may write.
    fn read_setting(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>);

    /// Writes a setting, or deletes it, if it still is what was read. Answers whether it was.
    fn write_setting(
        &self,
        name: &str,
        read: Option<Arc<[u8]>>,
        value: Option<Arc<[u8]>>,
        reply: Reply<bool>,
    );

    /// Asks to be called when something may have changed: another process sent a message, or a commit concerns others.
    fn watch(&self, watcher: Watcher);

    /// Finishes what was asked before and lets go of everything. Later calls answer [`StoreError::Closed`].
    fn close(&self, reply: Reply<()>);
}
