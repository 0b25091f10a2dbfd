//! What an instance waits for, and its children.

use std::collections::BTreeMap;

use axum::http::Method;
use perennial::explain::{Explanation, PastState};
use perennial::{Client, ClientError, ErrorCode, Filter, InstanceView, Payload};
use serde::Serialize;

use super::{CURSOR, KEY, LIMIT, OF_INSTANCE, handler, limit};
use crate::ask::Ask;
use crate::cursor;
use crate::listed::Listed;
use crate::problem::Problem;
use crate::query::{Kind, parameter};
use crate::redact;
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{
    Schema, all_of, boolean, component, integer, map, nullable, object, page, payload, reference,
};

const MAX_NUMBER: u64 = u64::MAX >> 12;

pub(crate) fn routes() -> Vec<Route> {
    let of_instance = |path, name, about, handler| {
        Route::new(Method::GET, path, name, about, handler).takes(&[KEY]).fails_with(OF_INSTANCE)
    };
    vec![
        of_instance(
            "instances/{id}/waits",
            "getWaits",
            "What it waits for, since when, until when.",
            handler!(waits),
        )
        .takes(&[
            parameter("execution", Kind::Number(1, MAX_NUMBER), "As it was in this execution; needs `turn`."),
            parameter("turn", Kind::Number(0, MAX_NUMBER), "As it was after this turn."),
        ])
        .fails_with(&[ErrorCode::NoExecution])
        .answers(&[json(200, "What is or was open.", waits_schema)]),
        of_instance("instances/{id}/tree", "getTree", "It and its children, to a depth.", handler!(tree))
            .cost(Cost::Heavy)
            .takes(&[
                parameter("depth", Kind::Number(0, 10), "How many levels of children; 3 if not given."),
                parameter("root", Kind::Flag, "Whether the tree begins at the topmost parent."),
            ])
            .answers(&[json(200, "The tree.", || reference("Tree"))]),
        of_instance(
            "instances/{id}/children",
            "listChildren",
            "A page of its children, the oldest first.",
            handler!(children),
        )
        .takes(&[LIMIT, CURSOR])
        .answers(&[json(200, "A page.", children_schema)])
        .fails_with(&[ErrorCode::BadCursor]),
    ]
}

fn children_schema() -> Schema {
    page("Children", reference("ListedInstance"), &[])
}

fn waits_schema() -> Schema {
    let now = object(
        &[("attributes", map(payload())), ("published", nullable(payload())), ("is_past", boolean())],
        &[("execution", integer()), ("turn", integer())],
    );
    component("Waits", all_of(vec![reference("Explanation"), now]))
}

async fn waits(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Waits {
        #[serde(flatten)]
        explained: Explanation,
        attributes: BTreeMap<String, Payload>,
        published: Option<Payload>,
        is_past: bool,
    }
    let client = ask.client()?;
    let view = client.status(ask.id()).await?;
    let client = client.bound_to(view.key);
    match (ask.query.number("execution"), ask.query.number("turn")) {
        (None, None) => {
            let mut explained = client.explain(ask.id()).await?;
            if ask.hides_payloads() {
                redact::explanation(&mut explained);
            }
            let InstanceView { attributes, published, .. } = view;
            ask.ok(&Waits { explained, attributes, published, is_past: false })
        }
        (Some(_), None) => Err(Problem::bad_request("`execution` needs `turn`")),
        (execution, Some(turn)) => past_waits(&ask, &client, execution.unwrap_or(view.execution), turn).await,
    }
}

async fn past_waits(ask: &Ask, client: &Client, execution: u64, turn: u64) -> Answered {
    #[derive(Serialize)]
    struct Past {
        #[serde(flatten)]
        state: PastState,
        is_past: bool,
    }
    // An execution that does not exist is an error, and not an empty state.
    client.turn_page(ask.id(), execution, 0, 1).await?;
    let mut state = client.explain_turn(ask.id(), execution, turn).await?;
    if ask.hides_payloads() {
        redact::past_state(&mut state);
    }
    ask.ok(&Past { state, is_past: true })
}

/// How many children of an instance a tree shows.
const CHILDREN: usize = 200;
/// How many instances a tree has.
const TREE_SIZE: usize = 2_000;

#[derive(Serialize)]
struct TreeView {
    #[serde(flatten)]
    instance: InstanceView,
    children: Vec<TreeView>,
    /// Whether there are more children than are shown.
    more_children: bool,
}

async fn tree(ask: Ask) -> Answered {
    let client = ask.client()?;
    let mut root = client.status(ask.id()).await?;
    if ask.query.flag("root") == Some(true) {
        while let Some(parent) = root.parent.as_ref().map(|parent| parent.instance.clone()) {
            match ask.server.client.status(&parent).await {
                Ok(above) => root = above,
                // The parent was deleted.
                Err(ClientError::NotFound { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    let (mut room, depth) = (TREE_SIZE, ask.query.number("depth").unwrap_or(3));
    let tree = grow(&ask, root, depth, &mut room).await?;
    ask.ok(&tree)
}

async fn grow(
    ask: &Ask,
    mut instance: InstanceView,
    depth: u64,
    room: &mut usize,
) -> Result<TreeView, Problem> {
    let filter = Filter::new().parent(instance.key);
    if ask.hides_payloads() {
        redact::instance(&mut instance);
    }
    let shown = if depth == 0 { 0 } else { CHILDREN.min(*room) };
    let page = ask.server.client.list(filter, None, shown.max(1)).await?;
    let more_children = page.next.is_some() || page.rows.len() > shown;
    let rows: Vec<InstanceView> = page.rows.into_iter().take(shown).collect();
    *room -= rows.len();
    let mut children = Vec::new();
    for child in rows {
        children.push(Box::pin(grow(ask, child, depth - 1, room)).await?);
    }
    Ok(TreeView { instance, children, more_children })
}

async fn children(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Page {
        rows: Vec<Listed>,
        next: Option<String>,
    }
    let client = ask.client()?;
    let parent = client.status(ask.id()).await?.key;
    let list = format!("children {parent}");
    let after = ask.query.text("cursor").map(|cursor| cursor::instance_key(&cursor::decode(&list, cursor)?));
    let filter = Filter::new().parent(parent);
    let page = ask.server.client.list(filter, after.transpose()?, limit(&ask.query)).await?;
    let rows = page.rows.into_iter().map(|row| Listed::plain(row).shown(ask.hides_payloads())).collect();
    let next = page.next.map(|next| cursor::encode(&list, next.as_bytes()));
    ask.ok(&Page { rows, next })
}
