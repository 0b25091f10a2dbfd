//! The Node: shards, and the glue between them and everything that runs.
//!
//! An input is handled on the thread that brings it: lock the shard, let it decide, unlock, do what it wants done. No
//! lock is held while a store is called, code is run or a caller is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perennial_core::shard::{ActivityTask, Answer, Counters, Output, Request, RequestId, Shard};
use perennial_core::store::{LoadedInstance, Reply, Session, SessionId, Store, StoreError};
use perennial_core::{ActivityFailure, InstanceKey, Payload, ShardId};
use tokio::sync::{Notify, oneshot};

use super::builder::RuntimeOptions;
use super::clock::{Asked, LocalClock, TurnClock};
use super::committing::Lane;
use super::lease_keeper::LeaseKeeper;
use super::lone_gate::LoneGate;
use super::reading::Pass;
use super::registry::Registry;
use super::suspects::Suspects;
use super::timekeeper::Timekeeper;
use super::turn_threads::{TurnThreads, TurnWork};
use super::workers::Workers;

pub(crate) struct Node {
    pub(super) options: RuntimeOptions,
    pub(crate) registry: Registry,
    pub(crate) store: Arc<dyn Store>,
    pub(super) shards: Vec<Mutex<Shard>>,
    pub(super) lane: Mutex<Lane>,
    requests: Mutex<Requests>,
    next_request: AtomicU64,
    pub(super) turn_clock: TurnClock,
    pub(super) lease_keeper: LeaseKeeper,
    pub(super) turn_threads: TurnThreads,
    pub(super) workers: Workers,
    pub(super) timekeeper: Timekeeper,
    health: Mutex<Health>,
    pub(super) changed: Notify,
    pub(super) inbox_pass: Mutex<Pass>,
    pub(super) ask_pass: Mutex<Pass>,
    pub(super) suspects: Suspects,
    pub(super) lone: Mutex<LoneGate>,
    /// Who this node is to the tasks that it takes.
    pub(super) holder: SessionId,
    /// It does what it is asked, and leaves everything else to the next owner.
    pub(super) is_caretaker: bool,
}

/// A session, and when it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenedSession {
    pub(super) session: Session,
    pub(super) asked: Asked,
}

#[derive(Default)]
struct Requests {
    waiting: HashMap<RequestId, oneshot::Sender<Answer>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Health {
    #[default]
    Running,
    Stopping,
    Failed(String),
}

impl Node {
    pub(super) fn new(
        options: RuntimeOptions,
        registry: Registry,
        store: Arc<dyn Store>,
        clock: Arc<dyn LocalClock>,
        OpenedSession { session, asked }: OpenedSession,
        handle: tokio::runtime::Handle,
    ) -> Node {
        let sighting = asked.answered(&*clock, session.lease.now_ms);
        let workers = Workers::new(handle, options.activity_slots, options.activity_cancel_grace);
        let shards = ShardId::all()
            .map(|id| Mutex::new(Shard::new(id, options.shard.clone(), session.id.0)))
            .collect();
        Node {
            lane: Mutex::new(Lane::new(options.max_batch, session.id)),
            options,
            registry,
            store,
            shards,
            requests: Mutex::default(),
            next_request: AtomicU64::new(0),
            turn_clock: TurnClock::new(Arc::clone(&clock), &sighting),
            lease_keeper: LeaseKeeper::new(clock),
            turn_threads: TurnThreads::default(),
            workers,
            timekeeper: Timekeeper::default(),
            health: Mutex::default(),
            changed: Notify::new(),
            inbox_pass: Mutex::default(),
            ask_pass: Mutex::default(),
            suspects: Suspects::default(),
            lone: Mutex::default(),
            holder: session.id,
            is_caretaker: false,
        }
    }

    /// The time of turns. It never goes back.
    pub(crate) fn now_ms(&self) -> u64 {
        self.turn_clock.now_ms()
    }

    // ---- shards ---------------------------------------------------------------------------------------------------

    /// Gives a shard an input and does what it wants done about it.
    pub(crate) fn with_shard(self: &Arc<Node>, id: ShardId, input: impl FnOnce(&mut Shard, u64)) {
        let mut outputs = Vec::new();
        self.feed(id, input, &mut outputs);
        self.carry_out(outputs);
    }

    pub(super) fn feed(
        &self,
        id: ShardId,
        input: impl FnOnce(&mut Shard, u64),
        outputs: &mut Vec<(ShardId, Output)>,
    ) {
        let now_ms = self.now_ms();
        let mut shard = lock(&self.shards[usize::from(id.0)]);
        let before_ms = shard.next_wake_ms();
        input(&mut shard, now_ms);
        outputs.extend(shard.take_outputs().into_iter().map(|output| (id, output)));
        let after_ms = shard.next_wake_ms();
        if before_ms != after_ms {
            // Under the shard's lock, or of two threads the one with the older wish could come last.
            self.timekeeper.want(id, after_ms);
        }
    }

    pub(super) fn carry_out(self: &Arc<Node>, outputs: Vec<(ShardId, Output)>) {
        let mut turns = Vec::new();
        let mut commits = Vec::new();
        for (shard, output) in outputs {
            match output {
                Output::TakeTurn(task) => turns.push(TurnWork::Turn(shard, task)),
                Output::Drop(execution) => turns.push(TurnWork::Drop(execution)),
                Output::Commit(commit) => commits.push(*commit),
                Output::RunActivity(task) => self.workers.run(self, *task),
                Output::WantLone { key, event } => self.want_lone(shard, key, event),
                Output::CancelActivity { key, execution, event } => {
                    self.workers.cancel(key, execution, event);
                }
                Output::Reply(request, answer) => self.answer(request, answer),
                Output::Find { request, id } => self.find(shard, request, &id),
                Output::Load { key } => self.load(shard, key),
                Output::Refresh { key } => self.refresh(shard, key),
            }
        }
        if !turns.is_empty() {
            self.submit_turns(turns);
        }
        if !commits.is_empty() {
            self.gather(commits);
        }
    }

    fn find(self: &Arc<Node>, shard: ShardId, request: RequestId, id: &str) {
        let node = Arc::clone(self);
        self.store.find(
            id,
            Box::new(move |row| {
                node.with_shard(shard, |shard, now_ms| match row {
                    Ok(row) => shard.handle_found(now_ms, request, row),
                    Err(error) => shard.handle_find_failed(request, error.to_string()),
                });
            }),
        );
    }

    fn load(self: &Arc<Node>, shard: ShardId, key: InstanceKey) {
        let node = Arc::clone(self);
        self.store.load(
            key,
            0,
            Box::new(move |loaded: Result<Option<LoadedInstance>, StoreError>| match loaded {
                Err(error) if error.is_retryable() => node.later(move |node| node.load(shard, key)),
                Err(error @ (StoreError::Failed(_) | StoreError::Closed)) => node.fail(error.to_string()),
                Err(error) => node.with_shard(shard, |shard, now_ms| {
                    shard.handle_load_failed(now_ms, key, error.to_string());
                }),
                Ok(loaded) => {
                    node.with_shard(shard, |shard, now_ms| shard.handle_loaded(now_ms, key, loaded))
                }
            }),
        );
    }

    /// Reads the tasks of an instance again.
    fn refresh(self: &Arc<Node>, shard: ShardId, key: InstanceKey) {
        let node = Arc::clone(self);
        self.store.load(
            key,
            u64::MAX,
            Box::new(move |loaded: Result<Option<LoadedInstance>, StoreError>| match loaded {
                Ok(loaded) => {
                    node.with_shard(shard, |shard, now_ms| shard.handle_refreshed(now_ms, key, loaded));
                    node.read_inbox();
                }
                Err(error @ StoreError::CorruptRow(_)) => {
                    // The trouble is this instance's own; it shows when it is loaded the next time.
                    tracing::error!(%key, %error, "an instance cannot be looked at again");
                    node.with_shard(shard, |shard, now_ms| shard.handle_refreshed(now_ms, key, None));
                }
                Err(error) => node.reading_failed(&error, move |node| node.refresh(shard, key)),
            }),
        );
    }

    pub(super) fn activity_done(
        self: &Arc<Node>,
        task: &ActivityTask,
        result: Result<Payload, ActivityFailure>,
    ) {
        let result = self.within_limits(result);
        self.with_shard(ShardId::of(&task.instance), |shard, now_ms| {
            shard.handle_activity_done(now_ms, task, result);
        });
    }

    /// An attempt did not begin, or was stopped for the node's sake.
    pub(super) fn activity_released(self: &Arc<Node>, task: &ActivityTask) {
        if self.has_failed() {
            return;
        }
        self.with_shard(ShardId::of(&task.instance), |shard, now_ms| {
            shard.handle_activity_released(now_ms, task);
        });
    }

    /// A running attempt reports how far it is.
    pub(super) fn heartbeat(self: &Arc<Node>, task: &ActivityTask, details: Payload) {
        let limit = self.payload_limit();
        if details.size() > limit {
            tracing::warn!(
                instance = &*task.instance,
                activity = task.name,
                bytes = details.size(),
                limit,
                "PER-0401 too large: the details of a heartbeat are not kept"
            );
            return;
        }
        self.with_shard(ShardId::of(&task.instance), |shard, now_ms| {
            shard.handle_heartbeat(now_ms, task, details);
        });
    }

    /// An activity's result over the limit is an error of the activity.
    pub(super) fn within_limits(
        &self,
        result: Result<Payload, ActivityFailure>,
    ) -> Result<Payload, ActivityFailure> {
        let limit = self.options.shard.execution.limits.payload_bytes;
        match &result {
            Ok(payload) | Err(ActivityFailure::Application(payload)) if payload.size() as u64 > limit => {
                let text = format!(
                    "PER-0401 too large: the result has {} bytes, {limit} are allowed",
                    payload.size()
                );
                Err(ActivityFailure::Application(Payload::from(text)))
            }
            _ => result,
        }
    }

    pub(super) fn bring_time(self: &Arc<Node>, shard: ShardId) {
        self.with_shard(shard, |shard, now_ms| shard.handle_time(now_ms));
    }

    /// The sum of what the shards have counted.
    pub(crate) fn counters(&self) -> Counters {
        self.shards.iter().fold(Counters::default(), |sum, shard| {
            let counters = lock(shard).counters();
            Counters {
                stale: sum.stale + counters.stale,
                failed_turns: sum.failed_turns + counters.failed_turns,
                conflicts: sum.conflicts + counters.conflicts,
                evictions: sum.evictions + counters.evictions,
                hydrations: sum.hydrations + counters.hydrations,
                undelivered: sum.undelivered + counters.undelivered,
            }
        })
    }

    // ---- callers --------------------------------------------------------------------------------------------------

    /// Asks something of an instance. The answer leaves when what it says is durable.
    pub(crate) fn ask(
        self: &Arc<Node>,
        id: &str,
        request: Request,
    ) -> Result<oneshot::Receiver<Answer>, String> {
        let request_id = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        {
            // Whoever stops the node dismisses afterwards all that came before.
            let health = lock(&self.health);
            match &*health {
                Health::Running => {}
                Health::Stopping => return Err("it is shutting down".to_owned()),
                Health::Failed(reason) => return Err(reason.clone()),
            }
            lock(&self.requests).waiting.insert(request_id, sender);
        }
        self.with_shard(ShardId::of(id), |shard, now_ms| {
            shard.handle_request(now_ms, request_id, id, request)
        });
        Ok(receiver)
    }

    /// More queued commits than this make starts wait.
    pub(crate) fn max_queued_commits(&self) -> usize {
        self.options.max_queued_commits
    }

    /// The largest payload, in bytes.
    pub(crate) fn payload_limit(&self) -> usize {
        usize::try_from(self.options.shard.execution.limits.payload_bytes).unwrap_or(usize::MAX)
    }

    /// How many commits wait to be written.
    pub(crate) fn queued_commits(&self) -> usize {
        lock(&self.lane).committer.queued()
    }

    /// Resolves after the next batch was written, counted from this call, or when the node fails.
    pub(crate) fn batch_written(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn answer(&self, request: RequestId, answer: Answer) {
        let Some(answer) = self.lease_keeper.hold_back(request, answer) else {
            return;
        };
        let sender = lock(&self.requests).waiting.remove(&request);
        if let Some(sender) = sender {
            // A caller that went away needs no answer.
            let _ = sender.send(answer);
        }
    }

    // ---- stopping -------------------------------------------------------------------------------------------------

    pub(super) fn has_failed(&self) -> bool {
        matches!(&*lock(&self.health), Health::Failed(_))
    }

    /// Why the node stopped by itself, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        match &*lock(&self.health) {
            Health::Failed(reason) => Some(reason.clone()),
            Health::Running | Health::Stopping => None,
        }
    }

    /// The node cannot go on: what is on disk can no longer be known. Callers are told just that.
    pub(crate) fn fail(self: &Arc<Node>, reason: String) {
        self.fail_and(reason, |_| {});
    }

    /// Stops, and does something as the last thing before the turn threads end.
    pub(super) fn fail_and(self: &Arc<Node>, reason: String, last: impl FnOnce(&Arc<Node>)) {
        {
            let mut health = lock(&self.health);
            if matches!(*health, Health::Failed(_)) {
                return;
            }
            *health = Health::Failed(reason.clone());
        }
        tracing::error!(%reason, "the node stops");
        self.workers.abandon_all();
        self.timekeeper.stop();
        self.lease_keeper.stop();
        self.dismiss_callers(&reason);
        last(self);
        self.turn_threads.stop();
        self.changed.notify_waiters();
    }

    /// Tells everybody who still waits that there will be no answer.
    fn dismiss_callers(&self, reason: &str) {
        let waiting = std::mem::take(&mut lock(&self.requests).waiting);
        for sender in waiting.into_values() {
            let _ = sender.send(Answer::Unknown { reason: reason.to_owned() });
        }
    }

    /// Takes no more requests.
    pub(super) fn stop_taking(&self) {
        {
            let mut health = lock(&self.health);
            if *health == Health::Running {
                *health = Health::Stopping;
            }
        }
        self.shards.iter().for_each(|shard| lock(shard).handle_stopping());
        self.workers.stop_taking();
    }

    /// Lets the shards come to rest.
    pub(super) fn close_shards(&self) {
        self.shards.iter().for_each(|shard| lock(shard).handle_closing());
    }

    /// Whether no turn, load or commit is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.has_failed()
            || (self.shards.iter().all(|shard| lock(shard).is_quiet())
                && lock(&self.lane).committer.is_idle()
                && self.turn_threads.queued() == 0)
    }

    /// Ends the session and closes the store.
    pub(super) async fn release(self: &Arc<Node>) -> Result<(), StoreError> {
        self.timekeeper.stop();
        self.lease_keeper.stop();
        self.turn_threads.stop();
        self.dismiss_callers("the runtime was shut down");
        let (sender, receiver) = oneshot::channel();
        let store = Arc::clone(&self.store);
        let end = move |ended: Result<(), StoreError>| {
            store.close(Box::new(move |closed| {
                let _ = sender.send(ended.and(closed));
            }));
        };
        self.store.end_session(self.session(), Box::new(end));
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Opens a session that owns every shard.
pub(super) fn open_session(
    store: &Arc<dyn Store>,
    options: &RuntimeOptions,
    clock: &dyn LocalClock,
    reply: Reply<OpenedSession>,
) {
    let (claimant, asked) = (Arc::clone(store), Asked::now(clock));
    store.open_session(
        &options.node,
        options.lease_ms,
        Box::new(move |session| match session {
            Err(error) => reply(Err(error)),
            Ok(session) => claimant.claim_shards(
                session.id,
                perennial_core::SHARDS,
                Box::new(move |claimed| match claimed {
                    Err(error) => reply(Err(error)),
                    Ok(shards) if shards.len() < perennial_core::SHARDS => {
                        reply(Err(StoreError::InUse("another node owns some of its shards".to_owned())));
                    }
                    Ok(_) => reply(Ok(OpenedSession { session, asked })),
                }),
            ),
        }),
    );
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
