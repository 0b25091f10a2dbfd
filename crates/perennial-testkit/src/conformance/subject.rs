//! The store under test, with calls that wait for their answers.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use perennial_core::store::{
    Ask, AskNumber, AskOutcome, AskRow, Commit, CommitOutcome, Count, DeleteOutcome, DueInstance, Filter,
    InboxNumber, InboxRow, InstanceRow, Lease, LoadedInstance, Page, PageKey, Reply, SendOutcome,
    SendRequest, Served, Session, SessionId, Store, StoreError, StoreStats, TaskId, TaskRenewal, TaskRow,
};
use perennial_core::{InstanceKey, Payload, SHARDS, ShardId};

use super::test_clock::TestClock;

/// How long an answer may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes an empty store that goes by the clock it is given.
pub type Make<'a> = &'a dyn Fn(TestClock) -> Candidate;

/// A store to be tested, with what must live as long as it does, such as a temporary directory.
pub struct Candidate {
    // In this order: the store is closed before what it lives in goes.
    store: Box<dyn Store>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Candidate {
    /// A store that needs nothing else.
    pub fn new(store: impl Store) -> Candidate {
        Candidate::keeping(store, ())
    }

    /// A store that needs something else for as long as it lives.
    pub fn keeping(store: impl Store, kept: impl Any + Send + Sync) -> Candidate {
        Candidate { store: Box::new(store), _kept: Box::new(kept) }
    }
}

/// A store under test and its clock, with calls that wait for their answers. Calls whose answer cannot be an error in a
/// sane test panic if it is.
pub struct Subject {
    candidate: Candidate,
    /// The store's clock.
    pub clock: TestClock,
}

impl Subject {
    /// An empty store.
    pub fn new(make: Make<'_>) -> Subject {
        let clock = TestClock::new();
        Subject { candidate: make(clock.clone()), clock }
    }

    /// A store that is there already, and needs no clock.
    pub fn over(store: impl Store) -> Subject {
        Subject { candidate: Candidate::new(store), clock: TestClock::new() }
    }

    /// The store itself.
    pub fn store(&self) -> &dyn Store {
        &*self.candidate.store
    }

    /// Opens a session.
    pub fn try_open_session(&self, lease_ms: u64) -> Result<Session, StoreError> {
        ask(|reply| self.store().open_session("node", lease_ms, reply))
    }

    /// Opens a session and gives its id.
    pub fn open_session(&self, lease_ms: u64) -> SessionId {
        self.try_open_session(lease_ms).expect("a session").id
    }

    /// Renews a session.
    pub fn renew(&self, session: SessionId) -> Result<Lease, StoreError> {
        ask(|reply| self.store().renew_session(session, reply))
    }

    /// Ends a session.
    pub fn end(&self, session: SessionId) -> Result<(), StoreError> {
        ask(|reply| self.store().end_session(session, reply))
    }

    /// Claims shards.
    pub fn claim(&self, session: SessionId, at_most: usize) -> Result<Vec<ShardId>, StoreError> {
        ask(|reply| self.store().claim_shards(session, at_most, reply))
    }

    /// A session that owns every shard for a minute.
    pub fn own_all(&self) -> SessionId {
        let session = self.open_session(60_000);
        assert_eq!(self.claim(session, SHARDS).expect("the claim is answered").len(), SHARDS);
        session
    }

    /// Commits a batch.
    pub fn try_commit(
        &self,
        session: SessionId,
        batch: impl IntoIterator<Item = Commit>,
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let batch: Arc<[Commit]> = batch.into_iter().collect();
        ask(|reply| self.store().commit(session, batch, reply))
    }

    /// Commits a batch that is answered.
    pub fn commit(&self, session: SessionId, batch: impl IntoIterator<Item = Commit>) -> Vec<CommitOutcome> {
        self.try_commit(session, batch).expect("the commit is answered")
    }

    /// Commits one member and gives the numbers of the messages that it sent.
    pub fn write(&self, session: SessionId, member: Commit) -> Vec<Option<InboxNumber>> {
        match self.commit(session, [member]).pop() {
            Some(CommitOutcome::Durable { sent }) => sent,
            other => panic!("the member should be durable: {other:?}"),
        }
    }

    /// Sends messages.
    pub fn try_send(&self, requests: Vec<SendRequest>) -> Result<Vec<SendOutcome>, StoreError> {
        ask(|reply| self.store().send(requests, reply))
    }

    /// Sends a message that is answered.
    pub fn send(&self, request: SendRequest) -> SendOutcome {
        let mut outcomes = self.try_send(vec![request]).expect("the send is answered");
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    /// Sends a message and gives its number.
    pub fn sent(&self, request: SendRequest) -> InboxNumber {
        match self.send(request) {
            SendOutcome::Sent(number) => number,
            other => panic!("the message should be sent: {other:?}"),
        }
    }

    /// A page of a session's inbox.
    pub fn inbox(&self, session: SessionId, from: InboxNumber, limit: usize) -> Vec<InboxRow> {
        ask(|reply| self.store().read_inbox(session, from, limit, reply)).expect("the inbox")
    }

    /// A page of what is due.
    pub fn due(
        &self,
        session: SessionId,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
    ) -> Vec<DueInstance> {
        ask(|reply| self.store().read_due(session, before_ms, after, limit, reply)).expect("what is due")
    }

    /// A page of what is owed.
    pub fn owed(
        &self,
        session: SessionId,
        after: Option<InstanceKey>,
        limit: usize,
    ) -> Vec<(InstanceKey, ShardId)> {
        ask(|reply| self.store().read_owed(session, after, limit, reply)).expect("what is owed")
    }

    /// The row of an id.
    pub fn find(&self, id: &str) -> Option<InstanceRow> {
        ask(|reply| self.store().find(id, reply)).expect("the row")
    }

    /// An instance with its turns and messages.
    pub fn load(&self, key: InstanceKey, after_turn: u64) -> Option<LoadedInstance> {
        ask(|reply| self.store().load(key, after_turn, reply)).expect("the instance")
    }

    /// Turns of one execution.
    pub fn turns(&self, key: InstanceKey, execution: u64, after_turn: u64, limit: usize) -> Vec<Arc<[u8]>> {
        ask(|reply| self.store().read_turns(key, execution, after_turn, limit, reply)).expect("the turns")
    }

    /// A page of a list.
    pub fn list(&self, filter: &Filter, after: Option<PageKey>, limit: usize) -> Page {
        ask(|reply| self.store().list(filter.clone(), after, limit, reply)).expect("the page")
    }

    /// Takes tasks.
    pub fn take(&self, holder: SessionId, served: &Served, limit: usize, lease_ms: u64) -> Vec<TaskRow> {
        ask(|reply| self.store().take_tasks(holder, served.clone(), limit, lease_ms, reply))
            .expect("the tasks")
    }

    /// Renews the leases of tasks.
    pub fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<(TaskId, Option<Payload>)>,
        lease_ms: u64,
    ) -> Vec<TaskRenewal> {
        ask(|reply| self.store().renew_tasks(holder, tasks, lease_ms, reply)).expect("the renewals")
    }

    /// Finishes a task.
    pub fn finish(&self, holder: SessionId, task: TaskId, attempt: u32, body: &str) -> bool {
        let body = Arc::from(body.as_bytes());
        ask(|reply| self.store().finish_task(holder, task, attempt, body, reply)).expect("the task's end")
    }

    /// Gives tasks back.
    pub fn give_back(&self, holder: SessionId, tasks: Vec<TaskId>) {
        ask(|reply| self.store().give_back_tasks(holder, tasks, reply)).expect("the tasks are given back");
    }

    /// Asks an instance something.
    pub fn try_ask(&self, id: &str, deadline_ms: u64, body: &str) -> AskOutcome {
        let request = Ask { instance: id.to_owned(), deadline_ms, body: Arc::from(body.as_bytes()) };
        ask(|reply| self.store().ask(request, reply)).expect("the request is answered")
    }

    /// Asks an instance that exists something, and gives the request's number.
    pub fn asked(&self, id: &str, deadline_ms: u64, body: &str) -> AskNumber {
        match self.try_ask(id, deadline_ms, body) {
            AskOutcome::Asked(number) => number,
            AskOutcome::NoInstance => panic!("there should be an instance {id:?}"),
        }
    }

    /// A page of the requests to a session's instances.
    pub fn asks(&self, session: SessionId, from: AskNumber, limit: usize) -> Vec<AskRow> {
        ask(|reply| self.store().read_asks(session, from, limit, reply)).expect("the requests")
    }

    /// The answer to a request.
    pub fn answer_to(&self, number: AskNumber) -> Option<Arc<[u8]>> {
        ask(|reply| self.store().read_answer(number, reply)).expect("the answer, or none")
    }

    /// Takes a request back.
    pub fn withdraw(&self, number: AskNumber) -> bool {
        ask(|reply| self.store().withdraw_ask(number, reply)).expect("the withdrawal")
    }

    /// Sweeps requests and answers.
    pub fn sweep(&self) {
        ask(|reply| self.store().sweep_asks(reply)).expect("the sweep");
    }

    /// What is noted under a name.
    pub fn note(&self, name: &str) -> Option<Arc<[u8]>> {
        ask(|reply| self.store().read_note(name, reply)).expect("the note, or none")
    }

    /// Notes something under a name, or nothing any more.
    pub fn write_note(&self, session: SessionId, name: &str, note: Option<&str>) -> Result<(), StoreError> {
        let note = note.map(|note| Arc::from(note.as_bytes()));
        ask(|reply| self.store().write_note(session, name, note, reply))
    }

    /// How many rows a list has.
    pub fn count(&self, filter: &Filter, at_most: u64) -> Count {
        ask(|reply| self.store().count(filter.clone(), at_most, reply)).expect("the count")
    }

    /// How much there is of what.
    pub fn stats(&self) -> StoreStats {
        ask(|reply| self.store().stats(reply)).expect("the stats")
    }

    /// Deletes instances.
    pub fn delete(&self, keys: impl IntoIterator<Item = InstanceKey>) -> Vec<DeleteOutcome> {
        let keys = keys.into_iter().collect();
        ask(|reply| self.store().delete(keys, reply)).expect("the deletion is answered")
    }

    /// Closes the store.
    pub fn close(&self) -> Result<(), StoreError> {
        ask(|reply| self.store().close(reply))
    }
}

/// A place for an answer, and where it can be waited for.
pub fn waiting<T: Send + 'static>() -> (Reply<T>, mpsc::Receiver<Result<T, StoreError>>) {
    let (sender, receiver) = mpsc::channel();
    // A test that gave up does not want it any more.
    (Box::new(move |answer| drop(sender.send(answer))), receiver)
}

/// Waits for an answer.
pub fn answer_of<T>(receiver: &mpsc::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    receiver.recv_timeout(PATIENCE).expect("every call is answered")
}

fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (reply, receiver) = waiting();
    call(reply);
    answer_of(&receiver)
}
