//! The deterministic core of Perennial.
//!
//! Given the same code, input and recorded turns, an execution makes the same decisions, or says exactly where it did
//! not. Everything here is pure and synchronous: values in, values out. There is no clock, no thread, no I/O and no
//! async runtime; time and chance are arguments, and map order cannot reach a decision.
//!
//! - [`codec`]: what happens to payloads on their way to the store.
//! - [`history`]: what is recorded. Events, turns, their bytes, and what follows from them.
//! - [`Execution`]: an orchestration alive in memory. It takes turns and replays turns.
//! - [`OrchestrationContext`]: what orchestration code calls.
//! - [`Replayer`]: a whole history against the current code.

mod ascending_map;
mod code;
pub mod codec;
mod context;
mod execution;
#[doc(hidden)]
pub mod flaws;
mod fnv;
pub mod history;
mod instance;
pub mod lane;
pub mod log;
pub mod node;
mod pattern;
mod planned;
pub mod shard;
pub mod store;
mod timestamp;

pub use code::{ErrorCode, UnknownErrorCode};
pub use context::{
    ActivityFuture, Branches, Cancelled, ChildFuture, ChildStarted, Completions, ContinueAsNewFuture,
    DeliveryFuture, Either, Either3, Elapsed, EndCancelledFuture, Events, HandlersIdle, Info, Join, Join2,
    Join3, Operand, Operands, OrchestrationContext, Race, Receive, Select, Select2, Select3, Sent, Shield,
    State, SystemCallFuture, Timeout, TimerFuture, TryJoin, UnitHandle, WaitFuture, WaitUntil,
};
pub use execution::{
    Execution, ExecutionOptions, Handlers, Interrupter, Limits, Nondeterminism, OrchestrationHandler,
    QueryFailure, ReplayReport, Replayer, Side, StaleJob, Successor, TurnFailure, TurnTaken, UpdateRefusal,
    note_panic,
};
pub use history::{
    ActivityError, ActivityOptions, Attributes, Backoff, CancelRequest, ChildError, ChildOptions,
    ClosePolicy, CorruptHistory, Decision, Delivery, Ending, Event, EventId, EventKind, History,
    HistoryError, Job, Ledger, NotAUnitPath, NotOfType, OnTakenId, ParentLink, PastAttempt, Payload, Reset,
    RetryPolicy, Segment, StaleReason, Started, TimeoutKind, TraceContext, Trail, Turn, UnitId, Why,
};
pub use instance::{
    InstanceKey, NameError, NotAKey, SHARDS, ShardId, check_derived_id, check_key, check_name,
};
pub use pattern::{NamePattern, PatternError};
pub use timestamp::{Timestamp, TimestampError};
