//! The engine's state machine for the instances of one shard.
//!
//! A [`Shard`] takes inputs (a request, a loaded instance, a turn that was taken, the outcome of a commit, a finished
//! activity, the time) and produces [`Output`]s (load this, take this turn, commit this, run this, reply to that). It
//! does no I/O, reads no clock and runs no user code: executions to run or to drop are handed out. Nothing that a turn
//! decided leaves the shard before the turn is durable.
//!
//! # How to drive it
//!
//! 1. Create it with [`Shard::new`] after the shard was claimed; all instances are dormant. A new owner passes in what
//!    it finds in the store: [`Shard::handle_owed`], [`Shard::handle_due`], [`Shard::handle_inbox`],
//!    [`Shard::handle_request_row`], in any order and as often as it likes. The inbox rows of one instance must be
//!    passed in the order of their numbers.
//! 2. After every input, call [`Shard::take_outputs`] and carry the outputs out, in order as far as one activity is
//!    concerned.
//! 3. Each output that requests something names the input that answers it: `Find` is answered by
//!    [`Shard::handle_found`] or [`Shard::handle_find_failed`], `Load` by [`Shard::handle_loaded`] or
//!    [`Shard::handle_load_failed`], `Refresh` by [`Shard::handle_refreshed`], `TakeTurn` by
//!    [`Shard::handle_turn_done`] or [`Shard::handle_turn_lost`], `Commit` by [`Shard::handle_committed`],
//!    `RunActivity` by [`Shard::handle_activity_done`], [`Shard::handle_activity_left_open`] or
//!    [`Shard::handle_activity_released`], with heartbeats before that. Answers may come at any later time and in any
//!    order; an answer that nothing waits for is ignored or counted as stale.
//! 4. Until `Load`, `TakeTurn` and `Commit` of an instance are answered, other inputs for that instance are queued.
//! 5. Call [`Shard::handle_time`] at [`Shard::next_wake_ms`], or any time later. `now_ms` is turn time, and never goes
//!    backwards.
//! 6. To release the shard, call [`Shard::handle_releasing`] (or [`Shard::handle_stopping`], then
//!    [`Shard::handle_closing`]), and wait for [`Shard::is_drained`]. When another session owns it, call
//!    [`Shard::handle_lost`]. Dropping a shard runs the destructors of user code.
//!
//! # What it is made of
//!
//! [`Shard`] finds the instance that an input concerns and passes the input on, together with the state that all
//! instances share. Each instance is a state machine of its own, in `instance`.

mod attempts;
mod block_reason;
mod consumed;
mod counters;
pub(crate) mod envelope;
mod facts;
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
mod spans;
mod standing;
mod state_machine;
mod task_work;
mod tenure;
mod token;
mod turn_task;
mod updates;
mod waiters;
mod wakes;

pub use block_reason::BlockReason;
pub use counters::Counters;
pub use envelope::{BODY_FORMAT, BodyError};
pub use facts::{Fact, Label, Observed, ObservedNames, TurnEnd};
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
pub use spans::TurnSpan;
pub use state_machine::Shard;
pub(crate) use state_machine::cannot_be_left_open;
pub(crate) use task_work::is_handed_over;
pub use task_work::{Left, OpenEnd, TaskWork};
pub use tenure::Tenure;
pub use token::{BadToken, CompletionToken, TokenSecret};
pub use turn_task::{
    CallOutcome, HandlerSource, TurnRun, TurnSource, TurnTask, TurnTaskDone, TurnTaskOutput, TurnTimes,
};
