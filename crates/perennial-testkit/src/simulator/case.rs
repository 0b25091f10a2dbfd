//! Cases: runs that can be stored, repeated and made smaller.
//!
//! A case is a seed, and a list of parts to leave out. The whole plan and all programs are drawn first, and the
//! parts are removed afterwards, so that what is left stays the same.

use std::time::Duration;

use perennial_core::codec::Codecs;
use perennial_core::flaws::Flaw;
use serde::{Deserialize, Serialize};

use super::callers::Callers;
use super::classes::MANY_UNREAD;
use super::plan::Plan;
use super::{Simulation, codecs};
use crate::Rng;
use crate::program::TAG;
use crate::rng::mix;

/// A run that can be stored and repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Draws the plan and the programs.
    pub seed: u64,
    /// Whether the run is a short one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub short: bool,
    /// Draws everything after the plan; zero continues with the seed's own numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub salt: u64,
    /// The parts to leave out, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<Cut>,
    /// The name of the planted flaw, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
    /// Whether missing code is deployed only after all instances that do not need it have finished.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late_code: bool,
    /// Whether there is a storm of kills, with activities that last as long as the storm.
    #[serde(default, skip_serializing_if = "is_false")]
    pub storm: bool,
    /// The violation when the case was stored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub violation: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A part that is left out of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// All processes after the first few.
    ProcessesAfter(usize),
    /// The instance at this position.
    Instance(usize),
    /// The fault with this number among those that happen at a time.
    Fault(u64),
    /// All faults of a kind, or a choice that makes the run harder: one of `Ease::ALL`.
    Ease(String),
    /// All actions of callers after the first few, until the faults end.
    ActionsAfter(u64),
    /// Everything after this time of the faults, in milliseconds.
    FaultsAfter(u64),
    /// A statement of an instance's program, counted in the order of its text.
    Statement {
        /// The position of the instance.
        instance: usize,
        /// The number of the statement.
        number: usize,
    },
    /// A handler of an instance's program.
    Handler {
        /// The position of the instance.
        instance: usize,
        /// The position of the handler.
        number: usize,
    },
}

/// The effect of an [`Cut::Ease`] on a plan.
pub(super) struct Ease {
    pub(super) name: &'static str,
    apply: fn(&mut Plan),
}

impl Ease {
    /// All of them.
    pub(super) const ALL: &'static [Ease] = &[
        Ease { name: "outages", apply: |plan| plan.classes.outages.clear() },
        Ease { name: "store clock hours back", apply: |plan| plan.classes.hours_back = None },
        Ease { name: "clocks of callers", apply: |plan| plan.classes.caller_off_ms = 0 },
        Ease { name: "damage", apply: |plan| plan.classes.damage_ms.clear() },
        Ease { name: "requests at endings", apply: |plan| plan.classes.edge = 0 },
        Ease { name: "payloads of another type", apply: |plan| plan.classes.mistypes = None },
        Ease { name: "refused inputs", apply: |plan| plan.classes.refuses_inputs_ms = None },
        Ease { name: "small queues", apply: |plan| plan.classes.max_unread = MANY_UNREAD },
        Ease { name: "repairs", apply: |plan| plan.classes.repairs = false },
        Ease { name: "activity that kills", apply: |plan| plan.deadly = None },
        Ease { name: "activity that lasts", apply: |plan| plan.lasting = None },
        Ease { name: "added version", apply: |plan| plan.adds_version = false },
        Ease { name: "removed version", apply: |plan| plan.removes_version = false },
        Ease { name: "pruner", apply: |plan| plan.prune_ms = 0 },
        Ease { name: "pruned executions", apply: |plan| plan.keep_executions = None },
        Ease { name: "codecs", apply: |plan| plan.shard.codecs = Codecs::default() },
        Ease { name: "calls refused", apply: |plan| plan.faults.unavailable = 0 },
        Ease { name: "batches refused", apply: |plan| plan.faults.batch_refused = 0 },
        Ease { name: "calls unknown", apply: |plan| plan.faults.unknown = 0 },
        Ease { name: "slow calls", apply: |plan| plan.faults.slow = 0 },
        Ease { name: "duplicate results", apply: |plan| plan.faults.duplicate = 0 },
        Ease { name: "lost turns", apply: |plan| plan.faults.turn_lost = 0 },
        Ease { name: "lost hints", apply: |plan| plan.faults.hint_lost = 0 },
        Ease { name: "answers twice", apply: |plan| plan.faults.answer_twice = 0 },
        Ease { name: "late outputs", apply: |plan| plan.faults.late_output = 0 },
        Ease { name: "drift", apply: |plan| plan.drift_ppm.fill(0) },
        Ease { name: "late joins", apply: |plan| plan.joins_ms.fill(0) },
        Ease { name: "several lanes", apply: |plan| plan.roles.iter_mut().for_each(|it| *it = (*it).min(1)) },
        Ease {
            name: "workers without shards",
            apply: |plan| plan.roles.iter_mut().for_each(|it| *it = (*it).max(1)),
        },
        Ease { name: "stubborn activities", apply: |plan| plan.is_stubborn = false },
        Ease { name: "restart at the end", apply: |plan| plan.heals_by_restart = false },
        Ease { name: "small batches", apply: |plan| plan.max_batch = 1_000 },
        Ease { name: "small pages", apply: |plan| plan.page_rows = 1_000 },
        Ease { name: "few loads", apply: |plan| plan.max_loads = 256 },
        Ease { name: "few slots", apply: |plan| plan.slots = 100 },
        Ease { name: "evictions", apply: stay_resident },
        Ease { name: "activities that some do not serve", apply: serve_all },
        Ease { name: "distance of the store", apply: |plan| plan.call_ms = 2 },
    ];
}

fn stay_resident(plan: &mut Plan) {
    (plan.shard.max_resident, plan.shard.idle) = (1_000, Duration::from_secs(300));
}

fn serve_all(plan: &mut Plan) {
    for served in &mut plan.served {
        served.prefixes = [String::new()].into();
        served.tags = [TAG.to_owned()].into();
    }
}

/// What is left out of a run while it runs.
#[derive(Default)]
pub(super) struct LeftOut {
    faults: Vec<u64>,
    actions_after: Option<u64>,
    /// Counted so far.
    pub(super) planned: u64,
    pub(super) actions: u64,
}

impl LeftOut {
    /// Whether the next fault is left out. Each is counted.
    pub(super) fn takes_fault(&mut self) -> bool {
        self.planned += 1;
        self.faults.contains(&(self.planned - 1))
    }

    /// Whether the next action of a caller is left out. Each is counted.
    pub(super) fn takes_action(&mut self) -> bool {
        self.actions += 1;
        self.actions_after.is_some_and(|after| self.actions > after)
    }
}

impl Case {
    /// The ordinary run of a seed.
    pub fn of_seed(seed: u64) -> Case {
        Case { seed, ..Case::default() }
    }

    /// The planted flaw.
    ///
    /// # Errors
    ///
    /// If there is no flaw of the name.
    pub fn planted(&self) -> Result<Option<Flaw>, String> {
        let Some(name) = &self.flaw else { return Ok(None) };
        let flaw = Flaw::ALL.into_iter().find(|flaw| format!("{flaw:?}") == *name);
        flaw.map(Some).ok_or_else(|| format!("there is no flaw {name:?}"))
    }

    /// The run of the case.
    ///
    /// # Errors
    ///
    /// If a name in it is not known.
    pub fn simulation(&self) -> Result<Simulation, String> {
        let mut simulation =
            if self.short { Simulation::short(self.seed) } else { Simulation::new(self.seed) };
        if self.storm {
            simulation = simulation.with_storm_of_kills();
        }
        simulation.flaw = self.planted()?;
        simulation.code_is_late = self.late_code;
        for cut in &self.cuts {
            simulation.leave_out(cut)?;
        }
        let Simulation { plan, store, .. } = &simulation;
        simulation.coded = codecs::store_of(store, &plan.shard.codecs);
        if self.salt != 0 {
            simulation.rng = Rng::new(mix(self.seed ^ mix(self.salt)));
        }
        Ok(simulation)
    }
}

impl Simulation {
    fn leave_out(&mut self, cut: &Cut) -> Result<(), String> {
        match cut {
            Cut::ProcessesAfter(count) => {
                let count = (*count).max(1);
                self.processes.truncate(count);
                self.code.truncate(count);
                self.plan.keep_processes(count);
            }
            Cut::Instance(position) => self.leave_out_instance(*position),
            Cut::Fault(number) => self.left_out.faults.push(*number),
            Cut::Ease(name) => {
                let ease = Ease::ALL.iter().find(|ease| ease.name == name);
                (ease.ok_or_else(|| format!("there is nothing called {name:?} to leave out"))?.apply)(
                    &mut self.plan,
                );
            }
            Cut::ActionsAfter(count) => self.left_out.actions_after = Some(*count),
            Cut::FaultsAfter(ms) => self.plan.faults_ms = self.plan.faults_ms.min((*ms).max(1_000)),
            Cut::Statement { instance, number } => {
                if let Some(subject) = self.callers.subjects.get_mut(*instance) {
                    subject.program.leave_out_statement(*number);
                }
            }
            Cut::Handler { instance, number } => {
                if let Some(subject) = self.callers.subjects.get_mut(*instance)
                    && *number < subject.program.handlers.len()
                {
                    subject.program.handlers.remove(*number);
                }
            }
        }
        Ok(())
    }

    fn leave_out_instance(&mut self, position: usize) {
        let Callers { subjects, .. } = &mut self.callers;
        if position >= subjects.len() || subjects.len() == 1 {
            return;
        }
        subjects.remove(position);
        // The plan refers to some of them by position.
        let moved = |subject: usize| (subject != position).then(|| subject - usize::from(subject > position));
        self.plan.deadly = self.plan.deadly.and_then(moved);
        self.plan.lasting = self.plan.lasting.and_then(moved);
    }
}
