//! What travels to an instance through the store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::{Job, Started};

/// A message to an instance, as it is written into the inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Message {
    /// Begin.
    Start(Box<Started>),
    /// Take this job.
    Job(Job),
    /// End without running code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// Try a blocked instance again.
    Retry,
}

impl Message {
    /// The message as bytes.
    pub fn encode(&self) -> Arc<[u8]> {
        serde_json::to_vec(self).expect("a message holds nothing that JSON cannot").into()
    }

    /// The message of bytes.
    pub fn decode(bytes: &[u8]) -> Result<Message, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether a blocked instance has to look at it at once: it may cure or end it.
    pub fn is_urgent(&self) -> bool {
        matches!(self, Message::Retry | Message::Terminate { .. })
    }

    /// The key against duplicates that the message brings.
    pub fn dedupe(&self) -> Option<&str> {
        match self {
            Message::Job(job) => job.key(),
            _ => None,
        }
    }
}
