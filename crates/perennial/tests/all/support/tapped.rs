//! A store whose calls are written down, and whose renewals and commits can be made to go wrong.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use perennial::InstanceKey;
use perennial_core::ShardId;
use perennial_core::store::{
    CheckedRows, Commit, CommitOutcome, Count, Criteria, DeleteOutcome, Directory, DueInstance, Imported,
    InboxPage, InboxQuery, InstanceRow, Lease, LoadedInstance, MovedKey, MovedRow, MovedTable, NewRequest,
    NewSession, OwnedShard, Page, PageKey, PageLimit, Replaced, Reply, RequestNumber, RequestOutcome,
    RequestPage, RowPlace, SendOutcome, SendRequest, Served, SessionId, SessionRole, ShardOwner, ShardSet,
    Store, StoreDetails, StoreError, StoreStats, Swept, TaskId, TaskRenewal, TaskReport, TaskRow, TurnRow,
    Watcher,
};

use super::PATIENCE;

/// What becomes of a call.
pub(crate) enum Fate<T> {
    /// It is passed on.
    Pass,
    /// It is answered with this, and not passed on.
    Response(Result<T, StoreError>),
    /// It is passed on, but its answer gets lost: this comes instead.
    PassThen(Result<T, StoreError>),
}

type HeldCall = Box<dyn FnOnce() + Send>;
type Decide<T> = Box<dyn FnMut() -> Fate<T> + Send>;

pub(crate) struct Tapped {
    inner: Arc<dyn Store>,
    calls: Mutex<Vec<&'static str>>,
    called: Condvar,
    renewals: Mutex<Decide<Lease>>,
    commits: Mutex<Decide<Vec<CommitOutcome>>>,
    task_renewals: Mutex<Decide<Vec<TaskRenewal>>>,
    session: Arc<Mutex<Option<SessionId>>>,
    /// How long a note takes to be written.
    note_pause: Mutex<Duration>,
    /// Whether it can be opened again after it was closed, like a file.
    outlives_closing: bool,
    /// Whether nobody is told of changes.
    gives_no_hints: bool,
    /// Reads of the inbox, while they are held back.
    held_inbox: Mutex<Option<Vec<HeldCall>>>,
    /// What was to be deleted, by call.
    deleted: Mutex<Vec<Vec<(ShardId, InstanceKey)>>>,
    /// Whether it answers nothing any more, and those who wait for an answer.
    is_away: AtomicBool,
    waiting: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Tapped {
    /// A store that can be opened again after it was closed. Whoever had it has lost it then.
    pub(crate) fn like_a_file(inner: Arc<dyn Store>) -> Arc<Tapped> {
        let mut tapped = Tapped::new(inner);
        Arc::get_mut(&mut tapped).unwrap().outlives_closing = true;
        tapped
    }

    /// A store that tells nobody of changes.
    pub(crate) fn without_hints(inner: Arc<dyn Store>) -> Arc<Tapped> {
        let mut tapped = Tapped::new(inner);
        Arc::get_mut(&mut tapped).unwrap().gives_no_hints = true;
        tapped
    }

    /// Holds reads of the inbox back from now on; or makes them again, and those that were held back.
    pub(crate) fn hold_inbox(&self, is_held: bool) {
        let held = std::mem::replace(&mut *self.held_inbox.lock().unwrap(), is_held.then(Vec::new));
        held.into_iter().flatten().for_each(|read| read());
    }

    /// What was to be deleted so far, by call.
    pub(crate) fn deleted(&self) -> Vec<Vec<(ShardId, InstanceKey)>> {
        self.deleted.lock().unwrap().clone()
    }

    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Tapped> {
        Arc::new(Tapped {
            inner,
            calls: Mutex::default(),
            called: Condvar::new(),
            renewals: Mutex::new(Box::new(|| Fate::Pass)),
            commits: Mutex::new(Box::new(|| Fate::Pass)),
            task_renewals: Mutex::new(Box::new(|| Fate::Pass)),
            session: Arc::default(),
            note_pause: Mutex::default(),
            outlives_closing: false,
            gives_no_hints: false,
            held_inbox: Mutex::default(),
            deleted: Mutex::default(),
            is_away: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    /// Decides what becomes of renewals from now on.
    pub(crate) fn on_renewal(&self, fate: impl FnMut() -> Fate<Lease> + Send + 'static) {
        *self.renewals.lock().unwrap() = Box::new(fate);
    }

    /// Decides what becomes of commits from now on.
    pub(crate) fn on_commit(&self, fate: impl FnMut() -> Fate<Vec<CommitOutcome>> + Send + 'static) {
        *self.commits.lock().unwrap() = Box::new(fate);
    }

    /// Decides what becomes of renewals of tasks from now on.
    pub(crate) fn on_task_renewal(&self, fate: impl FnMut() -> Fate<Vec<TaskRenewal>> + Send + 'static) {
        *self.task_renewals.lock().unwrap() = Box::new(fate);
    }

    /// It answers nothing from now on.
    pub(crate) fn go_away(&self) {
        self.is_away.store(true, Ordering::Relaxed);
    }

    /// Where an answer goes; nowhere while the store is away.
    fn reachable<T: 'static>(&self, reply: Reply<T>) -> Option<Reply<T>> {
        if !self.is_away.load(Ordering::Relaxed) {
            return Some(reply);
        }
        self.waiting.lock().unwrap().push(Box::new(reply));
        None
    }

    /// Writing a note takes so long from now on.
    pub(crate) fn slow_notes(&self, pause: Duration) {
        *self.note_pause.lock().unwrap() = pause;
    }

    /// All calls so far.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn forget_calls(&self) {
        self.calls.lock().unwrap().clear();
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        count(&self.calls.lock().unwrap(), call)
    }

    /// Waits until a call was answered this often.
    #[track_caller]
    pub(crate) fn wait_for(&self, call: &str, times: usize) {
        let calls = self.calls.lock().unwrap();
        let too_few = |calls: &mut Vec<&'static str>| count(calls, call) < times;
        let (calls, waited) = self.called.wait_timeout_while(calls, PATIENCE, too_few).unwrap();
        assert!(!waited.timed_out(), "{call} came {} times, not {times}", count(&calls, call));
    }

    /// Ends the session that was opened last behind the back of its node.
    pub(crate) fn end_session_secretly(&self) {
        let session = self.session.lock().unwrap().unwrap();
        self.inner.end_session(session, Box::new(|ended| ended.unwrap()));
    }

    fn note(&self, call: &'static str) {
        self.lock().push(call);
        self.called.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.calls.lock().unwrap()
    }
}

fn count(calls: &[&'static str], call: &str) -> usize {
    calls.iter().filter(|other| **other == call).count()
}

/// Calls that are only noted.
macro_rules! passed_on {
    ($($call:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(fn $call(&self, $($argument: $kind,)* reply: Reply<$answer>) {
            self.note(stringify!($call));
            if let Some(reply) = self.reachable(reply) {
                self.inner.$call($($argument,)* reply);
            }
        })*
    };
}

impl Store for Tapped {
    fn open_session(&self, session: NewSession, reply: Reply<Lease>) {
        let Some(reply) = self.reachable(reply) else { return };
        if session.role == SessionRole::Lane {
            self.note("open_session");
            *self.session.lock().unwrap() = Some(session.id);
        }
        self.inner.open_session(session, reply);
    }

    fn renew_session(&self, session: SessionId, info: Option<Arc<[u8]>>, reply: Reply<Lease>) {
        let Some(reply) = self.reachable(reply) else { return };
        if *self.session.lock().unwrap() != Some(session) {
            return self.inner.renew_session(session, info, reply);
        }
        let fate = (self.renewals.lock().unwrap())();
        match fate {
            Fate::Pass => self.inner.renew_session(session, info, reply),
            Fate::Response(answer) => reply(answer),
            Fate::PassThen(answer) => {
                self.inner.renew_session(session, info, Box::new(move |_| reply(answer)));
            }
        }
        // Noted once it is answered: the store in memory answers at once.
        self.note("renew_session");
    }

    fn replace_session(&self, old: SessionId, new: NewSession, reply: Reply<Replaced>) {
        let Some(reply) = self.reachable(reply) else { return };
        self.note("replace_session");
        *self.session.lock().unwrap() = Some(new.id);
        self.inner.replace_session(old, new, reply);
    }

    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>) {
        let Some(reply) = self.reachable(reply) else { return self.note("commit") };
        let fate = (self.commits.lock().unwrap())();
        if let Fate::Response(answer) = fate {
            // Noted once it is answered, for those who wait to see what follows from it.
            reply(answer);
            return self.note("commit");
        }
        self.note("commit");
        match fate {
            Fate::PassThen(answer) => self.inner.commit(session, batch, Box::new(move |_| reply(answer))),
            _ => self.inner.commit(session, batch, reply),
        }
    }

    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<TaskReport>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    ) {
        let Some(reply) = self.reachable(reply) else { return };
        let fate = (self.task_renewals.lock().unwrap())();
        match fate {
            Fate::Pass => self.inner.renew_tasks(holder, tasks, lease_ms, reply),
            Fate::Response(answer) => reply(answer),
            Fate::PassThen(answer) => {
                self.inner.renew_tasks(holder, tasks, lease_ms, Box::new(move |_| reply(answer)));
            }
        }
        self.note("renew_tasks");
    }

    fn write_shard_notes(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
        reply: Reply<()>,
    ) {
        let Some(reply) = self.reachable(reply) else { return };
        let inner = Arc::clone(&self.inner);
        let pause = *self.note_pause.lock().unwrap();
        self.note("write_shard_notes");
        thread::spawn(move || {
            thread::sleep(pause);
            inner.write_shard_notes(session, notes, is_steady, reply);
        });
    }

    passed_on! {
        end_session(session: SessionId) -> ();
        claim_shards(session: SessionId, target: usize) -> Vec<OwnedShard>;
        release_shards(session: SessionId, shards: ShardSet) -> ();
        directory() -> Directory;
        shard_owner(shard: ShardId) -> ShardOwner;
        send(requests: Vec<SendRequest>) -> Vec<SendOutcome>;
        read_due(session: SessionId, shards: ShardSet, before_ms: u64, after: Option<(u64, InstanceKey)>, limit: usize) -> Vec<DueInstance>;
        read_owed(session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize) -> Vec<(InstanceKey, ShardId)>;
        read_blocked(session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize) -> Vec<(InstanceKey, ShardId)>;
        find(id: &str) -> Option<InstanceRow>;
        load(shard: ShardId, key: InstanceKey, after_turn: u64, inbox: PageLimit) -> Option<LoadedInstance>;
        read_turns(shard: ShardId, key: InstanceKey, execution: u64, after_turn: u64, limit: PageLimit) -> Vec<TurnRow>;
        take_tasks(holder: SessionId, served: Served, limit: usize, lease_ms: u64) -> Vec<TaskRow>;
        held_tasks(holder: SessionId) -> Vec<TaskRow>;
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
        prune_executions(session: SessionId, shard: ShardId, key: InstanceKey, execution: u64, rows: usize) -> Swept;
        sweep(rows: usize, keep_executions_ms: Option<u64>) -> Swept;
        read_setting(name: &str) -> Option<Arc<[u8]>>;
        write_setting(name: &str, read: Option<Arc<[u8]>>, value: Option<Arc<[u8]>>) -> bool;
        export_rows(table: MovedTable, after: Option<MovedKey>, limit: PageLimit) -> Vec<MovedRow>;
        import_rows(session: SessionId, rows: Vec<MovedRow>) -> Imported;
    }

    fn delete(&self, instances: Vec<(ShardId, InstanceKey)>, reply: Reply<Vec<DeleteOutcome>>) {
        self.deleted.lock().unwrap().push(instances.clone());
        self.inner.delete(instances, reply);
        self.note("delete");
    }

    fn read_inbox(&self, session: SessionId, query: InboxQuery, reply: Reply<InboxPage>) {
        let inner = Arc::clone(&self.inner);
        let read = move || inner.read_inbox(session, query, reply);
        if let Some(held) = &mut *self.held_inbox.lock().unwrap() {
            return held.push(Box::new(read));
        }
        read();
        self.note("read_inbox");
    }

    fn watch(&self, watcher: Watcher) {
        if !self.gives_no_hints {
            self.inner.watch(watcher);
        }
    }

    fn close(&self, reply: Reply<()>) {
        let Some(reply) = self.reachable(reply) else { return };
        if !self.outlives_closing {
            return self.inner.close(reply);
        }
        let session = self.session.lock().unwrap().take();
        match session {
            Some(session) => self.inner.end_session(session, reply),
            None => reply(Ok(())),
        }
    }
}
