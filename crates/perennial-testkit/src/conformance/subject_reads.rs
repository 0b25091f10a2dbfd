//! Reads of the store under test.

use std::sync::Arc;

use perennial_core::store::{
    Count, Criteria, DueInstance, InboxNumber, InboxPage, InboxQuery, InboxRow, InstanceRow, LoadedInstance,
    NewRequest, Page, PageKey, PageLimit, RequestNumber, RequestOutcome, RequestPage, RequestRow, Served,
    SessionId, ShardOwner, ShardSet, StoreDetails, StoreError, StoreStats, TaskId, TaskRenewal, TaskReport,
    TaskRow, TurnRow,
};
use perennial_core::{InstanceKey, Payload, ShardId};

use super::subject::{Subject, wait_for};

/// An instance with the bodies of its turns, and all its messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The row of the instance.
    pub row: InstanceRow,
    /// The bytes of its turns.
    pub turns: Vec<Arc<[u8]>>,
    /// Its messages.
    pub inbox: Vec<InboxRow>,
    /// The tasks of its current execution.
    pub tasks: Vec<TaskRow>,
}

impl Subject {
    /// A page of the inbox of all shards that a session was given.
    pub fn inbox_page(
        &self,
        session: SessionId,
        from: InboxNumber,
        known: &[InboxNumber],
        limit: PageLimit,
    ) -> Result<InboxPage, StoreError> {
        let query = InboxQuery { shards: self.shards_of(session), from, known: known.into(), limit };
        wait_for(|reply| self.store().read_inbox(session, query, reply))
    }

    /// The rows of a page of a session's inbox.
    pub fn inbox(&self, session: SessionId, from: InboxNumber, limit: usize) -> Vec<InboxRow> {
        self.inbox_page(session, from, &[], PageLimit::rows(limit)).expect("the inbox").rows
    }

    /// A page of the due instances in some shards.
    pub fn try_due(
        &self,
        session: SessionId,
        shards: ShardSet,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
    ) -> Result<Vec<DueInstance>, StoreError> {
        wait_for(|reply| self.store().read_due(session, shards, before_ms, after, limit, reply))
    }

    /// A page of the due instances in all shards that a session was given.
    pub fn due(
        &self,
        session: SessionId,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
    ) -> Vec<DueInstance> {
        let shards = self.shards_of(session);
        self.try_due(session, shards, before_ms, after, limit).expect("a page of due instances")
    }

    /// A page of the owed instances in some shards.
    pub fn try_owed(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, ShardId)>, StoreError> {
        wait_for(|reply| self.store().read_owed(session, shards, after, limit, reply))
    }

    /// A page of the owed instances in all shards that a session was given.
    pub fn owed(
        &self,
        session: SessionId,
        after: Option<InstanceKey>,
        limit: usize,
    ) -> Vec<(InstanceKey, ShardId)> {
        self.try_owed(session, self.shards_of(session), after, limit).expect("a page of owed instances")
    }

    /// A page of the blocked instances in some shards.
    pub fn try_blocked(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, ShardId)>, StoreError> {
        wait_for(|reply| self.store().read_blocked(session, shards, after, limit, reply))
    }

    /// A page of the blocked instances in all shards that a session was given.
    pub fn blocked(
        &self,
        session: SessionId,
        after: Option<InstanceKey>,
        limit: usize,
    ) -> Vec<(InstanceKey, ShardId)> {
        self.try_blocked(session, self.shards_of(session), after, limit).expect("a page of blocked instances")
    }

    /// The row with an id.
    pub fn find(&self, id: &str) -> Option<InstanceRow> {
        wait_for(|reply| self.store().find(id, reply)).expect("the row")
    }

    /// An instance as the store returns it.
    pub fn load_page(&self, row: &InstanceRow, after_turn: u64, inbox: PageLimit) -> Option<LoadedInstance> {
        wait_for(|reply| self.store().load(row.shard, row.key, after_turn, inbox, reply))
            .expect("the instance")
    }

    /// An instance with its turns and messages.
    pub fn load(&self, row: &InstanceRow, after_turn: u64) -> Option<Loaded> {
        let loaded = self.load_page(row, after_turn, PageLimit::rows(usize::MAX))?;
        let LoadedInstance { row, turns, inbox, tasks } = loaded;
        assert_eq!(inbox.next, None, "all of its messages fit");
        Some(Loaded { row, turns: bodies(turns), inbox: inbox.rows, tasks })
    }

    /// Turns of one execution as the store returns them.
    pub fn turn_rows(
        &self,
        row: &InstanceRow,
        execution: u64,
        after_turn: u64,
        limit: PageLimit,
    ) -> Vec<TurnRow> {
        wait_for(|reply| self.store().read_turns(row.shard, row.key, execution, after_turn, limit, reply))
            .expect("the turns")
    }

    /// The bytes of turns of one execution.
    pub fn turns(&self, row: &InstanceRow, execution: u64, after_turn: u64, limit: usize) -> Vec<Arc<[u8]>> {
        bodies(self.turn_rows(row, execution, after_turn, PageLimit::rows(limit)))
    }

    /// A page of a list.
    pub fn list(&self, filter: &Criteria, after: Option<PageKey>, limit: usize) -> Page {
        wait_for(|reply| self.store().list(filter.clone(), after, limit, reply)).expect("the page")
    }

    /// The number of rows of a list.
    pub fn count(&self, filter: &Criteria, at_most: u64) -> Count {
        wait_for(|reply| self.store().count(filter.clone(), at_most, reply)).expect("the count")
    }

    /// A page of the tasks of all instances.
    pub fn list_tasks(&self, after: Option<TaskId>, limit: usize) -> Vec<TaskRow> {
        wait_for(|reply| self.store().list_tasks(after, limit, reply)).expect("the tasks")
    }

    /// The owner of a shard.
    pub fn shard_owner(&self, shard: ShardId) -> ShardOwner {
        wait_for(|reply| self.store().shard_owner(shard, reply)).expect("the owner")
    }

    /// Row counts and scheduling lag.
    pub fn stats(&self) -> StoreStats {
        wait_for(|reply| self.store().stats(reply)).expect("the stats")
    }

    /// Blocked instances by code, and sizes.
    pub fn details(&self) -> StoreDetails {
        wait_for(|reply| self.store().details(reply)).expect("the details")
    }

    /// Takes tasks.
    pub fn take(&self, holder: SessionId, served: &Served, limit: usize, lease_ms: u64) -> Vec<TaskRow> {
        wait_for(|reply| self.store().take_tasks(holder, served.clone(), limit, lease_ms, reply))
            .expect("the tasks")
    }

    /// The tasks that are leased to a holder.
    pub fn held(&self, holder: SessionId) -> Vec<TaskRow> {
        wait_for(|reply| self.store().held_tasks(holder, reply)).expect("the tasks")
    }

    /// Renews the leases of tasks.
    pub fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<(TaskId, Option<Payload>)>,
        lease_ms: u64,
    ) -> Vec<TaskRenewal> {
        let report = |(task, details)| TaskReport { details, ..TaskReport::of(task) };
        self.report_tasks(holder, tasks.into_iter().map(report).collect(), lease_ms)
    }

    /// Renews the leases of tasks, with heartbeats.
    pub fn report_tasks(
        &self,
        holder: SessionId,
        reports: Vec<TaskReport>,
        lease_ms: u64,
    ) -> Vec<TaskRenewal> {
        wait_for(|reply| self.store().renew_tasks(holder, reports, lease_ms, reply)).expect("the renewals")
    }

    /// Finishes a task.
    pub fn finish(&self, holder: SessionId, task: TaskId, attempt: u32, body: &str) -> bool {
        let body = Arc::from(body.as_bytes());
        wait_for(|reply| self.store().finish_task(holder, task, attempt, body, reply))
            .expect("the task's end")
    }

    /// Gives tasks back.
    pub fn give_back(&self, holder: SessionId, tasks: Vec<TaskId>) {
        wait_for(|reply| self.store().give_back_tasks(holder, tasks, reply))
            .expect("the tasks are given back");
    }

    /// Writes a request.
    pub fn put(&self, request: NewRequest) -> RequestOutcome {
        wait_for(|reply| self.store().put_request(request, reply)).expect("the request is answered")
    }

    /// Writes a request to an id.
    pub fn request(&self, id: &str, patience_ms: u64, body: &str) -> RequestOutcome {
        let (instance, body) = (id.to_owned(), Arc::from(body.as_bytes()));
        self.put(NewRequest { instance, key: None, patience_ms, after: None, body })
    }

    /// Writes a request to an existing instance, and returns its number.
    pub fn requested(&self, id: &str, patience_ms: u64, body: &str) -> RequestNumber {
        match self.request(id, patience_ms, body) {
            RequestOutcome::Written(number) => number,
            RequestOutcome::NoInstance => panic!("there should be an instance {id:?}"),
        }
    }

    /// A page of the requests to some shards.
    pub fn request_page(
        &self,
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
    ) -> Result<RequestPage, StoreError> {
        wait_for(|reply| self.store().read_requests(session, shards, from, limit, reply))
    }

    /// The rows of a page of the requests to all shards that a session was given.
    pub fn requests(&self, session: SessionId, from: RequestNumber, limit: usize) -> Vec<RequestRow> {
        let page = self.request_page(session, self.shards_of(session), from, PageLimit::rows(limit));
        page.expect("the requests").rows
    }

    /// The reply to a request.
    pub fn reply_to(&self, number: RequestNumber) -> Option<Arc<[u8]>> {
        wait_for(|reply| self.store().read_reply(number, reply)).expect("the reply, or none")
    }

    /// Withdraws a request.
    pub fn withdraw(&self, number: RequestNumber) -> bool {
        wait_for(|reply| self.store().withdraw_request(number, reply)).expect("the withdrawal")
    }
}

fn bodies(turns: Vec<TurnRow>) -> Vec<Arc<[u8]>> {
    turns.into_iter().map(|turn| turn.bytes).collect()
}
