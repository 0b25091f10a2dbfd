//! The open operations of an execution, read from its history in pages: memory grows with the open
//! operations, not with the history.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::history::CancelRequest;
use perennial_core::store::{TurnReader, TurnRow};
use perennial_core::{
    Attributes, Decision, Ending, EventId, HistoryError, InstanceKey, Job, Ledger, Payload, Timestamp, Turn,
    UnitId,
};

/// How many unread events of all names are remembered by id, to know the name of a skipped one. No more can
/// be unread.
const REMEMBERED_EVENTS: usize = 10_000;

/// An operation without a result.
pub(super) struct OpenOperation {
    pub(super) event: EventId,
    pub(super) decision: Decision,
    /// When it was scheduled.
    pub(super) at: Timestamp,
    unit: UnitId,
    turn: u64,
}

impl OpenOperation {
    /// Whether it waits for an external event.
    fn is_event(&self) -> bool {
        matches!(self.decision, Decision::ExternalSubscribed { .. })
    }
}

/// Reads a history and returns the operations that are open at its end.
pub(super) struct OpenWork {
    reader: TurnReader,
    ledger: Ledger,
    /// When, by which unit and in which turn each open operation was scheduled.
    places: BTreeMap<EventId, (Timestamp, UnitId, u64)>,
    /// The names of updates whose handlers run, and when they were accepted.
    updates: BTreeMap<EventId, (String, Timestamp)>,
    stopping: BTreeSet<EventId>,
    /// The number of events that arrived, by name. Waits take them in order, and stay open in the ledger.
    came: BTreeMap<String, usize>,
    remembered: BTreeMap<EventId, String>,
    ending: Option<Ending>,
    published: Option<Payload>,
    /// The execution that started each child, if a reset kept it from another one.
    adopted: BTreeMap<EventId, u64>,
}

impl OpenWork {
    pub(super) fn new(key: InstanceKey) -> OpenWork {
        OpenWork {
            reader: TurnReader::new(key),
            ledger: Ledger::default(),
            places: BTreeMap::new(),
            updates: BTreeMap::new(),
            stopping: BTreeSet::new(),
            came: BTreeMap::new(),
            remembered: BTreeMap::new(),
            ending: None,
            published: None,
            adopted: BTreeMap::new(),
        }
    }

    /// About how many bytes this takes.
    pub(super) fn bytes(&self) -> usize {
        let payload = |decision: &Decision| match decision {
            Decision::ActivityScheduled { input, .. } | Decision::SubOrchestrationScheduled { input, .. } => {
                input.size()
            }
            _ => 0,
        };
        let open: usize = self.ledger.open().map(|(_, decision)| 512 + payload(decision)).sum();
        let others = self.remembered.len() + self.updates.len() + self.came.len() + self.adopted.len();
        let ending = self.ending.as_ref().map_or(0, |_| 1 << 10);
        4_096 + open + ending + others * 96 + self.published.as_ref().map_or(0, Payload::size)
    }

    /// The approximate size of the history in bytes.
    pub(super) fn history_bytes(&self) -> u64 {
        self.ledger.bytes()
    }

    /// How many turns were read.
    pub(super) fn turns(&self) -> u64 {
        self.ledger.turns()
    }

    /// Reads the turns that follow the previous ones.
    pub(super) fn read(&mut self, rows: &[TurnRow]) -> Result<(), HistoryError> {
        for row in rows {
            let turn = self.reader.read(row)?;
            self.apply(&turn)?;
        }
        self.forget_closed();
        Ok(())
    }

    /// Reads a turn that was decoded before. [`OpenWork::forget_closed`] follows after the last one.
    pub(super) fn apply(&mut self, turn: &Turn) -> Result<(), HistoryError> {
        self.ledger.apply_turn(turn)?;
        self.note(turn);
        Ok(())
    }

    /// Drops what is known of operations that have ended.
    pub(super) fn forget_closed(&mut self) {
        self.places.retain(|event, _| self.ledger.open_decision(*event).is_some());
        self.stopping.retain(|event| self.ledger.open_decision(*event).is_some());
        let running: BTreeSet<EventId> = self.ledger.open_updates().collect();
        self.updates.retain(|event, _| running.contains(event));
        while self.remembered.len() > REMEMBERED_EVENTS {
            self.remembered.pop_first();
        }
    }

    /// The searchable attributes.
    pub(super) fn attributes(&self) -> &Attributes {
        self.ledger.attributes()
    }

    /// The status that the code published last in this execution.
    pub(super) fn published(&self) -> Option<&Payload> {
        self.published.as_ref()
    }

    fn note(&mut self, turn: &Turn) {
        if let Some(reset) = turn.started().and_then(|started| started.reset.as_ref()) {
            self.adopted.extend(reset.adopted.iter().copied());
        }
        for (event, job) in turn.jobs() {
            match job {
                Job::ExternalEvent { name, .. } => {
                    *self.came.entry(name.clone()).or_default() += 1;
                    self.remembered.insert(event, name.clone());
                }
                Job::ExternalEventSkipped { event_id } => {
                    let name = self.remembered.remove(event_id);
                    if let Some(came) = name.and_then(|name| self.came.get_mut(&name)) {
                        *came = came.saturating_sub(1);
                    }
                }
                Job::UpdateRequested { name, .. } => {
                    self.updates.insert(event, (name.clone(), Timestamp::from_millis(turn.at_ms)));
                }
                _ => {}
            }
        }
        self.ending = turn.ending().cloned();
        for (event, unit, decision) in turn.decisions() {
            match decision {
                Decision::ActivityStopRequested { source_event_id } => {
                    self.stopping.insert(*source_event_id);
                }
                Decision::StatusSet { status } => self.published = Some(status.clone()),
                _ => {}
            }
            self.places.insert(event, (Timestamp::from_millis(turn.at_ms), unit.clone(), turn.number));
        }
    }

    /// Whether the execution has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ledger.ended().is_some()
    }

    /// How the execution ended, if it did. Payloads are as the store has them.
    pub(super) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Whether the code requested the activity to stop.
    pub(super) fn is_stopping(&self, event: EventId) -> bool {
        self.stopping.contains(&event)
    }

    /// The unit that scheduled an open operation, unless it is the orchestration itself.
    pub(super) fn unit_of(&self, event: EventId) -> Option<String> {
        let (_, unit, _) = self.places.get(&event)?;
        (!unit.is_root()).then(|| unit.to_string())
    }

    /// The deadline for all attempts of an activity.
    pub(super) fn activity_deadline(&self, event: EventId) -> Option<Timestamp> {
        self.ledger.activity_deadline_ms(event).map(Timestamp::from_millis)
    }

    /// The execution that started the child of a schedule event.
    pub(super) fn starter_of(&self, event: EventId, execution: u64) -> u64 {
        self.adopted.get(&event).copied().unwrap_or(execution)
    }

    pub(super) fn cancel_request(&self) -> Option<&CancelRequest> {
        self.ledger.cancel_request()
    }

    /// The updates whose handlers run: the name of each, and when it was accepted.
    pub(super) fn updates(&self) -> impl Iterator<Item = (EventId, &str, Timestamp)> {
        self.updates.iter().map(|(event, (name, at))| (*event, name.as_str(), *at))
    }

    /// The numbers of events that no wait has taken, by name. A handler for the name may have: handlers are not
    /// recorded.
    pub(super) fn untaken_events(&self) -> BTreeMap<String, usize> {
        let mut untaken = self.came.clone();
        for (_, decision) in self.ledger.open() {
            if let Decision::ExternalSubscribed { name } = decision
                && let Some(count) = untaken.get_mut(name)
            {
                *count = count.saturating_sub(1);
            }
        }
        untaken.retain(|_, count| *count > 0);
        untaken
    }

    /// The operations without a result, in the order in which they were scheduled. Waits whose event has
    /// arrived are left out.
    pub(super) fn operations(&self) -> Vec<OpenOperation> {
        let mut came = self.came.clone();
        let mut operations = Vec::new();
        for (event, decision) in self.ledger.open() {
            if let Decision::ExternalSubscribed { name } = decision
                && let Some(met) = came.get_mut(name).filter(|met| **met > 0)
            {
                *met -= 1;
                continue;
            }
            let Some((at, unit, turn)) = self.places.get(&event).cloned() else { continue };
            operations.push(OpenOperation { event, decision: decision.clone(), at, unit, turn });
        }
        operations
    }
}

/// The timers that belong to waits for events, by wait: the only one that the same unit created in the same turn, with
/// nothing but other waits between the two. `timeout`, `select` and `join` leave this pattern in a history, which
/// does not record how the code combines the two: the timer may be the limit of the wait, or run beside it.
pub(super) fn timers_beside(operations: &[OpenOperation]) -> BTreeMap<EventId, (EventId, Timestamp)> {
    let mut steps: BTreeMap<(u64, &UnitId), Vec<&OpenOperation>> = BTreeMap::new();
    for operation in operations {
        steps.entry((operation.turn, &operation.unit)).or_default().push(operation);
    }
    let mut beside = BTreeMap::new();
    for step in steps.values() {
        let mut timers = step.iter().filter_map(|operation| match operation.decision {
            Decision::TimerCreated { due_ms } => Some((operation.event, Timestamp::from_millis(due_ms))),
            _ => None,
        });
        let (Some((timer, due)), None) = (timers.next(), timers.next()) else { continue };
        let waits: BTreeSet<EventId> =
            step.iter().filter(|operation| operation.is_event()).map(|operation| operation.event).collect();
        // Waits next to each other and to the timer, in both directions.
        let before = (1..timer.0).rev().map(EventId).take_while(|event| waits.contains(event));
        let after = (timer.0 + 1..).map(EventId).take_while(|event| waits.contains(event));
        beside.extend(before.chain(after).map(|wait| (wait, (timer, due))));
    }
    beside
}
