//! Calls to the store: which of them lie there until a test makes them, and answers that a test keeps back.

use std::sync::mpsc;

use perennial_core::lane::{CallId, StoreCall, StoreResult};
use perennial_core::store::{Changes, Commit, Reply, SessionId, ShardSet, StoreError};

use super::ManualNode;

/// The answer of the store to a call, kept back. A process that has died meanwhile does not get it.
#[derive(Clone, Debug)]
pub struct HeldResponse {
    process: u64,
    call: CallId,
    answer: StoreResult,
}

/// What a call is for, as far as tests care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Find,
    Load,
    /// Tasks and messages of an instance are read again.
    Refresh,
    Batch,
    Inbox,
    /// A session is put in the place of one whose batch is in doubt.
    Replace,
    Due,
    Requests,
    /// What a new owner looks at besides: instances that are owed work, or blocked.
    Owed,
    /// Sessions, shards, upkeep.
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

/// The calls that lie there, in the order in which the lane made them.
#[derive(Default)]
pub(super) struct WaitingCalls {
    calls: Vec<(CallId, StoreCall)>,
    /// Whether second looks at rows, and permissions to run alone, are held back, too.
    pub(super) holds_back: bool,
    /// Whether shards were gained at which nobody has looked yet.
    pub(super) is_new_owner: bool,
}

impl WaitingCalls {
    /// Whether a call of this kind lies there until it is taken up.
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

    /// The oldest batch that was submitted and not answered.
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

    /// The process is gone, and all that it wanted.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }
}

impl ManualNode {
    /// Makes the calls of a kind that lie there, and keeps the answers back.
    fn read(&mut self, kind: Kind) -> Vec<HeldResponse> {
        let calls = self.waiting.take(kind);
        self.keep_back(calls)
    }

    /// Makes the calls that lie there because the store is slow, and keeps the answers back.
    pub fn read_slow(&mut self) -> Vec<HeldResponse> {
        let calls = self.waiting.take_where(|call| self.trouble.is_slow(call));
        self.keep_back(calls)
    }

    fn keep_back(&mut self, calls: Vec<(CallId, StoreCall)>) -> Vec<HeldResponse> {
        let process = self.process;
        calls
            .into_iter()
            .map(|(call, made)| HeldResponse { process, call, answer: self.answer_of(made) })
            .collect()
    }

    /// Makes the calls of a kind that lie there. Returns whether there was one.
    pub(super) fn make(&mut self, kind: Kind) -> bool {
        let read = self.read(kind);
        let any = !read.is_empty();
        read.into_iter().for_each(|answer| self.bring(answer));
        any
    }

    /// Makes a call.
    pub(super) fn answer_of(&mut self, call: StoreCall) -> StoreResult {
        if let StoreCall::Load { key, after_turn: 0, .. } = &call
            && self.unreadable.contains(key)
        {
            return Err(StoreError::CorruptRow("its bytes are no row".to_owned()));
        }
        let store = &self.store;
        self.trouble.spoil(call.name(), || {
            let (sender, receiver) = mpsc::channel();
            call.make(&**store, move |answer| sender.send(answer).expect("the asker waits"));
            receiver.recv().expect("the store in memory answers at once")
        })
    }

    /// Brings an answer of the store that was kept back.
    pub fn bring(&mut self, held: HeldResponse) {
        let HeldResponse { process, call, answer } = held;
        if process == self.process {
            self.feed(|lane, now| lane.handle_response(now, call, answer));
        }
    }

    /// Answers every call of a kind that lies there with an error.
    fn refuse(&mut self, kind: Kind, error: &StoreError) {
        for (call, _) in self.waiting.take(kind) {
            self.feed(|lane, now| lane.handle_response(now, call, Err(error.clone())));
        }
    }

    // ---- looking up and loading -----------------------------------------------------------------------------------

    /// Reads the rows that requests wait for, and keeps them back.
    pub fn read_finds(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Find)
    }

    /// Looks up every id that a request waits for. Returns whether there was one.
    pub fn look_up(&mut self) -> bool {
        self.make(Kind::Find)
    }

    /// Looking ids up fails.
    pub fn look_up_failing(&mut self, error: &StoreError) {
        self.refuse(Kind::Find, error);
    }

    /// Reads the instances that are to be loaded, and keeps them back.
    pub fn read_loads(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Load)
    }

    /// Loads every instance that is to be loaded. Returns whether there was one.
    pub fn load(&mut self) -> bool {
        self.make(Kind::Load)
    }

    /// Loading fails.
    pub fn load_failing(&mut self, error: &StoreError) {
        self.refuse(Kind::Load, error);
    }

    /// From now on second looks at rows, and permissions to run alone, lie there, too.
    pub fn hold_back(&mut self) -> &mut ManualNode {
        self.waiting.holds_back = true;
        self
    }

    /// Looking at rows again fails.
    pub fn refresh_failing(&mut self, error: &StoreError) {
        self.refuse(Kind::Refresh, error);
    }

    /// Reads the rows that are to be seen again, and keeps them back.
    pub fn read_refreshes(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Refresh)
    }

    /// Reads which instances are owed work or blocked, if the lane wants to know, and keeps that back.
    pub fn read_owed(&mut self) -> Vec<HeldResponse> {
        self.read(Kind::Owed)
    }

    /// The answer to the batch that is in flight as it would be now, kept back. The batch itself is written, and stays.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn held_batch(&mut self) -> HeldResponse {
        let (call, made) = self.waiting.first(Kind::Batch).expect("a batch is in flight");
        HeldResponse { process: self.process, call, answer: self.answer_of(made) }
    }

    // ---- the inbox and requests -----------------------------------------------------------------------------------

    /// Begins a pass over the inbox, reads a page, and keeps it back.
    ///
    /// # Panics
    ///
    /// If the lane does not begin one.
    pub fn read_inbox(&mut self) -> HeldResponse {
        self.want_inbox();
        let mut pages = self.read(Kind::Inbox);
        assert_eq!(pages.len(), 1, "one pass at a time");
        pages.remove(0)
    }

    /// Reads the inbox if the lane wants to. Returns whether it was read.
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

    /// Reads what other processes ask.
    pub fn pass_requests(&mut self) -> &mut ManualNode {
        self.hint(&Changes { requests: ShardSet::ALL, ..Changes::default() });
        while self.make(Kind::Requests) {}
        self
    }

    /// Looks at what is owed, blocked and due, if the lane wants to.
    pub(super) fn look_around(&mut self) {
        while self.make(Kind::Owed) || self.make(Kind::Due) || self.make(Kind::Requests) {}
    }

    /// Puts a session in the place of the one whose batch is in doubt. Returns whether the lane wanted that.
    pub fn replace_session(&mut self) -> bool {
        self.make(Kind::Replace)
    }
}

/// Asks a store that answers at once.
pub(super) fn wait_for_store<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).expect("the asker waits")));
    receiver.recv().expect("the store in memory answers at once")
}
