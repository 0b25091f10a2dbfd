//! The state of an open activity, from its task row and the nodes.

use perennial_core::codec::{Codecs, EncodedPayload, PayloadContext};
use perennial_core::store::{TaskRow, TaskState};
use perennial_core::{ActivityOptions, InstanceKey, Payload, Timestamp};

use super::nodes::{Nodes, Ownership};
use super::text::cut;
use super::wait::{ActivityState, FailedAttempt};

/// The circumstances of an activity.
pub(super) struct Around<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) ownership: &'a Ownership,
    pub(super) codecs: &'a Codecs,
    pub(super) scheduled: Timestamp,
    pub(super) deadline: Option<Timestamp>,
}

/// How many attempts a policy allows, if it sets a limit.
pub(super) fn max_attempts(options: Option<&ActivityOptions>) -> Option<u32> {
    let retry = options.and_then(|options| options.retry.as_ref());
    let most = retry.map_or(1, |retry| retry.max_attempts);
    (most != u32::MAX).then_some(most)
}

/// The last failed attempt.
pub(super) fn last_failure(task: &TaskRow) -> Option<FailedAttempt> {
    let failed = task.past.iter().rev().find_map(|past| past.error.as_ref().map(|error| (past, error)));
    failed.map(|(past, error)| FailedAttempt {
        at: Timestamp::from_millis(past.ended_ms),
        // Errors are stored as JSON; a text is shown without its quotes.
        error: cut(
            &Payload::from_json(error.as_str()).map_or_else(|_| error.clone(), |error| error.to_text())
        ),
        node: past.node.clone(),
    })
}

/// The state of an activity. `queued` is the number of activities that are queued in the store.
pub(super) fn state(task: Option<&TaskRow>, around: &Around<'_>, queued: u64) -> ActivityState {
    let Some(task) = task else {
        return match around.ownership {
            Ownership::Live(node) => ActivityState::WithOwner { node: node.clone(), since: around.scheduled },
            Ownership::NoOwner(_) | Ownership::NoRuntime(_) => ActivityState::NotStarted,
        };
    };
    match task.state {
        TaskState::Queued => {
            let (nodes, since) = (
                around.nodes.serving(&task.name, task.tag.as_deref()),
                task.since_ms.map(Timestamp::from_millis),
            );
            match nodes.is_empty() {
                true => ActivityState::NotRegistered { since, nodes: around.nodes.count() },
                false => ActivityState::Queued { since, nodes, queued },
            }
        }
        TaskState::Leased { holder, .. } => {
            let holder = around.nodes.holder(holder);
            // An attempt of the owner itself has no due time, and ends with the owner.
            let owner = match (task.due_ms, around.ownership) {
                (None, Ownership::Live(node)) => Some((node.clone(), true)),
                (None, _) => Some((holder.clone().map_or_else(String::new, |(name, _)| name), false)),
                (Some(_), _) => None,
            };
            let lease_over = task.due_ms.map(Timestamp::from_millis).filter(|due| *due <= around.nodes.now);
            match (owner.or(holder), lease_over) {
                // The row is written before the attempt has a slot; other nodes take only tasks that they
                // have a slot for.
                (Some((node, true)), None) if task.due_ms.is_none() && task.heard_ms.is_none() => {
                    ActivityState::WithOwner {
                        node,
                        since: task.since_ms.map_or(around.scheduled, Timestamp::from_millis),
                    }
                }
                (Some((node, true)), None) => running(task, node, around.codecs),
                (Some((node, _)), since) => {
                    ActivityState::Interrupted { node: (!node.is_empty()).then_some(node), since }
                }
                // The session has ended but the lease has not: a stopping node lets its attempts finish.
                (None, None) => running(task, "a node that is stopping".to_owned(), around.codecs),
                (None, since) => ActivityState::Interrupted { node: None, since },
            }
        }
        TaskState::Waiting => waiting(task, around),
    }
}

fn running(task: &TaskRow, node: String, codecs: &Codecs) -> ActivityState {
    let details = task.details.as_ref().map(|details| decoded_text(details, task.id.key, codecs));
    let (since, heard) =
        (task.since_ms.map(Timestamp::from_millis), task.heard_ms.map(Timestamp::from_millis));
    ActivityState::Running { node, since, heard, details }
}

/// The text of a stored payload, shortened. A payload that cannot be decoded here is shown as a marker.
pub(super) fn decoded_text(payload: &Payload, key: InstanceKey, codecs: &Codecs) -> String {
    let decoded = codecs.decode(payload, &PayloadContext::of(key)).ok();
    let shown = decoded.or_else(|| EncodedPayload::of(payload).map(|encoded| encoded.marker()));
    cut(&shown.unwrap_or_else(Payload::null).to_text())
}

fn waiting(task: &TaskRow, around: &Around<'_>) -> ActivityState {
    let due = task.due_ms.map(Timestamp::from_millis);
    if let Some(since) = task.waits_for_token_since_ms().map(Timestamp::from_millis) {
        // The deadline of all attempts ends this one, too.
        let gives_up = due.into_iter().chain(around.deadline).min();
        return ActivityState::Token { since, gives_up };
    }
    match due.unwrap_or(Timestamp::MAX) {
        due if due <= around.nodes.now => ActivityState::Due { since: due },
        due if task.interruptions > 0 || task.past.is_empty() => ActivityState::Held { due },
        due => ActivityState::Retry { due },
    }
}
