//! The report of a divergence: what is recorded, what the code did instead, where, and what to do about it.
//!
//! Users see this report. The one-line form contains only kinds and locations, so that it may be logged; the full
//! report also shows the beginning of payloads and is meant for the person who requests it.

use std::fmt::{self, Write};
use std::panic::Location;
use std::sync::Arc;

use crate::code::ErrorCode;
use crate::history::{Decision, Ending, Event, EventId, Started, UnitId, shorten};
use crate::store::{Divergence, DivergenceRow, DivergenceSide};

use super::recorder::{Emitted, RecordCursor};

/// How many recorded events are shown before and after the divergence.
const NEIGHBOURS: usize = 4;
/// The description of both sides if only the number of drawn random numbers differs.
const DRAWS: &str = "random numbers drawn";
/// The width of a column in the list of surrounding events.
const COLUMN: usize = 52;

/// The code diverged from the history.
///
/// Its `Display` is one line; [`Nondeterminism::report`] is the full report.
#[derive(Clone, Debug)]
pub struct Nondeterminism {
    /// The id of the instance.
    pub instance: String,
    /// The orchestration and its pinned version.
    pub orchestration: String,
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The number of the turn, from 1.
    pub turn: u64,
    /// The event at which code and history differ.
    pub event: EventId,
    /// What is recorded there.
    pub recorded: Side,
    /// What the code did there.
    pub code: Side,
    /// The source location of the code's call, if it made one.
    pub location: Option<String>,
    /// How they differ, in a few words without payloads.
    pub difference: String,
    /// What to do about it.
    pub hint: String,
    suspect: Option<&'static str>,
    rows: Vec<Row>,
}

/// One side of a divergence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The kind of the event, or `nothing`.
    pub kind: String,
    /// The event in one line, with the beginning of its payload.
    pub line: String,
    payload: Option<String>,
}

#[derive(Clone, Debug)]
struct Row {
    id: EventId,
    recorded: String,
    code: String,
    parts: bool,
}

impl Nondeterminism {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::Nondeterminism
    }

    /// The text by which instances with this divergence are grouped: one line without ids and payloads.
    pub fn cause(&self) -> String {
        let is_count = self.recorded.kind.starts_with(DRAWS);
        let difference = if is_count { "a different number of random numbers" } else { &self.difference };
        format!("nondeterminism: {difference}")
    }

    /// The whole report, over several lines.
    pub fn report(&self) -> String {
        let mut text =
            format!("{self}\n\n  recorded  {}\n  code      {}\n", self.recorded.line, self.code.line);
        if let Some(location) = &self.location {
            let is_cancel = ["CancelRequested", "TimerCancelled", "Unsubscribed"];
            let place = if is_cancel.iter().any(|kind| self.code.kind.ends_with(kind)) {
                format!("by dropping the future made at {location}")
            } else {
                format!("at {location}")
            };
            let _ = writeln!(text, "            {place}");
        }
        if !self.rows.is_empty() {
            let _ = writeln!(text, "\n  {:>7}  {:<COLUMN$} | code", "event", "recorded");
        }
        for row in &self.rows {
            let mark = if row.parts { '>' } else { ' ' };
            let recorded = shorten(&row.recorded, COLUMN);
            let line = format!("{mark} {:>7}  {recorded:<COLUMN$} | {}", row.id.0, row.code);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let _ = writeln!(text, "\n  what to do");
        for line in self.hint.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text
    }

    /// Adapts the report for a divergence of the same code between two runs: it cannot be a deployment, only something
    /// that varies between runs.
    pub(crate) fn of_the_same_code(mut self: Box<Self>) -> Box<Self> {
        self.hint = format!(
            "This code was replayed against its own history and decided differently.\n{}",
            unsteady(self.suspect)
        );
        self
    }
}

impl fmt::Display for Nondeterminism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nondeterminism { instance, orchestration, execution, turn, event, difference, .. } = self;
        write!(
            f,
            "{}: instance {instance:?} ({orchestration}), execution {execution}, turn {turn}, \
             event {event}: {difference}",
            self.code().prefix(),
        )
    }
}

impl std::error::Error for Nondeterminism {}

impl From<&Nondeterminism> for Divergence {
    fn from(found: &Nondeterminism) -> Divergence {
        let side = |side: &Side| DivergenceSide { kind: side.kind.clone(), line: side.line.clone() };
        let row = |row: &Row| DivergenceRow {
            event: row.id,
            recorded: row.recorded.clone(),
            code: row.code.clone(),
            parts: row.parts,
        };
        Divergence {
            orchestration: found.orchestration.clone(),
            execution: found.execution,
            turn: found.turn,
            event: found.event.0,
            difference: found.difference.clone(),
            recorded: side(&found.recorded),
            code: side(&found.code),
            location: found.location.clone(),
            neighbourhood: found.rows.iter().map(row).collect(),
            hint: found.hint.clone(),
        }
    }
}

/// What the code did at the divergence.
pub(crate) enum Did<'a> {
    /// It made this decision, and more in the same step.
    Decided(&'a [Emitted]),
    /// It ended.
    Ended(&'a Ending),
    /// It waited without making a decision.
    Nothing,
    /// It drew a different number of random numbers.
    Drew(u64),
}

/// Builds the report for the current position of `cursor`.
pub(crate) fn report(
    instance: &Arc<str>,
    started: &Started,
    cursor: &RecordCursor<'_>,
    did: &Did<'_>,
) -> Box<Nondeterminism> {
    let turn = cursor.turn;
    let (event, recorded) = match (did, cursor.peek(), turn.ending()) {
        (Did::Drew(_), _, _) => (turn.events.last().map_or(EventId(1), |last| last.id), draws(turn.draws)),
        (_, Some((id, unit, decision)), _) => (id, Side::of_decision(unit, decision)),
        (_, None, Some(ending)) => (cursor.end_id(), Side::of_ending(ending)),
        (_, None, None) => (cursor.end_id(), Side::nothing()),
    };
    let code = match did {
        Did::Drew(drawn) => draws(*drawn),
        Did::Decided([first, ..]) => Side::of_decision(&first.unit, &first.decision),
        Did::Ended(ending) => Side::of_ending(ending),
        Did::Decided([]) | Did::Nothing => Side::nothing(),
    };
    let (recorded, code) = tell_apart(recorded, code);
    let location = match did {
        Did::Decided([first, ..]) => first.location.map(|location| place(location)),
        _ => None,
    };
    let difference = difference(cursor, did, &recorded, &code);
    let is_reordered = matches!(did, Did::Decided(_)) && is_recorded_later(cursor, event, &code);
    let suspect = suspect(&recorded, &code, &difference, is_reordered);
    Box::new(Nondeterminism {
        instance: instance.to_string(),
        orchestration: format!("{} {}", started.name, started.version),
        execution: started.execution,
        turn: turn.number,
        event,
        difference,
        hint: hint(&recorded, &code, suspect, started),
        suspect,
        location,
        rows: if matches!(did, Did::Drew(_)) { Vec::new() } else { neighbourhood(cursor, event, did) },
        recorded,
        code,
    })
}

impl Side {
    fn of_decision(unit: &UnitId, decision: &Decision) -> Side {
        let payload = decision.payload().map(|payload| payload.as_json().to_owned());
        Side { kind: decision.name().to_owned(), line: decision.summary(unit), payload }
    }

    fn of_ending(ending: &Ending) -> Side {
        let payload = ending.payload().map(|payload| payload.as_json().to_owned());
        Side { kind: ending.name().to_owned(), line: ending.summary(), payload }
    }

    fn nothing() -> Side {
        Side { kind: "nothing".to_owned(), line: "nothing".to_owned(), payload: None }
    }
}

fn draws(count: u64) -> Side {
    let text = format!("{DRAWS}: {count}");
    Side { kind: text.clone(), line: text, payload: None }
}

/// Shows where two payloads differ if their beginnings are the same.
fn tell_apart(mut recorded: Side, mut code: Side) -> (Side, Side) {
    if recorded.line == code.line
        && let (Some(left), Some(right)) = (&recorded.payload, &code.payload)
    {
        let same = left.chars().zip(right.chars()).take_while(|(left, right)| left == right).count();
        let rest = |json: &str| {
            let rest: String = json.chars().skip(same.saturating_sub(10)).collect();
            format!(" … differing from character {}: …{}", same + 1, shorten(&rest, 40))
        };
        recorded.line.push_str(&rest(left));
        code.line.push_str(&rest(right));
    }
    (recorded, code)
}

/// How code and history differ, in a few words.
fn difference(cursor: &RecordCursor<'_>, did: &Did<'_>, recorded: &Side, code: &Side) -> String {
    if recorded.kind != code.kind {
        return format!("the history has {}, the code did {}", recorded.kind, code.kind);
    }
    let field = match (did, cursor.peek()) {
        (Did::Decided([made, ..]), Some((_, unit, decision))) => differing_field(unit, decision, made),
        _ => "payload",
    };
    format!("{} differs in its {field}", recorded.kind)
}

/// The first field in which two decisions of the same kind differ.
fn differing_field(unit: &UnitId, recorded: &Decision, made: &Emitted) -> &'static str {
    if *unit != made.unit {
        return "unit";
    }
    match (recorded, &made.decision) {
        (Decision::ActivityScheduled { name, .. }, Decision::ActivityScheduled { name: made, .. })
        | (Decision::ExternalSubscribed { name }, Decision::ExternalSubscribed { name: made })
        | (
            Decision::SubOrchestrationScheduled { name, .. },
            Decision::SubOrchestrationScheduled { name: made, .. },
        )
        | (Decision::OrchestrationChained { name, .. }, Decision::OrchestrationChained { name: made, .. })
        | (Decision::ExternalEventSent { name, .. }, Decision::ExternalEventSent { name: made, .. })
        | (Decision::SystemCall { op: name, .. }, Decision::SystemCall { op: made, .. })
            if name != made =>
        {
            "name"
        }
        (Decision::ActivityScheduled { id, .. }, Decision::ActivityScheduled { id: made, .. })
            if id != made =>
        {
            "id"
        }
        (
            Decision::SubOrchestrationScheduled { version, instance, .. },
            Decision::SubOrchestrationScheduled { version: made_version, instance: made_instance, .. },
        ) if (version, instance) != (made_version, made_instance) => "version or instance id",
        (
            Decision::OrchestrationChained { version, instance, .. },
            Decision::OrchestrationChained { version: made_version, instance: made_instance, .. },
        ) if (version, instance) != (made_version, made_instance) => "version or instance id",
        (
            Decision::ExternalEventSent { instance, .. },
            Decision::ExternalEventSent { instance: made, .. },
        ) if instance != made => "instance id",
        (Decision::ExternalEventSent { key, .. }, Decision::ExternalEventSent { key: made, .. })
            if key != made =>
        {
            "key"
        }
        (Decision::TimerCreated { .. }, _) => "due time",
        (
            Decision::ActivityCancelRequested { .. }
            | Decision::TimerCancelled { .. }
            | Decision::ExternalUnsubscribed { .. }
            | Decision::SubOrchestrationCancelRequested { .. },
            _,
        ) => "source event",
        (Decision::AttributesUpserted { .. }, _) => "attributes",
        (Decision::StatusSet { .. }, _) => "status",
        (Decision::UpdateCompleted { .. }, _) => "result",
        _ => "input",
    }
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
        Did::Nothing | Did::Drew(_) => Vec::new(),
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

/// What makes the same code decide differently from run to run.
const UNSTEADY: &str = "\
Look for what differs from run to run: the order of a HashMap or HashSet, the clock, random
numbers, statics, thread locals, environment variables. Use ctx.now, ctx.random, ctx.side_effect
and BTreeMap. The guide's page \"What may be awaited\" lists what is deterministic.";

const BY_ORDER: &str = "\
Likely the order in which futures or entries are looked at: tokio::select! without `biased;` and
futures::select! choose at random, and a HashMap has no order. Use ctx.select2 or ctx.race, `biased;`
or futures::select_biased!, and BTreeMap.";

const BY_CLOCK: &str = "\
Likely the clock: replace SystemTime::now and Instant::now by ctx.now.";

const BY_VALUE: &str = "\
Likely a value that differs from run to run: replace the clock by ctx.now, rand and Uuid::new_v4
by ctx.random and ctx.uuid4, a HashMap in the value by a BTreeMap; write `biased;` in tokio::select!.";

const BY_DRAWS: &str = "\
Likely ctx.random or ctx.uuid4 in a loop, or under a condition, that differs from run to run.";

/// The most likely reason for the difference, assuming that the code has not changed.
fn suspect(recorded: &Side, code: &Side, difference: &str, is_reordered: bool) -> Option<&'static str> {
    let cancels = |side: &Side| {
        ["CancelRequested", "TimerCancelled", "Unsubscribed"].iter().any(|kind| side.kind.ends_with(kind))
    };
    if recorded.kind.starts_with(DRAWS) {
        return Some(BY_DRAWS);
    }
    // Another branch won, or the losers were dropped in another order.
    if is_reordered || cancels(recorded) || cancels(code) {
        return Some(BY_ORDER);
    }
    if recorded.kind != code.kind {
        return None;
    }
    match difference.rsplit_once(" in its ").map(|(_, field)| field) {
        Some("due time") => Some(BY_CLOCK),
        Some("name" | "unit") => Some(BY_ORDER),
        Some(_) => Some(BY_VALUE),
        None => None,
    }
}

/// Whether the code's decision is recorded after the divergence.
fn is_recorded_later(cursor: &RecordCursor<'_>, event: EventId, code: &Side) -> bool {
    let mut later = cursor.turn.events.iter().filter(|other| other.id > event);
    later.any(|other| other.summary() == code.line)
}

fn unsteady(suspect: Option<&str>) -> String {
    match suspect {
        Some(suspect) => format!("{suspect}\n{UNSTEADY}"),
        None => UNSTEADY.to_owned(),
    }
}

fn hint(recorded: &Side, code: &Side, suspect: Option<&str>, started: &Started) -> String {
    let changed = format!(
        "If the code of {} {} was changed while this instance runs:\n\
         - register the changed code as a new version, and keep this one until its instances are done, or\n\
         - put the change behind `if ctx.patched(\"…\")`.",
        started.name, started.version
    );
    let unchanged = format!("If the code was not changed:\n{}", unsteady(suspect));
    if recorded.kind == code.kind || recorded.kind.starts_with("random") {
        format!("{unchanged}\n{changed}")
    } else {
        format!("{changed}\n{unchanged}")
    }
}

fn place(location: &Location<'_>) -> String {
    format!("{}:{}:{}", location.file(), location.line(), location.column())
}

crate::error_model!(Nondeterminism);
