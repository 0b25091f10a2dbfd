//! The right of one lane of one node to commit for some shards.

use std::fmt;

/// Names a session. Random, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({:032x})", self.0)
    }
}

/// A session as it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// Its first lease.
    pub lease: Lease,
}

/// How long a session lives unless renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The store's clock when the lease was written.
    pub now_ms: u64,
    /// When it expires, by the store's clock.
    pub expires_ms: u64,
}
