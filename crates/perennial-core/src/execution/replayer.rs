//! Replays whole histories against the current code, for tests, CI and preflight checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::history::{History, HistoryError};
use crate::pattern::NamePattern;

use super::driver::Execution;
use super::failure::TurnFailure;
use super::handler::OrchestrationHandler;
use super::options::ExecutionOptions;

/// Orchestrations by name and version.
#[derive(Clone, Default)]
pub struct Handlers {
    by_name: BTreeMap<(String, String), Arc<dyn OrchestrationHandler>>,
    /// By the prefix of names.
    by_prefix: BTreeMap<(String, String), Arc<dyn OrchestrationHandler>>,
    /// The versions that starts without one get, where they are not the highest.
    start_versions: BTreeMap<String, String>,
}

impl Handlers {
    /// Adds an orchestration, or replaces the one of that name and version.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        version: impl Into<String>,
        handler: impl OrchestrationHandler,
    ) -> Handlers {
        self.by_name.insert((name.into(), version.into()), Arc::new(handler));
        self
    }

    /// Adds a shared orchestration, or replaces the one of that name and version.
    #[must_use]
    pub fn with_shared(
        mut self,
        name: impl Into<String>,
        version: impl Into<String>,
        handler: Arc<dyn OrchestrationHandler>,
    ) -> Handlers {
        self.by_name.insert((name.into(), version.into()), handler);
        self
    }

    /// Adds code for names that are not registered at its version, or replaces that of the pattern and version.
    #[must_use]
    pub fn with_fallback(
        mut self,
        pattern: &NamePattern,
        version: impl Into<String>,
        handler: Arc<dyn OrchestrationHandler>,
    ) -> Handlers {
        self.by_prefix.insert((pattern.prefix().to_owned(), version.into()), handler);
        self
    }

    /// Sets the version that starts of a name get if they ask for none, instead of the highest.
    #[must_use]
    pub fn with_start_version(mut self, name: impl Into<String>, version: impl Into<String>) -> Handlers {
        self.start_versions.insert(name.into(), version.into());
        self
    }

    /// The code of a name at a version: its own, otherwise that of the longest matching pattern.
    pub fn get(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>> {
        let own = self.by_name.get(&(name.to_owned(), version.to_owned()));
        let fallbacks =
            self.by_prefix.iter().filter(|((prefix, of), _)| name.starts_with(prefix) && of == version);
        own.or_else(|| fallbacks.max_by_key(|((prefix, _), _)| prefix.len()).map(|(_, handler)| handler))
            .cloned()
    }

    /// The version that a start gets: the one that was set, otherwise the highest version of a name, compared numerically;
    /// for a name without its own code, that of the longest matching pattern.
    pub fn latest_version(&self, name: &str) -> Option<String> {
        let of = |code: &BTreeMap<(String, String), _>, name: &str| -> Vec<String> {
            code.keys().filter(|(other, _)| other == name).map(|(_, version)| version.clone()).collect()
        };
        if let Some(version) = self.start_versions.get(name) {
            return Some(version.clone());
        }
        let mut versions = of(&self.by_name, name);
        if versions.is_empty() {
            let prefixes = self.by_prefix.keys().map(|(prefix, _)| prefix);
            let longest =
                prefixes.filter(|prefix| name.starts_with(*prefix)).max_by_key(|prefix| prefix.len())?;
            versions = of(&self.by_prefix, longest);
        }
        let numbers = |version: &String| -> Vec<u64> {
            version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
        };
        versions.into_iter().max_by_key(numbers)
    }
}

/// Replays histories, one execution at a time.
///
/// ```
/// use perennial_core::{Handlers, History, OrchestrationContext, Payload, ReplayReport, Replayer};
///
/// let handlers = Handlers::default()
///     .with("hello", "1.0.0", |_: OrchestrationContext, name: Payload| async move { Ok(name) });
/// let report = Replayer::new(handlers).replay("hello-1", &History::default());
/// assert!(matches!(report, ReplayReport::Unusable(_)), "an empty history is no history");
/// ```
pub struct Replayer {
    handlers: Handlers,
}

/// The result of replaying one history.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayReport {
    /// The code makes the recorded decisions in every turn.
    Compatible {
        /// How many turns were replayed.
        turns: u64,
        /// How many events were replayed.
        events: u64,
    },
    /// The code diverges or fails.
    Incompatible(TurnFailure),
    /// The code is not registered.
    MissingHandler {
        /// The orchestration.
        name: String,
        /// The version that the history is pinned to.
        version: String,
    },
    /// The history cannot be replayed by any code.
    Unusable(HistoryError),
}

impl ReplayReport {
    /// Whether the history can continue with this code.
    pub fn is_compatible(&self) -> bool {
        matches!(self, ReplayReport::Compatible { .. })
    }
}

impl Replayer {
    /// Creates a replayer with these orchestrations.
    pub fn new(handlers: Handlers) -> Replayer {
        Replayer { handlers }
    }

    /// Replays one execution from its first turn to its last.
    pub fn replay(&self, instance: &str, history: &History) -> ReplayReport {
        match self.hydrate(instance, history) {
            Ok(execution) => {
                let (turns, events) = (execution.ledger().turns(), execution.ledger().events());
                ReplayReport::Compatible { turns, events }
            }
            Err(report) => report,
        }
    }

    /// Replays one execution and returns it, ready for its next turn.
    #[allow(clippy::result_large_err, reason = "the report is the answer, not an exception")]
    pub fn hydrate(&self, instance: &str, history: &History) -> Result<Execution, ReplayReport> {
        let Some(started) = history.started() else {
            let problem = "a history begins with OrchestrationStarted";
            return Err(ReplayReport::Unusable(crate::history::CorruptHistory::turn(1, problem).into()));
        };
        let Some(handler) = self.handlers.get(&started.name, &started.version) else {
            let (name, version) = (started.name.clone(), started.version.clone());
            return Err(ReplayReport::MissingHandler { name, version });
        };
        let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
        let mut execution =
            Execution::new(instance, handler, started.clone(), options).map_err(ReplayReport::Unusable)?;
        for turn in history {
            execution.replay_turn(turn).map_err(|failure| match failure {
                TurnFailure::History(
                    error @ (HistoryError::Corrupt(_) | HistoryError::NewerEngine { .. }),
                ) => ReplayReport::Unusable(error),
                failure => ReplayReport::Incompatible(failure),
            })?;
        }
        Ok(execution)
    }
}
