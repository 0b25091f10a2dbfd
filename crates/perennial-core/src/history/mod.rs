//! The history of an execution: events, turns, their encoding, and the state derived from them.
//!
//! Nothing here runs user code or makes decisions. A [`Turn`] is the unit of commit and of encoding; a [`Ledger`] reads
//! turns in order, rejects sequences that cannot be a history, and knows what is open.

mod activity_error;
mod activity_options;
mod child_error;
mod child_options;
mod codec;
mod decision;
mod ending;
mod error;
mod event;
mod job;
mod ledger;
mod not_of_type;
mod payload;
mod repair;
mod same_json;
mod started;
mod summary;
mod trace;
mod trail;
mod turn;
mod unit_id;
mod weight;

pub use activity_error::{ActivityError, TimeoutKind};
pub(crate) use activity_options::whole_ms;
pub use activity_options::{ActivityOptions, Backoff, RetryPolicy};
pub use child_error::ChildError;
pub use child_options::{ChildOptions, OnTakenId};
pub use codec::{decode_history, decode_turn, encode_turn};
pub(crate) use codec::{decode_turn_with, encode_turn_with};
pub use decision::{ClosePolicy, Decision};
pub use ending::Ending;
pub use error::{CorruptHistory, HistoryError, PayloadSource};
pub use event::{Attributes, Event, EventId, EventKind};
pub(crate) use job::TIMEOUT_REASON;
pub use job::{Delivery, Job};
pub(crate) use ledger::upsert_attributes;
pub use ledger::{CancelRequest, DRAWN_KEY_PREFIX, Ledger, StaleReason, is_drawn_key};
pub use not_of_type::NotOfType;
pub use payload::Payload;
pub use repair::{Reset, Why};
pub use started::{ParentLink, Started};
pub(crate) use summary::shorten;
pub use trace::TraceContext;
pub use trail::{PastAttempt, Trail};
pub use turn::{FORMAT, History, Turn};
pub use unit_id::{NotAUnitPath, Segment, UnitId};

/// The version of the rules for order, ids, comparison and randomness of an execution.
///
/// It is stored in [`Started`] and never changes for that execution. A history with a higher number was written by a
/// newer engine.
pub const SEMANTICS: u32 = 1;
