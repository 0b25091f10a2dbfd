//! How an execution behaves beyond its code.

use super::limits::Limits;

/// How an execution behaves beyond its code.
#[derive(Clone, Debug)]
pub struct ExecutionOptions {
    /// How much a turn and a history may hold.
    pub limits: Limits,
    /// Whether turns 1, 2, 4, 8, … and the last are replayed in a fresh execution right after they were taken, so that
    /// code which differs from run to run shows at once. It keeps the turns in memory. Default: in debug builds.
    pub shadow_replay: bool,
}

impl Default for ExecutionOptions {
    fn default() -> ExecutionOptions {
        ExecutionOptions { limits: Limits::default(), shadow_replay: cfg!(debug_assertions) }
    }
}
