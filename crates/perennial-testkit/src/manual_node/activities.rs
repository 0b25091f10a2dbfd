//! Attempts of activities: each runs until the test returns its result or takes it back.

use perennial_core::shard::{ActivityTask, CompletionToken, Message};
use perennial_core::store::{Store, TaskId};
use perennial_core::{ActivityError, Decision, EventId, InstanceKey, Payload};

use super::{ManualNode, QuarantineWish, wait_for_store};

impl ManualNode {
    /// Removes a running activity, the oldest of that name.
    ///
    /// # Panics
    ///
    /// If none is running.
    pub fn pick_activity(&mut self, id: &str, activity: &str) -> ActivityTask {
        let position = self.running.iter().position(|task| &*task.instance == id && task.name == activity);
        let position = position.unwrap_or_else(|| panic!("{activity:?} of {id:?} is not running"));
        self.running.remove(position)
    }

    /// A running attempt of an activity, the oldest of that name.
    ///
    /// # Panics
    ///
    /// If none is running.
    pub fn attempt(&self, id: &str, activity: &str) -> &ActivityTask {
        let found = self.running.iter().find(|task| &*task.instance == id && task.name == activity);
        found.unwrap_or_else(|| panic!("{activity:?} of {id:?} is not running"))
    }

    /// Removes all running attempts, in the order in which they started.
    pub fn take_running(&mut self) -> Vec<ActivityTask> {
        std::mem::take(&mut self.running)
    }

    /// Removes and returns the cancelled activities.
    pub fn take_cancelled(&mut self) -> Vec<(InstanceKey, EventId)> {
        std::mem::take(&mut self.cancelled)
    }

    /// Passes a heartbeat of an attempt to the lane.
    pub fn bring_heartbeat(&mut self, task: &ActivityTask, details: Payload) {
        self.feed(|lane, now| lane.handle_heartbeat(now, task, details));
    }

    /// Puts an attempt back, in front of the others.
    pub fn put_back(&mut self, task: ActivityTask) {
        self.running.insert(0, task);
    }

    /// Passes the result of an attempt to the lane.
    pub fn bring_result(&mut self, task: &ActivityTask, result: Result<Payload, ActivityError>) {
        self.feed(|lane, now| lane.handle_activity_done(now, task, result));
    }

    /// Makes the code of a running activity return without a result after a while: the holder of its token
    /// completes it. Returns the token.
    ///
    /// # Panics
    ///
    /// If the activity has no token.
    pub fn leave_open(&mut self, id: &str, activity: &str, ran_ms: u64) -> CompletionToken {
        let task = self.pick_activity(id, activity);
        let token = CompletionToken::of(&task).expect("it was scheduled to complete later");
        self.bring_left_open(&task, ran_ms);
        token
    }

    /// Reports that the code of an attempt has returned without a result.
    pub fn bring_left_open(&mut self, task: &ActivityTask, ran_ms: u64) {
        self.feed(|lane, now| lane.handle_activity_left_open(now, task, ran_ms));
    }

    /// Fails a running activity with its own error.
    pub fn fail(&mut self, id: &str, activity: &str, error: impl Into<Payload>) -> &mut ManualNode {
        let task = self.pick_activity(id, activity);
        self.bring_result(&task, Err(ActivityError::Application(error.into())));
        self
    }

    /// Sends a heartbeat of a running activity.
    pub fn heartbeat(&mut self, id: &str, activity: &str, details: impl Into<Payload>) -> &mut ManualNode {
        let task = self.pick_activity(id, activity);
        self.bring_heartbeat(&task, details.into());
        self.running.push(task);
        self
    }

    /// Withdraws a running activity as if it still waited for a free slot: it is queued for other nodes.
    pub fn spill(&mut self, id: &str, activity: &str) -> &mut ManualNode {
        let task = self.pick_activity(id, activity);
        self.bring_spilled(&task);
        self
    }

    /// Reports that an attempt was withdrawn before it started.
    pub fn bring_spilled(&mut self, task: &ActivityTask) {
        self.feed(|lane, now| lane.handle_activity_spilled(now, task));
    }

    /// Shuts the node down cleanly: running activities are cancelled and given back.
    pub fn release_activities(&mut self) -> &mut ManualNode {
        self.feed(|lane, now| lane.handle_stopping(now));
        for task in std::mem::take(&mut self.running) {
            self.feed(|lane, now| lane.handle_activity_released(now, &task));
        }
        self
    }

    /// Closes the shards: the node is about to release them.
    pub fn close_shards(&mut self) -> &mut ManualNode {
        self.feed(|lane, now| lane.handle_closing(now));
        self
    }

    /// Completes a running activity.
    pub fn finish(&mut self, id: &str, activity: &str, result: impl Into<Payload>) -> &mut ManualNode {
        let task = self.pick_activity(id, activity);
        self.bring_result(&task, Ok(result.into()));
        self
    }

    /// Runs every activity that waits for quarantine.
    pub fn grant_quarantine_slots(&mut self) -> &mut ManualNode {
        for QuarantineWish { shard, tenure, key, event } in std::mem::take(&mut self.quarantine_wishes) {
            self.feed(|lane, now| lane.handle_slot_granted(now, shard, tenure, key, event));
        }
        self
    }

    /// The activities of an id that the lane handed over to the node and that are still running.
    pub fn handed_over(&self, id: &str) -> Vec<String> {
        self.handed_over.iter().filter(|task| &*task.instance == id).map(|task| task.name.clone()).collect()
    }

    /// Completes an activity that the lane handed over to the node. Returns whether the node still held it.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn finish_handed_over(&mut self, id: &str, activity: &str, result: impl Into<Payload>) -> bool {
        let is_it = |task: &ActivityTask| &*task.instance == id && task.name == activity;
        let position = self.handed_over.iter().position(is_it);
        let position = position.unwrap_or_else(|| panic!("{activity:?} of {id:?} was not handed over"));
        let ActivityTask { key, execution, event, attempt, details, .. } = self.handed_over.remove(position);
        let task = TaskId { key, execution, event };
        let body =
            Message::Attempt { execution, event, attempt, result: Ok(result.into()), details, ran: None }
                .encode();
        wait_for_store(|reply| self.store.finish_task(ManualNode::NODE, task, attempt, body, reply))
            .expect("the store is open")
    }

    pub(super) fn run_activity(&mut self, task: ActivityTask) {
        let (key, event) = (task.key, task.event);
        let place = (key, task.execution, event);
        assert!(
            self.seen.schedules.contains(&place) || self.is_scheduled_by_another(&task),
            "{:?} of {:?} runs before its schedule is durable",
            task.name,
            task.instance
        );
        let beside = self.running.iter().find(|other| (other.key, other.execution, other.event) == place);
        assert!(beside.is_none(), "{:?} of {:?} has two concurrent runs", task.name, task.instance);
        self.seen.runs.push(format!("{} {}", task.instance, task.name));
        self.seen.activities.insert((key, event), task.name.clone());
        self.running.push(task);
    }

    /// Whether another process wrote the schedule of an activity to the store.
    fn is_scheduled_by_another(&self, task: &ActivityTask) -> bool {
        let Some(row) = self.try_row(&task.instance).filter(|row| row.key == task.key) else { return false };
        let history = self.history(&row, task.execution);
        let mut decisions = history.turns.iter().flat_map(|turn| turn.decisions());
        decisions.any(|(event, _, decision)| {
            event == task.event && matches!(decision, Decision::ActivityScheduled { .. })
        })
    }

    /// Turns a running attempt into a task of the node.
    pub(super) fn hand_over(&mut self, task: &ActivityTask) {
        let is_it = |other: &ActivityTask| {
            (other.key, other.execution, other.event) == (task.key, task.execution, task.event)
        };
        let position = self.running.iter().position(is_it);
        let position = position.unwrap_or_else(|| panic!("{:?} is handed over but not running", task.name));
        self.running.remove(position);
        self.handed_over.push(task.clone());
    }
}
