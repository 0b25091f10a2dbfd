//! Histories: executions, turns, events and payloads.

use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use perennial::history::{ActivityError, ChildError, Decision, Ending, Event, EventKind, Job, Turn};
use perennial::{Client, ClientError, ErrorCode, InstanceKey};
use serde::Serialize;

use super::instances::event_id;
use super::{CURSOR, KEY, LIMIT, OF_INSTANCE, handler, limit};
use crate::answer::{self, Payloads};
use crate::ask::Ask;
use crate::cursor;
use crate::problem::Problem;
use crate::query::{Kind, parameter};
use crate::redact;
use crate::route::{Answered, Cost, Needs, Route, json};
use crate::schema::{
    Schema, all_of, array, boolean, component, integer, nullable, object, page, payload, reference, string,
    time,
};
use crate::turn_walk::{EventFilter, Walk, turn_with};

/// How many turns a filtered page looks at, and for how long.
const SCANNED_TURNS: usize = 50_000;
const SCAN_TIME: Duration = Duration::from_millis(500);
const MAX_NUMBER: u64 = u64::MAX >> 12;

pub(crate) fn routes() -> Vec<Route> {
    let execution =
        parameter("execution", Kind::Number(1, MAX_NUMBER), "The execution; the current one if not given.");
    let of_instance = |path, name, about, handler| {
        Route::new(Method::GET, path, name, about, handler).takes(&[KEY]).fails_with(OF_INSTANCE)
    };
    vec![
        of_instance(
            "instances/{id}/executions",
            "listExecutions",
            "A page of its executions, the newest first.",
            handler!(executions),
        )
        .takes(&[LIMIT, CURSOR])
        .answers(&[json(200, "A page.", executions_schema)])
        .fails_with(&[ErrorCode::BadCursor]),
        of_instance("instances/{id}/history", "getHistory", "A page of turns.", handler!(history))
            .cost(Cost::Heavy)
            .takes(&[
                execution,
                parameter("after_turn", Kind::Number(0, MAX_NUMBER), "Turns after this one."),
                parameter("before_turn", Kind::Number(1, MAX_NUMBER), "Turns before this one."),
                parameter("event", Kind::Number(1, MAX_NUMBER), "Turns around the one with this event."),
                parameter(
                    "order",
                    Kind::OneOf(&["oldest", "newest"]),
                    "With `newest`, the last turns come first.",
                ),
                LIMIT,
                parameter("kinds", Kind::Text, "Only events of these kinds, separated by commas."),
                parameter("name", Kind::Text, "Only events that name this activity, event or orchestration."),
                parameter("unit", Kind::Text, "Only decisions of this unit."),
                parameter("failed", Kind::Flag, "Only events that tell of a failure."),
                parameter("text", Kind::Text, "Only events that contain this text."),
                parameter(
                    "payload_bytes",
                    Kind::Number(0, 5 << 20),
                    "Larger payloads are left out; 2,048 if not given.",
                ),
                parameter(
                    "limit_bytes",
                    Kind::Number(1, 5 << 20),
                    "The page ends with the turn that exceeds this size; 262,144 if not given.",
                ),
            ])
            .answers(&[json(200, "A page.", history_schema)])
            .fails_with(&[ErrorCode::NoExecution, ErrorCode::NoSuchThing]),
        of_instance(
            "instances/{id}/executions/{n}/events/{e}",
            "getEvent",
            "One event, whole.",
            handler!(event),
        )
        .answers(&[json(200, "The event, and the turn that recorded it.", found_schema)])
        .fails_with(&[ErrorCode::NoExecution, ErrorCode::NoSuchThing]),
        of_instance(
            "instances/{id}/executions/{n}/events/{e}/payload",
            "getPayload",
            "The payload of an event, as recorded.",
            handler!(event_payload),
        )
        .needs(Needs::PayloadReader)
        .answers(&[json(200, "The payload.", payload)])
        .fails_with(&[ErrorCode::NoExecution, ErrorCode::NoSuchThing]),
    ]
}

fn executions_schema() -> Schema {
    let row = object(
        &[("execution", integer()), ("turns", integer()), ("is_current", boolean())],
        &[("version", string()), ("began_ms", time()), ("last_ms", time()), ("ending", string())],
    );
    page("Executions", component("ExecutionRow", row), &[])
}

fn history_schema() -> Schema {
    let history = object(
        &[
            ("key", string()),
            ("execution", integer()),
            ("current", integer()),
            ("turns", array(reference("Turn"))),
            ("before", nullable(integer())),
            ("after", nullable(integer())),
            ("partial", boolean()),
            ("last_turn", integer()),
            ("scanned", integer()),
        ],
        &[],
    );
    component("HistoryPage", history)
}

fn found_schema() -> Schema {
    let place = object(&[("turn", integer()), ("at_ms", time())], &[]);
    component("FoundEvent", all_of(vec![reference("Event"), place]))
}

async fn executions(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Row {
        execution: u64,
        turns: u64,
        is_current: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        began_ms: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_ms: Option<u64>,
        /// The kind of the event that ended it.
        #[serde(skip_serializing_if = "Option::is_none")]
        ending: Option<&'static str>,
    }
    #[derive(Serialize)]
    struct Page {
        rows: Vec<Row>,
        next: Option<String>,
    }
    let client = ask.client()?;
    let stored = client.executions(ask.id()).await?;
    let list = format!("executions {}", ask.id());
    let newest = match ask.query.text("cursor") {
        Some(cursor) => number(&cursor::decode(&list, cursor)?)?.min(*stored.end()),
        None => *stored.end(),
    };
    let oldest = (newest + 1).saturating_sub(limit(&ask.query) as u64).max(*stored.start());
    let mut rows = Vec::new();
    for execution in (oldest..=newest).rev() {
        let turns = client.last_turn(ask.id(), execution).await?;
        let first = turn_of(&client, ask.id(), execution, 1, turns).await?;
        let last = turn_of(&client, ask.id(), execution, turns, turns).await?;
        rows.push(Row {
            execution,
            turns,
            is_current: execution == *stored.end(),
            version: first.as_ref().and_then(Turn::started).map(|started| started.version.clone()),
            began_ms: first.as_ref().map(|turn| turn.at_ms),
            last_ms: last.as_ref().map(|turn| turn.at_ms),
            ending: last.as_ref().and_then(Turn::ending).map(|ending| ending.name()),
        });
    }
    let next = (oldest > *stored.start()).then(|| cursor::encode(&list, &(oldest - 1).to_be_bytes()));
    ask.ok(&Page { rows, next })
}

fn number(place: &[u8]) -> Result<u64, Problem> {
    let bytes = place.try_into().map_err(|_| cursor::wrong("it was not made by this API"))?;
    Ok(u64::from_be_bytes(bytes))
}

async fn turn_of(
    client: &Client,
    id: &str,
    execution: u64,
    turn: u64,
    last: u64,
) -> Result<Option<Turn>, Problem> {
    if turn == 0 || turn > last {
        return Ok(None);
    }
    match client.turn_page(id, execution, turn - 1, 1).await {
        Ok(page) => Ok(page.turns.into_iter().next()),
        // Deleted since it was counted.
        Err(ClientError::NoExecution { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn history(ask: Ask) -> Answered {
    let client = ask.client()?;
    let view = client.status(ask.id()).await?;
    let client = client.bound_to(view.key);
    let execution = ask.query.number("execution").unwrap_or(view.execution);
    let (limit, filter) = (limit(&ask.query), EventFilter::of(&ask.query));
    if filter.text.is_some() && ask.hides_payloads() {
        let detail = "payloads are hidden from readers, and cannot be searched";
        return Err(Problem::new(ErrorCode::ForOperators, detail));
    }
    // An execution that does not exist is an error, and not an empty page.
    client.turn_page(ask.id(), execution, 0, 1).await?;
    let last = client.last_turn(ask.id(), execution).await?;
    let mut walk = Walk::of(&ask, &client, execution, last).await?;
    let (first_after, first_before) = (walk.after, walk.before);
    let (began, mut scanned) = (Instant::now(), 0);
    // In the order in which the walk meets them.
    let mut turns = WrittenTurns::of(&ask, execution);
    while turns.has_room(limit) && scanned < SCANNED_TURNS && began.elapsed() < SCAN_TIME {
        let mut read = walk.next(&client, ask.id(), execution, limit - turns.written.len()).await?;
        if read.is_empty() {
            break;
        }
        scanned += read.len();
        filter.narrow(&mut read);
        if !walk.forward {
            read.reverse();
        }
        for turn in &read {
            if !turns.has_room(limit) {
                walk.go_back_to(turns.last);
                break;
            }
            turns.write(turn)?;
        }
    }
    let partial = turns.written.len() < limit && walk.room() > 0;
    let mut turns = turns.written;
    if walk.forward == (ask.query.text("order") == Some("newest")) {
        turns.reverse();
    }
    // What the walk left over: before it, after it, or where it ended early.
    let (before, after) = match walk.forward {
        true => (first_after + 1, walk.after),
        false => (walk.before, first_before - 1),
    };
    let shown = HistoryPage {
        key: view.key,
        execution,
        current: view.execution,
        turns: &turns,
        before: (before > 1).then_some(before),
        after: (after < last).then_some(after),
        partial,
        last_turn: last,
        scanned: scanned as u64,
    };
    let is_over = execution < view.execution || view.status.is_final();
    ask.tagged_bytes(shown.write(), is_over && !partial)
}

/// Turns as JSON, up to a size.
struct WrittenTurns {
    written: Vec<Vec<u8>>,
    execution: u64,
    payload_bytes: usize,
    hides: bool,
    /// How many bytes there is still room for.
    room: usize,
    /// The turn that was written last.
    last: u64,
}

impl WrittenTurns {
    fn of(ask: &Ask, execution: u64) -> WrittenTurns {
        let number = |name: &str, otherwise: u64| {
            usize::try_from(ask.query.number(name).unwrap_or(otherwise)).unwrap_or(usize::MAX)
        };
        let payload_bytes = number("payload_bytes", DEFAULT_PAYLOAD_BYTES);
        let room = number("limit_bytes", DEFAULT_PAGE_BYTES);
        WrittenTurns {
            written: Vec::new(),
            execution,
            payload_bytes,
            hides: ask.hides_payloads(),
            room,
            last: 0,
        }
    }

    fn has_room(&self, limit: usize) -> bool {
        self.room > 0 && self.written.len() < limit
    }

    fn write(&mut self, turn: &Turn) -> Result<(), Problem> {
        let mut out = Vec::new();
        write_turn(&mut out, self.execution, turn, self.payload_bytes, self.hides)?;
        self.room = self.room.saturating_sub(out.len());
        self.last = turn.number;
        self.written.push(out);
        Ok(())
    }
}

/// A page of turns, whose events are written one by one: large payloads are replaced by the path of their event.
struct HistoryPage<'a> {
    key: InstanceKey,
    execution: u64,
    current: u64,
    turns: &'a [Vec<u8>],
    /// Pass it as `before_turn` for the turns before these.
    before: Option<u64>,
    /// Pass it as `after_turn` for the turns after these.
    after: Option<u64>,
    /// Whether the scan ended before the page was full.
    partial: bool,
    last_turn: u64,
    /// How many turns were looked at.
    scanned: u64,
}

impl HistoryPage<'_> {
    fn write(&self) -> Vec<u8> {
        let HistoryPage { key, execution, current, .. } = self;
        let mut out =
            format!(r#"{{"key":"{key}","execution":{execution},"current":{current},"turns":["#).into_bytes();
        for (place, turn) in self.turns.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(turn);
        }
        let shown = |turn: Option<u64>| turn.map_or_else(|| "null".to_owned(), |turn| turn.to_string());
        let (before, after, partial) = (shown(self.before), shown(self.after), self.partial);
        let HistoryPage { last_turn, scanned, .. } = self;
        let places = format!(r#"],"before":{before},"after":{after},"partial":{partial},"#);
        out.extend(places.into_bytes());
        out.extend(format!(r#""last_turn":{last_turn},"scanned":{scanned}}}"#).into_bytes());
        out
    }
}

pub(crate) const DEFAULT_PAYLOAD_BYTES: u64 = 2_048;
/// A page of history ends with the turn that exceeds this size.
const DEFAULT_PAGE_BYTES: u64 = 256 << 10;

/// Writes a turn as JSON.
pub(crate) fn write_turn(
    out: &mut Vec<u8>,
    execution: u64,
    turn: &Turn,
    payload_bytes: usize,
    hides: bool,
) -> Result<(), Problem> {
    out.extend(format!(r#"{{"number":{},"at_ms":{},"events":["#, turn.number, turn.at_ms).into_bytes());
    for (place, event) in turn.events.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let link = format!("executions/{execution}/events/{}", event.id);
        match hides {
            true => {
                let mut event = event.clone();
                redact::event(&mut event);
                out.extend(answer::json(&event, Payloads::Hidden)?);
            }
            false => out.extend(answer::json(event, Payloads::UpTo(payload_bytes, &link))?),
        }
    }
    out.extend(b"]}");
    Ok(())
}

async fn event(ask: Ask) -> Answered {
    let mut event = find_event(&ask).await?;
    if ask.hides_payloads() {
        redact::event(&mut event.event);
    }
    ask.tagged(&event, false)
}

async fn event_payload(ask: Ask) -> Answered {
    let event = find_event(&ask).await?;
    let payload = payload_of(&event.event)
        .ok_or_else(|| Problem::nothing(format!("event {} has no payload", event.event.id)))?;
    Ok(answer::respond(StatusCode::OK, payload.as_json().as_bytes().to_vec()))
}

/// An event, and the turn that recorded it.
#[derive(Serialize)]
struct FoundEvent {
    turn: u64,
    at_ms: u64,
    #[serde(flatten)]
    event: Event,
}

async fn find_event(ask: &Ask) -> Result<FoundEvent, Problem> {
    let (execution, event) = (ask.number("n")?, event_id(ask, "e")?);
    let client = ask.client()?;
    client.turn_page(ask.id(), execution, 0, 1).await?;
    let number = turn_with(ask, &client, execution, event).await?;
    let missing = || Problem::nothing(format!("execution {execution} has no event {event}"));
    let turns = client.turn_page(ask.id(), execution, number - 1, 1).await?.turns;
    let turn = turns.into_iter().next().ok_or_else(missing)?;
    let found = turn.events.into_iter().find(|found| found.id == event);
    Ok(FoundEvent { turn: turn.number, at_ms: turn.at_ms, event: found.ok_or_else(missing)? })
}

/// The main payload of an event.
fn payload_of(event: &Event) -> Option<&perennial::Payload> {
    match &event.kind {
        EventKind::Started(started) => Some(&started.input),
        EventKind::Job(job) => match job {
            Job::ActivityCompleted { result, .. } | Job::SubOrchestrationCompleted { result, .. } => {
                Some(result)
            }
            Job::ExternalEvent { payload, .. } | Job::UpdateRequested { payload, .. } => Some(payload),
            Job::ActivityFailed { error: ActivityError::Application(error), .. } => Some(error),
            Job::SubOrchestrationFailed { error: ChildError::Application(error), .. } => Some(error),
            _ => None,
        },
        EventKind::Decision { decision, .. } => match decision {
            Decision::ActivityScheduled { input, .. }
            | Decision::SubOrchestrationScheduled { input, .. }
            | Decision::OrchestrationChained { input, .. } => Some(input),
            Decision::ExternalEventSent { payload, .. } => Some(payload),
            Decision::SystemCall { value, .. } => Some(value),
            Decision::StatusSet { status } => Some(status),
            Decision::UpdateCompleted { result: Ok(result) | Err(result), .. } => Some(result),
            _ => None,
        },
        EventKind::Ended(ending) => match ending {
            Ending::OrchestrationCompleted { output } => Some(output),
            Ending::OrchestrationFailed { error } => Some(error),
            Ending::OrchestrationContinuedAsNew { input, .. } => Some(input),
            Ending::OrchestrationCancelled { output, .. } => output.as_ref(),
            Ending::OrchestrationTerminated { .. } => None,
        },
    }
}
