//! The simulator: a few processes over one store, one virtual clock, and faults drawn from a seed.
//!
//! A [`Simulation`] is one thread and one agenda. Every call to the store, every turn, every activity and
//! every caller's request is an entry of the agenda with a delay drawn from the seed, and so are all faults:
//! processes crash, are suspended and come back, commits are refused or written with an unknown outcome,
//! leases expire, clocks are set. [`Node`](perennial_core::node::Node)s,
//! [`Lane`](perennial_core::lane::Lane)s and the store are the production code. A simulated process only
//! executes their outputs, late or unsuccessfully, and returns the results; it makes no decisions.
//!
//! After a while everything is healed: no more faults, all processes up. Then everything must finish, and the
//! rows must agree with the callers' log. Properties of every step are checked at every step. The same seed
//! gives the same trace; [`Flaw`]s are bugs that can be planted in the engine, to check that they are found.
//!
//! Faults are counted. [`CLASSES`] lists the counts that belong to each class of faults, and a test requires
//! that an ordinary number of runs has all of them:
//!
//! | class | drawn faults | modules |
//! |---|---|---|
//! | processes | crashes, pauses past the lease, stops, deployments, activities that crash the process | `process`, `stopping`, `deployments`, `activities` |
//! | calls | refused, slow, unknown (written, not written, still in progress), answered twice, hints lost | `store_calls`, `hints` |
//! | ownership | takeovers, shards taken away, earlier tenures | `ownership`, `tenures` |
//! | clocks that stall and step | the store's clock set ahead and back, by hours too, and stalled; clocks of processes that drift, of callers that are off; a writer that stalls past a timer | `clocks`, `outages` |
//! | outages longer than every grace | a store out of reach or all processes down, past leases, cancel graces, deadlines and timers | `outages` |
//! | requests at endings and renewals | events, updates and start-or-raise while an execution's last commit is in flight | `endings` |
//! | damaged rows | a bit of a turn, message, task or request, while it is served and between lives | `damage` |
//! | payloads of another type | inputs that the next version cannot decode, events that are not text; fixed by a deployment or by skipping | `mistypes` |
//! | repairs by people | instances that are paused, resumed and reset to earlier turns | `repairs` |
//! | codecs | payloads encoded under keys that change, and now and then are missing; activities served by pattern | `codecs` |
//! | full queues | a handful of unread events refuses the next, across eviction and continue-as-new | `callers`, `witness` |
//!
//! Not drawn: damage of instance rows and of SQLite's own data (covered by the damage test of the runtime),
//! failing disks, and code that diverges.

mod activities;
mod agenda;
mod audit;
mod callers;
mod case;
mod classes;
mod clocks;
mod codecs;
mod damage;
mod deployments;
mod driving;
mod endings;
mod events;
mod healing;
mod hints;
mod histories;
mod instance_calls;
mod mistypes;
mod outages;
mod ownership;
mod plan;
mod planted;
mod process;
mod promptness;
mod pruning;
mod reach;
mod remembered_keys;
mod repairs;
mod shrinking;
mod starting;
mod stopping;
mod store_calls;
mod taking;
mod tally;
mod tenures;
mod tokens;
mod trace;
mod witness;

pub use case::{Case, Cut};
pub use classes::CLASSES;
pub use perennial_core::flaws::Flaw;
pub use planted::{PLANTED, Planted};
pub use reach::{REACH, unreached};
pub use shrinking::{Shrunk, Size, shrink};
pub use tally::Tally;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use perennial_core::flaws;
use perennial_core::shard::RequestId;
use perennial_core::store::{Changes, MemoryStore, Store};
use perennial_core::{EventId, Handlers, InstanceKey};

use crate::program::{PROGRAM, PROGRAM_VERSION};
use crate::{Rng, SideEffects};

use agenda::Agenda;
use callers::Callers;
use case::LeftOut;
use clocks::StoreClock;
use codecs::CodecLog;
use damage::Damaged;
use deployments::{Code, NEXT_VERSION};
use driving::Pending;
use mistypes::Mistypes;
use outages::Outages;
use plan::Plan;
use process::Process;
use repairs::Repairs;
use trace::Trace;
use witness::Witness;

/// The start of the virtual clock.
const START_MS: u64 = 100_000_000;
/// The maximum number of steps of a run.
const MAX_STEPS: u64 = 600_000;

/// One run of a few processes with the faults of a seed.
pub struct Simulation {
    seed: u64,
    plan: Plan,
    flaw: Option<Flaw>,
    /// Whether missing code is deployed only after all other instances have finished.
    code_is_late: bool,
    /// Draws everything after the plan.
    rng: Rng,
    now_ms: u64,
    clock: StoreClock,
    store: Arc<MemoryStore>,
    /// The same store as processes and callers use it, with encoded payloads.
    coded: Arc<dyn Store>,
    codec_log: Arc<CodecLog>,
    /// Changes that the store has reported and that have not been passed on as hints.
    unsent_hints: Arc<Mutex<Vec<Changes>>>,
    handlers: Handlers,
    side_effects: SideEffects,
    agenda: Agenda,
    processes: Vec<Process>,
    /// Outputs to be executed, in order.
    pending: VecDeque<Pending>,
    callers: Callers,
    /// The versions that each process has, or will have at its next start.
    code: Vec<Code>,
    /// The number of attempts of activities.
    runs: u64,
    /// The activity that crashes its process, and the number of crashes since the faults ended.
    deadly: Option<(InstanceKey, u64, EventId)>,
    deaths: u64,
    /// The crashes among them that the next owner did not learn of.
    forgotten_deaths: u64,
    /// The instances whose end callers wait for.
    ends: BTreeMap<RequestId, String>,
    outages: Outages,
    damaged: Damaged,
    mistypes: Mistypes,
    repairs: Repairs,
    witness: Witness,
    tally: Tally,
    trace: Trace,
    steps: u64,
    left_out: LeftOut,
    is_healed: bool,
    failure: Option<String>,
}

/// The result of a run without a violation.
#[derive(Clone, Debug)]
pub struct Finished {
    /// A hash of everything that happened, in order.
    pub trace_hash: u64,
    /// The counts of everything that happened.
    pub tally: Tally,
    /// The virtual time that passed.
    pub simulated_ms: u64,
    /// The number of steps.
    pub steps: u64,
}

impl Finished {
    /// The classes of faults that the run had.
    pub fn classes(&self) -> impl Iterator<Item = &'static str> + '_ {
        let is_met = |names: &[&str]| names.iter().any(|name| self.tally.of(name) > 0);
        CLASSES.iter().filter(move |(_, names)| is_met(names)).map(|(class, _)| *class)
    }
}

/// A violation in a run.
#[derive(Clone, Debug)]
pub struct Mishap {
    /// The seed of the run.
    pub seed: u64,
    /// The violation, starting with the number of the invariant.
    pub what: String,
    /// The last lines of the trace.
    pub trace: Vec<String>,
    /// The number of planned faults, and of the actions of callers.
    counted: (u64, u64),
}

impl Mishap {
    /// The violated invariant.
    pub fn invariant(&self) -> &str {
        self.what.split([':', ' ']).next().unwrap_or_default()
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.trace.join("\n"))?;
        write!(f, "PERENNIAL_SEED={}: {}", self.seed, self.what)
    }
}

impl Simulation {
    /// Creates the run of a seed.
    pub fn new(seed: u64) -> Simulation {
        Simulation::of_plan(seed, |_, _| ())
    }

    /// Creates a short run of a seed: few small programs, and faults for a few seconds.
    pub fn short(seed: u64) -> Simulation {
        Simulation::of_plan(seed, |plan, rng| plan.be_short(rng))
    }

    fn of_plan(seed: u64, change: impl FnOnce(&mut Plan, &mut Rng)) -> Simulation {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::new(&mut rng);
        change(&mut plan, &mut rng);
        let codec_log: Arc<CodecLog> = Arc::default();
        codecs::draw(seed, &mut plan, &codec_log);
        let clock = StoreClock::new(START_MS);
        let store = Arc::new(MemoryStore::new(clock.reader()));
        let unsent_hints = Arc::new(Mutex::new(Vec::new()));
        let watched = Arc::clone(&unsent_hints);
        store.watch(Arc::new(move |changes: &Changes| {
            watched.lock().expect("the lock is not poisoned").push(*changes);
        }));
        let callers = Callers::new(&mut rng, &plan);
        let coded = codecs::store_of(&store, &plan.shard.codecs);
        Simulation {
            seed,
            flaw: None,
            code_is_late: false,
            processes: plan.roles.iter().map(|_| Process::default()).collect(),
            pending: VecDeque::new(),
            code: vec![Code::from([PROGRAM_VERSION]); plan.roles.len()],
            runs: 0,
            deadly: None,
            deaths: 0,
            forgotten_deaths: 0,
            ends: BTreeMap::new(),
            plan,
            rng,
            now_ms: START_MS,
            clock,
            store,
            coded,
            codec_log,
            unsent_hints,
            handlers: Handlers::default(),
            side_effects: SideEffects::default(),
            agenda: Agenda::default(),
            callers,
            outages: Outages::default(),
            damaged: Damaged::default(),
            mistypes: Mistypes::default(),
            repairs: Repairs::default(),
            witness: Witness::new(START_MS),
            tally: Tally(BTreeMap::new()),
            trace: Trace::default(),
            steps: 0,
            left_out: LeftOut::default(),
            is_healed: false,
            failure: None,
        }
    }

    /// The same run with a bug in the engine.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Simulation {
        self.flaw = Some(flaw);
        self
    }

    /// The same run, with missing code deployed only after all instances that do not need it have finished.
    #[must_use]
    pub fn with_late_code(mut self) -> Simulation {
        self.code_is_late = true;
        self
    }

    /// The same run with a storm of kills, and activities that last as long as the storm.
    #[must_use]
    pub fn with_storm_of_kills(mut self) -> Simulation {
        self.plan.be_storm();
        if let Some(subject) = self.plan.lasting.and_then(|subject| self.callers.subjects.get_mut(subject)) {
            subject.begin_with_an_activity();
        }
        self
    }

    /// The same run, with more lines of its trace kept.
    #[must_use]
    pub fn keeping_lines(mut self, lines: usize) -> Simulation {
        self.trace.keep = lines;
        self
    }

    /// Runs until everything is finished.
    #[allow(clippy::result_large_err, reason = "an error ends a test run")]
    pub fn run(mut self) -> Result<Finished, Mishap> {
        let _planted = flaws::plant(self.flaw);
        for version in [PROGRAM_VERSION, NEXT_VERSION] {
            self.handlers = std::mem::take(&mut self.handlers).with(PROGRAM, version, self.code_of(version));
        }
        for process in 0..self.processes.len() {
            let joins_ms = self.plan.joins_ms[process];
            self.later(joins_ms, format!("p{process} joins"), move |this| this.boot(process));
        }
        self.plan_faults();
        self.schedule_callers();
        let faults_end_ms = START_MS + self.plan.faults_ms;
        self.run_until(faults_end_ms);
        if self.code_is_late {
            self.heal_all_but_code();
        }
        self.heal();
        self.run_healed();
        self.audit();
        self.count_codecs();
        match self.failure.take() {
            None => {
                let (trace_hash, simulated_ms) = (self.trace.hash, self.now_ms - START_MS);
                Ok(Finished { trace_hash, tally: self.tally, simulated_ms, steps: self.steps })
            }
            Some(what) => {
                let (trace, LeftOut { planned, actions, .. }) = (self.trace.into_lines(), self.left_out);
                Err(Mishap { seed: self.seed, what, trace, counted: (planned, actions) })
            }
        }
    }

    /// Records a violation. Only the first one is kept.
    fn fail(&mut self, what: String) {
        if self.failure.is_none() {
            self.note(|| format!("WRONG {what}"));
            self.failure = Some(what);
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        self.trace.add(self.now_ms, line());
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.0.entry(what).or_default() += 1;
    }

    fn run_until(&mut self, until_ms: u64) {
        while self.failure.is_none() && self.step(until_ms) {}
        self.pass_time(until_ms);
    }

    fn pass_time(&mut self, at_ms: u64) {
        if at_ms > self.now_ms {
            self.now_ms = at_ms;
            self.clock.pass(at_ms);
            self.witness.pass_time(at_ms, self.clock.now_ms());
        }
    }

    /// Runs the next entry of the agenda, unless it is later than this.
    fn step(&mut self, until_ms: u64) -> bool {
        let Some((at_ms, entry)) = self.agenda.take(until_ms) else {
            return false;
        };
        self.pass_time(at_ms);
        self.steps += 1;
        if self.steps > MAX_STEPS {
            self.fail("I17: the run does not end".to_owned());
        }
        if let Some((number, incarnation)) = entry.guard {
            let process = &self.processes[number];
            if process.incarnation != incarnation {
                return true;
            }
            if process.paused_until_ms > self.now_ms {
                let again_ms = process.paused_until_ms;
                self.agenda.add(again_ms, entry);
                return true;
            }
        }
        let label = entry.label;
        self.note(|| label);
        (entry.run)(self);
        self.do_pending();
        true
    }
}
