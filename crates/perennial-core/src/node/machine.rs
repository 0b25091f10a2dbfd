//! The node itself: what it does about each input.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::execution::Stream;
use crate::flaws::{self, Flaw};
use crate::history::{ActivityFailure, EventId, Payload};
use crate::instance::{InstanceKey, SHARDS, ShardId};
use crate::lane::{Answered, CallId, LeaseKeeper, Moment, Standing, StoreAnswer, StoreCall};
use crate::shard::{ActivityTask, BodyError, Message, RanElsewhere, Tenure, is_handed_over};
use crate::store::{
    Changes, Directory, NewSession, SessionId, SessionRole, ShardSet, StoreError, TaskId, TaskRow,
};

use super::lone_gate::{LoneGate, Waiting};
use super::options::NodeOptions;
use super::output::NodeOutput;
use super::share;
use super::taken::{Renewal, Taken, task_id, with_details};

/// The pause before a call that failed for a passing reason is made again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What spans the lanes of one process. See the [module](super) for how to drive it.
pub struct Node {
    options: NodeOptions,
    lease: LeaseKeeper,
    routes: Vec<Option<usize>>,
    targets: Vec<Option<usize>>,
    taken: Taken,
    /// Counts down, so that tasks which were taken are told from those of lanes, whose tenures count up.
    tenures: u64,
    lone: LoneGate,
    wants_tasks: bool,
    poll_pause: Duration,
    poll_at: Moment,
    next_call: u64,
    calls: BTreeMap<CallId, (Purpose, Moment)>,
    later: BTreeMap<(Moment, u64), Purpose>,
    is_stopping: bool,
    is_failed: bool,
    outputs: Vec<NodeOutput>,
}

/// Why a call is made. It holds all that is needed to make it again.
#[derive(Clone, Debug)]
enum Purpose {
    Open,
    Renew,
    End,
    Directory,
    Take {
        limit: usize,
    },
    /// An answer to a take was lost: what is held and not known was taken then.
    Held,
    RenewTasks {
        renewals: Vec<Renewal>,
        details: Option<Payload>,
    },
    Finish {
        task: TaskId,
        tenure: Tenure,
        shard: ShardId,
        attempt: u32,
        body: Arc<[u8]>,
    },
    GiveBack(TaskId),
}

impl Node {
    /// A node that opens its session at once. The seed is random, and drawn for this process alone.
    pub fn new(options: NodeOptions, seed: u64, now: Moment) -> Node {
        let mut stream = Stream::of_seed(seed);
        let session = SessionId(u128::from(stream.draw()) << 64 | u128::from(stream.draw()));
        let mut node = Node {
            lease: LeaseKeeper::new(session, options.lease_ms),
            routes: vec![None; SHARDS],
            targets: vec![None; options.lanes],
            taken: Taken::new(options.task_lease_ms),
            tenures: u64::MAX,
            lone: LoneGate::default(),
            wants_tasks: true,
            poll_pause: options.poll_pauses.0,
            poll_at: Moment::ZERO,
            next_call: 0,
            calls: BTreeMap::new(),
            later: BTreeMap::new(),
            is_stopping: false,
            is_failed: false,
            outputs: Vec::new(),
            options,
        };
        node.issue(now, Purpose::Open);
        node
    }

    // ---- what the driver asks -------------------------------------------------------------------------------------

    /// What is to be done now. To be taken after every input.
    pub fn take_outputs(&mut self) -> Vec<NodeOutput> {
        mem::take(&mut self.outputs)
    }

    /// When [`Node::handle_time`] is wanted next.
    pub fn next_wake(&self) -> Option<Moment> {
        if self.is_failed {
            return None;
        }
        let later = self.later.first_key_value().map(|((at, _), _)| *at);
        let poll = self.takes_tasks().then_some(self.poll_at);
        let all = [self.lease.next_wake(), later, self.taken.next_wake(), self.lone.next_wake(), poll];
        all.into_iter().flatten().min()
    }

    /// The id of the node and of its session, for as long as the process lives.
    pub fn id(&self) -> SessionId {
        self.lease.session()
    }

    /// The lane that takes requests for a shard, if one of this node's does.
    pub fn route(&self, shard: ShardId) -> Option<usize> {
        self.routes[usize::from(shard.0)]
    }

    /// Whether an attempt is a task's that this node holds: its result goes to
    /// [`Node::handle_task_done`], not to a lane.
    pub fn holds(&self, task: &ActivityTask) -> bool {
        self.taken.contains(task)
    }

    /// Whether no task is held, and nothing of one is still to be written: the session may end.
    pub fn is_at_rest(&self) -> bool {
        let is_write = |purpose: &Purpose| {
            matches!(purpose, Purpose::Finish { .. } | Purpose::GiveBack(_) | Purpose::Held)
        };
        let under_way = self.calls.values().map(|(purpose, _)| purpose).chain(self.later.values());
        self.is_failed || (self.taken.is_empty() && !under_way.into_iter().any(is_write))
    }

    // ---- inputs ---------------------------------------------------------------------------------------------------

    /// A lane takes requests for these shards from now on.
    pub fn handle_gained(&mut self, lane: usize, shards: &ShardSet) {
        shards.iter().for_each(|shard| self.routes[usize::from(shard.0)] = Some(lane));
    }

    /// A lane takes no requests for these shards any more.
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
        self.handle_time(now, free);
    }

    /// Time has passed. `free` is how many more activities could run here now.
    pub fn handle_time(&mut self, now: Moment, free: usize) {
        if self.is_failed {
            return;
        }
        if self.lease.take_renewal(now) {
            self.issue(now, Purpose::Renew);
        }
        let rest = self.later.split_off(&(now + Duration::from_nanos(1), 0));
        for purpose in mem::replace(&mut self.later, rest).into_values() {
            self.issue(now, purpose);
        }
        if let Some(renewals) = self.taken.take_renewals(now) {
            self.issue(now, Purpose::RenewTasks { renewals, details: None });
        }
        if self.takes_tasks() && now >= self.poll_at {
            self.wants_tasks = true;
            self.poll_pause = (self.poll_pause * 2).min(self.options.poll_pauses.1);
            self.poll_at = now + self.poll_pause;
        }
        self.grant(now);
        self.take_tasks(now, free);
    }

    /// A lane wants an activity to run alone.
    pub fn handle_want_lone(
        &mut self,
        now: Moment,
        lane: usize,
        shard: ShardId,
        tenure: Tenure,
        (key, event): (InstanceKey, EventId),
    ) {
        self.lone.add(Waiting::Lane { lane, shard, tenure, key, event });
        self.grant(now);
    }

    /// An activity that runs alone has begun.
    pub fn handle_lone_begun(&mut self, task: &ActivityTask) {
        self.lone.handle_begun(task.key, task.event);
    }

    /// An activity that ran alone has ended.
    pub fn handle_lone_ended(&mut self, now: Moment, task: &ActivityTask) {
        self.lone.handle_ended(task.key, task.event);
        self.grant(now);
    }

    /// A lane handed over an attempt that runs here: it is a task of this node's now.
    pub fn handle_hand_over(&mut self, now: Moment, task: &ActivityTask) {
        self.taken.hand_over(now, task);
    }

    /// A task that was taken has ended. `details` is what it reported last.
    pub fn handle_task_done(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        result: Result<Payload, ActivityFailure>,
        details: Option<Payload>,
    ) {
        if !self.taken.is_kept(task) {
            // Its lease has run out: another attempt of it runs, here or elsewhere.
            return self.taken.remove(task_id(task), task.tenure);
        }
        let (execution, event, attempt) = (task.execution, task.event, task.attempt);
        let took = self.taken.age(now, task_id(task)).as_millis();
        let ran = Some(Box::new(RanElsewhere {
            node: self.options.info.name.clone(),
            queued_ms: task.queued_ms,
            took_ms: u64::try_from(took).unwrap_or(u64::MAX),
            past: task.past.clone(),
        }));
        let body = Message::Attempt { execution, event, attempt, result, details, ran }.encode();
        let shard = ShardId::of(&task.instance);
        // Until it is on disk the lease is kept.
        self.issue(now, Purpose::Finish { task: task_id(task), tenure: task.tenure, shard, attempt, body });
    }

    /// A task that was taken did not begin, or was stopped for the node's sake: another node may take it.
    pub fn handle_task_released(&mut self, now: Moment, task: &ActivityTask) {
        let is_kept = self.taken.is_kept(task);
        self.taken.remove(task_id(task), task.tenure);
        if is_kept {
            self.issue(now, Purpose::GiveBack(task_id(task)));
        }
    }

    /// A task that was taken reports how far it is.
    pub fn handle_task_heartbeat(&mut self, now: Moment, task: &ActivityTask, details: Payload) {
        if let Some(renewal) = self.taken.renewal(task) {
            self.issue(now, Purpose::RenewTasks { renewals: vec![renewal], details: Some(details) });
        }
    }

    /// The node stops: no more tasks are taken.
    pub fn handle_stopping(&mut self) {
        self.is_stopping = true;
    }

    /// The session is to end.
    pub fn handle_end(&mut self, now: Moment) {
        self.is_stopping = true;
        self.lease.handle_ending();
        self.issue(now, Purpose::End);
    }

    /// The store answered a call. `free` is how many more activities could run here now.
    pub fn handle_answer(&mut self, now: Moment, id: CallId, answer: StoreAnswer, free: usize) {
        if self.is_failed {
            return;
        }
        let Some((purpose, sent)) = self.calls.remove(&id) else { return };
        match answer {
            Ok(answered) => self.answered(now, purpose, sent, answered, free),
            Err(error) => self.refused(now, purpose, error),
        }
        self.take_tasks(now, free);
    }

    // ---- what follows ---------------------------------------------------------------------------------------------

    fn answered(&mut self, now: Moment, purpose: Purpose, sent: Moment, answered: Answered, free: usize) {
        let is_ending = matches!(self.lease.standing(), Standing::Ending | Standing::Ended);
        match (purpose, answered) {
            (Purpose::Open | Purpose::Renew, Answered::Lease(_)) if !is_ending => {
                self.lease.handle_leased(sent, now);
                self.issue(now, Purpose::Directory);
            }
            (Purpose::End, Answered::Done) => {
                self.lease.handle_ended();
                self.outputs.push(NodeOutput::Ended);
            }
            (Purpose::Directory, Answered::Directory(directory)) => self.divide(&directory),
            (Purpose::Take { limit }, Answered::Tasks(rows)) => {
                // A full page means that there may be more.
                self.wants_tasks |= rows.len() >= limit && free > rows.len();
                if !rows.is_empty() {
                    self.poll_pause = self.options.poll_pauses.0;
                }
                rows.iter().for_each(|row| self.run(now, row));
            }
            (Purpose::Held, Answered::Tasks(rows)) => {
                // What a lane hands over runs here already, or has just ended; the lane tells when it is the node's.
                let is_new = |row: &&TaskRow| !self.taken.has(row.id, row.attempt) && !is_handed_over(row);
                let new: Vec<TaskRow> = rows.iter().filter(is_new).cloned().collect();
                new.iter().for_each(|row| self.run(now, row));
            }
            (Purpose::RenewTasks { renewals: asked, .. }, Answered::Renewals(renewals)) => {
                let over = self.taken.handle_renewed(&asked, &renewals);
                self.outputs.extend(over.into_iter().map(NodeOutput::CancelTask));
            }
            (Purpose::Finish { task, tenure, shard, .. }, Answered::Finished(is_written)) => {
                self.taken.remove(task, tenure);
                if is_written {
                    let inbox = [shard].into_iter().collect();
                    self.outputs.push(NodeOutput::Changed(Changes { inbox, ..Changes::default() }));
                } else {
                    tracing::info!(event = %task.event, "the result of a task came after its lease");
                }
            }
            _ => {}
        }
    }

    fn refused(&mut self, now: Moment, purpose: Purpose, error: StoreError) {
        match (purpose, error) {
            (Purpose::End, _) => {
                self.lease.handle_ended();
                self.outputs.push(NodeOutput::Ended);
            }
            (_, error @ (StoreError::Failed(_) | StoreError::Closed)) => {
                self.is_failed = true;
                self.outputs.push(NodeOutput::Failed(error));
            }
            (Purpose::Open, error @ (StoreError::InUse(_) | StoreError::CannotOpen(_))) => {
                self.is_failed = true;
                self.outputs.push(NodeOutput::Failed(error));
            }
            // Somebody ended it while this node was away. It is the same node still.
            (Purpose::Renew, StoreError::SessionGone) => self.issue(now, Purpose::Open),
            (Purpose::Renew, error) => {
                tracing::warn!(%error, "the node's session could not be renewed; trying again");
                self.lease.handle_not_renewed(now);
            }
            (Purpose::Take { .. }, StoreError::Unknown(_)) if !flaws::is(Flaw::ForgottenTakes) => {
                self.again(now, Purpose::Held);
            }
            // The next look, renewal or division comes by itself.
            (Purpose::Take { .. } | Purpose::Directory | Purpose::RenewTasks { .. }, error) => {
                tracing::debug!(%error, "a call to the store failed");
            }
            // If it is lost, the lease runs out.
            (Purpose::GiveBack(_), _) => {}
            // Sent again after an unknown outcome it is refused if it had arrived.
            (purpose, StoreError::Unavailable(_) | StoreError::Unknown(_)) => self.again(now, purpose),
            (Purpose::Finish { task, tenure, .. }, error) => {
                tracing::error!(%error, event = %task.event, "the result of a task cannot be written");
                self.taken.remove(task, tenure);
            }
            (_, error) => tracing::error!(%error, "a call to the store failed"),
        }
    }

    /// Divides the shards among the nodes that are there, and this node's part among its lanes.
    fn divide(&mut self, directory: &Directory) {
        let share = match self.options.info.owns_shards {
            true => share::of_node(self.id(), directory),
            false => 0,
        };
        let lanes = self.targets.len();
        for (lane, target) in self.targets.iter_mut().enumerate() {
            let shards = share::part(share, lanes, lane);
            if target.replace(shards) != Some(shards) {
                self.outputs.push(NodeOutput::Target { lane, shards });
            }
        }
    }

    fn takes_tasks(&self) -> bool {
        !self.options.served.names.is_empty() && !self.is_stopping
    }

    fn take_tasks(&mut self, now: Moment, free: usize) {
        // Also while a list is only planned: what a lost answer told of is known first.
        let is_taking = |purpose: &Purpose| matches!(purpose, Purpose::Take { .. } | Purpose::Held);
        let mut calls = self.calls.values().map(|(purpose, _)| purpose).chain(self.later.values());
        if !self.wants_tasks
            || !self.takes_tasks()
            || free == 0
            || !self.lease.holds(now)
            || calls.any(is_taking)
        {
            return;
        }
        self.wants_tasks = false;
        self.issue(now, Purpose::Take { limit: free.min(self.options.max_take) });
    }

    /// Runs a task that was taken, when it may.
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
            return self.handle_task_done(now, &task, Err(ActivityFailure::Poisoned), details);
        }
        if task.interruptions >= self.options.lone_from {
            self.lone.add(Waiting::Task(Box::new(task)));
            return self.grant(now);
        }
        self.outputs.push(NodeOutput::RunTask(Box::new(task)));
    }

    /// A task that was taken cannot be read. Neither way counts as an interruption, or the activity would be blamed.
    fn cannot_read(&mut self, now: Moment, row: &TaskRow, error: &BodyError) {
        let (activity, event) = (&row.name, row.id.event);
        if matches!(error, BodyError::NewerEngine { .. }) {
            // A newer node may take it. The pause keeps this one from taking it again at once.
            tracing::warn!(activity, %event, %error, "a task cannot be read here; it is given back");
            self.next_call += 1;
            let pause = Duration::from_millis(self.options.task_lease_ms / 2);
            self.later.insert((now + pause, self.next_call), Purpose::GiveBack(row.id));
            return;
        }
        tracing::error!(activity, %event, %error, "a task cannot be read; its owner writes it again");
        let (execution, attempt) = (row.id.execution, row.attempt);
        let body = Message::Requeue { execution, event, attempt, past: row.past.clone() }.encode();
        let tenure = Tenure::default();
        self.taken.add(now, row.id, attempt, tenure);
        self.issue(now, Purpose::Finish { task: row.id, tenure, shard: row.shard, attempt, body });
    }

    fn grant(&mut self, now: Moment) {
        while let Some(waiting) = self.lone.take(now) {
            self.outputs.push(match waiting {
                Waiting::Task(task) if !self.taken.is_kept(&task) => {
                    self.lone.handle_ended(task.key, task.event);
                    self.taken.remove(task_id(&task), task.tenure);
                    continue;
                }
                Waiting::Task(task) => NodeOutput::RunTask(task),
                Waiting::Lane { lane, shard, tenure, key, event } => {
                    NodeOutput::GrantLone { lane, shard, tenure, key, event }
                }
            });
        }
    }

    fn again(&mut self, now: Moment, purpose: Purpose) {
        self.next_call += 1;
        self.later.insert((now + RETRY_PAUSE, self.next_call), purpose);
    }

    fn issue(&mut self, now: Moment, purpose: Purpose) {
        let (holder, lease_ms) = (self.id(), self.options.task_lease_ms);
        let call = match &purpose {
            Purpose::Open => StoreCall::OpenSession(NewSession {
                id: holder,
                role: SessionRole::Node,
                node: holder,
                lease_ms: self.options.lease_ms,
                info: self.options.info.encode(),
            }),
            Purpose::Renew => StoreCall::RenewSession(holder),
            Purpose::End => StoreCall::EndSession(holder),
            Purpose::Directory => StoreCall::Directory,
            Purpose::Take { limit } => {
                StoreCall::TakeTasks { holder, served: self.options.served.clone(), limit: *limit, lease_ms }
            }
            Purpose::Held => StoreCall::HeldTasks { holder },
            Purpose::RenewTasks { renewals, details } => {
                StoreCall::RenewTasks { holder, tasks: with_details(renewals, details.as_ref()), lease_ms }
            }
            Purpose::Finish { task, attempt, body, .. } => {
                StoreCall::FinishTask { holder, task: *task, attempt: *attempt, body: Arc::clone(body) }
            }
            Purpose::GiveBack(task) => StoreCall::GiveBackTasks { holder, tasks: vec![*task] },
        };
        self.next_call += 1;
        let id = CallId(self.next_call);
        self.calls.insert(id, (purpose, now));
        self.outputs.push(NodeOutput::Call(id, call));
    }
}
