//! The recording of one instance in a world, and resuming at any point of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::history::{decode_history, encode_turn};
use perennial_core::{
    Execution, ExecutionOptions, History, OrchestrationHandler, Payload, Started, Successor, TurnFailure,
    UnitId,
};

use crate::interpret::{ProgramHandler, SideEffects};
use crate::program::STATE_QUERY;
use crate::world::INSTANCE;

/// One instance from its start to its end, by execution.
#[derive(Debug)]
pub struct Recording {
    /// The executions in order.
    pub executions: Vec<RecordedExecution>,
    /// The number of occurrences of things that histories do not contain.
    pub unrecorded: BTreeMap<&'static str, u64>,
}

/// One execution: its history, and its visible state between turns.
#[derive(Debug, PartialEq)]
pub struct RecordedExecution {
    /// Its first event.
    pub started: Started,
    /// Its turns.
    pub history: History,
    /// For each turn, the number of side effects before it.
    pub side_effects: Vec<u64>,
    /// For each turn that ran the code, the visible state after it.
    pub views: Vec<View>,
    /// The execution that follows, if any.
    pub successor: Option<Successor>,
}

/// The visible state of an execution between turns. It is a function of the turns so far, so every replay has
/// the same.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The state of its ledger: open operations, keys, status, attributes.
    pub ledger: String,
    /// Its answer to the state query.
    pub state: Result<Payload, String>,
    /// Units that wait for nothing.
    pub stalled: Vec<UnitId>,
    /// Whether it handles cancellation itself.
    pub took_over_cancellation: bool,
}

impl View {
    /// Captures the visible state of an execution.
    pub fn of(execution: &mut Execution) -> View {
        View {
            ledger: format!("{:?}", execution.ledger()),
            state: execution.query(STATE_QUERY, Payload::null()).map_err(|failure| failure.to_string()),
            stalled: execution.stalled_units(),
            took_over_cancellation: execution.has_taken_over_cancellation(),
        }
    }
}

impl RecordedExecution {
    pub(crate) fn new(started: Started) -> RecordedExecution {
        RecordedExecution {
            started,
            history: History::default(),
            side_effects: Vec::new(),
            views: Vec::new(),
            successor: None,
        }
    }

    /// The turns as they are stored.
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        self.history.turns.iter().map(encode_turn).collect()
    }

    /// Creates an execution that has replayed the first `turns` turns, ready for the next one.
    pub fn resume_after(&self, turns: usize, options: ExecutionOptions) -> Result<Execution, TurnFailure> {
        let side_effects = SideEffects::default();
        side_effects.rewind(self.side_effects.get(turns).copied().unwrap_or_default());
        let handler = ProgramHandler::new(side_effects);
        let mut execution = Execution::new(INSTANCE, Arc::new(handler), self.started.clone(), options)?;
        self.history.turns[..turns].iter().try_for_each(|turn| execution.replay_turn(turn))?;
        Ok(execution)
    }

    /// Creates an execution of a handler that has replayed everything from the stored bytes.
    pub(crate) fn hydrate(
        &self,
        handler: &Arc<dyn OrchestrationHandler>,
        options: &ExecutionOptions,
    ) -> Result<Execution, TurnFailure> {
        let history = decode_history(self.bytes())?;
        let mut execution =
            Execution::new(INSTANCE, Arc::clone(handler), self.started.clone(), options.clone())?;
        history.turns.iter().try_for_each(|turn| execution.replay_turn(turn))?;
        Ok(execution)
    }
}
