//! Failures of commands, and their exit codes.

use std::fmt;

use perennial::moving::MoveError;
use perennial::{ClientError, Error, StartError, StoreError};
use serde_json::json;

use crate::output::complain;

/// Printed below the commands in `--help`: a task for the program itself, and the exit codes.
pub(crate) const AFTER_HELP: &str = "\
Before you deploy: only your own program, which has the code, can check whether open instances fit it. Add an
argument to it that calls `Runtime::open(url).register(…).preflight()`; the guide's page \"Operate\" shows how.

Exit codes:
  0  success
  1  failure: an orchestration failed, doctor or verify found a problem, two stores differ, the demo lost an order
  2  usage: the command line, a URL, an id or a filter is invalid
  3  not found: the instance, execution or event does not exist
  4  refused: the id exists, the instance has ended or has not ended, a store cannot be moved, or not confirmed
  5  the store is unavailable: missing, in use, not a store, or no runtime answers on it";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitKind {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    Unavailable = 5,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// A message for the user, with an exit code.
    Message { kind: ExitKind, message: String },
    /// The failure is already printed.
    Silent(ExitKind),
    /// The reader of standard output has closed the pipe.
    PipeClosed,
}

impl Failure {
    pub(crate) fn new(kind: ExitKind, message: impl fmt::Display) -> Failure {
        Failure::Message { kind, message: message.to_string() }
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Failure {
        Failure::new(ExitKind::Failed, message)
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(ExitKind::Usage, message)
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Message { kind, .. } | Failure::Silent(kind) => *kind as u8,
            Failure::PipeClosed => 0,
        }
    }

    /// Prints the failure to standard error.
    pub(crate) fn report(&self, as_json: bool) {
        let Failure::Message { kind, message } = self else {
            return;
        };
        if as_json {
            let code = message.split_whitespace().find(|word| word.starts_with("PER-"));
            complain(json!({"error": {"exit": *kind as u8, "code": code, "message": message}}).to_string());
        } else {
            complain(format!("error: {message}"));
        }
    }
}

fn of_store(error: &StoreError) -> ExitKind {
    match error {
        StoreError::CorruptRow(_) | StoreError::Unknown(_) => ExitKind::Failed,
        _ => ExitKind::Unavailable,
    }
}

fn of_client(error: &ClientError) -> ExitKind {
    match error {
        ClientError::NotFound { .. }
        | ClientError::NotRegistered { .. }
        | ClientError::NoExecution { .. } => ExitKind::NotFound,
        ClientError::AlreadyExists { .. }
        | ClientError::AnotherInstance { .. }
        | ClientError::Ended { .. }
        | ClientError::Unanswered { .. }
        | ClientError::NotEnded { .. }
        | ClientError::NotBlocked { .. }
        | ClientError::NotBlockedBy { .. }
        | ClientError::NotReset { .. }
        | ClientError::OrchestrationPaused { .. }
        | ClientError::BadEvent { .. }
        | ClientError::OutcomeDeleted { .. }
        | ClientError::AttemptOver { .. }
        | ClientError::ActivityOver { .. }
        | ClientError::ActivityCancelled { .. }
        | ClientError::Encoded { .. }
        | ClientError::Full { .. }
        | ClientError::Refused { .. }
        | ClientError::Blocked { .. } => ExitKind::Refused,
        ClientError::InvalidName { .. }
        | ClientError::BadVersion { .. }
        | ClientError::BadInput { .. }
        | ClientError::TooLarge { .. }
        | ClientError::Unwritable { .. }
        | ClientError::BadToken { .. }
        | ClientError::NotHere { .. } => ExitKind::Usage,
        ClientError::NotAnswered { .. } | ClientError::Stopped { .. } => ExitKind::Unavailable,
        ClientError::Store { source, .. } => of_store(source),
        _ => ExitKind::Failed,
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let message = match &error {
            // A query over many instances has no id to name.
            ClientError::Store { id, source } if id.is_empty() => source.to_string(),
            ClientError::Refused { error: Some(answer), .. } => format!("{error}: {}", answer.to_text()),
            _ => error.to_string(),
        };
        Failure::new(of_client(&error), message)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let kind = match &error {
            StartError::UnknownUrl { .. } | StartError::UrlOptions { .. } => ExitKind::Usage,
            StartError::NoStore { .. } => ExitKind::Unavailable,
            StartError::Store(source) => of_store(source),
            _ => ExitKind::Failed,
        };
        Failure::new(kind, error)
    }
}

impl From<MoveError> for Failure {
    fn from(error: MoveError) -> Failure {
        match error {
            MoveError::Start(error) => error.into(),
            MoveError::Refused { .. } => Failure::new(ExitKind::Refused, error),
            MoveError::Store { source: ref store, .. } => Failure::new(of_store(store), error),
            _ => Failure::failed(error),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Client(error) => error.into(),
            Error::Start(error) => error.into(),
            Error::Store(error) => Failure::new(of_store(&error), error),
            Error::Move(error) => error.into(),
            other => Failure::failed(other),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::PipeClosed,
            _ => Failure::failed(error),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::failed(error)
    }
}
