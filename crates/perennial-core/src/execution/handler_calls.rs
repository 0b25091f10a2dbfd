//! Calling query handlers and update validators between turns. Nothing is decided and nothing advances.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::Payload;

use super::driver::{Execution, Phase};
use super::failure::{QueryFailure, TurnFailure, UpdateRefusal};
use super::state::{Closure, Mode};

/// The names that the code of an instance takes. See [`Execution::handlers`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerNames {
    /// The queries that it answers, also after its end.
    pub queries: Vec<String>,
    /// The updates that it accepts; none after its end.
    pub updates: Vec<String>,
    /// The external events that it handles or waits for; none after its end.
    pub events: Vec<String>,
}

impl Execution {
    /// The queries, updates and events that the code takes now.
    pub fn handlers(&self) -> HandlerNames {
        let (state, has_ended) = (self.state(), self.has_ended());
        let queries = state.queries.keys().cloned().collect();
        let (updates, events) = match has_ended {
            true => (Vec::new(), Vec::new()),
            false => (state.updates.keys().cloned().collect(), state.mailbox.taken_names()),
        };
        HandlerNames { queries, updates, events }
    }

    /// Runs a read-only query handler. Nothing is recorded.
    pub fn query(&mut self, name: &str, payload: Payload) -> Result<Payload, QueryFailure> {
        let name = name.to_owned();
        let Some(handler) = self.state().queries.get(&name).cloned() else {
            return Err(QueryFailure::NoHandler { name });
        };
        match self.call_handler(Mode::Query, move || handler(payload)) {
            HandlerOutcome::Answered(answer) => answer.map_err(|error| QueryFailure::Refused { name, error }),
            HandlerOutcome::Panicked(message) => Err(QueryFailure::Panicked { name, message }),
            HandlerOutcome::Misused(what) => Err(QueryFailure::Misuse { name, what }),
            HandlerOutcome::TookTooLong => Err(QueryFailure::DeadlinePassed { name }),
        }
    }

    /// Runs the validator of an update between turns. If it accepts, deliver the update with the next turn, as
    /// [`Job::UpdateRequested`](crate::Job::UpdateRequested).
    pub fn offer_update(&mut self, name: &str, payload: &Payload) -> Result<(), UpdateRefusal> {
        let name = name.to_owned();
        if self.phase != Phase::Running || self.ledger().turns() == 0 {
            return Err(UpdateRefusal::NotRunning { name });
        }
        let Some(validator) = self.state().updates.get(&name).map(|(validator, _)| Arc::clone(validator))
        else {
            return Err(UpdateRefusal::NoHandler { name });
        };
        match self.call_handler(Mode::Validator, || validator(payload)) {
            HandlerOutcome::Answered(answer) => {
                answer.map_err(|error| UpdateRefusal::Refused { name, error })
            }
            HandlerOutcome::Panicked(message) => Err(UpdateRefusal::Panicked { name, message }),
            HandlerOutcome::Misused(what) => Err(UpdateRefusal::Misuse { name, what }),
            HandlerOutcome::TookTooLong => Err(UpdateRefusal::DeadlinePassed { name }),
        }
    }

    /// Runs a handler that may read but not act.
    fn call_handler<R>(&mut self, mode: Mode, f: impl FnOnce() -> R) -> HandlerOutcome<R> {
        assert_ne!(self.phase, Phase::Failed, "a failed execution answers nothing");
        self.flags.clear_interrupt();
        self.state_mut().mode = mode;
        let answer = self.lend(f);
        let state = self.state_mut();
        state.mode = Mode::Between;
        state.closure = Closure::None;
        match (self.state_mut().failure.take(), answer) {
            (Some(TurnFailure::DeadlinePassed), _) => HandlerOutcome::TookTooLong,
            (Some(TurnFailure::Misuse { what }), _) => HandlerOutcome::Misused(what),
            (Some(other), _) => HandlerOutcome::Misused(other.to_string()),
            (None, Ok(answer)) => HandlerOutcome::Answered(answer),
            (None, Err(message)) => HandlerOutcome::Panicked(message),
        }
    }
}

/// The outcome of a handler.
enum HandlerOutcome<R> {
    Answered(R),
    Panicked(String),
    Misused(String),
    TookTooLong,
}
