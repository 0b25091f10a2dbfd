//! Reading back what the code has published about itself. Only the code changes it, so a replay reads the same values.

use crate::execution::state::Access;
use crate::history::{Attributes, Payload};

use super::OrchestrationContext;

impl OrchestrationContext {
    /// The status published last, in this execution or in an earlier one.
    pub fn published(&self) -> Option<Payload> {
        self.call("published", Access::Look, || None, |state| Ok(state.published().cloned()))
    }

    /// The search attributes of the instance: those it was started with, with the changes that the code has made since.
    pub fn attributes(&self) -> Attributes {
        self.call("attributes", Access::Look, Attributes::new, |state| Ok(state.attributes()))
    }
}
