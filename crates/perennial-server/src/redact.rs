//! Removes texts that may quote payloads, for callers from whom payloads are hidden. Payloads themselves are hidden by the
//! formatter of answers.

use perennial::InstanceView;
use perennial::client::Blocked;
use perennial::explain::{Explanation, Wait, WaitReason};

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

fn wait(wait: &mut Wait) {
    match &mut wait.reason {
        WaitReason::Activity(activity) => {
            if let Some(failed) = &mut activity.failed {
                failed.error = HIDDEN.to_owned();
                wait.text = format!("activity `{}`, attempt {}", activity.name, activity.attempt);
            }
        }
        WaitReason::Child { id, waits, .. } => {
            wait.text = format!("child {id:?}");
            waits.iter_mut().for_each(self::wait);
        }
        _ => {}
    }
}
