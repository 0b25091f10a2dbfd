//! Calls to the store: some wait until a test makes them, and their answers can be delayed.

use std::sync::mpsc;

use perennial_core::lane::{CallId, StoreCall, StoreResult};
use perennial_core::store::{Changes, Commit, Reply, SessionId, ShardSet, StoreError};

use super::ManualNode;

/// A delayed answer of the store to a call. It is dropped if the process has crashed meanwhile.
#[derive(Clone, Debug)]
pub struct HeldResponse {
    process: u64,
    call: CallId,
    answer: StoreResult,
}

/// The purpose of a call, as far as tests distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Find,
    Load,
    /// Reads the tasks and messages of an instance again.
    Refresh,
    Batch,
    Inbox,
    /// Replaces a session whose batch has an unknown outcome.
    Replace,
    Due,
    Requests,
    /// Further reads of a new owner: owed and blocked instances.
    Owed,
    /// Sessions, shards, maintenance.
    Other,
}

impl Kind {
    pub(super) fn of(call: &StoreCall) -> Kind {
        match call {
            StoreCall::Find { .. } => Kind::Find,
            StoreCall::Load { after_turn: u64::MAX, .. } => Kind::Refresh,
            StoreCall::Load { .. } => Kind::Load,
            StoreCall::Commit { .. } => Kind::Batch,
            StoreCall::ReadInbox { .. } => Kind::Inbox,
            StoreCall::ReplaceSession { .. } => Kind::Replace,
            StoreCall::ReadDue { .. } => Kind::Due,
            StoreCall::ReadRequests { .. } => Kind::Requests,
            StoreCall::ReadOwed { .. } | StoreCall::ReadBlocked { .. } => Kind::Owed,
            _ => Kind::Other,
        }
    }
}

/// The waiting calls, in the order in which the lane made them.
#[derive(Default)]
pub(super) struct WaitingCalls {
    calls: Vec<(CallId, StoreCall)>,
    /// Whether refreshes of rows, and permissions for quarantine, also wait.
    pub(super) holds_back: bool,
    /// Whether there are new shards that have not been read.
    pub(super) is_new_owner: bool,
}

impl WaitingCalls {
    /// Whether calls of this kind wait for the test.
    pub(super) fn is_held_back(&self, kind: Kind) -> bool {
        match kind {
            Kind::Find | Kind::Load | Kind::Batch | Kind::Inbox | Kind::Replace => true,
            Kind::Refresh => self.holds_back,
            Kind::Due | Kind::Requests | Kind::Owed => self.is_new_owner,
            Kind::Other => false,
        }
    }

    pub(super) fn add(&mut self, id: CallId, call: StoreCall) {
        self.calls.push((id, call));
    }

    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &StoreCall> {
        self.calls.iter().map(|(_, call)| call).filter(move |call| Kind::of(call) == kind)
    }

    fn take(&mut self, kind: Kind) -> Vec<(CallId, StoreCall)> {
        self.take_where(|call| Kind::of(call) == kind)
    }

    pub(super) fn take_where(&mut self, is_it: impl Fn(&StoreCall) -> bool) -> Vec<(CallId, StoreCall)> {
        self.calls.extract_if(.., |(_, call)| is_it(call)).collect()
    }

    fn first(&self, kind: Kind) -> Option<(CallId, StoreCall)> {
        self.calls.iter().find(|(_, call)| Kind::of(call) == kind).cloned()
    }

    /// The oldest batch without an answer.
    pub(super) fn batch(&self) -> Option<(SessionId, std::sync::Arc<[Commit]>)> {
        self.of(Kind::Batch).find_map(|call| match call {
            StoreCall::Commit { session, batch } => Some((*session, std::sync::Arc::clone(batch))),
            _ => None,
        })
    }

    pub(super) fn take_batch(&mut self) -> Option<CallId> {
        let position = self.calls.iter().position(|(_, call)| Kind::of(call) == Kind::Batch)?;
        Some(self.calls.remove(position).0)
    }

    /// Drops all calls with their process.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }
}

impl ManualNode {
    /// Makes the waiting calls of a kind, and holds their answers.
    fn read(&mut self, kind: Kind) -> Vec<HeldResponse> {
        let calls = self.waiting.take(kind);
        self.keep_back(calls)
    }

    /// Makes the calls that wait because the store is slow, and holds their answers.
    pub fn read_slow(&mut self) -> Vec<HeldResponse> {
        let calls = self.waiting.take_where(|call| self.faults.is_slow(call));
        self.keep_back(calls)
    }

    fn keep_back(&mut self, calls: Vec<(CallId, StoreCall)>) -> Vec<HeldResponse> {
        let process = self.process;
        calls
            .into_iter()
            .map(|(call, made)| HeldResponse { process, call, answer: self.answer_of(made) })
            .collect()
    }

    /// Makes the waiting calls of a kind. Returns whether there was one.
    pub(super) fn make(&mut self, kind: Kind) -> bool {
        let read = self.read(kind);
        let any = !read.is_empty();
        read.into_iter().for_each(|answer| self.bring(answer));
        any
    }

    pub(super) fn answer_of(&mut self, call: StoreCall) -> StoreResult {
        if let StoreCall::Load { key, after_turn: 0, .. } = &call
            && self.unreadable.contains(key)
        {
            return Err(StoreError::CorruptRow("its bytes are no row".to_owned()));
        }
        let store = &self.store;
        self.faults.apply(call.name(), || {
            let (sender, receiver) = mpsc::channel();
            call.make(&**store, move |answer| sender.send(answer).expect("the caller waits"));
            receiver.recv().expect("the memory store answers at once")
        })
    }

    /// Delivers a held answer of the store.
    pub fn bring(&mut self, held: HeldResponse) {
        let HeldResponse { process, call, answer } = held;
        if process == self.process {
            self.feed(|lane, now| lane.handle_response(now, call, answer));
        }
    }

    /// Answers every waiting call of a kind with an error.
    fn refuse(&mut self, kind: Kind, error: &StoreError) {
        for (call, _) in self.waiting.take(kind) {
            self.feed(|lane, now| lane.handle_response(now, call, Err(error.clone())));
        }
    }

    // ---- looking up and loading -----------------------------------------------------------------------------------

    /// Reads the rows that requests wait for, and holds the answers.
    pub fn read_finds(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Find)
    }

    /// Looks up every id that a request waits for. Returns whether there was one.
    pub fn look_up(&mut self) -> bool {
        self.make(Kind::Find)
    }

    /// Fails the lookups of ids.
    pub fn look_up_failing(&mut self, error: &StoreError) {
        self.refuse(Kind::Find, error);
    }

    /// Reads the instances to be loaded, and holds the answers.
    pub fn read_loads(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Load)
    }

    /// Loads every instance to be loaded. Returns whether there was one.
    pub fn load(&mut self) -> bool {
        self.make(Kind::Load)
    }

    /// Fails the loads of instances.
    pub fn load_failing(&mut self, error: &StoreError) {
        self.refuse(Kind::Load, error);
    }

    /// From now on, refreshes of rows and permissions for quarantine wait, too.
    pub fn hold_back(&mut self) -> &mut ManualNode {
        self.waiting.holds_back = true;
        self
    }

    /// Fails the refreshes of rows.
    pub fn refresh_failing(&mut self, error: &StoreError) {
        self.refuse(Kind::Refresh, error);
    }

    /// Reads the rows to be refreshed, and holds the answers.
    pub fn read_refreshes(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Refresh)
    }

    /// Reads the owed and blocked instances, if the lane asks for them, and holds the answers.
    pub fn read_owed(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Owed)
    }

    /// The answer to the batch in flight as of now, held. The batch is written, and stays in flight.
    ///
    /// # Panics
    ///
    /// If no batch is in flight.
    pub fn held_batch(&mut self) -> HeldResponse {
        let (call, made) = self.waiting.first(Kind::Batch).expect("a batch is in flight");
        HeldResponse { process: self.process, call, answer: self.answer_of(made) }
    }

    // ---- the inbox and requests -----------------------------------------------------------------------------------

    /// Starts a pass over the inbox, reads a page, and holds the answer.
    ///
    /// # Panics
    ///
    /// If the lane does not start one.
    pub fn read_inbox(&mut self) -> HeldResponse {
        self.want_inbox();
        let mut pages = self.read(Kind::Inbox);
        assert_eq!(pages.len(), 1, "one pass at a time");
        pages.remove(0)
    }

    /// Reads the inbox if the lane asks for it. Returns whether it was read.
    pub fn follow_hint(&mut self) -> bool {
        self.make(Kind::Inbox)
    }

    /// Reads the whole inbox.
    pub fn pass_inbox(&mut self) -> &mut ManualNode {
        self.want_inbox();
        while self.follow_hint() {}
        self
    }

    fn want_inbox(&mut self) {
        self.hint(&Changes { inbox: ShardSet::ALL, ..Changes::default() });
    }

    /// Reads the requests of other processes.
    pub fn pass_requests(&mut self) -> &mut ManualNode {
        self.hint(&Changes { requests: ShardSet::ALL, ..Changes::default() });
        while self.make(Kind::Requests) {}
        self
    }

    /// Reads owed, blocked and due instances, if the lane asks for them.
    pub(super) fn look_around(&mut self) {
        while self.make(Kind::Owed) || self.make(Kind::Due) || self.make(Kind::Requests) {}
    }

    /// Replaces a session whose batch has an unknown outcome. Returns whether the lane asked for that.
    pub fn replace_session(&mut self) -> bool {
        self.make(Kind::Replace)
    }
}

/// Calls a store that answers at once.
pub(super) fn wait_for_store<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).expect("the caller waits")));
    receiver.recv().expect("the memory store answers at once")
}
