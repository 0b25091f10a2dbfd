//! Requests of a node to its driver.

use crate::history::EventId;
use crate::instance::{InstanceKey, ShardId};
use crate::lane::{CallId, StoreCall};
use crate::shard::{ActivityTask, Tenure};
use crate::store::{Changes, StoreError, TaskId};

use super::share::PeerCode;
use super::spill_over::AttemptNumber;
use super::stopping::Unfinished;

/// One request, to be carried out outside of any lock.
#[derive(Debug)]
pub enum NodeOutput {
    /// Make this call and pass the result to [`Node::handle_response`](super::Node::handle_response).
    Call(CallId, StoreCall),
    /// Tell a lane how many shards it should hold.
    Target {
        /// The index of the lane.
        lane: usize,
        /// The number of shards.
        shards: usize,
    },
    /// Use these for starts without a version: see [`PeerCode`]. It replaces the previous one.
    PeerCode(PeerCode),
    /// Run a taken task, and pass its result to [`Node::handle_task_done`](super::Node::handle_task_done).
    RunTask(Box<ActivityTask>),
    /// Cancel a task that runs here.
    CancelTask(TaskId),
    /// Tell a lane that an activity has a quarantine slot.
    GrantQuarantineSlot {
        /// The index of the lane in its node.
        lane: usize,
        /// The instance's shard.
        shard: ShardId,
        /// The requesting tenure.
        tenure: Tenure,
        /// The key of the instance.
        key: InstanceKey,
        /// The activity's schedule event.
        event: EventId,
    },
    /// Pass the attempts that wait for a free slot to [`Node::handle_waiting`](super::Node::handle_waiting).
    ListWaiting,
    /// Withdraw an attempt, if it still waits for a free slot: it does not start here, and
    /// [`Lane::handle_activity_spilled`](crate::lane::Lane::handle_activity_spilled) is called, or
    /// [`Node::handle_task_released`](super::Node::handle_task_released) if it is a task of this node.
    Withdraw(AttemptNumber),
    /// Notify the lanes of possible changes.
    Changed(Changes),
    /// The process stops. Call [`Lane::handle_stopping`](crate::lane::Lane::handle_stopping) for each lane; attempts
    /// that would start from now on are returned instead.
    StopTaking,
    /// Stop the running attempts for the node's sake: their results do not count, and they are returned.
    StopAttempts,
    /// Call [`Lane::handle_closing`](crate::lane::Lane::handle_closing) for each lane, and pass its
    /// [`Ended`](crate::lane::LaneOutput::Ended) to [`Node::handle_lane_ended`](super::Node::handle_lane_ended).
    CloseLanes,
    /// The process ends immediately: call [`Lane::handle_end`](crate::lane::Lane::handle_end) for each lane.
    EndLanes,
    /// The node's session has ended, after those of its lanes. This is the last output.
    Ended,
    /// The store did not reply in time. This is the last output; the next owner continues from what is stored.
    StoppedShort(Unfinished),
    /// The store cannot be trusted any more. This is the last output.
    Failed(StoreError),
}
