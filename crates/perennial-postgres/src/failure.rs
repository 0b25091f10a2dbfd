//! Maps errors of PostgreSQL to errors of the store.
//!
//! An error response with severity ERROR means that the transaction was rolled back. After any other error, such as a
//! lost connection or a server that shuts down, the outcome of a write is unknown.

use perennial_core::store::{MoveMark, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::connection::is_lost;
use crate::options::describe;

/// Why a call failed, and whether it can be retried.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The transaction conflicted with another one. A retry is expected to succeed.
    Retry(String),
    /// The connection was lost during a read.
    Lost(String),
    /// The call fails with this error.
    Store(StoreError),
    /// These values can never be stored; other values can.
    Refused(String),
}

impl CallError {
    /// Converts to the error of a call that is not retried, or has used up its retries.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            CallError::Retry(reason) | CallError::Lost(reason) => StoreError::Unavailable(reason),
            CallError::Store(error) => error,
            CallError::Refused(reason) => StoreError::BatchRefused(reason),
        }
    }
}

/// Whether a call modifies the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Reads,
    Writes,
    /// Writes a batch, on a connection kept for that.
    Commits,
}

pub(crate) fn classify(error: &Error, access: Access) -> CallError {
    let text = describe(error);
    let lost = |text| match access {
        // Nothing was changed, so the call can be repeated on another connection.
        Access::Reads => CallError::Lost(text),
        Access::Writes | Access::Commits => CallError::Store(StoreError::Unknown(text)),
    };
    let Some(answer) = error.as_db_error().filter(|_| !is_lost(error)) else { return lost(text) };
    let text = format!("{} ({})", answer.message(), answer.code().code());
    let code = answer.code();
    match code.code() {
        "PR001" => CallError::Store(StoreError::SessionGone),
        "PR002" => CallError::Refused(answer.message().to_owned()),
        "PR003" => CallError::Store(StoreError::InUse(answer.message().to_owned())),
        "PR004" => CallError::Store(MoveMark::refusal(answer.message().as_bytes())),
        _ if is_collision(code) => CallError::Retry(text),
        _ if is_missing(code) => {
            CallError::Store(StoreError::Failed(format!("the schema was changed or deleted: {text}")))
        }
        other if other.starts_with("22") || other.starts_with("23") || other.starts_with("54") => {
            CallError::Refused(text)
        }
        _ => CallError::Store(StoreError::Unavailable(with_pooler_hint(text, code))),
    }
}

/// Adds what to do to an error that statements prepared on another connection cause.
pub(crate) fn with_pooler_hint(text: String, code: &SqlState) -> String {
    if [&SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::DUPLICATE_PSTATEMENT].contains(&code) {
        format!("{text}; behind a pooler that assigns connections per transaction, the URL needs pooler=on")
    } else {
        text
    }
}

/// Returns whether the transaction conflicted with another one. A unique violation counts: the retry sees the row that
/// the other transaction inserted.
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
