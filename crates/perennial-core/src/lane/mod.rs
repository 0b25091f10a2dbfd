//! A lane: one session, its shards, and all decisions about them.
//!
//! A [`Lane`] is a state machine without I/O. It owns the session and its lease, the [`Shard`](crate::shard::Shard)s,
//! the commits in progress and those in doubt, the passes over the store, and the shards that it is releasing. Inputs
//! are values: a request, a finished turn or activity, a result of the store, a hint, the time. Outputs are values,
//! too: store calls, turns to take, activities to run, replies. It has no callbacks, threads or clock; the runtime, the
//! simulator and the test environment drive the same code and make no decisions.
//!
//! # How to drive it
//!
//! 1. Create it with [`Lane::new`], then call [`Lane::handle_target`] with the number of shards that it should hold.
//! 2. After every input, call [`Lane::take_outputs`] and carry the outputs out, outside of the lock around the lane.
//!    The order matters within one activity (run before cancel), and nowhere else.
//! 3. Make each [`LaneOutput::Call`] with [`StoreCall::make`] and pass the result to [`Lane::handle_response`], at any
//!    later time, in any order, or never.
//! 4. Call [`Lane::handle_time`] at [`Lane::next_wake`], or any time later.
//! 5. To stop, call [`Lane::handle_stopping`], then [`Lane::handle_closing`], when the [node](crate::node) says so; the
//!    last output is [`LaneOutput::Ended`]. Dropping a lane instead is safe at any moment.
//!
//! Every input comes with the moment at which it is passed in. Moments never go backwards.
//!
//! # What it is made of
//!
//! Decisions are made by parts that own their fields: `lease` (until when the lane may act), `tenures` (the shards that
//! it holds, should hold and releases), `gaps` (when it could not act), `committer` and `doubts` (batches and their
//! outcomes), `purpose` and `calls` (calls to make, and those in progress), `loads`, `passes` (what is read from the
//! store, and when), `suspects`, `stage` (how it ends), `clock`, and `outbox` (what may be handed out now). [`Lane`]
//! passes each input and result to the parts that it concerns, in `machine`, `responses`, `commits` and `ownership`.

mod call;
mod calls;
mod clock;
mod commits;
mod committer;
mod doubts;
mod gaps;
mod lease;
mod loads;
mod machine;
mod options;
mod outbox;
mod output;
mod ownership;
mod passes;
mod probation;
mod purpose;
mod responses;
mod stage;
mod suspects;
mod tenures;

pub use call::{CallId, StoreCall, StoreResponse, StoreResult};
pub use clock::{Moment, TurnClock};
pub(crate) use lease::{LeaseKeeper, Standing};
pub use machine::Lane;
pub use options::LaneOptions;
pub use output::LaneOutput;
