//! Instances as files hold them: one JSON object per line.

use perennial_core::store::Status;
use perennial_core::{History, Turn};
use serde::{Deserialize, Serialize};

/// An instance with all its executions. Files of histories hold one per line, as JSON.
///
/// ```
/// use perennial::client::ExportedInstance;
///
/// let line = r#"{"id":"order-1","name":"checkout","version":"1.0.0","executions":[]}"#;
/// let instance: ExportedInstance = serde_json::from_str(line)?;
/// assert_eq!(instance.name, "checkout");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedInstance {
    /// Its id.
    pub id: String,
    /// The orchestration.
    pub name: String,
    /// The orchestration's version, of the last execution.
    pub version: String,
    /// Where it stood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Its executions, the first one first.
    pub executions: Vec<ExportedExecution>,
}

/// One execution of an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedExecution {
    /// 1, 2, 3, … with each continue-as-new.
    pub execution: u64,
    /// Its turns, as they are recorded.
    pub turns: Vec<Turn>,
}

impl ExportedExecution {
    /// The turns as a history.
    pub fn into_history(self) -> History {
        History { turns: self.turns }
    }
}
