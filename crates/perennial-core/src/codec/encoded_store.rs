//! A store adapter that encodes the payloads of messages, tasks, requests, replies and published statuses.
//!
//! Turns pass through unchanged: the engine encodes them itself. So do rows that are moved to another store. Attributes
//! and the other columns of an instance's row stay in plain text, because lists search them.
//!
//! A payload that cannot be decoded is passed on in its stored form. The code that acts on it detects this and reports
//! it: an instance is blocked, a task is returned to the queue, a reader gets a marker.

use std::fmt;
use std::sync::Arc;

use crate::code::ErrorCode;
use crate::history::Payload;
use crate::instance::{InstanceKey, ShardId};
use crate::log;
use crate::store::*;

use super::form::may_be_encoded;
use super::recode::Recoder;
use super::{CodecError, Codecs, EncodedPayload, PayloadContext};

/// Encoding or decoding work, to run on a thread that may block.
pub type EncodingTask = Box<dyn FnOnce() + Send>;

/// Wraps a [`Store`] so that the payloads in its rows are encoded. See [`codec`](crate::codec).
///
/// ```
/// use std::sync::Arc;
///
/// use perennial_core::codec::{Codecs, EncodedStore};
/// use perennial_core::store::{MemoryStore, Store};
///
/// fn encoded(codecs: Codecs) -> impl Store {
///     let store: Arc<dyn Store> = Arc::new(MemoryStore::new(|| 0));
///     EncodedStore::new(store, codecs, |task| drop(std::thread::spawn(task)))
/// }
/// ```
pub struct EncodedStore {
    store: Arc<dyn Store>,
    work: Work,
}

/// What is needed to decode a reply.
#[derive(Clone)]
struct Work {
    recoder: Recoder,
    run: Arc<dyn Fn(EncodingTask) + Send + Sync>,
}

impl fmt::Debug for EncodedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedStore").field("codecs", &self.work.recoder.codecs).finish_non_exhaustive()
    }
}

impl EncodedStore {
    /// Wraps a store. `run` executes a task on a thread that may block, or immediately.
    pub fn new(
        store: Arc<dyn Store>,
        codecs: Codecs,
        run: impl Fn(EncodingTask) + Send + Sync + 'static,
    ) -> EncodedStore {
        EncodedStore { store, work: Work { recoder: Recoder { codecs }, run: Arc::new(run) } }
    }
}

impl Work {
    /// Decodes the result before passing it on, if there is something to decode.
    fn decoded<T: Decoded + Send + 'static>(&self, reply: Reply<T>) -> Reply<T> {
        let work = self.clone();
        Box::new(move |answer| match answer {
            Ok(mut answer) if answer.has_encoded() => {
                let recoder = work.recoder.clone();
                (work.run)(Box::new(move || {
                    answer.decode(&recoder);
                    reply(Ok(answer));
                }));
            }
            answer => reply(answer),
        })
    }
}

fn unencodable(error: &CodecError) -> String {
    ErrorCode::PayloadUnencodable.message(error)
}

/// Rows that may hold encoded payloads.
trait Decoded {
    fn has_encoded(&self) -> bool;
    fn decode(&mut self, recoder: &Recoder);
}

impl<T: Decoded> Decoded for Vec<T> {
    fn has_encoded(&self) -> bool {
        self.iter().any(T::has_encoded)
    }

    fn decode(&mut self, recoder: &Recoder) {
        self.iter_mut().for_each(|row| row.decode(recoder));
    }
}

impl<T: Decoded> Decoded for Option<T> {
    fn has_encoded(&self) -> bool {
        self.as_ref().is_some_and(T::has_encoded)
    }

    fn decode(&mut self, recoder: &Recoder) {
        self.iter_mut().for_each(|row| row.decode(recoder));
    }
}

fn is_encoded(payload: Option<&Payload>) -> bool {
    payload.is_some_and(|payload| super::is_marked(payload.as_json()))
}

impl Decoded for InstanceRow {
    fn has_encoded(&self) -> bool {
        is_encoded(self.published.as_ref())
    }

    /// A status is for people: one that cannot be decoded is shown as a marker.
    fn decode(&mut self, recoder: &Recoder) {
        let Some(published) = &mut self.published else { return };
        match recoder.codecs.decode(published, &PayloadContext::of(self.key)) {
            Ok(decoded) => *published = decoded,
            Err(error) => {
                tracing::debug!(target: log::STORE, instance = %self.id, %error, "published status cannot be decoded");
                if let Some(encoded) = EncodedPayload::of(published) {
                    *published = encoded.marker();
                }
            }
        }
    }
}

impl Decoded for InboxRow {
    fn has_encoded(&self) -> bool {
        may_be_encoded(&self.body)
    }

    fn decode(&mut self, recoder: &Recoder) {
        self.body = recoder.decode_message(&self.body);
    }
}

impl Decoded for InboxPage {
    fn has_encoded(&self) -> bool {
        self.rows.has_encoded()
    }

    fn decode(&mut self, recoder: &Recoder) {
        self.rows.decode(recoder);
    }
}

impl Decoded for TaskRow {
    fn has_encoded(&self) -> bool {
        is_encoded(self.details.as_ref()) || self.work.as_ref().is_some_and(|work| may_be_encoded(work))
    }

    fn decode(&mut self, recoder: &Recoder) {
        recoder.decode_task(self);
    }
}

impl Decoded for LoadedInstance {
    fn has_encoded(&self) -> bool {
        self.row.has_encoded() || self.inbox.has_encoded() || self.tasks.has_encoded()
    }

    fn decode(&mut self, recoder: &Recoder) {
        self.row.decode(recoder);
        self.inbox.decode(recoder);
        self.tasks.decode(recoder);
    }
}

impl Decoded for RequestPage {
    fn has_encoded(&self) -> bool {
        self.rows.iter().any(|row| may_be_encoded(&row.body))
    }

    fn decode(&mut self, recoder: &Recoder) {
        for row in &mut self.rows {
            row.body = recoder.decode_request(&row.body);
        }
    }
}

/// The reply to a request.
impl Decoded for Arc<[u8]> {
    fn has_encoded(&self) -> bool {
        may_be_encoded(self)
    }

    fn decode(&mut self, recoder: &Recoder) {
        *self = recoder.decode_reply(self);
    }
}

impl Decoded for Page {
    fn has_encoded(&self) -> bool {
        self.rows.has_encoded()
    }

    fn decode(&mut self, recoder: &Recoder) {
        self.rows.decode(recoder);
    }
}

impl Decoded for SendOutcome {
    fn has_encoded(&self) -> bool {
        match self {
            SendOutcome::IdTaken(row) | SendOutcome::Ended(row) => row.has_encoded(),
            _ => false,
        }
    }

    fn decode(&mut self, recoder: &Recoder) {
        if let SendOutcome::IdTaken(row) | SendOutcome::Ended(row) = self {
            row.decode(recoder);
        }
    }
}

impl Decoded for CommitOutcome {
    fn has_encoded(&self) -> bool {
        matches!(self, CommitOutcome::Conflict(Conflict::IdTaken(row)) if row.has_encoded())
    }

    fn decode(&mut self, recoder: &Recoder) {
        if let CommitOutcome::Conflict(Conflict::IdTaken(row)) = self {
            row.decode(recoder);
        }
    }
}

/// Calls without payloads are passed on unchanged.
macro_rules! pass {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type,)* reply: Reply<$answer>) {
            self.store.$name($($argument,)* reply);
        }
    )*};
}

/// Calls whose results may contain payloads.
macro_rules! pass_decoded {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type,)* reply: Reply<$answer>) {
            self.store.$name($($argument,)* self.work.decoded(reply));
        }
    )*};
}

impl Store for EncodedStore {
    pass! {
        open_session(session: NewSession) -> Lease;
        renew_session(session: SessionId, info: Option<Arc<[u8]>>) -> Lease;
        end_session(session: SessionId) -> ();
        claim_shards(session: SessionId, target: usize) -> Vec<OwnedShard>;
        release_shards(session: SessionId, shards: ShardSet) -> ();
        replace_session(old: SessionId, new: NewSession) -> Replaced;
        write_shard_notes(
            session: SessionId, notes: Vec<(ShardId, Option<Arc<[u8]>>)>, is_steady: bool
        ) -> ();
        directory() -> Directory;
        shard_owner(shard: ShardId) -> ShardOwner;
        read_due(
            session: SessionId, shards: ShardSet, before_ms: u64, after: Option<(u64, InstanceKey)>, limit: usize
        ) -> Vec<DueInstance>;
        read_owed(
            session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize
        ) -> Vec<(InstanceKey, ShardId)>;
        read_blocked(
            session: SessionId, shards: ShardSet, after: Option<InstanceKey>, limit: usize
        ) -> Vec<(InstanceKey, ShardId)>;
        read_turns(
            shard: ShardId, key: InstanceKey, execution: u64, after_turn: u64, limit: PageLimit
        ) -> Vec<TurnRow>;
        give_back_tasks(holder: SessionId, tasks: Vec<TaskId>) -> ();
        withdraw_request(number: RequestNumber) -> bool;
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
        read_setting(name: &str) -> Option<Arc<[u8]>>;
        write_setting(name: &str, read: Option<Arc<[u8]>>, value: Option<Arc<[u8]>>) -> bool;
        export_rows(table: MovedTable, after: Option<MovedKey>, limit: PageLimit) -> Vec<MovedRow>;
        import_rows(session: SessionId, rows: Vec<MovedRow>) -> Imported;
        close() -> ();
    }

    pass_decoded! {
        read_inbox(session: SessionId, query: InboxQuery) -> InboxPage;
        find(id: &str) -> Option<InstanceRow>;
        load(shard: ShardId, key: InstanceKey, after_turn: u64, inbox: PageLimit) -> Option<LoadedInstance>;
        take_tasks(holder: SessionId, served: Served, limit: usize, lease_ms: u64) -> Vec<TaskRow>;
        held_tasks(holder: SessionId) -> Vec<TaskRow>;
        read_requests(
            session: SessionId, shards: ShardSet, from: RequestNumber, limit: PageLimit
        ) -> RequestPage;
        read_reply(number: RequestNumber) -> Option<Arc<[u8]>>;
        list(filter: Criteria, after: Option<PageKey>, limit: usize) -> Page;
    }

    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>) {
        let reply = self.work.decoded(reply);
        if !batch.iter().any(Recoder::has_payloads) {
            return self.store.commit(session, batch, reply);
        }
        let (store, recoder) = (Arc::clone(&self.store), self.work.recoder.clone());
        (self.work.run)(Box::new(move || {
            let encoded: Vec<_> = batch.iter().map(|member| recoder.encode_commit(member)).collect();
            // A member that cannot be encoded must not affect the other members.
            let refused: Vec<Option<String>> =
                encoded.iter().map(|member| member.as_ref().err().map(unencodable)).collect();
            let rest: Arc<[Commit]> = encoded.into_iter().flatten().collect();
            let merge = move |outcomes: Vec<CommitOutcome>| {
                let mut outcomes = outcomes.into_iter();
                let outcome = |refused: Option<String>| match refused {
                    Some(reason) => CommitOutcome::Rejected(reason),
                    None => outcomes.next().expect("a store answers for each member"),
                };
                refused.into_iter().map(outcome).collect()
            };
            store.commit(session, rest, Box::new(move |answer| reply(answer.map(merge))));
        }));
    }

    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>) {
        let reply = self.work.decoded(reply);
        let (store, recoder) = (Arc::clone(&self.store), self.work.recoder.clone());
        (self.work.run)(Box::new(move || {
            let encoded: Result<Vec<_>, _> =
                requests.into_iter().map(|request| recoder.encode_send(request)).collect();
            match encoded {
                Ok(requests) => store.send(requests, reply),
                Err(error) => reply(Err(StoreError::Unavailable(unencodable(&error)))),
            }
        }));
    }

    fn renew_tasks(
        &self,
        holder: SessionId,
        mut tasks: Vec<TaskReport>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    ) {
        if tasks.iter().all(|task| task.details.is_none()) {
            return self.store.renew_tasks(holder, tasks, lease_ms, reply);
        }
        let (store, recoder) = (Arc::clone(&self.store), self.work.recoder.clone());
        (self.work.run)(Box::new(move || {
            for report in &mut tasks {
                recoder.encode_report(report);
            }
            store.renew_tasks(holder, tasks, lease_ms, reply);
        }));
    }

    fn finish_task(
        &self,
        holder: SessionId,
        task: TaskId,
        attempt: u32,
        body: Arc<[u8]>,
        reply: Reply<bool>,
    ) {
        let (store, recoder) = (Arc::clone(&self.store), self.work.recoder.clone());
        (self.work.run)(Box::new(move || match recoder.encode_message(&body) {
            Ok(body) => store.finish_task(holder, task, attempt, body, reply),
            Err(error) => reply(Err(StoreError::Unavailable(unencodable(&error)))),
        }));
    }

    fn put_request(&self, request: NewRequest, reply: Reply<RequestOutcome>) {
        let (store, recoder) = (Arc::clone(&self.store), self.work.recoder.clone());
        (self.work.run)(Box::new(move || match recoder.encode_request(&request.body) {
            Ok(body) => store.put_request(NewRequest { body, ..request }, reply),
            Err(error) => reply(Err(StoreError::Unavailable(unencodable(&error)))),
        }));
    }

    fn watch(&self, watcher: Watcher) {
        self.store.watch(watcher);
    }
}
