//! The end of all trouble: everything is up, and everything has to finish.

use perennial_core::store::InstanceRow;
use perennial_core::{Decision, InstanceKey, Ledger};

use super::Simulation;
use super::callers::Subject;
use crate::ProgramHandler;
use crate::program::{HandlerKind, PROGRAM_VERSION};

/// The orchestration whose code comes only with the healing.
pub(super) const ABSENT: &str = "absent";
/// How long everything may take once there is no more trouble.
const PATIENCE_MS: u64 = 5 * 60 * 1_000;
const ROUND_MS: u64 = 400;

impl Simulation {
    /// No more faults; every node is restarted, with all code.
    pub(super) fn heal(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.note(|| "HEALED".to_owned());
        let code = ProgramHandler::new(self.side_effects.clone());
        self.handlers = std::mem::take(&mut self.handlers).with(ABSENT, PROGRAM_VERSION, code);
        self.restart();
    }

    fn restart(&mut self) {
        self.is_healed = true;
        for node in 0..self.nodes.len() {
            self.forget(node);
            self.boot(node);
        }
    }

    pub(super) fn run_healed(&mut self) {
        self.run_until_finished("I17", |_| true);
    }

    /// No more faults, but some code stays missing: who does not need it has to finish all the same.
    pub(super) fn heal_all_but_code(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.note(|| "HEALED but for code".to_owned());
        self.restart();
        self.run_until_finished("I16", |subject| subject.name != ABSENT);
        let late = self.callers.subjects.iter().filter(|subject| subject.name == ABSENT);
        let blocked = late.filter(|subject| self.row(&subject.id).is_some_and(|row| row.blocked.is_some()));
        for _ in 0..blocked.count() {
            self.count("finished beside a blocked one");
        }
    }

    /// Runs until those who have to have finished, and nobody has mail for them.
    fn run_until_finished(&mut self, invariant: &str, has_to: impl Fn(&Subject) -> bool) {
        let end_ms = self.now_ms() + PATIENCE_MS;
        while self.failure.is_none() {
            let excused: Vec<InstanceKey> = self
                .callers
                .subjects
                .iter()
                .filter(|subject| !has_to(subject))
                .filter_map(|subject| self.row(&subject.id).map(|row| row.key))
                .collect();
            let unfinished = self.unfinished(&has_to);
            let tables = self.store.tables();
            let inbox = tables.inbox.values().filter(|message| !excused.contains(&message.to)).count();
            drop(tables);
            if unfinished.is_empty() && inbox == 0 {
                return;
            }
            if self.now_ms() > end_ms {
                let what = format!("{invariant}: unfinished: {unfinished:?}, {inbox} messages in the inbox");
                return self.fail(what);
            }
            self.help();
            self.run_until(self.now_ms() + ROUND_MS);
        }
    }

    fn row(&self, id: &str) -> Option<InstanceRow> {
        let tables = self.store.tables();
        tables.ids.get(id).map(|key| tables.instances[key].clone())
    }

    fn unfinished(&self, has_to: impl Fn(&Subject) -> bool) -> Vec<String> {
        let line = |id: &str| match self.row(id) {
            None => Some(format!("{id} not started")),
            Some(row) if row.status.is_final() => None,
            Some(row) => {
                let blocked = row.blocked.map(|blocked| blocked.reason);
                let open: Option<Vec<String>> = self.ledger(id).map(|ledger| {
                    ledger.open().map(|(event, decision)| format!("{event} {}", decision.name())).collect()
                });
                Some(format!(
                    "{id} {} owed {} wake {:?} blocked {blocked:?} open {open:?}",
                    row.status.name(),
                    row.owed,
                    row.wake_at_ms
                ))
            }
        };
        let subjects = self.callers.subjects.iter().filter(|subject| has_to(subject));
        subjects.filter_map(|subject| line(&subject.id)).collect()
    }

    fn ledger(&self, id: &str) -> Option<Ledger> {
        let history = self.history(self.row(id)?.key)?;
        history.turns.iter().try_fold(Ledger::default(), |mut ledger, turn| {
            ledger.apply_turn(turn).ok()?;
            Some(ledger)
        })
    }

    /// Callers give every instance what it waits for.
    fn help(&mut self) {
        for number in 0..self.callers.subjects.len() {
            let id = self.callers.subjects[number].id.clone();
            let Some(row) = self.row(&id) else {
                if self.chance.percent(30) {
                    self.start(number);
                }
                continue;
            };
            let Some(ledger) = self.ledger(&id).filter(|_| !row.status.is_final()) else {
                continue;
            };
            let waits: Vec<String> = ledger
                .open()
                .filter_map(|(_, decision)| match decision {
                    Decision::ExternalSubscribed { name } => Some(name.clone()),
                    _ => None,
                })
                .collect();
            let is_at_work = ledger.open_activities() > 0 || ledger.timers().next().is_some();
            if !waits.is_empty() {
                // Which of them still waits, only the code knows.
                let name = self.chance.pick(&waits).clone();
                self.raise(number, &name);
            }
            if !is_at_work && self.chance.percent(40) {
                let program = &self.callers.subjects[number].program;
                let handled: Vec<String> = program.handled(HandlerKind::Event).map(str::to_owned).collect();
                for name in handled {
                    self.raise(number, &name);
                }
            }
        }
    }
}
