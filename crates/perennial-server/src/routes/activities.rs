//! Activities: those that are retried or queued, making an attempt now, and completing them by their tokens.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use perennial::client::{TaskRow, TaskState};
use perennial::history::EventId;
use perennial::store::{InstanceKey, SessionId, TaskId};
use perennial::{Client, ErrorCode, InstanceView};
use serde::{Deserialize, Serialize};

use super::changes::{ACCEPTED_OUTPUT, Nothing, accepted};
use super::instances::event_id;
use super::{CURSOR, KEY, LIMIT, OF_INSTANCE, handler, limit, task_groups};
use crate::ask::Ask;
use crate::cursor;
use crate::gate::ACCEPTED;
use crate::problem::Problem;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Input, Route, json};
use crate::schema::{
    Schema, boolean, component, integer, named, nullable, object, page, payload, string, time,
};

/// How many rows a request looks at.
const SCANNED: usize = 10_000;

const BY_TOKEN: &[ErrorCode] = &[
    ErrorCode::BadToken,
    ErrorCode::NotFound,
    ErrorCode::AttemptOver,
    ErrorCode::ActivityOver,
    ErrorCode::ActivityAbandoned,
    ErrorCode::TooLarge,
    ErrorCode::Refused,
];

pub(crate) fn routes() -> Vec<Route> {
    let state = parameter("state", Kind::OneOf(STATES), "The state of the activity.");
    let by_token = |path, name, about, input, handler| {
        Route::new(Method::POST, path, name, about, handler)
            .input(Input::Object(input))
            .answers(&[json(202, "The report is durable.", done_schema)])
            .fails_with(BY_TOKEN)
            .idempotent()
    };
    vec![
        Route::new(
            Method::GET,
            "tasks",
            "listTasks",
            "Activities that are retried, queued or run elsewhere.",
            handler!(list),
        )
        .cost(Cost::Heavy)
        .takes(&[
            state,
            parameter("name", Kind::Text, "The activity's name."),
            parameter("tag", Kind::Text, "The tag that a node has to serve."),
            parameter("min_attempt", Kind::Number(1, u64::MAX >> 12), "The current attempt, at least."),
            LIMIT,
            CURSOR,
        ])
        .answers(&[json(200, "A page.", tasks_schema)])
        .fails_with(&[ErrorCode::BadCursor]),
        Route::new(
            Method::GET,
            "tasks/groups",
            "groupTasks",
            "The same activities by name, tag and state, with their errors by text.",
            handler!(task_groups::groups),
        )
        .cost(Cost::Heavy)
        .answers(&[json(200, "The groups, the largest first.", task_groups::schema)]),
        retry_route(),
        by_token(
            "activities/complete",
            "completeActivity",
            "Completes the attempt that handed out a token.",
            || by_token_schema("result"),
            handler!(complete),
        ),
        by_token(
            "activities/fail",
            "failActivity",
            "Fails the attempt that handed out a token.",
            || by_token_schema("error"),
            handler!(fail),
        ),
        by_token(
            "activities/heartbeat",
            "heartbeatActivity",
            "Reports that the work of an attempt is in progress.",
            || by_token_schema("details"),
            handler!(heartbeat),
        ),
    ]
}

/// Makes the next attempt of one activity.
fn retry_route() -> Route {
    Route::new(
        Method::POST,
        "instances/{id}/activities/{e}/retry",
        "retryActivity",
        "Makes the attempt that waits for its pause now.",
        handler!(retry),
    )
    .takes(&[
        KEY,
        parameter(
            "execution",
            Kind::Number(1, u64::MAX >> 12),
            "The execution that was seen; the current one if not given.",
        ),
    ])
    .answers(&[ACCEPTED_OUTPUT])
    .fails_with(OF_INSTANCE)
    .fails_with(&[
        ErrorCode::NoSuchThing,
        ErrorCode::NotWaiting,
        ErrorCode::Ended,
        ErrorCode::Blocked,
        ErrorCode::NotAnswered,
        ErrorCode::Refused,
    ])
    .idempotent()
}

const STATES: &[&str] = &["queued", "leased", "waiting"];

fn by_token_schema(value: &str) -> Schema {
    object(&[("token", string())], &[(value, payload())])
}

fn done_schema() -> Schema {
    object(&[("accepted", boolean())], &[])
}

fn tasks_schema() -> Schema {
    let task = object(
        &[
            ("id", nullable(string())),
            ("orchestration", nullable(string())),
            ("key", string()),
            ("execution", integer()),
            ("event", integer()),
            ("name", string()),
            ("state", named(STATES)),
            ("attempt", integer()),
            ("failed_attempts", integer()),
        ],
        &[
            ("tag", string()),
            ("due_ms", time()),
            ("since_ms", time()),
            ("heard_ms", time()),
            ("interruptions", integer()),
            ("last_error", string()),
            ("node", string()),
        ],
    );
    page("Tasks", component("Task", task), &[("partial", boolean())])
}

#[derive(Serialize)]
struct TaskView<'a> {
    /// `None` if it was deleted meanwhile.
    id: Option<&'a str>,
    /// The orchestration of the instance.
    orchestration: Option<&'a str>,
    key: InstanceKey,
    execution: u64,
    event: EventId,
    name: &'a str,
    state: &'static str,
    attempt: u32,
    failed_attempts: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    interruptions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    /// The node that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde calls")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'a> TaskView<'a> {
    fn new(
        task: &'a TaskRow,
        instance: Option<&'a InstanceView>,
        node: Option<&'a str>,
        hides: bool,
    ) -> TaskView<'a> {
        let last = task.past.iter().last().and_then(|past| past.error.as_deref());
        TaskView {
            id: instance.map(|instance| instance.id.as_str()),
            orchestration: instance.map(|instance| instance.name.as_str()),
            key: task.id.key,
            execution: task.id.execution,
            event: task.id.event,
            name: &task.name,
            state: task.state.name(),
            attempt: task.attempt,
            failed_attempts: task.past.iter().count(),
            tag: task.tag.as_deref(),
            // A lease without an end is the owner's own.
            due_ms: task.due_ms.filter(|_| !matches!(task.state, TaskState::Leased { .. })),
            since_ms: task.since_ms,
            heard_ms: task.heard_ms,
            interruptions: task.interruptions,
            last_error: last.map(|error| if hides { "hidden" } else { error }),
            node,
        }
    }
}

async fn list(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct TaskList<'a> {
        rows: Vec<TaskView<'a>>,
        next: Option<String>,
        partial: bool,
    }
    let (client, limit) = (ask.client()?, limit(&ask.query));
    let list = format!("tasks {}", ask.query.canonical(&["cursor", "limit"]));
    let cursor =
        ask.query.text("cursor").map(|cursor| task_id(&cursor::decode(&list, cursor)?)).transpose()?;
    let (state, name, tag) = (ask.query.text("state"), ask.query.text("name"), ask.query.text("tag"));
    let min_attempt = ask.query.number("min_attempt").unwrap_or(1);
    let is_wanted = |task: &TaskRow| {
        state.is_none_or(|state| task.state.name() == state)
            && name.is_none_or(|name| task.name == name)
            && tag.is_none_or(|tag| task.tag.as_deref() == Some(tag))
            && u64::from(task.attempt) >= min_attempt
    };
    let (mut rows, mut after, mut scanned) = (Vec::new(), cursor, 0);
    let next = loop {
        let page = client.task_page(after, 500).await?;
        scanned += page.rows.len();
        let wanted = page.rows.into_iter().filter(is_wanted);
        rows.extend(wanted.take(limit - rows.len()));
        after = page.next;
        match rows.last() {
            Some(last) if rows.len() == limit => break Some(last.id),
            _ if after.is_none() || scanned >= SCANNED => break after,
            _ => {}
        }
    };
    let partial = next.is_some() && rows.len() < limit;
    let next = next.map(|next| cursor::encode(&list, &place(next)));
    let (names, nodes) = (instance_names(&client, &rows).await?, holders(&client, &rows).await?);
    let view = |task| {
        let instance = names.get(&task_key(task));
        TaskView::new(
            task,
            instance,
            holder(task).and_then(|holder| nodes.get(&holder)).map(String::as_str),
            ask.hides_payloads(),
        )
    };
    let rows = rows.iter().map(view).collect();
    ask.ok(&TaskList { rows, next, partial })
}

fn task_key(task: &TaskRow) -> InstanceKey {
    task.id.key
}

fn holder(task: &TaskRow) -> Option<SessionId> {
    match task.state {
        TaskState::Leased { holder, .. } => Some(holder),
        _ => None,
    }
}

/// The instances of activities.
async fn instance_names(
    client: &Client,
    tasks: &[TaskRow],
) -> Result<BTreeMap<InstanceKey, InstanceView>, Problem> {
    let mut names = BTreeMap::new();
    for key in tasks.iter().map(task_key).collect::<BTreeSet<_>>() {
        if let Some(instance) = client.find_by_key(key).await? {
            names.insert(key, instance);
        }
    }
    Ok(names)
}

/// The names of the nodes that run activities.
async fn holders(client: &Client, tasks: &[TaskRow]) -> Result<BTreeMap<SessionId, String>, Problem> {
    match tasks.iter().any(|task| holder(task).is_some()) {
        true => Ok(client.session_names().await?),
        false => Ok(BTreeMap::new()),
    }
}

async fn retry(ask: Ask) -> Answered {
    let Nothing {} = ask.object()?;
    let (client, event) = (ask.client()?, event_id(&ask, "e")?);
    let view = client.status(ask.id()).await?;
    let execution = ask.query.number("execution").unwrap_or(view.execution);
    client.bound_to(view.key).retry_activity(ask.id(), execution, event).await?;
    accepted(&ask)
}

fn place(task: TaskId) -> Vec<u8> {
    [task.key.as_bytes().as_slice(), &task.execution.to_be_bytes(), &task.event.0.to_be_bytes()].concat()
}

fn task_id(place: &[u8]) -> Result<TaskId, crate::problem::Problem> {
    let wrong = || cursor::wrong("it was not made by this API");
    let (key, rest) = place.split_at_checked(16).ok_or_else(wrong)?;
    let (execution, event) = rest.split_at_checked(8).ok_or_else(wrong)?;
    Ok(TaskId {
        key: cursor::instance_key(key)?,
        execution: u64::from_be_bytes(execution.try_into().map_err(|_| wrong())?),
        event: EventId(u64::from_be_bytes(event.try_into().map_err(|_| wrong())?)),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Complete {
    token: String,
    result: Option<perennial::Payload>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    token: String,
    error: Option<perennial::Payload>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Heartbeat {
    token: String,
    details: Option<perennial::Payload>,
}

async fn complete(ask: Ask) -> Answered {
    let body: Complete = ask.object()?;
    ask.client()?.complete_activity(&body.token, body.result).await?;
    done(&ask)
}

async fn fail(ask: Ask) -> Answered {
    let body: Fail = ask.object()?;
    ask.client()?.fail_activity(&body.token, body.error).await?;
    done(&ask)
}

async fn heartbeat(ask: Ask) -> Answered {
    let body: Heartbeat = ask.object()?;
    ask.client()?.heartbeat_activity(&body.token, body.details).await?;
    done(&ask)
}

fn done(ask: &Ask) -> Answered {
    #[derive(Serialize)]
    struct Done {
        accepted: bool,
    }
    ask.answer(ACCEPTED, &Done { accepted: true })
}
