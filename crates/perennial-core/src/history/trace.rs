//! The trace context of a caller, recorded with a start, an event or an update.
//!
//! It lets tools connect an instance with the trace of the request that caused it. The code does not see it, and replay
//! does not compare it.

use serde::{Deserialize, Serialize};

use crate::instance::NameError;

/// The maximum length of a `traceparent` in bytes.
const PARENT_BYTES: usize = 128;
/// The maximum length of a `tracestate` in bytes.
const STATE_BYTES: usize = 512;

/// A trace context, in the form of the W3C headers `traceparent` and `tracestate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceContext {
    /// The `traceparent`: 1 to 128 bytes.
    pub parent: String,
    /// The `tracestate`, if there is one: up to 512 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl TraceContext {
    /// Creates a trace context. Fails if a part is empty or exceeds its maximum length; an empty state is treated as
    /// absent.
    pub fn new(parent: impl Into<String>, state: Option<&str>) -> Result<TraceContext, NameError> {
        let parent = parent.into();
        let state = state.filter(|state| !state.is_empty());
        if parent.is_empty() {
            return Err(NameError::Empty);
        }
        for (text, limit) in [(Some(&*parent), PARENT_BYTES), (state, STATE_BYTES)] {
            let text = text.unwrap_or_default();
            if text.len() > limit {
                return Err(NameError::TooLong { bytes: text.len(), limit });
            }
            if let Some(at) = text.find(char::is_control) {
                return Err(NameError::ControlCharacter { at });
            }
        }
        Ok(TraceContext { parent, state: state.map(str::to_owned) })
    }

    /// The id of the trace, as 32 hexadecimal digits; `None` if the context does not have the form of the standard.
    pub fn trace_id(&self) -> Option<&str> {
        crate::trace::SpanContext::parse(self).and_then(|_| self.parent.get(3..35))
    }

    /// The approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.parent.len() + self.state.as_ref().map_or(0, String::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o5_a_trace_context_is_kept_to_its_limits() {
        let (parent, state, long) = ("p".repeat(128), "s".repeat(512), "s".repeat(513));
        let kept = TraceContext::new(parent.clone(), Some(&state)).unwrap();
        assert_eq!((kept.parent, kept.state), (parent, Some(state)));
        assert_eq!(TraceContext::new("p", Some("")).unwrap().state, None);
        let refused = |parent: &str, state| TraceContext::new(parent, state).unwrap_err().to_string();
        assert!(refused(&"p".repeat(129), None).contains("129 bytes, 128 are allowed"));
        assert!(refused("p", Some(&*long)).contains("513 bytes, 512 are allowed"));
        assert!(refused("", None).contains("empty"));
        assert!(refused("a\nb", None).contains("control character"));
    }
}
