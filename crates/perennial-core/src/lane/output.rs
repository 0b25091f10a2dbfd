//! What a lane wants done.

use crate::execution::Execution;
use crate::history::EventId;
use crate::instance::{InstanceKey, ShardId};
use crate::shard::{ActivityTask, RequestId, Response, Tenure, TurnTask};
use crate::store::{ShardSet, StoreError, TaskId};

use super::call::{CallId, StoreCall};

/// One thing to be done by the driver, outside of any lock. None of them asks for something that is not yet durable.
#[derive(Debug)]
pub enum LaneOutput {
    /// Make this call and bring the answer with [`Lane::handle_response`](super::Lane::handle_response).
    Call(CallId, StoreCall),
    /// Run this on a turn thread and bring the outcome with
    /// [`Lane::handle_turn_done`](super::Lane::handle_turn_done).
    TakeTurn(Box<TurnTask>),
    /// Drop this, where user code may run.
    Drop(Box<Execution>),
    /// Run an activity and bring its result with
    /// [`Lane::handle_activity_done`](super::Lane::handle_activity_done).
    RunActivity(Box<ActivityTask>),
    /// A running activity is a task row now, leased to this node's own session: its result goes there.
    HandOver(Box<ActivityTask>),
    /// Tell a running activity of this lane's that nobody waits for it. Another lane of the same process may run it too,
    /// having taken the shard over.
    CancelActivity {
        /// The instance.
        key: InstanceKey,
        /// The execution: the next one may have an activity with the same event.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
    },
    /// An activity that was interrupted often wants to run: call
    /// [`Lane::handle_quarantine_slot_granted`](super::Lane::handle_quarantine_slot_granted) when few enough others of its kind run on
    /// this node. It may turn out not to run after all.
    WantQuarantineSlot {
        /// The shard.
        shard: ShardId,
        /// The tenure that wants it.
        tenure: Tenure,
        /// How many times it ended with its process.
        interruptions: u32,
        /// Which one.
        task: TaskId,
    },
    /// Answer a caller.
    Reply {
        /// The shard of the instance that was asked.
        shard: ShardId,
        /// Whom.
        request: RequestId,
        /// With what.
        answer: Response,
        /// The instance that was asked, if it was found.
        key: Option<InstanceKey>,
    },
    /// The lane takes requests for these shards from now on.
    Gained(ShardSet),
    /// The lane takes no requests for these shards any more.
    Lost(ShardSet),
    /// What the store's clock said just now: to be compared with the machine's.
    StoreTime {
        /// The store's clock.
        store_ms: u64,
        /// By how much it is behind turn time, if it was set back.
        set_back_ms: Option<u64>,
    },
    /// The session has ended; nothing follows.
    Ended,
    /// The store cannot be trusted any more; nothing follows. What callers wait for is unknown.
    Failed(StoreError),
}

impl LaneOutput {
    /// Whether it may leave while the lane is suspended: it starts nothing and tells nobody anything. What is handed over
    /// has a row that is leased to the node: from the commit on the node is told its result, and not the lane.
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
