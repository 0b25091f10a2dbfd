//! Invariants within one history, by event.

use std::collections::BTreeMap;

use perennial_core::{Decision, EventId, EventKind, Job, Turn};

use super::{Checked, all_events, decision};

/// A scheduled operation, and its outcome.
struct Scheduled<'a> {
    decision: &'a Decision,
    completions: usize,
    cancelled: bool,
}

impl Checked<'_, '_> {
    /// Checks I1, I5, I10, I11, I12 without the engine, and the part of I3 that a single history shows.
    pub(super) fn events(&mut self, execution: u64, turns: &[Turn]) {
        self.frame(turns);
        if let Some(started) = turns.first().and_then(Turn::started)
            && started.execution != execution
        {
            self.breach("I3", format!("execution {execution} claims to be execution {}", started.execution));
        }
        let mut scheduled: BTreeMap<EventId, Scheduled<'_>> = BTreeMap::new();
        for (at_ms, event) in all_events(turns) {
            match &event.kind {
                EventKind::Job(job) => self.completion(&mut scheduled, at_ms, event.id, job),
                kind => {
                    let Some(decision) = decision(kind) else { continue };
                    if let Some(source) = cancels(decision)
                        && let Some(operation) = scheduled.get_mut(&source)
                    {
                        operation.cancelled = true;
                    }
                    scheduled.insert(event.id, Scheduled { decision, completions: 0, cancelled: false });
                }
            }
        }
    }

    fn frame(&mut self, turns: &[Turn]) {
        let ids = all_events(turns).map(|(_, event)| event.id.0);
        if let Some((expected, id)) = (1..).zip(ids).find(|(expected, id)| expected != id) {
            self.breach("I1", format!("event {id} is at position {expected}"));
        }
        if let Some(pair) = turns.windows(2).find(|pair| pair[1].at_ms < pair[0].at_ms) {
            self.breach("I11", format!("time decreases in turn {}", pair[1].number));
        }
        if let Some(turn) = turns.iter().rev().skip(1).find(|turn| turn.ending().is_some()) {
            self.breach("I3", format!("turns were committed after turn {}, which ended it", turn.number));
        }
        let is_end = |kind: &EventKind| matches!(kind, EventKind::Ended(_));
        let ends = all_events(turns).filter(|(_, event)| is_end(&event.kind)).count();
        let is_last = all_events(turns).last().is_some_and(|(_, event)| is_end(&event.kind));
        if ends > 1 || (ends == 1 && !is_last) {
            self.breach("I12", format!("{ends} terminal events, and the last event is one: {is_last}"));
        }
    }

    fn completion(
        &mut self,
        scheduled: &mut BTreeMap<EventId, Scheduled<'_>>,
        at_ms: u64,
        id: EventId,
        job: &Job,
    ) {
        let Some(source) = job.source_event_id() else { return };
        let Some(operation) = scheduled.get_mut(&source) else {
            return self.breach("I5", format!("event {id} completes {source}, which was not scheduled"));
        };
        operation.completions += 1;
        let fits = match operation.decision {
            Decision::ActivityScheduled { .. } => {
                matches!(job, Job::ActivityCompleted { .. } | Job::ActivityFailed { .. })
            }
            Decision::TimerCreated { .. } => matches!(job, Job::TimerFired { .. }),
            Decision::SubOrchestrationScheduled { .. } => {
                matches!(job, Job::SubOrchestrationCompleted { .. } | Job::SubOrchestrationFailed { .. })
            }
            Decision::OrchestrationChained { .. }
            | Decision::ExternalEventSent { .. }
            | Decision::CancelSent { .. } => matches!(job, Job::DeliveryReported { .. }),
            _ => false,
        };
        let is_timer = matches!(operation.decision, Decision::TimerCreated { .. });
        let (completions, cancelled) = (operation.completions, operation.cancelled);
        let due_ms = match operation.decision {
            Decision::TimerCreated { due_ms } => *due_ms,
            _ => 0,
        };
        if !fits || cancelled {
            self.breach("I5", format!("event {id} completes {source}, of another kind or cancelled"));
        }
        if completions > 1 {
            let invariant = if is_timer { "I10" } else { "I5" };
            self.breach(invariant, format!("{source} is completed {completions} times"));
        }
        if at_ms < due_ms {
            self.breach("I10", format!("timer {source} fired at {at_ms}, due at {due_ms}"));
        }
    }
}

/// The event that a decision cancels.
fn cancels(decision: &Decision) -> Option<EventId> {
    match decision {
        Decision::ActivityCancelRequested { source_event_id }
        | Decision::TimerCancelled { source_event_id }
        | Decision::SubOrchestrationCancelRequested { source_event_id } => Some(*source_event_id),
        _ => None,
    }
}
