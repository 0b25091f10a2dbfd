//! Lists, counts and groups of instances, and one instance.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::http::Method;
use perennial::history::{Ending, EventId};
use perennial::{ErrorCode, InstanceView, Payload};
use serde::Serialize;

use super::{CURSOR, KEY, LIMIT, OF_INSTANCE, handler, limit};
use crate::answer::{self, Payloads};
use crate::ask::Ask;
use crate::listed::{INCLUDE, Include, Listed};
use crate::listing::{FILTERS, Selection};
use crate::problem::Problem;
use crate::query::{Kind, parameter};
use crate::redact;
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{
    Schema, all_of, array, boolean, component, integer, map, nullable, object, page, payload, reference,
    string, time,
};

/// How many groups are named; the others are counted together.
const GROUPS: usize = 200;
/// Groups are counted over this many rows, or for this long.
const GROUPED_ROWS: u64 = 50_000;
const GROUPING_TIME: Duration = Duration::from_millis(500);

pub(crate) fn routes() -> Vec<Route> {
    let by = parameter("by", Kind::Text, "`name`, `version`, `status`, `blocked_code` or `attr.NAME`.");
    vec![
        Route::new(Method::GET, "instances", "listInstances", "A page of instances.", handler!(list))
            .cost(Cost::Heavy)
            .takes(FILTERS)
            .takes(&[LIMIT, CURSOR, INCLUDE])
            .answers(&[json(200, "A page.", page_schema)])
            .fails_with(&[ErrorCode::BadCursor]),
        Route::new(
            Method::GET,
            "count",
            "countInstances",
            "How many instances a filter shows.",
            handler!(count),
        )
        .cost(Cost::Heavy)
        .takes(FILTERS)
        .answers(&[json(200, "Exact up to 10,000.", count_schema)]),
        Route::new(
            Method::GET,
            "groups",
            "groupInstances",
            "Counts of instances by a column.",
            handler!(groups),
        )
        .cost(Cost::Heavy)
        .takes(FILTERS)
        .takes(&[by])
        .answers(&[json(200, "At most 200 groups, the largest first.", groups_schema)]),
        Route::new(Method::GET, "instances/{id}", "getInstance", "One instance.", handler!(get))
            .takes(&[
                KEY,
                parameter(
                    "payload_bytes",
                    Kind::Number(0, 5 << 20),
                    "Larger payloads are left out; none if not given.",
                ),
            ])
            .answers(&[json(200, "The instance.", details_schema)])
            .fails_with(OF_INSTANCE),
    ]
}

fn page_schema() -> Schema {
    let scan = [("partial", boolean()), ("scanned", integer())];
    page("InstancePage", reference("ListedInstance"), &scan)
}

fn count_schema() -> Schema {
    component("ScannedCount", object(&[("rows", integer()), ("more", boolean())], &[("scanned", integer())]))
}

fn groups_schema() -> Schema {
    let group = component("Group", object(&[("value", nullable(payload())), ("count", integer())], &[]));
    let members =
        [("groups", array(group)), ("others", integer()), ("scanned", integer()), ("partial", boolean())];
    component("Groups", object(&members, &[]))
}

fn details_schema() -> Schema {
    let cancel = object(&[("reason", string()), ("since_ms", time()), ("until_ms", time())], &[]);
    let members = object(
        &[
            ("turns", nullable(integer())),
            ("events", nullable(integer())),
            ("bytes", nullable(integer())),
            ("input", nullable(payload())),
            ("output", nullable(payload())),
            ("error", nullable(payload())),
            ("reason", nullable(string())),
            ("waits_for", array(reference("Wait"))),
            ("more_waits", integer()),
            ("untaken_events", map(integer())),
            ("deadline_ms", nullable(time())),
            ("cancel", nullable(component("CancelRequest", cancel))),
            ("trace", nullable(reference("TraceContext"))),
        ],
        &[("damage", string())],
    );
    component("InstanceDetails", all_of(vec![reference("Instance"), members]))
}

#[derive(Serialize)]
struct ListPage {
    rows: Vec<Listed>,
    next: Option<String>,
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scanned: Option<u64>,
}

async fn list(ask: Ask) -> Answered {
    let client = ask.client()?;
    let selection = Selection::of(&client, &ask.query).await?;
    let after = match ask.query.text("cursor") {
        Some(cursor) => Some(selection.place(cursor)?),
        None => None,
    };
    let selected = selection.page(&client, after, limit(&ask.query)).await?;
    let rows = Listed::of(&client, selected.rows, Include::of(&ask.query), &ask.server.outcomes).await?;
    let hides = ask.hides_payloads();
    ask.ok(&ListPage {
        rows: rows.into_iter().map(|row| row.shown(hides)).collect(),
        next: selected.next.map(|place| place.encode(&selection.list)),
        partial: selected.partial,
        scanned: selected.scanned,
    })
}

async fn count(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Counted {
        rows: u64,
        more: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        scanned: Option<u64>,
    }
    let client = ask.client()?;
    let selection = Selection::of(&client, &ask.query).await?;
    let (count, scanned) = selection.count(&client).await?;
    ask.ok(&Counted { rows: count.rows, more: count.more, scanned })
}

#[derive(Serialize)]
struct Group {
    value: Option<Payload>,
    count: u64,
}

async fn groups(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Groups {
        groups: Vec<Group>,
        others: u64,
        scanned: u64,
        partial: bool,
    }
    let client = ask.client()?;
    let by = ask.query.text("by").unwrap_or("status");
    let attribute = by.strip_prefix("attr.").filter(|name| !name.is_empty());
    if attribute.is_none() && !["name", "version", "status", "blocked_code"].contains(&by) {
        return Err(Problem::bad_request("by is `name`, `version`, `status`, `blocked_code` or `attr.NAME`"));
    }
    let value = |row: &InstanceView| match (by, attribute) {
        (_, Some(name)) => row.attributes.get(name).cloned(),
        ("name", _) => Some(Payload::from(row.name.as_str())),
        ("version", _) => Some(Payload::from(row.version.as_str())),
        ("status", _) => Some(Payload::from(row.status.name())),
        _ => row.blocked.as_ref().map(|blocked| Payload::from(blocked.code.as_str())),
    };
    let selection = Selection::of(&client, &ask.query).await?;
    let mut counts: BTreeMap<Option<String>, Group> = BTreeMap::new();
    let (began, mut after, mut scanned) = (Instant::now(), None, 0);
    loop {
        let page = selection.page(&client, after, 500).await?;
        scanned += page.scanned.unwrap_or(page.rows.len() as u64);
        for row in &page.rows {
            let value = value(row);
            let text = value.as_ref().map(|value| value.as_json().to_owned());
            counts.entry(text).or_insert(Group { value, count: 0 }).count += 1;
        }
        after = page.next;
        if after.is_none() || scanned >= GROUPED_ROWS || began.elapsed() >= GROUPING_TIME {
            break;
        }
    }
    let mut groups: Vec<Group> = counts.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    let others = groups.drain(GROUPS.min(groups.len())..).map(|group| group.count).sum();
    ask.ok(&Groups { groups, others, scanned, partial: after.is_some() })
}

async fn get(ask: Ask) -> Answered {
    let mut details = ask.client()?.details(ask.id()).await?;
    if ask.hides_payloads() {
        redact::details(&mut details);
    }
    let limit = ask.query.number("payload_bytes").map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let payloads = match limit {
        // Hidden payloads are left out, whatever their size. The others are found in the history.
        Some(limit) if !ask.hides_payloads() => Payloads::UpTo(limit, "history"),
        _ => ask.payloads(),
    };
    let body = answer::json(&details, payloads)?;
    // Texts of waits contain ages, which change all the time.
    details.waits_for.iter_mut().for_each(Listed::forget_text);
    let recognised = answer::json(&details, payloads)?;
    ask.tagged_by(&recognised, body)
}

/// How an instance ended.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Ended {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl From<&Ending> for Ended {
    fn from(ending: &Ending) -> Ended {
        match ending.clone() {
            Ending::OrchestrationCompleted { output } => Ended { output: Some(output), ..Ended::default() },
            Ending::OrchestrationFailed { error } => Ended { error: Some(error), ..Ended::default() },
            Ending::OrchestrationCancelled { reason, output } => {
                Ended { output, reason: Some(reason), error: None }
            }
            Ending::OrchestrationTerminated { reason } => Ended { reason: Some(reason), ..Ended::default() },
            Ending::OrchestrationContinuedAsNew { .. } => Ended::default(),
        }
    }
}

/// The number of an event in a path.
pub(crate) fn event_id(ask: &Ask, name: &str) -> Result<EventId, Problem> {
    ask.number(name).map(EventId)
}
