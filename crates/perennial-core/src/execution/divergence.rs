//! The report of a divergence: what the record says, what the code did instead, where, and what to do about it.
//!
//! This is product surface. The one-line form names kinds and places only, so that it may be logged; the report also
//! shows the beginning of payloads, and is for the person who asked for it.

use std::fmt::{self, Write};
use std::panic::Location;
use std::sync::Arc;

use crate::history::{Ending, Event, EventId, Started, shorten};

use super::recorder::{Emitted, RecordCursor};

/// How many recorded events are shown before and after the one in question.
const NEIGHBOURS: usize = 4;
/// How wide a column of the neighbourhood is.
const COLUMN: usize = 52;

/// The code does not do what the record says.
///
/// Its `Display` is one line; [`Nondeterminism::report`] is the whole story.
#[derive(Clone, Debug)]
pub struct Nondeterminism {
    /// The instance.
    pub instance: String,
    /// The orchestration and its pinned version.
    pub orchestration: String,
    /// The execution.
    pub execution: u64,
    /// The turn.
    pub turn: u64,
    /// The event at which record and code part.
    pub event: EventId,
    /// What the record says there.
    pub recorded: Side,
    /// What the code did there.
    pub code: Side,
    /// Where the code did it, if it did something.
    pub location: Option<String>,
    /// What to do.
    pub hint: String,
    rows: Vec<Row>,
}

/// One side of a divergence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The kind of the event, or `nothing`.
    pub kind: String,
    /// The event in a line, with the beginning of its payload.
    pub line: String,
}

#[derive(Clone, Debug)]
struct Row {
    id: EventId,
    recorded: String,
    code: String,
    parts: bool,
}

impl Nondeterminism {
    pub(crate) const CODE: &'static str = "PER-0203";

    /// The stable code of this failure.
    pub fn code(&self) -> &'static str {
        Nondeterminism::CODE
    }

    /// The whole report, over several lines.
    pub fn report(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{self}");
        let _ = writeln!(text);
        let _ = writeln!(text, "  recorded  {}", self.recorded.line);
        let _ = writeln!(text, "  code      {}", self.code.line);
        if let Some(location) = &self.location {
            let _ = writeln!(text, "            at {location}");
        }
        let _ = writeln!(text);
        let _ = writeln!(text, "  {:>7}  {:<COLUMN$} | code", "event", "recorded");
        for row in &self.rows {
            let mark = if row.parts { '>' } else { ' ' };
            let line =
                format!("{mark} {:>7}  {:<COLUMN$} | {}", row.id.0, shorten(&row.recorded, COLUMN), row.code);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let _ = writeln!(text);
        let _ = writeln!(text, "  hint: {}", self.hint);
        text
    }
}

impl fmt::Display for Nondeterminism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nondeterminism { instance, orchestration, execution, turn, event, recorded, code, .. } = self;
        write!(
            f,
            "{} nondeterminism: instance {instance:?} ({orchestration}), execution {execution}, turn {turn}, \
             event {event}: the record has {}, the code did {}",
            Self::CODE,
            recorded.kind,
            code.kind
        )
    }
}

impl std::error::Error for Nondeterminism {}

/// What the code did where record and code part.
pub(crate) enum Did<'a> {
    /// It decided this, and more in the same step.
    Decided(&'a [Emitted]),
    /// It ended.
    Ended(&'a Ending),
    /// It went quiet.
    Nothing,
    /// It drew another number of random numbers.
    Drew(u64),
}

/// Builds the report for the place where `cursor` stands.
pub(crate) fn report(
    instance: &Arc<str>,
    started: &Started,
    cursor: &RecordCursor<'_>,
    did: &Did<'_>,
) -> Box<Nondeterminism> {
    let turn = cursor.turn;
    let recorded = cursor.peek().map(|(id, unit, decision)| (id, decision.name(), decision.summary(unit)));
    let recorded =
        recorded.or_else(|| turn.ending().map(|ending| (cursor.end_id(), ending.name(), ending.summary())));
    let (event, mut recorded) = match recorded {
        Some((id, kind, line)) => (id, Side { kind: kind.to_owned(), line }),
        None => (cursor.end_id(), nothing()),
    };
    let mut event = event;
    let mut code = match did {
        Did::Decided(made) => made.first().map_or_else(nothing, |first| Side {
            kind: first.decision.name().to_owned(),
            line: first.decision.summary(&first.unit),
        }),
        Did::Ended(ending) => Side { kind: ending.name().to_owned(), line: ending.summary() },
        Did::Nothing => nothing(),
        Did::Drew(_) => nothing(),
    };
    if let Did::Drew(draws) = did {
        event = turn.events.last().map_or(EventId(1), |last| last.id);
        let side = |draws: u64| Side {
            kind: format!("{draws} random draws"),
            line: format!("{draws} random draws"),
        };
        recorded = side(turn.draws);
        code = side(*draws);
    }
    let location = match did {
        Did::Decided([first, ..]) => Some(place(first.location)),
        _ => None,
    };
    let hint = hint(&recorded, &code, started);
    Box::new(Nondeterminism {
        instance: instance.to_string(),
        orchestration: format!("{} {}", started.name, started.version),
        execution: started.execution,
        turn: turn.number,
        event,
        recorded,
        code,
        location,
        hint,
        rows: neighbourhood(cursor, event, did),
    })
}

fn neighbourhood(cursor: &RecordCursor<'_>, event: EventId, did: &Did<'_>) -> Vec<Row> {
    let events = &cursor.turn.events;
    let index = events.iter().position(|other| other.id == event).unwrap_or(events.len());
    let mut rows = Vec::new();
    for shared in &events[index.saturating_sub(NEIGHBOURS)..index] {
        let line = shared.summary();
        rows.push(Row { id: shared.id, recorded: line.clone(), code: line, parts: false });
    }
    let code: Vec<String> = match did {
        Did::Decided(made) => {
            made.iter().take(NEIGHBOURS).map(|made| made.decision.summary(&made.unit)).collect()
        }
        Did::Ended(ending) => vec![ending.summary()],
        Did::Nothing => Vec::new(),
        Did::Drew(draws) => vec![format!("{draws} random draws")],
    };
    let recorded: Vec<String> = events[index..].iter().take(NEIGHBOURS).map(Event::summary).collect();
    for offset in 0..recorded.len().max(code.len()).max(1) {
        rows.push(Row {
            id: EventId(event.0 + offset as u64),
            recorded: recorded.get(offset).cloned().unwrap_or_default(),
            code: code.get(offset).cloned().unwrap_or_default(),
            parts: offset == 0,
        });
    }
    rows
}

fn hint(recorded: &Side, code: &Side, started: &Started) -> String {
    let gate = "put the changed part behind `if ctx.patched(\"…\")`";
    let version = format!(
        "register the changed code as a new version beside {} {} and keep the old one until its instances are done",
        started.name, started.version
    );
    if recorded.kind.contains("random draws") || code.kind == recorded.kind {
        format!(
            "if the code did not change, something in it differs from run to run: hash order, the clock, \
             random numbers or statics (use the context's instead); if it did change, {version}, or {gate}"
        )
    } else {
        format!("the code changed under a running instance: {version}, or {gate}")
    }
}

fn nothing() -> Side {
    Side { kind: "nothing".to_owned(), line: "nothing".to_owned() }
}

fn place(location: &Location<'_>) -> String {
    format!("{}:{}:{}", location.file(), location.line(), location.column())
}
