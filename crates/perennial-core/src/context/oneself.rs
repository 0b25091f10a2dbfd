//! What the code has made known of itself, read back. Only the code changes it, so a replay reads the same.

use crate::execution::state::Access;
use crate::history::{Attributes, Payload};

use super::OrchestrationContext;

impl OrchestrationContext {
    /// The status that the code published last, in this execution or in one before it.
    pub fn published(&self) -> Option<Payload> {
        self.call("published", Access::Look, || None, |state| Ok(state.published().cloned()))
    }

    /// The searchable values of the instance: those it was started with, and what the code has changed since.
    pub fn attributes(&self) -> Attributes {
        self.call("attributes", Access::Look, Attributes::new, |state| Ok(state.attributes()))
    }
}
