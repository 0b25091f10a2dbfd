//! The deterministic core of Perennial.
//!
//! Given the same code, input and recorded turns, an execution makes the same decisions, or reports exactly where it
//! diverged. Everything here is pure and synchronous: values in, values out. There is no clock, no thread, no I/O and
//! no async runtime. Time and random numbers are arguments, and the iteration order of a map never influences a
//! decision.
//!
//! - [`codec`]: encoding payloads before they are stored, and decoding them afterwards.
//! - [`history`]: what is recorded: events, turns, their encoding, and the state derived from them.
//! - [`Execution`]: one execution of an orchestration in memory. It takes new turns and replays recorded ones.
//! - [`OrchestrationContext`]: the handle that orchestration code calls.
//! - [`Replayer`]: replays a whole history against the current code.

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
pub mod trace;

pub use code::{ErrorCode, UnknownErrorCode};
pub use context::{
    ActivityFuture, Branches, Cancelled, ChildFuture, ChildStarted, Completions, ContinueAsNewFuture,
    DeliveryFuture, Either, Either3, Elapsed, EndCancelledFuture, Events, HandlersIdle, Info, Join, Join2,
    Join3, Operand, Operands, OrchestrationContext, Race, Receive, Select, Select2, Select3, Sent, Shield,
    State, SystemCallFuture, Timeout, TimerFuture, TryJoin, UnitHandle, WaitFuture, WaitUntil,
};
pub use execution::{
    Execution, ExecutionOptions, HandlerNames, Handlers, Interrupter, Limits, Nondeterminism,
    OrchestrationHandler, QueryFailure, ReplayReport, Replayer, Side, StaleJob, Successor, TurnFailure,
    TurnTaken, UpdateRefusal, note_panic,
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
