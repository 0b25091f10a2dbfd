//! The end of all faults: every process is up, and every instance must finish.

use perennial_core::store::InstanceRow;
use perennial_core::{Decision, Ledger};

use super::Simulation;
use super::deployments::{Code, NEXT_VERSION};
use crate::program::{HandlerKind, PROGRAM_VERSION};

/// The orchestration whose code is deployed only with the healing.
pub(super) const ABSENT: &str = "absent";
/// The maximum time for everything to finish after the faults, and again whenever an instance continues as
/// new: a program does so at most a few times, and an execution with many waits may get its events late.
const PATIENCE_MS: u64 = 15 * 60 * 1_000;
const ROUND_MS: u64 = 400;
/// The maximum lifetime of obsolete rows after that.
const REST_MS: u64 = 120_000;
/// The number of times that late messages may start something after everything had finished.
const ROUNDS: usize = 5;
/// The maximum time for the last answers.
const ANSWERS_MS: u64 = 6_000;

impl Simulation {
    /// Ends all faults; every process is up, with all code.
    pub(super) fn heal(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.note(|| "HEALED".to_owned());
        self.witness.calm_from_ms = self.now_ms;
        let code = self.code_of(PROGRAM_VERSION);
        self.handlers = std::mem::take(&mut self.handlers).with(ABSENT, PROGRAM_VERSION, code);
        self.restart();
    }

    /// Starts the processes that are down; the others continue or restart.
    fn restart(&mut self) {
        self.is_healed = true;
        self.heal_codecs();
        self.pause_all(false);
        self.set_clock_right();
        self.deploy_remedy();
        for process in 0..self.processes.len() {
            self.code[process] = Code::from([PROGRAM_VERSION, NEXT_VERSION]);
            if self.plan.heals_by_restart {
                self.forget(process);
            }
            self.processes[process].paused_until_ms = 0;
            self.boot(process);
        }
        self.do_pending();
    }

    pub(super) fn run_healed(&mut self) {
        let (mut rounds, mut is_done) = (0, false);
        // Messages sent before the faults ended may arrive late and start something.
        while self.failure.is_none() && !is_done && rounds < ROUNDS {
            self.run_until_finished("I17", |_| true);
            self.run_until_clear();
            is_done = self.has_finished() && !self.has_rests();
            rounds += 1;
        }
        self.delete_damaged();
    }

    /// Ends all faults except missing code: instances that do not need it must finish.
    pub(super) fn heal_all_but_code(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.note(|| "HEALED but for code".to_owned());
        self.restart();
        self.run_until_finished("I16", |name| name != ABSENT);
        let late = self.callers.subjects.iter().filter(|subject| subject.name == ABSENT);
        let blocked = late.filter(|subject| self.row(&subject.id).is_some_and(|row| row.blocked.is_some()));
        for _ in 0..blocked.count() {
            self.count("finished beside a blocked one");
        }
    }

    /// Runs until the given instances have finished and have no unread messages.
    fn run_until_finished(&mut self, invariant: &str, has_to: impl Fn(&str) -> bool) {
        let (mut end_ms, mut renewals) = (0, None);
        while self.failure.is_none() {
            let until_now = Some(self.tally.of("continued as new"));
            if std::mem::replace(&mut renewals, until_now) != until_now {
                end_ms = self.now_ms + PATIENCE_MS;
            }
            let inbox = self.unread(&has_to);
            if inbox == 0 && !self.is_unfinished(&has_to) {
                return;
            }
            if self.now_ms > end_ms {
                let (unfinished, unserved) = (self.unfinished(&has_to), self.unserved());
                let what = format!(
                    "{invariant}: unfinished: {unfinished:?}, {inbox} messages in the inbox, {unserved}"
                );
                return self.fail(what);
            }
            self.help();
            self.run_until(self.now_ms + ROUND_MS);
        }
    }

    /// Cancellations elsewhere are noticed with the next renewal; requests and replies last until their
    /// deadlines.
    fn run_until_clear(&mut self) {
        self.run_until(self.now_ms + ANSWERS_MS);
        let until_ms = self.now_ms + REST_MS;
        while self.failure.is_none() && self.now_ms < until_ms && self.has_rests() {
            self.run_until(self.now_ms + ROUND_MS);
        }
    }

    /// Whether there are obsolete rows.
    fn has_rests(&self) -> bool {
        let tables = self.store.tables();
        !(tables.tasks.is_empty() && tables.requests.is_empty() && tables.replies.is_empty())
    }

    fn has_finished(&self) -> bool {
        !self.is_unfinished(|_| true) && self.unread(|_| true) == 0
    }

    pub(super) fn row(&self, id: &str) -> Option<InstanceRow> {
        let tables = self.store.tables();
        tables.ids.get(id).map(|key| tables.instances[key].clone())
    }

    /// The number of unread messages of the instances that must finish.
    fn unread(&self, has_to: impl Fn(&str) -> bool) -> usize {
        let tables = self.store.tables();
        let is_excused = |to| tables.instances.get(to).is_some_and(|row| !has_to(&row.name));
        tables.inbox.values().filter(|message| !is_excused(&message.to)).count()
    }

    fn is_unfinished(&self, has_to: impl Fn(&str) -> bool) -> bool {
        self.missing(&has_to).next().is_some()
            || self.store.tables().instances.values().any(|row| !row.status.is_final() && has_to(&row.name))
    }

    /// The ids of instances that must finish and were not started.
    fn missing(&self, has_to: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        let subjects = self.callers.subjects.iter().filter(move |subject| has_to(subject.name));
        let ids = subjects.map(|subject| subject.id.as_str());
        ids.filter(|id| !self.store.tables().ids.contains_key(*id) && self.deletions(id) == 0)
    }

    /// Describes the instances that must finish and have not.
    fn unfinished(&self, has_to: impl Fn(&str) -> bool) -> Vec<String> {
        let rows: Vec<InstanceRow> = {
            let tables = self.store.tables();
            tables
                .instances
                .values()
                .filter(|row| !row.status.is_final() && has_to(&row.name))
                .cloned()
                .collect()
        };
        let line = |row: InstanceRow| {
            let blocked = row.blocked.map(|blocked| blocked.reason);
            let open: Option<Vec<String>> = self.ledger(&row.id).map(|ledger| {
                ledger.open().map(|(event, decision)| format!("{event} {}", decision.name())).collect()
            });
            let tables = self.store.tables();
            let tasks: Vec<_> = tables.tasks.values().filter(|task| task.id.key == row.key).collect();
            format!(
                "{} {} {} owed {} wake {:?} blocked {blocked:?} open {open:?} tasks {tasks:?}",
                row.id,
                row.execution,
                row.status.name(),
                row.owed,
                row.wake_at_ms
            )
        };
        let missing: Vec<String> = self.missing(&has_to).map(|id| format!("{id} not started")).collect();
        missing.into_iter().chain(rows.into_iter().map(line)).collect()
    }

    fn ledger(&self, id: &str) -> Option<&Ledger> {
        let row = self.row(id)?;
        self.witness.histories.ledger(row.key, row.execution)
    }

    /// Makes callers send every instance the events that it waits for.
    fn help(&mut self) {
        for number in 0..self.callers.subjects.len() {
            let id = self.callers.subjects[number].id.clone();
            if self.row(&id).is_none() && self.deletions(&id) == 0 && self.rng.percent(30) {
                self.start(number);
            }
        }
        let running: Vec<String> = {
            let tables = self.store.tables();
            let rows = tables.instances.values().filter(|row| !row.status.is_final());
            rows.map(|row| row.id.clone()).collect()
        };
        for id in running {
            self.help_one(&id);
        }
        self.do_pending();
    }

    /// Ends an instance that is full and may wait for an event of another name.
    fn help_full(&mut self, id: &str) {
        if self.row(id).is_some_and(|row| row.full) && self.rng.percent(3) {
            self.count("full instance ended by a person");
            self.end_instance(id, false);
        }
    }

    fn help_one(&mut self, id: &str) {
        // Some failures are not retried in the same process unless a caller requests it.
        if self.row(id).is_some_and(|row| row.blocked.is_some()) && self.rng.percent(10) {
            self.retry(id);
        }
        self.help_blocked(id);
        self.help_paused(id);
        self.help_full(id);
        let Some(ledger) = self.ledger(id) else { return };
        let has_children =
            ledger.open().any(|(_, open)| matches!(open, Decision::SubOrchestrationScheduled { .. }));
        let is_at_work = ledger.open_activities() > 0 || ledger.timers().next().is_some() || has_children;
        // A wait whose event has arrived must return without another one.
        let waits = self.missing_events(id);
        if !waits.is_empty() {
            let name = self.rng.pick(&waits).clone();
            self.raise(id, &name);
        }
        if self.rng.percent(2) {
            self.query(id);
        }
        if (is_at_work && self.rng.percent(90)) || self.rng.percent(60) {
            return;
        }
        let Some(program) = self.program(id) else { return };
        let handled = |kind| program.handled(kind).map(str::to_owned).collect::<Vec<String>>();
        for name in handled(HandlerKind::Event) {
            self.raise(id, &name);
        }
        for name in handled(HandlerKind::Update) {
            self.update(id, &name);
        }
    }
}
