//! What follows from a history: what is open, what was seen, where it stands.
//!
//! One set of rules serves three purposes. A live turn asks [`Ledger::admit`] before it records a job; replay and
//! offline checks apply recorded events and call a breach corruption; the engine reads what is open. Memory grows with
//! what is open and with the keys seen, never with the length of the history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ascending_map::AscendingMap;
use crate::flaws::{self, Flaw};
use crate::instance::ShardId;

use super::codec::check_format;
use super::{
    Attributes, CorruptHistory, Decision, Ending, Event, EventId, EventKind, FORMAT, HistoryError, Job,
    Payload, SEMANTICS, Started, Turn,
};

/// How a key begins that a client drew because its caller gave none.
pub const DRAWN_KEY_PREFIX: char = '~';
/// For so long of turn time a drawn key is remembered.
const DRAWN_KEYS_MS: u64 = 60_000;
/// How many keys of events and updates cross a continue-as-new.
const CARRIED_KEYS: usize = 1_000;

/// The state of one execution as far as its history tells.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    started: bool,
    turns: u64,
    events: u64,
    bytes: u64,
    last_at_ms: u64,
    open: AscendingMap<Decision>,
    /// Of what is open: the timers by due time, and how many activities.
    timers: BTreeSet<(u64, EventId)>,
    activities: usize,
    /// When children were scheduled, also those that have ended, and open activities with a limit on all their time.
    scheduled_at_ms: BTreeMap<EventId, u64>,
    /// The shards of children whose id was chosen, also of those that have ended.
    child_shards: BTreeMap<EventId, ShardId>,
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

/// Why a job is dropped before it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StaleReason {
    /// Its source is unknown, completed already, or cancelled.
    #[error("its source is not open: unknown, completed before, or cancelled")]
    NotOpen,
    /// Its source is open, but is of another kind.
    #[error("its source is of another kind")]
    WrongKind,
    /// An event or update with this key was taken before.
    #[error("an event or update with its key was taken before")]
    KnownKey,
    /// A cancel request is there already, and its grace ends no later.
    #[error("a cancel request with no later grace is there already")]
    AlreadyCancelling,
    /// The execution has ended.
    #[error("the execution has ended")]
    Ended,
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

    /// What is open under an event id.
    pub fn open_decision(&self, id: EventId) -> Option<&Decision> {
        self.open.get(id)
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

    /// The keys that the next execution has to know, oldest first.
    pub fn keys_to_carry(&self) -> Vec<String> {
        self.keys.to_carry()
    }

    /// Whether a patch was marked.
    pub(crate) fn is_patched(&self, id: &str) -> bool {
        self.patches.contains(id)
    }

    /// Whether a job may be recorded in the turn that is open.
    pub fn admit(&self, job: &Job) -> Result<(), StaleReason> {
        self.admit_at(self.last_at_ms, job)
    }

    /// Whether a job may be recorded in a turn of this time.
    pub(crate) fn admit_at(&self, at_ms: u64, job: &Job) -> Result<(), StaleReason> {
        if self.ended.is_some() {
            return Err(StaleReason::Ended);
        }
        match job {
            Job::ActivityCompleted { source_event_id, .. } | Job::ActivityFailed { source_event_id, .. } => {
                self.admit_completion(*source_event_id, |open| {
                    matches!(open, Decision::ActivityScheduled { .. })
                })
            }
            Job::TimerFired { source_event_id } => {
                self.admit_completion(*source_event_id, |open| matches!(open, Decision::TimerCreated { .. }))
            }
            Job::SubOrchestrationCompleted { source_event_id, .. }
            | Job::SubOrchestrationFailed { source_event_id, .. } => self
                .admit_completion(*source_event_id, |open| {
                    matches!(open, Decision::SubOrchestrationScheduled { .. })
                }),
            Job::ExternalEvent { key, .. } | Job::UpdateRequested { key, .. } => match key {
                Some(key) if self.keys.contains(key) && !flaws::is(Flaw::NoDedupe) => {
                    Err(StaleReason::KnownKey)
                }
                _ => Ok(()),
            },
            // Whether that is an event, and unread, is known to the execution.
            Job::ExternalEventSkipped { event_id } if event_id.0 > self.events => Err(StaleReason::NotOpen),
            Job::ExternalEventSkipped { .. } => Ok(()),
            Job::OrchestrationCancelRequested { grace_ms, .. } => match &self.cancel {
                // Judged without the times in which nobody owned the instance, so that replay agrees.
                Some(earlier) if at_ms.saturating_add(*grace_ms) >= earlier.until_ms() => {
                    Err(StaleReason::AlreadyCancelling)
                }
                _ => Ok(()),
            },
        }
    }

    fn admit_completion(&self, source: EventId, fits: impl Fn(&Decision) -> bool) -> Result<(), StaleReason> {
        match self.open.get(source) {
            None => Err(StaleReason::NotOpen),
            Some(open) if !fits(open) => Err(StaleReason::WrongKind),
            Some(_) => Ok(()),
        }
    }

    /// The earliest time that a turn with this admitted job can have.
    pub(crate) fn not_before_ms(&self, job: &Job) -> u64 {
        match job {
            Job::TimerFired { source_event_id } => match self.open.get(*source_event_id) {
                Some(Decision::TimerCreated { due_ms }) => *due_ms,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Applies a recorded turn as a whole, or says why it cannot follow what came before.
    pub fn apply_turn(&mut self, turn: &Turn) -> Result<(), HistoryError> {
        self.begin_turn(turn)?;
        for event in &turn.events {
            self.apply(turn.number, event)?;
        }
        Ok(())
    }

    /// Checks a recorded turn's frame and opens it: number, time, ids, and the order of the families within it.
    pub(crate) fn begin_turn(&mut self, turn: &Turn) -> Result<(), HistoryError> {
        let number = self.turns + 1;
        check_format(number, turn.format)?;
        // What orders and numbers events comes first: a newer engine may do both otherwise.
        if let Some(started) = turn.started() {
            Ledger::check_semantics(number, started.semantics)?;
        }
        if turn.number != number {
            let problem = format!("the turn says it is turn {}", turn.number);
            return Err(CorruptHistory::turn(number, problem).into());
        }
        if let Some(ending) = self.ended {
            return Err(CorruptHistory::turn(number, format!("a turn after {ending}")).into());
        }
        if turn.events.is_empty() {
            return Err(CorruptHistory::turn(number, "a turn without events").into());
        }
        if turn.at_ms < self.last_at_ms {
            let problem = format!("time goes back from {} to {}", self.last_at_ms, turn.at_ms);
            return Err(CorruptHistory::turn(number, problem).into());
        }
        self.check_order(turn)?;
        self.open_turn(turn.at_ms);
        Ok(())
    }

    fn check_order(&self, turn: &Turn) -> Result<(), HistoryError> {
        let mut expected = EventId(self.events).next();
        let mut previous_rank = 0;
        for event in &turn.events {
            let corrupt = |problem: String| CorruptHistory::at(turn.number, event.id, problem);
            if event.id != expected {
                return Err(corrupt(format!("event {expected} was expected here")).into());
            }
            let is_first = expected == EventId(1);
            let rank = match &event.kind {
                EventKind::Started(_) => 0,
                EventKind::Job(_) => 1,
                EventKind::Decision { .. } => 2,
                EventKind::Ended(_) => 3,
            };
            if is_first != (rank == 0) {
                let problem = if is_first { "a history begins with" } else { "only the first event can be" };
                return Err(corrupt(format!("{problem} {}", Started::NAME)).into());
            }
            if rank < previous_rank || (rank == 3 && previous_rank == 3) {
                return Err(corrupt(format!("{} is out of place in its turn", event.kind.name())).into());
            }
            if previous_rank == 2
                && matches!(event.kind, EventKind::Ended(Ending::OrchestrationTerminated { .. }))
            {
                return Err(
                    corrupt("a terminated turn runs no code, so it decides nothing".to_owned()).into()
                );
            }
            previous_rank = rank;
            expected = expected.next();
        }
        Ok(())
    }

    /// Opens a turn whose frame is known to be right.
    pub(crate) fn open_turn(&mut self, at_ms: u64) {
        self.turns += 1;
        self.last_at_ms = at_ms;
    }

    /// Applies one event of the turn that is open.
    pub(crate) fn apply(&mut self, turn: u64, event: &Event) -> Result<(), HistoryError> {
        match &event.kind {
            EventKind::Started(started) => self.apply_started(turn, started),
            EventKind::Job(job) => self.apply_job(turn, event.id, job).map_err(HistoryError::from),
            EventKind::Decision { decision, .. } => {
                self.apply_decision(turn, event.id, decision).map_err(HistoryError::from)
            }
            EventKind::Ended(ending) => {
                self.apply_ending(ending);
                Ok(())
            }
        }
    }

    /// Applies the first event.
    pub(crate) fn apply_started(&mut self, turn: u64, started: &Started) -> Result<(), HistoryError> {
        let Started { semantics, predecessor_at_ms, attributes, status, recent_keys, input, .. } = started;
        Ledger::check_semantics(turn, *semantics)?;
        if predecessor_at_ms.is_some_and(|at_ms| at_ms > self.last_at_ms) {
            return Err(CorruptHistory::at(turn, EventId(1), "it begins before its predecessor ended").into());
        }
        self.started = true;
        self.attributes = attributes.clone();
        self.status = status.clone();
        recent_keys.iter().for_each(|key| self.keys.insert(key, self.last_at_ms));
        self.count(input.size() as u64);
        Ok(())
    }

    pub(crate) fn check_semantics(turn: u64, found: u32) -> Result<(), HistoryError> {
        match found {
            0 => Err(CorruptHistory::at(turn, EventId(1), "semantics 0 never existed").into()),
            1..=SEMANTICS => Ok(()),
            _ => Err(HistoryError::NewerEngine { turn, what: "semantics", found, known: SEMANTICS }),
        }
    }

    /// Applies a job. What a live turn would have dropped is corruption in a recorded one.
    pub(crate) fn apply_job(&mut self, turn: u64, id: EventId, job: &Job) -> Result<(), CorruptHistory> {
        let corrupt = |problem: String| CorruptHistory::at(turn, id, problem);
        self.admit(job).map_err(|stale| corrupt(format!("{}: {stale}", job.name())))?;
        if self.last_at_ms < self.not_before_ms(job) {
            return Err(corrupt("a timer fired before it was due".to_owned()));
        }
        if let Some(source) = job.source_event_id() {
            self.remove_open(source);
        }
        if let Some(key) = job.key() {
            self.keys.insert(key, self.last_at_ms);
        }
        match job {
            Job::UpdateRequested { key, .. } => {
                self.open_updates.insert(id, key.clone());
                if let Some(key) = key {
                    self.updates.insert(key, id);
                }
            }
            Job::OrchestrationCancelRequested { reason, grace_ms } => {
                let (reason, delivered_ms) = (reason.clone(), self.last_at_ms);
                self.cancel = Some(CancelRequest { reason, delivered_ms, grace_ms: *grace_ms });
            }
            _ => {}
        }
        self.count(job.weight());
        Ok(())
    }

    /// Applies a decision.
    pub(crate) fn apply_decision(
        &mut self,
        turn: u64,
        id: EventId,
        decision: &Decision,
    ) -> Result<(), CorruptHistory> {
        let opens = match decision {
            Decision::ActivityScheduled { .. }
            | Decision::TimerCreated { .. }
            | Decision::ExternalSubscribed { .. }
            | Decision::SubOrchestrationScheduled { .. } => {
                self.insert_open(id, decision);
                true
            }
            Decision::ActivityCancelRequested { source_event_id } => {
                self.close(*source_event_id, |open| matches!(open, Decision::ActivityScheduled { .. }))
            }
            Decision::TimerCancelled { source_event_id } => {
                self.close(*source_event_id, |open| matches!(open, Decision::TimerCreated { .. }))
            }
            Decision::ExternalUnsubscribed { source_event_id } => {
                self.close(*source_event_id, |open| matches!(open, Decision::ExternalSubscribed { .. }))
            }
            Decision::SubOrchestrationCancelRequested { source_event_id } => self
                .close(*source_event_id, |open| matches!(open, Decision::SubOrchestrationScheduled { .. })),
            Decision::UpdateCompleted { source_event_id, result } => {
                let open = self.open_updates.remove(source_event_id);
                if let Some(Some(key)) = &open {
                    self.updates.complete(key, result);
                }
                open.is_some()
            }
            Decision::PatchMarked { id } => self.patches.insert(id.clone()),
            Decision::AttributesUpserted { attributes } => {
                self.upsert(attributes);
                true
            }
            Decision::StatusSet { status } => {
                self.status = Some(status.clone());
                true
            }
            Decision::OrchestrationChained { .. }
            | Decision::ExternalEventSent { .. }
            | Decision::SystemCall { .. } => true,
        };
        if !opens {
            return Err(CorruptHistory::at(
                turn,
                id,
                format!("{} has nothing open to refer to", decision.name()),
            ));
        }
        self.count(decision.weight());
        Ok(())
    }

    fn close(&mut self, source: EventId, fits: impl Fn(&Decision) -> bool) -> bool {
        match self.open.get(source) {
            Some(open) if fits(open) => {
                self.remove_open(source);
                true
            }
            _ => false,
        }
    }

    fn insert_open(&mut self, id: EventId, decision: &Decision) {
        match decision {
            Decision::TimerCreated { due_ms } => {
                self.timers.insert((*due_ms, id));
            }
            Decision::ActivityScheduled { options, .. } => {
                self.activities += 1;
                if options.as_ref().is_some_and(|options| options.total_timeout_ms.is_some()) {
                    self.scheduled_at_ms.insert(id, self.last_at_ms);
                }
            }
            Decision::SubOrchestrationScheduled { instance, .. } => {
                self.scheduled_at_ms.insert(id, self.last_at_ms);
                if let Some(instance) = instance {
                    self.child_shards.insert(id, ShardId::of(instance));
                }
            }
            _ => {}
        }
        self.open.insert(id, decision.clone());
    }

    fn remove_open(&mut self, id: EventId) {
        match self.open.remove(id) {
            Some(Decision::TimerCreated { due_ms }) => {
                self.timers.remove(&(due_ms, id));
            }
            Some(Decision::ActivityScheduled { .. }) => {
                self.activities -= 1;
                self.scheduled_at_ms.remove(&id);
            }
            _ => {}
        }
    }

    fn upsert(&mut self, changes: &Attributes) {
        for (name, value) in changes {
            if value.is_null() {
                self.attributes.remove(name);
            } else {
                self.attributes.insert(name.clone(), value.clone());
            }
        }
    }

    /// Applies the last event: all that is open is closed by it.
    pub(crate) fn apply_ending(&mut self, ending: &Ending) {
        self.ended = Some(ending.name());
        self.count(0);
    }

    /// Notes that an open wait has returned its event, which only the running code can tell.
    pub(crate) fn wait_returned(&mut self, wait: EventId) {
        self.remove_open(wait);
    }

    /// The turn that ends this execution without running its code, to be committed as the next one.
    ///
    /// What was open is still listed by [`Ledger::open`], so that it can be told to stop.
    pub fn terminate(&mut self, at_ms: u64, reason: impl Into<String>) -> Turn {
        assert!(self.started && self.ended.is_none(), "only a running execution can be terminated");
        let ending = Ending::OrchestrationTerminated { reason: reason.into() };
        self.open_turn(at_ms.max(self.last_at_ms));
        self.apply_ending(&ending);
        let event = Event { id: EventId(self.events), kind: EventKind::Ended(ending) };
        Turn { format: FORMAT, number: self.turns, at_ms: self.last_at_ms, draws: 0, events: vec![event] }
    }

    /// The only turn of an execution that is ended before its code ran.
    pub fn terminate_unstarted(
        started: &Started,
        at_ms: u64,
        reason: impl Into<String>,
    ) -> Result<Turn, HistoryError> {
        let last_at_ms = at_ms.max(started.predecessor_at_ms.unwrap_or(0));
        let mut ledger = Ledger { last_at_ms, ..Ledger::default() };
        ledger.apply_started(1, started)?;
        let mut turn = ledger.terminate(at_ms, reason);
        turn.events.insert(0, Event { id: EventId(1), kind: EventKind::Started(Box::new(started.clone())) });
        Ok(turn)
    }

    fn count(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }
}

/// The updates that came with a key, latest first to be remembered, so that one sent again gets the first's answer.
#[derive(Clone, Debug, Default)]
struct KeyedUpdates {
    by_key: BTreeMap<String, (EventId, Option<Result<Payload, Payload>>)>,
    order: VecDeque<String>,
}

impl KeyedUpdates {
    fn insert(&mut self, key: &str, event: EventId) {
        self.by_key.insert(key.to_owned(), (event, None));
        self.order.push_back(key.to_owned());
        if self.order.len() > CARRIED_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }

    fn complete(&mut self, key: &str, answer: &Result<Payload, Payload>) {
        if let Some((_, result)) = self.by_key.get_mut(key) {
            *result = Some(answer.clone());
        }
    }
}

/// The keys of events and updates that were taken.
///
/// Keys that a caller gave are remembered for the whole execution, and the latest of them across continue-as-new. Keys
/// that a client drew serve to settle a request whose answer was lost, which happens within moments; they are remembered
/// for a minute of turn time.
#[derive(Clone, Debug, Default)]
struct SeenKeys {
    all: BTreeSet<String>,
    latest: VecDeque<String>,
    drawn: VecDeque<(u64, String)>,
}

impl SeenKeys {
    fn contains(&self, key: &str) -> bool {
        self.all.contains(key)
    }

    fn insert(&mut self, key: &str, at_ms: u64) {
        self.all.insert(key.to_owned());
        if is_drawn_key(key) {
            self.drawn.push_back((at_ms, key.to_owned()));
            while let Some((seen_ms, _)) = self.drawn.front()
                && seen_ms.saturating_add(DRAWN_KEYS_MS) < at_ms
                && let Some((_, forgotten)) = self.drawn.pop_front()
            {
                self.all.remove(&forgotten);
            }
            return;
        }
        self.latest.push_back(key.to_owned());
        if self.latest.len() > CARRIED_KEYS {
            self.latest.pop_front();
        }
    }

    fn to_carry(&self) -> Vec<String> {
        self.latest.iter().chain(self.drawn.iter().map(|(_, key)| key)).cloned().collect()
    }
}

/// Whether a client drew a key because its caller gave none.
pub fn is_drawn_key(key: &str) -> bool {
    key.starts_with(DRAWN_KEY_PREFIX)
}
