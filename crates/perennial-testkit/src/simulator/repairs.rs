//! Repairs: instances are paused, resumed, and reset to earlier turns, whatever else happens.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::{InstanceCall, Message, Request};
use perennial_core::store::{
    Commit, InstanceRow, Outgoing, Pause, PausedOrchestrations, Status, Store, TurnRow,
};
use perennial_core::{Ending, InstanceKey, Job, Turn, Why};

use super::Simulation;
use super::callers::{CallerRequest, SENDERS, to_instance};
use super::store_calls::wait_for;
use crate::program::PROGRAM;

#[derive(Default)]
pub(super) struct Repairs {
    /// The paused instances according to the store, and whether with their orchestration.
    paused: BTreeMap<InstanceKey, bool>,
    /// The instances that were reset: earlier events may be repeated.
    reset: BTreeSet<InstanceKey>,
    /// The time at which the orchestration of all programs was paused, if it is.
    all_paused_ms: Option<u64>,
}

impl Simulation {
    pub(super) fn plan_repairs(&mut self) {
        if self.plan.classes.repairs {
            self.schedule_repairs();
        }
    }

    fn schedule_repairs(&mut self) {
        let pause_ms = self.rng.between(100, 1_500);
        self.later(pause_ms, "a repair", |this| {
            if !this.is_healed {
                this.schedule_repairs();
                this.repair_somebody();
            }
        });
    }

    fn repair_somebody(&mut self) {
        let rows: Vec<InstanceRow> = self.store.tables().instances.values().cloned().collect();
        let paused: Vec<&InstanceRow> = rows.iter().filter(|row| is_paused(row)).collect();
        if !paused.is_empty() && self.rng.percent(40) {
            let id = self.rng.pick(&paused).id.clone();
            return self.resume(&id);
        }
        if self.rng.percent(12) {
            return self.pause_all(self.repairs.all_paused_ms.is_none());
        }
        if rows.is_empty() {
            return;
        }
        let row = self.rng.pick(&rows).clone();
        match self.rng.percent(60) {
            true => self.pause(&row.id),
            false => self.reset(&row),
        }
    }

    /// Pauses or resumes all programs. Lanes learn of it when they renew their leases.
    pub(super) fn pause_all(&mut self, pauses: bool) {
        if pauses == self.repairs.all_paused_ms.is_some() {
            return;
        }
        self.repairs.all_paused_ms = pauses.then_some(self.now_ms);
        self.count(if pauses { "orchestration paused" } else { "orchestration resumed" });
        let mut paused = PausedOrchestrations::default();
        if pauses {
            paused.pause(PROGRAM, self.store_ms(), Why::new("the orchestration is paused"));
        }
        let (name, value) = (PausedOrchestrations::SETTING, paused.encode());
        let read = wait_for(|reply| self.store.read_setting(name, reply)).expect("the store is open");
        let written = wait_for(|reply| self.store.write_setting(name, read, value, reply));
        assert!(written.expect("the store is open"), "there is no other writer");
    }

    fn pause(&mut self, id: &str) {
        let pause = Pause { why: Why::new("for repair"), orchestration: false };
        match self.near(id) {
            Some(place) => {
                self.request_of_lane(place, id, CallerRequest::Repair, Request::Pause(pause), None)
            }
            None => self.send(to_instance(id, None, &Message::Pause(pause)), |_, _| ()),
        }
    }

    /// Resumes a paused instance.
    pub(super) fn resume(&mut self, id: &str) {
        let why = Why::new("repaired").by("somebody");
        match self.near(id) {
            Some(place) => self.request_of_lane(place, id, CallerRequest::Repair, Request::Resume(why), None),
            None => self.send(to_instance(id, None, &Message::Resume(why)), |_, _| ()),
        }
    }

    /// Resets an instance to one of its turns, or reruns it from its end.
    fn reset(&mut self, row: &InstanceRow) {
        let turns = self.history(row.key).map_or(0, |history| history.turns.len() as u64);
        let is_over = row.status.is_final() && row.status != Status::Completed;
        let to_turn = match is_over && self.rng.percent(50) {
            true => None,
            false => Some(self.rng.between(0, turns)),
        };
        let why = Why::new("for repair").by("somebody");
        let instance_call = InstanceCall::Reset { execution: row.execution, to_turn, version: None, why };
        match self.near(&row.id) {
            Some(place) => {
                let request =
                    Request::Bound { key: row.key, request: Box::new(Request::Call(instance_call)) };
                self.request_of_lane(place, &row.id, CallerRequest::Repair, request, None);
            }
            None => {
                let sender = self.rng.below(SENDERS);
                self.call_through_store(row.id.clone(), None, instance_call, CallerRequest::Repair, sender);
            }
        }
    }

    /// G46: a paused instance takes no turn. It can be ended, and reset.
    pub(super) fn witness_repair(&mut self, commit: &Commit, turn: Option<(&TurnRow, &Turn)>) {
        if let Some((row, turn)) = turn {
            let is_end = commit.change.status == Some(Status::Terminated);
            // The turns that a reset keeps are written with the change of the row to their execution.
            let is_reset = commit.change.execution == Some(row.execution);
            if self.stays_paused(commit.key) && !is_end && !is_reset {
                let (key, number) = (commit.key, row.number);
                return self.fail(format!("G46: {key} took turn {number} while it was paused"));
            }
            if is_reset && turn.number == 1 {
                self.witness_reset(commit, row.execution);
            }
        }
        // A reset to the start has no turn to copy.
        if let (None, Some(execution)) = (&commit.turn, commit.change.execution) {
            self.witness_reset(commit, execution);
        }
        let Some(blocked) = &commit.change.blocked else { return };
        let is_paused = blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some());
        if is_paused {
            let is_by_all =
                blocked.as_ref().and_then(|it| it.pause.as_ref()).is_some_and(|it| it.orchestration);
            if self.repairs.paused.insert(commit.key, is_by_all).is_none() {
                self.count(if is_by_all { "instance paused with all others" } else { "instance paused" });
            }
        }
        if !is_paused && self.repairs.paused.remove(&commit.key).is_some() {
            self.count("instance resumed");
        }
    }

    /// Whether an instance must stay as it is. One that is paused with its orchestration continues with it,
    /// or under a lane that has not learned of the pause yet.
    fn stays_paused(&self, key: InstanceKey) -> bool {
        let until_ms = |since_ms: u64| since_ms + 4 * self.plan.lease_ms;
        match self.repairs.paused.get(&key) {
            Some(true) => self.repairs.all_paused_ms.is_some_and(|since_ms| until_ms(since_ms) < self.now_ms),
            Some(false) => true,
            None => false,
        }
    }

    /// G48: the kept turns are those of the previous execution, and the events and updates of the others are
    /// delivered again, in order, except skipped ones.
    fn witness_reset(&mut self, commit: &Commit, execution: u64) {
        self.count("instance reset");
        self.repairs.reset.insert(commit.key);
        let Some(before) = self.witness.histories.of(commit.key, execution - 1) else { return };
        if before.turns.last().and_then(Turn::ending).is_some() {
            self.count("ended instance run again");
        }
        let kept = usize::from(commit.turn.is_some()) + commit.more_turns.len();
        let rows = commit.turn.iter().chain(&commit.more_turns);
        let copies: Vec<Turn> = self.with_sound_codecs(|codecs| {
            rows.map(|row| row.decode(codecs, commit.key).expect("the engine wrote it")).collect()
        });
        let Some(before) = self.witness.histories.of(commit.key, execution - 1) else { return };
        let same = |(copy, turn): (&Turn, &Turn)| {
            let rest =
                |turn: &Turn| turn.events.iter().filter(|event| event.id.0 > 1).cloned().collect::<Vec<_>>();
            (copy.number, copy.at_ms, copy.draws) == (turn.number, turn.at_ms, turn.draws)
                && rest(copy) == rest(turn)
        };
        if kept > before.turns.len() || !copies.iter().zip(&before.turns).all(same) {
            return self
                .fail(format!("G48: execution {execution} of {} does not keep its turns", commit.key));
        }
        let later = || before.turns[kept..].iter().flat_map(Turn::jobs);
        let is_skipped = |id| later().any(|(_, job)| *job == Job::ExternalEventSkipped { event_id: id });
        let expected: Vec<&Job> = later().filter(|(id, _)| !is_skipped(*id)).map(|(_, job)| job).collect();
        let carried = carried(commit);
        let messages =
            |jobs: &[&Job]| jobs.iter().copied().filter(|job| is_message(job)).cloned().collect::<Vec<_>>();
        let (expected, found) = (messages(&expected), messages(&carried.iter().collect::<Vec<_>>()));
        if expected != found {
            let what =
                format!("{expected:?} were received after turn {kept}, and {found:?} are delivered again");
            self.fail(format!("G48: execution {execution} of {}: {what}", commit.key));
        }
    }

    /// Whether events of an instance may be repeated.
    pub(super) fn was_reset(&self, key: InstanceKey) -> bool {
        self.repairs.reset.contains(&key)
    }

    /// Whether an instance has ended at least once, even if it runs again.
    pub(super) fn has_ended_before(&self, key: InstanceKey) -> bool {
        let is_end = |ending: &Ending| !matches!(ending, Ending::OrchestrationContinuedAsNew { .. });
        let mut lasts = self.executions(key).filter_map(|history| history.turns.last());
        lasts.any(|turn| turn.ending().is_some_and(is_end))
    }

    /// Resumes a paused instance in the end.
    pub(super) fn help_paused(&mut self, id: &str) {
        if self.row(id).is_some_and(|row| is_paused(&row)) && self.rng.percent(50) {
            self.resume(id);
        }
    }
}

fn is_paused(row: &InstanceRow) -> bool {
    row.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some())
}

fn is_message(job: &Job) -> bool {
    matches!(job, Job::ExternalEvent { .. } | Job::UpdateRequested { .. })
}

/// The jobs that a commit sends to its own instance for the next execution.
fn carried(commit: &Commit) -> Vec<Job> {
    let to_itself = commit.send.iter().filter_map(|outgoing| match outgoing {
        Outgoing::ToKey { to, body, .. } if *to == commit.key => Message::decode(body).ok(),
        _ => None,
    });
    let jobs = to_itself.flat_map(|message| match message {
        Message::Start(start) => start.jobs,
        Message::Carried { jobs, in_place_of: None, .. } => jobs,
        _ => Vec::new(),
    });
    jobs.collect()
}
