//! The Driver: carries out the outputs of the lanes and the node, and passes results back to them as inputs.
//!
//! It makes no decisions. An input is handled on the thread that delivers it: lock, pass the input, take the outputs,
//! unlock, carry them out. No lock is held while a store is called, code runs, a caller gets its response or a user's
//! value is dropped. Two things happen under a lane's lock: the place of an attempt is noted, so that a cancel never
//! overtakes its run, and attempts are handed over to the node. No thread takes a lane's lock while it holds the node's or
//! that of another lane.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perennial_core::codec::Codecs;
use perennial_core::lane::{Lane, LaneOptions, LaneOutput, Moment, StoreCall};
use perennial_core::log;
use perennial_core::node::{Node, NodeOptions, NodeOutput, StopPatience};
use perennial_core::shard::{Counters, Request, Response, ShardOptions, TokenKey};
use perennial_core::store::{Changes, InboxNumber, SessionRole, ShardSet, Store, Watcher};
use perennial_core::{NotOfType, Payload};
use tokio::sync::watch;

use super::builder::RuntimeOptions;
use super::callers::{Caller, Callers};
use super::clock::{ClockCheck, LocalClock};
use super::lanes::{LaneIndex, Lanes, MAX_LANES, Seen};
use super::meters::Meters;
use super::registry::Registry;
use super::standing::{Failure, Standing};
use super::timekeeper::{Timekeeper, Waker};
use super::turn_threads::{TurnThreads, TurnWork};
use super::workers::{Admitted, Workers};
use crate::change_hints::ChangeHints;
use crate::codec::encoded;
use crate::metrics::StoreGauges;

pub(crate) struct Driver {
    pub(super) options: RuntimeOptions,
    pub(crate) registry: Registry,
    pub(crate) store: Arc<dyn Store>,
    /// The store with payloads as stored.
    pub(crate) stored: Arc<dyn Store>,
    pub(super) clock: Arc<dyn LocalClock>,
    pub(super) clock_check: ClockCheck,
    pub(super) lanes: Lanes,
    pub(super) node: Mutex<Node>,
    /// What was last read from the node.
    pub(super) node_seen: Seen,
    /// Only with a recorder of metrics.
    pub(super) meters: Option<Arc<Meters>>,
    pub(crate) store_gauges: Arc<StoreGauges>,
    callers: Callers,
    pub(super) turn_threads: TurnThreads,
    pub(super) workers: Workers,
    pub(super) timekeeper: Timekeeper,
    standing: watch::Sender<Standing>,
    /// Notified when a batch was written, or another process wrote something.
    pub(crate) changed: Arc<ChangeHints>,
}

/// The number of lanes of a node: as many as were asked for, or as the store can use.
fn lane_count(role: SessionRole, options: &RuntimeOptions, store: &dyn Store) -> usize {
    let lanes = match (role, options.lanes) {
        (SessionRole::Maintenance, _) => 1,
        (_, _) if !options.owns_shards => 0,
        (_, 0) => store.useful_lanes(),
        (_, lanes) => lanes,
    };
    lanes.min(MAX_LANES)
}

impl Driver {
    pub(super) fn new(
        mut options: RuntimeOptions,
        registry: Registry,
        store: Arc<dyn Store>,
        clock: Arc<dyn LocalClock>,
        handle: tokio::runtime::Handle,
        role: SessionRole,
    ) -> Arc<Driver> {
        let meters = if role == SessionRole::Lane { Meters::new(&registry) } else { None };
        options.shard.observed = meters.as_ref().map(|meters| meters.observed());
        let now = clock.running();
        let stored = Arc::clone(&store);
        let codecs = &options.shard.codecs;
        // Without codecs there is no wrapper around the store.
        let store = if codecs.is_empty() { store } else { encoded(store, codecs) };
        let info = registry.node_info(&options);
        options.shard.node = Arc::from(info.name.as_str());
        let draw = || uuid::Uuid::new_v4().as_u64_pair().0;
        let lease_ms = u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX);
        // A node's session has expired by the time that the leases of its tasks do.
        let task_lease_ms = lease_ms.saturating_mul(3);
        let lanes = lane_count(role, &options, &*stored);
        let node = Node::new(
            NodeOptions {
                served: registry.served(&options.tags),
                lease_ms,
                task_lease_ms,
                quarantine_after: options.shard.quarantine_after,
                max_interruptions: options.shard.max_interruptions,
                spill_after: options.spill_after,
                healthy: options.shard.healthy,
                info: info.clone(),
                lanes,
                is_visitor: role == SessionRole::Maintenance,
                shares_machine: options.lanes == 0,
                ..NodeOptions::default()
            },
            draw(),
            now,
        );
        let token_key = TokenKey(uuid::Uuid::new_v4().as_u128());
        let lane = LaneOptions {
            shard: ShardOptions { token_key, ..options.shard.clone() },
            role,
            node: node.id(),
            info: info.encode(),
            lease_ms,
            task_lease_ms,
            max_batch: options.max_batch,
            keep_executions: options.keep_executions,
            keep_executions_ms: options
                .keep_executions_for
                .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            ..LaneOptions::default()
        };
        let lanes = Lanes::new((0..lanes).map(|_| Lane::new(lane.clone(), draw(), now)));
        let workers = Workers::new(handle, options.activity_slots, options.activity_cancel_grace);
        Arc::new(Driver {
            options,
            registry,
            store,
            stored,
            clock,
            clock_check: ClockCheck::default(),
            timekeeper: Timekeeper::new(lanes.indices().len()),
            lanes,
            node: Mutex::new(node),
            node_seen: Seen::default(),
            meters,
            store_gauges: Arc::default(),
            callers: Callers::default(),
            turn_threads: TurnThreads::default(),
            workers,
            standing: watch::Sender::default(),
            changed: Arc::default(),
        })
    }

    /// Whether this node runs orchestrations.
    pub(crate) fn owns_shards(&self) -> bool {
        self.options.owns_shards
    }

    /// The codecs of the payloads.
    pub(crate) fn codecs(&self) -> &Codecs {
        &self.options.shard.codecs
    }

    /// Starts the threads and carries out the first outputs of the lanes and the node.
    pub(super) fn begin(self: &Arc<Driver>, role: SessionRole) {
        TurnThreads::start(self, self.options.turn_threads.max(1));
        Timekeeper::run(Arc::downgrade(self));
        self.keep_measuring();
        let weak = Arc::downgrade(self);
        let watcher: Watcher = Arc::new(move |changes| {
            if let Some(driver) = weak.upgrade() {
                driver.handle_changes(changes);
            }
        });
        self.store.watch(watcher);
        let weak = Arc::downgrade(self);
        self.clock.when_moved(Arc::new(move || {
            if let Some(driver) = weak.upgrade() {
                driver.timekeeper.look();
            }
        }));
        match role {
            // Only its lane is active: it takes all shards at once.
            SessionRole::Maintenance => {
                self.with_each_lane(|lane, now| lane.handle_target(now, perennial_core::SHARDS));
            }
            SessionRole::Lane | SessionRole::Node => {
                self.with_node(|_, _, _| ());
                self.with_each_lane(|_, _| ());
            }
        }
    }

    // ---- lanes ----------------------------------------------------------------------------------------------------

    /// Passes an input to a lane and carries out its outputs.
    pub(super) fn with_lane<T>(
        self: &Arc<Driver>,
        index: LaneIndex,
        input: impl FnOnce(&mut Lane, Moment) -> T,
    ) -> T {
        let cell = self.lanes.get(index);
        let (result, outputs, admitted) = {
            let mut lane = lock(&cell.lane);
            let now = self.clock.running();
            let result = input(&mut lane, now);
            let outputs = lane.take_outputs(now);
            let admitted = self.workers.admit(&outputs);
            self.hand_over(now, &outputs);
            cell.seen.note_lane(&lane);
            self.timekeeper.want(Waker::Lane(index), lane.next_wake(now));
            if self.meters.is_some() {
                Meters::take_facts(&mut lane);
            }
            (result, outputs, admitted)
        };
        if let Some(meters) = &self.meters {
            meters.record_facts();
        }
        if !outputs.is_empty() {
            self.carry_out(index, outputs, admitted);
        }
        result
    }

    fn with_each_lane(self: &Arc<Driver>, input: impl Fn(&mut Lane, Moment)) {
        self.lanes.indices().for_each(|index| self.with_lane(index, &input));
    }

    /// Gives the node the attempts that are its tasks from now on. Called under the lane's lock: the thread
    /// that delivers a result has to find the task in the node.
    fn hand_over(&self, now: Moment, outputs: &[LaneOutput]) {
        for output in outputs {
            if let LaneOutput::HandOver(task) = output {
                lock(&self.node).handle_hand_over(now, task);
            }
        }
    }

    fn carry_out(self: &Arc<Driver>, index: LaneIndex, outputs: Vec<LaneOutput>, admitted: Vec<Admitted>) {
        let (mut turns, mut attempts) = (Vec::new(), Vec::with_capacity(admitted.len()));
        let mut admitted = admitted.into_iter();
        for output in outputs {
            match output {
                LaneOutput::Call(id, call) => {
                    let driver = Arc::clone(self);
                    let sent = self.meters.as_ref().and_then(|_| Meters::commit_sent(&call));
                    let written = match &call {
                        StoreCall::Commit { batch, .. } => {
                            Some(batch.iter().map(|member| member.shard).collect())
                        }
                        _ => None,
                    };
                    call.make(&*self.store, move |answer| {
                        driver.note_answered(sent);
                        driver.with_lane(index, |lane, now| lane.handle_response(now, id, answer));
                        if let Some(shards) = written {
                            driver.changed.notify(&shards);
                        }
                    });
                }
                LaneOutput::TakeTurn(task) => turns.push(TurnWork::Turn(index, task)),
                LaneOutput::Drop(execution) => turns.push(TurnWork::Drop(execution)),
                LaneOutput::RunActivity(task) => {
                    attempts.extend(admitted.next().map(|admitted| (task, admitted)));
                }
                // The node now has the attempt; calling it computes when the lease has to be renewed.
                LaneOutput::HandOver(_) => self.with_node(|_, _, _| ()),
                LaneOutput::CancelActivity { key, execution, event } => {
                    self.workers.cancel(key, execution, event);
                }
                LaneOutput::WantQuarantineSlot { shard, tenure, interruptions, task } => {
                    self.with_node(|node, now, free| {
                        let place = (shard, tenure);
                        node.handle_want_quarantine_slot(now, index, place, interruptions, task, free);
                    });
                }
                LaneOutput::Reply { request, answer, .. } => self.callers.answer(request, answer),
                LaneOutput::Gained(shards) => {
                    self.lanes.note_gained(index, &shards);
                    self.with_node(|node, _, _| node.handle_gained(index, &shards));
                    self.standing.send_modify(|standing| standing.gained.extend_from(&shards));
                }
                LaneOutput::Lost(shards) => self.with_node(|node, _, _| node.handle_lost(index, &shards)),
                LaneOutput::StoreTime { store_ms, set_back_ms } => {
                    self.clock_check.check(&*self.clock, store_ms, set_back_ms);
                }
                LaneOutput::Ended => self.with_node(|node, now, _| node.handle_lane_ended(now, index)),
                LaneOutput::Failed(error) => self.fail(Failure::Store(error)),
            }
        }
        if !turns.is_empty() {
            self.turn_threads.submit(turns);
        }
        if !attempts.is_empty() {
            Workers::run(self, index, attempts);
        }
    }

    /// What is known of a lane, or of the node.
    fn seen(&self, lane: Option<LaneIndex>) -> &Seen {
        lane.map_or(&self.node_seen, |index| &self.lanes.get(index).seen)
    }

    /// Whether a lane, or the node, may act now. Late outputs are held back.
    pub(super) fn may_act(&self, lane: Option<LaneIndex>) -> bool {
        self.seen(lane).may_act(self.clock.running())
    }

    /// Resolves when a lane, or the node, may act.
    pub(super) async fn until_acting(&self, lane: Option<LaneIndex>) {
        loop {
            let renewed = self.seen(lane).renewed();
            if self.may_act(lane) {
                return;
            }
            self.timekeeper.look();
            renewed.await;
        }
    }

    // ---- the node -------------------------------------------------------------------------------------------------

    /// Passes an input to the node, with the number of free activity slots, and carries out its outputs.
    pub(super) fn with_node<T>(self: &Arc<Driver>, input: impl FnOnce(&mut Node, Moment, usize) -> T) -> T {
        let (result, outputs) = {
            let mut node = lock(&self.node);
            let now = self.clock.running();
            let result = input(&mut node, now, self.workers.free());
            let outputs = node.take_outputs();
            self.node_seen.note_node(&node);
            self.note_share(&node);
            self.timekeeper.want(Waker::Node, node.next_wake());
            (result, outputs)
        };
        for output in outputs {
            self.carry_out_for_node(output);
        }
        result
    }

    /// Notes that other nodes own shards, too, so that nobody waits for shards of this one.
    fn note_share(&self, node: &Node) {
        let shares = node.share().is_some_and(|shards| shards < perennial_core::SHARDS);
        self.standing.send_if_modified(|standing| shares && !std::mem::replace(&mut standing.shares, shares));
    }

    fn carry_out_for_node(self: &Arc<Driver>, output: NodeOutput) {
        match output {
            NodeOutput::Call(id, call) => {
                let driver = Arc::clone(self);
                call.make(&*self.store, move |answer| {
                    driver.with_node(|node, now, free| node.handle_response(now, id, answer, free));
                });
            }
            NodeOutput::Target { lane, shards } => {
                self.with_lane(lane, |lane, now| lane.handle_target(now, shards));
            }
            NodeOutput::PeerCode(peer_code) => self.registry.set_peer_code(peer_code),
            NodeOutput::RunTask(task) => Workers::run_task(self, *task),
            NodeOutput::CancelTask(task) => self.workers.cancel(task.key, task.execution, task.event),
            NodeOutput::ListWaiting => {
                self.with_node(|node, now, _| {
                    self.workers.with_waiting(|waiting| node.handle_waiting(now, waiting));
                });
            }
            NodeOutput::Withdraw(number) => self.workers.withdraw(number),
            NodeOutput::GrantQuarantineSlot { lane, shard, tenure, key, event } => {
                self.with_lane(lane, |lane, now| lane.handle_slot_granted(now, shard, tenure, key, event));
            }
            NodeOutput::Changed(changes) => {
                self.with_each_lane(|lane, now| lane.handle_changes(now, &changes))
            }
            NodeOutput::StopTaking => {
                self.with_each_lane(|lane, now| lane.handle_stopping(now));
                self.workers.stop_taking();
            }
            NodeOutput::StopAttempts => self.workers.abandon_all(),
            NodeOutput::CloseLanes => self.with_each_lane(|lane, now| lane.handle_closing(now)),
            NodeOutput::EndLanes => self.with_each_lane(|lane, now| lane.handle_end(now)),
            NodeOutput::Ended => self.standing.send_modify(|standing| standing.has_ended = true),
            NodeOutput::StoppedShort(unfinished) => {
                self.standing.send_modify(|standing| standing.unfinished = Some(unfinished));
            }
            NodeOutput::Failed(error) => self.fail(Failure::Store(error)),
        }
    }

    fn handle_changes(self: &Arc<Driver>, changes: &Changes) {
        self.with_each_lane(|lane, now| lane.handle_changes(now, changes));
        self.with_node(|node, now, free| node.handle_changes(now, changes, free));
        self.changed.notify_of(changes);
    }

    /// Passes the time to a lane or the node.
    pub(super) fn bring_time(self: &Arc<Driver>, waker: Waker) {
        match waker {
            Waker::Lane(index) => self.with_lane(index, |lane, now| lane.handle_time(now)),
            Waker::Node => {
                self.note_load();
                self.with_node(|node, now, free| node.handle_time(now, free));
            }
        }
    }

    // ---- callers --------------------------------------------------------------------------------------------------

    /// Sends a request to an instance. The response is sent when its effect is durable.
    pub(crate) async fn request(
        self: &Arc<Driver>,
        id: &str,
        request: Request,
        after: Option<InboxNumber>,
    ) -> Result<Response, String> {
        let Some(index) = self.lanes.route(id) else { return Ok(Response::Moved { key: None }) };
        let caller = {
            // The lock orders this call with a stop, which fails all callers that were added before it.
            let standing = self.standing.borrow();
            if let Some(failure) = &standing.failure {
                return Err(failure.to_string());
            }
            if standing.is_stopping {
                return Err("it is shutting down".to_owned());
            }
            self.callers.add()
        };
        let (request_id, answer) = (caller.id, caller.answer);
        let waiting = Waiting { driver: self, index, instance: id, caller: Some(request_id) };
        self.with_lane(index, |lane, now| lane.handle_request(now, request_id, id, request, after));
        let answer =
            answer.await.unwrap_or_else(|_| Response::Unknown { reason: "the runtime is gone".to_owned() });
        waiting.end();
        Ok(answer)
    }

    /// The turn time.
    pub(crate) fn now_ms(&self) -> u64 {
        let now = self.clock.running();
        // Each is a lower bound of the store's clock.
        let lanes = self.lanes.iter().map(|cell| cell.seen.now_ms(now));
        lanes.chain([self.node_seen.now_ms(now)]).max().unwrap_or(0)
    }

    /// More queued commits than this make starts wait.
    pub(crate) fn max_queued_commits(&self) -> usize {
        self.options.max_queued_commits
    }

    /// Whether the code that a start would use here can decode its input.
    pub(crate) fn check_input(
        &self,
        name: &str,
        version: Option<&str>,
        input: &Payload,
    ) -> Result<(), NotOfType> {
        self.registry.check_input(name, version, input)
    }

    /// The largest payload, in bytes.
    pub(crate) fn payload_limit(&self) -> usize {
        usize::try_from(self.options.shard.execution.limits.payload_bytes).unwrap_or(usize::MAX)
    }

    /// How many commits wait to be written.
    pub(crate) fn queued_commits(&self) -> usize {
        self.lanes.iter().map(|cell| cell.seen.queued_commits()).sum()
    }

    /// The counters of the lanes' shards.
    pub(crate) fn counters(&self) -> Counters {
        self.lanes
            .iter()
            .map(|cell| lock(&cell.lane).counters())
            .fold(Counters::default(), |sum, counters| sum.plus(&counters))
    }

    // ---- stopping -------------------------------------------------------------------------------------------------

    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Why the runtime serves no requests: it stops, has stopped, or does not hold its lease.
    pub(crate) fn check_serving(&self) -> Result<(), String> {
        let standing = self.standing.borrow();
        if let Some(failure) = &standing.failure {
            return Err(failure.to_string());
        }
        if standing.is_stopping {
            return Err("it is shutting down".to_owned());
        }
        let now = self.clock.running();
        let may_act = self.lanes.iter().all(|cell| cell.seen.may_act(now)) && self.node_seen.may_act(now);
        if may_act { Ok(()) } else { Err("it does not hold its lease".to_owned()) }
    }

    /// Whether the runtime stops or has stopped.
    pub(crate) fn is_over(&self) -> bool {
        let standing = self.standing.borrow();
        standing.is_stopping || standing.failure.is_some()
    }

    /// Whether nothing runs any more.
    pub(super) fn has_stopped(&self) -> bool {
        self.standing.borrow().is_over()
    }

    /// Why the runtime stopped without a request, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.standing.borrow().failure.as_ref().map(Failure::to_string)
    }

    /// Stops the runtime after an error. The outcome of pending requests is unknown to their callers.
    pub(super) fn fail(self: &Arc<Driver>, failure: Failure) {
        let (reason, is_dropped) = (failure.to_string(), failure == Failure::Dropped);
        let is_first = self.standing.send_if_modified(|standing| {
            let is_first = standing.failure.is_none();
            if is_first {
                standing.failure = Some(failure);
            }
            is_first
        });
        if !is_first {
            return;
        }
        // The program decided this, and nothing is broken.
        if is_dropped {
            tracing::warn!(target: log::NODE, "runtime dropped without a shutdown");
        } else {
            tracing::error!(target: log::NODE, %reason, "runtime failed");
        }
        self.forbid_acting();
        self.refresh_metrics();
        self.timekeeper.stop();
        self.turn_threads.stop();
        self.workers.abandon_all();
        self.callers.dismiss(&reason);
        self.changed.notify(&ShardSet::ALL);
    }

    fn forbid_acting(&self) {
        let lanes = self.lanes.iter().map(|cell| &cell.seen);
        lanes.chain([&self.node_seen]).for_each(|seen| seen.note_deadline(Moment::ZERO));
    }

    /// Stops gracefully. [`Standing::is_over`] is true when nothing is left to do.
    pub(super) async fn stop(self: &Arc<Driver>, patience: StopPatience) {
        self.standing.send_modify(|standing| standing.is_stopping = true);
        self.with_node(|node, now, _| node.handle_stop(now, patience));
        let mut standing = self.standing();
        let tell_when_idle = async {
            self.workers.finished().await;
            self.with_node(|node, now, _| node.handle_idle(now));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = tell_when_idle => {}
            // The sender belongs to the driver, which is alive.
            _ = standing.wait_for(Standing::is_over) => {}
        }
    }

    /// Ends the sessions at once. The runtime has stopped.
    pub(super) fn abandon(self: &Arc<Driver>) {
        self.with_node(|node, now, _| node.handle_abandoned(now));
    }

    /// Stops the threads. Remaining callers get no response.
    pub(super) fn stop_threads(&self) {
        self.forbid_acting();
        self.refresh_metrics();
        self.timekeeper.stop();
        self.turn_threads.stop();
        self.callers.dismiss("the runtime was shut down");
    }
}

/// A waiting caller. If it is dropped, the lane forgets the request.
struct Waiting<'a> {
    driver: &'a Arc<Driver>,
    index: LaneIndex,
    instance: &'a str,
    caller: Option<Caller>,
}

impl Waiting<'_> {
    fn end(mut self) {
        self.caller = None;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            self.driver.callers.forget(caller);
            lock(&self.driver.lanes.get(self.index).lane).handle_caller_gone(self.instance, caller);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
