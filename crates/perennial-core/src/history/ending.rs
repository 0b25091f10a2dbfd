//! Endings: how an execution came to its end.

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
        /// The error.
        error: Payload,
    },
    /// The instance goes on in its next execution.
    OrchestrationContinuedAsNew {
        /// What the next execution is given.
        input: Payload,
        /// The version asked for; the latest if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
    /// A cancel request ended it.
    OrchestrationCancelled {
        /// The request's reason.
        reason: String,
        /// What the code left behind, if it cleaned up and ended as cancelled by itself.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        output: Option<Payload>,
    },
    /// It was ended without running its code.
    OrchestrationTerminated {
        /// Why; `timeout` if its deadline passed.
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
