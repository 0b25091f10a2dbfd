//! The shard: passes each input to the instance that it concerns.

use std::mem;
use std::sync::Arc;

use crate::code::ErrorCode;
use crate::history::whole_ms;
use crate::history::{ActivityError, EventId, Payload};
use crate::instance::{InstanceKey, ShardId};
use crate::log;
use crate::store::{
    CommitOutcome, Gap, InboxNumber, InboxRow, InstanceRow, LoadedInstance, PausedOrchestrations, RequestRow,
    SessionId,
};

use super::attempts::Attempt;
use super::counters::Counters;
use super::facts::Fact;
use super::gaps::Gaps;
use super::instance::Instance;
use super::instances::Instances;
use super::message::Start;
use super::options::ShardOptions;
use super::output::{ActivityTask, Output};
use super::request::{InstanceCall, ReplyTo, Request, RequestId, Response, StartRequest};
use super::shared::Shared;
use super::standing::Lease;
use super::tenure::Tenure;
use super::turn_task::{TurnTaskDone, TurnTaskOutput};

/// The failure of an attempt that returns without a result although it may not.
pub(crate) fn cannot_be_left_open() -> ActivityError {
    let words = "the attempt returned without a result, but was not scheduled with completes_later()";
    ActivityError::Application(Payload::from(ErrorCode::NoToken.message(words)))
}

/// The instances of one shard that are not dormant.
pub struct Shard {
    instances: Instances,
    shared: Shared,
}

impl Shard {
    /// A shard that was just claimed: all instances are dormant. The nonce must be random and generated for this owner.
    pub fn new(id: ShardId, tenure: Tenure, options: ShardOptions, nonce: u128) -> Shard {
        Shard { instances: Instances::default(), shared: Shared::new(id, tenure, options, nonce) }
    }

    /// Which shard it is.
    pub fn id(&self) -> ShardId {
        self.shared.id
    }

    /// Adds the periods in which nobody owned the shard.
    #[must_use]
    pub fn with_gaps(mut self, gaps: Vec<Gap>) -> Shard {
        self.shared.gaps = Gaps::new(gaps);
        self
    }

    /// Sets the node, whose id is fixed for the life of its process, and whether the previous owner did not release the
    /// shard.
    #[must_use]
    pub fn on_node(mut self, node: SessionId, is_after_unclean_end: bool) -> Shard {
        self.shared.node = node;
        self.shared.is_after_unclean_end = is_after_unclean_end;
        self
    }

    /// Sets the paused orchestrations.
    #[must_use]
    pub fn with_paused(mut self, paused: Arc<PausedOrchestrations>) -> Shard {
        self.shared.paused = paused;
        self
    }

    /// Replaces the set of paused orchestrations. Instances are paused when they next get an input; those that may run
    /// again have to be passed to [`Shard::handle_owed`].
    pub fn handle_paused(&mut self, paused: Arc<PausedOrchestrations>) {
        self.shared.paused = paused;
    }

    /// The owner could not act for a while because its lease had expired, and nobody else took the shard.
    pub fn handle_gap(&mut self, gap: Gap) {
        self.shared.gaps.add(gap);
    }

    /// The requests to carry out now. To be called after every input.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.swap_outputs(&mut outputs);
        outputs
    }

    /// Like [`Shard::take_outputs`], but swaps buffers with the caller, whose buffer must be empty.
    pub(crate) fn swap_outputs(&mut self, empty: &mut Vec<Output>) {
        debug_assert!(empty.is_empty(), "what is swapped in is empty");
        mem::swap(&mut self.shared.outputs, empty);
        for output in empty {
            let Output::Reply { request, answer, key } = output else { continue };
            *key = self.shared.bindings.remove(request);
            if let Response::Moved { key: asked } = answer {
                *asked = *key;
            }
        }
    }

    /// Exchanges the list of facts that were stated since with the caller's. See [`ShardOptions::observed`].
    pub fn swap_facts(&mut self, facts: &mut Vec<Fact>) {
        self.shared.facts.swap(facts);
    }

    /// When [`Shard::handle_time`] should be called next.
    pub fn next_wake_ms(&self) -> Option<u64> {
        self.shared.wakes.next_ms()
    }

    /// Counters of events that are not visible anywhere else.
    pub fn counters(&self) -> Counters {
        self.shared.counters
    }

    /// How many instances are in memory.
    pub fn slots(&self) -> usize {
        self.instances.len()
    }

    /// The size of the histories of idle executions in memory, and of the numbers of finished rows.
    pub fn resident_bytes(&self) -> u64 {
        self.shared.residents.bytes() + self.shared.finished_bytes()
    }

    /// The numbers of the messages that are in memory.
    pub fn known_inbox(&self) -> impl Iterator<Item = InboxNumber> + '_ {
        self.instances.iter().flat_map(Instance::inbox_numbers)
    }

    /// Whether nothing is in progress: no turn, no load, no commit, and no request that waits for a message to be read.
    pub fn is_quiet(&self) -> bool {
        self.instances.is_quiet()
    }

    /// Whether the shard can be released: nothing is in progress, nothing exists in memory alone, it has no attempts of
    /// its own, and no reply is outstanding.
    pub fn is_drained(&self) -> bool {
        self.shared.standing.is_closing()
            && self.shared.attempts.is_empty()
            && self.shared.lookups.is_empty()
            && self.instances.is_quiet()
    }

    /// The node stops: work in progress completes, and no new work is started from the store.
    pub fn handle_stopping(&mut self) {
        self.shared.standing.stop();
    }

    /// The node is about to release the shard: everything known to the store is left to the next owner. Work in
    /// progress completes, and what exists in memory alone is written, so that the shard comes to rest.
    pub fn handle_closing(&mut self) {
        self.shared.standing.close();
    }

    /// The shard is to be released. While it still works, the attempts that run here become task rows leased to the
    /// node's own session, so that they complete here; when the last of these rows is durable, the shard comes to rest.
    pub fn handle_releasing(&mut self, now_ms: u64, holder: SessionId, lease_ms: u64) {
        self.shared.standing.release(Lease { holder, lease_ms });
        for key in self.shared.attempts.keys() {
            if self.load_if_dormant(key) {
                continue;
            }
            self.bring(now_ms, key, |instance, shared| instance.go_on(shared, now_ms));
        }
        self.shared.close_if_released();
    }

    /// The shard belongs to another owner: forget everything. Running activities are cancelled.
    pub fn handle_lost(&mut self) {
        for instance in self.instances.take_all() {
            instance.lose(&mut self.shared);
        }
        for key in self.shared.attempts.keys() {
            self.shared.stop_attempts(key);
        }
        let mut callers = self.shared.waiters.take_all();
        callers.extend(self.shared.lookups.take_all());
        callers.extend(self.shared.updates.take_callers());
        for request in callers {
            self.shared.reply(request, Response::Moved { key: None });
        }
        self.shared.wakes.clear();
    }

    /// A caller's request to the instance with this id. It takes effect after the message with the number `after`,
    /// which had been acknowledged to the caller.
    pub fn handle_request(
        &mut self,
        now_ms: u64,
        request_id: RequestId,
        id: &str,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        let request = match request {
            Request::Start(start) => return self.handle_start(now_ms, request_id, id, *start),
            request => request,
        };
        match self.instances.key_of(id) {
            Some(key) if !request.is_meant_for(key) => {
                // A start that is not stored does not determine who has the id.
                let is_stored = self.instances.get(key).is_some_and(|instance| instance.status().is_some());
                match is_stored {
                    true => self.shared.reply(request_id, Response::NotFound),
                    false => self.shared.look_up(request_id, Arc::from(id), request, after),
                }
            }
            Some(key) => self.bring(now_ms, key, |instance, shared| {
                shared.bindings.insert(request_id, key);
                instance.handle_request(shared, now_ms, request_id, request.unbound(), after);
            }),
            None => self.shared.look_up(request_id, Arc::from(id), request, after),
        }
    }

    fn handle_start(&mut self, now_ms: u64, request_id: RequestId, id: &str, start: StartRequest) {
        if let Some(key) = self.instances.key_of(id) {
            // Whether the id exists is known only once the instance's own start is durable.
            self.instances.update(key, |instance| match instance.status() {
                Some(status) => self.shared.reply(request_id, Response::AlreadyExists(status)),
                None => instance.add_rival_start(request_id),
            });
            return;
        }
        let StartRequest { key, started, jobs } = start;
        let start = Start { jobs, ..Start::new(started) };
        self.instances.add(Instance::loading(key, Arc::from(id)));
        self.bring(now_ms, key, |instance, shared| instance.start(shared, now_ms, request_id, start));
    }

    /// The result of looking up an id for a request.
    pub fn handle_found(&mut self, now_ms: u64, request_id: RequestId, row: Option<InstanceRow>) {
        let found = row.as_ref().map(|row| row.key);
        let Some((lookup, has_ended)) = self.shared.lookups.end(request_id, found) else { return };
        let Some(row) = row.filter(|row| lookup.request.is_meant_for(row.key)) else {
            return self.shared.reply(request_id, Response::NotFound);
        };
        let (request, after) = (lookup.request.unbound(), lookup.after);
        self.shared.bindings.insert(request_id, row.key);
        if !self.instances.contains(row.key) {
            let is_query = match &request {
                Request::Call(call) => call.is_query() || call.is_reset(),
                _ => false,
            };
            if !is_query && (row.status.is_final() || has_ended) {
                self.shared.counters.events_refused += u64::from(matches!(request, Request::Raise { .. }));
                // Without a final row, the caller has to read the row again.
                let wants_row = matches!(request, Request::AwaitEnd) && row.status.is_final();
                let response =
                    if wants_row { Response::EndedRow(Box::new(row)) } else { Response::EndedBefore };
                return self.shared.reply(request_id, response);
            }
            if matches!(request, Request::AwaitEnd) {
                return self.shared.waiters.add(row.key, request_id);
            }
            let instance = Instance::found(&mut self.shared, now_ms, &row);
            self.instances.add(instance);
        }
        self.bring(now_ms, row.key, |instance, shared| {
            instance.handle_request(shared, now_ms, request_id, request, after);
        });
    }

    /// A look-up failed.
    pub fn handle_find_failed(&mut self, request_id: RequestId, reason: String) {
        if self.shared.lookups.end(request_id, None).is_some() {
            self.shared.reply(request_id, Response::Unknown { reason });
        }
    }

    /// A caller no longer waits for a reply.
    pub fn handle_caller_gone(&mut self, request: RequestId) {
        self.shared.waiters.remove(request);
        self.shared.lookups.handle_caller_gone(request);
        self.shared.updates.handle_caller_gone(request);
        self.shared.bindings.remove(&request);
    }

    /// A request read from the store. Returns whether it was new.
    pub fn handle_request_row(&mut self, now_ms: u64, row: RequestRow) -> bool {
        let shared = &self.shared;
        let is_in_memory =
            self.instances.get(row.key).is_some_and(|instance| instance.knows_request_row(row.number));
        if is_in_memory
            || shared.standing.is_closing()
            || shared.answered.contains(row.number)
            || shared.updates.awaits_row(row.number)
        {
            return false;
        }
        let call = match InstanceCall::decode(&row.body) {
            Ok(call) => call,
            Err(error) => {
                tracing::error!(target: log::STORE, number = row.number, %error, "request cannot be read; it times out");
                return false;
            }
        };
        self.load_if_dormant(row.key);
        self.bring(now_ms, row.key, |instance, shared| {
            instance.handle_call(shared, now_ms, ReplyTo::Row(row.number), call, row.after);
        });
        true
    }

    /// A message read from the inbox. Returns whether it was new.
    pub fn handle_inbox(&mut self, now_ms: u64, row: InboxRow) -> bool {
        if self.shared.standing.is_closing() || self.shared.consumed.contains(row.number) {
            return false;
        }
        self.load_if_dormant(row.key);
        let mut is_new = false;
        self.bring(now_ms, row.key, |instance, shared| {
            is_new = instance.handle_inbox(shared, now_ms, &row);
        });
        is_new
    }

    /// A new owner has to examine this instance: it has owed work, or is blocked.
    pub fn handle_owed(&mut self, now_ms: u64, key: InstanceKey) {
        if self.shared.standing.is_closing() {
            return;
        }
        self.shared.no_auto_retry.remove(&key);
        if !self.load_if_dormant(key) {
            self.bring(now_ms, key, |instance, shared| instance.handle_owed(shared));
        }
    }

    /// The wake time of a dormant instance.
    pub fn handle_due(&mut self, key: InstanceKey, wake_at_ms: u64) {
        let known = self.instances.update(key, |instance| instance.handle_due(&mut self.shared, wake_at_ms));
        if known.is_none() {
            self.shared.wakes.set(key, Some(wake_at_ms));
        }
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now_ms: u64) {
        if self.shared.standing.is_closing() {
            return;
        }
        for key in self.shared.wakes.take_due(now_ms) {
            if !self.load_if_dormant(key) {
                self.bring(now_ms, key, |instance, shared| instance.handle_wake(shared, now_ms));
            }
        }
        let idle_since_ms = now_ms.saturating_sub(whole_ms(self.shared.options.idle));
        while let Some(key) = self.shared.residents.unused_since(idle_since_ms) {
            self.evict(now_ms, key);
        }
    }

    /// An instance was loaded, or does not exist.
    pub fn handle_loaded(&mut self, now_ms: u64, key: InstanceKey, loaded: Option<LoadedInstance>) {
        if let Some(loaded) = &loaded {
            self.note_id(key, &loaded.row);
        }
        self.bring(now_ms, key, |instance, shared| instance.handle_loaded(shared, now_ms, loaded));
    }

    fn note_id(&mut self, key: InstanceKey, row: &InstanceRow) {
        if self.instances.get(key).is_some_and(Instance::is_loading) {
            self.instances.set_id(key, &row.id);
        }
    }

    /// An instance cannot be loaded because of its own data. `rest` is what could be read: everything but its turns.
    pub fn handle_load_failed(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        reason: String,
        rest: Option<LoadedInstance>,
    ) {
        if let Some(rest) = &rest {
            self.note_id(key, &rest.row);
        }
        self.bring(now_ms, key, |instance, shared| instance.handle_load_failed(shared, now_ms, reason, rest));
    }

    /// The tasks and messages of an instance were read again. The inbox has to be read after this.
    pub fn handle_refreshed(&mut self, now_ms: u64, key: InstanceKey, loaded: Option<LoadedInstance>) {
        self.bring(now_ms, key, |instance, shared| instance.handle_refreshed(shared, now_ms, loaded));
    }

    /// A turn task was run.
    pub fn handle_turn_done(&mut self, now_ms: u64, mut done: TurnTaskDone) {
        let key = done.key;
        self.shared.outputs.extend(done.failed_execution.take().map(Output::Drop));
        if !self.instances.contains(key) {
            // User code must not be dropped here, so the execution is handed out.
            return self
                .shared
                .outputs
                .extend(done.outcome.ok().and_then(TurnTaskOutput::into_execution).map(Output::Drop));
        }
        self.bring(now_ms, key, |instance, shared| instance.handle_turn_done(shared, now_ms, done));
    }

    /// The thread of a turn was abandoned, and its execution with it.
    pub fn handle_turn_lost(&mut self, now_ms: u64, key: InstanceKey, number: u64) {
        self.bring(now_ms, key, |instance, shared| instance.handle_turn_lost(shared, now_ms, number));
    }

    /// The outcome of a commit.
    pub fn handle_committed(&mut self, now_ms: u64, key: InstanceKey, outcome: CommitOutcome) {
        if matches!(outcome, CommitOutcome::Fenced) {
            if self.instances.get(key).is_some_and(Instance::is_committing) {
                self.handle_lost();
            }
            return;
        }
        self.bring(now_ms, key, |instance, shared| instance.handle_committed(shared, now_ms, outcome));
    }

    /// An attempt of an activity ended.
    pub fn handle_activity_done(
        &mut self,
        now_ms: u64,
        task: &ActivityTask,
        result: Result<Payload, ActivityError>,
    ) {
        let Some(attempt) = self.end_attempt(task) else { return };
        self.load_if_dormant(task.key);
        self.bring(now_ms, task.key, |instance, shared| {
            instance.handle_attempt_ended(shared, now_ms, task, attempt, result);
        });
    }

    /// The code of an attempt returned after this many milliseconds, without a result: the holder of its token
    /// completes it. Only an attempt with a secret can be left open; any other fails.
    pub fn handle_activity_left_open(&mut self, now_ms: u64, task: &ActivityTask, ran_ms: u64) {
        let Some(secret) = task.secret else {
            let error = cannot_be_left_open();
            return self.handle_activity_done(now_ms, task, Err(error));
        };
        let Some(attempt) = self.end_attempt(task) else { return };
        self.load_if_dormant(task.key);
        self.bring(now_ms, task.key, |instance, shared| {
            instance.handle_attempt_left_open(shared, now_ms, task, attempt, (secret, ran_ms));
        });
    }

    /// An attempt was stopped for the node's sake, or never started: it runs again elsewhere, and does not count as
    /// interrupted.
    pub fn handle_activity_released(&mut self, now_ms: u64, task: &ActivityTask) {
        let Some(attempt) = self.end_attempt(task) else { return };
        self.load_if_dormant(task.key);
        self.bring(now_ms, task.key, |instance, shared| {
            instance.handle_attempt_released(shared, now_ms, task, attempt);
        });
    }

    /// An attempt waited too long for a free slot and was withdrawn before it started: it is queued for other nodes.
    pub fn handle_activity_spilled(&mut self, now_ms: u64, task: &ActivityTask) {
        let Some(attempt) = self.end_attempt(task) else { return };
        self.load_if_dormant(task.key);
        self.bring(now_ms, task.key, |instance, shared| {
            instance.handle_attempt_spilled(shared, now_ms, task, attempt);
        });
    }

    /// A heartbeat of a running attempt.
    pub fn handle_heartbeat(&mut self, now_ms: u64, task: &ActivityTask, details: Payload) {
        if self.shared.attempts.report(task, &details) {
            self.load_if_dormant(task.key);
            self.bring(now_ms, task.key, |instance, shared| {
                instance.handle_heartbeat(shared, now_ms, task, details);
            });
        }
    }

    /// An activity that was interrupted repeatedly may run: few enough other suspects run on this node.
    pub fn handle_slot_granted(&mut self, now_ms: u64, key: InstanceKey, event: EventId) {
        if self.shared.standing.is_closing() || !self.shared.attempts.grant_quarantine_slot(key, event) {
            return;
        }
        if !self.load_if_dormant(key) {
            self.bring(now_ms, key, |instance, shared| instance.go_on(shared, now_ms));
        }
    }

    /// Passes an input to an instance in memory, and does what it leaves to the shard.
    fn bring(&mut self, now_ms: u64, key: InstanceKey, input: impl FnOnce(&mut Instance, &mut Shared)) {
        if self.instances.update(key, |instance| input(instance, &mut self.shared)).is_none() {
            return;
        }
        let ShardOptions { max_resident, max_resident_bytes, .. } = self.shared.options;
        let max_bytes = max_resident_bytes.saturating_sub(self.shared.finished_bytes());
        while let Some(key) = self.shared.residents.surplus(max_resident, max_bytes) {
            self.evict(now_ms, key);
        }
    }

    fn evict(&mut self, now_ms: u64, key: InstanceKey) {
        self.instances.update(key, |instance| instance.evict(&mut self.shared, now_ms));
    }

    /// Requests loading of a dormant instance, and returns whether it did. Its id is known once it is loaded.
    fn load_if_dormant(&mut self, key: InstanceKey) -> bool {
        if self.instances.contains(key) {
            return false;
        }
        self.instances.add(Instance::loading(key, Arc::from("")));
        self.shared.outputs.push(Output::Load { key });
        true
    }

    /// Removes an attempt, if it is the current one.
    fn end_attempt(&mut self, task: &ActivityTask) -> Option<Attempt> {
        let ended = self.shared.attempts.end(task);
        if ended.is_none() {
            self.shared.counters.stale += 1;
        }
        self.shared.close_if_released();
        ended
    }
}
