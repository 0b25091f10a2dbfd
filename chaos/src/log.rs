//! The log of callers and the log of effects: append-only files that many processes write to, line by line.
//!
//! A line is written with one system call, so that lines of different processes are never mixed. The file is not
//! synced: the processes that write it are killed, but the machine is not. Each line begins with the time in
//! milliseconds and the writer:
//!
//! | line | written |
//! |---|---|
//! | `send·start·ID·KIND` and others | before a request is sent |
//! | `ok·start·ID·KIND` and others | after it was acknowledged |
//! | `error·start·ID·TEXT` and others | after any other answer |
//! | `run·ID·EXECUTION·EVENT·ATTEMPT` | by an activity, before it does anything |

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use perennial::ActivityContext;
use perennial::history::EventId;
use perennial_testkit::invariants::ClientLog;

/// Separates the fields of a line. Ids and payloads of the load do not contain it.
const SEPARATOR: char = '·';

/// The current time in milliseconds, the same in all processes of the machine.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A log that this process writes to.
#[derive(Clone, Debug)]
pub struct Log {
    path: Arc<PathBuf>,
    file: Arc<File>,
    writer: Arc<str>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When the line was written.
    pub at_ms: u64,
    /// The name of the writer.
    pub writer: String,
    /// `send`, `ok`, `error` or `run`.
    pub phase: String,
    /// The fields after the phase.
    pub fields: Vec<String>,
}

impl Entry {
    fn parse(line: &str) -> Option<Entry> {
        let mut fields = line.split(SEPARATOR).map(str::to_owned);
        let (at_ms, writer, phase) = (fields.next()?.parse().ok()?, fields.next()?, fields.next()?);
        Some(Entry { at_ms, writer, phase, fields: fields.collect() })
    }

    /// Returns the fields after the kind, if the line has this phase and kind.
    pub fn of(&self, phase: &str, kind: &str) -> Option<&[String]> {
        let (first, rest) = self.fields.split_first()?;
        (self.phase == phase && first == kind).then_some(rest)
    }
}

impl Log {
    /// Opens a log, and creates it if it does not exist.
    pub fn open(path: &Path, writer: &str) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Log { path: Arc::new(path.to_owned()), file: Arc::new(file), writer: Arc::from(writer) })
    }

    /// The same log with another writer's name.
    #[must_use]
    pub fn of_writer(&self, writer: &str) -> Log {
        Log { writer: Arc::from(writer), ..self.clone() }
    }

    /// The name of the writer.
    pub fn writer(&self) -> &str {
        &self.writer
    }

    /// Appends a line.
    ///
    /// # Panics
    ///
    /// If the line cannot be written: without its log a run proves nothing.
    pub fn note(&self, phase: &str, fields: &[&str]) {
        let mut line = format!("{}{SEPARATOR}{}{SEPARATOR}{phase}", now_ms(), self.writer);
        for field in fields {
            line.push(SEPARATOR);
            line.push_str(&field.replace([SEPARATOR, '\n'], " "));
        }
        line.push('\n');
        (&*self.file).write_all(line.as_bytes()).expect("the log can be written");
    }

    /// Logs that an activity runs.
    pub fn note_run(&self, ctx: &ActivityContext) {
        let (execution, event) = (ctx.execution().to_string(), ctx.event_id().to_string());
        self.note("run", &[ctx.instance(), &execution, &event, &ctx.attempt().to_string()]);
    }

    /// Reads all lines.
    ///
    /// # Panics
    ///
    /// If the file cannot be read, or a line cannot be parsed.
    pub fn entries(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(&*self.path).expect("the log can be read");
        let parsed = text
            .lines()
            .map(|line| Entry::parse(line).unwrap_or_else(|| panic!("not a line of a log: {line:?}")));
        parsed.collect()
    }
}

/// Converts the log of callers to the form that the checks of invariants use. An event that was repeated with its key
/// counts once.
pub fn client_log(callers: &[Entry], effects: &[Entry]) -> ClientLog {
    let mut log = ClientLog::default();
    let mut events = BTreeSet::new();
    for entry in callers {
        if let Some([id, ..]) = entry.of("ok", "start") {
            log.started(id.as_str());
        }
        if let Some([id, event, payload]) = entry.of("ok", "raise")
            && events.insert((id, event, payload))
        {
            log.raised(&entry.writer, id, event, payload.as_str());
        }
    }
    for entry in effects {
        if let [id, execution, event, ..] = entry.fields.as_slice() {
            let number = |text: &String| text.parse::<u64>().expect("a number");
            log.ran(id, number(execution), EventId(number(event)));
        }
    }
    log
}

/// The keys of acknowledged updates, by instance.
pub fn acknowledged_updates(callers: &[Entry]) -> BTreeMap<String, BTreeSet<String>> {
    let mut updates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in callers {
        if let Some([id, key, ..]) = entry.of("ok", "update") {
            updates.entry(id.clone()).or_default().insert(key.clone());
        }
    }
    updates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::open(&directory.path().join("log"), "tester").unwrap();
        log.note("ok", &["raise", "mail-1", "letter", "two·parts"]);
        let entries = log.entries();
        let fields = entries[0].of("ok", "raise").unwrap();
        assert_eq!((entries.len(), fields), (1, &["mail-1", "letter", "two parts"].map(str::to_owned)[..]));
        assert!(entries[0].of("send", "raise").is_none() && entries[0].writer == "tester");
    }
}
