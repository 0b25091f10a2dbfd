//! Whether a shard takes work, and how it comes to rest.

use crate::store::SessionId;

/// It only ever advances, except that a release may follow a stop or come while the shard is closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Full service.
    Serving,
    /// The node stops: no attempt is started from a task row.
    Stopping,
    /// The shard is being released while it still works: running attempts become task rows under this lease.
    Releasing(Lease),
    /// It comes to rest: only what exists in memory alone is still completed. An attempt whose start was on its way to
    /// the store when the release completed is still handed over.
    Closing(Option<Lease>),
}

/// The lease of the rows that attempts become when a shard is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) holder: SessionId,
    pub(super) lease_ms: u64,
}

impl Standing {
    pub(super) fn stop(&mut self) {
        if *self == Standing::Serving {
            *self = Standing::Stopping;
        }
    }

    pub(super) fn release(&mut self, lease: Lease) {
        *self = match self {
            Standing::Closing(_) => Standing::Closing(Some(lease)),
            _ => Standing::Releasing(lease),
        };
    }

    pub(super) fn close(&mut self) {
        *self = Standing::Closing(self.lease());
    }

    /// Whether no attempt is started from a task row.
    pub(super) fn is_stopping(self) -> bool {
        self != Standing::Serving
    }

    pub(super) fn is_releasing(self) -> bool {
        matches!(self, Standing::Releasing(_))
    }

    /// Whether everything known to the store is left to the next owner.
    pub(super) fn is_closing(self) -> bool {
        matches!(self, Standing::Closing(_))
    }

    /// The lease under which running attempts are handed over, if they are.
    pub(super) fn lease(self) -> Option<Lease> {
        match self {
            Standing::Releasing(lease) => Some(lease),
            Standing::Closing(lease) => lease,
            Standing::Serving | Standing::Stopping => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Lease = Lease { holder: SessionId(1), lease_ms: 10 };

    #[test]
    fn n8_a_release_keeps_its_lease_until_the_shard_is_closed_and_after() {
        let mut standing = Standing::Serving;
        assert!(!standing.is_stopping());
        standing.release(LEASE);
        assert!(standing.is_stopping() && standing.is_releasing() && !standing.is_closing());
        standing.stop();
        assert!(standing.is_releasing(), "a stop does not undo it");
        standing.close();
        assert!(standing.is_closing() && !standing.is_releasing());
        assert_eq!(standing.lease(), Some(LEASE));
    }

    #[test]
    fn n8_a_closing_shard_stays_closing() {
        let mut standing = Standing::Serving;
        standing.stop();
        standing.close();
        assert_eq!(standing, Standing::Closing(None));
        standing.stop();
        standing.release(LEASE);
        assert_eq!(standing, Standing::Closing(Some(LEASE)));
    }
}
