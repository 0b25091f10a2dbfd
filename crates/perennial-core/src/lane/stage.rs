//! How far a lane is on its way to its end. It only ever goes forward.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It does everything.
    #[default]
    Serving,
    /// The node stops: nothing is begun for its own sake, and no shards are claimed.
    Stopping,
    /// Its shards come to rest: what the store knows is left to the next owner.
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
