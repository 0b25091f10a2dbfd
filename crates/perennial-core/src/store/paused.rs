//! The paused orchestrations: a setting that clients write and every node reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::Why;
use crate::timestamp::Timestamp;

use super::blocked::Pause;

/// The paused orchestrations, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PausedOrchestrations(BTreeMap<String, PausedOrchestration>);

/// When and why an orchestration was paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedOrchestration {
    /// When it was paused, by the store's clock.
    pub since_ms: u64,
    /// The reason, and who gave it.
    #[serde(default)]
    pub why: Why,
}

impl PausedOrchestration {
    /// When it was paused.
    pub fn since(&self) -> Timestamp {
        Timestamp::from_millis(self.since_ms)
    }
}

impl PausedOrchestrations {
    /// The name of the setting.
    pub const SETTING: &'static str = "paused_orchestrations";

    /// Decodes the setting's value.
    pub fn decode(value: Option<&[u8]>) -> Result<PausedOrchestrations, serde_json::Error> {
        value.map_or_else(|| Ok(PausedOrchestrations::default()), serde_json::from_slice)
    }

    /// The setting's value; `None` if nothing is paused.
    pub fn encode(&self) -> Option<Arc<[u8]>> {
        let text = || serde_json::to_vec(self).expect("names, times and texts encode");
        (!self.0.is_empty()).then(|| Arc::from(text()))
    }

    /// Pauses an orchestration. If it is already paused, its time is kept.
    pub fn pause(&mut self, name: &str, since_ms: u64, why: Why) {
        let paused = self.0.entry(name.to_owned()).or_default();
        let since_ms = if paused.since_ms == 0 { since_ms } else { paused.since_ms };
        *paused = PausedOrchestration { since_ms, why };
    }

    /// Resumes an orchestration. Returns whether it was paused.
    pub fn resume(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// Whether an orchestration is paused.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// When and why an orchestration was paused.
    pub fn get(&self, name: &str) -> Option<&PausedOrchestration> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PausedOrchestration)> {
        self.0.iter().map(|(name, paused)| (name.as_str(), paused))
    }

    /// The pause of the instances of an orchestration, if it is paused.
    pub(crate) fn pause_of(&self, name: &str) -> Option<Pause> {
        self.0.get(name).map(|paused| Pause { why: paused.why.clone(), orchestration: true })
    }

    /// Whether an orchestration that was paused before is not paused now.
    pub(crate) fn resumes(&self, before: &PausedOrchestrations) -> bool {
        before.0.keys().any(|name| !self.contains(name))
    }
}
