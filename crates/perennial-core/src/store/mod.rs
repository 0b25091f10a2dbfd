//! The contract between the engine and what keeps its rows.
//!
//! A store speaks of rows, turns and messages, never of what they mean: bodies are opaque bytes, and what must be
//! searched is in columns. Every call takes a [`Reply`] and may answer from any thread, or at once on the caller's;
//! so callers hold no lock across a call. Calls of one session take effect in the order they are made.

mod ask;
mod commit;
mod error;
mod filter;
pub mod memory;
mod row;
mod session;
mod stats;
mod task;

pub use ask::{Ask, AskAnswer, AskNumber, AskOutcome, AskRow};
pub use commit::{
    Commit, CommitOutcome, Conflict, DeleteOutcome, InboxNumber, InboxRow, Outgoing, SendOutcome,
    SendRequest, TurnRow,
};
pub use error::StoreError;
pub use filter::{Filter, Page, PageKey};
pub use memory::MemoryStore;
pub use row::{Blocked, InstanceRow, NewInstance, RowChange, Status};
pub use session::{Lease, Session, SessionId};
pub use stats::{Count, StoreStats};
pub use task::{Served, TaskChange, TaskId, TaskRenewal, TaskRow, TaskState};

use std::sync::Arc;

use crate::history::Payload;
use crate::instance::{InstanceKey, ShardId};

/// Where an answer goes.
pub type Reply<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// What is called when something may have changed. Losing a call costs latency, never progress.
pub type Hint = Arc<dyn Fn() + Send + Sync>;

/// An instance with turns of its current execution.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedInstance {
    /// Its row.
    pub row: InstanceRow,
    /// The stored bytes of its turns, in order, from the one that was asked for.
    pub turns: Vec<Arc<[u8]>>,
    /// Its messages, by number, also if it is blocked or they are parked.
    pub inbox: Vec<InboxRow>,
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

/// Keeps instances, turns, messages, tasks and requests.
pub trait Store: Send + Sync + 'static {
    /// Opens a session that lives for `lease_ms` by the store's clock unless renewed.
    fn open_session(&self, node: &str, lease_ms: u64, reply: Reply<Session>);

    /// Renews a session, for as long again. [`StoreError::SessionGone`] if it has ended.
    fn renew_session(&self, session: SessionId, reply: Reply<Lease>);

    /// Ends a session; only then are its shards given away. A commit under way is waited for, or beaten. Ending a
    /// session that is gone is no error.
    fn end_session(&self, session: SessionId, reply: Reply<()>);

    /// Gives a session up to `at_most` shards that no session owns, having first ended those that expired. Returns
    /// the shards that were added.
    fn claim_shards(&self, session: SessionId, at_most: usize, reply: Reply<Vec<ShardId>>);

    /// Writes a batch in one transaction, synced before it answers. Each member stands for itself: a bad one does not
    /// sink its neighbours.
    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>);

    /// Appends messages from outside of the owner, each standing for itself, synced before it answers.
    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>);

    /// The inbox of a session's shards from number `from` on, without rows of blocked instances and without parked
    /// ones. A pass starts at 0.
    fn read_inbox(&self, session: SessionId, from: InboxNumber, limit: usize, reply: Reply<Vec<InboxRow>>);

    /// The unfinished instances of a session's shards that are due before a time, in due order, behind `after`.
    fn read_due(
        &self,
        session: SessionId,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
        reply: Reply<Vec<DueInstance>>,
    );

    /// The instances of a session's shards that are owed work, by key, behind `after`.
    fn read_owed(
        &self,
        session: SessionId,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    );

    /// The row of an id.
    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>);

    /// An instance with the turns of its current execution behind turn `after_turn`, and its messages.
    fn load(&self, key: InstanceKey, after_turn: u64, reply: Reply<Option<LoadedInstance>>);

    /// At most `limit` turns of one execution, behind turn `after_turn`.
    fn read_turns(
        &self,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: usize,
        reply: Reply<Vec<Arc<[u8]>>>,
    );

    /// Leases up to `limit` queued tasks that a node can run to a holder, for `lease_ms` by the store's clock, having
    /// first queued again those whose lease ran out, each with one interruption more; of them, those that nobody waits
    /// for go.
    fn take_tasks(
        &self,
        holder: SessionId,
        served: Served,
        limit: usize,
        lease_ms: u64,
        reply: Reply<Vec<TaskRow>>,
    );

    /// Renews a holder's leases and writes what their attempts reported, if anything. Answers in the same order.
    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<(TaskId, Option<Payload>)>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    );

    /// Ends a holder's attempt: its result goes into the owner's inbox and the row goes, together. `false` if the
    /// attempt is no longer the holder's: nothing was written.
    fn finish_task(&self, holder: SessionId, task: TaskId, attempt: u32, body: Arc<[u8]>, reply: Reply<bool>);

    /// Gives a holder's tasks back, to be taken by another node.
    fn give_back_tasks(&self, holder: SessionId, tasks: Vec<TaskId>, reply: Reply<()>);

    /// Writes a request to whichever instance has an id.
    fn ask(&self, ask: Ask, reply: Reply<AskOutcome>);

    /// The requests to instances of a session's shards from number `from` on, without those past their deadline.
    fn read_asks(&self, session: SessionId, from: AskNumber, limit: usize, reply: Reply<Vec<AskRow>>);

    /// The answer to a request, if there is one.
    fn read_answer(&self, number: AskNumber, reply: Reply<Option<Arc<[u8]>>>);

    /// Takes a request back. `false` if it is gone: it was answered, or swept.
    fn withdraw_ask(&self, number: AskNumber, reply: Reply<bool>);

    /// Removes requests and answers that are past their deadline by the store's clock.
    fn sweep_asks(&self, reply: Reply<()>);

    /// What the engine noted under a name.
    fn read_note(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>);

    /// Notes something under a name, or nothing any more, under a live session.
    fn write_note(&self, session: SessionId, name: &str, note: Option<Arc<[u8]>>, reply: Reply<()>);

    /// A page of rows, in the filter's order: at least one, if there are any.
    fn list(&self, filter: Filter, after: Option<PageKey>, limit: usize, reply: Reply<Page>);

    /// How many rows there are, exact up to `at_most`.
    fn count(&self, filter: Filter, at_most: u64, reply: Reply<Count>);

    /// How much there is of what, and how late.
    fn stats(&self, reply: Reply<StoreStats>);

    /// Deletes instances that have ended, with all their rows; whether they have is checked while deleting.
    fn delete(&self, keys: Vec<InstanceKey>, reply: Reply<Vec<DeleteOutcome>>);

    /// Asks to be called when something may have changed: another process sent a message, or a commit was made.
    fn watch(&self, hint: Hint);

    /// Finishes what was asked before and lets go of everything. Later calls answer [`StoreError::Closed`].
    fn close(&self, reply: Reply<()>);
}
