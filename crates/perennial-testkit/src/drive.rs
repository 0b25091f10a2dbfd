//! Runs one execution step by step: send jobs, inspect its history, evict it, replay it.

use std::sync::Arc;

use perennial_core::history::encode_turn;
use perennial_core::{
    ActivityError, Event, EventId, Execution, ExecutionOptions, History, Job, OrchestrationHandler, Payload,
    Started, Turn, TurnFailure, TurnTaken,
};

/// Runs one execution and keeps its history. Time starts at 1,000 ms and moves only by [`Drive::at`].
pub struct Drive {
    handler: Arc<dyn OrchestrationHandler>,
    options: ExecutionOptions,
    execution: Execution,
    history: History,
    now_ms: u64,
}

impl Drive {
    /// The instance id of every execution.
    pub const INSTANCE: &'static str = "instance-1";

    /// Starts an orchestration and takes its first turn.
    ///
    /// # Panics
    ///
    /// If the turn fails. The same holds for all methods that do not return a `Result`.
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

    /// Creates an execution that has not taken its first turn.
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

    /// The history so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The most recent turn.
    pub fn last_turn(&self) -> &Turn {
        self.history.turns.last().expect("a turn was taken")
    }

    /// Sets the time of the following turns.
    pub fn at(&mut self, now_ms: u64) -> &mut Drive {
        self.now_ms = now_ms;
        self
    }

    /// Takes a turn.
    pub fn turn(&mut self, jobs: impl Into<Vec<Job>>) -> &mut Drive {
        self.try_turn(jobs).unwrap_or_else(|failure| panic!("the turn failed: {failure}"));
        self
    }

    /// Takes a turn, and records it if the jobs lead to one.
    pub fn try_turn(&mut self, jobs: impl Into<Vec<Job>>) -> Result<TurnTaken, TurnFailure> {
        let taken = self.execution.take_turn(self.now_ms, jobs.into())?;
        self.history.turns.extend(taken.turn.clone());
        Ok(taken)
    }

    /// Takes a turn in which an activity completes.
    pub fn complete(&mut self, source: u64, result: impl Into<Payload>) -> &mut Drive {
        self.turn([Drive::completed(source, result)])
    }

    /// Takes a turn in which a timer fires, not before its due time.
    pub fn fire(&mut self, source: u64) -> &mut Drive {
        self.turn([Drive::fired(source)])
    }

    /// Takes a turn in which an event arrives.
    pub fn raise(&mut self, name: &str, payload: impl Into<Payload>) -> &mut Drive {
        self.turn([Drive::event(name, payload)])
    }

    /// The completion of an activity.
    pub fn completed(source: u64, result: impl Into<Payload>) -> Job {
        Job::ActivityCompleted {
            source_event_id: EventId(source),
            result: result.into(),
            attempts: 1,
            trail: Default::default(),
        }
    }

    /// The failure of an activity.
    pub fn failed(source: u64, error: impl Into<Payload>) -> Job {
        let error = ActivityError::Application(error.into());
        Job::ActivityFailed {
            source_event_id: EventId(source),
            error,
            attempts: 1,
            trail: Default::default(),
        }
    }

    /// The firing of a timer.
    pub fn fired(source: u64) -> Job {
        Job::TimerFired { source_event_id: EventId(source) }
    }

    /// The completion of a child.
    pub fn child_completed(source: u64, result: impl Into<Payload>) -> Job {
        Job::SubOrchestrationCompleted { source_event_id: EventId(source), result: result.into() }
    }

    /// The arrival of an event.
    pub fn event(name: &str, payload: impl Into<Payload>) -> Job {
        Job::ExternalEvent { name: name.to_owned(), payload: payload.into(), key: None, trace: None }
    }

    /// An accepted update.
    pub fn update(name: &str, payload: impl Into<Payload>) -> Job {
        Job::UpdateRequested { name: name.to_owned(), payload: payload.into(), key: None, trace: None }
    }

    /// A skipped event.
    pub fn skipped(event: u64) -> Job {
        Job::ExternalEventSkipped { event_id: EventId(event) }
    }

    /// A cancel request, with a grace period of `grace_ms` from the turn that delivers it.
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

    /// Drops the execution and rebuilds it by replaying its history from the stored bytes.
    pub fn evict(&mut self) -> &mut Drive {
        let turns: Vec<Vec<u8>> = self.history.turns.iter().map(encode_turn).collect();
        let history = perennial_core::history::decode_history(turns).expect("a recorded history decodes");
        assert_eq!(history, self.history, "encoding changed the history");
        self.execution =
            self.replayed(&history).unwrap_or_else(|failure| panic!("the replay failed: {failure}"));
        self
    }

    /// Creates an execution of the same code that has replayed a history.
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
