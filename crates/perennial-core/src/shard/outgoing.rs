//! What a turn sends to other instances: starts of children and detached instances, cancel requests, events, outcomes
//! for parents.
//!
//! All of it is part of the turn's commit. A child's key is derived from its schedule event, so that a parent reaches
//! exactly its own child, even if another instance gets the id later.

use crate::code::ErrorCode;
use crate::execution::Stream;
use crate::flaws::{self, Flaw};
use crate::fnv::Fnv1a;
use crate::history::whole_ms;
use crate::history::{
    ChildError, ClosePolicy, Decision, Delivery, Ending, EventId, Job, Ledger, OnTakenId, ParentLink,
    Started, Turn,
};
use crate::instance::{InstanceKey, NameError, ShardId, check_derived_id, check_name};
use crate::log;
use crate::store::{DeliveryReport, InstanceRow, Outgoing};

use super::message::{Message, Start};
use super::shared::Shared;
use super::spans;

/// The sending instance.
pub(super) struct Sender<'a> {
    pub(super) key: InstanceKey,
    pub(super) id: &'a str,
    pub(super) started: &'a Started,
    /// The turn that sends, if it has a span.
    pub(super) turn: Option<u64>,
}

/// The key of the instance that a schedule event starts. It sorts after its parent's key, and the keys of one turn sort
/// in schedule order.
pub fn child_key(parent: InstanceKey, execution: u64, event: EventId, at_ms: u64) -> InstanceKey {
    let mut hash = Fnv1a::default();
    hash.write(parent.as_bytes());
    hash.write(&execution.to_le_bytes());
    hash.write(&event.0.to_le_bytes());
    let low = u128::from(hash.finish()) & ((1 << 62) - 1);
    let place = u128::from(event.0 & 0xfff) << 62;
    InstanceKey::new(at_ms.max(parent.created_ms() + 1), place | low)
}

/// The id of a child whose parent did not choose one.
pub fn child_id(parent: &str, execution: u64, event: EventId) -> String {
    format!("{parent}::{execution}.{event}")
}

/// What a turn sends. The ledger is that of the execution after the turn.
pub(super) fn outgoing(
    shared: &mut Shared,
    from: &Sender<'_>,
    ledger: &Ledger,
    turn: &Turn,
) -> Vec<Outgoing> {
    let mut send = Vec::new();
    let ending = turn.ending();
    for (event, _, decision) in turn.decisions() {
        match decision {
            // A child that the end of its parent would cancel in the same turn is not started.
            Decision::SubOrchestrationScheduled { close: ClosePolicy::Cancel, .. } if ending.is_some() => {}
            Decision::SubOrchestrationScheduled { .. } => {
                send.extend(start_child(from, event, turn.at_ms, decision));
            }
            Decision::SubOrchestrationCancelRequested { source_event_id } => {
                send.extend(cancel_child(shared, from, ledger, *source_event_id, None));
            }
            Decision::SubOrchestrationStopRequested { source_event_id, reason, grace_ms } => {
                let wanted = Some((reason.as_str(), *grace_ms));
                send.extend(cancel_child(shared, from, ledger, *source_event_id, wanted));
            }
            sent => send.extend(send_other(shared, from, event, turn.at_ms, sent)),
        }
    }
    if let Some(ending) = ending {
        send.extend(parting(shared, from, ledger, ending, turn));
    }
    send
}

/// What a decision sends to an instance that is not a child: a start, an event or a cancel request. Other decisions
/// send nothing.
pub(super) fn send_other(
    shared: &mut Shared,
    from: &Sender<'_>,
    event: EventId,
    at_ms: u64,
    decision: &Decision,
) -> Option<Outgoing> {
    match decision {
        Decision::OrchestrationChained { name, version, instance, input, reported } => {
            if let Err(error) = check_name(instance) {
                shared.counters.undelivered += 1;
                tracing::warn!(
                    target: log::INSTANCE,
                    instance = from.id,
                    execution = from.started.execution,
                    event = event.0,
                    %error,
                    "detached start refused: its id cannot be used"
                );
                let told =
                    || to_key(from.key, ShardId::of(from.id), &reported_as(from, event, Delivery::BadId));
                return reported.then(told);
            }
            let (version, seed) =
                (version.clone().unwrap_or_default(), Stream::derived_seed(from.started, event));
            let trace = spans::of_detached(from, event);
            let started = Started { trace, ..Started::new(name.as_str(), version, input.clone(), seed) };
            let told = |delivery| reported.then(|| reported_as(from, event, delivery));
            let told = Told {
                taken: told(Delivery::AlreadyExists),
                started: told(Delivery::Delivered),
                replaces_ended: false,
            };
            Some(start(from, event, at_ms, instance, started, &told))
        }
        Decision::ExternalEventSent { instance, name, payload, key, reported } => {
            let (name, payload, trace) = (name.clone(), payload.clone(), spans::of_sent_event(from));
            let message = Message::Job(Job::ExternalEvent { name, payload, key: key.clone(), trace });
            Some(to_id(instance, &message, reported.then(|| report(from, event))))
        }
        Decision::CancelSent { instance, reason, grace_ms, reported } => {
            let grace_ms = grace_ms.unwrap_or(whole_ms(shared.options.cancel_grace));
            let job = Job::OrchestrationCancelRequested { reason: reason.clone(), grace_ms };
            Some(to_id(instance, &Message::Job(job), reported.then(|| report(from, event))))
        }
        _ => None,
    }
}

/// The start of the child that a decision schedules, or the failure reported to its parent if the id is not valid.
pub(super) fn start_child(
    from: &Sender<'_>,
    event: EventId,
    at_ms: u64,
    decision: &Decision,
) -> Vec<Outgoing> {
    let Decision::SubOrchestrationScheduled { name, version, instance, input, options, .. } = decision else {
        return Vec::new();
    };
    let options = options.as_deref().cloned().unwrap_or_default();
    let parent = ParentLink {
        instance: from.id.to_owned(),
        key: from.key.to_string(),
        execution: from.started.execution,
        event_id: event,
    };
    let checked = match instance {
        Some(id) => check_name(id).map(|()| id.clone()),
        None => derived_id(from, event),
    };
    let id = match checked {
        Ok(id) => id,
        Err(error) => {
            let reason = ErrorCode::ChildIdRefused.message(error);
            return vec![to_key(from.key, ShardId::of(from.id), &not_started(from, event, reason))];
        }
    };
    let version = version.clone().unwrap_or_default();
    let started = Started {
        parent: Some(parent),
        deadline_ms: options.timeout_ms.map(|ms| at_ms.saturating_add(ms)),
        trace: spans::of_child(from, event),
        ..Started::new(name.as_str(), version, input.clone(), Stream::derived_seed(from.started, event))
    };
    let reason = ErrorCode::ChildIdTaken.message(format_args!("an instance {id:?} exists"));
    let job = Job::SubOrchestrationStarted { source_event_id: event };
    let told = Told {
        taken: Some(not_started(from, event, reason)),
        started: options.reports_start.then(|| outcome(from, job)),
        replaces_ended: options.on_existing != OnTakenId::Reject,
    };
    let way = (options.on_existing == OnTakenId::TerminateAndReplace).then(|| make_way(from, &id));
    way.into_iter().chain([start(from, event, at_ms, &id, started, &told)]).collect()
}

/// What an ending execution sends to its children and, if the instance ends with it, to its parent.
pub(super) fn parting(
    shared: &Shared,
    from: &Sender<'_>,
    ledger: &Ledger,
    ending: &Ending,
    turn: &Turn,
) -> Vec<Outgoing> {
    let first = turn.events.first().map_or(EventId(u64::MAX), |event| event.id);
    let is_left = |(event, open): &(EventId, &Decision)| {
        *event < first
            && matches!(open, Decision::SubOrchestrationScheduled { close: ClosePolicy::Cancel, .. })
    };
    let children: Vec<EventId> = ledger.open().filter(is_left).map(|(event, _)| event).collect();
    let mut send: Vec<Outgoing> =
        children.into_iter().filter_map(|event| cancel_child(shared, from, ledger, event, None)).collect();
    send.extend(outcome_for_parent(from.started, ending));
    if flaws::is(Flaw::OutcomeTwice) {
        send.extend(outcome_for_parent(from.started, ending));
    }
    send
}

/// Requests cancellation of a child, with a reason and a grace period if its parent still waits for it.
pub(super) fn cancel_child(
    shared: &Shared,
    from: &Sender<'_>,
    ledger: &Ledger,
    event: EventId,
    wanted: Option<(&str, Option<u64>)>,
) -> Option<Outgoing> {
    let starter = from.started.starter_of(event);
    let key = child_key(from.key, starter, event, ledger.scheduled_at_ms(event)?);
    let no_longer = || format!("its parent {} no longer waits for it", from.id);
    let grace_ms = wanted.and_then(|(_, grace_ms)| grace_ms).unwrap_or(whole_ms(shared.options.cancel_grace));
    let reason = wanted.map_or_else(no_longer, |(reason, _)| reason.to_owned());
    let job = Job::OrchestrationCancelRequested { reason, grace_ms };
    let shard = ledger.child_shard(event).unwrap_or_else(|| ShardId::of(&child_id(from.id, starter, event)));
    Some(to_key(key, shard, &Message::Job(job)))
}

fn derived_id(from: &Sender<'_>, event: EventId) -> Result<String, NameError> {
    let id = child_id(from.id, from.started.execution, event);
    check_derived_id(&id).map(|()| id)
}

fn not_started(from: &Sender<'_>, source_event_id: EventId, reason: String) -> Message {
    let error = ChildError::NotStarted { reason };
    outcome(from, Job::SubOrchestrationFailed { source_event_id, error })
}

fn outcome(from: &Sender<'_>, job: Job) -> Message {
    Message::Outcome { execution: from.started.execution, job }
}

/// The report to the sender.
fn reported_as(from: &Sender<'_>, source_event_id: EventId, delivery: Delivery) -> Message {
    outcome(from, Job::DeliveryReported { source_event_id, outcome: delivery })
}

fn report(from: &Sender<'_>, event: EventId) -> Box<DeliveryReport> {
    let body = |delivery| reported_as(from, event, delivery).encode();
    Box::new(DeliveryReport {
        delivered: body(Delivery::Delivered),
        not_found: body(Delivery::NotFound),
        ended: body(Delivery::Ended),
    })
}

fn to_id(id: &str, message: &Message, report: Option<Box<DeliveryReport>>) -> Outgoing {
    let (id, dedupe) = (id.to_owned(), message.dedupe().map(str::to_owned));
    Outgoing::ToId { id, dedupe, urgent: message.is_urgent(), body: message.encode(), report }
}

/// Terminates the instance with the id that a child is to have.
fn make_way(from: &Sender<'_>, id: &str) -> Outgoing {
    let reason = format!("replaced by a sub-orchestration of {}", from.id);
    to_id(id, &Message::Terminate { reason }, None)
}

fn to_key(to: InstanceKey, shard: ShardId, message: &Message) -> Outgoing {
    Outgoing::ToKey { to, shard, dedupe: None, urgent: message.is_urgent(), body: message.encode() }
}

/// The reports to the sender of a start, and what the start may replace.
struct Told {
    taken: Option<Message>,
    started: Option<Message>,
    replaces_ended: bool,
}

fn start(from: &Sender<'_>, event: EventId, at_ms: u64, id: &str, started: Started, told: &Told) -> Outgoing {
    let key = child_key(from.key, from.started.execution, event, at_ms);
    let row = InstanceRow::pending(key, id, &started, at_ms);
    let body = Message::Start(Box::new(Start::new(started))).encode();
    let [otherwise, started] = [&told.taken, &told.started].map(|told| told.as_ref().map(Message::encode));
    Outgoing::Start { row: Box::new(row), body, otherwise, replaces_ended: told.replaces_ended, started }
}

/// The outcome for the parent of an instance that ended. An instance that continues as new has not ended.
fn outcome_for_parent(started: &Started, ending: &Ending) -> Option<Outgoing> {
    started.parent.as_ref().and_then(|link| outcome_for(link, ending))
}

/// The outcome that a parent gets of its child.
pub(super) fn outcome_for(link: &ParentLink, ending: &Ending) -> Option<Outgoing> {
    let source_event_id = link.event_id;
    let failed = |error| Job::SubOrchestrationFailed { source_event_id, error };
    let job = match ending {
        Ending::OrchestrationCompleted { output } => {
            Job::SubOrchestrationCompleted { source_event_id, result: output.clone() }
        }
        Ending::OrchestrationFailed { error } => failed(ChildError::Application(error.clone())),
        Ending::OrchestrationCancelled { reason, output } => {
            failed(ChildError::Cancelled { reason: reason.clone(), output: output.clone() })
        }
        Ending::OrchestrationTerminated { reason } => {
            failed(ChildError::Terminated { reason: reason.clone() })
        }
        Ending::OrchestrationContinuedAsNew { .. } => return None,
    };
    let key = link.key.parse().ok()?;
    Some(to_key(key, ShardId::of(&link.instance), &Message::Outcome { execution: link.execution, job }))
}
