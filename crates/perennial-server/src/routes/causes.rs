//! Blocked instances by cause.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use perennial::client::Divergence;
use perennial::{Filter, InstanceView};
use serde::Serialize;

use super::handler;
use crate::ask::Ask;
use crate::redact;
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, array, boolean, component, integer, object, reference, string, time};

/// How many rows are read to group blocked instances.
const BLOCKED_ROWS: usize = 10_000;
/// How many instances of a cause are named.
const SAMPLES: usize = 5;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "blocked", "listCauses", "Blocked instances by cause.", handler!(blocked))
            .cost(Cost::Heavy)
            .answers(&[json(200, "One row per cause, the most frequent first.", causes_schema)]),
    ]
}

fn causes_schema() -> Schema {
    let cause = object(
        &[
            ("code", string()),
            ("cause", string()),
            ("name", string()),
            ("version", string()),
            ("count", integer()),
            ("first_ms", time()),
            ("last_ms", time()),
            ("attempts", integer()),
            ("reason", string()),
            ("report", string()),
            ("remedy", string()),
            ("samples", array(string())),
            ("filter", string()),
        ],
        &[
            ("last_tried_ms", time()),
            ("next_try_ms", time()),
            ("difference", string()),
            ("location", string()),
            ("divergence", reference("Divergence")),
            ("registered_by", array(string())),
        ],
    );
    let members =
        [("causes", array(component("Cause", cause))), ("count", integer()), ("partial", boolean())];
    component("Causes", object(&members, &[]))
}

/// Instances that the same fault blocks. The report is that of the instance that was tried last.
#[derive(Serialize)]
struct Cause {
    code: String,
    cause: String,
    name: String,
    version: String,
    count: u64,
    first_ms: u64,
    last_ms: u64,
    #[serde(rename = "last_tried_ms", skip_serializing_if = "Option::is_none")]
    tried_ms: Option<u64>,
    /// When the first of them is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try_ms: Option<u64>,
    /// The most tries of one instance.
    attempts: u32,
    reason: String,
    report: String,
    remedy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    divergence: Option<Box<Divergence>>,
    samples: Vec<String>,
    /// Selects the instances in a list or an operation.
    filter: String,
    /// The nodes that have the code, if it is missing elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    registered_by: Option<BTreeSet<String>>,
}

async fn blocked(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Causes {
        causes: Vec<Cause>,
        count: u64,
        partial: bool,
    }
    let client = ask.client()?;
    let mut causes: BTreeMap<(String, String, String, String), Cause> = BTreeMap::new();
    let (mut after, mut read) = (None, 0);
    loop {
        let page = client.list(Filter::new().blocked(true).paused(false), after, 500).await?;
        read += page.rows.len();
        for mut row in page.rows {
            if ask.hides_payloads() {
                redact::instance(&mut row);
            }
            note_cause(&mut causes, &row);
        }
        after = page.next;
        if after.is_none() || read >= BLOCKED_ROWS {
            break;
        }
    }
    let mut causes: Vec<Cause> = causes.into_values().collect();
    if causes.iter().any(|cause| cause.code == perennial::ErrorCode::MissingCode.as_str()) {
        let nodes = client.nodes().await?;
        for cause in
            causes.iter_mut().filter(|cause| cause.code == perennial::ErrorCode::MissingCode.as_str())
        {
            let has = |(name, version): &(String, String)| {
                *name == cause.name && (cause.version.is_empty() || *version == cause.version)
            };
            let having = nodes.iter().filter(|node| node.is_live && node.orchestrations.iter().any(has));
            cause.registered_by = Some(having.map(|node| node.name.clone()).collect());
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    ask.ok(&Causes { causes, count: read as u64, partial: after.is_some() })
}

fn note_cause(causes: &mut BTreeMap<(String, String, String, String), Cause>, row: &InstanceView) {
    let Some(blocked) = &row.blocked else { return };
    let place = (blocked.code.clone(), row.name.clone(), row.version.clone(), blocked.cause.clone());
    let cause = causes.entry(place).or_insert_with(|| Cause {
        code: blocked.code.clone(),
        cause: blocked.cause.clone(),
        name: row.name.clone(),
        version: row.version.clone(),
        count: 0,
        first_ms: blocked.since_ms,
        last_ms: blocked.since_ms,
        tried_ms: None,
        next_try_ms: None,
        attempts: 0,
        reason: String::new(),
        report: String::new(),
        remedy: blocked.code.parse::<perennial::ErrorCode>().map_or("", perennial::ErrorCode::remedy),
        difference: None,
        location: None,
        divergence: None,
        samples: Vec::new(),
        filter: filter_of(row, blocked),
        registered_by: None,
    });
    if cause.count == 0 || blocked.tried_ms > cause.tried_ms {
        let divergence = blocked.divergence.clone();
        cause.difference = divergence.as_ref().map(|divergence| divergence.difference.clone());
        cause.location = divergence.as_ref().and_then(|divergence| divergence.location.clone());
        (cause.reason, cause.report) = (blocked.reason.clone(), blocked.report.clone());
        (cause.divergence, cause.tried_ms) = (divergence, blocked.tried_ms);
    }
    cause.count += 1;
    cause.attempts = cause.attempts.max(blocked.attempts);
    let next_ms = row.wake_at.map(perennial::Timestamp::as_millis);
    cause.next_try_ms = cause.next_try_ms.into_iter().chain(next_ms).min();
    cause.first_ms = cause.first_ms.min(blocked.since_ms);
    cause.last_ms = cause.last_ms.max(blocked.since_ms);
    if cause.samples.len() < SAMPLES {
        cause.samples.push(row.id.clone());
    }
}

/// The filter of a list that shows the instances of a cause.
fn filter_of(row: &InstanceView, blocked: &perennial::client::Blocked) -> String {
    let pairs = [
        ("blocked", "true"),
        ("name", &row.name),
        ("version", &row.version),
        ("blocked_code", &blocked.code),
        ("blocked_cause", &blocked.cause),
    ];
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", crate::segment::percent_encode(value))).collect();
    pairs.join("&")
}
