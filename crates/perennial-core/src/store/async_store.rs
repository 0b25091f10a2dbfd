//! Stores written with `async fn`, and the adapter that turns one into a [`Store`].
//!
//! The engine passes a callback to every [`Store`] method, so that a store that replies from its own thread has no
//! other overhead. A store on top of an asynchronous client implements [`AsyncStore`] instead and is wrapped in a
//! [`SpawnedStore`], which spawns a task for each call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::instance::{InstanceKey, ShardId};

use super::*;

/// A call in progress, to be polled to completion by an executor.
pub type StoreTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lists every call once, to generate the trait's methods and the adapter's methods that spawn them. Text is passed as
/// `String`, so that a task can own it.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty $(= $passed:ty)?),*) -> $answer:ty;)*) => {
        /// A [`Store`] written with `async fn`.
        ///
        /// Each method has the contract of the method of the same name in [`Store`]. The futures have to be `Send`
        /// because they are spawned; the compiler checks this for an `async fn` in the implementation.
        pub trait AsyncStore: Send + Sync + 'static {
            $(
                #[doc = concat!("See [`Store::", stringify!($name), "`].")]
                fn $name(&self, $($argument: $type),*) -> impl Future<Output = Result<$answer, StoreError>> + Send;
            )*

            /// See [`Store::watch`].
            fn watch(&self, watcher: Watcher);

            /// See [`Store::useful_lanes`].
            fn useful_lanes(&self) -> usize {
                1
            }

            /// See [`Store::close`]. It is called once, after every earlier call has been answered; the
            /// [`SpawnedStore`] answers later calls itself.
            fn close(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
        }

        impl<S: AsyncStore> Store for SpawnedStore<S> {
            $(
                fn $name(&self, $($argument: calls!(@passed $type $(= $passed)?),)* reply: Reply<$answer>) {
                    $($(let $argument = <$passed>::to_owned($argument);)?)*
                    self.call(reply, |store| async move { store.$name($($argument),*).await });
                }
            )*

            fn watch(&self, watcher: Watcher) {
                self.store.watch(watcher);
            }

            fn useful_lanes(&self) -> usize {
                self.store.useful_lanes()
            }

            fn close(&self, reply: Reply<()>) {
                if !self.calls.forbid() {
                    return reply(Err(StoreError::Closed));
                }
                let (store, spawn) = (Arc::clone(&self.store), Arc::clone(&self.spawn));
                let mut reply = Owed { reply: Some(reply), _under_way: None };
                self.calls.when_done(Box::new(move || {
                    spawn(Box::pin(async move { reply.give(store.close().await) }));
                }));
            }
        }
    };
    (@passed $type:ty) => { $type };
    (@passed $type:ty = $passed:ty) => { &$passed };
}

calls! {
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
    read_due(
        session: SessionId, shards: ShardSet, before_ms: u64, after: Option<(u64, InstanceKey)>, limit: usize
    ) -> Vec<DueInstance>;
    read_owed(
        session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize
    ) -> Vec<(InstanceKey, ShardId)>;
    read_blocked(
        session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize
    ) -> Vec<(InstanceKey, ShardId)>;
    find(id: String = str) -> Option<InstanceRow>;
    load(shard: ShardId, key: InstanceKey, after_turn: u64, inbox: PageLimit) -> Option<LoadedInstance>;
    read_turns(
        shard: ShardId, key: InstanceKey, execution: u64, after_turn: u64, limit: PageLimit
    ) -> Vec<TurnRow>;
    take_tasks(holder: SessionId, served: Served, limit: usize, lease_ms: u64) -> Vec<TaskRow>;
    held_tasks(holder: SessionId) -> Vec<TaskRow>;
    renew_tasks(
        holder: SessionId, tasks: Vec<TaskReport>, lease_ms: u64
    ) -> Vec<TaskRenewal>;
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
    prune_executions(
        session: SessionId, shard: ShardId, key: InstanceKey, execution: u64, rows: usize
    ) -> Swept;
    sweep(rows: usize, keep_executions_ms: Option<u64>) -> Swept;
    read_setting(name: String = str) -> Option<Arc<[u8]>>;
    write_setting(name: String = str, read: Option<Arc<[u8]>>, value: Option<Arc<[u8]>>) -> bool;
    export_rows(table: MovedTable, after: Option<MovedKey>, limit: PageLimit) -> Vec<MovedRow>;
    import_rows(session: SessionId, rows: Vec<MovedRow>) -> Imported;
}

/// Turns an [`AsyncStore`] into a [`Store`]: each call becomes a task on the caller's executor.
///
/// A task that is dropped or panics before it completes replies with [`StoreError::Unknown`]. Closing waits for earlier
/// calls.
///
/// ```
/// use perennial_core::store::{AsyncStore, SpawnedStore, Store};
///
/// fn on_a_thread_each(store: impl AsyncStore, run: fn(perennial_core::store::StoreTask)) -> impl Store {
///     SpawnedStore::new(store, move |task| drop(std::thread::spawn(move || run(task))))
/// }
/// ```
pub struct SpawnedStore<S> {
    store: Arc<S>,
    spawn: Arc<dyn Fn(StoreTask) + Send + Sync>,
    calls: Arc<Calls>,
}

impl<S> fmt::Debug for SpawnedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnedStore").finish_non_exhaustive()
    }
}

impl<S: AsyncStore> SpawnedStore<S> {
    /// Wraps a store. `spawn` starts a task and returns immediately.
    pub fn new(store: S, spawn: impl Fn(StoreTask) + Send + Sync + 'static) -> SpawnedStore<S> {
        SpawnedStore { store: Arc::new(store), spawn: Arc::new(spawn), calls: Arc::default() }
    }

    fn call<T: Send + 'static, F>(&self, reply: Reply<T>, ask: impl FnOnce(Arc<S>) -> F)
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let Some(under_way) = UnderWay::begin(&self.calls) else { return reply(Err(StoreError::Closed)) };
        let mut owed = Owed { reply: Some(reply), _under_way: Some(under_way) };
        let asked = ask(Arc::clone(&self.store));
        (self.spawn)(Box::pin(async move { owed.give(asked.await) }));
    }
}

/// A reply that is sent even if the task is dropped or panics. The call counts as in progress until then, so that the
/// store is closed only after all its calls were answered.
struct Owed<T> {
    reply: Option<Reply<T>>,
    _under_way: Option<UnderWay>,
}

impl<T> Owed<T> {
    fn give(&mut self, answer: Result<T, StoreError>) {
        if let Some(reply) = self.reply.take() {
            reply(answer);
        }
    }
}

impl<T> Drop for Owed<T> {
    fn drop(&mut self) {
        self.give(Err(StoreError::Unknown("the task of the call ended before it completed".to_owned())));
    }
}

/// The number of calls in progress, and whether more are allowed.
#[derive(Default)]
struct Calls(Mutex<CallCount>);

#[derive(Default)]
struct CallCount {
    under_way: usize,
    is_closed: bool,
    /// Run when the last call in progress completes.
    closing: Option<Box<dyn FnOnce() + Send>>,
}

impl Calls {
    /// Allows no more calls; returns `false` if they were already forbidden.
    fn forbid(&self) -> bool {
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(&mut count.is_closed, true)
    }

    /// Runs `closing` as soon as no call is in progress.
    fn when_done(&self, closing: Box<dyn FnOnce() + Send>) {
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if count.under_way > 0 {
            count.closing = Some(closing);
            return;
        }
        drop(count);
        closing();
    }
}

/// A call in progress.
struct UnderWay(Arc<Calls>);

impl UnderWay {
    /// `None` if the store is closed.
    fn begin(calls: &Arc<Calls>) -> Option<UnderWay> {
        let mut count = calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        if count.is_closed {
            return None;
        }
        count.under_way += 1;
        drop(count);
        Some(UnderWay(Arc::clone(calls)))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut count = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        count.under_way -= 1;
        let closing = if count.under_way == 0 { count.closing.take() } else { None };
        drop(count);
        if let Some(closing) = closing {
            closing();
        }
    }
}
