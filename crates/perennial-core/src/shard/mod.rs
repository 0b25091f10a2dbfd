//! The engine's state machine over the instances of one shard.
//!
//! A [`Shard`] takes inputs (a request, a loaded instance, a turn that was taken, a commit's outcome, a finished
//! activity, the time) and gives [`Output`]s (load this, take this turn, commit this, run this, answer that). It does no
//! I/O, reads no clock and runs no user code: executions to run or to drop are handed out. Nothing that a turn decided
//! leaves before the turn is durable.
//!
//! # How to drive it
//!
//! 1. [`Shard::new`] when the shard was claimed; everything is dormant. A new owner brings what it finds in the store:
//!    [`Shard::handle_owed`], [`Shard::handle_due`], [`Shard::handle_inbox`], [`Shard::handle_request_row`], in any order
//!    and as often as it likes. Of each instance, rows of the inbox are brought in the order of their numbers.
//! 2. After every input, take [`Shard::take_outputs`] and do them, in order as far as one activity is concerned.
//! 3. Each output that asks for something names the input that answers it: `Find` is answered by
//!    [`Shard::handle_found`] or [`Shard::handle_find_failed`], `Load` by [`Shard::handle_loaded`] or
//!    [`Shard::handle_load_failed`], `Refresh` by [`Shard::handle_refreshed`], `TakeTurn` by [`Shard::handle_turn_done`] or
//!    [`Shard::handle_turn_lost`], `Commit` by [`Shard::handle_committed`], `RunActivity` by
//!    [`Shard::handle_activity_done`], [`Shard::handle_activity_left_open`] or [`Shard::handle_activity_released`], with
//!    heartbeats before that. Answers may come at any later time and in any order; one that nobody waits for any more is
//!    ignored or counted as stale.
//! 4. Until `Load`, `TakeTurn` and `Commit` of an instance are answered, whatever comes for that instance waits.
//! 5. Call [`Shard::handle_time`] at [`Shard::next_wake_ms`], or any time later. `now_ms` is turn time, and never goes
//!    back.
//! 6. To give the shard up: [`Shard::handle_releasing`] (or [`Shard::handle_stopping`], then [`Shard::handle_closing`]), and
//!    wait for [`Shard::is_drained`]. When it is another owner's, [`Shard::handle_lost`]. Dropping a shard runs the
//!    destructors of user code.
//!
//! # What it is made of
//!
//! [`Shard`] finds the instance that an input concerns and hands it over, together with what all instances share. Each
//! instance is a state machine of its own, in `instance`.

mod attempts;
mod consumed;
mod counters;
pub(crate) mod envelope;
mod gaps;
mod instance;
mod instances;
mod kept_keys;
mod lookups;
mod message;
mod options;
mod outgoing;
mod output;
mod record;
mod request;
mod reset;
mod residents;
mod shared;
mod standing;
mod state_machine;
mod task_work;
mod tenure;
mod token;
mod turn_task;
mod updates;
mod waiters;
mod wakes;

pub use counters::Counters;
pub use envelope::{BODY_FORMAT, BodyError};
pub use message::{LeftOpen, Message, RanElsewhere, Start};
pub use options::{FailurePolicy, OnFailure, ShardOptions, TokenKey};
pub(crate) use options::{hold_ms, max_together};
pub use outgoing::{child_id, child_key};
pub use output::{ActivityTask, Output};
pub use record::Record;
pub use request::{
    CallReply, InstanceCall, PendingCall, ReplyTo, Request, RequestId, Response, Said, StartRequest,
    TokenCall,
};
pub use reset::{ResetOutcome, ResetReport, ResetRun, ResetTask};
pub use state_machine::Shard;
pub(crate) use state_machine::cannot_be_left_open;
pub(crate) use task_work::is_handed_over;
pub use task_work::{Left, OpenEnd, TaskWork};
pub use tenure::Tenure;
pub use token::{BadToken, CompletionToken, TokenSecret};
pub use turn_task::{
    BlockReason, CallOutcome, HandlerSource, TurnRun, TurnSource, TurnTask, TurnTaskDone, TurnTaskOutput,
};
