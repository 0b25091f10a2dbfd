//! Delivering jobs to the code: waves, handlers, skipped events, and the unread jobs that continue-as-new carries over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use crate::history::{
    ChildError, DRAWN_KEY_PREFIX, Decision, Event, EventId, EventKind, Job, Payload, UnitId,
};

use super::mailbox::{Arrival, Arrived, EventHandler};
use super::operations::Completion;
use super::recorder::{Emitted, Fate};
use super::scheduler::UnitFuture;
use super::state::{CancelHandler, ExecutionState};

impl ExecutionState {
    /// Removes the events that this turn skips, before any code runs. Returns the first one that cannot be skipped.
    pub(crate) fn skip_events(&mut self, jobs: &[Event]) -> Option<(EventId, EventId)> {
        self.skipped.clear();
        for event in jobs {
            let EventKind::Job(Job::ExternalEventSkipped { event_id }) = event.kind else { continue };
            let is_here = jobs.iter().any(|other| is_external(other, event_id));
            let is_skipped =
                if is_here { self.skipped.insert(event_id) } else { self.mailbox.skip(event_id) };
            if !is_skipped {
                return Some((event.id, event_id));
            }
        }
        None
    }

    /// Starts the unit of a handler, runnable in the next round. Its event or update counts as unread until the unit's
    /// first step.
    fn dispatch(&mut self, future: UnitFuture, job: Option<(EventId, Job)>) {
        let id = self.scheduler.next_handler_id();
        self.scheduler.add(id.clone(), future, None, &self.flags);
        if let Some((event, job)) = job {
            self.scheduler.mark_unread(&id, event, job);
        }
    }

    /// Starts an event handler for one event.
    pub(crate) fn dispatch_event(&mut self, handler: &EventHandler, name: &str, arrived: Arrived) {
        let Arrived { id, payload, key, trace } = arrived;
        let (handler, input) = (Arc::clone(handler), payload.clone());
        let job = Job::ExternalEvent { name: name.to_owned(), payload, key, trace };
        self.dispatch(Box::pin(async move { handler(input).await }), Some((id, job)));
    }

    /// How many jobs, from the first on, form the next wave.
    pub(crate) fn wave_length(&self, jobs: &[Event]) -> usize {
        let mut ahead = BTreeMap::new();
        let Some(first) = jobs.first().and_then(|job| self.branch_of(job, &mut ahead)) else {
            return 1;
        };
        if first.is_root() || jobs.len() == 1 {
            return 1;
        }
        let mut targets = BTreeSet::from([first]);
        for job in &jobs[1..] {
            let Some(unit) = self.branch_of(job, &mut ahead) else { break };
            let has_ancestor = unit.ancestors().any(|ancestor| targets.contains(&ancestor));
            let has_descendant_or_self = targets
                .range::<&UnitId, _>(unit..)
                .next()
                .is_some_and(|other| unit.is_ancestor_or_self_of(other));
            if has_ancestor || has_descendant_or_self {
                break;
            }
            targets.insert(unit);
        }
        targets.len()
    }

    /// The unit that a job is delivered to, if it completes a polled future. `ahead` counts the events of each name
    /// that are already in the wave: they are received by the waits before this one's.
    fn branch_of<'a>(&self, event: &'a Event, ahead: &mut BTreeMap<&'a str, usize>) -> Option<&UnitId> {
        let EventKind::Job(job) = &event.kind else { return None };
        let token = match job {
            Job::ExternalEvent { .. } if self.skipped.contains(&event.id) => None,
            Job::ExternalEvent { name, .. } => {
                let before = ahead.entry(name).or_default();
                let token = self.mailbox.next_wait(name, *before);
                *before += 1;
                token
            }
            job => self.recipient(job),
        };
        token.and_then(|token| self.poller(token))
    }

    /// Delivers one job. Returns the wakers to wake.
    pub(crate) fn deliver(&mut self, id: EventId, job: &Job) -> Vec<Waker> {
        let completed = |source: &EventId, completion| (*source, completion);
        let (source, completion) = match job {
            Job::ActivityCompleted { source_event_id, result, .. } => {
                completed(source_event_id, Completion::Activity(Ok(result.clone())))
            }
            Job::ActivityFailed { source_event_id, error, .. } => {
                completed(source_event_id, Completion::Activity(Err(error.clone())))
            }
            Job::TimerFired { source_event_id } => completed(source_event_id, Completion::Timer),
            Job::SubOrchestrationCompleted { source_event_id, result } => {
                completed(source_event_id, Completion::Child(Ok(result.clone()), None))
            }
            Job::SubOrchestrationFailed { source_event_id, error } => {
                completed(source_event_id, Completion::Child(Err(error.clone()), None))
            }
            Job::DeliveryReported { source_event_id, outcome } => {
                completed(source_event_id, Completion::Delivery(*outcome))
            }
            Job::SubOrchestrationStarted { source_event_id } => {
                return self.complete_start(*source_event_id, id, Ok(())).into_iter().collect();
            }
            Job::ExternalEventSkipped { .. } | Job::InstanceResumed { .. } | Job::MessageSkipped { .. } => {
                return Vec::new();
            }
            Job::ExternalEvent { .. } if self.skipped.contains(&id) => return Vec::new(),
            Job::ExternalEvent { name, payload, key, trace } => {
                let (payload, key, trace) = (payload.clone(), key.clone(), trace.clone());
                let arrived = Arrived { id, payload, key, trace };
                return self.deliver_event(name, arrived);
            }
            Job::OrchestrationCancelRequested { reason, .. } => return self.deliver_cancel(reason),
            Job::UpdateRequested { name, payload, .. } => {
                self.deliver_update(id, name, payload.clone(), job);
                return Vec::new();
            }
        };
        // A child that could not be started, or that ended before its start was reported, completes both futures.
        let start = match &completion {
            Completion::Child(Err(error @ ChildError::NotStarted { .. }), _) => {
                self.complete_start(source, id, Err(error.clone()))
            }
            Completion::Child(..) => self.complete_start(source, id, Ok(())),
            _ => None,
        };
        start.into_iter().chain(self.complete(source, id, completion)).collect()
    }

    fn deliver_event(&mut self, name: &str, arrived: Arrived) -> Vec<Waker> {
        let (id, key, trace) = (arrived.id, arrived.key.clone(), arrived.trace.clone());
        let arrival = self.mailbox.arrive(name, arrived);
        let waker = self.hold(&arrival);
        if let Arrival::Handle(handler, payload) = arrival {
            self.dispatch_event(&handler, name, Arrived { id, payload, key, trace });
        }
        waker.into_iter().collect()
    }

    fn deliver_update(&mut self, id: EventId, name: &str, payload: Payload, job: &Job) {
        match self.updates.get(name) {
            Some((_, handler)) => {
                let handler = Arc::clone(handler);
                let unit = Box::pin(async move { handler(id, payload).await });
                self.dispatch(unit, Some((id, job.clone())));
            }
            None => {
                let error = format!("no handler for update {name:?}");
                let decision =
                    Decision::UpdateCompleted { source_event_id: id, result: Err(Payload::from(error)) };
                let emitted =
                    Emitted { unit: UnitId::ROOT, decision, token: None, fate: Fate::Stands, location: None };
                self.step.push(emitted);
            }
        }
    }

    /// Keeps a handler for a cancel request, or starts it if cancellation was already requested.
    pub(crate) fn add_cancel_handler(&mut self, handler: Option<CancelHandler>) {
        let Some(handler) = handler else { return };
        if self.cancel.requested.is_some() {
            self.dispatch(Box::pin(async move { handler().await }), None);
        } else {
            self.cancel.handlers.push((self.unit.clone(), handler));
        }
    }

    /// Notifies code that took over cancellation. The driver ends code that did not.
    fn deliver_cancel(&mut self, reason: &str) -> Vec<Waker> {
        if !self.cancel.taken_over || self.cancel.requested.is_some() {
            return Vec::new();
        }
        self.cancel.requested = Some(reason.to_owned());
        let mut handlers = std::mem::take(&mut self.cancel.handlers);
        handlers.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (_, handler) in handlers {
            self.dispatch(Box::pin(async move { handler().await }), None);
        }
        self.cancel.condition.take_all(&mut self.scheduler)
    }

    /// The jobs that continue-as-new carries over, in order: unread events, and updates whose handler has not started.
    pub(crate) fn carried_jobs(&self, undelivered: &[Event]) -> Vec<(EventId, Job)> {
        let mut jobs: Vec<(EventId, Job)> = self.mailbox.unread().chain(self.scheduler.unread()).collect();
        let undelivered = undelivered.iter().filter(|event| !self.skipped.contains(&event.id));
        jobs.extend(undelivered.filter_map(|event| match &event.kind {
            EventKind::Job(job @ (Job::ExternalEvent { .. } | Job::UpdateRequested { .. })) => {
                Some((event.id, job.clone()))
            }
            _ => None,
        }));
        jobs.sort_by_key(|(id, _)| *id);
        for (id, job) in &mut jobs {
            // A caller that waits for the reply finds the update in the next execution by its key.
            if let Job::UpdateRequested { key: key @ None, .. } = job {
                *key = Some(format!("{DRAWN_KEY_PREFIX}carried.{}.{id}", self.started.execution));
            }
        }
        jobs
    }

    /// The cancel request that code took over, which continue-as-new carries over before everything else, with the rest
    /// of its grace period.
    pub(crate) fn carried_cancel(&self) -> Option<Job> {
        let cancel = self.ledger.cancel_request()?;
        let grace_ms = cancel.until_ms().saturating_sub(self.ledger.last_at_ms());
        Some(Job::OrchestrationCancelRequested { reason: cancel.reason.clone(), grace_ms })
    }
}

/// Whether this is the external event with the id.
pub(crate) fn is_external(event: &Event, id: EventId) -> bool {
    event.id == id && matches!(event.kind, EventKind::Job(Job::ExternalEvent { .. }))
}
