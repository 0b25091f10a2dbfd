//! Settings of a test environment, fixed before its first start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use perennial::ActivityHandler;

use super::mocks::Planned;
use super::script::Scripted;

#[derive(Clone)]
pub(super) struct Config {
    pub(super) mocked: BTreeMap<String, Arc<dyn ActivityHandler>>,
    pub(super) takes: BTreeMap<String, Duration>,
    pub(super) script: Vec<Scripted>,
    /// Planned outcomes of the first attempts of activities, in order, each with its number of attempts.
    pub(super) planned: BTreeMap<String, Vec<(u64, Planned)>>,
    /// Real activities that run on the virtual clock.
    pub(super) virtual_time: BTreeSet<String>,
    pub(super) real_time_limit: Duration,
    pub(super) turn_limit: u64,
    pub(super) time_limit_ms: u64,
    pub(super) replay_deadline: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mocked: BTreeMap::new(),
            takes: BTreeMap::new(),
            script: Vec::new(),
            planned: BTreeMap::new(),
            virtual_time: BTreeSet::new(),
            real_time_limit: Duration::from_secs(60),
            turn_limit: 10_000,
            time_limit_ms: 1_000 * 365 * 86_400_000,
            replay_deadline: Duration::from_secs(30),
        }
    }
}
