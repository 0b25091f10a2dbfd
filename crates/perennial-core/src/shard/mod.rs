//! The engine's state machine over the instances of one shard.
//!
//! A [`Shard`] takes inputs (a request, a loaded instance, a turn that was taken, a commit's outcome, a finished
//! activity, the time) and gives [`Output`]s (load this, take this turn, commit this, run this, answer that). It does no
//! I/O, reads no clock and runs no user code: executions to run or to drop are handed out. Nothing that a turn decided
//! leaves before the turn is durable.

mod asks;
mod blocking;
mod commits;
mod envelope;
mod inputs;
mod loading;
mod message;
mod options;
mod outgoing;
mod output;
mod request;
mod requests;
mod residency;
mod rows;
mod slot;
mod state_machine;
mod tasks;
mod tenure;
mod terminating;
mod turn_task;
mod turns;

pub use envelope::{BODY_FORMAT, BodyError};
pub use message::{Message, RanElsewhere, Start};
pub use options::{FailurePolicy, OnFailure, ShardOptions};
pub use outgoing::{child_id, child_key};
pub use output::{ActivityTask, Output};
pub use request::{Answer, AskReply, Asker, PendingAsk, Question, Request, RequestId, StartRequest};
pub use state_machine::{Counters, Shard};
pub use tasks::TaskWork;
pub(crate) use tasks::is_handed_over;
pub use tenure::Tenure;
pub use turn_task::{Consultation, HandlerSource, TaskFailure, TurnRun, TurnSource, TurnTask, TurnTaskDone};
