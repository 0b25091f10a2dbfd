//! Options of an execution.

use super::limits::Limits;

/// Options of an execution.
#[derive(Clone, Debug)]
pub struct ExecutionOptions {
    /// Limits on the size of a turn and of a history.
    pub limits: Limits,
    /// Whether turns 1, 2, 4, 8, … and the last are replayed in a new execution right after they were taken, so that
    /// nondeterministic code is detected immediately. Keeps the turns in memory. Default: on in debug builds.
    pub shadow_replay: bool,
}

impl Default for ExecutionOptions {
    fn default() -> ExecutionOptions {
        ExecutionOptions { limits: Limits::default(), shadow_replay: cfg!(debug_assertions) }
    }
}
