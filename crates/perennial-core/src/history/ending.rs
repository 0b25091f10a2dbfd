//! Endings: how an execution ended.

use serde::{Deserialize, Serialize};

use super::Payload;
use super::event::present;

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Ending {
    /// The code returned a result.
    OrchestrationCompleted {
        /// The result.
        output: Payload,
    },
    /// The code returned an error.
    OrchestrationFailed {
        /// The error that the code returned, as JSON.
        error: Payload,
    },
    /// The instance continues with its next execution.
    OrchestrationContinuedAsNew {
        /// The input of the next execution.
        input: Payload,
        /// The requested version; `None` for the latest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
    /// It was cancelled.
    OrchestrationCancelled {
        /// The request's reason.
        reason: String,
        /// The output passed to `end_cancelled`, if the code ended this way itself.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        output: Option<Payload>,
    },
    /// It was ended without running its code.
    OrchestrationTerminated {
        /// The reason; `timeout` if its deadline passed.
        reason: String,
    },
}

impl Ending {
    /// The names of all kinds, as they are recorded.
    pub const NAMES: [&'static str; 5] = [
        "OrchestrationCompleted",
        "OrchestrationFailed",
        "OrchestrationContinuedAsNew",
        "OrchestrationCancelled",
        "OrchestrationTerminated",
    ];

    /// The name of the kind, as it is recorded.
    pub fn name(&self) -> &'static str {
        Ending::NAMES[match self {
            Ending::OrchestrationCompleted { .. } => 0,
            Ending::OrchestrationFailed { .. } => 1,
            Ending::OrchestrationContinuedAsNew { .. } => 2,
            Ending::OrchestrationCancelled { .. } => 3,
            Ending::OrchestrationTerminated { .. } => 4,
        }]
    }
}
