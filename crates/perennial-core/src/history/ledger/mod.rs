//! What follows from a history: what is open, what was seen, where it stands.
//!
//! One set of rules serves three purposes. A live turn asks [`Ledger::admit`] before it records a job; replay and
//! offline checks apply recorded events and call a breach corruption; the engine reads what is open. Memory grows with
//! what is open and with the keys seen, never with the length of the history.

mod admitting;
mod applying;
mod keys;

use std::collections::{BTreeMap, BTreeSet};

use crate::ascending_map::AscendingMap;
use crate::instance::ShardId;

use super::{Attributes, Decision, EventId, Payload};

pub use admitting::StaleReason;
pub(crate) use applying::upsert_attributes;
pub use keys::{DRAWN_KEY_PREFIX, is_drawn_key};
use keys::{KeyedUpdates, SeenKeys};

/// The state of one execution as far as its history tells.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    started: bool,
    turns: u64,
    events: u64,
    bytes: u64,
    last_at_ms: u64,
    /// When the execution was reset, or zero: what it runs again has all its time from then on.
    reset_at_ms: u64,
    open: AscendingMap<Decision>,
    /// Of what is open: the timers by due time, and how many activities.
    timers: BTreeSet<(u64, EventId)>,
    activities: usize,
    /// Those of the open activities that have an id of their own.
    activity_ids: BTreeMap<String, EventId>,
    /// When children were scheduled, also those that have ended, and open activities with a limit on all their time.
    scheduled_at_ms: BTreeMap<EventId, u64>,
    /// The shards of children whose id was chosen, also of those that have ended.
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

/// A request to cancel that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// Why, in the caller's words.
    pub reason: String,
    /// The time of the turn that delivered it.
    pub delivered_ms: u64,
    /// For how long the code may clean up.
    pub grace_ms: u64,
}

impl CancelRequest {
    /// When the grace ends, if the instance has an owner all the time.
    pub fn until_ms(&self) -> u64 {
        self.delivered_ms.saturating_add(self.grace_ms)
    }
}

impl Ledger {
    /// How many turns were applied.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// How many events were applied; also the last event's id.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// About how many bytes the history takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time of the last turn.
    pub fn last_at_ms(&self) -> u64 {
        self.last_at_ms
    }

    /// The activities, timers, waits and children that were scheduled and neither completed nor cancelled, in order.
    ///
    /// The history does not tell which waits have returned; those of an [`Execution`](crate::Execution) are exact,
    /// those of a ledger read from a history alone may include waits whose event has come.
    pub fn open(&self) -> impl Iterator<Item = (EventId, &Decision)> {
        self.open.iter()
    }

    /// The updates that have no answer yet, in order.
    pub fn open_updates(&self) -> impl Iterator<Item = EventId> + '_ {
        self.open_updates.keys().copied()
    }

    /// The update that was accepted with a key in this execution, as far as it is remembered, and its answer.
    pub fn update(&self, key: &str) -> Option<(EventId, Option<&Result<Payload, Payload>>)> {
        self.updates.by_key.get(key).map(|(event, result)| (*event, result.as_ref()))
    }

    /// When a child, or an open activity with a limit on all its time, was scheduled.
    pub fn scheduled_at_ms(&self, id: EventId) -> Option<u64> {
        self.scheduled_at_ms.get(&id).copied()
    }

    /// The shard of a child whose id was chosen.
    pub(crate) fn child_shard(&self, id: EventId) -> Option<ShardId> {
        self.child_shards.get(&id).copied()
    }

    /// When all the attempts of an open activity have taken too long, if there is a limit.
    pub fn activity_deadline_ms(&self, id: EventId) -> Option<u64> {
        let Decision::ActivityScheduled { options, .. } = self.open_decision(id)? else { return None };
        let total_ms = options.as_ref()?.total_timeout_ms?;
        self.scheduled_at_ms(id).map(|at_ms| at_ms.saturating_add(total_ms))
    }

    /// The open activity that was given an id.
    pub fn activity_with_id(&self, id: &str) -> Option<EventId> {
        self.activity_ids.get(id).copied()
    }

    /// What is open under an event id.
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

    /// The request to cancel that counts, if there was one.
    pub fn cancel_request(&self) -> Option<&CancelRequest> {
        self.cancel.as_ref()
    }

    /// Why cancellation was requested, if it was.
    pub fn cancel_reason(&self) -> Option<&str> {
        self.cancel.as_ref().map(|cancel| cancel.reason.as_str())
    }

    /// The searchable values as they stand.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The published status as it stands.
    pub fn status(&self) -> Option<&Payload> {
        self.status.as_ref()
    }

    /// The kind of the terminal event, if there is one.
    pub fn ended(&self) -> Option<&'static str> {
        self.ended
    }

    /// The keys of callers that the next execution has to know, oldest first, if the jobs with the `carried` keys cross
    /// to it, and the places of these among them. See [`Started::crossing_keys`](super::Started::crossing_keys).
    pub fn keys_to_carry(&self, carried: &BTreeSet<&str>) -> (Vec<String>, Vec<(u64, u64)>) {
        self.keys.to_carry(carried)
    }

    /// The keys that clients drew and that the next execution has to know, oldest first, and when each was taken.
    pub fn drawn_keys_to_carry(&self) -> Vec<(u64, String)> {
        self.keys.drawn_at(self.last_at_ms)
    }

    /// Whether a patch was marked.
    pub(crate) fn is_patched(&self, id: &str) -> bool {
        self.patches.contains(id)
    }
}
