//! A node: what the lanes of one process have in common.
//!
//! A [`Node`] is a state machine without I/O, like the [lanes](crate::lane). It keeps the node's own session, which
//! owns no shards and outlives the sessions of its lanes; it divides the shards among the live nodes and then among its
//! lanes; it takes tasks that this process can run, keeps their leases and completes them; and it keeps activities that
//! were interrupted repeatedly in quarantine, where few of them run at a time; and it queues attempts that have waited
//! for a free slot for too long for nodes that have room.
//!
//! It is driven like a lane: pass in inputs with their moment, then call [`Node::take_outputs`]; results of calls go to
//! [`Node::handle_response`]; [`Node::handle_time`] is called at [`Node::next_wake`].
//!
//! It also decides how a process stops: [`Node::handle_stop`] starts it, followed by outputs for the driver,
//! [`Node::handle_idle`] when no attempt runs any more, and [`Node::handle_lane_ended`] for each lane. The last output
//! is [`NodeOutput::Ended`], or [`NodeOutput::StoppedShort`] if the store did not reply in time. A process that ends
//! without this calls [`Node::handle_abandoned`].

mod calls;
mod machine;
mod membership;
mod options;
mod output;
mod quarantine_gate;
mod share;
mod spill_over;
mod stopping;
mod taken;
mod tasks;

pub use machine::Node;
pub use options::NodeOptions;
pub use output::NodeOutput;
pub use share::PeerCode;
pub use spill_over::{AttemptNumber, WaitingAttempt};
pub use stopping::{StopPatience, Unfinished};
