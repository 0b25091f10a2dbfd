//! What this node can run.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::shard::HandlerSource;
use perennial_core::{OrchestrationHandler, check_name};

use crate::activity::ActivityHandler;
use crate::error::StartError;

#[derive(Default)]
pub(crate) struct Registry {
    orchestrations: BTreeMap<String, BTreeMap<String, Arc<dyn OrchestrationHandler>>>,
    activities: BTreeMap<String, Arc<dyn ActivityHandler>>,
}

impl Registry {
    pub(crate) fn add_orchestration(
        &mut self,
        name: &str,
        version: &str,
        handler: Arc<dyn OrchestrationHandler>,
    ) -> Result<(), StartError> {
        check(name)?;
        check(version)?;
        let versions = self.orchestrations.entry(name.to_owned()).or_default();
        match versions.insert(version.to_owned(), handler) {
            Some(_) => Err(StartError::RegisteredTwice { what: format!("orchestration {name:?} {version}") }),
            None => Ok(()),
        }
    }

    pub(crate) fn add_activity(
        &mut self,
        name: &str,
        handler: Arc<dyn ActivityHandler>,
    ) -> Result<(), StartError> {
        check(name)?;
        match self.activities.insert(name.to_owned(), handler) {
            Some(_) => Err(StartError::RegisteredTwice { what: format!("activity {name:?}") }),
            None => Ok(()),
        }
    }

    pub(crate) fn activity(&self, name: &str) -> Option<Arc<dyn ActivityHandler>> {
        self.activities.get(name).cloned()
    }

    /// The version that a start gets.
    pub(crate) fn latest_version(&self, name: &str) -> Option<String> {
        self.orchestrations.get(name)?.keys().max_by_key(|version| numbers(version)).cloned()
    }
}

impl HandlerSource for Registry {
    fn handler(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>> {
        self.orchestrations.get(name)?.get(version).cloned()
    }
}

fn check(name: &str) -> Result<(), StartError> {
    check_name(name).map_err(|source| StartError::Name { name: name.to_owned(), source })
}

/// Versions order by their numbers: 1.10.0 comes after 1.9.0.
fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0)).collect()
}
