//! What events weigh: about how many bytes they take. A function of the record alone, so that every replay weighs alike.

use super::{ActivityError, ChildError, Decision, Ending, Job, Payload};

/// What an event takes beside its texts: id, kind and field names.
const EVENT_FRAME: u64 = 64;

impl Decision {
    /// About how many bytes the decision takes in a history. A function of the record alone.
    pub(crate) fn weight(&self) -> u64 {
        let (names, payload) = self.sizes();
        EVENT_FRAME + (names + payload) as u64
    }

    /// The bytes of its payload.
    pub(crate) fn payload_size(&self) -> u64 {
        self.sizes().1 as u64
    }

    /// Its payload, if it has one.
    pub(crate) fn payload(&self) -> Option<&Payload> {
        match self {
            Decision::ActivityScheduled { input: payload, .. }
            | Decision::SubOrchestrationScheduled { input: payload, .. }
            | Decision::OrchestrationChained { input: payload, .. }
            | Decision::ExternalEventSent { payload, .. }
            | Decision::StatusSet { status: payload }
            | Decision::UpdateCompleted { result: Ok(payload) | Err(payload), .. } => Some(payload),
            _ => None,
        }
    }

    /// The bytes of its names and of its payload.
    fn sizes(&self) -> (usize, usize) {
        match self {
            Decision::ActivityScheduled { name, id, input, .. } => {
                (name.len() + id.as_ref().map_or(0, String::len), input.size())
            }
            Decision::ExternalSubscribed { name } => (name.len(), 0),
            Decision::SubOrchestrationScheduled { name, instance, input, .. } => {
                (name.len() + instance.as_ref().map_or(0, String::len), input.size())
            }
            Decision::OrchestrationChained { name, instance, input, .. } => {
                (name.len() + instance.len(), input.size())
            }
            Decision::ExternalEventSent { instance, name, payload, key, .. } => {
                (instance.len() + name.len() + key.as_ref().map_or(0, String::len), payload.size())
            }
            Decision::CancelSent { instance, reason, .. } => (instance.len() + reason.len(), 0),
            Decision::SubOrchestrationStopRequested { reason, .. } => (reason.len(), 0),
            Decision::SystemCall { op, value } => (op.len(), value.size()),
            Decision::PatchMarked { id } => (id.len(), 0),
            Decision::AttributesUpserted { attributes } => {
                (0, attributes.iter().map(|(name, value)| name.len() + value.size()).sum())
            }
            Decision::StatusSet { status } => (0, status.size()),
            Decision::UpdateCompleted { result: Ok(payload) | Err(payload), .. } => (0, payload.size()),
            Decision::ActivityCancelRequested { .. }
            | Decision::ActivityStopRequested { .. }
            | Decision::TimerCreated { .. }
            | Decision::TimerCancelled { .. }
            | Decision::ExternalUnsubscribed { .. }
            | Decision::SubOrchestrationCancelRequested { .. } => (0, 0),
        }
    }
}

impl Job {
    /// About how many bytes the job takes in a history. A function of the record alone.
    pub(crate) fn weight(&self) -> u64 {
        let text = match self {
            Job::ActivityCompleted { result, trail, .. } => result.size() + trail.size(),
            Job::SubOrchestrationCompleted { result, .. } => result.size(),
            Job::ActivityFailed { error: ActivityError::Application(error), trail, .. } => {
                error.size() + trail.size()
            }
            Job::SubOrchestrationFailed { error: ChildError::Application(error), .. } => error.size(),
            Job::SubOrchestrationFailed { error: ChildError::Cancelled { output, .. }, .. } => {
                output.as_ref().map_or(0, Payload::size)
            }
            Job::SubOrchestrationStarted { .. } | Job::DeliveryReported { .. } => 0,
            Job::ExternalEvent { name, payload, trace, .. }
            | Job::UpdateRequested { name, payload, trace, .. } => {
                name.len() + payload.size() + trace.as_ref().map_or(0, |trace| trace.size())
            }
            Job::ExternalEventSkipped { .. } => 0,
            Job::InstanceResumed { why, paused, .. } => why.size() + paused.size(),
            Job::MessageSkipped { problem, .. } => problem.len(),
            Job::OrchestrationCancelRequested { reason, .. } => reason.len(),
            Job::ActivityFailed { trail, .. } => trail.size(),
            Job::TimerFired { .. } | Job::SubOrchestrationFailed { .. } => 0,
        };
        EVENT_FRAME + text as u64
    }
}

impl Ending {
    /// Its payload, if it has one.
    pub(crate) fn payload(&self) -> Option<&Payload> {
        match self {
            Ending::OrchestrationCompleted { output: payload }
            | Ending::OrchestrationFailed { error: payload }
            | Ending::OrchestrationContinuedAsNew { input: payload, .. } => Some(payload),
            Ending::OrchestrationCancelled { output, .. } => output.as_ref(),
            Ending::OrchestrationTerminated { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g24_the_weight_of_an_activity_includes_its_own_id() {
        let scheduled = |id: Option<&str>| Decision::ActivityScheduled {
            name: "charge".to_owned(),
            id: id.map(str::to_owned),
            input: Payload::null(),
            options: None,
        };
        assert_eq!(scheduled(Some("order-42")).weight(), scheduled(None).weight() + 8);
    }
}
