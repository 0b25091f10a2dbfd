//! The schemas that several routes share.

use serde_json::json;

use crate::listing::STATUSES;
use crate::routes;
use crate::schema::{
    Schema, all_of, array, boolean, component, integer, map, named, nullable, object, payload, reference,
    signed, string, time,
};

/// The schemas, each with its name.
pub(crate) fn shared() -> Vec<Schema> {
    let instance = || reference("Instance");
    let outcome = object(&[("kind", named(&["output", "error", "reason"])), ("text", string())], &[]);
    let waits = object(
        &[],
        &[
            ("waits_for", array(reference("Wait"))),
            ("more_waits", integer()),
            ("outcome", component("Outcome", outcome)),
        ],
    );
    let children = object(&[("children", array(reference("Tree"))), ("more_children", boolean())], &[]);
    let trace = object(&[("parent", string())], &[("state", string())]);
    vec![
        component("Status", named(STATUSES)),
        component("Instance", instance_schema()),
        component("ListedInstance", all_of(vec![instance(), waits])),
        component("Tree", all_of(vec![instance(), children])),
        component("Blocked", blocked_schema()),
        component("Divergence", divergence_schema()),
        component("Wait", wait_schema()),
        component("Explanation", explanation_schema()),
        component("TraceContext", trace),
        component("Event", event_schema()),
        component("Turn", turn_schema()),
        component("Node", node_schema()),
        component("Operation", routes::operation_schema()),
        component("Problem", problem_schema()),
    ]
}

/// An object that may have more members than are named.
fn open(optional: &[(&str, Schema)]) -> Schema {
    let mut schema = object(&[], optional);
    schema["additionalProperties"] = json!(true);
    schema
}

fn instance_schema() -> Schema {
    let mut parent = object(
        &[("instance", string()), ("key", string()), ("execution", integer()), ("event_id", integer())],
        &[],
    );
    parent["additionalProperties"] = json!(true);
    let missing = object(&[("since_ms", time()), ("until_ms", time())], &[]);
    object(
        &[
            ("id", string()),
            ("key", string()),
            ("name", string()),
            ("version", string()),
            ("status", reference("Status")),
            ("execution", integer()),
            ("blocked", nullable(reference("Blocked"))),
            ("attributes", map(payload())),
            ("published", nullable(payload())),
            ("parent", nullable(component("ParentLink", parent))),
            ("created_ms", time()),
            ("ended_ms", nullable(time())),
            ("wake_at_ms", nullable(time())),
        ],
        &[("missing_code", component("MissingCode", missing))],
    )
}

fn why() -> Schema {
    open(&[("reason", string()), ("by", string())])
}

fn blocked_schema() -> Schema {
    let pause = component("Pause", open(&[("why", component("Why", why())), ("orchestration", boolean())]));
    object(
        &[
            ("code", string()),
            ("cause", string()),
            ("reason", string()),
            ("report", string()),
            ("since_ms", time()),
            ("attempts", integer()),
        ],
        &[
            ("divergence", reference("Divergence")),
            ("event", integer()),
            ("message", integer()),
            ("pause", pause),
            ("tried_ms", time()),
            ("waits_until_ms", time()),
        ],
    )
}

/// Where the code does not match the history.
fn divergence_schema() -> Schema {
    let side = component("DivergenceSide", open(&[("kind", string()), ("line", string())]));
    let row =
        object(&[("event", integer()), ("recorded", string()), ("code", string())], &[("parts", boolean())]);
    object(
        &[
            ("orchestration", string()),
            ("execution", integer()),
            ("turn", integer()),
            ("event", integer()),
            ("difference", string()),
            ("recorded", side.clone()),
            ("code", side),
            ("neighbourhood", array(component("DivergenceRow", row))),
            ("hint", string()),
        ],
        &[("location", string())],
    )
}

const WAITS: &[&str] = &[
    "no_runtime",
    "no_owner",
    "paused",
    "blocked",
    "missing_code",
    "orchestration_not_registered",
    "start",
    "messages",
    "full",
    "cancellation",
    "activity",
    "event",
    "timer",
    "child",
    "update",
    "delivery",
    "condition",
    "unread",
];
const ACTIVITY_STATES: &[&str] = &[
    "with_owner",
    "running",
    "interrupted",
    "not_started",
    "retry",
    "held",
    "due",
    "queued",
    "not_registered",
    "open",
    "token",
];

/// A wait. Which of the optional members it has depends on its kind.
fn wait_schema() -> Schema {
    let failed = object(&[("at_ms", time()), ("error", string())], &[("node", string())]);
    let names = json!({"anyOf": [array(string()), integer()]});
    let mut schema = object(
        &[("text", string()), ("kind", named(WAITS))],
        &[
            ("remedy", string()),
            ("unit", string()),
            ("since_ms", nullable(time())),
            ("until_ms", time()),
            ("due_ms", time()),
            ("scheduled_ms", time()),
            ("deadline_ms", time()),
            ("heard_ms", nullable(time())),
            ("timer_ms", time()),
            ("gives_up_ms", nullable(time())),
            ("name", string()),
            ("id", string()),
            ("event", integer()),
            ("version", string()),
            ("tag", string()),
            ("to", string()),
            ("reason", string()),
            ("by", nullable(string())),
            ("code", string()),
            ("problem", string()),
            ("similar", string()),
            ("node", nullable(string())),
            ("nodes", names),
            ("registered", array(string())),
            ("details", nullable(string())),
            ("state", named(ACTIVITY_STATES)),
            ("attempt", integer()),
            ("max_attempts", integer()),
            ("attempts", integer()),
            ("interruptions", integer()),
            ("count", integer()),
            ("queued", integer()),
            ("more", boolean()),
            ("has_work", boolean()),
            ("too_long", boolean()),
            ("stopping", boolean()),
            ("orchestration", boolean()),
            ("failed", component("FailedAttempt", failed)),
            ("status", nullable(reference("Status"))),
            ("waits", array(reference("Wait"))),
        ],
    );
    schema["additionalProperties"] = json!(true);
    schema
}

fn explanation_schema() -> Schema {
    object(
        &[
            ("id", string()),
            ("key", string()),
            ("status", reference("Status")),
            ("at_ms", time()),
            ("waits", array(reference("Wait"))),
            ("more", integer()),
        ],
        &[("untaken_events", map(integer())), ("ending", string()), ("history_bytes", integer())],
    )
}

/// An event: `event` has one member, which is named for what happened.
fn event_schema() -> Schema {
    let of = ("source_event_id", integer());
    let (name, instance, version) = (("name", string()), ("instance", string()), ("version", string()));
    let (reason, input, key) = (("reason", string()), ("input", payload()), ("key", string()));
    let (content, result, error) = (("payload", payload()), ("result", payload()), ("error", payload()));
    let (attempts, trail) = (("attempts", integer()), ("trail", array(json!({"type": "array"}))));
    let (output, options) = (("output", payload()), ("options", open(&[])));
    let (attributes, trace) = (("attributes", map(payload())), ("trace", reference("TraceContext")));
    let (grace, sent) = (("grace_ms", integer()), ("reported", boolean()));
    let kinds: &[(&str, &[(&str, Schema)])] = &[
        (
            "OrchestrationStarted",
            &[
                name.clone(),
                version.clone(),
                input.clone(),
                ("execution", integer()),
                ("seed", string()),
                ("deadline_ms", time()),
                attributes.clone(),
                trace.clone(),
            ],
        ),
        ("ActivityCompleted", &[of.clone(), result.clone(), attempts.clone(), trail.clone()]),
        ("ActivityFailed", &[of.clone(), error.clone(), attempts, trail]),
        ("TimerFired", std::slice::from_ref(&of)),
        ("ExternalEvent", &[name.clone(), content.clone(), key.clone(), trace.clone()]),
        ("SubOrchestrationCompleted", &[of.clone(), result.clone()]),
        ("SubOrchestrationFailed", &[of.clone(), error.clone()]),
        ("OrchestrationCancelRequested", &[reason.clone(), grace.clone()]),
        ("ExternalEventSkipped", &[("event_id", integer())]),
        ("SubOrchestrationStarted", std::slice::from_ref(&of)),
        ("DeliveryReported", &[of.clone(), ("outcome", payload())]),
        ("UpdateRequested", &[name.clone(), content.clone(), key.clone(), trace]),
        ("InstanceResumed", &[("why", why()), ("paused_ms", time()), ("paused", why())]),
        ("MessageSkipped", &[("number", integer()), ("problem", string())]),
        ("ActivityScheduled", &[name.clone(), ("id", string()), input.clone(), options.clone()]),
        ("ActivityCancelRequested", std::slice::from_ref(&of)),
        ("TimerCreated", &[("due_ms", time())]),
        ("TimerCancelled", std::slice::from_ref(&of)),
        ("ExternalSubscribed", std::slice::from_ref(&name)),
        ("ExternalUnsubscribed", std::slice::from_ref(&of)),
        (
            "SubOrchestrationScheduled",
            &[name.clone(), version.clone(), instance.clone(), input.clone(), ("close", string()), options],
        ),
        ("SubOrchestrationCancelRequested", std::slice::from_ref(&of)),
        ("ActivityStopRequested", std::slice::from_ref(&of)),
        ("SubOrchestrationStopRequested", &[of.clone(), reason.clone(), grace.clone()]),
        (
            "OrchestrationChained",
            &[name.clone(), version.clone(), instance.clone(), input.clone(), sent.clone()],
        ),
        ("ExternalEventSent", &[instance.clone(), name.clone(), content, key, sent.clone()]),
        ("CancelSent", &[instance, reason.clone(), grace, sent]),
        ("SystemCall", &[("op", string()), ("value", payload())]),
        ("PatchMarked", &[("id", string())]),
        ("AttributesUpserted", &[attributes]),
        ("StatusSet", &[("status", payload())]),
        ("UpdateCompleted", &[of.clone(), result]),
        ("OrchestrationCompleted", std::slice::from_ref(&output)),
        ("OrchestrationFailed", &[error]),
        ("OrchestrationContinuedAsNew", &[input, version]),
        ("OrchestrationCancelled", &[reason.clone(), output.clone()]),
        ("OrchestrationTerminated", &[reason]),
    ];
    let kinds: Vec<(&str, Schema)> = kinds.iter().map(|(kind, members)| (*kind, open(members))).collect();
    let event = component("EventKind", object(&[], &kinds));
    object(&[("id", integer()), ("event", event)], &[("unit", string())])
}

fn turn_schema() -> Schema {
    object(&[("number", integer()), ("at_ms", time()), ("events", array(reference("Event")))], &[])
}

fn node_schema() -> Schema {
    object(
        &[
            ("id", string()),
            ("name", string()),
            ("host", string()),
            ("process", integer()),
            ("version", string()),
            ("since", time()),
            ("expires", time()),
            ("is_live", boolean()),
            ("owns_shards", boolean()),
            ("lanes", integer()),
            ("shards", integer()),
            ("orchestrations", array(array(string()))),
            ("activities", array(string())),
            ("tags", array(string())),
            ("slots", integer()),
            ("free_slots", nullable(integer())),
            ("turn_threads", integer()),
            ("busy_turn_threads", nullable(integer())),
            ("residents", nullable(integer())),
            ("clock_offset_ms", nullable(signed())),
        ],
        &[],
    )
}

fn problem_schema() -> Schema {
    object(
        &[
            ("type", string()),
            ("title", string()),
            ("status", integer()),
            ("detail", string()),
            ("code", string()),
            ("remedy", string()),
            ("retryable", boolean()),
        ],
        &[("id", string()), ("existing", reference("Status")), ("limit", integer()), ("error", payload())],
    )
}
