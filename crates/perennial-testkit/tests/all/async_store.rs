//! A store written with `async fn`, using only public API, satisfies the contract, and a runtime works with
//! it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use perennial::prelude::*;
use perennial::store::{
    AsyncStore, CheckedRows, Commit, CommitOutcome, Count, Criteria, DeleteOutcome, Directory, DueInstance,
    Imported, InboxPage, InboxQuery, InstanceKey, InstanceRow, Lease, LoadedInstance, MemoryStore, MovedKey,
    MovedRow, MovedTable, NewRequest, NewSession, OwnedShard, Page, PageKey, PageLimit, Replaced, Reply,
    RequestNumber, RequestOutcome, RequestPage, RowPlace, SendOutcome, SendRequest, Served, SessionId,
    ShardId, ShardOwner, ShardSet, SpawnedStore, Store, StoreDetails, StoreError, StoreStats, Swept, TaskId,
    TaskRenewal, TaskReport, TaskRow, TurnRow, Watcher,
};
use perennial_testkit::conformance::{Candidate, TestClock};
use tokio::sync::oneshot;

static TOKIO: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());

/// Keeps its rows in memory, and yields before and after each access, as a store behind a network would.
struct Remote(MemoryStore);

impl Remote {
    async fn wait_for<T: Send + 'static>(
        &self,
        call: impl FnOnce(&MemoryStore, Reply<T>) + Send,
    ) -> Result<T, StoreError> {
        tokio::task::yield_now().await;
        let (sender, receiver) = oneshot::channel();
        call(&self.0, Box::new(move |answer| drop(sender.send(answer))));
        tokio::task::yield_now().await;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Forwards calls.
macro_rules! remote {
    ($($name:ident($($argument:ident: $type:ty $(as $passed:tt)?),*) -> $answer:ty;)*) => {
        $(
            async fn $name(&self, $($argument: $type),*) -> Result<$answer, StoreError> {
                self.wait_for(|store, reply| store.$name($(remote!(@$argument $($passed)?),)* reply)).await
            }
        )*
    };
    (@$argument:ident) => { $argument };
    (@$argument:ident str) => { &$argument };
}

impl AsyncStore for Remote {
    remote! {
        open_session(session: NewSession) -> Lease;
        renew_session(session: SessionId, info: Option<Arc<[u8]>>) -> Lease;
        end_session(session: SessionId) -> ();
        claim_shards(session: SessionId, target: usize) -> Vec<OwnedShard>;
        release_shards(session: SessionId, shards: ShardSet) -> ();
        replace_session(old: SessionId, new: NewSession) -> Replaced;
        write_shard_notes(session: SessionId, notes: Vec<(ShardId, Option<Arc<[u8]>>)>, is_steady: bool) -> ();
        directory() -> Directory;
        shard_owner(shard: ShardId) -> ShardOwner;
        commit(session: SessionId, batch: Arc<[Commit]>) -> Vec<CommitOutcome>;
        send(requests: Vec<SendRequest>) -> Vec<SendOutcome>;
        read_inbox(session: SessionId, query: InboxQuery) -> InboxPage;
        read_due(session: SessionId, shards: ShardSet, before_ms: u64, after: Option<(u64, InstanceKey)>, limit: usize) -> Vec<DueInstance>;
        read_owed(session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize) -> Vec<(InstanceKey, ShardId)>;
        read_blocked(session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize) -> Vec<(InstanceKey, ShardId)>;
        find(id: String as str) -> Option<InstanceRow>;
        load(shard: ShardId, key: InstanceKey, after_turn: u64, inbox: PageLimit) -> Option<LoadedInstance>;
        read_turns(shard: ShardId, key: InstanceKey, execution: u64, after_turn: u64, limit: PageLimit) -> Vec<TurnRow>;
        take_tasks(holder: SessionId, served: Served, limit: usize, lease_ms: u64) -> Vec<TaskRow>;
        held_tasks(holder: SessionId) -> Vec<TaskRow>;
        renew_tasks(holder: SessionId, tasks: Vec<TaskReport>, lease_ms: u64) -> Vec<TaskRenewal>;
        finish_task(holder: SessionId, task: TaskId, attempt: u32, body: Arc<[u8]>) -> bool;
        give_back_tasks(holder: SessionId, tasks: Vec<TaskId>) -> ();
        put_request(request: NewRequest) -> RequestOutcome;
        read_requests(session: SessionId, shards: ShardSet, from: RequestNumber, limit: PageLimit) -> RequestPage;
        read_reply(number: RequestNumber) -> Option<Arc<[u8]>>;
        withdraw_request(number: RequestNumber) -> bool;
        list(filter: Criteria, after: Option<PageKey>, limit: usize) -> Page;
        count(filter: Criteria, at_most: u64) -> Count;
        list_tasks(after: Option<TaskId>, limit: usize) -> Vec<TaskRow>;
        stats() -> StoreStats;
        details() -> StoreDetails;
        check_rows(after: Option<RowPlace>, rows: usize) -> CheckedRows;
        delete(instances: Vec<(ShardId, InstanceKey)>) -> Vec<DeleteOutcome>;
        prune_executions(session: SessionId, shard: ShardId, key: InstanceKey, execution: u64, rows: usize) -> Swept;
        sweep(rows: usize, keep_executions_ms: Option<u64>) -> Swept;
        read_setting(name: String as str) -> Option<Arc<[u8]>>;
        write_setting(name: String as str, read: Option<Arc<[u8]>>, value: Option<Arc<[u8]>>) -> bool;
        export_rows(table: MovedTable, after: Option<MovedKey>, limit: PageLimit) -> Vec<MovedRow>;
        import_rows(session: SessionId, rows: Vec<MovedRow>) -> Imported;
        close() -> ();
    }

    fn watch(&self, watcher: Watcher) {
        self.0.watch(watcher);
    }
}

perennial_testkit::store_conformance!(|clock: TestClock| {
    let remote = Remote(MemoryStore::new(move || clock.now_ms()));
    Candidate::new(SpawnedStore::new(remote, |task| drop(TOKIO.spawn(task))))
});

#[activity]
async fn double(_ctx: ActivityContext, number: u64) -> Result<u64, String> {
    Ok(2 * number)
}

#[orchestration]
async fn quadruple(ctx: OrchestrationContext, number: u64) -> Result<u64, String> {
    let twice = ctx.schedule_activity(double, number).await?;
    ctx.schedule_timer(Duration::from_millis(1)).await;
    Ok(ctx.schedule_activity(double, twice).await?)
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn n6_a_runtime_works_with_a_store_written_with_async_fn() {
    let builder = Runtime::open("").async_store(Remote(MemoryStore::new(now_ms)));
    let runtime = builder.register(quadruple).register(double).start().await.unwrap();
    let client = runtime.client();
    let runs = (0..20).map(async |number| {
        let run = client.start(quadruple, &format!("q-{number}"), number).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 4 * number);
    });
    for run in runs {
        run.await;
    }
    runtime.shutdown().await.unwrap();
}

#[test]
fn n6_a_call_whose_task_is_dropped_or_panics_is_answered_as_unknown() {
    let store = SpawnedStore::new(Remote(MemoryStore::new(|| 0)), drop);
    let (sender, receiver) = std::sync::mpsc::channel();
    store.stats(Box::new(move |answer| sender.send(answer).unwrap()));
    assert!(matches!(receiver.recv().unwrap(), Err(StoreError::Unknown(_))));

    let store = SpawnedStore::new(Remote(MemoryStore::new(|| panic!("no clock"))), |task| {
        drop(TOKIO.spawn(task));
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    store.stats(Box::new(move |answer| drop(sender.send(answer))));
    assert!(matches!(receiver.recv().unwrap(), Err(StoreError::Unknown(_) | StoreError::Closed)));
}
