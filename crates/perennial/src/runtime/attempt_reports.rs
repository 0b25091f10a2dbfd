//! What becomes of attempts: reported to the lane that requested them, or to the node if they are its tasks.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::ErrorCode;
use perennial_core::lane::{Lane, Moment};
use perennial_core::log;
use perennial_core::shard::ActivityTask;
use perennial_core::{ActivityError, Payload};

use super::driver::Driver;
use super::workers::AttemptPlace;

impl Driver {
    /// Passes what became of an attempt to its lane. Returns it if the attempt is a task of this node: it belongs to the
    /// node then.
    fn to_lane<T>(
        self: &Arc<Driver>,
        place: AttemptPlace,
        news: T,
        input: impl FnOnce(&mut Lane, Moment, T),
    ) -> Option<T> {
        let Some(index) = place.lane else { return Some(news) };
        // Under the lane's lock, because that is where attempts are handed over to the node.
        self.with_lane(index, |lane, now| match self.workers.is_task(place.key) {
            true => Some(news),
            false => {
                input(lane, now, news);
                None
            }
        })
    }

    /// Reports the end of an attempt to its lane, or to the node if it is a task of this node.
    pub(super) fn activity_done(
        self: &Arc<Driver>,
        place: AttemptPlace,
        task: &ActivityTask,
        result: Result<Payload, ActivityError>,
        details: Option<Payload>,
    ) {
        let result = self.within_limits(result);
        let for_node =
            self.to_lane(place, result, |lane, now, result| lane.handle_activity_done(now, task, result));
        if let Some(result) = for_node {
            self.with_node(|node, now, _| node.handle_task_done(now, task, result, details));
        }
    }

    /// Reports that the code of an attempt returned with [`Later::Pending`](crate::Later::Pending).
    pub(super) fn activity_left_open(
        self: &Arc<Driver>,
        place: AttemptPlace,
        task: &ActivityTask,
        ran: Duration,
        details: Option<Payload>,
    ) {
        let ran_ms = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        let for_node = self
            .to_lane(place, ran_ms, |lane, now, ran_ms| lane.handle_activity_left_open(now, task, ran_ms));
        if for_node.is_some() {
            self.with_node(|node, now, _| node.handle_task_left_open(now, task, ran_ms, details));
        }
    }

    /// Reports that an attempt did not begin, or was stopped because the node stops.
    pub(super) fn activity_released(self: &Arc<Driver>, place: AttemptPlace, task: &ActivityTask) {
        if self.failure().is_some() {
            return;
        }
        let for_node = self.to_lane(place, (), |lane, now, ()| lane.handle_activity_released(now, task));
        if for_node.is_some() {
            self.with_node(|node, now, _| node.handle_task_released(now, task));
        }
    }

    /// Reports that an attempt waited too long for a free slot and was withdrawn before it began.
    pub(super) fn activity_spilled(self: &Arc<Driver>, place: AttemptPlace, task: &ActivityTask) {
        if self.failure().is_some() {
            return;
        }
        let for_node = self.to_lane(place, (), |lane, now, ()| lane.handle_activity_spilled(now, task));
        if for_node.is_some() {
            self.with_node(|node, now, _| node.handle_task_released(now, task));
        }
    }

    /// Reports the heartbeat of a running attempt.
    pub(super) fn heartbeat(self: &Arc<Driver>, place: AttemptPlace, task: &ActivityTask, details: Payload) {
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
        let for_node =
            self.to_lane(place, details, |lane, now, details| lane.handle_heartbeat(now, task, details));
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
}
