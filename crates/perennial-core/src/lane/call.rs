//! Store calls as values: the requests of a lane or node, and their results.
//!
//! A driver makes each call with [`StoreCall::make`] and passes the result back with the call's id. It makes no
//! decisions: neither when to retry, nor what an error means.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};
use crate::store::{
    Commit, CommitOutcome, Directory, DueInstance, InboxPage, InboxQuery, InstanceRow, Lease, LoadedInstance,
    NewSession, OwnedShard, PageLimit, Replaced, Reply, RequestNumber, RequestPage, Served, SessionId,
    ShardSet, Store, StoreError, Swept, TaskId, TaskRenewal, TaskReport, TaskRow, TurnRow,
};

/// Identifies a call within the lane or node that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call to the store. Each variant is the [`Store`] method of the same name.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the parameters of the store's methods")]
pub enum StoreCall {
    OpenSession(NewSession),
    RenewSession {
        session: SessionId,
        info: Option<Arc<[u8]>>,
    },
    EndSession(SessionId),
    ClaimShards {
        session: SessionId,
        target: usize,
    },
    ReleaseShards {
        session: SessionId,
        shards: ShardSet,
    },
    ReplaceSession {
        old: SessionId,
        new: NewSession,
    },
    WriteShardNotes {
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
    },
    Directory,
    Commit {
        session: SessionId,
        batch: Arc<[Commit]>,
    },
    ReadInbox {
        session: SessionId,
        query: InboxQuery,
    },
    ReadDue {
        session: SessionId,
        shards: ShardSet,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
    },
    ReadOwed {
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
    },
    ReadBlocked {
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
    },
    Find {
        id: Arc<str>,
    },
    Load {
        shard: ShardId,
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
    },
    ReadTurns {
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: PageLimit,
    },
    TakeTasks {
        holder: SessionId,
        served: Served,
        limit: usize,
        lease_ms: u64,
    },
    HeldTasks {
        holder: SessionId,
    },
    RenewTasks {
        holder: SessionId,
        tasks: Vec<TaskReport>,
        lease_ms: u64,
    },
    FinishTask {
        holder: SessionId,
        task: TaskId,
        attempt: u32,
        body: Arc<[u8]>,
    },
    GiveBackTasks {
        holder: SessionId,
        tasks: Vec<TaskId>,
    },
    ReadRequests {
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
    },
    PruneExecutions {
        session: SessionId,
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
        rows: usize,
    },
    Sweep {
        rows: usize,
        keep_executions_ms: Option<u64>,
    },
    ReadSetting {
        name: &'static str,
    },
}

/// The successful result of a call.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each variant is what the store's method of that name returns")]
pub enum StoreResponse {
    Done,
    Lease(Lease),
    Shards(Vec<OwnedShard>),
    Replaced(Replaced),
    Directory(Directory),
    Committed(Vec<CommitOutcome>),
    Inbox(InboxPage),
    Due(Vec<DueInstance>),
    Instances(Vec<(InstanceKey, ShardId)>),
    Found(Option<Box<InstanceRow>>),
    Loaded(Option<Box<LoadedInstance>>),
    Turns(Vec<TurnRow>),
    Tasks(Vec<TaskRow>),
    Renewals(Vec<TaskRenewal>),
    Finished(bool),
    Requests(RequestPage),
    Swept(Swept),
    Setting(Option<Arc<[u8]>>),
}

/// The result of a [`StoreCall`].
pub type StoreResult = Result<StoreResponse, StoreError>;

impl StoreCall {
    /// Makes the call. The reply may come from any thread, or immediately on this one.
    pub fn make(self, store: &dyn Store, reply: impl FnOnce(StoreResult) + Send + 'static) {
        match self {
            StoreCall::OpenSession(session) => store.open_session(session, into(reply, StoreResponse::Lease)),
            StoreCall::RenewSession { session, info } => {
                store.renew_session(session, info, into(reply, StoreResponse::Lease))
            }
            StoreCall::EndSession(session) => {
                store.end_session(session, into(reply, |()| StoreResponse::Done))
            }
            StoreCall::ClaimShards { session, target } => {
                store.claim_shards(session, target, into(reply, StoreResponse::Shards));
            }
            StoreCall::ReleaseShards { session, shards } => {
                store.release_shards(session, shards, into(reply, |()| StoreResponse::Done));
            }
            StoreCall::ReplaceSession { old, new } => {
                store.replace_session(old, new, into(reply, StoreResponse::Replaced));
            }
            StoreCall::WriteShardNotes { session, notes, is_steady } => {
                store.write_shard_notes(session, notes, is_steady, into(reply, |()| StoreResponse::Done));
            }
            StoreCall::Directory => store.directory(into(reply, StoreResponse::Directory)),
            StoreCall::Commit { session, batch } => {
                store.commit(session, batch, into(reply, StoreResponse::Committed));
            }
            StoreCall::ReadInbox { session, query } => {
                store.read_inbox(session, query, into(reply, StoreResponse::Inbox));
            }
            StoreCall::ReadDue { session, shards, before_ms, after, limit } => {
                store.read_due(session, shards, before_ms, after, limit, into(reply, StoreResponse::Due));
            }
            StoreCall::ReadOwed { session, shards, after, limit } => {
                store.read_owed(session, shards, after, limit, into(reply, StoreResponse::Instances));
            }
            StoreCall::ReadBlocked { session, shards, after, limit } => {
                store.read_blocked(session, shards, after, limit, into(reply, StoreResponse::Instances));
            }
            StoreCall::Find { id } => {
                store.find(
                    &id,
                    into(reply, |row: Option<InstanceRow>| StoreResponse::Found(row.map(Box::new))),
                );
            }
            StoreCall::Load { shard, key, after_turn, inbox } => {
                let loaded = |loaded: Option<LoadedInstance>| StoreResponse::Loaded(loaded.map(Box::new));
                store.load(shard, key, after_turn, inbox, into(reply, loaded));
            }
            StoreCall::ReadTurns { shard, key, execution, after_turn, limit } => {
                store.read_turns(shard, key, execution, after_turn, limit, into(reply, StoreResponse::Turns));
            }
            StoreCall::TakeTasks { holder, served, limit, lease_ms } => {
                store.take_tasks(holder, served, limit, lease_ms, into(reply, StoreResponse::Tasks));
            }
            StoreCall::HeldTasks { holder } => store.held_tasks(holder, into(reply, StoreResponse::Tasks)),
            StoreCall::RenewTasks { holder, tasks, lease_ms } => {
                store.renew_tasks(holder, tasks, lease_ms, into(reply, StoreResponse::Renewals));
            }
            StoreCall::FinishTask { holder, task, attempt, body } => {
                store.finish_task(holder, task, attempt, body, into(reply, StoreResponse::Finished));
            }
            StoreCall::GiveBackTasks { holder, tasks } => {
                store.give_back_tasks(holder, tasks, into(reply, |()| StoreResponse::Done));
            }
            StoreCall::ReadRequests { session, shards, from, limit } => {
                store.read_requests(session, shards, from, limit, into(reply, StoreResponse::Requests));
            }
            StoreCall::PruneExecutions { session, shard, key, execution, rows } => {
                let reply = into(reply, StoreResponse::Swept);
                store.prune_executions(session, shard, key, execution, rows, reply);
            }
            StoreCall::Sweep { rows, keep_executions_ms } => {
                store.sweep(rows, keep_executions_ms, into(reply, StoreResponse::Swept));
            }
            StoreCall::ReadSetting { name } => store.read_setting(name, into(reply, StoreResponse::Setting)),
        }
    }

    /// The method's name, for traces and logs.
    pub fn name(&self) -> &'static str {
        match self {
            StoreCall::OpenSession(_) => "open_session",
            StoreCall::RenewSession { .. } => "renew_session",
            StoreCall::EndSession(_) => "end_session",
            StoreCall::ClaimShards { .. } => "claim_shards",
            StoreCall::ReleaseShards { .. } => "release_shards",
            StoreCall::ReplaceSession { .. } => "replace_session",
            StoreCall::WriteShardNotes { .. } => "write_shard_notes",
            StoreCall::Directory => "directory",
            StoreCall::Commit { .. } => "commit",
            StoreCall::ReadInbox { .. } => "read_inbox",
            StoreCall::ReadDue { .. } => "read_due",
            StoreCall::ReadOwed { .. } => "read_owed",
            StoreCall::ReadBlocked { .. } => "read_blocked",
            StoreCall::Find { .. } => "find",
            StoreCall::Load { .. } => "load",
            StoreCall::ReadTurns { .. } => "read_turns",
            StoreCall::TakeTasks { .. } => "take_tasks",
            StoreCall::HeldTasks { .. } => "held_tasks",
            StoreCall::RenewTasks { .. } => "renew_tasks",
            StoreCall::FinishTask { .. } => "finish_task",
            StoreCall::GiveBackTasks { .. } => "give_back_tasks",
            StoreCall::ReadRequests { .. } => "read_requests",
            StoreCall::PruneExecutions { .. } => "prune_executions",
            StoreCall::Sweep { .. } => "sweep",
            StoreCall::ReadSetting { .. } => "read_setting",
        }
    }
}

/// Converts a reply of one type to a reply of [`StoreResponse`].
fn into<T: 'static>(
    reply: impl FnOnce(StoreResult) + Send + 'static,
    wrap: impl FnOnce(T) -> StoreResponse + Send + 'static,
) -> Reply<T> {
    Box::new(move |answer| reply(answer.map(wrap)))
}
