//! The timeline of an execution: its operations with their times, attempts and outcomes.

use std::collections::BTreeMap;

use axum::http::Method;
use perennial::client::TaskRow;
use perennial::history::{Decision, EventId, EventKind, Job, PastAttempt, Trail, Turn};
use perennial::{ErrorCode, InstanceKey};
use serde::Serialize;

use super::{KEY, OF_INSTANCE, handler};
use crate::ask::Ask;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, array, integer, named, object, string, time};

/// How many operations are shown; the others are counted.
const ROWS: usize = 2_000;
/// How many turns are read at a time.
const CHUNK: usize = 500;
const MAX_NUMBER: u64 = u64::MAX >> 12;

const KINDS: &[&str] = &["activity", "timer", "event", "child", "update", "start", "send"];
const OUTCOMES: &[&str] = &["open", "completed", "failed", "cancelled"];

pub(crate) fn routes() -> Vec<Route> {
    let about = "The operations of an execution, with their times, attempts and outcomes.";
    vec![
        Route::new(Method::GET, "instances/{id}/timeline", "getTimeline", about, handler!(timeline))
            .cost(Cost::Heavy)
            .takes(&[
                KEY,
                parameter(
                    "execution",
                    Kind::Number(1, MAX_NUMBER),
                    "The execution; the current one if not given.",
                ),
                parameter(
                    "from_ms",
                    Kind::Number(0, MAX_NUMBER),
                    "Only operations that had not ended before then.",
                ),
                parameter(
                    "to_ms",
                    Kind::Number(0, MAX_NUMBER),
                    "Only operations that were scheduled before then.",
                ),
            ])
            .answers(&[json(
                200,
                "At most 2,000 operations, in the order in which they were scheduled.",
                schema,
            )])
            .fails_with(OF_INSTANCE)
            .fails_with(&[ErrorCode::NoExecution]),
    ]
}

fn schema() -> Schema {
    let attempt = object(
        &[("queued_ms", time()), ("began_ms", time()), ("ended_ms", time())],
        &[("node", string()), ("error", string())],
    );
    let operation = object(
        &[
            ("event", integer()),
            ("kind", named(KINDS)),
            ("name", string()),
            ("turn", integer()),
            ("scheduled_ms", time()),
            ("outcome", named(OUTCOMES)),
            ("attempts", array(attempt)),
        ],
        &[
            ("unit", string()),
            ("due_ms", time()),
            ("ended_ms", time()),
            ("ended_by", integer()),
            ("attempt", integer()),
        ],
    );
    let turn = object(&[("number", integer()), ("at_ms", time())], &[]);
    object(
        &[
            ("key", string()),
            ("execution", integer()),
            ("current", integer()),
            ("at_ms", time()),
            ("operations", array(operation)),
            ("others", integer()),
            ("turns", array(turn)),
        ],
        &[],
    )
}

#[derive(Serialize)]
struct Timeline {
    key: InstanceKey,
    execution: u64,
    current: u64,
    /// The store's clock, up to which open operations last.
    at_ms: u64,
    operations: Vec<Operation>,
    /// How many operations are not shown.
    others: usize,
    turns: Vec<TurnMark>,
}

#[derive(Serialize)]
struct TurnMark {
    number: u64,
    at_ms: u64,
}

#[derive(Serialize)]
struct Operation {
    event: EventId,
    kind: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    turn: u64,
    scheduled_ms: u64,
    /// When a timer fires, or the next attempt of an activity begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    /// The event that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<EventId>,
    outcome: &'static str,
    /// The current attempt of an activity that has a row of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    attempts: Vec<Attempt>,
}

#[derive(Serialize)]
struct Attempt {
    queued_ms: u64,
    began_ms: u64,
    ended_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// How it failed; absent if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

async fn timeline(ask: Ask) -> Answered {
    let client = ask.client()?;
    let view = client.status(ask.id()).await?;
    let client = client.bound_to(view.key);
    let execution = ask.query.number("execution").unwrap_or(view.execution);
    let window = (ask.query.number("from_ms").unwrap_or(0), ask.query.number("to_ms").unwrap_or(u64::MAX));
    let mut drawn = Drawn { hides: ask.hides_payloads(), ..Drawn::default() };
    let mut after = 0;
    loop {
        let page = client.turn_page(ask.id(), execution, after, CHUNK).await?;
        page.turns.iter().for_each(|turn| drawn.note(turn));
        after = page.turns.last().map_or(after, |turn| turn.number);
        if !page.more {
            break;
        }
    }
    if execution == view.execution {
        client.tasks(ask.id()).await?.iter().for_each(|task| drawn.note_task(task));
    }
    let Drawn { operations, waits, mut turns, .. } = drawn;
    drop(waits);
    let is_within = |operation: &Operation| {
        operation.ended_ms.is_none_or(|ended_ms| ended_ms >= window.0) && operation.scheduled_ms < window.1
    };
    let mut operations: Vec<Operation> = operations.into_values().filter(is_within).collect();
    let others = operations.len().saturating_sub(ROWS);
    operations.truncate(ROWS);
    turns.retain(|turn| (window.0..window.1).contains(&turn.at_ms));
    turns.truncate(ROWS);
    let at_ms = client.now().await?.as_millis();
    ask.ok(&Timeline { key: view.key, execution, current: view.execution, at_ms, operations, others, turns })
}

/// The operations of the turns that were read.
#[derive(Default)]
struct Drawn {
    operations: BTreeMap<EventId, Operation>,
    /// Waits for events that have not come, by name, in order.
    waits: BTreeMap<String, Vec<EventId>>,
    turns: Vec<TurnMark>,
    hides: bool,
}

impl Drawn {
    fn note(&mut self, turn: &Turn) {
        self.turns.push(TurnMark { number: turn.number, at_ms: turn.at_ms });
        for event in &turn.events {
            match &event.kind {
                EventKind::Job(job) => self.note_job(turn.at_ms, turn.number, event.id, job),
                EventKind::Decision { unit, decision } => {
                    let unit = (!unit.is_root()).then(|| unit.to_string());
                    self.note_decision(turn, event.id, unit, decision);
                }
                EventKind::Started(_) | EventKind::Ended(_) => {}
            }
        }
    }

    fn note_job(&mut self, at_ms: u64, turn: u64, id: EventId, job: &Job) {
        match job {
            Job::ActivityCompleted { source_event_id, trail, .. } => {
                self.add_attempts(*source_event_id, trail);
                self.end(*source_event_id, at_ms, id, "completed");
            }
            Job::ActivityFailed { source_event_id, trail, .. } => {
                self.add_attempts(*source_event_id, trail);
                self.end(*source_event_id, at_ms, id, "failed");
            }
            Job::SubOrchestrationFailed { source_event_id, .. } => {
                self.end(*source_event_id, at_ms, id, "failed")
            }
            Job::TimerFired { source_event_id }
            | Job::SubOrchestrationCompleted { source_event_id, .. }
            | Job::DeliveryReported { source_event_id, .. } => {
                self.end(*source_event_id, at_ms, id, "completed")
            }
            Job::ExternalEvent { name, .. } => {
                if let Some(waits) = self.waits.get_mut(name).filter(|waits| !waits.is_empty()) {
                    let wait = waits.remove(0);
                    self.end(wait, at_ms, id, "completed");
                }
            }
            Job::UpdateRequested { name, .. } => {
                let update = Operation::new(id, "update", name, turn, at_ms);
                self.operations.insert(id, update);
            }
            _ => {}
        }
    }

    fn note_decision(&mut self, turn: &Turn, id: EventId, unit: Option<String>, decision: &Decision) {
        let (number, at_ms) = (turn.number, turn.at_ms);
        let begun = |kind, name: &str| Operation { unit, ..Operation::new(id, kind, name, number, at_ms) };
        let operation = match decision {
            Decision::ActivityScheduled { name, .. } => begun("activity", name),
            Decision::TimerCreated { due_ms } => Operation { due_ms: Some(*due_ms), ..begun("timer", "") },
            Decision::ExternalSubscribed { name } => {
                self.waits.entry(name.clone()).or_default().push(id);
                begun("event", name)
            }
            Decision::SubOrchestrationScheduled { name, .. } => begun("child", name),
            Decision::OrchestrationChained { name, .. } => {
                Operation { outcome: "completed", ..begun("start", name) }
            }
            Decision::ExternalEventSent { name, .. } => {
                Operation { outcome: "completed", ..begun("send", name) }
            }
            Decision::UpdateCompleted { source_event_id, result } => {
                let outcome = if result.is_ok() { "completed" } else { "failed" };
                return self.end(*source_event_id, at_ms, id, outcome);
            }
            Decision::ActivityCancelRequested { source_event_id }
            | Decision::TimerCancelled { source_event_id }
            | Decision::ExternalUnsubscribed { source_event_id }
            | Decision::SubOrchestrationCancelRequested { source_event_id } => {
                self.waits.values_mut().for_each(|waits| waits.retain(|wait| wait != source_event_id));
                return self.end(*source_event_id, at_ms, id, "cancelled");
            }
            _ => return,
        };
        self.operations.insert(id, operation);
    }

    fn end(&mut self, operation: EventId, at_ms: u64, by: EventId, outcome: &'static str) {
        if let Some(operation) = self.operations.get_mut(&operation) {
            (operation.ended_ms, operation.ended_by, operation.outcome) = (Some(at_ms), Some(by), outcome);
        }
    }

    fn add_attempts(&mut self, operation: EventId, trail: &Trail) {
        let hides = self.hides;
        if let Some(operation) = self.operations.get_mut(&operation) {
            operation.attempts = trail.iter().map(|past| Attempt::new(past, hides)).collect();
        }
    }

    /// An activity that is retried, or runs on another node.
    fn note_task(&mut self, task: &TaskRow) {
        self.add_attempts(task.id.event, &task.past);
        if let Some(operation) = self.operations.get_mut(&task.id.event) {
            operation.attempt = Some(task.attempt);
            operation.due_ms = task.due_ms.filter(|_| task.state.name() == "waiting");
        }
    }
}

impl Operation {
    fn new(event: EventId, kind: &'static str, name: &str, turn: u64, scheduled_ms: u64) -> Operation {
        let (name, outcome, attempts) = (name.to_owned(), "open", Vec::new());
        let (unit, due_ms, ended_ms, ended_by, attempt) = (None, None, None, None, None);
        Operation {
            event,
            kind,
            name,
            unit,
            turn,
            scheduled_ms,
            due_ms,
            ended_ms,
            ended_by,
            outcome,
            attempt,
            attempts,
        }
    }
}

impl Attempt {
    fn new(past: &PastAttempt, hides: bool) -> Attempt {
        let PastAttempt { queued_ms, began_ms, ended_ms, node, error } = past.clone();
        let error = error.map(|error| if hides { "hidden".to_owned() } else { error.to_string() });
        Attempt { queued_ms, began_ms, ended_ms, node: node.map(|node| node.to_string()), error }
    }
}
