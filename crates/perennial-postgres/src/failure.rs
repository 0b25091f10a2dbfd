//! What an error of PostgreSQL means for the call that met it.
//!
//! An answer of the server with severity ERROR tells that its transaction was rolled back. Everything else, a connection that
//! was lost or a server that shuts down, leaves a write in doubt.

use perennial_core::store::{MoveMark, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::connection::is_lost;
use crate::options::describe;

/// What to do about an error.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The transaction met another one; made again, it will go through.
    Retry(String),
    /// The connection was lost while something was read.
    Lost(String),
    /// The call ends with this.
    Error(StoreError),
    /// These values cannot be stored, now or later; others can.
    Refused(String),
}

impl Trouble {
    /// The error of a call that does not try again, or has tried often enough.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Trouble::Retry(reason) | Trouble::Lost(reason) => StoreError::Unavailable(reason),
            Trouble::Error(error) => error,
            Trouble::Refused(reason) => StoreError::BatchRefused(reason),
        }
    }
}

/// Whether a call changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Reads,
    Writes,
}

pub(crate) fn trouble(error: &Error, access: Access) -> Trouble {
    let text = describe(error);
    let lost = |text| match access {
        // Nothing was changed: another connection may serve.
        Access::Reads => Trouble::Lost(text),
        Access::Writes => Trouble::Error(StoreError::Unknown(text)),
    };
    let Some(answer) = error.as_db_error().filter(|_| !is_lost(error)) else { return lost(text) };
    let text = format!("{} ({})", answer.message(), answer.code().code());
    let code = answer.code();
    match code.code() {
        "PR001" => Trouble::Error(StoreError::SessionGone),
        "PR002" => Trouble::Refused(answer.message().to_owned()),
        "PR003" => Trouble::Error(StoreError::InUse(answer.message().to_owned())),
        "PR004" => Trouble::Error(MoveMark::refusal(answer.message().as_bytes())),
        _ if is_collision(code) => Trouble::Retry(text),
        _ if is_missing(code) => {
            Trouble::Error(StoreError::Failed(format!("the schema was changed or deleted: {text}")))
        }
        other if other.starts_with("22") || other.starts_with("23") || other.starts_with("54") => {
            Trouble::Refused(text)
        }
        _ => Trouble::Error(StoreError::Unavailable(text)),
    }
}

/// Whether two transactions met. A row that another one has inserted meanwhile is seen the next time.
fn is_collision(code: &SqlState) -> bool {
    [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED, &SqlState::UNIQUE_VIOLATION]
        .contains(&code)
}

fn is_missing(code: &SqlState) -> bool {
    [
        &SqlState::UNDEFINED_TABLE,
        &SqlState::UNDEFINED_COLUMN,
        &SqlState::UNDEFINED_FUNCTION,
        &SqlState::INVALID_SCHEMA_NAME,
    ]
    .contains(&code)
}
