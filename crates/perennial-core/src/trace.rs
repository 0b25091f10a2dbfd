//! Distributed traces: the ids of spans, and the program's own source of them.
//!
//! Perennial describes its spans through [`tracing`], with their ids as fields; it contains no exporter. A layer such as
//! that of `perennial-otel` turns them into spans of OpenTelemetry. Until a [`TraceSource`] is set, the only span is that
//! of an attempt, for the log, and recorded contexts are passed on unchanged.
//!
//! The ids of spans that other spans refer to follow from the history. So an attempt finds the span of the turn that
//! scheduled it after a crash and on another node, without anything being stored for it.

use std::fmt;
use std::sync::OnceLock;

use crate::fnv::Fnv1a;
use crate::history::{EventId, TraceContext};
use crate::instance::InstanceKey;

/// Connects Perennial with the traces of the program that it is part of. Set once per process, with [`set_source`].
pub trait TraceSource: Send + Sync + 'static {
    /// The context of the current span, if it belongs to a trace. Starts, events and updates without an explicit context
    /// carry it.
    fn current(&self) -> Option<TraceContext>;

    /// Whether a trace that begins here is sampled. The decision is recorded with the start and holds for everything that
    /// follows from it.
    fn samples(&self, trace_id: u128) -> bool {
        let _ = trace_id;
        true
    }
}

static SOURCE: OnceLock<Box<dyn TraceSource>> = OnceLock::new();

/// A source was set before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process has a source of traces already")]
pub struct SourceAlreadySet;

/// Sets the source of traces of this process. From then on Perennial emits its spans.
pub fn set_source(source: impl TraceSource) -> Result<(), SourceAlreadySet> {
    SOURCE.set(Box::new(source)).map_err(|_| SourceAlreadySet)
}

/// What was set with [`set_source`], if anything was.
pub fn source() -> Option<&'static dyn TraceSource> {
    SOURCE.get().map(|source| &**source)
}

/// The place of a span in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// Shared by all spans of the trace.
    pub trace_id: u128,
    /// Unique within the trace.
    pub span_id: u64,
    /// The flags of the `traceparent`; the lowest one says that the trace is sampled.
    pub flags: u8,
    /// The `tracestate` of the caller, passed on unchanged.
    pub state: Option<String>,
}

const SAMPLED: u8 = 1;

impl SpanContext {
    /// The beginning of a trace.
    pub fn root(trace_id: u128, span_id: u64, is_sampled: bool) -> SpanContext {
        SpanContext { trace_id, span_id, flags: if is_sampled { SAMPLED } else { 0 }, state: None }
    }

    /// Reads a recorded context; `None` if it is not a `traceparent` of the W3C's form.
    pub fn parse(context: &TraceContext) -> Option<SpanContext> {
        let mut parts = context.parent.split('-');
        let mut hex = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            u128::from_str_radix(part, 16).ok().filter(|_| is_hex)
        };
        let (version, trace_id, span_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // Later versions may append parts.
        let is_known = if version == 0 { parts.next().is_none() } else { version != 0xff };
        let (span_id, flags) = (u64::try_from(span_id).ok()?, u8::try_from(flags).ok()?);
        let is_valid = is_known && trace_id != 0 && span_id != 0;
        is_valid.then(|| SpanContext { trace_id, span_id, flags, state: context.state.clone() })
    }

    /// Whether the spans of the trace are emitted.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn with_span(&self, span_id: u64) -> SpanContext {
        SpanContext { span_id, ..self.clone() }
    }

    /// The text of the `traceparent` header.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", TraceId(self.trace_id), SpanId(self.span_id), self.flags & SAMPLED)
    }

    /// The form in which it is recorded.
    pub fn to_context(&self) -> Box<TraceContext> {
        Box::new(TraceContext { parent: self.traceparent(), state: self.state.clone() })
    }
}

/// The id of a trace, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The id of a span, shown as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The id of a turn's span.
pub fn turn_span_id(key: InstanceKey, execution: u64, turn: u64) -> u64 {
    derived(b"turn", key, [execution, turn, 0])
}

/// The id of a turn that failed at a time. The turn that is recorded later has its own.
pub(crate) fn failed_turn_span_id(key: InstanceKey, execution: u64, turn: u64, now_ms: u64) -> u64 {
    derived(b"failed", key, [execution, turn, now_ms])
}

/// The id of an attempt's span.
pub fn attempt_span_id(key: InstanceKey, execution: u64, event: EventId, attempt: u32) -> u64 {
    derived(b"attempt", key, [execution, event.0, u64::from(attempt)])
}

/// The id of the span that starts an instance or an execution because of an event of this one.
pub(crate) fn start_span_id(key: InstanceKey, execution: u64, event: EventId) -> u64 {
    derived(b"start", key, [execution, event.0, 0])
}

/// The context of an instance or execution that begins a trace of its own because of an event of this one.
pub(crate) fn new_trace(key: InstanceKey, execution: u64, event: EventId, is_sampled: bool) -> SpanContext {
    let (trace_id, span_id) = new_trace_ids(key, execution, event);
    SpanContext::root(trace_id, span_id, is_sampled)
}

/// The event that stands for the caller of an execution that was started without a context.
pub(crate) const CALLER: EventId = EventId(0);

/// The context of an execution that was started without one: this process decides whether it is sampled.
pub(crate) fn unasked(key: InstanceKey, execution: u64) -> Option<SpanContext> {
    let source = source()?;
    let (trace_id, span_id) = new_trace_ids(key, execution, CALLER);
    Some(SpanContext::root(trace_id, span_id, source.samples(trace_id)))
}

fn new_trace_ids(key: InstanceKey, execution: u64, event: EventId) -> (u128, u64) {
    let half = |number| u128::from(derived(b"trace", key, [execution, event.0, number]));
    (half(0) << 64 | half(1), start_span_id(key, execution, event))
}

/// An id that follows from what it names. Keys are random, so the ids are spread like random ones.
fn derived(kind: &[u8], key: InstanceKey, numbers: [u64; 3]) -> u64 {
    let mut hash = Fnv1a::default();
    hash.write(kind);
    hash.write(key.as_bytes());
    numbers.iter().for_each(|number| hash.write(&number.to_le_bytes()));
    // The finalizer of SplitMix64: neighbouring turns get ids that differ in all bits.
    let mixed = hash.finish();
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    // Zero is not an id.
    (mixed ^ mixed >> 31).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn parsed(parent: &str) -> Option<SpanContext> {
        SpanContext::parse(&TraceContext::new(parent, None).expect("it is short"))
    }

    #[test]
    fn o5_a_traceparent_is_read_as_the_standard_says() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = parsed(text).expect("it is valid");
        assert_eq!(context.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((context.span_id, context.is_sampled()), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(context.traceparent(), text);
        assert!(!parsed(&text.replace("-01", "-00")).expect("it is valid").is_sampled());
        assert_eq!(parsed(&text.replace("00-0af", "01-0af").replace("-01", "-01-more")), parsed(text));
        let refused = [
            "00-1-2-01".to_owned(),
            text.to_uppercase(),
            format!("{text}-more"),
            text.replace("00-0af", "ff-0af"),
            text.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            text.replace("b7ad6b7169203331", &"0".repeat(16)),
            text.replace("b7ad", "+7ad"),
            "é".repeat(30),
        ];
        for refused in refused {
            assert_eq!(parsed(&refused), None, "{refused}");
        }
    }

    #[test]
    fn o7_ids_of_spans_follow_from_what_they_name_and_differ() {
        let keys = [InstanceKey::new(1, 2), InstanceKey::new(1, 3)];
        let all = || {
            let numbers = (1..4).flat_map(|execution| (1..50).map(move |number| (execution, number)));
            keys.iter().flat_map(move |key| {
                numbers.clone().flat_map(|(execution, number)| {
                    let event = EventId(number);
                    [
                        turn_span_id(*key, execution, number),
                        start_span_id(*key, execution, event),
                        attempt_span_id(*key, execution, event, 1),
                        attempt_span_id(*key, execution, event, 2),
                        failed_turn_span_id(*key, execution, number, 7),
                    ]
                })
            })
        };
        let ids: BTreeSet<u64> = all().collect();
        assert_eq!(ids.len(), all().count(), "no id twice");
        assert_eq!(ids, all().collect(), "the same every time");
        // Fixed for ever: nodes of different versions have to agree.
        assert_eq!(turn_span_id(keys[0], 1, 1), 0x6393_325d_337b_224f);
    }
}
