//! What a node wants done.

use crate::history::EventId;
use crate::instance::{InstanceKey, ShardId};
use crate::lane::{CallId, StoreCall};
use crate::shard::{ActivityTask, Tenure};
use crate::store::{Changes, StoreError, TaskId};

use super::stopping::Unfinished;

/// One thing to be done by the driver, outside of any lock.
#[derive(Debug)]
pub enum NodeOutput {
    /// Make this call and bring the answer with [`Node::handle_response`](super::Node::handle_response).
    Call(CallId, StoreCall),
    /// Tell a lane how many shards it should have.
    Target {
        /// The lane, from 0.
        lane: usize,
        /// How many.
        shards: usize,
    },
    /// Run a task that was taken from the store, and bring its result with
    /// [`Node::handle_task_done`](super::Node::handle_task_done).
    RunTask(Box<ActivityTask>),
    /// Tell a task that runs here that nobody waits for it.
    CancelTask(TaskId),
    /// Tell a lane that an activity may run alone.
    GrantQuarantineSlot {
        /// The lane.
        lane: usize,
        /// The instance's shard.
        shard: ShardId,
        /// The tenure that asked.
        tenure: Tenure,
        /// The instance.
        key: InstanceKey,
        /// The activity's schedule event.
        event: EventId,
    },
    /// Tell the lanes that this may have changed.
    Changed(Changes),
    /// The process stops. Tell each lane with [`Lane::handle_stopping`](crate::lane::Lane::handle_stopping); attempts that
    /// are to begin from now on are given back instead.
    StopTaking,
    /// Tell the attempts that run to stop for the node's sake: what they return does not count, and they are given back.
    StopAttempts,
    /// Tell each lane with [`Lane::handle_closing`](crate::lane::Lane::handle_closing), and bring its
    /// [`Ended`](crate::lane::LaneOutput::Ended) with [`Node::handle_lane_ended`](super::Node::handle_lane_ended).
    CloseLanes,
    /// The process goes away at once: tell each lane with [`Lane::handle_end`](crate::lane::Lane::handle_end).
    EndLanes,
    /// The node's session has ended, after its lanes'; nothing follows.
    Ended,
    /// The store did not answer in time; nothing follows. The next owner goes on from what the store holds.
    StoppedShort(Unfinished),
    /// The store cannot be trusted any more; nothing follows.
    Failed(StoreError),
}
