//! Requests of a lane to its driver.

use crate::execution::Execution;
use crate::history::EventId;
use crate::instance::{InstanceKey, ShardId};
use crate::shard::{ActivityTask, RequestId, Response, Tenure, TurnTask};
use crate::store::{ShardSet, StoreError, TaskId};

use super::call::{CallId, StoreCall};

/// One request, to be carried out outside of any lock. None depends on something that is not durable.
#[derive(Debug)]
pub enum LaneOutput {
    /// Make this call and pass the result to [`Lane::handle_response`](super::Lane::handle_response).
    Call(CallId, StoreCall),
    /// Run this on a turn thread and pass the outcome to [`Lane::handle_turn_done`](super::Lane::handle_turn_done).
    TakeTurn(Box<TurnTask>),
    /// Drop this, where user code may run.
    Drop(Box<Execution>),
    /// Run an activity and pass its result to [`Lane::handle_activity_done`](super::Lane::handle_activity_done).
    RunActivity(Box<ActivityTask>),
    /// A running activity has become a task row, leased to this node's own session: its result goes there.
    HandOver(Box<ActivityTask>),
    /// Cancel a running activity of this lane. Another lane of the same process may run it, too, after it took the
    /// shard over.
    CancelActivity {
        /// The key of the instance.
        key: InstanceKey,
        /// The execution: the next one may have an activity with the same event.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
    },
    /// An activity that was interrupted repeatedly needs a quarantine slot: call
    /// [`Lane::handle_slot_granted`](super::Lane::handle_slot_granted) when few enough other
    /// suspects run on this node. It may turn out not to run after all.
    WantQuarantineSlot {
        /// The shard of the instance.
        shard: ShardId,
        /// The requesting tenure.
        tenure: Tenure,
        /// How many times its process ended.
        interruptions: u32,
        /// The activity.
        task: TaskId,
    },
    /// Reply to a caller.
    Reply {
        /// The shard of the addressed instance.
        shard: ShardId,
        /// The request that is answered.
        request: RequestId,
        /// The response.
        answer: Response,
        /// The addressed instance, if it was found.
        key: Option<InstanceKey>,
    },
    /// The lane accepts requests for these shards from now on.
    Gained(ShardSet),
    /// The lane no longer accepts requests for these shards.
    Lost(ShardSet),
    /// A reading of the store's clock, to be compared with the machine's.
    StoreTime {
        /// The store's clock.
        store_ms: u64,
        /// How far it is behind turn time, if it was set back.
        set_back_ms: Option<u64>,
    },
    /// The session has ended. This is the last output.
    Ended,
    /// The store cannot be trusted any more. This is the last output; the outcomes that callers wait for are unknown.
    Failed(StoreError),
}

impl LaneOutput {
    /// Whether it may be handed out while the lane is suspended, because it starts and reports nothing. A handed-over
    /// attempt has a row leased to the node: from that commit on its result goes to the node, not to the lane.
    pub(super) fn is_harmless(&self) -> bool {
        match self {
            LaneOutput::TakeTurn(_)
            | LaneOutput::RunActivity(_)
            | LaneOutput::CancelActivity { .. }
            | LaneOutput::WantQuarantineSlot { .. } => false,
            LaneOutput::Reply { answer, .. } => matches!(answer, Response::Moved { .. }),
            LaneOutput::Call(..)
            | LaneOutput::HandOver(_)
            | LaneOutput::Drop(_)
            | LaneOutput::Gained(_)
            | LaneOutput::Lost(_)
            | LaneOutput::StoreTime { .. }
            | LaneOutput::Ended
            | LaneOutput::Failed(_) => true,
        }
    }
}
