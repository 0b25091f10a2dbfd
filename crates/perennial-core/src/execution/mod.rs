//! One execution: it takes turns and replays turns on the same code path.
//!
//! [`Execution`] owns the code's future and everything around it. A turn delivers jobs in waves and runs units in
//! rounds until all of them wait; the code's decisions get event ids at the end of each step. Replaying a recorded turn
//! differs in two places only: ids are the recorded ones, and each decision has to match the recorded decision.

mod binding;
pub(crate) mod condition;
mod delivering;
mod divergence;
mod driver;
mod failure;
mod handler;
mod handler_calls;
mod limits;
pub(crate) mod mailbox;
pub(crate) mod operations;
mod options;
mod outcome;
pub(crate) mod panic_place;
mod random;
mod recorder;
mod replayer;
pub(crate) mod scheduler;
pub(crate) mod shared_flags;
mod slab;
pub(crate) mod state;
mod stepping;
pub(crate) mod turn_local;

pub use divergence::{Nondeterminism, Side};
pub use driver::Execution;
pub(crate) use failure::panic_message;
pub use failure::{QueryFailure, TurnFailure, UpdateRefusal};
pub use handler::OrchestrationHandler;
pub use handler_calls::HandlerNames;
pub use limits::Limits;
pub use options::ExecutionOptions;
pub use outcome::{StaleJob, Successor, TurnTaken};
pub use panic_place::note_panic;
pub(crate) use random::{Stream, uuid4_text};
pub use replayer::{Handlers, ReplayReport, Replayer};
pub use shared_flags::Interrupter;
