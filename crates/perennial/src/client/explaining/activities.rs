//! Where an open activity stands, by its task row and the nodes.

use perennial_core::codec::{Codecs, EncodedPayload, PayloadContext};
use perennial_core::store::{TaskRow, TaskState};
use perennial_core::{ActivityOptions, Payload};

use super::nodes::{Nodes, Ownership};
use super::text::cut;
use super::wait::{ActivityState, FailedAttempt};

/// What is known around an activity.
pub(super) struct Around<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) ownership: &'a Ownership,
    pub(super) codecs: &'a Codecs,
    pub(super) scheduled_ms: u64,
    pub(super) deadline_ms: Option<u64>,
}

/// How many attempts a policy allows, if it sets a limit.
pub(super) fn max_attempts(options: Option<&ActivityOptions>) -> Option<u32> {
    let retry = options.and_then(|options| options.retry.as_ref());
    let most = retry.map_or(1, |retry| retry.max_attempts);
    (most != u32::MAX).then_some(most)
}

/// The attempt that failed last.
pub(super) fn last_failure(task: &TaskRow) -> Option<FailedAttempt> {
    let failed = task.past.iter().rev().find_map(|past| past.error.as_ref().map(|error| (past, error)));
    failed.map(|(past, error)| FailedAttempt {
        at_ms: past.ended_ms,
        // Errors are kept as JSON; one that is a text reads better without its quotes.
        error: cut(
            &Payload::from_json(error.as_str()).map_or_else(|_| error.clone(), |error| error.to_text())
        ),
        node: past.node.clone(),
    })
}

/// What happens with an activity. `queued` is how many activities are queued in the store.
pub(super) fn state(task: Option<&TaskRow>, around: &Around<'_>, queued: u64) -> ActivityState {
    let Some(task) = task else {
        return match around.ownership {
            Ownership::Live(node) => {
                ActivityState::WithOwner { node: node.clone(), since_ms: around.scheduled_ms }
            }
            Ownership::NoOwner(_) | Ownership::NoRuntime(_) => ActivityState::NotStarted,
        };
    };
    match task.state {
        TaskState::Queued => {
            let (nodes, since_ms) = (around.nodes.serving(&task.name, task.tag.as_deref()), task.since_ms);
            match nodes.is_empty() {
                true => ActivityState::NotRegistered { since_ms, nodes: around.nodes.count() },
                false => ActivityState::Queued { since_ms, nodes, queued },
            }
        }
        TaskState::Leased { holder, .. } => {
            let holder = around.nodes.holder(holder);
            // What the owner itself runs has no end, and is over with the owner.
            let owner = match (task.due_ms, around.ownership) {
                (None, Ownership::Live(node)) => Some((node.clone(), true)),
                (None, _) => Some((holder.clone().map_or_else(String::new, |(name, _)| name), false)),
                (Some(_), _) => None,
            };
            let lease_over_ms = task.due_ms.filter(|due_ms| *due_ms <= around.nodes.now_ms);
            match (owner.or(holder), lease_over_ms) {
                // Its row is written before it has a slot; other nodes take only what they have a slot for.
                (Some((node, true)), None) if task.due_ms.is_none() && task.heard_ms.is_none() => {
                    ActivityState::WithOwner { node, since_ms: task.since_ms.unwrap_or(around.scheduled_ms) }
                }
                (Some((node, true)), None) => running(task, node, around.codecs),
                (Some((node, _)), since_ms) => {
                    ActivityState::Interrupted { node: (!node.is_empty()).then_some(node), since_ms }
                }
                // Its session is over while its lease lasts: a node that stops lets its attempts end.
                (None, None) => running(task, "a node that is stopping".to_owned(), around.codecs),
                (None, since_ms) => ActivityState::Interrupted { node: None, since_ms },
            }
        }
        TaskState::Waiting => waiting(task, around),
    }
}

fn running(task: &TaskRow, node: String, codecs: &Codecs) -> ActivityState {
    let details = task.details.as_ref().map(|details| {
        let decoded = codecs.decode(details, &PayloadContext::of(task.id.key)).ok();
        // What cannot be decoded here is shown as a marker.
        let shown = decoded.or_else(|| EncodedPayload::of(details).map(|encoded| encoded.marker()));
        cut(&shown.unwrap_or_else(Payload::null).to_text())
    });
    ActivityState::Running { node, since_ms: task.since_ms, heard_ms: task.heard_ms, details }
}

fn waiting(task: &TaskRow, around: &Around<'_>) -> ActivityState {
    if let Some(since_ms) = task.waits_for_token_since_ms() {
        // It is given up at the end of all its time, too.
        let gives_up_ms = task.due_ms.into_iter().chain(around.deadline_ms).min();
        return ActivityState::Token { since_ms, gives_up_ms };
    }
    let due_ms = task.due_ms.unwrap_or(u64::MAX);
    match due_ms {
        due_ms if due_ms <= around.nodes.now_ms => ActivityState::Due { since_ms: due_ms },
        due_ms if task.interruptions > 0 || task.past.is_empty() => ActivityState::Held { due_ms },
        due_ms => ActivityState::Retry { due_ms },
    }
}
