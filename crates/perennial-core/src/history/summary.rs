//! Events in a line, for reports, tables and tests.
//!
//! A summary shows the beginning of payloads. It is for the person who looks at an instance, never for a log.

use super::{ActivityError, ChildError, Decision, Ending, Event, EventKind, Job, Payload, UnitId};

/// How much of a payload or name is shown.
const SHOWN_CHARS: usize = 60;

impl Event {
    /// The event in a line: its kind, what it refers to, and the beginning of its payload.
    pub fn summary(&self) -> String {
        match &self.kind {
            EventKind::Started(started) => {
                format!("{} {} {}", self.kind.name(), started.name, shown(&started.input))
            }
            EventKind::Job(job) => job.summary(),
            EventKind::Decision { unit, decision } => decision.summary(unit),
            EventKind::Ended(ending) => ending.summary(),
        }
    }
}

impl Job {
    /// The event in a line.
    pub fn summary(&self) -> String {
        let name = self.name();
        match self {
            Job::ActivityCompleted { source_event_id, result, .. }
            | Job::SubOrchestrationCompleted { source_event_id, result } => {
                format!("{name} of {source_event_id} {}", shown(result))
            }
            Job::ActivityFailed { source_event_id, error, .. } => match error {
                ActivityError::Application(error) => {
                    format!("{name} of {source_event_id} {}", shown(error))
                }
                other => format!("{name} of {source_event_id} {other:?}"),
            },
            Job::SubOrchestrationFailed { source_event_id, error } => match error {
                ChildError::Application(error) => format!("{name} of {source_event_id} {}", shown(error)),
                other => {
                    format!("{name} of {source_event_id} {}", shorten(&format!("{other:?}"), SHOWN_CHARS))
                }
            },
            Job::DeliveryReported { source_event_id, outcome } => {
                format!("{name} of {source_event_id} {outcome:?}")
            }
            Job::TimerFired { source_event_id } | Job::SubOrchestrationStarted { source_event_id } => {
                format!("{name} of {source_event_id}")
            }
            Job::ExternalEvent { name: event, payload, .. }
            | Job::UpdateRequested { name: event, payload, .. } => {
                format!("{name} {} {}", quoted(event), shown(payload))
            }
            Job::ExternalEventSkipped { event_id } => format!("{name} {event_id}"),
            Job::InstanceResumed { why, paused, .. } => format!("{name} {why}; paused {paused}"),
            Job::MessageSkipped { number, problem } => format!("{name} {number}: {problem}"),
            Job::OrchestrationCancelRequested { reason, .. } => format!("{name} {}", quoted(reason)),
        }
    }
}

impl Decision {
    /// The event in a line.
    pub(crate) fn summary(&self, unit: &UnitId) -> String {
        let name = self.name();
        let line = match self {
            Decision::ActivityScheduled { name: activity, input, .. } => {
                format!("{name} {} {}", quoted(activity), shown(input))
            }
            Decision::ActivityCancelRequested { source_event_id }
            | Decision::ActivityStopRequested { source_event_id }
            | Decision::TimerCancelled { source_event_id }
            | Decision::ExternalUnsubscribed { source_event_id }
            | Decision::SubOrchestrationCancelRequested { source_event_id } => {
                format!("{name} of {source_event_id}")
            }
            Decision::SubOrchestrationStopRequested { source_event_id, reason, .. } => {
                format!("{name} of {source_event_id} {}", quoted(reason))
            }
            Decision::CancelSent { instance, reason, .. } => {
                format!("{name} to {} {}", quoted(instance), quoted(reason))
            }
            Decision::TimerCreated { due_ms } => format!("{name} due {due_ms}"),
            Decision::ExternalSubscribed { name: event } => format!("{name} {}", quoted(event)),
            Decision::SubOrchestrationScheduled { name: child, version, instance, input, .. } => {
                let version = version.as_deref().unwrap_or("latest");
                let instance = instance.as_deref().map_or_else(|| "derived id".to_owned(), quoted);
                format!("{name} {} {version} as {instance} {}", quoted(child), shown(input))
            }
            Decision::OrchestrationChained { name: started, version, instance, input, .. } => {
                let version = version.as_deref().unwrap_or("latest");
                format!("{name} {} {version} as {} {}", quoted(started), quoted(instance), shown(input))
            }
            Decision::ExternalEventSent { instance, name: event, payload, key, .. } => {
                let once = key.as_ref().map_or_else(String::new, |key| format!(" once {}", quoted(key)));
                format!("{name} {} to {} {}{once}", quoted(event), quoted(instance), shown(payload))
            }
            Decision::SystemCall { op, .. } => format!("{name} {}", quoted(op)),
            Decision::PatchMarked { id } => format!("{name} {}", quoted(id)),
            Decision::AttributesUpserted { attributes } => {
                let values: Vec<String> =
                    attributes.iter().map(|(name, value)| format!("{name}={}", value.as_json())).collect();
                format!("{name} {}", shorten(&values.join(", "), SHOWN_CHARS))
            }
            Decision::StatusSet { status } => format!("{name} {}", shown(status)),
            Decision::UpdateCompleted { source_event_id, result: Ok(payload) } => {
                format!("{name} of {source_event_id} {}", shown(payload))
            }
            Decision::UpdateCompleted { source_event_id, result: Err(payload) } => {
                format!("{name} of {source_event_id} refused {}", shown(payload))
            }
        };
        if unit.is_root() { line } else { format!("{line} in {unit}") }
    }
}

impl Ending {
    /// The event in a line.
    pub fn summary(&self) -> String {
        let name = self.name();
        match self {
            Ending::OrchestrationCompleted { output } => format!("{name} {}", shown(output)),
            Ending::OrchestrationFailed { error } => format!("{name} {}", shown(error)),
            Ending::OrchestrationContinuedAsNew { input, version } => {
                format!("{name} {} {}", version.as_deref().unwrap_or("latest"), shown(input))
            }
            Ending::OrchestrationCancelled { reason, output: Some(output) } => {
                format!("{name} {} {}", quoted(reason), shown(output))
            }
            Ending::OrchestrationCancelled { reason, output: None }
            | Ending::OrchestrationTerminated { reason } => {
                format!("{name} {}", quoted(reason))
            }
        }
    }
}

fn shown(payload: &Payload) -> String {
    shorten(payload.as_json(), SHOWN_CHARS)
}

fn quoted(text: &str) -> String {
    format!("{:?}", shorten(text, SHOWN_CHARS))
}

/// At most `width` characters of a text, on one line.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    if text.chars().nth(width).is_none() {
        return text.chars().map(one_line).collect();
    }
    text.chars().take(width - 1).map(one_line).chain(['…']).collect()
}
