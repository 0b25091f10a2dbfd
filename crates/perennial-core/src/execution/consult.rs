//! Asking an execution between its turns: queries and offers of updates. Nothing is decided and nothing advances.

use std::sync::Arc;

use crate::history::Payload;

use super::driver::{Execution, Phase};
use super::failure::{QueryFailure, TurnFailure, UpdateRefusal};
use super::state::{Closure, Mode};

impl Execution {
    /// Answers a query from what the code shares. Nothing is decided and nothing advances.
    pub fn query(&mut self, name: &str, payload: Payload) -> Result<Payload, QueryFailure> {
        let name = name.to_owned();
        let Some(handler) = self.state().queries.get(&name).cloned() else {
            return Err(QueryFailure::NoHandler { name });
        };
        match self.consult(Mode::Query, move || handler(payload)) {
            Consulted::Answered(answer) => answer.map_err(|error| QueryFailure::Refused { name, error }),
            Consulted::Panicked(message) => Err(QueryFailure::Panicked { name, message }),
            Consulted::Misused(what) => Err(QueryFailure::Misuse { name, what }),
            Consulted::TookTooLong => Err(QueryFailure::DeadlinePassed { name }),
        }
    }

    /// Offers an update between turns. If it is accepted, deliver it with the next turn, as
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
        match self.consult(Mode::Validator, || validator(payload)) {
            Consulted::Answered(answer) => answer.map_err(|error| UpdateRefusal::Refused { name, error }),
            Consulted::Panicked(message) => Err(UpdateRefusal::Panicked { name, message }),
            Consulted::Misused(what) => Err(UpdateRefusal::Misuse { name, what }),
            Consulted::TookTooLong => Err(UpdateRefusal::DeadlinePassed { name }),
        }
    }

    /// Runs a handler that may look but not act.
    fn consult<R>(&mut self, mode: Mode, f: impl FnOnce() -> R) -> Consulted<R> {
        assert_ne!(self.phase, Phase::Failed, "a failed execution answers nothing");
        self.flags.clear_interrupt();
        self.state_mut().mode = mode;
        let answer = self.lend(f);
        let state = self.state_mut();
        state.mode = Mode::Between;
        state.closure = Closure::None;
        match (self.state_mut().failure.take(), answer) {
            (Some(TurnFailure::DeadlinePassed), _) => Consulted::TookTooLong,
            (Some(TurnFailure::Misuse { what }), _) => Consulted::Misused(what),
            (Some(other), _) => Consulted::Misused(other.to_string()),
            (None, Ok(answer)) => Consulted::Answered(answer),
            (None, Err(message)) => Consulted::Panicked(message),
        }
    }
}

/// What came of asking a handler.
enum Consulted<R> {
    Answered(R),
    Panicked(String),
    Misused(String),
    TookTooLong,
}
