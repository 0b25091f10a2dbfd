//! The operations of an execution, brought forward turn by turn. A timeline that was read once costs only its new turns
//! afterwards.
//!
//! Nothing here is hidden or cut: the view decides what a caller sees.

mod view;

use std::collections::BTreeMap;

use perennial::history::{
    ActivityError, ChildError, Decision, EventId, EventKind, Job, Started, Trail, Turn, child_id,
};

pub(crate) use view::{Shown, schema};

/// How many bytes of an error are kept.
const ERROR_BYTES: usize = 1_024;

/// What is known of an execution after some of its turns.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    operations: BTreeMap<EventId, Operation>,
    /// Waits for events that have not come, by name, in order.
    waits: BTreeMap<String, Vec<EventId>>,
    turns: Vec<TurnMark>,
    /// About how many bytes this takes.
    bytes: usize,
    /// The first event, which tells which execution started a child.
    started: Option<Box<Started>>,
}

/// A turn, with what is needed to find its events and why it was taken.
#[derive(Clone, Copy, Debug)]
struct TurnMark {
    at_ms: u64,
    first_event: u64,
    /// The last operation that one of its jobs ended.
    woken_by: Option<EventId>,
}

#[derive(Clone, Debug)]
struct Operation {
    kind: &'static str,
    name: String,
    unit: Option<String>,
    turn: u64,
    scheduled_ms: u64,
    due_ms: Option<u64>,
    ended_ms: Option<u64>,
    ended_by: Option<EventId>,
    outcome: &'static str,
    error: Option<String>,
    /// The child, or the instance that was started or sent to.
    instance: Option<String>,
    trail: Trail,
}

impl Timeline {
    /// How many turns were read.
    pub(crate) fn last_turn(&self) -> u64 {
        self.turns.len() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The turn that recorded an event, as far as turns were read.
    pub(crate) fn turn_of(&self, event: EventId) -> Option<u64> {
        let after = self.turns.partition_point(|turn| turn.first_event <= event.0);
        // The last turn may have more events than are known to be before the next one.
        (after > 0 && after < self.turns.len()).then_some(after as u64)
    }

    /// Adds the next turn of the instance with an id.
    pub(crate) fn note(&mut self, id: &str, turn: &Turn) {
        if let Some(started) = turn.started() {
            self.started = Some(Box::new(Started { input: perennial::Payload::null(), ..started.clone() }));
        }
        let first_event = turn.events.first().map_or(u64::MAX, |event| event.id.0);
        self.turns.push(TurnMark { at_ms: turn.at_ms, first_event, woken_by: None });
        self.bytes += size_of::<TurnMark>();
        for event in &turn.events {
            match &event.kind {
                EventKind::Job(job) => self.note_job(turn, event.id, job),
                EventKind::Decision { unit, decision } => {
                    let unit = (!unit.is_root()).then(|| unit.to_string());
                    self.note_decision(id, turn, event.id, unit, decision);
                }
                EventKind::Started(_) | EventKind::Ended(_) => {}
            }
        }
    }

    fn note_job(&mut self, turn: &Turn, id: EventId, job: &Job) {
        match job {
            Job::ActivityCompleted { source_event_id, trail, .. } => {
                self.add_trail(*source_event_id, trail);
                self.wake(turn, *source_event_id, id, "completed", None);
            }
            Job::ActivityFailed { source_event_id, trail, error, .. } => {
                self.add_trail(*source_event_id, trail);
                let outcome = if *error == ActivityError::Cancelled { "cancelled" } else { "failed" };
                self.wake(turn, *source_event_id, id, outcome, Some(activity_error(error)));
            }
            Job::SubOrchestrationFailed { source_event_id, error } => {
                self.wake(turn, *source_event_id, id, "failed", Some(child_error(error)));
            }
            Job::TimerFired { source_event_id }
            | Job::SubOrchestrationCompleted { source_event_id, .. }
            | Job::DeliveryReported { source_event_id, .. } => {
                self.wake(turn, *source_event_id, id, "completed", None);
            }
            Job::ExternalEvent { name, .. } => {
                if let Some(waits) = self.waits.get_mut(name).filter(|waits| !waits.is_empty()) {
                    let wait = waits.remove(0);
                    self.wake(turn, wait, id, "completed", None);
                }
            }
            Job::UpdateRequested { name, .. } => {
                self.add(id, Operation::new("update", name, turn));
            }
            _ => {}
        }
    }

    fn note_decision(
        &mut self,
        instance: &str,
        turn: &Turn,
        id: EventId,
        unit: Option<String>,
        decision: &Decision,
    ) {
        let begun = |kind, name: &str| Operation { unit, ..Operation::new(kind, name, turn) };
        let operation = match decision {
            Decision::ActivityScheduled { name, .. } => begun("activity", name),
            Decision::TimerCreated { due_ms } => Operation { due_ms: Some(*due_ms), ..begun("timer", "") },
            Decision::ExternalSubscribed { name } => {
                self.waits.entry(name.clone()).or_default().push(id);
                begun("event", name)
            }
            Decision::SubOrchestrationScheduled { name, instance: given, .. } => {
                let starter = self.started.as_ref().map_or(1, |started| started.starter_of(id));
                let child = given.clone().unwrap_or_else(|| child_id(instance, starter, id));
                Operation { instance: Some(child), ..begun("child", name) }
            }
            Decision::OrchestrationChained { name, instance, .. } => {
                let instance = Some(instance.clone());
                Operation { outcome: "completed", instance, ..begun("start", name) }
            }
            Decision::ExternalEventSent { name, instance, .. } => {
                let instance = Some(instance.clone());
                Operation { outcome: "completed", instance, ..begun("send", name) }
            }
            Decision::UpdateCompleted { source_event_id, result } => {
                let error = result.as_ref().err().map(|error| cut(error.as_json()));
                let outcome = if error.is_none() { "completed" } else { "failed" };
                return self.end(*source_event_id, turn.at_ms, id, outcome, error);
            }
            Decision::ActivityCancelRequested { source_event_id }
            | Decision::TimerCancelled { source_event_id }
            | Decision::ExternalUnsubscribed { source_event_id }
            | Decision::SubOrchestrationCancelRequested { source_event_id } => {
                self.waits.values_mut().for_each(|waits| waits.retain(|wait| wait != source_event_id));
                return self.end(*source_event_id, turn.at_ms, id, "cancelled", None);
            }
            _ => return,
        };
        self.add(id, operation);
    }

    fn add(&mut self, id: EventId, operation: Operation) {
        let texts = operation.name.len()
            + operation.unit.as_ref().map_or(0, String::len)
            + operation.instance.as_ref().map_or(0, String::len);
        self.bytes += size_of::<Operation>() + 64 + texts;
        self.operations.insert(id, operation);
    }

    /// A job ended an operation, which is why the turn was taken.
    fn wake(
        &mut self,
        turn: &Turn,
        operation: EventId,
        by: EventId,
        outcome: &'static str,
        error: Option<String>,
    ) {
        if let Some(mark) = self.turns.last_mut() {
            mark.woken_by = Some(operation);
        }
        self.end(operation, turn.at_ms, by, outcome, error);
    }

    fn end(
        &mut self,
        operation: EventId,
        at_ms: u64,
        by: EventId,
        outcome: &'static str,
        error: Option<String>,
    ) {
        let Some(operation) = self.operations.get_mut(&operation) else { return };
        self.bytes += error.as_ref().map_or(0, String::len);
        (operation.ended_ms, operation.ended_by, operation.outcome) = (Some(at_ms), Some(by), outcome);
        operation.error = error;
    }

    fn add_trail(&mut self, operation: EventId, trail: &Trail) {
        if let Some(operation) = self.operations.get_mut(&operation) {
            let texts = trail.iter().map(|past| past.error.as_ref().map_or(0, String::len) + 96);
            self.bytes += texts.sum::<usize>();
            operation.trail = trail.clone();
        }
    }
}

impl Operation {
    fn new(kind: &'static str, name: &str, turn: &Turn) -> Operation {
        Operation {
            kind,
            name: name.to_owned(),
            unit: None,
            turn: turn.number,
            scheduled_ms: turn.at_ms,
            due_ms: None,
            ended_ms: None,
            ended_by: None,
            outcome: "open",
            error: None,
            instance: None,
            trail: Trail::default(),
        }
    }
}

fn activity_error(error: &ActivityError) -> String {
    match error {
        ActivityError::Application(error) => cut(error.as_json()),
        error => cut(&error.to_string()),
    }
}

fn child_error(error: &ChildError) -> String {
    match error {
        ChildError::Application(error) => cut(error.as_json()),
        error => cut(&error.to_string()),
    }
}

fn cut(text: &str) -> String {
    let end = (0..=ERROR_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}
