//! Exported instances: one JSON object per line.

use perennial_core::store::Status;
use perennial_core::{History, Turn};
use serde::{Deserialize, Serialize};

/// An instance with all its executions. An export file contains one per line, as JSON.
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
    /// The id of the instance.
    pub id: String,
    /// The name of the orchestration.
    pub name: String,
    /// The version of the last execution.
    pub version: String,
    /// The status at the time of the export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The executions, oldest first.
    pub executions: Vec<ExportedExecution>,
}

/// One execution of an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedExecution {
    /// The number of the execution: 1, and one more with each continue-as-new.
    pub execution: u64,
    /// The recorded turns.
    pub turns: Vec<Turn>,
}

impl ExportedExecution {
    /// Converts the turns into a history.
    pub fn into_history(self) -> History {
        History { turns: self.turns }
    }
}
