//! Editing of histories: events are added, removed and moved, and ids and references are adjusted.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::{Decision, Event, EventId, EventKind, History, Job, Turn};

/// A history whose events keep their original ids, if they had one.
pub(crate) struct Draft {
    pub(crate) turns: Vec<DraftTurn>,
}

pub(crate) struct DraftTurn {
    turn: Turn,
    pub(crate) draws: u64,
    pub(crate) events: Vec<(Option<EventId>, EventKind)>,
}

impl Draft {
    pub(crate) fn of(history: &History) -> Draft {
        let turns = history.turns.iter().map(|turn| DraftTurn {
            draws: turn.draws,
            events: turn.events.iter().map(|event| (Some(event.id), event.kind.clone())).collect(),
            turn: Turn { events: Vec::new(), ..turn.clone() },
        });
        Draft { turns: turns.collect() }
    }

    /// Renumbers the events. Events that refer to a removed event are removed, and so are empty turns.
    pub(crate) fn finish(mut self) -> History {
        self.drop_dangling();
        let mut ids = BTreeMap::new();
        let mut next = EventId(1);
        for (old, _) in self.turns.iter().flat_map(|turn| &turn.events) {
            ids.extend(old.map(|old| (old, next)));
            next = next.next();
        }
        let mut next = EventId(1);
        let mut turns = Vec::new();
        for DraftTurn { turn, draws, events } in self.turns.into_iter().filter(|turn| !turn.events.is_empty())
        {
            let number = turns.len() as u64 + 1;
            let mut counted = Vec::new();
            for (_, mut kind) in events {
                if let Some(source) = source_mut(&mut kind) {
                    *source = ids.get(source).copied().unwrap_or(*source);
                }
                counted.push(Event { id: next, kind });
                next = next.next();
            }
            turns.push(Turn { number, draws, events: counted, ..turn });
        }
        History { turns }
    }

    fn drop_dangling(&mut self) {
        let events = self.turns.iter().flat_map(|turn| &turn.events);
        let present: BTreeSet<EventId> = events.filter_map(|(old, _)| *old).collect();
        let refers_to_nothing =
            |kind: &mut EventKind| source_mut(kind).is_some_and(|source| !present.contains(source));
        for turn in &mut self.turns {
            turn.events.retain_mut(|(_, kind)| !refers_to_nothing(kind));
        }
    }
}

/// The event that an event refers to.
pub(crate) fn source_mut(kind: &mut EventKind) -> Option<&mut EventId> {
    match kind {
        EventKind::Job(
            Job::ActivityCompleted { source_event_id, .. }
            | Job::ActivityFailed { source_event_id, .. }
            | Job::TimerFired { source_event_id }
            | Job::SubOrchestrationCompleted { source_event_id, .. }
            | Job::SubOrchestrationFailed { source_event_id, .. }
            | Job::SubOrchestrationStarted { source_event_id }
            | Job::DeliveryReported { source_event_id, .. }
            | Job::ExternalEventSkipped { event_id: source_event_id },
        )
        | EventKind::Decision {
            decision:
                Decision::ActivityCancelRequested { source_event_id }
                | Decision::TimerCancelled { source_event_id }
                | Decision::ExternalUnsubscribed { source_event_id }
                | Decision::SubOrchestrationCancelRequested { source_event_id }
                | Decision::ActivityStopRequested { source_event_id }
                | Decision::SubOrchestrationStopRequested { source_event_id, .. }
                | Decision::UpdateCompleted { source_event_id, .. },
            ..
        } => Some(source_event_id),
        _ => None,
    }
}
