//! The node: the state machine that spans lanes. It takes times and responses of the store, and returns outputs for its driver.

use std::mem;
use std::time::Duration;

use crate::execution::Stream;
use crate::flaws::{self, Flaw};
use crate::instance::{SHARDS, ShardId};
use crate::lane::{CallId, LeaseKeeper, Moment, Standing, StoreResponse, StoreResult, TurnClock};
use crate::log;
use crate::shard::{ActivityTask, is_handed_over};
use crate::store::{
    Changes, Evidence, NodeInfo, NodeLoad, SessionId, ShardSet, StoreError, TaskId, TaskRenewal, TaskRow,
};

use super::calls::{Calls, Purpose};
use super::membership::Membership;
use super::options::NodeOptions;
use super::output::NodeOutput;
use super::quarantine_gate::{QuarantineGate, Waiting};
use super::spill_over::{SpillOver, WaitingAttempt};
use super::stopping::{Step, StopPatience, Stopping, Unfinished};
use super::taken::{Taken, task_id};

/// What the lanes of one process have in common. See the [module](super) for how to drive it.
pub struct Node {
    pub(super) options: NodeOptions,
    pub(super) lease: LeaseKeeper,
    membership: Membership,
    routes: Vec<Option<usize>>,
    pub(super) taken: Taken,
    /// Counts down, to distinguish taken tasks from those of lanes, whose tenures count up.
    pub(super) tenures: u64,
    pub(super) quarantine: QuarantineGate,
    spill_over: SpillOver,
    pub(super) wants_tasks: bool,
    poll_pause: Duration,
    poll_at: Moment,
    pub(super) calls: Calls,
    pub(super) is_stopping: bool,
    stopping: Option<Stopping>,
    is_failed: bool,
    load: Option<NodeLoad>,
    pub(super) outputs: Vec<NodeOutput>,
}

impl Node {
    /// A node that opens its session immediately. The seed must be random and generated for this process.
    pub fn new(options: NodeOptions, seed: u64, now: Moment) -> Node {
        let mut stream = Stream::of_seed(seed);
        let session = SessionId(u128::from(stream.draw()) << 64 | u128::from(stream.draw()));
        let mut node = Node {
            lease: LeaseKeeper::new(session, options.lease_ms),
            membership: Membership::new(session, &options),
            routes: vec![None; SHARDS],
            taken: Taken::new(options.task_lease_ms, options.healthy),
            tenures: u64::MAX,
            quarantine: QuarantineGate::new(options.quarantine_after, options.healthy),
            spill_over: SpillOver::new(session, options.spill_after, options.info.free),
            wants_tasks: true,
            poll_pause: options.poll_pauses.0,
            poll_at: Moment::ZERO,
            calls: Calls::default(),
            is_stopping: false,
            stopping: None,
            is_failed: false,
            load: None,
            outputs: Vec::new(),
            options,
        };
        node.issue(now, Purpose::Open);
        node
    }

    // ---- what the driver asks -------------------------------------------------------------------------------------

    /// The requests to carry out now. To be called after every input.
    pub fn take_outputs(&mut self) -> Vec<NodeOutput> {
        mem::take(&mut self.outputs)
    }

    /// When [`Node::handle_time`] should be called next.
    pub fn next_wake(&self) -> Option<Moment> {
        if self.is_failed {
            return None;
        }
        let poll = self.takes_tasks().then_some(self.poll_at);
        let stopping = self.stopping.as_ref().and_then(Stopping::next_wake);
        let all = [
            self.lease.next_wake(),
            self.calls.next_wake(),
            self.taken.next_wake(),
            self.quarantine.next_wake(),
            poll,
            self.membership.next_wake(),
            self.spill_over.next_wake(),
            stopping,
        ];
        all.into_iter().flatten().min()
    }

    /// The id of the node and of its session, fixed for the life of the process.
    pub fn id(&self) -> SessionId {
        self.lease.session()
    }

    /// Until when the node may start tasks; zero if it may not.
    pub fn deadline(&self) -> Moment {
        self.lease.deadline()
    }

    /// The store's clock as far as this node knows it.
    pub fn turn_clock(&self) -> TurnClock {
        self.membership.clock()
    }

    /// How many shards this node should hold. `None` until it knows the other nodes.
    pub fn share(&self) -> Option<usize> {
        self.membership.share()
    }

    /// The lane of this node that accepts requests for a shard, if there is one.
    pub fn route(&self, shard: ShardId) -> Option<usize> {
        self.routes[usize::from(shard.0)]
    }

    /// Whether an attempt belongs to a task that this node holds: its result goes to [`Node::handle_task_done`], not to
    /// a lane.
    pub fn holds(&self, task: &ActivityTask) -> bool {
        self.taken.contains(task)
    }

    /// Whether no task is held and nothing remains to be written: the session may end.
    fn is_at_rest(&self) -> bool {
        let is_write = |purpose: &Purpose| {
            matches!(
                purpose,
                Purpose::Take { .. } | Purpose::Finish { .. } | Purpose::GiveBack(_) | Purpose::Held
            )
        };
        let holds_none =
            self.taken.is_empty() || self.stopping.as_ref().is_some_and(Stopping::has_left_attempts);
        holds_none && !self.calls.has(is_write)
    }

    // ---- inputs ---------------------------------------------------------------------------------------------------

    /// A lane accepts requests for these shards from now on.
    pub fn handle_gained(&mut self, lane: usize, shards: &ShardSet) {
        shards.iter().for_each(|shard| self.routes[usize::from(shard.0)] = Some(lane));
    }

    /// A lane no longer accepts requests for these shards.
    pub fn handle_lost(&mut self, lane: usize, shards: &ShardSet) {
        if flaws::is(Flaw::TasksDieWithLanes) {
            self.outputs.extend(self.taken.ids().map(NodeOutput::CancelTask));
        }
        for shard in shards.iter() {
            let route = &mut self.routes[usize::from(shard.0)];
            *route = route.filter(|other| *other != lane);
        }
    }

    /// Whether the session is renewed at this time.
    pub fn renews(&self, now: Moment) -> bool {
        self.lease.next_wake().is_some_and(|at| now >= at)
    }

    /// Notes what the process is busy with, which the next renewal publishes.
    pub fn note_load(&mut self, load: NodeLoad) {
        self.load = Some(load);
    }

    /// Something may have changed in the store. `free` is how many more activities could run here now.
    pub fn handle_changes(&mut self, now: Moment, changes: &Changes, free: usize) {
        if !changes.tasks.is_empty() {
            self.wants_tasks = true;
        }
        if !changes.owners.is_empty() && !self.is_stopping {
            self.membership.handle_hint(now);
        }
        self.handle_time(now, free);
    }

    /// Time has passed. `free` is how many more activities could run here now.
    pub fn handle_time(&mut self, now: Moment, free: usize) {
        if self.is_failed {
            return;
        }
        if self.lease.take_renewal(now) {
            let load = self.load;
            let news = self.spill_over.take_news(free, load);
            let info = || NodeInfo { free: Some(free), load, ..self.options.info.clone() }.encode();
            let info = news.then(info);
            self.issue(now, Purpose::Renew(info));
        }
        if self.membership.take_look(now) {
            self.issue(now, Purpose::Directory);
        }
        for purpose in self.calls.take_due(now) {
            self.issue(now, purpose);
        }
        if let Some(renewals) = self.taken.take_renewals(now) {
            self.issue(now, Purpose::RenewTasks(renewals));
        }
        if self.takes_tasks() && now >= self.poll_at {
            self.wants_tasks = true;
            self.poll_pause = (self.poll_pause * 2).min(self.options.poll_pauses.1);
            self.poll_at = now + self.poll_pause;
        }
        if self.spill_over.take_look(now) && self.spills(now) {
            self.outputs.push(NodeOutput::ListWaiting);
        }
        self.grant(now, free);
        self.take_tasks(now, free);
        self.go_on_stopping(now);
    }

    /// An attempt waits for a free slot, and none did before.
    pub fn handle_waiting_began(&mut self, now: Moment) {
        self.spill_over.handle_began(now);
    }

    /// The attempts that wait for a free slot here, those that wait longest first.
    pub fn handle_waiting<'a>(&mut self, now: Moment, waiting: impl IntoIterator<Item = WaitingAttempt<'a>>) {
        if self.spills(now) {
            let chosen = self.spill_over.handle_waiting(now, waiting);
            self.outputs.extend(chosen.into_iter().map(NodeOutput::Withdraw));
        }
    }

    /// The process is to stop gracefully. What follows are outputs; a second call has no effect.
    pub fn handle_stop(&mut self, now: Moment, patience: StopPatience) {
        if self.is_stopping {
            return;
        }
        self.is_stopping = true;
        self.stopping = Some(Stopping::new(now, patience, self.membership.lanes()));
        self.outputs.push(NodeOutput::StopTaking);
        for task in self.quarantine.take_tasks() {
            self.handle_task_released(now, &task);
        }
        let holds_task = |purpose: &Purpose| {
            matches!(purpose, Purpose::GiveBack(_) | Purpose::Admit(_) | Purpose::Begin(_))
        };
        for purpose in self.calls.take_planned(holds_task) {
            match purpose {
                Purpose::Admit(task) | Purpose::Begin(task) => self.handle_task_released(now, &task),
                purpose => self.issue(now, purpose),
            }
        }
    }

    /// The process is stopping, and no attempt runs any more.
    pub fn handle_idle(&mut self, now: Moment) {
        if let Some(stopping) = &mut self.stopping {
            stopping.handle_idle();
        }
        self.go_on_stopping(now);
    }

    /// A lane has written everything and ended its session.
    pub fn handle_lane_ended(&mut self, now: Moment, lane: usize) {
        if let Some(stopping) = &mut self.stopping {
            stopping.handle_lane_ended(lane);
        }
        self.go_on_stopping(now);
    }

    /// The process ends without stopping gracefully. Its sessions are ended, so that others need not wait until they
    /// expire, and nothing counts against what was running.
    pub fn handle_abandoned(&mut self, now: Moment) {
        self.is_stopping = true;
        self.stopping = None;
        for task in self.taken.ids().collect::<Vec<_>>() {
            self.issue(now, Purpose::GiveBack(task));
        }
        self.outputs.push(NodeOutput::EndLanes);
        self.end(now);
    }

    /// The result of a call. `free` is how many more activities could run here now.
    pub fn handle_response(&mut self, now: Moment, id: CallId, answer: StoreResult, free: usize) {
        if self.is_failed {
            return;
        }
        let Some((purpose, sent)) = self.calls.end(id) else { return };
        match answer {
            Ok(answered) => self.done(now, purpose, sent, answered, free),
            Err(error) => self.refused(now, purpose, error),
        }
        self.take_tasks(now, free);
        self.go_on_stopping(now);
    }

    // ---- what follows ---------------------------------------------------------------------------------------------

    fn done(&mut self, now: Moment, purpose: Purpose, sent: Moment, response: StoreResponse, free: usize) {
        let is_ending = matches!(self.lease.standing(), Standing::Ending | Standing::Ended);
        match (purpose, response) {
            (Purpose::Open | Purpose::Renew(_), StoreResponse::Lease(_)) if !is_ending => {
                self.lease.handle_leased(sent, now);
                self.issue(now, Purpose::Directory);
            }
            (Purpose::End, StoreResponse::Done) => self.ended(),
            (Purpose::Directory, StoreResponse::Directory(directory)) => {
                self.spill_over.handle_directory(&directory);
                let changed = self.membership.handle_directory(now, &directory, self.is_stopping);
                self.outputs.extend(changed);
            }
            (Purpose::Take { limit }, StoreResponse::Tasks(rows)) => {
                // A full page means that there may be more.
                self.wants_tasks |= rows.len() >= limit && free > rows.len();
                if !rows.is_empty() {
                    self.poll_pause = self.options.poll_pauses.0;
                }
                rows.iter().for_each(|row| self.run(now, row));
            }
            (Purpose::Held, StoreResponse::Tasks(rows)) => {
                // A lane reports when an attempt that it hands over, which runs here or has just ended, is the node's.
                let is_new = |row: &&TaskRow| {
                    !self.taken.has(row.id, row.attempt) && !is_handed_over(row) && !self.gives_back(row.id)
                };
                let new: Vec<TaskRow> = rows.iter().filter(is_new).cloned().collect();
                new.iter().for_each(|row| self.run(now, row));
            }
            (Purpose::Begin(task), StoreResponse::Renewals(renewals)) => match renewals.first() {
                Some(TaskRenewal::Kept) => self.begin(now, task),
                // Its result is no longer wanted, or it belongs to another node.
                _ => {
                    self.quarantine.handle_ended(task_id(&task));
                    self.handle_task_released(now, &task);
                }
            },
            (Purpose::RenewTasks(asked), StoreResponse::Renewals(renewals)) => {
                let over = self.taken.handle_renewed(&asked, &renewals);
                self.outputs.extend(over.into_iter().map(NodeOutput::CancelTask));
            }
            (
                Purpose::Finish { instance, task, tenure, shard, attempt, .. },
                StoreResponse::Finished(is_written),
            ) => {
                self.taken.remove(task, tenure);
                if is_written {
                    let inbox = [shard].into_iter().collect();
                    self.outputs.push(NodeOutput::Changed(Changes { inbox, ..Changes::default() }));
                } else {
                    let TaskId { key, execution, event } = task;
                    tracing::info!(
                        target: log::ACTIVITY,
                        instance = instance.as_deref(),
                        %key,
                        execution,
                        event = event.0,
                        attempt,
                        "result refused: its task lease had expired"
                    );
                }
            }
            _ => {}
        }
    }

    fn refused(&mut self, now: Moment, purpose: Purpose, error: StoreError) {
        match (purpose, error) {
            (Purpose::End, StoreError::Unavailable(_) | StoreError::Unknown(_)) => {
                self.calls.again_later(now, Purpose::End)
            }
            // The lease expires by itself.
            (Purpose::End, _) => self.ended(),
            (_, error @ (StoreError::Failed(_) | StoreError::Closed)) => {
                self.is_failed = true;
                self.outputs.push(NodeOutput::Failed(error));
            }
            (Purpose::Open, error @ (StoreError::InUse(_) | StoreError::CannotOpen(_))) => {
                self.is_failed = true;
                self.outputs.push(NodeOutput::Failed(error));
            }
            // Somebody ended the session while this node was suspended. It is still the same node.
            (Purpose::Renew(_), StoreError::SessionGone) => {
                self.spill_over.handle_not_published();
                self.issue(now, Purpose::Open);
            }
            (Purpose::Renew(_), error) => {
                self.spill_over.handle_not_published();
                tracing::warn!(target: log::NODE, %error, "node session not renewed; retrying");
                self.lease.handle_not_renewed(now);
            }
            (Purpose::Take { .. }, StoreError::Unknown(_)) if !flaws::is(Flaw::ForgottenTakes) => {
                self.calls.again_later(now, Purpose::Held);
            }
            (Purpose::Directory, error) => {
                tracing::debug!(target: log::NODE, %error, "node directory cannot be read; retrying");
                self.membership.handle_not_read(now);
            }
            // The next take or renewal happens anyway.
            (Purpose::Take { .. } | Purpose::RenewTasks(_), error) => {
                tracing::debug!(target: log::STORE, %error, "store call failed");
            }
            // It may have arrived, and the task may have been taken here again since: its lease has to expire then.
            (Purpose::GiveBack(_), StoreError::Unknown(_)) if !self.is_stopping => {}
            // Repeated after an unknown outcome, it is refused if it had arrived.
            (purpose, StoreError::Unavailable(_) | StoreError::Unknown(_)) => {
                self.calls.again_later(now, purpose)
            }
            // The lease expires.
            (Purpose::GiveBack(_), _) => {}
            (Purpose::Finish { instance, task, tenure, attempt, .. }, error) => {
                let TaskId { key, execution, event } = task;
                tracing::error!(
                    target: log::ACTIVITY,
                    instance = instance.as_deref(),
                    %key,
                    execution,
                    event = event.0,
                    attempt,
                    %error,
                    "result cannot be written"
                );
                self.taken.remove(task, tenure);
            }
            (Purpose::Begin(task), error) => {
                tracing::error!(
                    target: log::ACTIVITY,
                    instance = &*task.instance,
                    execution = task.execution,
                    event = task.event.0,
                    attempt = task.attempt,
                    %error,
                    "attempt cannot be started; its task is given back"
                );
                self.quarantine.handle_ended(task_id(&task));
                self.handle_task_released(now, &task);
            }
            (_, error) => tracing::error!(target: log::STORE, %error, "store call failed"),
        }
    }

    // ---- stopping -------------------------------------------------------------------------------------------------

    fn go_on_stopping(&mut self, now: Moment) {
        loop {
            let rests = self.is_at_rest();
            let Some(step) = self.stopping.as_mut().and_then(|stopping| stopping.next(now, rests)) else {
                return;
            };
            match step {
                Step::StopAttempts => self.outputs.push(NodeOutput::StopAttempts),
                Step::CloseLanes => {
                    self.outputs.push(NodeOutput::CloseLanes);
                    if flaws::is(Flaw::EndsWithLanes) {
                        self.end(now);
                    }
                }
                Step::EndNode => self.end(now),
                Step::GiveUp => {
                    let lanes = self.stopping.as_ref().map_or(0, Stopping::open_lanes);
                    let tasks = self.taken.ids().count();
                    self.outputs.push(NodeOutput::StoppedShort(Unfinished { lanes, tasks }));
                }
            }
        }
    }

    fn end(&mut self, now: Moment) {
        self.lease.handle_ending();
        self.membership.stop_looking();
        self.issue(now, Purpose::End);
    }

    fn ended(&mut self) {
        self.lease.handle_ended();
        if let Some(stopping) = &mut self.stopping {
            stopping.handle_ended();
        }
        self.outputs.push(NodeOutput::Ended);
    }

    /// Whether attempts that wait here may be given to other nodes. Nothing can be written while the lease is not held.
    fn spills(&self, now: Moment) -> bool {
        !self.is_stopping && self.lease.holds(now)
    }

    pub(super) fn issue(&mut self, now: Moment, purpose: Purpose) {
        let begins = match &purpose {
            Purpose::Admit(task) => return self.wait_for_turn(now, Waiting::Task(task.clone())),
            Purpose::Begin(task) => {
                // A task that no longer belongs to this node makes room for the next.
                let Some(renewal) = self.taken.renewal(task, None, Evidence::Begins) else {
                    self.quarantine.handle_ended(task_id(task));
                    return self.taken.remove(task_id(task), task.tenure);
                };
                Some(renewal.report)
            }
            Purpose::Directory => {
                self.membership.handle_looking(now);
                None
            }
            _ => None,
        };
        let Some(call) = purpose.call(self.id(), &self.options, begins) else { return };
        let id = self.calls.begin(purpose, now);
        self.outputs.push(NodeOutput::Call(id, call));
    }
}
