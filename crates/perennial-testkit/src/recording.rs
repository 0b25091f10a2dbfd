//! What a world recorded of one instance, and taking up any of it again.

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

/// One instance from its start to its end, execution by execution.
#[derive(Debug)]
pub struct Recording {
    /// The executions, first to last.
    pub executions: Vec<RecordedExecution>,
    /// How often things happened that histories do not show.
    pub unrecorded: BTreeMap<&'static str, u64>,
}

/// One execution: its history, and what it looked like between its turns.
#[derive(Debug, PartialEq)]
pub struct RecordedExecution {
    /// What it began with.
    pub started: Started,
    /// Its turns.
    pub history: History,
    /// For each turn, how many side effects had happened before it.
    pub side_effects: Vec<u64>,
    /// For each turn that ran the code, what the execution looked like after it.
    pub views: Vec<View>,
    /// What goes on after it.
    pub successor: Option<Successor>,
}

/// What an execution looks like between turns. It follows from the turns so far, so every replay looks the same.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// All that its ledger knows: what is open, keys, status, attributes.
    pub ledger: String,
    /// What it answers to the state query.
    pub state: Result<Payload, String>,
    /// Units that wait for nothing.
    pub stalled: Vec<UnitId>,
    /// Whether it has taken cancellation over.
    pub took_over_cancellation: bool,
}

impl View {
    /// Looks at an execution.
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

    /// A fresh execution that has replayed the first `turns` turns, ready for the next one to be taken or replayed.
    pub fn resume_after(&self, turns: usize, options: ExecutionOptions) -> Result<Execution, TurnFailure> {
        let side_effects = SideEffects::default();
        side_effects.rewind(self.side_effects.get(turns).copied().unwrap_or_default());
        let handler = ProgramHandler::new(side_effects);
        let mut execution = Execution::new(INSTANCE, Arc::new(handler), self.started.clone(), options)?;
        self.history.turns[..turns].iter().try_for_each(|turn| execution.replay_turn(turn))?;
        Ok(execution)
    }

    /// An execution of a handler that has replayed everything, from the stored bytes.
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
