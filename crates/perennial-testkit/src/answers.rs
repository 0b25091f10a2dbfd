//! Jobs that a world sends to a program: outcomes of open operations, and stale or misplaced jobs.

use perennial_core::{
    ActivityError, ChildError, Decision, Delivery, EventId, Job, Ledger, Payload, TimeoutKind, Turn,
};

use crate::Rng;

/// Outcomes for one execution, with the jobs that are stale by now.
#[derive(Default)]
pub(crate) struct Answers {
    /// Recorded jobs, and outcomes of cancelled operations: sent now, they are stale.
    stale: Vec<Job>,
}

impl Answers {
    pub(crate) fn note(&mut self, turn: &Turn) {
        let repeatable = |job: &Job| job.source_event_id().is_some() || job.key().is_some();
        self.stale.extend(turn.jobs().map(|(_, job)| job.clone()).filter(repeatable));
        let late = turn.decisions().filter_map(|(_, _, decision)| match decision {
            Decision::ActivityCancelRequested { source_event_id } => Some(Job::ActivityCompleted {
                source_event_id: *source_event_id,
                result: Payload::from("too late"),
                attempts: 1,
                trail: Default::default(),
            }),
            Decision::TimerCancelled { source_event_id } => {
                Some(Job::TimerFired { source_event_id: *source_event_id })
            }
            _ => None,
        });
        self.stale.extend(late);
    }

    /// Outcomes of some open operations, up to a portion, in any order.
    pub(crate) fn some(&self, rng: &mut Rng, ledger: &Ledger, portion: usize) -> Vec<Job> {
        let mut open: Vec<_> = ledger.open().collect();
        rng.shuffle(&mut open);
        let count = 1 + rng.below(open.len().clamp(1, portion));
        let answered = open.into_iter().take(count);
        answered.map(|(id, decision)| answer(rng, id, decision)).collect()
    }

    /// A job that must have no effect: stale, of the wrong kind, or without a target.
    pub(crate) fn out_of_place(&self, rng: &mut Rng, ledger: &Ledger, jobs: &[Job]) -> Option<Job> {
        let open: Vec<_> = ledger.open().collect();
        match rng.below(5) {
            0 if !jobs.is_empty() => {
                Some(rng.pick(jobs).clone()).filter(|job| job.source_event_id().is_some())
            }
            1 | 2 if !self.stale.is_empty() => Some(rng.pick(&self.stale).clone()),
            3 if !open.is_empty() => Some(wrong_kind(*rng.pick(&open))),
            _ => Some(Job::TimerFired { source_event_id: EventId(ledger.events() + 1_000) }),
        }
    }
}

fn answer(rng: &mut Rng, source_event_id: EventId, open: &Decision) -> Job {
    match open {
        Decision::ActivityScheduled { .. } if rng.percent(20) => Job::ActivityFailed {
            source_event_id,
            error: activity_failure(rng),
            attempts: 3,
            trail: Default::default(),
        },
        Decision::ActivityScheduled { .. } => Job::ActivityCompleted {
            source_event_id,
            result: payload(rng),
            attempts: 1,
            trail: Default::default(),
        },
        Decision::TimerCreated { .. } => Job::TimerFired { source_event_id },
        Decision::SubOrchestrationScheduled { options: Some(options), .. }
            if options.reports_start && rng.percent(60) =>
        {
            Job::SubOrchestrationStarted { source_event_id }
        }
        Decision::SubOrchestrationScheduled { .. } if rng.percent(30) => {
            Job::SubOrchestrationFailed { source_event_id, error: child_failure(rng) }
        }
        Decision::SubOrchestrationScheduled { .. } => {
            Job::SubOrchestrationCompleted { source_event_id, result: payload(rng) }
        }
        Decision::ExternalSubscribed { name } => event(rng, name),
        Decision::OrchestrationChained { .. } => {
            let outcome = *rng.pick(&[Delivery::Delivered, Delivery::AlreadyExists, Delivery::BadId]);
            Job::DeliveryReported { source_event_id, outcome }
        }
        Decision::ExternalEventSent { .. } | Decision::CancelSent { .. } => {
            let outcome = *rng.pick(&[Delivery::Delivered, Delivery::NotFound, Delivery::Ended]);
            Job::DeliveryReported { source_event_id, outcome }
        }
        other => unreachable!("{} opens nothing", other.name()),
    }
}

fn wrong_kind((source_event_id, open): (EventId, &Decision)) -> Job {
    match open {
        Decision::TimerCreated { .. } => Job::ActivityCompleted {
            source_event_id,
            result: Payload::null(),
            attempts: 1,
            trail: Default::default(),
        },
        Decision::ActivityScheduled { .. } => {
            Job::SubOrchestrationCompleted { source_event_id, result: Payload::null() }
        }
        _ => Job::TimerFired { source_event_id },
    }
}

/// An event, sometimes with an idempotency key.
pub(crate) fn event(rng: &mut Rng, name: &str) -> Job {
    Job::ExternalEvent {
        name: name.to_owned(),
        payload: payload(rng),
        key: rng.percent(30).then(|| format!("key-{}", rng.draw())),
        trace: None,
    }
}

/// A payload of any shape. Some have a format that our encoder would not produce.
pub(crate) fn payload(rng: &mut Rng) -> Payload {
    let number = rng.draw();
    let small = number % 100;
    let text = match rng.below(8) {
        0 => "null".to_owned(),
        1 => number.to_string(),
        2 => format!("-{small}.50"),
        3 => format!("\"text {small} \\u00e9 🌱\""),
        4 => format!("[{small}, [true, null], {{}}]"),
        5 => format!("{{ \"b\" : {small}, \"a\" : \"x\" }}"),
        6 => format!("{{\"nested\":{{\"list\":[{small},\"{small}\"]}}}}"),
        _ => format!("\"{small}\""),
    };
    Payload::from_json(text).expect("it is JSON")
}

fn activity_failure(rng: &mut Rng) -> ActivityError {
    match rng.below(5) {
        0 => ActivityError::Timeout(TimeoutKind::Attempt),
        1 => ActivityError::Cancelled,
        2 => ActivityError::Poisoned,
        _ => ActivityError::Application(payload(rng)),
    }
}

fn child_failure(rng: &mut Rng) -> ChildError {
    let reason = "the test cancelled it".to_owned();
    match rng.below(5) {
        0 => ChildError::Cancelled { reason, output: rng.percent(50).then(|| payload(rng)) },
        1 => ChildError::Terminated { reason },
        2 => ChildError::NotStarted { reason },
        _ => ChildError::Application(payload(rng)),
    }
}
