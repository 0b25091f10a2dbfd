//! People who repair: they pause instances and resume them, and reset them to earlier turns, whatever else goes on.

use std::collections::BTreeSet;

use perennial_core::shard::{Message, Question, Request};
use perennial_core::store::{Commit, InstanceRow, Pause, Status, TurnRow};
use perennial_core::{Ending, InstanceKey, Turn, Why};

use super::Simulation;
use super::callers::{Asked, SENDERS, to_instance};

#[derive(Default)]
pub(super) struct Repairs {
    /// Who is paused, as far as the store says.
    paused: BTreeSet<InstanceKey>,
    /// Who was reset: what came before may come again.
    reset: BTreeSet<InstanceKey>,
}

impl Simulation {
    pub(super) fn plan_repairs(&mut self) {
        if self.plan.classes.repairs {
            self.repairs_go_on();
        }
    }

    fn repairs_go_on(&mut self) {
        let pause_ms = self.chance.between(100, 1_500);
        self.later(pause_ms, "somebody repairs", |this| {
            if !this.is_healed {
                this.repairs_go_on();
                this.repair_somebody();
            }
        });
    }

    fn repair_somebody(&mut self) {
        let rows: Vec<InstanceRow> = self.store.tables().instances.values().cloned().collect();
        let paused: Vec<&InstanceRow> = rows.iter().filter(|row| is_paused(row)).collect();
        if !paused.is_empty() && self.chance.percent(40) {
            let id = self.chance.pick(&paused).id.clone();
            return self.resume(&id);
        }
        if rows.is_empty() {
            return;
        }
        let row = self.chance.pick(&rows).clone();
        match self.chance.percent(60) {
            true => self.pause(&row.id),
            false => self.reset(&row),
        }
    }

    fn pause(&mut self, id: &str) {
        let pause = Pause { why: Why::new("for repair"), orchestration: false };
        match self.near(id) {
            Some(place) => self.ask_near(place, id, Asked::Repair, Request::Pause(pause), None),
            None => self.send(to_instance(id, None, &Message::Pause(pause)), |_, _| ()),
        }
    }

    /// Somebody resumes an instance that is paused.
    pub(super) fn resume(&mut self, id: &str) {
        match self.near(id) {
            Some(place) => self.ask_near(place, id, Asked::Repair, Request::Resume, None),
            None => self.send(to_instance(id, None, &Message::Resume), |_, _| ()),
        }
    }

    /// Somebody resets an instance to one of its turns, or runs it again from its end.
    fn reset(&mut self, row: &InstanceRow) {
        let turns = self.history(row.key).map_or(0, |history| history.turns.len() as u64);
        let is_over = row.status.is_final() && row.status != Status::Completed;
        let to_turn = match is_over && self.chance.percent(50) {
            true => None,
            false => Some(self.chance.between(0, turns)),
        };
        let why = Why::new("for repair").by("somebody");
        let question = Question::Reset { execution: row.execution, to_turn, version: None, why };
        match self.near(&row.id) {
            Some(place) => {
                let request = Request::Bound { key: row.key, request: Box::new(Request::Ask(question)) };
                self.ask_near(place, &row.id, Asked::Repair, request, None);
            }
            None => {
                let sender = self.chance.below(SENDERS);
                self.ask_far(row.id.clone(), None, question, Asked::Repair, sender);
            }
        }
    }

    /// G46: what is paused takes no turn. It may be ended, and reset.
    pub(super) fn witness_repair(&mut self, commit: &Commit, turn: Option<(&TurnRow, &Turn)>) {
        if let Some((row, turn)) = turn {
            let is_end = commit.change.status == Some(Status::Terminated);
            // The turns that a reset keeps are written with the row's change to their execution.
            let is_reset = commit.change.execution == Some(row.execution);
            if self.repairs.paused.contains(&commit.key) && !is_end && !is_reset {
                let (key, number) = (commit.key, row.number);
                return self.fail(format!("G46: {key} took turn {number} while it was paused"));
            }
            if is_reset && turn.number == 1 {
                self.count("instance reset");
                self.repairs.reset.insert(commit.key);
            }
        }
        // One that begins again has no turn to copy.
        if commit.turn.is_none() && commit.change.execution.is_some() {
            self.count("instance reset");
            self.repairs.reset.insert(commit.key);
        }
        let Some(blocked) = &commit.change.blocked else { return };
        let is_paused = blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some());
        if is_paused && self.repairs.paused.insert(commit.key) {
            self.count("instance paused");
        }
        if !is_paused && self.repairs.paused.remove(&commit.key) {
            self.count("instance resumed");
        }
    }

    /// Whether what an instance took or answered once may come another time.
    pub(super) fn was_reset(&self, key: InstanceKey) -> bool {
        self.repairs.reset.contains(&key)
    }

    /// Whether an instance had ended at least once, and runs again or not.
    pub(super) fn has_ended_before(&self, key: InstanceKey) -> bool {
        let is_end = |ending: &Ending| !matches!(ending, Ending::OrchestrationContinuedAsNew { .. });
        let mut lasts = self.executions(key).filter_map(|history| history.turns.last());
        lasts.any(|turn| turn.ending().is_some_and(is_end))
    }

    /// Who was paused and not resumed is resumed by somebody in the end.
    pub(super) fn help_paused(&mut self, id: &str) {
        if self.row(id).is_some_and(|row| is_paused(&row)) && self.chance.percent(50) {
            self.resume(id);
        }
    }
}

fn is_paused(row: &InstanceRow) -> bool {
    row.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some())
}
