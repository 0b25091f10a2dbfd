//! A lane: one session, the shards under it, and everything that is decided about them.
//!
//! A [`Lane`] is a state machine without I/O. It owns the session and its lease, the [`Shard`](crate::shard::Shard)s, the
//! commits on their way and those in doubt, the passes over the store, and the shards it is giving up. Inputs are values:
//! a request, a finished turn or activity, an answer of the store, a hint, the time. Outputs are values too: store calls,
//! turns to take, activities to run, replies. It has no callbacks, threads or clock; the runtime, the simulator and the
//! test environment drive the same code and decide nothing.
//!
//! # How to drive it
//!
//! 1. [`Lane::new`], then [`Lane::handle_target`] with how many shards it should have.
//! 2. After every input, take [`Lane::take_outputs`] and do them, outside of the lock around the lane. The order within
//!    one activity matters (run before cancel); nothing else does.
//! 3. Each [`LaneOutput::Call`] is made with [`StoreCall::make`] and answered with [`Lane::handle_response`], at any later
//!    time, in any order, or never.
//! 4. Call [`Lane::handle_time`] at [`Lane::next_wake`], or any time later.
//! 5. To stop: [`Lane::handle_stopping`], then [`Lane::handle_closing`], when the [node](crate::node) says so; the last
//!    output is [`LaneOutput::Ended`]. Dropping a lane instead is safe at any moment.
//!
//! Every input takes the moment at which it is brought. Moments never go back.
//!
//! # What it is made of
//!
//! Decisions are made by parts that own their fields: `lease` (until when the lane may act), `tenures` (which shards it
//! holds, should hold and gives up), `gaps` (when it could not act), `committer` and `doubts` (batches, and what came of
//! them), `purpose` and `calls` (calls to make, and those under way), `loads`, `passes` (what is read from the store, and
//! when), `suspects`, `stage` (how it ends), `clock`, and `outbox` (what may leave now). [`Lane`] brings each input and
//! answer to the parts that it concerns, in `machine`, `answering`, `commits` and `ownership`.

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
