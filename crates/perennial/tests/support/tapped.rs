//! A store whose calls are written down, and whose renewals and commits can be made to go wrong.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use perennial::{InstanceKey, Payload};
use perennial_core::ShardId;
use perennial_core::store::{
    Ask, AskNumber, AskOutcome, AskRow, Commit, CommitOutcome, Count, DeleteOutcome, DueInstance, Filter,
    Hint, InboxNumber, InboxRow, InstanceRow, Lease, LoadedInstance, Page, PageKey, Reply, SendOutcome,
    SendRequest, Served, Session, SessionId, Store, StoreError, StoreStats, TaskId, TaskRenewal, TaskRow,
};

use super::PATIENCE;

/// What becomes of a call.
pub(crate) enum Fate<T> {
    /// It is passed on.
    Pass,
    /// It is answered with this, and not passed on.
    Answer(Result<T, StoreError>),
    /// It is passed on, but its answer gets lost: this comes instead.
    PassThen(Result<T, StoreError>),
}

type Decide<T> = Box<dyn FnMut() -> Fate<T> + Send>;

pub(crate) struct Tapped {
    inner: Arc<dyn Store>,
    calls: Mutex<Vec<&'static str>>,
    called: Condvar,
    renewals: Mutex<Decide<Lease>>,
    commits: Mutex<Decide<Vec<CommitOutcome>>>,
    task_renewals: Mutex<Decide<Vec<TaskRenewal>>>,
    session: Arc<Mutex<Option<SessionId>>>,
    /// How long a note takes to be read.
    note_pause: Mutex<Duration>,
    /// Whether it can be opened again after it was closed, like a file.
    outlives_closing: bool,
}

impl Tapped {
    /// A store that can be opened again after it was closed. Whoever had it has lost it then.
    pub(crate) fn like_a_file(inner: Arc<dyn Store>) -> Arc<Tapped> {
        let mut tapped = Tapped::new(inner);
        Arc::get_mut(&mut tapped).unwrap().outlives_closing = true;
        tapped
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

    /// Reading a note takes so long from now on.
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
            self.inner.$call($($argument,)* reply);
        })*
    };
}

impl Store for Tapped {
    fn open_session(&self, node: &str, lease_ms: u64, reply: Reply<Session>) {
        self.note("open_session");
        let opened = Arc::clone(&self.session);
        let noting = move |session: Result<Session, StoreError>| {
            *opened.lock().unwrap() = session.as_ref().ok().map(|session| session.id);
            reply(session);
        };
        self.inner.open_session(node, lease_ms, Box::new(noting));
    }

    fn renew_session(&self, session: SessionId, reply: Reply<Lease>) {
        let fate = (self.renewals.lock().unwrap())();
        match fate {
            Fate::Pass => self.inner.renew_session(session, reply),
            Fate::Answer(answer) => reply(answer),
            Fate::PassThen(answer) => {
                self.inner.renew_session(session, Box::new(move |_| reply(answer)));
            }
        }
        // Noted once it is answered: the store in memory answers at once.
        self.note("renew_session");
    }

    fn end_session(&self, session: SessionId, reply: Reply<()>) {
        self.note("end_session");
        self.inner.end_session(session, reply);
    }

    fn claim_shards(&self, session: SessionId, at_most: usize, reply: Reply<Vec<ShardId>>) {
        self.note("claim_shards");
        self.inner.claim_shards(session, at_most, reply);
    }

    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>) {
        self.note("commit");
        let fate = (self.commits.lock().unwrap())();
        match fate {
            Fate::Pass => self.inner.commit(session, batch, reply),
            Fate::Answer(answer) => reply(answer),
            Fate::PassThen(answer) => self.inner.commit(session, batch, Box::new(move |_| reply(answer))),
        }
    }

    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>) {
        self.note("send");
        self.inner.send(requests, reply);
    }

    fn read_inbox(&self, session: SessionId, from: InboxNumber, limit: usize, reply: Reply<Vec<InboxRow>>) {
        self.note("read_inbox");
        self.inner.read_inbox(session, from, limit, reply);
    }

    fn read_due(
        &self,
        session: SessionId,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
        reply: Reply<Vec<DueInstance>>,
    ) {
        self.note("read_due");
        self.inner.read_due(session, before_ms, after, limit, reply);
    }

    fn read_owed(
        &self,
        session: SessionId,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    ) {
        self.note("read_owed");
        self.inner.read_owed(session, after, limit, reply);
    }

    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>) {
        self.note("find");
        self.inner.find(id, reply);
    }

    fn load(&self, key: InstanceKey, after_turn: u64, reply: Reply<Option<LoadedInstance>>) {
        self.note("load");
        self.inner.load(key, after_turn, reply);
    }

    fn read_turns(
        &self,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: usize,
        reply: Reply<Vec<Arc<[u8]>>>,
    ) {
        self.note("read_turns");
        self.inner.read_turns(key, execution, after_turn, limit, reply);
    }

    fn list(&self, filter: Filter, after: Option<PageKey>, limit: usize, reply: Reply<Page>) {
        self.note("list");
        self.inner.list(filter, after, limit, reply);
    }

    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<(TaskId, Option<Payload>)>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    ) {
        let fate = (self.task_renewals.lock().unwrap())();
        match fate {
            Fate::Pass => self.inner.renew_tasks(holder, tasks, lease_ms, reply),
            Fate::Answer(answer) => reply(answer),
            Fate::PassThen(answer) => {
                self.inner.renew_tasks(holder, tasks, lease_ms, Box::new(move |_| reply(answer)));
            }
        }
        self.note("renew_tasks");
    }

    fn read_note(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>) {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        let pause = *self.note_pause.lock().unwrap();
        self.note("read_note");
        thread::spawn(move || {
            thread::sleep(pause);
            inner.read_note(&name, reply);
        });
    }

    passed_on! {
        take_tasks(holder: SessionId, served: Served, limit: usize, lease_ms: u64) -> Vec<TaskRow>;
        finish_task(holder: SessionId, task: TaskId, attempt: u32, body: Arc<[u8]>) -> bool;
        give_back_tasks(holder: SessionId, tasks: Vec<TaskId>) -> ();
        ask(ask: Ask) -> AskOutcome;
        read_asks(session: SessionId, from: AskNumber, limit: usize) -> Vec<AskRow>;
        read_answer(number: AskNumber) -> Option<Arc<[u8]>>;
        withdraw_ask(number: AskNumber) -> bool;
        sweep_asks() -> ();
        write_note(session: SessionId, name: &str, note: Option<Arc<[u8]>>) -> ();
        count(filter: Filter, at_most: u64) -> Count;
        stats() -> StoreStats;
        delete(keys: Vec<InstanceKey>) -> Vec<DeleteOutcome>;
    }

    fn watch(&self, hint: Hint) {
        self.inner.watch(hint);
    }

    fn close(&self, reply: Reply<()>) {
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
