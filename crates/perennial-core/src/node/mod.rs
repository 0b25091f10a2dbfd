//! A node: what spans the lanes of one process.
//!
//! A [`Node`] is a state machine without I/O, like the [lanes](crate::lane) beside it. It keeps the node's own session,
//! which owns no shards and outlives its lanes' sessions; it divides the shards among the live nodes and then among its
//! lanes; it takes tasks that this process can run, keeps their leases and ends them; and it lets activities that were
//! interrupted often run one at a time.
//!
//! It is driven as a lane is: inputs with the moment at which they are brought, then [`Node::take_outputs`]; calls are
//! answered with [`Node::handle_response`]; [`Node::handle_time`] is called at [`Node::next_wake`].
//!
//! It also decides how a process stops: [`Node::handle_stop`] begins it, and what follows are outputs for the driver to
//! do, [`Node::handle_idle`] when no attempt runs any more, and [`Node::handle_lane_ended`] for each lane. The last
//! output is [`NodeOutput::Ended`], or [`NodeOutput::StoppedShort`] if the store did not answer in time. A process that
//! goes away without that brings [`Node::handle_abandoned`].

mod calls;
mod machine;
mod options;
mod output;
mod quarantine_gate;
mod share;
mod stopping;
mod taken;

pub use machine::Node;
pub use options::NodeOptions;
pub use output::NodeOutput;
pub use stopping::{StopPatience, Unfinished};
