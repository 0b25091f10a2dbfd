//! Removes texts that may quote payloads, for callers from whom payloads are hidden. Payloads themselves are hidden by the
//! formatter of answers.

use perennial::InstanceView;
use perennial::client::{Blocked, ExportedInstance, InstanceDetails};
use perennial::explain::{ActivityState, Explanation, PastState, Wait, WaitReason};
use perennial::history::{Event, EventKind, Job, PastAttempt, Trail};

/// Shown instead of an error that an activity returned.
const HIDDEN: &str = "hidden";

pub(crate) fn instance(view: &mut InstanceView) {
    if let Some(blocked) = &mut view.blocked {
        redact_blocked(blocked);
    }
}

fn redact_blocked(blocked: &mut Blocked) {
    blocked.report.clone_from(&blocked.reason);
    if let Some(divergence) = &mut blocked.divergence {
        divergence.neighbourhood.clear();
        for side in [&mut divergence.recorded, &mut divergence.code] {
            side.line.clone_from(&side.kind);
        }
    }
}

pub(crate) fn explanation(explanation: &mut Explanation) {
    explanation.ending = None;
    explanation.waits.iter_mut().for_each(wait);
}

/// An event without the errors of attempts, which are texts and not payloads of their own.
pub(crate) fn event(event: &mut Event) {
    let EventKind::Job(Job::ActivityCompleted { trail, .. } | Job::ActivityFailed { trail, .. }) =
        &mut event.kind
    else {
        return;
    };
    let hidden = |past: &PastAttempt| {
        let error = past.error.as_ref().map(|_| HIDDEN.to_owned());
        PastAttempt { error, ..past.clone() }
    };
    *trail = trail.iter().map(hidden).fold(Trail::default(), Trail::and);
}

pub(crate) fn exported(instance: &mut ExportedInstance) {
    let turns = instance.executions.iter_mut().flat_map(|execution| &mut execution.turns);
    turns.flat_map(|turn| &mut turn.events).for_each(event);
}

pub(crate) fn past_state(state: &mut PastState) {
    state.ending = None;
    state.waits.iter_mut().for_each(wait);
}

pub(crate) fn details(details: &mut InstanceDetails) {
    instance(&mut details.instance);
    details.waits_for.iter_mut().for_each(wait);
}

pub(crate) fn wait(wait: &mut Wait) {
    match &mut wait.reason {
        WaitReason::Activity(activity) => {
            let (name, attempt) = (&activity.name, activity.attempt);
            let mut hide = || wait.text = format!("activity `{name}`, attempt {attempt}");
            if let Some(failed) = &mut activity.failed {
                failed.error = HIDDEN.to_owned();
                hide();
            }
            // What an attempt reports is a payload, too.
            if let ActivityState::Running { details: details @ Some(_), .. } = &mut activity.state {
                *details = None;
                hide();
            }
        }
        WaitReason::Child { id, waits, .. } => {
            wait.text = format!("child {id:?}");
            waits.iter_mut().for_each(self::wait);
        }
        _ => {}
    }
}
