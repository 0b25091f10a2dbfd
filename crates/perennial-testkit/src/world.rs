//! The environment of one program: completes its open operations in an order and in portions that a seed
//! determines.
//!
//! A world is a loop over turns, without a clock or an async runtime. It is fair as far as a program needs it
//! to end (open operations complete eventually) and unfair otherwise: it fails operations, repeats jobs,
//! raises events early or for no wait, requests cancellation, terminates. Evictions are drawn from a separate
//! generator, so that a world with them and one without do the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use perennial_core::{
    Decision, EventId, Execution, ExecutionOptions, HistoryError, Job, Ledger, OrchestrationHandler,
    StaleReason, Started, TurnFailure, TurnTaken, UpdateRefusal,
};

use crate::Rng;
use crate::answers::{Answers, event, payload};
use crate::interpret::{ProgramHandler, SideEffects};
use crate::program::{HandlerKind, PROGRAM, PROGRAM_VERSION, Program, ProgramInput};
use crate::recording::{RecordedExecution, Recording, View};

/// The instance id of every program in a world.
pub const INSTANCE: &str = "instance-1";

/// After this many turns all open operations complete at once, and no other jobs are sent.
const PATIENCE_TURNS: u64 = 150;
/// After this many turns a program counts as endless.
const MAX_TURNS: u64 = 1_000;

/// Runs one program until it ends.
pub struct World {
    seed: u64,
    rng: Rng,
    evictions: Option<Rng>,
    options: ExecutionOptions,
    side_effects: SideEffects,
    handler: Arc<dyn OrchestrationHandler>,
    plan: Plan,
    now_ms: u64,
    turns: u64,
    unrecorded: BTreeMap<&'static str, u64>,
}

/// Fixed choices of a world.
struct Plan {
    /// The maximum number of open operations that complete in a turn.
    portion: usize,
    cancel_at_turn: Option<u64>,
    terminate_at_turn: Option<u64>,
}

/// A running execution.
struct Stage {
    execution: Execution,
    answers: Answers,
    recorded: RecordedExecution,
}

impl World {
    /// Creates the world of a seed.
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let at_turn = |percent, rng: &mut Rng| rng.percent(percent).then(|| rng.between(1, 8));
        let plan = Plan {
            portion: rng.weighted(&[(2, 1), (3, 3), (1, usize::MAX)]),
            cancel_at_turn: at_turn(40, &mut rng),
            terminate_at_turn: at_turn(10, &mut rng),
        };
        let side_effects = SideEffects::default();
        World {
            seed,
            rng,
            evictions: None,
            options: ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() },
            handler: Arc::new(ProgramHandler::new(side_effects.clone())),
            side_effects,
            plan,
            now_ms: 1_000,
            turns: 0,
            unrecorded: BTreeMap::new(),
        }
    }

    /// The same world, but at half of the turn boundaries the execution is dropped and replayed from stored
    /// bytes.
    #[must_use]
    pub fn evicting(mut self) -> World {
        self.evictions = Some(Rng::new(!self.seed));
        self
    }

    /// The same world, with every turn replayed in the shadow.
    #[must_use]
    pub fn with_shadow_replay(mut self) -> World {
        self.options.shadow_replay = true;
        self
    }

    /// Runs a program from its start to the end of its last execution.
    pub fn run(mut self, program: &Program) -> Result<Recording, Box<Unfinished>> {
        let mut executions = Vec::new();
        let input = ProgramInput::from(program.clone()).payload();
        let mut started = Started::new(PROGRAM, PROGRAM_VERSION, input, self.rng.draw());
        let mut carried = Vec::new();
        loop {
            let stage = match self.stage(started) {
                Ok(stage) => stage,
                Err(error) => return Err(self.unfinished(program, executions, Why::Failed(error.into()))),
            };
            match self.run_execution(stage, program, carried) {
                Ok(recorded) => executions.push(recorded),
                Err((recorded, why)) => {
                    executions.push(*recorded);
                    return Err(self.unfinished(program, executions, why));
                }
            }
            let Some(successor) = executions.last().and_then(|recorded| recorded.successor.as_ref()) else {
                let unrecorded = self.unrecorded;
                return Ok(Recording { executions, unrecorded });
            };
            let version = successor.version.as_deref().unwrap_or(PROGRAM_VERSION);
            started = successor.started(version, self.rng.draw());
            carried = successor.jobs.clone();
        }
    }

    fn stage(&self, started: Started) -> Result<Stage, HistoryError> {
        let handler = Arc::clone(&self.handler);
        Ok(Stage {
            execution: Execution::new(INSTANCE, handler, started.clone(), self.options.clone())?,
            answers: Answers::default(),
            recorded: RecordedExecution::new(started),
        })
    }

    fn run_execution(
        &mut self,
        mut stage: Stage,
        program: &Program,
        carried: Vec<Job>,
    ) -> Result<RecordedExecution, (Box<RecordedExecution>, Why)> {
        let mut jobs = carried;
        if self.rng.percent(20) {
            jobs.push(self.some_event(program));
        }
        loop {
            if let Err(why) = self.take_turn(&mut stage, jobs) {
                return Err((Box::new(stage.recorded), why));
            }
            if stage.recorded.history.ending().is_some() {
                return Ok(stage.recorded);
            }
            jobs = self.jobs_for(&mut stage, program);
        }
    }

    /// Takes a turn with these jobs, or terminates the execution.
    fn take_turn(&mut self, stage: &mut Stage, jobs: Vec<Job>) -> Result<(), Why> {
        if self.turns == MAX_TURNS {
            return Err(Why::TooManyTurns);
        }
        self.turns += 1;
        stage.recorded.side_effects.push(self.side_effects.count());
        if let Some(reason) = self.reason_to_terminate(&stage.execution) {
            let turn = stage.execution.ledger().clone().terminate(self.now_ms, reason);
            stage.recorded.history.turns.push(turn);
            return Ok(());
        }
        let taken = stage.execution.take_turn(self.turn_time(), jobs).map_err(Why::Failed)?;
        let TurnTaken { turn, stale, successor, .. } = taken;
        for stale in stale {
            self.count(stale_name(stale.reason));
        }
        let Some(turn) = turn else {
            stage.recorded.side_effects.pop();
            return Ok(());
        };
        self.now_ms = self.now_ms.max(turn.at_ms);
        stage.answers.note(&turn);
        stage.recorded.history.turns.push(turn);
        stage.recorded.successor = successor;
        stage.recorded.views.push(View::of(&mut stage.execution));
        if self.evictions.as_mut().is_some_and(|rng| rng.percent(50)) {
            self.count("evicted");
            stage.execution = stage.recorded.hydrate(&self.handler, &self.options).map_err(Why::Failed)?;
        }
        Ok(())
    }

    /// Time advances by a little or a lot, or a clock is behind.
    fn turn_time(&mut self) -> u64 {
        let (forward, back) =
            self.rng.weighted(&[(6, (3, 0)), (2, (2_000, 0)), (1, (20_000, 0)), (1, (0, 500))]);
        let at_ms = self.now_ms + self.rng.between(0, forward);
        self.now_ms = at_ms;
        at_ms.saturating_sub(back)
    }

    fn reason_to_terminate(&self, execution: &Execution) -> Option<&'static str> {
        let ledger = execution.ledger();
        if ledger.turns() == 0 {
            None
        } else if ledger.cancel_request().is_some_and(|cancel| cancel.until_ms() < self.now_ms) {
            Some("the grace period has ended")
        } else if self.plan.terminate_at_turn.is_some_and(|turn| turn <= self.turns) {
            Some("terminated")
        } else {
            None
        }
    }

    fn jobs_for(&mut self, stage: &mut Stage, program: &Program) -> Vec<Job> {
        let hurried = self.turns > PATIENCE_TURNS;
        let portion = if hurried { usize::MAX } else { self.plan.portion };
        let mut jobs = stage.answers.some(&mut self.rng, stage.execution.ledger(), portion);
        let signals = self.owes_signals(stage.execution.ledger());
        if signals {
            jobs.extend(program.handled(HandlerKind::Event).map(|name| event(&mut self.rng, name)));
        }
        if signals || (!hurried && self.rng.percent(20)) {
            jobs.extend(self.updates(&mut stage.execution, program));
        }
        if !hurried {
            self.add_surprises(&mut jobs, stage, program);
        }
        jobs
    }

    /// Whether handlers must be called for the program to continue, as far as its ledger shows. With open
    /// waits this is a guess: their events may have arrived. Not every time, or handlers would never be idle.
    fn owes_signals(&mut self, ledger: &Ledger) -> bool {
        let is_wait = |open: &Decision| matches!(open, Decision::ExternalSubscribed { .. });
        let nothing_is_open = ledger.open().next().is_none();
        nothing_is_open || (ledger.open().all(|(_, open)| is_wait(open)) && self.rng.percent(30))
    }

    fn add_surprises(&mut self, jobs: &mut Vec<Job>, stage: &Stage, program: &Program) {
        let mut surprises = Vec::new();
        if self.rng.percent(12) {
            surprises.push(self.some_event(program));
        }
        if self.rng.percent(15) {
            surprises.extend(stage.answers.out_of_place(&mut self.rng, stage.execution.ledger(), jobs));
        }
        if self.plan.cancel_at_turn.is_some_and(|turn| turn <= self.turns) {
            // Sometimes a second request is made: with an earlier end of the grace period, or without effect.
            let again = self.rng.percent(70);
            self.plan.cancel_at_turn = again.then(|| self.turns + self.rng.between(1, 5));
            surprises.push(Job::OrchestrationCancelRequested {
                reason: format!("requested in turn {}", self.turns),
                grace_ms: self.rng.between(0, 30_000),
            });
        }
        if self.rng.percent(5) {
            surprises.push(self.repair());
        }
        for surprise in surprises {
            jobs.insert(self.rng.below(jobs.len() + 1), surprise);
        }
        let ledger = stage.execution.ledger();
        if ledger.turns() > 0 && self.rng.percent(8) {
            // An additional event, first so that its number is known; the program must not receive it.
            let event_id = EventId(ledger.events()).next();
            jobs.insert(0, self.some_event(program));
            jobs.push(Job::ExternalEventSkipped { event_id });
        }
    }

    /// A recorded repair, which is invisible to the program.
    fn repair(&mut self) -> Job {
        match self.rng.percent(50) {
            true => Job::InstanceResumed {
                why: perennial_core::Why::new("the pause has ended"),
                paused_ms: self.now_ms,
                paused: perennial_core::Why::new("an audit").by("somebody"),
            },
            false => {
                Job::MessageSkipped { number: self.turns, problem: "it is of a newer version".to_owned() }
            }
        }
    }

    /// An event that the program may or may not know.
    fn some_event(&mut self, program: &Program) -> Job {
        let mut names: Vec<&str> = program.awaited_events().into_iter().collect();
        names.extend(program.handled(HandlerKind::Event));
        names.push("unknown");
        let name = *self.rng.pick(&names);
        event(&mut self.rng, name)
    }

    /// The updates that the execution accepts.
    fn updates(&mut self, execution: &mut Execution, program: &Program) -> Vec<Job> {
        let mut accepted = Vec::new();
        for name in program.handled(HandlerKind::Update).chain(["update-unknown"]) {
            for payload in [Program::refused_update(), payload(&mut self.rng)] {
                match execution.offer_update(name, &payload) {
                    Ok(()) => accepted.push(Job::UpdateRequested {
                        name: name.to_owned(),
                        payload,
                        key: None,
                        trace: None,
                    }),
                    Err(refusal) => self.count(refusal_name(&refusal)),
                }
            }
        }
        accepted
    }

    fn count(&mut self, what: &'static str) {
        *self.unrecorded.entry(what).or_default() += 1;
    }

    fn unfinished(self, program: &Program, executions: Vec<RecordedExecution>, why: Why) -> Box<Unfinished> {
        Box::new(Unfinished { seed: self.seed, program: program.clone(), executions, why })
    }
}

/// A program that did not end.
#[derive(Debug)]
pub struct Unfinished {
    /// The seed of the world.
    pub seed: u64,
    /// The program.
    pub program: Program,
    /// The recording so far.
    pub executions: Vec<RecordedExecution>,
    /// The reason.
    pub why: Why,
}

/// The reason why a program did not end.
#[derive(Debug)]
pub enum Why {
    /// A turn or a replay failed.
    Failed(TurnFailure),
    /// It does not end although all operations complete.
    TooManyTurns,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = serde_json::to_string(&self.program).map_err(|_| fmt::Error)?;
        writeln!(f, "a program did not end in the world with seed {}: {}", self.seed, self.why)?;
        writeln!(f, "the program: {program}")?;
        for recorded in &self.executions {
            writeln!(f, "execution {}:", recorded.started.execution)?;
            for turn in &recorded.history {
                writeln!(f, "  turn {} at {}", turn.number, turn.at_ms)?;
                for event in &turn.events {
                    writeln!(f, "    {} {}", event.id, event.summary())?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Failed(TurnFailure::Nondeterminism(difference)) => f.write_str(&difference.report()),
            Why::Failed(failure) => failure.fmt(f),
            Why::TooManyTurns => write!(f, "it takes more than {MAX_TURNS} turns"),
        }
    }
}

impl std::error::Error for Unfinished {}

fn stale_name(reason: StaleReason) -> &'static str {
    match reason {
        StaleReason::NotOpen => "stale: not open",
        StaleReason::WrongKind => "stale: wrong kind",
        StaleReason::KnownKey => "stale: known key",
        StaleReason::AlreadyCancelling => "stale: already cancelling",
        _ => "stale: other",
    }
}

fn refusal_name(refusal: &UpdateRefusal) -> &'static str {
    match refusal {
        UpdateRefusal::NoHandler { .. } => "update refused: no handler",
        UpdateRefusal::Refused { .. } => "update refused: by its validator",
        _ => "update refused: otherwise",
    }
}
