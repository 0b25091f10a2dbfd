//! Attempts of activities: each runs until the test brings its result, or takes it back.

use perennial_core::shard::ActivityTask;
use perennial_core::{ActivityFailure, EventId, InstanceKey, Payload, ShardId};

use super::Desk;

impl Desk {
    /// Takes a running activity off the desk, the oldest of that name.
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

    /// Takes every running attempt off the desk, in the order in which they began.
    pub fn take_running(&mut self) -> Vec<ActivityTask> {
        std::mem::take(&mut self.running)
    }

    /// Takes what says that nobody waits for an activity any more.
    pub fn take_told_off(&mut self) -> Vec<(InstanceKey, EventId)> {
        std::mem::take(&mut self.told_off)
    }

    /// Brings what an attempt reported to its shard.
    pub fn bring_heartbeat(&mut self, task: &ActivityTask, details: Payload) {
        self.with_shard(ShardId::of(&task.instance), |shard, now_ms| {
            shard.handle_heartbeat(now_ms, task, details);
        });
    }

    /// Lays an attempt back on the desk, in front of the others.
    pub fn put_back(&mut self, task: ActivityTask) {
        self.running.insert(0, task);
    }

    /// Brings the result of an attempt to its shard.
    pub fn bring_result(&mut self, task: &ActivityTask, result: Result<Payload, ActivityFailure>) {
        self.with_shard(ShardId::of(&task.instance), |shard, now_ms| {
            shard.handle_activity_done(now_ms, task, result);
        });
    }

    /// A running activity fails with an error of its own.
    pub fn fail(&mut self, id: &str, activity: &str, error: impl Into<Payload>) -> &mut Desk {
        let task = self.pick_activity(id, activity);
        self.bring_result(&task, Err(ActivityFailure::Application(error.into())));
        self
    }

    /// A running activity reports how far it is.
    pub fn heartbeat(&mut self, id: &str, activity: &str, details: impl Into<Payload>) -> &mut Desk {
        let task = self.pick_activity(id, activity);
        self.with_shard(ShardId::of(id), |shard, now_ms| {
            shard.handle_heartbeat(now_ms, &task, details.into());
        });
        self.running.push(task);
        self
    }

    /// The node stops in good order: activities that run are told to stop and given back.
    pub fn release_activities(&mut self) -> &mut Desk {
        for shard in ShardId::all() {
            self.with_shard(shard, |shard, _| shard.handle_stopping());
        }
        for task in std::mem::take(&mut self.running) {
            self.with_shard(ShardId::of(&task.instance), |shard, now_ms| {
                shard.handle_activity_released(now_ms, &task);
            });
        }
        self
    }

    /// The shards are to come to rest: the node is about to give them up.
    pub fn close_shards(&mut self) -> &mut Desk {
        for shard in ShardId::all() {
            self.with_shard(shard, |shard, _| shard.handle_closing());
        }
        self
    }

    /// A running activity returns.
    pub fn finish(&mut self, id: &str, activity: &str, result: impl Into<Payload>) -> &mut Desk {
        let task = self.pick_activity(id, activity);
        self.bring_result(&task, Ok(result.into()));
        self
    }
}
