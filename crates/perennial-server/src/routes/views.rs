//! Saved views and reports of preflights, shared by everybody who uses the store.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use perennial::ErrorCode;
use perennial::Payload;
use serde::{Deserialize, Serialize};

use super::handler;
use crate::answer;
use crate::ask::Ask;
use crate::listing::FILTERS;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::{Answered, Input, Output, Route, json};
use crate::schema::{Schema, array, object, payload, string, time};

/// How many views are saved.
const MAX_VIEWS: usize = 200;
/// How many reports are kept.
const MAX_REPORTS: usize = 20;
/// The longest name of a view, and the longest filter, in bytes.
const MAX_NAME: usize = 200;
const MAX_FILTER: usize = 4_000;
/// The largest report: all of them are one document.
const MAX_REPORT: usize = 64 << 10;

const VIEWS: &str = "views";
const PREFLIGHTS: &str = "preflights";

pub(crate) fn routes() -> Vec<Route> {
    let nothing = Output { status: 204, about: "It is done.", media: "", schema: None };
    vec![
        Route::new(Method::GET, "views", "listViews", "The saved views.", handler!(views)).answers(&[json(
            200,
            "The views.",
            || object(&[("views", array(view_schema()))], &[]),
        )]),
        Route::new(Method::PUT, "views/{name}", "saveView", "Saves a view under a name.", handler!(save))
            .input(Input::Object(|| object(&[("filter", string())], &[])))
            .idempotent()
            .answers(&[nothing]),
        Route::new(Method::DELETE, "views/{name}", "deleteView", "Deletes a view.", handler!(delete))
            .idempotent()
            .answers(&[nothing])
            .fails_with(&[ErrorCode::NoSuchThing]),
        Route::new(
            Method::GET,
            "preflights",
            "listPreflights",
            "The last reports of preflights.",
            handler!(preflights),
        )
        .answers(&[json(200, "The reports, the newest first.", || {
            object(&[("preflights", array(preflight_schema()))], &[])
        })]),
        Route::new(
            Method::POST,
            "preflights",
            "leavePreflight",
            "Leaves the report of a preflight.",
            handler!(leave),
        )
        .input(Input::Object(|| object(&[("label", string()), ("report", payload())], &[])))
        .answers(&[json(201, "It is kept.", preflight_schema)])
        .fails_with(&[ErrorCode::TooLarge]),
    ]
}

fn view_schema() -> Schema {
    object(&[("name", string()), ("filter", string())], &[])
}

fn preflight_schema() -> Schema {
    object(&[("label", string()), ("at_ms", time()), ("report", payload())], &[])
}

#[derive(Serialize)]
struct View {
    name: String,
    filter: String,
}

async fn views(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Views {
        views: Vec<View>,
    }
    let views: BTreeMap<String, String> = ask.client()?.document(VIEWS).await?.unwrap_or_default();
    let views = views.into_iter().map(|(name, filter)| View { name, filter }).collect();
    ask.ok(&Views { views })
}

async fn save(ask: Ask) -> Answered {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Save {
        filter: String,
    }
    let body: Save = ask.object()?;
    let name = ask.variable("name").to_owned();
    if name.len() > MAX_NAME || body.filter.len() > MAX_FILTER {
        return Err(Problem::bad_request(format!(
            "a view has a name of at most {MAX_NAME} and a filter of at most {MAX_FILTER} bytes"
        )));
    }
    // A view that nobody can open would be a trap.
    Query::parse(Some(&body.filter), FILTERS)?;
    let client = ask.client()?;
    let is_saved = client.change_document(VIEWS, |views: &mut BTreeMap<String, String>| {
        if views.len() >= MAX_VIEWS && !views.contains_key(&name) {
            return Ok(false);
        }
        views.insert(name.clone(), body.filter.clone());
        Ok(true)
    });
    match is_saved.await? {
        true => Ok(answer::no_content()),
        false => Err(Problem::bad_request(format!("there are {MAX_VIEWS} views already; delete one first"))),
    }
}

async fn delete(ask: Ask) -> Answered {
    let name = ask.variable("name");
    let client = ask.client()?;
    let removed = client
        .change_document(VIEWS, |views: &mut BTreeMap<String, String>| Ok(views.remove(name).is_some()));
    match removed.await? {
        true => Ok(answer::no_content()),
        false => Err(Problem::nothing(format!("there is no view {name:?}"))),
    }
}

/// A report, as it is stored and shown.
#[derive(Clone, Serialize, Deserialize)]
struct Preflight {
    label: String,
    at_ms: u64,
    report: Payload,
}

async fn preflights(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Preflights {
        preflights: Vec<Preflight>,
    }
    let preflights: Vec<Preflight> = ask.client()?.document(PREFLIGHTS).await?.unwrap_or_default();
    ask.ok(&Preflights { preflights })
}

async fn leave(ask: Ask) -> Answered {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Leave {
        label: String,
        report: Payload,
    }
    let Leave { label, report } = ask.object()?;
    if ask.body.len() > MAX_REPORT {
        return Err(Problem::too_large("the report", MAX_REPORT));
    }
    let client = ask.client()?;
    let left = Preflight { label, at_ms: client.now().await?.as_millis(), report };
    let kept = client.change_document(PREFLIGHTS, |kept: &mut Vec<Preflight>| {
        kept.insert(0, left.clone());
        kept.truncate(MAX_REPORTS);
        Ok(())
    });
    kept.await?;
    ask.answer(StatusCode::CREATED, &left)
}
