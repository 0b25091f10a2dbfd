//! The stage of a lane on its way to its end. It only ever advances.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Full service.
    #[default]
    Serving,
    /// The node stops: no new work is started from the store, and no shards are claimed.
    Stopping,
    /// Its shards come to rest: everything known to the store is left to the next owner.
    Closing,
    /// The store cannot be trusted any more: nothing is done.
    Failed,
}

impl Stage {
    pub(super) fn advance(&mut self, to: Stage) {
        *self = (*self).max(to);
    }

    pub(super) fn is_stopping(self) -> bool {
        self >= Stage::Stopping
    }

    pub(super) fn is_closing(self) -> bool {
        self >= Stage::Closing
    }

    pub(super) fn is_failed(self) -> bool {
        self == Stage::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g31_a_lane_that_closes_or_has_failed_does_not_serve_again() {
        let mut stage = Stage::default();
        assert!(!stage.is_stopping());
        stage.advance(Stage::Closing);
        stage.advance(Stage::Stopping);
        assert!(stage.is_stopping() && stage.is_closing() && !stage.is_failed());
        stage.advance(Stage::Failed);
        stage.advance(Stage::Closing);
        assert!(stage.is_failed());
    }
}
