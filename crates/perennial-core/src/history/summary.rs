//! One-line summaries of events, for reports, tables and tests.
//!
//! A summary shows the beginning of payloads. It is meant for a person who looks at an instance, never for a log.

use super::{ActivityError, ChildError, Decision, Ending, Event, EventKind, Job, Payload, UnitId};

/// How many characters of a payload or name are shown.
const SHOWN_CHARS: usize = 60;

impl Event {
    /// The event in one line: its kind, what it refers to, and the beginning of its payload.
    pub fn summary(&self) -> String {
        self.words(SHOWN_CHARS)
    }

    /// The event on one line, with payloads and names in full.
    pub fn full_summary(&self) -> String {
        self.words(usize::MAX)
    }

    fn words(&self, width: usize) -> String {
        match &self.kind {
            EventKind::Started(started) => {
                format!("{} {} {}", self.kind.name(), started.name, shown(width, &started.input))
            }
            EventKind::Job(job) => job.words(width),
            EventKind::Decision { unit, decision } => decision.words(unit, width),
            EventKind::Ended(ending) => ending.words(width),
        }
    }
}

impl Job {
    /// The event in one line.
    pub fn summary(&self) -> String {
        self.words(SHOWN_CHARS)
    }

    fn words(&self, width: usize) -> String {
        let name = self.name();
        match self {
            Job::ActivityCompleted { source_event_id, result, .. }
            | Job::SubOrchestrationCompleted { source_event_id, result } => {
                format!("{name} of {source_event_id} {}", shown(width, result))
            }
            Job::ActivityFailed { source_event_id, error, .. } => match error {
                ActivityError::Application(error) => {
                    format!("{name} of {source_event_id} {}", shown(width, error))
                }
                other => format!("{name} of {source_event_id} {other:?}"),
            },
            Job::SubOrchestrationFailed { source_event_id, error } => match error {
                ChildError::Application(error) => {
                    format!("{name} of {source_event_id} {}", shown(width, error))
                }
                other => {
                    format!("{name} of {source_event_id} {}", shorten(&format!("{other:?}"), width))
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
                format!("{name} {} {}", quoted(width, event), shown(width, payload))
            }
            Job::ExternalEventSkipped { event_id } => format!("{name} {event_id}"),
            Job::InstanceResumed { why, paused, .. } => format!("{name} {why}; paused {paused}"),
            Job::MessageSkipped { number, problem } => format!("{name} {number}: {problem}"),
            Job::OrchestrationCancelRequested { reason, .. } => format!("{name} {}", quoted(width, reason)),
        }
    }
}

impl Decision {
    /// The event in one line.
    pub(crate) fn summary(&self, unit: &UnitId) -> String {
        self.words(unit, SHOWN_CHARS)
    }

    fn words(&self, unit: &UnitId, width: usize) -> String {
        let name = self.name();
        let line = match self {
            Decision::ActivityScheduled { name: activity, id, input, .. } => {
                let id = id.as_ref().map_or_else(String::new, |id| format!("with id {} ", quoted(width, id)));
                format!("{name} {} {id}{}", quoted(width, activity), shown(width, input))
            }
            Decision::ActivityCancelRequested { source_event_id }
            | Decision::ActivityStopRequested { source_event_id }
            | Decision::TimerCancelled { source_event_id }
            | Decision::ExternalUnsubscribed { source_event_id }
            | Decision::SubOrchestrationCancelRequested { source_event_id } => {
                format!("{name} of {source_event_id}")
            }
            Decision::SubOrchestrationStopRequested { source_event_id, reason, .. } => {
                format!("{name} of {source_event_id} {}", quoted(width, reason))
            }
            Decision::CancelSent { instance, reason, .. } => {
                format!("{name} to {} {}", quoted(width, instance), quoted(width, reason))
            }
            Decision::TimerCreated { due_ms } => format!("{name} due {due_ms}"),
            Decision::ExternalSubscribed { name: event } => format!("{name} {}", quoted(width, event)),
            Decision::SubOrchestrationScheduled { name: child, version, instance, input, .. } => {
                let version = version.as_deref().unwrap_or("latest");
                let instance =
                    instance.as_deref().map_or_else(|| "derived id".to_owned(), |id| quoted(width, id));
                format!("{name} {} {version} as {instance} {}", quoted(width, child), shown(width, input))
            }
            Decision::OrchestrationChained { name: started, version, instance, input, .. } => {
                let version = version.as_deref().unwrap_or("latest");
                format!(
                    "{name} {} {version} as {} {}",
                    quoted(width, started),
                    quoted(width, instance),
                    shown(width, input)
                )
            }
            Decision::ExternalEventSent { instance, name: event, payload, key, .. } => {
                let once =
                    key.as_ref().map_or_else(String::new, |key| format!(" once {}", quoted(width, key)));
                format!(
                    "{name} {} to {} {}{once}",
                    quoted(width, event),
                    quoted(width, instance),
                    shown(width, payload)
                )
            }
            Decision::SystemCall { op, .. } => format!("{name} {}", quoted(width, op)),
            Decision::PatchMarked { id } => format!("{name} {}", quoted(width, id)),
            Decision::AttributesUpserted { attributes } => {
                let values: Vec<String> =
                    attributes.iter().map(|(name, value)| format!("{name}={}", value.as_json())).collect();
                format!("{name} {}", shorten(&values.join(", "), width))
            }
            Decision::StatusSet { status } => format!("{name} {}", shown(width, status)),
            Decision::UpdateCompleted { source_event_id, result: Ok(payload) } => {
                format!("{name} of {source_event_id} {}", shown(width, payload))
            }
            Decision::UpdateCompleted { source_event_id, result: Err(payload) } => {
                format!("{name} of {source_event_id} refused {}", shown(width, payload))
            }
        };
        if unit.is_root() { line } else { format!("{line} in {unit}") }
    }
}

impl Ending {
    /// The event in one line.
    pub fn summary(&self) -> String {
        self.words(SHOWN_CHARS)
    }

    fn words(&self, width: usize) -> String {
        let name = self.name();
        match self {
            Ending::OrchestrationCompleted { output } => format!("{name} {}", shown(width, output)),
            Ending::OrchestrationFailed { error } => format!("{name} {}", shown(width, error)),
            Ending::OrchestrationContinuedAsNew { input, version } => {
                format!("{name} {} {}", version.as_deref().unwrap_or("latest"), shown(width, input))
            }
            Ending::OrchestrationCancelled { reason, output: Some(output) } => {
                format!("{name} {} {}", quoted(width, reason), shown(width, output))
            }
            Ending::OrchestrationCancelled { reason, output: None }
            | Ending::OrchestrationTerminated { reason } => {
                format!("{name} {}", quoted(width, reason))
            }
        }
    }
}

fn shown(width: usize, payload: &Payload) -> String {
    shorten(payload.as_json(), width)
}

fn quoted(width: usize, text: &str) -> String {
    format!("{:?}", shorten(text, width))
}

/// At most `width` characters of a text, on one line.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    if text.chars().nth(width).is_none() {
        return text.chars().map(one_line).collect();
    }
    text.chars().take(width - 1).map(one_line).chain(['…']).collect()
}
