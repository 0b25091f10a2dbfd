//! The node: the state machine that spans lanes. It takes times and responses of the store, and returns outputs for its driver.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::execution::Stream;
use crate::flaws::{self, Flaw};
use crate::history::{ActivityError, Payload};
use crate::instance::{SHARDS, ShardId};
use crate::lane::{CallId, LeaseKeeper, Moment, Standing, StoreResponse, StoreResult, TurnClock};
use crate::log;
use crate::shard::{
    ActivityTask, BodyError, LeftOpen, Message, RanElsewhere, Tenure, cannot_be_left_open, hold_ms,
    is_handed_over, max_together,
};
use crate::store::{
    Changes, Evidence, NodeInfo, SessionId, ShardSet, StoreError, TaskId, TaskRenewal, TaskRow,
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
    options: NodeOptions,
    lease: LeaseKeeper,
    membership: Membership,
    routes: Vec<Option<usize>>,
    taken: Taken,
    /// Counts down, to distinguish taken tasks from those of lanes, whose tenures count up.
    tenures: u64,
    quarantine: QuarantineGate,
    spill_over: SpillOver,
    wants_tasks: bool,
    poll_pause: Duration,
    poll_at: Moment,
    calls: Calls,
    is_stopping: bool,
    stopping: Option<Stopping>,
    is_failed: bool,
    outputs: Vec<NodeOutput>,
}

impl Node {
    /// A node that opens its session immediately. The seed must be random and generated for this process.
    pub fn new(options: NodeOptions, seed: u64, now: Moment) -> Node {
        let mut stream = Stream::of_seed(seed);
        let session = SessionId(u128::from(stream.draw()) << 64 | u128::from(stream.draw()));
        let mut node = Node {
            lease: LeaseKeeper::new(session, options.lease_ms),
            membership: Membership::new(session, options.info.owns_shards, options.lanes),
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
            let info = self
                .spill_over
                .take_news(free)
                .map(|free| NodeInfo { free: Some(free), ..self.options.info.clone() }.encode());
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

    /// A lane requests a quarantine slot for an activity. `free` is how many more activities could run here now.
    pub fn handle_want_quarantine_slot(
        &mut self,
        now: Moment,
        lane: usize,
        (shard, tenure): (ShardId, Tenure),
        interruptions: u32,
        task: TaskId,
        free: usize,
    ) {
        self.wait_for_turn(now, Waiting::Lane { lane, shard, tenure, interruptions, task });
        self.grant(now, free);
    }

    /// An activity with a quarantine slot has started.
    pub fn handle_quarantined_begun(&mut self, now: Moment, task: &ActivityTask) {
        self.quarantine.handle_begun(now, task_id(task));
    }

    /// An activity with a quarantine slot has ended.
    pub fn handle_quarantined_ended(&mut self, now: Moment, task: &ActivityTask, free: usize) {
        self.quarantine.handle_ended(task_id(task));
        self.grant(now, free);
    }

    /// A lane handed over an attempt that runs here: it is now a task of this node.
    pub fn handle_hand_over(&mut self, now: Moment, task: &ActivityTask) {
        self.taken.hand_over(now, task);
    }

    /// A taken task has ended. `details` are its last heartbeat details.
    pub fn handle_task_done(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        result: Result<Payload, ActivityError>,
        details: Option<Payload>,
    ) {
        if !self.taken.is_kept(task) {
            // Its lease has expired: another attempt of it may run, here or elsewhere.
            return self.taken.remove(task_id(task), task.tenure);
        }
        let (execution, event, attempt) = (task.execution, task.event, task.attempt);
        let ran = Some(Box::new(self.ran(now, task)));
        self.finish(now, task, &Message::Attempt { execution, event, attempt, result, details, ran });
    }

    /// The code of a taken task returned after this many milliseconds, without a result: the holder of its token
    /// completes it. `details` are its last heartbeat details.
    pub fn handle_task_left_open(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        ran_ms: u64,
        details: Option<Payload>,
    ) {
        let Some(secret) = task.secret else {
            let error = cannot_be_left_open();
            return self.handle_task_done(now, task, Err(error), details);
        };
        if !self.taken.is_kept(task) {
            return self.taken.remove(task_id(task), task.tenure);
        }
        let (execution, event, attempt) = (task.execution, task.event, task.attempt);
        let ran = self.ran(now, task);
        let left = LeftOpen { execution, event, attempt, secret, ran_ms, details, ran };
        self.finish(now, task, &Message::LeftOpen(Box::new(left)));
    }

    fn ran(&self, now: Moment, task: &ActivityTask) -> RanElsewhere {
        let took = self.taken.age(now, task_id(task)).as_millis();
        RanElsewhere {
            node: self.options.info.name.clone(),
            queued_ms: task.queued_ms,
            took_ms: u64::try_from(took).unwrap_or(u64::MAX),
            past: task.past.clone(),
        }
    }

    /// Writes the end of a task. The lease is kept until that is durable.
    fn finish(&mut self, now: Moment, task: &ActivityTask, message: &Message) {
        let (shard, body) = (ShardId::of(&task.instance), message.encode());
        let (attempt, tenure) = (task.attempt, task.tenure);
        let instance = Some(Arc::clone(&task.instance));
        self.issue(now, Purpose::Finish { instance, task: task_id(task), tenure, shard, attempt, body });
    }

    /// A taken task did not start, or was stopped for the node's sake: another node may take it.
    pub fn handle_task_released(&mut self, now: Moment, task: &ActivityTask) {
        let is_kept = self.taken.is_kept(task);
        self.taken.remove(task_id(task), task.tenure);
        if is_kept {
            self.issue(now, Purpose::GiveBack(task_id(task)));
        }
    }

    /// A heartbeat of a taken task.
    pub fn handle_task_heartbeat(&mut self, now: Moment, task: &ActivityTask, details: Payload) {
        // An attempt that sends heartbeats is healthy.
        if let Some(renewal) = self.taken.renewal(task, Some(details), Evidence::Healthy) {
            self.issue(now, Purpose::RenewTasks(vec![renewal]));
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

    // ---- tasks ----------------------------------------------------------------------------------------------------

    /// Whether a task is being returned to the store.
    fn gives_back(&self, id: TaskId) -> bool {
        self.calls.has(|purpose| matches!(purpose, Purpose::GiveBack(other) if *other == id))
    }

    /// Whether attempts that wait here may be given to other nodes. Nothing can be written while the lease is not held.
    fn spills(&self, now: Moment) -> bool {
        !self.is_stopping && self.lease.holds(now)
    }

    fn takes_tasks(&self) -> bool {
        !self.options.served.is_empty() && !self.is_stopping
    }

    fn take_tasks(&mut self, now: Moment, free: usize) {
        // Even if the list is only planned: the tasks of a lost reply have to be known before more are taken.
        let is_taking = |purpose: &Purpose| matches!(purpose, Purpose::Take { .. } | Purpose::Held);
        if !self.wants_tasks
            || !self.takes_tasks()
            || free == 0
            || !self.lease.holds(now)
            || self.calls.has(is_taking)
        {
            return;
        }
        self.wants_tasks = false;
        self.issue(now, Purpose::Take { limit: free.min(self.options.max_take) });
    }

    /// Runs a taken task, when it may run.
    fn run(&mut self, now: Moment, row: &TaskRow) {
        let task = match ActivityTask::from_row(row) {
            Ok(task) => task,
            Err(error) => return self.cannot_read(now, row, &error),
        };
        self.tenures -= 1;
        let task = ActivityTask { tenure: Tenure(self.tenures), ..task };
        if !self.taken.add(now, row.id, row.attempt, task.tenure) {
            return;
        }
        if self.is_stopping {
            return self.handle_task_released(now, &task);
        }
        if task.interruptions > self.options.max_interruptions {
            let details = task.details.clone();
            return self.handle_task_done(now, &task, Err(ActivityError::Poisoned), details);
        }
        let (quarantine_after, interruptions) = (self.options.quarantine_after, task.interruptions);
        if !row.is_suspect() && max_together(quarantine_after, interruptions).is_none() {
            return self.outputs.push(NodeOutput::RunTask(Box::new(task)));
        }
        // The process has to live for a while without a task that runs alone, each time for longer.
        let healthy_ms = u64::try_from(self.options.healthy.as_millis()).unwrap_or(u64::MAX);
        let admitted = now + Duration::from_millis(hold_ms(quarantine_after, interruptions, healthy_ms));
        let task = ActivityTask { begun: Some(self.id()), ..task };
        self.calls.at(admitted, Purpose::Admit(Box::new(task)));
    }

    /// Runs a task whose start is noted.
    fn begin(&mut self, now: Moment, task: Box<ActivityTask>) {
        if self.is_stopping {
            return self.handle_task_released(now, &task);
        }
        self.taken.begin(now, &task);
        self.outputs.push(NodeOutput::RunTask(task));
    }

    /// Handles a taken task that cannot be read. It never counts as an interruption: the activity is not at fault.
    fn cannot_read(&mut self, now: Moment, row: &TaskRow, error: &BodyError) {
        let (TaskId { key, execution, event }, attempt) = (row.id, row.attempt);
        if matches!(error, BodyError::NewerEngine { .. } | BodyError::Undecodable(_)) {
            // A newer node, or one with the key, may take it. The pause keeps this node from taking it again.
            tracing::warn!(
                target: log::ACTIVITY,
                %key,
                execution,
                event = event.0,
                attempt,
                activity = row.name,
                %error,
                "task cannot be read by this node; it is given back"
            );
            if self.is_stopping {
                return self.issue(now, Purpose::GiveBack(row.id));
            }
            let pause = Duration::from_millis(self.options.task_lease_ms / 2);
            return self.calls.at(now + pause, Purpose::GiveBack(row.id));
        }
        tracing::error!(
            target: log::ACTIVITY,
            %key,
            execution,
            event = event.0,
            attempt,
            activity = row.name,
            %error,
            "task cannot be read; its owner writes it again"
        );
        let body = Message::Requeue { execution, event, attempt, past: row.past.clone() }.encode();
        let tenure = Tenure::default();
        self.taken.add(now, row.id, attempt, tenure);
        let (instance, task, shard) = (None, row.id, row.shard);
        self.issue(now, Purpose::Finish { instance, task, tenure, shard, attempt, body });
    }

    /// Lets an activity wait for a quarantine slot. A task that it replaces no longer belongs to this node.
    fn wait_for_turn(&mut self, now: Moment, waiting: Waiting) {
        if let Some(Waiting::Task(earlier)) = self.quarantine.add(waiting) {
            self.handle_task_released(now, &earlier);
        }
    }

    fn grant(&mut self, now: Moment, free: usize) {
        while let Some(waiting) = self.quarantine.take(now, free) {
            match waiting {
                Waiting::Task(task) if !self.taken.is_kept(&task) => {
                    self.quarantine.handle_ended(task_id(&task));
                    self.taken.remove(task_id(&task), task.tenure);
                    continue;
                }
                Waiting::Task(task) => self.issue(now, Purpose::Begin(task)),
                Waiting::Lane { lane, shard, tenure, task: TaskId { key, event, .. }, .. } => {
                    self.outputs.push(NodeOutput::GrantQuarantineSlot { lane, shard, tenure, key, event });
                }
            }
        }
    }

    fn issue(&mut self, now: Moment, purpose: Purpose) {
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
