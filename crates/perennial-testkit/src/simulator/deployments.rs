//! Deployments: processes stop cleanly and start with other code, one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use perennial_core::shard::HandlerSource;
use perennial_core::{Handlers, NamePattern, OrchestrationHandler};

use super::Simulation;
use crate::program::{PROGRAM, PROGRAM_VERSION};

/// The version that a deployment adds.
pub(super) const NEXT_VERSION: &str = "2.0.0";

pub(super) type Code = BTreeSet<&'static str>;

/// The code of a process.
pub(super) struct Deployed {
    /// The versions of programs that it has. They determine the latest one, as in a runtime.
    programs: Handlers,
    others: Handlers,
}

impl Deployed {
    fn of(&self, name: &str) -> &Handlers {
        if name == PROGRAM { &self.programs } else { &self.others }
    }
}

impl HandlerSource for Deployed {
    fn handler(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>> {
        self.of(name).get(name, version)
    }

    fn latest(&self, name: &str) -> Option<String> {
        self.of(name).latest_version(name)
    }
}

impl Simulation {
    pub(super) fn deployed(&self, process: usize) -> Deployed {
        let versions = self.code[process].iter();
        let programs = versions.filter_map(|version| Some((*version, self.handlers.get(PROGRAM, version)?)));
        // A process that serves activities by pattern registers its programs by pattern, too.
        let by_pattern = !self.plan.served[process].prefixes.is_empty();
        let pattern = NamePattern::parse("prog*").expect("it is a pattern");
        let programs = programs.fold(Handlers::default(), |handlers, (version, handler)| match by_pattern {
            true => handlers.with_fallback(&pattern, version, handler),
            false => handlers.with_shared(PROGRAM, version, handler),
        });
        Deployed { programs, others: self.handlers.clone() }
    }

    /// Draws the deployments: one that adds a version, and one that removes the old version and restores it.
    pub(super) fn plan_deployments(&mut self) {
        if self.plan.adds_version {
            // Inputs that the next version cannot decode occur only where it runs.
            let span = if self.plan.classes.refuses_inputs_ms.is_some() { 8 } else { 2 };
            let at_ms = self.rng.between(0, self.plan.faults_ms / span);
            self.roll_out(at_ms, "adds a version", |code| {
                code.insert(NEXT_VERSION);
            });
        }
        if self.plan.removes_version {
            let at_ms = self.rng.between(0, self.plan.faults_ms / 2);
            self.roll_out(at_ms, "removes a version", |code| {
                code.remove(PROGRAM_VERSION);
            });
            let half_ms = self.plan.faults_ms / 2;
            let back_ms = at_ms + self.rng.between(half_ms.min(1_000), half_ms);
            self.roll_out(back_ms, "restores a version", |code| {
                code.insert(PROGRAM_VERSION);
            });
        }
    }

    fn roll_out(&mut self, at_ms: u64, what: &'static str, change: fn(&mut Code)) {
        let gap_ms = self.rng.between(100, 2_000);
        for process in 0..self.processes.len() {
            let at_ms = at_ms + gap_ms * process as u64;
            self.later(at_ms, format!("p{process} is deployed and {what}"), move |this| {
                if !this.is_healed {
                    this.count(what);
                    this.stop(process, move |this| {
                        // Healing deploys all code, whatever was scheduled.
                        if !this.is_healed {
                            change(&mut this.code[process]);
                        }
                    });
                }
            });
        }
    }
}
