//! The state that follows from a history: open operations, known keys, sizes and times.
//!
//! One set of rules serves three purposes. A live turn calls [`Ledger::admit`] before it records a job; replay and
//! offline checks apply recorded events and report a violation as corruption; the engine reads what is open. Memory
//! grows with the number of open operations and known keys, never with the length of the history.

mod admitting;
mod applying;
mod keys;

use std::collections::{BTreeMap, BTreeSet};

use crate::ascending_map::AscendingMap;
use crate::instance::ShardId;

use super::{Attributes, Decision, EventId, Payload, TraceContext};

pub use admitting::StaleReason;
pub(crate) use applying::upsert_attributes;
pub use keys::{DRAWN_KEY_PREFIX, is_drawn_key};
use keys::{KeyedUpdates, SeenKeys};

/// The state of one execution as far as its history determines it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    started: bool,
    turns: u64,
    events: u64,
    bytes: u64,
    last_at_ms: u64,
    /// When the execution was reset, or zero. Time limits of what it runs again count from then.
    reset_at_ms: u64,
    open: AscendingMap<Decision>,
    /// Among the open operations: the timers by due time, and the number of activities.
    timers: BTreeSet<(u64, EventId)>,
    activities: usize,
    /// The open activities that have an id of their own.
    activity_ids: BTreeMap<String, EventId>,
    /// When children were scheduled, including those that have ended, and open activities with a total timeout.
    scheduled_at_ms: BTreeMap<EventId, u64>,
    /// The recorded trace context, and for open activities of a traced execution the turns that scheduled them.
    trace: Option<Box<TraceContext>>,
    scheduled_in: BTreeMap<EventId, u64>,
    /// The turns that a reset took over from an earlier execution.
    kept_turns: u64,
    /// The shards of children whose id was chosen by the caller, including those that have ended.
    child_shards: BTreeMap<EventId, ShardId>,
    /// Open children whose start is to be reported, and open activities that were asked to stop.
    unreported_starts: BTreeSet<EventId>,
    stopping: BTreeSet<EventId>,
    open_updates: BTreeMap<EventId, Option<String>>,
    updates: KeyedUpdates,
    cancel: Option<CancelRequest>,
    keys: SeenKeys,
    patches: BTreeSet<String>,
    attributes: Attributes,
    status: Option<Payload>,
    ended: Option<&'static str>,
}

/// A cancel request that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// The reason given by the caller.
    pub reason: String,
    /// The time of the turn that delivered it.
    pub delivered_ms: u64,
    /// How long the code may clean up.
    pub grace_ms: u64,
}

impl CancelRequest {
    /// When the grace period ends, provided that the instance always has an owner.
    pub fn until_ms(&self) -> u64 {
        self.delivered_ms.saturating_add(self.grace_ms)
    }
}

impl Ledger {
    /// How many turns were applied.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The number of applied events, which is also the id of the last event.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The approximate size of the history in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time of the last turn.
    pub fn last_at_ms(&self) -> u64 {
        self.last_at_ms
    }

    /// The activities, timers, waits and children that were scheduled and have neither completed nor been cancelled, in
    /// order.
    ///
    /// The history does not record which waits have received their event. The list is exact in an
    /// [`Execution`](crate::Execution); in a ledger read from a history alone it may include waits that have completed.
    pub fn open(&self) -> impl Iterator<Item = (EventId, &Decision)> {
        self.open.iter()
    }

    /// The updates without a reply, in order.
    pub fn open_updates(&self) -> impl Iterator<Item = EventId> + '_ {
        self.open_updates.keys().copied()
    }

    /// The update accepted with a key in this execution, if it is still remembered, and its reply.
    pub fn update(&self, key: &str) -> Option<(EventId, Option<&Result<Payload, Payload>>)> {
        self.updates.by_key.get(key).map(|(event, result)| (*event, result.as_ref()))
    }

    /// When a child, or an open activity with a total timeout, was scheduled.
    pub fn scheduled_at_ms(&self, id: EventId) -> Option<u64> {
        self.scheduled_at_ms.get(&id).copied()
    }

    /// The trace context that the execution was started with.
    pub(crate) fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_deref()
    }

    /// The turn that scheduled an open activity, if the execution is traced and took that turn itself.
    pub(crate) fn scheduled_in(&self, id: EventId) -> Option<u64> {
        self.scheduled_in.get(&id).copied().filter(|turn| *turn > self.kept_turns)
    }

    /// The shard of a child whose id was chosen by the caller.
    pub(crate) fn child_shard(&self, id: EventId) -> Option<ShardId> {
        self.child_shards.get(&id).copied()
    }

    /// When the total timeout of an open activity ends, if it has one.
    pub fn activity_deadline_ms(&self, id: EventId) -> Option<u64> {
        let Decision::ActivityScheduled { options, .. } = self.open_decision(id)? else { return None };
        let total_ms = options.as_ref()?.total_timeout_ms?;
        self.scheduled_at_ms(id).map(|at_ms| at_ms.saturating_add(total_ms))
    }

    /// The open activity that was given an id.
    pub fn activity_with_id(&self, id: &str) -> Option<EventId> {
        self.activity_ids.get(id).copied()
    }

    /// The open operation with this event id.
    pub fn open_decision(&self, id: EventId) -> Option<&Decision> {
        self.open.get(id)
    }

    /// The open activities that were asked to stop, in order.
    pub(crate) fn stopping(&self) -> impl Iterator<Item = EventId> + '_ {
        self.stopping.iter().copied()
    }

    /// Whether an open activity was asked to stop.
    pub(crate) fn is_stopping(&self, id: EventId) -> bool {
        self.stopping.contains(&id)
    }

    /// How many activities are open.
    pub fn open_activities(&self) -> usize {
        self.activities
    }

    /// The open timers and when they are due, earliest first.
    pub fn timers(&self) -> impl Iterator<Item = (u64, EventId)> + '_ {
        self.timers.iter().copied()
    }

    /// The effective cancel request, if there was one.
    pub fn cancel_request(&self) -> Option<&CancelRequest> {
        self.cancel.as_ref()
    }

    /// The reason for the requested cancellation, if it was requested.
    pub fn cancel_reason(&self) -> Option<&str> {
        self.cancel.as_ref().map(|cancel| cancel.reason.as_str())
    }

    /// The current search attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The current published status.
    pub fn status(&self) -> Option<&Payload> {
        self.status.as_ref()
    }

    /// The kind of the terminal event, if there is one.
    pub fn ended(&self) -> Option<&'static str> {
        self.ended
    }

    /// The keys given by callers that the next execution has to know, oldest first, if the jobs with the `carried` keys
    /// are carried over to it, and the places of those among them. See
    /// [`Started::crossing_keys`](super::Started::crossing_keys).
    pub fn keys_to_carry(&self, carried: &BTreeSet<&str>) -> (Vec<String>, Vec<(u64, u64)>) {
        self.keys.to_carry(carried)
    }

    /// The generated keys that the next execution has to know, oldest first, with the time at which each was accepted.
    pub fn drawn_keys_to_carry(&self) -> Vec<(u64, String)> {
        self.keys.drawn_at(self.last_at_ms)
    }

    /// Whether a patch was marked.
    pub(crate) fn is_patched(&self, id: &str) -> bool {
        self.patches.contains(id)
    }
}
