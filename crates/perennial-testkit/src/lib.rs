//! What Perennial is tested with.
//!
//! - [`Drive`]: one execution with its history, turn by turn.

mod drive;

pub use drive::Drive;
