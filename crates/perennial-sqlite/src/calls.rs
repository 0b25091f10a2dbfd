//! Calls on their way to the store's threads, with their replies.

use std::sync::Arc;

use perennial_core::store::{
    CheckedRows, Commit, CommitOutcome, Count, Criteria, DeleteOutcome, Directory, DueInstance, Imported,
    InboxPage, InboxQuery, InstanceRow, Lease, LoadedInstance, MovedKey, MovedRow, MovedTable, NewRequest,
    NewSession, OwnedShard, Page, PageKey, PageLimit, Replaced, Reply, RequestNumber, RequestOutcome,
    RequestPage, RowPlace, SendOutcome, SendRequest, Served, SessionId, ShardOwner, ShardSet, StoreDetails,
    StoreError, StoreStats, Swept, TaskId, TaskRenewal, TaskReport, TaskRow, TurnRow,
};
use perennial_core::{InstanceKey, ShardId};

use crate::read_queue::Caller;
use crate::row::bound;

/// A reply that is sent even if the thread that should send it stops halfway.
pub(crate) struct ReplyGuard<T>(Option<Reply<T>>);

impl<T> ReplyGuard<T> {
    pub(crate) fn to(reply: Reply<T>) -> ReplyGuard<T> {
        ReplyGuard(Some(reply))
    }

    pub(crate) fn give(mut self, answer: Result<T, StoreError>) {
        if let Some(reply) = self.0.take() {
            reply(answer);
        }
    }
}

impl<T> Drop for ReplyGuard<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            let reason = "a thread of the store stopped before it could reply; this is a bug in Perennial";
            reply(Err(StoreError::Unknown(reason.to_owned())));
        }
    }
}

/// A call to the writer thread. The result is kept until the transaction is durable.
pub(crate) struct Call<Q, A> {
    pub(crate) arguments: Q,
    pub(crate) result: Option<Result<A, StoreError>>,
    reply: ReplyGuard<A>,
}

impl<Q, A> Call<Q, A> {
    pub(crate) fn new(arguments: Q, reply: Reply<A>) -> Call<Q, A> {
        Call { arguments, result: None, reply: ReplyGuard::to(reply) }
    }

    fn finish(self, outcome: &Result<(), StoreError>) {
        let answer = match outcome {
            Ok(()) => self.result.expect("every question of a transaction is answered in it"),
            Err(error) => Err(error.clone()),
        };
        self.reply.give(answer);
    }
}

/// A call that writes.
pub(crate) enum WriteCall {
    OpenSession(Call<NewSession, Lease>),
    RenewSession(Call<Renewal, Lease>),
    EndSession(Call<SessionId, ()>),
    ClaimShards(Call<Claim, Vec<OwnedShard>>),
    ReleaseShards(Call<(SessionId, ShardSet), ()>),
    ReplaceSession(Call<(SessionId, NewSession), Replaced>),
    WriteShardNotes(Call<ShardNotes, ()>),
    Directory(Call<(), Directory>),
    Commit(Call<Batch, Vec<CommitOutcome>>),
    Send(Call<Vec<SendRequest>, Vec<SendOutcome>>),
    TakeTasks(Call<TaskTake, Vec<TaskRow>>),
    RenewTasks(Call<TaskRenewals, Vec<TaskRenewal>>),
    FinishTask(Call<TaskEnd, bool>),
    GiveBackTasks(Call<(SessionId, Vec<TaskId>), ()>),
    PutRequest(Call<NewRequest, RequestOutcome>),
    WithdrawRequest(Call<RequestNumber, bool>),
    Sweep(Call<Sweep, Swept>),
    PruneExecutions(Call<Pruning, Swept>),
    WriteSetting(Call<Setting, bool>),
    Delete(Call<Vec<InstanceKey>, Vec<DeleteOutcome>>),
    ImportRows(Call<(SessionId, Vec<MovedRow>), Imported>),
}

pub(crate) struct Claim {
    pub(crate) session: SessionId,
    pub(crate) target: usize,
}

pub(crate) struct ShardNotes {
    pub(crate) session: SessionId,
    pub(crate) notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
    pub(crate) is_steady: bool,
}

pub(crate) struct Setting {
    pub(crate) name: String,
    /// The value when it was read.
    pub(crate) read: Option<Arc<[u8]>>,
    pub(crate) value: Option<Arc<[u8]>>,
}

pub(crate) struct Sweep {
    pub(crate) rows: usize,
    pub(crate) keep_executions_ms: Option<u64>,
}

impl Sweep {
    /// The time by which executions must have been continued not to be kept.
    pub(crate) fn continued_by(&self, now_ms: u64) -> Option<i64> {
        self.keep_executions_ms.and_then(|keep_ms| now_ms.checked_sub(keep_ms)).map(bound)
    }
}

pub(crate) struct Pruning {
    pub(crate) session: SessionId,
    pub(crate) shard: ShardId,
    pub(crate) key: InstanceKey,
    pub(crate) execution: u64,
    pub(crate) rows: usize,
}

pub(crate) struct Batch {
    pub(crate) session: SessionId,
    pub(crate) members: Arc<[Commit]>,
}

pub(crate) struct TaskTake {
    pub(crate) holder: SessionId,
    pub(crate) served: Served,
    pub(crate) limit: usize,
    pub(crate) lease_ms: u64,
}

pub(crate) struct Renewal {
    pub(crate) session: SessionId,
    /// The record that replaces the one with which the session was opened.
    pub(crate) info: Option<Arc<[u8]>>,
}

pub(crate) struct TaskRenewals {
    pub(crate) holder: SessionId,
    pub(crate) tasks: Vec<TaskReport>,
    pub(crate) lease_ms: u64,
}

pub(crate) struct TaskEnd {
    pub(crate) holder: SessionId,
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) body: Arc<[u8]>,
}

impl WriteCall {
    /// Sends the reply, after the outcome of the transaction is known.
    pub(crate) fn finish(self, outcome: &Result<(), StoreError>) {
        match self {
            WriteCall::OpenSession(call) => call.finish(outcome),
            WriteCall::RenewSession(call) => call.finish(outcome),
            WriteCall::EndSession(call) => call.finish(outcome),
            WriteCall::ClaimShards(call) => call.finish(outcome),
            WriteCall::ReleaseShards(call) => call.finish(outcome),
            WriteCall::ReplaceSession(call) => call.finish(outcome),
            WriteCall::WriteShardNotes(call) => call.finish(outcome),
            WriteCall::Directory(call) => call.finish(outcome),
            WriteCall::Commit(call) => call.finish(outcome),
            WriteCall::Send(call) => call.finish(outcome),
            WriteCall::TakeTasks(call) => call.finish(outcome),
            WriteCall::RenewTasks(call) => call.finish(outcome),
            WriteCall::FinishTask(call) => call.finish(outcome),
            WriteCall::GiveBackTasks(call) => call.finish(outcome),
            WriteCall::PutRequest(call) => call.finish(outcome),
            WriteCall::WithdrawRequest(call) => call.finish(outcome),
            WriteCall::Sweep(call) => call.finish(outcome),
            WriteCall::PruneExecutions(call) => call.finish(outcome),
            WriteCall::WriteSetting(call) => call.finish(outcome),
            WriteCall::Delete(call) => call.finish(outcome),
            WriteCall::ImportRows(call) => call.finish(outcome),
        }
    }

    /// The approximate amount of work.
    pub(crate) fn weight(&self) -> usize {
        match self {
            WriteCall::Commit(call) => call.arguments.members.len(),
            WriteCall::Send(call) => call.arguments.len(),
            WriteCall::RenewTasks(call) => call.arguments.tasks.len(),
            WriteCall::GiveBackTasks(call) => call.arguments.1.len(),
            // Each with all its turns.
            WriteCall::Delete(call) => call.arguments.len().saturating_mul(16),
            WriteCall::Sweep(call) => call.arguments.rows,
            WriteCall::ImportRows(call) => call.arguments.1.len(),
            WriteCall::PruneExecutions(call) => call.arguments.rows,
            _ => 1,
        }
    }
}

/// A call that reads.
pub(crate) enum ReadCall {
    Inbox {
        session: SessionId,
        query: InboxQuery,
        reply: ReplyGuard<InboxPage>,
    },
    Due {
        session: SessionId,
        shards: ShardSet,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
        reply: ReplyGuard<Vec<DueInstance>>,
    },
    Owed {
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: ReplyGuard<Vec<(InstanceKey, ShardId)>>,
    },
    Blocked {
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: ReplyGuard<Vec<(InstanceKey, ShardId)>>,
    },
    Find {
        id: String,
        reply: ReplyGuard<Option<InstanceRow>>,
    },
    Load {
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
        reply: ReplyGuard<Option<LoadedInstance>>,
    },
    Turns {
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: PageLimit,
        reply: ReplyGuard<Vec<TurnRow>>,
    },
    HeldTasks {
        holder: SessionId,
        reply: ReplyGuard<Vec<TaskRow>>,
    },
    ShardOwner {
        shard: ShardId,
        reply: ReplyGuard<ShardOwner>,
    },
    ListTasks {
        after: Option<TaskId>,
        limit: usize,
        reply: ReplyGuard<Vec<TaskRow>>,
    },
    /// For a file that another process owns.
    Directory {
        reply: ReplyGuard<Directory>,
    },
    List {
        filter: Criteria,
        after: Option<PageKey>,
        limit: usize,
        reply: ReplyGuard<Page>,
    },
    Count {
        filter: Criteria,
        at_most: u64,
        reply: ReplyGuard<Count>,
    },
    Stats {
        reply: ReplyGuard<StoreStats>,
    },
    Details {
        reply: ReplyGuard<StoreDetails>,
    },
    Check {
        after: Option<RowPlace>,
        rows: usize,
        reply: ReplyGuard<CheckedRows>,
    },
    Requests {
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
        reply: ReplyGuard<RequestPage>,
    },
    ReplyTo {
        number: RequestNumber,
        reply: ReplyGuard<Option<Arc<[u8]>>>,
    },
    Setting {
        name: String,
        reply: ReplyGuard<Option<Arc<[u8]>>>,
    },
    ExportRows {
        table: MovedTable,
        after: Option<MovedKey>,
        limit: PageLimit,
        reply: ReplyGuard<Vec<MovedRow>>,
    },
}

impl ReadCall {
    /// Who waits for the reply.
    pub(crate) fn caller(&self) -> Caller {
        match self {
            ReadCall::List { .. }
            | ReadCall::ListTasks { .. }
            | ReadCall::Count { .. }
            | ReadCall::Stats { .. }
            | ReadCall::Details { .. }
            | ReadCall::ExportRows { .. }
            | ReadCall::Check { .. } => Caller::Looker,
            _ => Caller::Engine,
        }
    }

    /// Replies with an error without reading anything.
    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            ReadCall::Inbox { reply, .. } => reply.give(Err(error)),
            ReadCall::Due { reply, .. } => reply.give(Err(error)),
            ReadCall::Owed { reply, .. } => reply.give(Err(error)),
            ReadCall::Blocked { reply, .. } => reply.give(Err(error)),
            ReadCall::HeldTasks { reply, .. } => reply.give(Err(error)),
            ReadCall::ShardOwner { reply, .. } => reply.give(Err(error)),
            ReadCall::ListTasks { reply, .. } => reply.give(Err(error)),
            ReadCall::Directory { reply } => reply.give(Err(error)),
            ReadCall::Find { reply, .. } => reply.give(Err(error)),
            ReadCall::Load { reply, .. } => reply.give(Err(error)),
            ReadCall::Turns { reply, .. } => reply.give(Err(error)),
            ReadCall::List { reply, .. } => reply.give(Err(error)),
            ReadCall::Count { reply, .. } => reply.give(Err(error)),
            ReadCall::Stats { reply } => reply.give(Err(error)),
            ReadCall::Details { reply } => reply.give(Err(error)),
            ReadCall::Check { reply, .. } => reply.give(Err(error)),
            ReadCall::Requests { reply, .. } => reply.give(Err(error)),
            ReadCall::ReplyTo { reply, .. } => reply.give(Err(error)),
            ReadCall::Setting { reply, .. } => reply.give(Err(error)),
            ReadCall::ExportRows { reply, .. } => reply.give(Err(error)),
        }
    }
}

/// The work of the writer thread.
pub(crate) enum Work {
    Write(WriteCall),
    /// In memory there is only one connection, so this thread reads, too.
    Read(ReadCall),
    Close(ReplyGuard<()>),
}

impl Work {
    /// Replies with an error without doing anything.
    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            Work::Write(request) => request.finish(&Err(error)),
            Work::Read(request) => request.refuse(error),
            Work::Close(reply) => reply.give(Err(error)),
        }
    }
}
