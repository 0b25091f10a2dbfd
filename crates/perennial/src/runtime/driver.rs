//! The Driver: carries out the outputs of the lane and the node, and passes results back to them as inputs.
//!
//! It makes no decisions. An input is handled on the thread that delivers it: lock, pass the input, take the outputs,
//! unlock, carry them out. No lock is held while a store is called, code runs, a caller gets its response or a user's
//! value is dropped. Two things happen under the lane's lock: the place of an attempt is noted, so that a cancel never
//! overtakes its run, and attempts are handed over to the node. No thread takes the lane's lock while it holds the node's.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perennial_core::ErrorCode;
use perennial_core::codec::Codecs;
use perennial_core::lane::{Lane, LaneOutput, Moment};
use perennial_core::log;
use perennial_core::node::{Node, NodeOutput, StopPatience, Unfinished};
use perennial_core::shard::{ActivityTask, Counters, Request, Response};
use perennial_core::store::{Changes, InboxNumber, SessionRole, Store, StoreError, Watcher};
use perennial_core::{ActivityError, NotOfType, Payload};
use tokio::sync::{Notify, watch};

use super::builder::RuntimeOptions;
use super::callers::{Caller, Callers};
use super::clock::{ClockCheck, LocalClock};
use super::machines;
use super::registry::Registry;
use super::timekeeper::{Timekeeper, Waker};
use super::turn_threads::{TurnThreads, TurnWork};
use super::workers::{Admitted, Place, Workers};
use crate::codec::encoded;

pub(crate) struct Driver {
    pub(super) options: RuntimeOptions,
    pub(crate) registry: Registry,
    pub(crate) store: Arc<dyn Store>,
    /// The store with payloads as stored.
    pub(crate) stored: Arc<dyn Store>,
    pub(super) clock: Arc<dyn LocalClock>,
    clock_check: ClockCheck,
    lane: Mutex<Lane>,
    node: Mutex<Node>,
    seen: Seen,
    callers: Callers,
    pub(super) turn_threads: TurnThreads,
    pub(super) workers: Workers,
    pub(super) timekeeper: Timekeeper,
    standing: watch::Sender<Standing>,
    /// Notified when a batch was written, or another process wrote something.
    pub(crate) changed: Arc<Notify>,
    /// Notified when the lane may act again.
    acting: Notify,
}

/// Values last read from the lane, for readers that must not wait for its lock.
#[derive(Default)]
struct Seen {
    /// Until when the lane may act, in microseconds of the steady clock; 0 if it may not.
    deadline_us: AtomicU64,
    /// Turn time less the steady clock, in microseconds.
    offset_us: AtomicI64,
    queued_commits: AtomicUsize,
}

impl Seen {
    /// Returns whether the lane may act for longer than was known.
    fn note(&self, lane: &Lane) -> bool {
        self.offset_us.store(lane.turn_clock().offset_us(), Ordering::Relaxed);
        self.queued_commits.store(lane.queued_commits(), Ordering::Relaxed);
        self.note_deadline(lane.deadline())
    }

    fn note_deadline(&self, deadline: Moment) -> bool {
        let deadline_us = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX);
        self.deadline_us.swap(deadline_us, Ordering::AcqRel) < deadline_us
    }
}

/// The phase of the driver between start and stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether the lane has its session and, unless the node owns none, its first shards.
    pub(super) is_at_work: bool,
    is_stopping: bool,
    has_ended: bool,
    /// The work that was left because the store did not respond in time.
    pub(super) unfinished: Option<Unfinished>,
    pub(super) failure: Option<Failure>,
}

impl Standing {
    /// Whether stopping has finished.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended || self.unfinished.is_some() || self.failure.is_some()
    }
}

/// Why the runtime stopped without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Store(StoreError),
    Other(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(f),
            Failure::Other(reason) => f.write_str(reason),
        }
    }
}

impl Driver {
    pub(super) fn new(
        options: RuntimeOptions,
        registry: Registry,
        store: Arc<dyn Store>,
        clock: Arc<dyn LocalClock>,
        handle: tokio::runtime::Handle,
        role: SessionRole,
    ) -> Arc<Driver> {
        let now = clock.running();
        let stored = Arc::clone(&store);
        let codecs = &options.shard.codecs;
        // Without codecs there is no wrapper around the store.
        let store = if codecs.is_empty() { store } else { encoded(store, codecs) };
        let (node, lane) = machines::of(&options, &registry, role, now);
        let workers = Workers::new(handle, options.activity_slots, options.activity_cancel_grace);
        Arc::new(Driver {
            options,
            registry,
            store,
            stored,
            clock,
            clock_check: ClockCheck::default(),
            lane: Mutex::new(lane),
            node: Mutex::new(node),
            seen: Seen::default(),
            callers: Callers::default(),
            turn_threads: TurnThreads::default(),
            workers,
            timekeeper: Timekeeper::default(),
            standing: watch::Sender::default(),
            changed: Arc::default(),
            acting: Notify::new(),
        })
    }

    /// The codecs of the payloads.
    pub(crate) fn codecs(&self) -> &Codecs {
        &self.options.shard.codecs
    }

    /// Starts the threads and carries out the first outputs of the lane and the node.
    pub(super) fn begin(self: &Arc<Driver>, role: SessionRole) {
        TurnThreads::start(self, self.options.turn_threads.max(1));
        Timekeeper::run(Arc::downgrade(self));
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
            // Only the lane is active: it takes all shards at once.
            SessionRole::Maintenance => {
                self.with_lane(|lane, now| lane.handle_target(now, perennial_core::SHARDS));
            }
            SessionRole::Lane | SessionRole::Node => {
                self.with_node(|_, _, _| ());
                self.with_lane(|_, _| ());
            }
        }
    }

    // ---- the lane -------------------------------------------------------------------------------------------------

    /// Passes an input to the lane and carries out its outputs.
    pub(super) fn with_lane<T>(self: &Arc<Driver>, input: impl FnOnce(&mut Lane, Moment) -> T) -> T {
        let (result, outputs, admitted) = {
            let mut lane = lock(&self.lane);
            let now = self.clock.running();
            let result = input(&mut lane, now);
            let outputs = lane.take_outputs(now);
            let admitted = self.workers.admit(&outputs);
            self.hand_over(now, &outputs);
            if self.seen.note(&lane) {
                self.acting.notify_waiters();
            }
            self.timekeeper.want(Waker::Lane, lane.next_wake(now));
            (result, outputs, admitted)
        };
        if !outputs.is_empty() {
            self.carry_out(outputs, admitted);
        }
        result
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

    fn carry_out(self: &Arc<Driver>, outputs: Vec<LaneOutput>, admitted: Vec<Admitted>) {
        let (mut turns, mut attempts) = (Vec::new(), Vec::with_capacity(admitted.len()));
        let mut admitted = admitted.into_iter();
        for output in outputs {
            match output {
                LaneOutput::Call(id, call) => {
                    let driver = Arc::clone(self);
                    let is_commit = call.name() == "commit";
                    call.make(&*self.store, move |answer| {
                        driver.with_lane(|lane, now| lane.handle_response(now, id, answer));
                        if is_commit {
                            driver.changed.notify_waiters();
                        }
                    });
                }
                LaneOutput::TakeTurn(task) => turns.push(TurnWork::Turn(task)),
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
                        node.handle_want_quarantine_slot(now, 0, (shard, tenure), interruptions, task, free);
                    });
                }
                LaneOutput::Reply { request, answer, .. } => self.callers.answer(request, answer),
                LaneOutput::Gained(shards) => {
                    self.with_node(|node, _, _| node.handle_gained(0, &shards));
                    self.standing.send_modify(|standing| standing.is_at_work = true);
                }
                LaneOutput::Lost(shards) => self.with_node(|node, _, _| node.handle_lost(0, &shards)),
                LaneOutput::StoreTime { store_ms, set_back_ms } => {
                    if !self.options.owns_shards {
                        // A lane without shards works once it has its session.
                        self.standing.send_modify(|standing| standing.is_at_work = true);
                    }
                    self.clock_check.check(&*self.clock, store_ms, set_back_ms);
                }
                LaneOutput::Ended => self.with_node(|node, now, _| node.handle_lane_ended(now, 0)),
                LaneOutput::Failed(error) => self.fail(Failure::Store(error)),
            }
        }
        if !turns.is_empty() {
            self.turn_threads.submit(turns);
        }
        if !attempts.is_empty() {
            Workers::run(self, attempts);
        }
    }

    /// Whether the lane may act now. Late outputs are held back.
    pub(super) fn may_act(&self) -> bool {
        self.clock.running() < Duration::from_micros(self.seen.deadline_us.load(Ordering::Acquire))
    }

    /// Resolves when the lane may act.
    pub(super) async fn until_acting(&self) {
        loop {
            let renewed = self.acting.notified();
            if self.may_act() {
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
            self.timekeeper.want(Waker::Node, node.next_wake());
            (result, outputs)
        };
        for output in outputs {
            self.carry_out_for_node(output);
        }
        result
    }

    fn carry_out_for_node(self: &Arc<Driver>, output: NodeOutput) {
        match output {
            NodeOutput::Call(id, call) => {
                let driver = Arc::clone(self);
                call.make(&*self.store, move |answer| {
                    driver.with_node(|node, now, free| node.handle_response(now, id, answer, free));
                });
            }
            NodeOutput::Target { shards, .. } => {
                self.with_lane(|lane, now| lane.handle_target(now, shards));
            }
            NodeOutput::PeerCode(peer_code) => self.registry.set_peer_code(peer_code),
            NodeOutput::RunTask(task) => Workers::run_task(self, *task),
            NodeOutput::CancelTask(task) => self.workers.cancel(task.key, task.execution, task.event),
            NodeOutput::GrantQuarantineSlot { shard, tenure, key, event, .. } => {
                self.with_lane(|lane, now| lane.handle_slot_granted(now, shard, tenure, key, event));
            }
            NodeOutput::Changed(changes) => self.with_lane(|lane, now| lane.handle_changes(now, &changes)),
            NodeOutput::StopTaking => {
                self.with_lane(|lane, now| lane.handle_stopping(now));
                self.workers.stop_taking();
            }
            NodeOutput::StopAttempts => self.workers.abandon_all(),
            NodeOutput::CloseLanes => self.with_lane(|lane, now| lane.handle_closing(now)),
            NodeOutput::EndLanes => self.with_lane(|lane, now| lane.handle_end(now)),
            NodeOutput::Ended => self.standing.send_modify(|standing| standing.has_ended = true),
            NodeOutput::StoppedShort(unfinished) => {
                self.standing.send_modify(|standing| standing.unfinished = Some(unfinished));
            }
            NodeOutput::Failed(error) => self.fail(Failure::Store(error)),
        }
    }

    fn handle_changes(self: &Arc<Driver>, changes: &Changes) {
        self.with_lane(|lane, now| lane.handle_changes(now, changes));
        self.with_node(|node, now, free| node.handle_changes(now, changes, free));
        self.changed.notify_waiters();
    }

    /// Passes the time to the lane or the node.
    pub(super) fn bring_time(self: &Arc<Driver>, waker: Waker) {
        match waker {
            Waker::Lane => self.with_lane(|lane, now| lane.handle_time(now)),
            Waker::Node => self.with_node(|node, now, free| node.handle_time(now, free)),
        }
    }

    // ---- activities -----------------------------------------------------------------------------------------------

    /// Reports the end of an attempt to its lane, or to the node if it is a task of this node.
    pub(super) fn activity_done(
        self: &Arc<Driver>,
        place: Place,
        task: &ActivityTask,
        result: Result<Payload, ActivityError>,
        details: Option<Payload>,
    ) {
        let result = self.within_limits(result);
        let for_node = self.with_lane(|lane, now| match self.workers.is_task(place) {
            true => Some(result),
            false => {
                lane.handle_activity_done(now, task, result);
                None
            }
        });
        if let Some(result) = for_node {
            self.with_node(|node, now, _| node.handle_task_done(now, task, result, details));
        }
    }

    /// Reports that the code of an attempt returned with [`Later::Pending`](crate::Later::Pending).
    pub(super) fn activity_left_open(
        self: &Arc<Driver>,
        place: Place,
        task: &ActivityTask,
        ran: Duration,
        details: Option<Payload>,
    ) {
        let ran_ms = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        let is_task = self.with_lane(|lane, now| {
            let is_task = self.workers.is_task(place);
            if !is_task {
                lane.handle_activity_left_open(now, task, ran_ms);
            }
            is_task
        });
        if is_task {
            self.with_node(|node, now, _| node.handle_task_left_open(now, task, ran_ms, details));
        }
    }

    /// Reports that an attempt did not begin, or was stopped because the node stops.
    pub(super) fn activity_released(self: &Arc<Driver>, place: Place, task: &ActivityTask) {
        if self.failure().is_some() {
            return;
        }
        let is_task = self.with_lane(|lane, now| {
            let is_task = self.workers.is_task(place);
            if !is_task {
                lane.handle_activity_released(now, task);
            }
            is_task
        });
        if is_task {
            self.with_node(|node, now, _| node.handle_task_released(now, task));
        }
    }

    /// Reports the heartbeat of a running attempt.
    pub(super) fn heartbeat(self: &Arc<Driver>, place: Place, task: &ActivityTask, details: Payload) {
        let limit = self.payload_limit();
        if details.size() > limit {
            tracing::warn!(
                target: log::ACTIVITY,
                instance = &*task.instance,
                execution = task.execution,
                event = task.event.0,
                attempt = task.attempt,
                activity = task.name,
                bytes = details.size(),
                limit,
                code = ErrorCode::ResultTooLarge.as_str(),
                "heartbeat details too large: they are not kept"
            );
            return;
        }
        let for_node = self.with_lane(|lane, now| match self.workers.is_task(place) {
            true => Some(details),
            false => {
                lane.handle_heartbeat(now, task, details);
                None
            }
        });
        if let Some(details) = for_node {
            self.with_node(|node, now, _| node.handle_task_heartbeat(now, task, details));
        }
    }

    /// A result above the size limit fails the activity.
    fn within_limits(&self, result: Result<Payload, ActivityError>) -> Result<Payload, ActivityError> {
        let limit = self.payload_limit();
        match &result {
            Ok(payload) | Err(ActivityError::Application(payload)) if payload.size() > limit => {
                let text = ErrorCode::ResultTooLarge
                    .message(format_args!("the result has {} bytes, {limit} are allowed", payload.size()));
                Err(ActivityError::Application(Payload::from(text)))
            }
            _ => result,
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
        let waiting = Waiting { driver: self, instance: id, caller: Some(request_id) };
        self.with_lane(|lane, now| lane.handle_request(now, request_id, id, request, after));
        let answer =
            answer.await.unwrap_or_else(|_| Response::Unknown { reason: "the runtime is gone".to_owned() });
        waiting.end();
        Ok(answer)
    }

    /// The turn time.
    pub(crate) fn now_ms(&self) -> u64 {
        let running_us = i64::try_from(self.clock.running().as_micros()).unwrap_or(i64::MAX);
        let now_us = running_us.saturating_add(self.seen.offset_us.load(Ordering::Relaxed));
        u64::try_from(now_us / 1_000).unwrap_or(0)
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
        self.seen.queued_commits.load(Ordering::Relaxed)
    }

    /// The counters of the lane's shards.
    pub(crate) fn counters(&self) -> Counters {
        lock(&self.lane).counters()
    }

    // ---- stopping -------------------------------------------------------------------------------------------------

    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Why the runtime stopped without a request, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.standing.borrow().failure.as_ref().map(Failure::to_string)
    }

    /// Stops the runtime after an error. The outcome of pending requests is unknown to their callers.
    pub(super) fn fail(self: &Arc<Driver>, failure: Failure) {
        let reason = failure.to_string();
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
        tracing::error!(target: log::NODE, %reason, "runtime failed");
        self.seen.note_deadline(Moment::ZERO);
        self.timekeeper.stop();
        self.turn_threads.stop();
        self.workers.abandon_all();
        self.callers.dismiss(&reason);
        self.changed.notify_waiters();
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
        self.seen.note_deadline(Moment::ZERO);
        self.timekeeper.stop();
        self.turn_threads.stop();
        self.callers.dismiss("the runtime was shut down");
    }
}

/// A waiting caller. If it is dropped, the lane forgets the request.
struct Waiting<'a> {
    driver: &'a Arc<Driver>,
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
            lock(&self.driver.lane).handle_caller_gone(self.instance, caller);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
