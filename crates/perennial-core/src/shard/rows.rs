//! Rows and answers made from turns and messages.

use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{Decision, Job, Ledger, Started, Turn};
use crate::instance::InstanceKey;
use crate::store::{InboxNumber, InstanceRow, RowChange, Status};

use super::message::Message;
use super::output::Output;
use super::request::{Answer, RequestId};
use super::slot::{Facts, Origin, Queued};

/// Why the engine ends an execution now, if it has to.
pub(super) fn overdue(ledger: &Ledger, started: &Started, now_ms: u64) -> Option<String> {
    if started.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
        return Some("timeout".to_owned());
    }
    let grace_is_over = ledger.cancel_grace_until_ms().is_some_and(|until_ms| until_ms <= now_ms);
    grace_is_over.then(|| not_done_in_time(ledger.cancel_reason().unwrap_or_default()))
}

/// Why an execution ends whose cancel's grace is over.
pub(super) fn not_done_in_time(reason: &str) -> String {
    format!("cancelled, and not done in time: {reason}")
}

/// What is stored of an instance before its first turn.
pub(super) fn nothing_stored(execution: u64) -> Facts {
    Facts {
        status: Status::Pending,
        owed: false,
        full: false,
        wake_at_ms: None,
        blocked_attempts: 0,
        blocked_cause: None,
        execution,
        version: Arc::from(""),
    }
}

/// The row of an instance that starts with its first turn.
pub(super) fn new_row(
    key: InstanceKey,
    id: &str,
    execution: &Execution,
    facts: &Facts,
    created_ms: u64,
) -> InstanceRow {
    let (started, ledger) = (execution.started(), execution.ledger());
    InstanceRow {
        status: facts.status,
        execution: facts.execution,
        owed: facts.owed,
        full: facts.full,
        wake_at_ms: facts.wake_at_ms,
        attributes: ledger.attributes().clone(),
        published: ledger.status().cloned(),
        ended_ms: facts.status.is_final().then_some(created_ms),
        ..InstanceRow::pending(key, id, started, created_ms)
    }
}

/// Adds what a turn published to the changes of a row.
pub(super) fn describe_changes(change: &mut RowChange, ledger: &Ledger, turn: &Turn) {
    for (_, _, decision) in turn.decisions() {
        match decision {
            Decision::AttributesUpserted { .. } => change.attributes = Some(ledger.attributes().clone()),
            Decision::StatusSet { .. } => change.published = Some(ledger.status().cloned()),
            _ => {}
        }
    }
}

/// The request that started the instance with these messages.
pub(super) fn start_request(messages: &[Queued]) -> Option<RequestId> {
    messages.iter().find_map(|queued| match (&queued.message, queued.origin) {
        (Message::Start(_), Origin::Caller(request)) => Some(request),
        _ => None,
    })
}

/// Answers to everyone who brought one of these messages, starts aside.
pub(super) fn replies(messages: &[Queued], answer: &Answer) -> Vec<Output> {
    let caller = |queued: &Queued| match (&queued.message, queued.origin) {
        (Message::Start(_), _) => None,
        (_, Origin::Caller(request)) => Some(Output::Reply(request, answer.clone())),
        _ => None,
    };
    messages.iter().filter_map(caller).collect()
}

/// The inbox rows that these messages came from.
pub(super) fn inbox_numbers(messages: &[Queued]) -> Vec<InboxNumber> {
    let number = |queued: &Queued| match queued.origin {
        Origin::Inbox(number) => Some(number),
        _ => None,
    };
    messages.iter().filter_map(number).collect()
}

/// The rows of these messages that are marked as urgent.
pub(super) fn urgent_numbers(messages: &[Queued]) -> Vec<InboxNumber> {
    messages.iter().filter_map(Queued::urgent_number).collect()
}

/// The rows of the retries among these messages.
pub(super) fn retry_numbers(messages: &[Queued]) -> Vec<InboxNumber> {
    let number = |queued: &Queued| match (&queued.message, queued.origin) {
        (Message::Retry, Origin::Inbox(number)) => Some(number),
        _ => None,
    };
    messages.iter().filter_map(number).collect()
}

/// When the grace of a cancel request among these messages ends.
pub(super) fn cancel_grace(messages: &[Queued]) -> Option<u64> {
    let grace = |queued: &Queued| match &queued.message {
        Message::Job(Job::OrchestrationCancelRequested { grace_until_ms, .. }) => Some(*grace_until_ms),
        _ => None,
    };
    messages.iter().filter_map(grace).min()
}

/// How the instance with these messages starts.
pub(super) fn started_of(messages: &[Queued]) -> Option<&Started> {
    messages.iter().find_map(|queued| match &queued.message {
        Message::Start(start) => Some(&start.started),
        _ => None,
    })
}
