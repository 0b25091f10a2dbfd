//! Applying recorded events, and detecting contradictions with earlier ones.

use crate::history::codec::check_format;
use crate::history::{
    Attributes, CorruptHistory, Decision, Ending, Event, EventId, EventKind, FORMAT, HistoryError, Job,
    SEMANTICS, Started, Turn,
};
use crate::instance::ShardId;

use super::{CancelRequest, Ledger};

impl Ledger {
    /// Applies a recorded turn as a whole, or reports why it cannot follow the turns before it.
    pub fn apply_turn(&mut self, turn: &Turn) -> Result<(), HistoryError> {
        self.begin_turn(turn)?;
        for event in &turn.events {
            self.apply(turn.number, event)?;
        }
        Ok(())
    }

    /// Validates the frame of a recorded turn and opens it: number, time, ids, and the order of the event families.
    pub(crate) fn begin_turn(&mut self, turn: &Turn) -> Result<(), HistoryError> {
        let number = self.turns + 1;
        check_format(number, turn.format)?;
        // Format and semantics are checked first: a newer engine may order and number events differently.
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
            let problem = format!("time goes backwards from {} to {}", self.last_at_ms, turn.at_ms);
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

    /// Opens a turn whose frame is known to be valid.
    pub(crate) fn open_turn(&mut self, at_ms: u64) {
        self.turns += 1;
        self.last_at_ms = at_ms;
    }

    /// Applies one event of the open turn.
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
        let Started { semantics, predecessor_at_ms, attributes, status, input, .. } = started;
        Ledger::check_semantics(turn, *semantics)?;
        if predecessor_at_ms.is_some_and(|at_ms| at_ms > self.last_at_ms) {
            return Err(CorruptHistory::at(
                turn,
                EventId(1),
                "it starts before the previous execution ended",
            )
            .into());
        }
        self.started = true;
        self.reset_at_ms = started.reset.as_ref().map_or(0, |reset| reset.at_ms);
        self.kept_turns = started.reset.as_ref().map_or(0, |reset| reset.turn);
        self.trace.clone_from(&started.trace);
        self.attributes = attributes.clone();
        self.status = status.clone();
        started.drawn_keys.iter().for_each(|(seen_ms, key)| self.keys.insert(key, *seen_ms));
        self.keys.begin(self.last_at_ms, &started.recent_keys, &started.crossing_keys);
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

    /// Applies a job. A job that a live turn would have dropped is corruption in a recorded one.
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
                // After a reset the code gets its full grace period again.
                let (reason, delivered_ms) = (reason.clone(), self.last_at_ms.max(self.reset_at_ms));
                self.cancel = Some(CancelRequest { reason, delivered_ms, grace_ms: *grace_ms });
            }
            Job::SubOrchestrationStarted { source_event_id } => {
                self.unreported_starts.remove(source_event_id);
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
                upsert_attributes(&mut self.attributes, attributes);
                true
            }
            Decision::StatusSet { status } => {
                self.status = Some(status.clone());
                true
            }
            Decision::ActivityStopRequested { source_event_id } => {
                let is_open =
                    matches!(self.open.get(*source_event_id), Some(Decision::ActivityScheduled { .. }));
                is_open && self.stopping.insert(*source_event_id)
            }
            Decision::SubOrchestrationStopRequested { source_event_id, .. } => {
                matches!(self.open.get(*source_event_id), Some(Decision::SubOrchestrationScheduled { .. }))
            }
            sent if sent.is_reported() => {
                self.insert_open(id, sent);
                true
            }
            Decision::OrchestrationChained { .. }
            | Decision::ExternalEventSent { .. }
            | Decision::CancelSent { .. }
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
            Decision::ActivityScheduled { id: chosen, options, .. } => {
                self.activities += 1;
                if self.trace.is_some() {
                    self.scheduled_in.insert(id, self.turns);
                }
                if let Some(chosen) = chosen {
                    self.activity_ids.insert(chosen.clone(), id);
                }
                if options.as_ref().is_some_and(|options| options.total_timeout_ms.is_some()) {
                    self.scheduled_at_ms.insert(id, self.last_at_ms.max(self.reset_at_ms));
                }
            }
            Decision::SubOrchestrationScheduled { instance, options, .. } => {
                self.scheduled_at_ms.insert(id, self.last_at_ms);
                if options.as_ref().is_some_and(|options| options.reports_start) {
                    self.unreported_starts.insert(id);
                }
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
            Some(Decision::ActivityScheduled { id: chosen, .. }) => {
                self.activities -= 1;
                // A later one of the same step may have the id by now.
                if let Some(chosen) = chosen.filter(|chosen| self.activity_ids.get(chosen) == Some(&id)) {
                    self.activity_ids.remove(&chosen);
                }
                self.scheduled_at_ms.remove(&id);
                self.scheduled_in.remove(&id);
                self.stopping.remove(&id);
            }
            Some(Decision::SubOrchestrationScheduled { .. }) => {
                self.unreported_starts.remove(&id);
            }
            _ => {}
        }
    }

    /// Applies the last event, which closes everything that is open.
    pub(crate) fn apply_ending(&mut self, ending: &Ending) {
        self.ended = Some(ending.name());
        self.count(0);
    }

    /// Notes that an open wait has received its event, which only the running code can tell.
    pub(crate) fn wait_returned(&mut self, wait: EventId) {
        self.remove_open(wait);
    }

    /// Creates the turn that ends this execution without running its code, to be committed as the next one.
    ///
    /// [`Ledger::open`] still lists what was open, so that it can be cancelled.
    pub fn terminate(&mut self, at_ms: u64, reason: impl Into<String>) -> Turn {
        assert!(self.started && self.ended.is_none(), "only a running execution can be terminated");
        let ending = Ending::OrchestrationTerminated { reason: reason.into() };
        self.open_turn(at_ms.max(self.last_at_ms));
        self.apply_ending(&ending);
        let event = Event { id: EventId(self.events), kind: EventKind::Ended(ending) };
        Turn { format: FORMAT, number: self.turns, at_ms: self.last_at_ms, draws: 0, events: vec![event] }
    }

    /// Creates the only turn of an execution that is ended before its code ran.
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

/// Changes search attributes; `null` removes one.
pub(crate) fn upsert_attributes(attributes: &mut Attributes, changes: &Attributes) {
    for (name, value) in changes {
        if value.is_null() {
            attributes.remove(name);
        } else {
            attributes.insert(name.clone(), value.clone());
        }
    }
}
