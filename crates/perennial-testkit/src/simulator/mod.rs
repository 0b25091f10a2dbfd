//! The simulator: real shards on a few nodes, one store, one virtual clock, and every disaster that a seed can think of.
//!
//! A [`Simulation`] is one thread and one agenda. Every call to the store, every turn, every activity and every caller's
//! request is an entry of it with a delay that the seed decides, and so is all that goes wrong: nodes crash, stop for a
//! while and come back, commits are refused, or written without anyone knowing, sessions run out. Shards, Committers and
//! the store are the real ones; only what is between them is simulated, the way a node of the runtime does it.
//!
//! After a while everything is healed: no more faults, all nodes up. Then everything has to finish, and the rows and the
//! callers' log have to be in order. What must hold at every step is watched at every step. The same seed gives the same
//! trace; [`Flaw`]s are mistakes that can be planted into the glue, to see that they are noticed.

mod activities;
mod agenda;
mod asks;
mod audit;
mod callers;
mod commits;
mod deployments;
mod flaws;
mod healing;
mod node;
mod plan;
mod pruning;
mod sessions;
mod store_calls;
mod taken;
mod tally;
mod trace;
mod witness;
mod work;

pub use plan::Flaw;
pub use tally::Tally;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perennial_core::shard::RequestId;
use perennial_core::store::MemoryStore;
use perennial_core::{EventId, Handlers, InstanceKey};

use crate::program::{PROGRAM, PROGRAM_VERSION};
use crate::{Chance, ProgramHandler, SideEffects};

use agenda::Agenda;
use callers::Callers;
use deployments::{Code, NEXT_VERSION};
use node::Node;
use plan::Plan;
use trace::Trace;
use witness::Witness;

/// When the virtual clock starts.
const START_MS: u64 = 1_000_000;
/// More steps than this are too many.
const MAX_STEPS: u64 = 200_000;

/// One run of a few nodes through whatever the seed has in store.
pub struct Simulation {
    seed: u64,
    plan: Plan,
    flaw: Option<Flaw>,
    /// Senders of events go to the owner one time and through the store another.
    roams: bool,
    /// Code that is missing comes only after everybody else has finished.
    code_is_late: bool,
    /// Decides everything after the plan.
    chance: Chance,
    clock: Arc<AtomicU64>,
    store: Arc<MemoryStore>,
    handlers: Handlers,
    side_effects: SideEffects,
    agenda: Agenda,
    nodes: Vec<Node>,
    callers: Callers,
    /// The versions that each node has, or will have when it starts again.
    code: Vec<Code>,
    /// Counts attempts of activities.
    runs: u64,
    /// The activity that takes its process down, and how often it has.
    deadly: Option<(InstanceKey, u64, EventId)>,
    deaths: u64,
    /// Instances whose carried events a planted mistake forgot.
    forgotten: BTreeSet<InstanceKey>,
    /// Whose end callers wait for.
    ends: BTreeMap<RequestId, String>,
    witness: Witness,
    tally: Tally,
    trace: Trace,
    /// Counts up whenever a node gets a shard, so that what belongs to an earlier tenure is known as late.
    tenures: u64,
    steps: u64,
    is_healed: bool,
    failure: Option<String>,
}

/// How a run ended that found nothing wrong.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Stands for everything that happened, in order.
    pub trace_hash: u64,
    /// What happened how often.
    pub tally: Tally,
}

/// What a run found wrong.
#[derive(Clone, Debug)]
pub struct Mishap {
    /// The run.
    pub seed: u64,
    /// What is wrong, beginning with the number of the invariant.
    pub what: String,
    /// What happened last, line by line.
    pub trace: Vec<String>,
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.trace.join("\n"))?;
        write!(f, "PERENNIAL_SEED={}: {}", self.seed, self.what)
    }
}

impl Simulation {
    /// The run that belongs to a seed.
    pub fn new(seed: u64) -> Simulation {
        let mut chance = Chance::new(seed);
        let plan = Plan::new(&mut chance);
        let clock = Arc::new(AtomicU64::new(START_MS));
        let time = Arc::clone(&clock);
        let side_effects = SideEffects::default();
        let callers = Callers::new(&mut chance, &plan);
        Simulation {
            seed,
            flaw: None,
            roams: false,
            code_is_late: false,
            nodes: (0..plan.nodes).map(|_| Node::new(plan.max_batch)).collect(),
            code: vec![Code::from([PROGRAM_VERSION]); plan.nodes],
            runs: 0,
            deadly: None,
            deaths: 0,
            forgotten: BTreeSet::new(),
            ends: BTreeMap::new(),
            plan,
            chance,
            clock,
            store: Arc::new(MemoryStore::new(move || time.load(Ordering::Relaxed))),
            handlers: Handlers::default()
                .with(PROGRAM, PROGRAM_VERSION, ProgramHandler::new(side_effects.clone()))
                .with(PROGRAM, NEXT_VERSION, ProgramHandler::new(side_effects.clone())),
            side_effects,
            agenda: Agenda::default(),
            callers,
            witness: Witness::default(),
            tally: Tally(BTreeMap::new()),
            trace: Trace::default(),
            tenures: 0,
            steps: 0,
            is_healed: false,
            failure: None,
        }
    }

    /// The same run with a mistake in the glue.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Simulation {
        self.flaw = Some(flaw);
        self
    }

    /// The same run, with senders that raise one event at the owner and the next one from elsewhere.
    #[must_use]
    pub fn with_roaming_senders(mut self) -> Simulation {
        self.roams = true;
        self
    }

    /// The same run, in which the code that is missing comes only after all who do not need it have finished.
    #[must_use]
    pub fn with_late_code(mut self) -> Simulation {
        self.code_is_late = true;
        self
    }

    /// The same run, with more of its trace kept for a look.
    #[must_use]
    pub fn keeping_lines(mut self, lines: usize) -> Simulation {
        self.trace.keep = lines;
        self
    }

    /// Runs until everything is finished.
    #[allow(clippy::result_large_err, reason = "a mishap ends a test run")]
    pub fn run(mut self) -> Result<Finished, Mishap> {
        for node in 0..self.nodes.len() {
            self.boot(node);
        }
        self.plan_trouble();
        self.callers_go_on();
        let trouble_ends_ms = START_MS + self.plan.trouble_ms;
        self.run_until(trouble_ends_ms);
        if self.code_is_late {
            self.heal_all_but_code();
        }
        self.heal();
        self.run_healed();
        self.audit();
        match self.failure.take() {
            None => Ok(Finished { trace_hash: self.trace.hash, tally: self.tally }),
            Some(what) => {
                let trace = self.trace.lines.into_iter().collect();
                Err(Mishap { seed: self.seed, what, trace })
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Something is wrong. The first finding counts.
    fn fail(&mut self, what: String) {
        if self.failure.is_none() {
            self.note(|| format!("WRONG {what}"));
            self.failure = Some(what);
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ms = self.now_ms();
        self.trace.add(now_ms, line());
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.0.entry(what).or_default() += 1;
    }

    fn run_until(&mut self, until_ms: u64) {
        while self.failure.is_none() && self.step(until_ms) {}
        self.clock.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Does the next thing on the agenda, unless it is later than this.
    fn step(&mut self, until_ms: u64) -> bool {
        let Some((at_ms, entry)) = self.agenda.take(until_ms) else {
            return false;
        };
        self.clock.fetch_max(at_ms, Ordering::Relaxed);
        self.steps += 1;
        if self.steps > MAX_STEPS {
            self.fail("I17: it does not come to an end".to_owned());
        }
        if let Some((number, incarnation)) = entry.guard {
            let node = &self.nodes[number];
            if node.incarnation != incarnation {
                return true;
            }
            if node.paused_until_ms > self.now_ms() {
                let again_ms = node.paused_until_ms;
                self.agenda.add(again_ms, entry);
                return true;
            }
        }
        let label = entry.label;
        self.note(|| label);
        (entry.run)(self);
        true
    }
}
