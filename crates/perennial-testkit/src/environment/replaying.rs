//! Replays recorded histories with the current code.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use perennial::client::{ExportedExecution, ExportedInstance};
use perennial_core::ErrorCode;
use perennial_core::{EventId, Execution, ExecutionOptions, Handlers, History, TurnFailure};

use super::TestEnvironment;

/// The time that a turn past its deadline may take to unwind.
const UNWIND_GRACE: Duration = Duration::from_secs(1);

/// The result of replaying recorded histories.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplayCheck {
    /// The number of executions that replay with the current code.
    pub compatible: usize,
    /// The executions that do not.
    pub differences: Vec<ReplayDifference>,
}

/// An execution that does not replay with the current code.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayDifference {
    /// The file that the history came from, if any.
    pub file: Option<PathBuf>,
    /// The line number in the file, from 1.
    pub line: usize,
    /// The instance, or empty if the line is not an instance.
    pub id: String,
    /// The number of the execution.
    pub execution: u64,
    /// The first event that differs between the history and the code, if any.
    pub event: Option<EventId>,
    /// The source line of the differing decision as `file:line:column`, if known.
    pub location: Option<String>,
    /// The full report.
    pub report: String,
}

impl ReplayCheck {
    /// Whether there was at least one execution, and all of them replay with the current code.
    pub fn is_ok(&self) -> bool {
        self.differences.is_empty() && self.compatible > 0
    }

    fn add(&mut self, file: &Path, other: ReplayCheck) {
        self.compatible += other.compatible;
        let named = other.differences.into_iter();
        self.differences.extend(named.map(|found| ReplayDifference { file: Some(file.to_owned()), ..found }));
    }
}

impl fmt::Display for ReplayCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ReplayDifference { file, line, id, execution, report, .. } in &self.differences {
            match file {
                Some(file) => write!(f, "{}:{line}", file.display())?,
                None => write!(f, "line {line}")?,
            }
            if !id.is_empty() {
                write!(f, ", instance {id:?}, execution {execution}")?;
            }
            writeln!(f, "\n{}\n", report.trim_end())?;
        }
        let (compatible, different) = (self.compatible, self.differences.len());
        write!(f, "{} executions: {compatible} compatible, {different} incompatible", compatible + different)
    }
}

/// The same text as `Display`.
impl fmt::Debug for ReplayCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TestEnvironment {
    /// Replays histories with the registrations of this environment. Each line is one instance, in the format
    /// of `perennial export`.
    pub fn replay_lines(&self, lines: &str) -> ReplayCheck {
        let mut check = ReplayCheck::default();
        let lines = (1..).zip(lines.lines()).filter(|(_, text)| !text.trim().is_empty());
        lines.for_each(|(line, text)| self.replay_line(line, text, &mut check));
        check
    }

    /// Sets the maximum real time for the replay of one history. A history that takes longer is reported as a
    /// difference, so that an endless loop does not hang the check. Default 30 s.
    pub fn replay_deadline(mut self, deadline: Duration) -> TestEnvironment {
        self.config.replay_deadline = deadline;
        self
    }

    /// Replays the histories of a file, or of every `.jsonl` file in a directory.
    pub fn replay_files(&self, path: impl AsRef<Path>) -> io::Result<ReplayCheck> {
        let path = path.as_ref();
        let mut files = Vec::new();
        if path.is_dir() {
            let entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
            let is_history = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jsonl");
            files.extend(entries.into_iter().map(|entry| entry.path()).filter(is_history));
            files.sort();
        } else {
            files.push(path.to_owned());
        }
        let mut check = ReplayCheck::default();
        for file in files {
            check.add(&file, self.replay_lines(&fs::read_to_string(&file)?));
        }
        Ok(check)
    }

    /// Asserts that every history in a file, or in the `.jsonl` files of a directory, replays with the
    /// registrations of this environment. Use it as a check in continuous integration.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[orchestration]
    /// async fn hello(_: OrchestrationContext, name: String) -> Result<String, String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let histories = directory.path().join("histories.jsonl");
    /// // Once, for instance with `perennial export` from a store in production:
    /// let mut env = TestEnvironment::new().register(hello);
    /// env.run(hello, "Ada".to_owned()).unwrap();
    /// std::fs::write(&histories, env.export()).unwrap();
    ///
    /// // In every build from then on:
    /// TestEnvironment::new().register(hello).assert_replays(&histories);
    /// ```
    ///
    /// # Panics
    ///
    /// If a history does not replay, if there is none, or if a file cannot be read.
    #[track_caller]
    pub fn assert_replays(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        match self.replay_files(path) {
            Ok(check) if check.is_ok() => {}
            Ok(check) => panic!("histories in {} do not replay\n{check}", path.display()),
            Err(error) => panic!("histories in {} cannot be read: {error}", path.display()),
        }
    }

    fn replay_line(&self, line: usize, text: &str, check: &mut ReplayCheck) {
        let differ = |id: &str, execution, found: Different| {
            let Different { event, location, report } = found;
            let id = id.to_owned();
            ReplayDifference { file: None, line, id, execution, event, location, report }
        };
        let ExportedInstance { id, executions, .. } = match serde_json::from_str(text) {
            Ok(instance) => instance,
            Err(error) => {
                let report = format!(
                    "the line is not an instance: {error}\n  what to do: write the file again with `perennial export`"
                );
                return check.differences.push(differ("", 0, report.into()));
            }
        };
        let handlers = self.handlers();
        // An instance that has not started has nothing to replay.
        for execution in executions.into_iter().filter(|execution| !execution.turns.is_empty()) {
            let number = execution.execution;
            match replay(&handlers, self.config.replay_deadline, &id, execution) {
                Ok(()) => check.compatible += 1,
                Err(found) => check.differences.push(differ(&id, number, found)),
            }
        }
    }
}

struct Different {
    event: Option<EventId>,
    location: Option<String>,
    report: String,
}

impl From<String> for Different {
    fn from(report: String) -> Different {
        Different { event: None, location: None, report }
    }
}

fn replay(
    handlers: &Handlers,
    deadline: Duration,
    id: &str,
    execution: ExportedExecution,
) -> Result<(), Different> {
    let history = execution.into_history();
    let Some(started) = history.started().cloned() else {
        let words =
            "the history does not begin with OrchestrationStarted\n  what to do: export the instance again";
        return Err(ErrorCode::CorruptHistory.message(words).into());
    };
    let (name, version) = (started.name.clone(), started.version.clone());
    let Some(handler) = handlers.get(&name, &version) else {
        return Err(format!(
            "{}: {name} {version} is not registered\n  what to do: register it here as the program does, or delete \
             the history once no instance of that version is left",
            ErrorCode::MissingCode.prefix()
        )
        .into());
    };
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let execution = Execution::new(id, handler, started, options).map_err(|error| error.to_string())?;
    replay_within(deadline, execution, history).map_err(|(turn, failure)| match failure {
        TurnFailure::Nondeterminism(found) => {
            let (event, location) = (Some(found.event), found.location.clone());
            Different { event, location, report: found.report() }
        }
        TurnFailure::DeadlinePassed => format!(
            "{}: turn {turn} of {name} {version} did not finish within {deadline:?}\n  what to do: look for a \
             loop without a durable wait; give long histories more time with `replay_deadline`",
            failure.code().prefix()
        )
        .into(),
        failure => format!("{failure}\n  in turn {turn} of {name} {version}").into(),
    })
}

/// Replays on a new thread: outside tokio even in an async test, and the thread can be abandoned. A failure
/// is returned with the turn it happened in.
fn replay_within(
    deadline: Duration,
    mut execution: Execution,
    history: History,
) -> Result<(), (u64, TurnFailure)> {
    let interrupter = execution.interrupter();
    let turn: Arc<AtomicU64> = Arc::default();
    let (sender, receiver) = mpsc::channel();
    let counter = Arc::clone(&turn);
    std::thread::spawn(move || {
        let outcome = history.turns.iter().try_for_each(|turn| {
            counter.store(turn.number, Ordering::Relaxed);
            execution.replay_turn(turn)
        });
        drop(execution);
        let _ = sender.send(outcome);
    });
    let outcome = receiver.recv_timeout(deadline).or_else(|_| {
        interrupter.raise();
        receiver.recv_timeout(UNWIND_GRACE)
    });
    let outcome = outcome.unwrap_or(Err(TurnFailure::DeadlinePassed));
    outcome.map_err(|failure| (turn.load(Ordering::Relaxed), failure))
}
