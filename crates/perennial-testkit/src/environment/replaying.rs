//! Replay check: recorded histories against the code of today.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use perennial::ExportedInstance;
use perennial_core::{EventId, ReplayReport, Replayer, TurnFailure};

use super::TestEnvironment;

/// What replaying recorded histories showed.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplayCheck {
    /// How many executions can go on with the code of today.
    pub compatible: usize,
    /// Those that cannot.
    pub differences: Vec<ReplayDifference>,
}

/// An execution that cannot go on with the code of today.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayDifference {
    /// The line of the file, from 1.
    pub line: usize,
    /// The instance; empty if the line is no instance.
    pub id: String,
    /// The execution.
    pub execution: u64,
    /// The event at which record and code part, if they do.
    pub event: Option<EventId>,
    /// The line of source that did otherwise, as `file:line:column`, if one did.
    pub location: Option<String>,
    /// All there is to say.
    pub report: String,
}

impl ReplayCheck {
    /// Whether everything can go on with the code of today, and there was something.
    pub fn is_ok(&self) -> bool {
        self.differences.is_empty() && self.compatible > 0
    }

    fn add(&mut self, other: ReplayCheck) {
        self.compatible += other.compatible;
        self.differences.extend(other.differences);
    }
}

impl fmt::Display for ReplayCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ReplayDifference { line, id, execution, location, report, .. } in &self.differences {
            write!(f, "line {line}, instance {id:?}, execution {execution}")?;
            match location {
                Some(location) => writeln!(f, ", at {location}")?,
                None => writeln!(f)?,
            }
            writeln!(f, "{}", report.trim_end())?;
        }
        let (compatible, different) = (self.compatible, self.differences.len());
        write!(f, "{} executions: {compatible} compatible, {different} incompatible", compatible + different)
    }
}

/// Reads like the message.
impl fmt::Debug for ReplayCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TestEnvironment {
    /// Replays histories, one instance per line as `perennial export` writes them, with what is registered here.
    pub fn replay_lines(&self, lines: &str) -> ReplayCheck {
        let replayer = Replayer::new(self.handlers.clone());
        let check = || {
            let mut check = ReplayCheck::default();
            let lines = (1..).zip(lines.lines()).filter(|(_, text)| !text.trim().is_empty());
            lines.for_each(|(line, text)| replay_line(&replayer, line, text, &mut check));
            check
        };
        // Orchestrations run outside of tokio, also in an async test.
        std::thread::scope(|scope| scope.spawn(check).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
            check.add(self.replay_lines(&fs::read_to_string(file)?));
        }
        Ok(check)
    }

    /// The gate for continuous integration: fails the test unless every history in a file, or in the `.jsonl` files of a
    /// directory, can go on with what is registered here.
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
    /// If one cannot, or there is none, or a file cannot be read.
    #[track_caller]
    pub fn assert_replays(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        match self.replay_files(path) {
            Ok(check) if check.is_ok() => {}
            Ok(check) => panic!("histories in {} do not replay\n{check}", path.display()),
            Err(error) => panic!("histories in {} cannot be read: {error}", path.display()),
        }
    }
}

fn replay_line(replayer: &Replayer, line: usize, text: &str, check: &mut ReplayCheck) {
    let instance: ExportedInstance = match serde_json::from_str(text) {
        Ok(instance) => instance,
        Err(error) => {
            let report = format!("the line is no instance: {error}");
            let id = String::new();
            let difference = ReplayDifference { line, id, execution: 0, event: None, location: None, report };
            return check.differences.push(difference);
        }
    };
    let ExportedInstance { id, executions, .. } = instance;
    // An instance that has not begun has nothing to replay.
    for execution in executions.into_iter().filter(|execution| !execution.turns.is_empty()) {
        let number = execution.execution;
        let (event, location, report) = match replayer.replay(&id, &execution.into_history()) {
            ReplayReport::Compatible { .. } => {
                check.compatible += 1;
                continue;
            }
            ReplayReport::Incompatible(TurnFailure::Nondeterminism(found)) => {
                (Some(found.event), found.location.clone(), found.report())
            }
            ReplayReport::Incompatible(failure) => (None, None, failure.to_string()),
            ReplayReport::MissingHandler { name, version } => {
                (None, None, format!("PER-0301 missing code: {name} {version} is not registered"))
            }
            ReplayReport::Unusable(error) => (None, None, error.to_string()),
            other => (None, None, format!("{other:?}")),
        };
        let id = id.clone();
        check.differences.push(ReplayDifference { line, id, execution: number, event, location, report });
    }
}
