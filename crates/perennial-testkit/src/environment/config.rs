//! What a test environment was told before it began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use perennial::ActivityHandler;

use super::script::Scripted;

/// What a test environment was told before it began.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) real: BTreeMap<String, Arc<dyn ActivityHandler>>,
    pub(super) mocked: BTreeMap<String, Arc<dyn ActivityHandler>>,
    pub(super) takes: BTreeMap<String, Duration>,
    pub(super) script: Vec<Scripted>,
    pub(super) patience: Duration,
    pub(super) replay_deadline: Duration,
}

impl Config {
    /// The code of an activity, and whether it is the real one. A mock stands before it.
    pub(super) fn activity(&self, name: &str) -> Option<(Arc<dyn ActivityHandler>, bool)> {
        let mocked = self.mocked.get(name).map(|handler| (Arc::clone(handler), false));
        mocked.or_else(|| self.real.get(name).map(|handler| (Arc::clone(handler), true)))
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            real: BTreeMap::new(),
            mocked: BTreeMap::new(),
            takes: BTreeMap::new(),
            script: Vec::new(),
            patience: Duration::from_secs(2),
            replay_deadline: Duration::from_secs(30),
        }
    }
}
