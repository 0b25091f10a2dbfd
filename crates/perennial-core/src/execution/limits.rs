//! Limits on the size of a turn and of a history.

/// Limits of a turn and of a history, checked at the call that would exceed them, in live turns only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one payload. Default 4 MiB.
    pub payload_bytes: u64,
    /// Decisions of one turn. Default 32,768.
    pub turn_decisions: u64,
    /// Bytes of the decisions of one turn. Default 32 MiB.
    pub turn_bytes: u64,
    /// Steps of one turn. Default 1,000,000.
    pub turn_steps: u64,
    /// Events of one history. Default 200,000.
    pub history_events: u64,
    /// Bytes of one history. Default 256 MiB.
    pub history_bytes: u64,
}

impl Limits {
    /// From this many events on, code is told to continue as new. Fixed, so that every replay gets the same answer.
    pub const CONTINUE_AS_NEW_EVENTS: u64 = 100_000;
    /// From this many bytes on, code is told to continue as new. Fixed, so that every replay gets the same answer.
    pub const CONTINUE_AS_NEW_BYTES: u64 = 128 << 20;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload_bytes: 4 << 20,
            turn_decisions: 32_768,
            turn_bytes: 32 << 20,
            turn_steps: 1_000_000,
            history_events: 200_000,
            history_bytes: 256 << 20,
        }
    }
}
