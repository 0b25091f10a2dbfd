//! One execution by hand: give it jobs, look at what it recorded, evict it, replay it.

use std::sync::Arc;

use perennial_core::history::encode_turn;
use perennial_core::{
    ActivityError, Event, EventId, Execution, ExecutionOptions, History, Job, OrchestrationHandler, Payload,
    Started, Turn, TurnFailure, TurnTaken,
};

/// Drives one execution and keeps its history. Time starts at 1,000 ms and moves only when told.
pub struct Drive {
    handler: Arc<dyn OrchestrationHandler>,
    options: ExecutionOptions,
    execution: Execution,
    history: History,
    now_ms: u64,
}

impl Drive {
    /// The instance id of every driven execution.
    pub const INSTANCE: &'static str = "instance-1";

    /// Starts an orchestration and takes its first turn.
    ///
    /// # Panics
    ///
    /// If the turn fails; so do all methods that do not return a result.
    pub fn start(handler: impl OrchestrationHandler, input: impl Into<Payload>) -> Drive {
        Drive::try_start(handler, input).unwrap_or_else(|failure| panic!("the first turn failed: {failure}"))
    }

    /// Starts an orchestration and takes its first turn.
    pub fn try_start(
        handler: impl OrchestrationHandler,
        input: impl Into<Payload>,
    ) -> Result<Drive, TurnFailure> {
        let started = Started::new("orchestration", "1.0.0", input, 42);
        let mut drive = Drive::prepare(Arc::new(handler), started, ExecutionOptions::default())?;
        drive.try_turn(Vec::new())?;
        Ok(drive)
    }

    /// Prepares an execution that has not taken its first turn.
    pub fn prepare(
        handler: Arc<dyn OrchestrationHandler>,
        started: Started,
        options: ExecutionOptions,
    ) -> Result<Drive, TurnFailure> {
        let execution = Execution::new(Drive::INSTANCE, Arc::clone(&handler), started, options.clone())?;
        Ok(Drive { handler, options, execution, history: History::default(), now_ms: 1_000 })
    }

    /// The execution.
    pub fn execution(&mut self) -> &mut Execution {
        &mut self.execution
    }

    /// What was recorded so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The turn that was taken last.
    pub fn last_turn(&self) -> &Turn {
        self.history.turns.last().expect("a turn was taken")
    }

    /// Moves the time of the turns to come.
    pub fn at(&mut self, now_ms: u64) -> &mut Drive {
        self.now_ms = now_ms;
        self
    }

    /// Takes a turn.
    pub fn turn(&mut self, jobs: impl Into<Vec<Job>>) -> &mut Drive {
        self.try_turn(jobs).unwrap_or_else(|failure| panic!("the turn failed: {failure}"));
        self
    }

    /// Takes a turn, and records it if there is one.
    pub fn try_turn(&mut self, jobs: impl Into<Vec<Job>>) -> Result<TurnTaken, TurnFailure> {
        let taken = self.execution.take_turn(self.now_ms, jobs.into())?;
        self.history.turns.extend(taken.turn.clone());
        Ok(taken)
    }

    /// Takes a turn in which an activity returns.
    pub fn complete(&mut self, source: u64, result: impl Into<Payload>) -> &mut Drive {
        self.turn([Drive::completed(source, result)])
    }

    /// Takes a turn in which a timer fires, at its due time if that is later.
    pub fn fire(&mut self, source: u64) -> &mut Drive {
        self.turn([Drive::fired(source)])
    }

    /// Takes a turn in which an event arrives.
    pub fn raise(&mut self, name: &str, payload: impl Into<Payload>) -> &mut Drive {
        self.turn([Drive::event(name, payload)])
    }

    /// An activity returned.
    pub fn completed(source: u64, result: impl Into<Payload>) -> Job {
        Job::ActivityCompleted {
            source_event_id: EventId(source),
            result: result.into(),
            attempts: 1,
            trail: Default::default(),
        }
    }

    /// An activity failed.
    pub fn failed(source: u64, error: impl Into<Payload>) -> Job {
        let error = ActivityError::Application(error.into());
        Job::ActivityFailed {
            source_event_id: EventId(source),
            error,
            attempts: 1,
            trail: Default::default(),
        }
    }

    /// A timer fired.
    pub fn fired(source: u64) -> Job {
        Job::TimerFired { source_event_id: EventId(source) }
    }

    /// A child returned.
    pub fn child_completed(source: u64, result: impl Into<Payload>) -> Job {
        Job::SubOrchestrationCompleted { source_event_id: EventId(source), result: result.into() }
    }

    /// An event arrived.
    pub fn event(name: &str, payload: impl Into<Payload>) -> Job {
        Job::ExternalEvent { name: name.to_owned(), payload: payload.into(), key: None, trace: None }
    }

    /// An update was accepted.
    pub fn update(name: &str, payload: impl Into<Payload>) -> Job {
        Job::UpdateRequested { name: name.to_owned(), payload: payload.into(), key: None, trace: None }
    }

    /// An event was taken out.
    pub fn skipped(event: u64) -> Job {
        Job::ExternalEventSkipped { event_id: EventId(event) }
    }

    /// Cancellation was requested, with a grace of `grace_ms` from the turn that delivers it.
    pub fn cancel(reason: &str, grace_ms: u64) -> Job {
        Job::OrchestrationCancelRequested { reason: reason.to_owned(), grace_ms }
    }

    /// Every event of the history as `id summary`.
    pub fn lines(&self) -> Vec<String> {
        self.history.flatten().map(line).collect()
    }

    /// Every event of the last turn as `id summary`.
    pub fn last_lines(&self) -> Vec<String> {
        self.last_turn().events.iter().map(line).collect()
    }

    /// Drops the execution and builds it again by replaying its history, from the stored bytes.
    pub fn evict(&mut self) -> &mut Drive {
        let turns: Vec<Vec<u8>> = self.history.turns.iter().map(encode_turn).collect();
        let history = perennial_core::history::decode_history(turns).expect("a recorded history decodes");
        assert_eq!(history, self.history, "the bytes hold what was recorded");
        self.execution =
            self.replayed(&history).unwrap_or_else(|failure| panic!("the replay failed: {failure}"));
        self
    }

    /// A fresh execution of the same code that has replayed a history.
    pub fn replayed(&self, history: &History) -> Result<Execution, TurnFailure> {
        replay(Arc::clone(&self.handler), history, self.options.clone())
    }

    /// Replays the history with other code.
    pub fn replay_with(&self, handler: impl OrchestrationHandler) -> Result<Execution, TurnFailure> {
        replay(Arc::new(handler), &self.history, self.options.clone())
    }
}

fn replay(
    handler: Arc<dyn OrchestrationHandler>,
    history: &History,
    options: ExecutionOptions,
) -> Result<Execution, TurnFailure> {
    let started = history.started().expect("a history has a first event").clone();
    let mut execution = Execution::new(Drive::INSTANCE, handler, started, options)?;
    for turn in history {
        execution.replay_turn(turn)?;
    }
    Ok(execution)
}

fn line(event: &Event) -> String {
    format!("{} {}", event.id, event.summary())
}
