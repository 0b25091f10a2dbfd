//! The store under test, with calls that wait for their answers.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perennial_core::store::{
    Commit, CommitOutcome, DeleteOutcome, Directory, InboxNumber, Lease, NewSession, NodeInfo, OwnedShard,
    Replaced, Reply, SendOutcome, SendRequest, SessionId, SessionRole, ShardSet, Store, StoreError, Swept,
};
use perennial_core::{SHARDS, ShardId};

use super::test_clock::TestClock;

/// The maximum time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Creates an empty store that uses the given clock.
pub type Make<'a> = &'a dyn Fn(TestClock) -> Candidate;

/// A store to be tested, with things that must live as long, such as a temporary directory.
pub struct Candidate {
    // In this order: the store is closed before its directory is deleted.
    store: Box<dyn Store>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Candidate {
    /// A store without dependencies.
    pub fn new(store: impl Store) -> Candidate {
        Candidate::keeping(store, ())
    }

    /// A store that needs `kept` for as long as it lives.
    pub fn keeping(store: impl Store, kept: impl Any + Send + Sync) -> Candidate {
        Candidate { store: Box::new(store), _kept: Box::new(kept) }
    }
}

/// A store under test and its clock, with calls that wait for their answers. Where a correct test never gets
/// an error, the call panics on one.
pub struct Subject {
    candidate: Candidate,
    /// The store's clock.
    pub clock: TestClock,
    owned: Mutex<Owned>,
}

/// The epochs at which sessions own their shards, as claims returned them. Lost shards stay here: a session
/// that lost its shards still believes that it owns them.
type Owned = BTreeMap<SessionId, BTreeMap<ShardId, u64>>;

impl Subject {
    /// Creates an empty store.
    pub fn new(make: Make<'_>) -> Subject {
        let clock = TestClock::new();
        Subject { candidate: make(clock.clone()), clock, owned: Mutex::default() }
    }

    /// Wraps an existing store, which needs no clock.
    pub fn over(store: impl Store) -> Subject {
        Subject { candidate: Candidate::new(store), clock: TestClock::new(), owned: Mutex::default() }
    }

    /// The underlying store.
    pub fn store(&self) -> &dyn Store {
        &*self.candidate.store
    }

    /// Opens a lane's session with a new id.
    pub fn open_session(&self, lease_ms: u64) -> SessionId {
        let new = new_session(SessionRole::Lane, lease_ms);
        let id = new.id;
        self.open(new).expect("a session");
        id
    }

    /// Opens a session.
    pub fn open(&self, session: NewSession) -> Result<Lease, StoreError> {
        wait_for(|reply| self.store().open_session(session, reply))
    }

    /// Renews a session.
    pub fn renew(&self, session: SessionId) -> Result<Lease, StoreError> {
        wait_for(|reply| self.store().renew_session(session, None, reply))
    }

    /// Renews a session and replaces its record.
    pub fn renew_with(&self, session: SessionId, info: &NodeInfo) -> Result<Lease, StoreError> {
        wait_for(|reply| self.store().renew_session(session, Some(info.encode()), reply))
    }

    /// Ends a session.
    pub fn end(&self, session: SessionId) -> Result<(), StoreError> {
        wait_for(|reply| self.store().end_session(session, reply))
    }

    /// Claims shards and returns their rows.
    pub fn claim_rows(&self, session: SessionId, target: usize) -> Result<Vec<OwnedShard>, StoreError> {
        let rows = wait_for(|reply| self.store().claim_shards(session, target, reply))?;
        self.learn(session, &rows);
        Ok(rows)
    }

    /// Claims shards and returns all shards that the session then owns.
    pub fn claim(&self, session: SessionId, target: usize) -> Result<Vec<ShardId>, StoreError> {
        Ok(self.claim_rows(session, target)?.into_iter().map(|row| row.shard).collect())
    }

    /// Releases shards.
    pub fn release(&self, session: SessionId, shards: ShardSet) -> Result<(), StoreError> {
        wait_for(|reply| self.store().release_shards(session, shards, reply))?;
        if let Some(owned) = self.lock().get_mut(&session) {
            owned.retain(|shard, _| !shards.contains(*shard));
        }
        Ok(())
    }

    /// Replaces an old session with a new one.
    pub fn replace(&self, old: SessionId, new: NewSession) -> Result<Replaced, StoreError> {
        let id = new.id;
        let replaced = wait_for(|reply| self.store().replace_session(old, new, reply))?;
        self.learn(id, &replaced.shards);
        Ok(replaced)
    }

    /// Writes a note about shards.
    pub fn note(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
    ) -> Result<(), StoreError> {
        wait_for(|reply| self.store().write_shard_notes(session, notes, is_steady, reply))
    }

    /// All sessions.
    pub fn directory(&self) -> Directory {
        wait_for(|reply| self.store().directory(reply)).expect("the directory")
    }

    /// Opens a session that owns every shard for a minute.
    pub fn own_all(&self) -> SessionId {
        let session = self.open_session(60_000);
        assert_eq!(self.claim(session, SHARDS).expect("the claim is answered").len(), SHARDS);
        session
    }

    /// The shards that a session was given and did not release. It may have lost them since.
    pub fn shards_of(&self, session: SessionId) -> ShardSet {
        self.lock().get(&session).map(|owned| owned.keys().copied().collect()).unwrap_or_default()
    }

    /// The epoch at which a session was last given a shard; 0 if it never was.
    pub fn epoch(&self, session: SessionId, shard: ShardId) -> u64 {
        self.lock().get(&session).and_then(|owned| owned.get(&shard).copied()).unwrap_or(0)
    }

    /// Sets the epochs at which the session was given the shards, in members that name none.
    pub fn with_epochs(&self, session: SessionId, batch: impl IntoIterator<Item = Commit>) -> Arc<[Commit]> {
        let with_epoch = |mut member: Commit| {
            if member.epoch == 0 {
                member.epoch = self.epoch(session, member.shard);
            }
            member
        };
        batch.into_iter().map(with_epoch).collect()
    }

    /// Commits a batch.
    pub fn try_commit(
        &self,
        session: SessionId,
        batch: impl IntoIterator<Item = Commit>,
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let batch = self.with_epochs(session, batch);
        wait_for(|reply| self.store().commit(session, batch, reply))
    }

    /// Commits a batch, and panics on an error.
    pub fn commit(&self, session: SessionId, batch: impl IntoIterator<Item = Commit>) -> Vec<CommitOutcome> {
        self.try_commit(session, batch).expect("the commit is answered")
    }

    /// Commits one member and returns the numbers of the messages that it sent.
    pub fn write(&self, session: SessionId, member: Commit) -> Vec<Option<InboxNumber>> {
        match self.commit(session, [member]).pop() {
            Some(CommitOutcome::Durable { sent }) => sent,
            other => panic!("the member should be durable: {other:?}"),
        }
    }

    /// Sends messages.
    pub fn try_send(&self, requests: Vec<SendRequest>) -> Result<Vec<SendOutcome>, StoreError> {
        wait_for(|reply| self.store().send(requests, reply))
    }

    /// Sends a message, and panics on an error.
    pub fn send(&self, request: SendRequest) -> SendOutcome {
        let mut outcomes = self.try_send(vec![request]).expect("the send is answered");
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    /// Sends a message and returns its number.
    pub fn sent(&self, request: SendRequest) -> InboxNumber {
        match self.send(request) {
            SendOutcome::Sent(number) => number,
            other => panic!("the message should be sent: {other:?}"),
        }
    }

    /// Deletes instances.
    pub fn delete<'r>(
        &self,
        rows: impl IntoIterator<Item = &'r perennial_core::store::InstanceRow>,
    ) -> Vec<DeleteOutcome> {
        let instances = rows.into_iter().map(|row| (row.shard, row.key)).collect();
        wait_for(|reply| self.store().delete(instances, reply)).expect("the deletion is answered")
    }

    /// Deletes at most this many obsolete rows.
    pub fn sweep_some(&self, rows: usize) -> Swept {
        wait_for(|reply| self.store().sweep(rows, None, reply)).expect("the sweep")
    }

    /// Deletes at most this many obsolete rows, including executions that were continued this long ago.
    pub fn sweep_executions(&self, rows: usize, keep_executions_ms: u64) -> Swept {
        wait_for(|reply| self.store().sweep(rows, Some(keep_executions_ms), reply)).expect("the sweep")
    }

    /// Deletes all obsolete rows.
    pub fn sweep(&self) {
        while self.sweep_some(1_000).more {}
    }

    /// Reads a setting.
    pub fn setting(&self, name: &str) -> Option<Arc<[u8]>> {
        wait_for(|reply| self.store().read_setting(name, reply)).expect("the setting, or none")
    }

    /// Writes or deletes a setting, whatever its value.
    pub fn write_setting(&self, name: &str, value: Option<&str>) {
        assert!(self.replace_setting(name, self.setting(name), value), "there is no other writer");
    }

    /// Writes or deletes a setting if it still has the value that was read. Returns whether it had.
    pub fn replace_setting(&self, name: &str, read: Option<Arc<[u8]>>, value: Option<&str>) -> bool {
        let value = value.map(|value| Arc::from(value.as_bytes()));
        wait_for(|reply| self.store().write_setting(name, read, value, reply))
            .expect("the setting, or another")
    }

    /// Closes the store.
    pub fn close(&self) -> Result<(), StoreError> {
        wait_for(|reply| self.store().close(reply))
    }

    fn learn(&self, session: SessionId, rows: &[OwnedShard]) {
        let owned = rows.iter().map(|row| (row.shard, row.epoch)).collect();
        self.lock().insert(session, owned);
    }

    fn lock(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session to open, with an id that is unique in this process.
pub fn new_session(role: SessionRole, lease_ms: u64) -> NewSession {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    // Spread over all bits, as random ids are.
    let drawn = u128::from(DRAWN.fetch_add(1, Ordering::Relaxed));
    let id = SessionId(drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    NewSession { id, role, node: id, lease_ms, info: NodeInfo::default().encode() }
}

/// A callback for an answer, and the channel to receive it from.
pub fn waiting<T: Send + 'static>() -> (Reply<T>, mpsc::Receiver<Result<T, StoreError>>) {
    let (sender, receiver) = mpsc::channel();
    // A test that timed out has dropped the receiver.
    (Box::new(move |answer| drop(sender.send(answer))), receiver)
}

/// Waits for an answer.
pub fn answer_of<T>(receiver: &mpsc::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    receiver.recv_timeout(PATIENCE).expect("every call is answered")
}

/// Makes a call and waits for its answer.
pub fn wait_for<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (reply, receiver) = waiting();
    call(reply);
    answer_of(&receiver)
}
