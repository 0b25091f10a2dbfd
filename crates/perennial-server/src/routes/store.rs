//! What `perennial doctor` finds, and search.

use std::collections::BTreeSet;

use axum::http::Method;
use perennial::explain::StuckReport;
use perennial::{ClientError, Filter};
use serde::Serialize;

use super::handler;
use crate::ask::Ask;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, array, boolean, component, integer, named, object, string, time};
use crate::segment;

/// How many places a search returns.
const PLACES: usize = 20;

pub(crate) fn routes() -> Vec<Route> {
    let get = |path, name, about, handler| Route::new(Method::GET, path, name, about, handler);
    vec![
        get(
            "doctor",
            "getFindings",
            "Work that does not go on without help, each with its remedy.",
            handler!(doctor),
        )
        .cost(Cost::Heavy)
        .answers(&[json(200, "The findings.", doctor_schema)]),
        get("search", "search", "Up to 20 places for an id, a prefix, a key or a name.", handler!(search))
            .takes(&[parameter("q", Kind::Text, "The text.")])
            .answers(&[json(200, "The places.", search_schema)]),
    ]
}

fn doctor_schema() -> Schema {
    let finding = object(
        &[
            ("kind", string()),
            ("text", string()),
            ("remedy", string()),
            ("count", integer()),
            ("instances", array(string())),
        ],
        &[],
    );
    let findings = array(component("Finding", finding));
    let members = [
        ("at_ms", time()),
        ("findings", findings.clone()),
        ("waiting", findings),
        ("is_complete", boolean()),
    ];
    component("Findings", object(&members, &[]))
}

async fn doctor(ask: Ask) -> Answered {
    let mut report: StuckReport = ask.client()?.find_stuck().await?;
    if ask.hides_payloads() {
        // The texts quote errors of activities.
        for finding in &mut report.findings {
            finding.text = finding.text.split(" with ").next().unwrap_or_default().to_owned();
        }
    }
    ask.ok(&report)
}

fn search_schema() -> Schema {
    let place =
        object(&[("kind", named(&["instance", "orchestration"])), ("name", string()), ("at", string())], &[]);
    component("Places", object(&[("places", array(component("Place", place)))], &[]))
}

async fn search(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Place {
        kind: &'static str,
        name: String,
        at: String,
    }
    #[derive(Serialize)]
    struct Places {
        places: Vec<Place>,
    }
    let client = ask.client()?;
    let text = ask.query.text("q").unwrap_or_default().trim();
    let mut places: Vec<Place> = Vec::new();
    let instance = |id: &str| Place {
        kind: "instance",
        name: id.to_owned(),
        at: format!("instances/{}", segment::encode(id)),
    };
    if !text.is_empty() {
        let children = match text.parse::<perennial::InstanceKey>() {
            // A key names an instance and, as a parent, its children.
            Ok(key) => {
                let itself = client.find_by_key(key).await?;
                let children = client.list(Filter::new().parent(key), None, PLACES).await?.rows;
                itself.into_iter().chain(children).collect()
            }
            Err(_) => Vec::new(),
        };
        let begun = client.list(Filter::new().id_prefix(text).newest_first(true), None, PLACES).await?.rows;
        match client.status(text).await {
            Ok(view) => places.push(instance(&view.id)),
            Err(ClientError::NotFound { .. } | ClientError::InvalidName { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        places
            .extend(begun.iter().chain(&children).filter(|row| row.id != text).map(|row| instance(&row.id)));
        let names: BTreeSet<String> = client
            .nodes()
            .await?
            .into_iter()
            .flat_map(|node| node.orchestrations)
            .map(|(name, _)| name)
            .collect();
        places.extend(names.into_iter().filter(|name| name.contains(text)).map(|name| Place {
            at: format!("instances?name={}", segment::percent_encode(&name)),
            kind: "orchestration",
            name,
        }));
    }
    places.truncate(PLACES);
    ask.ok(&Places { places })
}
