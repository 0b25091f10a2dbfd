//! The spans of one process: their names, kinds, parents, links and attributes.

use std::collections::BTreeSet;

use perennial::prelude::*;
use perennial_testkit::postgres::TestServer;
use tracing::Instrument;

use crate::collected::{Exported, check, collect, drawn, of_instance, of_trace, until};
use crate::shop::{self, builder, turns};

fn traceparent(trace: &str) -> String {
    format!("00-{trace}-b7ad6b7169203331-01")
}

const CALLER: &str = "b7ad6b7169203331";

#[tokio::test(flavor = "multi_thread")]
async fn o7_an_instance_its_child_and_its_attempts_are_one_tree() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    let trace = "0af7651916cd43dd8448eb211c803190";
    let client = runtime.client().with_trace_context(&traceparent(trace), None).unwrap();
    let run = client.start("order", "family", "family".to_owned()).await.unwrap();
    turns(&client, "family", 3).await;
    let sender = "00-0af7651916cd43dd8448eb211c80aaaa-b7ad6b716920aaaa-01";
    let other = runtime.client().with_trace_context(sender, None).unwrap();
    other.raise_event("family", "paid", "yes").await.unwrap();
    let said = run.result().await.unwrap();
    turns(&client, "family-letter", 1).await;
    runtime.shutdown().await.unwrap();
    let spans = of_trace(trace);
    check(&spans, &[CALLER]);
    assert_eq!(
        drawn(&spans),
        [
            "start order",
            "  turn order",
            "    activity charge",
            "      call bank",
            "  turn order",
            "    start ship",
            "      turn ship",
            "  turn order",
            "  turn order",
        ]
    );
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    assert_eq!(named("start order")[0].parent.as_deref(), Some(CALLER));
    // What the activity passes on is its own span.
    let attempt = named("activity charge")[0];
    assert_eq!(said, format!("00-{trace}-{}-01", attempt.span));
    // Each turn links to what woke it: nothing, the attempt, the child, the event.
    let links: Vec<Vec<(String, String)>> =
        named("turn order").iter().map(|turn| turn.links.clone()).collect();
    let child = named("start ship")[0];
    let expected = [
        vec![],
        vec![(trace.to_owned(), attempt.span.clone())],
        vec![(trace.to_owned(), child.span.clone())],
        vec![("0af7651916cd43dd8448eb211c80aaaa".to_owned(), "b7ad6b716920aaaa".to_owned())],
    ];
    assert_eq!(links, expected);
    // The letter was sent with the third turn, and has a trace of its own that links back.
    let letter = of_instance("family-letter");
    let start = letter.iter().find(|span| span.name == "start ship").unwrap();
    assert_ne!(start.trace, trace);
    assert_eq!((start.parent.as_deref(), &start.kind[..]), (None, "Producer"));
    assert_eq!(start.links, [(trace.to_owned(), named("turn order")[2].span.clone())]);
    check(&of_trace(&start.trace), &[]);
    assert_eq!(drawn(&of_trace(&start.trace)), ["start ship", "  turn ship"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn o11_spans_have_exactly_these_attributes() {
    collect();
    let runtime =
        builder("memory:").options(RuntimeOptions { node: "n1".into(), ..RuntimeOptions::default() });
    let runtime = runtime.start().await.unwrap();
    let client = runtime.client();
    assert_eq!(
        client.start("stubborn", "attributes", ()).await.unwrap().result().await.unwrap().as_json(),
        "2"
    );
    assert!(
        client
            .start("host", "attributes-host", "attributes-guest".to_owned())
            .await
            .unwrap()
            .result()
            .await
            .is_err()
    );
    runtime.shutdown().await.unwrap();
    let spans = of_instance("attributes");
    check(&spans, &[]);
    let names = |span: &Exported| span.attributes.keys().cloned().collect::<BTreeSet<String>>();
    let expected = |more: &[&str]| {
        more.iter()
            .copied()
            .chain(["perennial.instance.id", "perennial.outcome"])
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let attempts: Vec<&Exported> = spans.iter().filter(|span| span.name == "activity flaky").collect();
    let of_attempt = [
        "perennial.instance.key",
        "perennial.execution",
        "perennial.event.id",
        "perennial.activity",
        "perennial.attempt",
        "perennial.node",
    ];
    assert_eq!(names(attempts[0]), expected(&[&of_attempt[..], &["error.type"]].concat()));
    assert_eq!(names(attempts[1]), expected(&of_attempt));
    let of = |span: &Exported, name: &str| span.attribute(name).unwrap().to_owned();
    assert_eq!((of(attempts[0], "error.type"), attempts[0].is_error), ("error".into(), true));
    assert_eq!(
        (of(attempts[0], "perennial.attempt"), of(attempts[1], "perennial.attempt")),
        ("1".into(), "2".into())
    );
    assert_eq!(
        (of(attempts[0], "perennial.outcome"), of(attempts[1], "perennial.outcome")),
        ("failed".into(), "completed".into())
    );
    assert_eq!(of(attempts[0], "perennial.node"), "n1");
    // The second attempt woke the last turn.
    let turns: Vec<&Exported> = spans.iter().filter(|span| span.name == "turn stubborn").collect();
    assert_eq!(turns[1].links, [(turns[1].trace.clone(), attempts[1].span.clone())]);
    let of_turn = [
        "perennial.instance.key",
        "perennial.execution",
        "perennial.event.id",
        "perennial.orchestration",
        "perennial.version",
        "perennial.turn",
        "perennial.node",
    ];
    assert!(turns.iter().all(|turn| names(turn) == expected(&of_turn)), "{turns:#?}");
    assert_eq!(
        (of(turns[0], "perennial.outcome"), of(turns[1], "perennial.outcome")),
        ("running".into(), "completed".into())
    );
    assert_eq!((&turns[0].kind[..], &attempts[0].kind[..]), ("Consumer", "Internal"));
    let host = of_instance("attributes-host");
    let last = host.iter().rfind(|span| span.name == "turn host").unwrap();
    assert_eq!(
        (of(last, "error.type"), of(last, "perennial.outcome"), last.is_error),
        ("failed".into(), "failed".into(), true)
    );
    let all = format!("{spans:?}{host:?}");
    assert!(!all.contains("secret words") && !all.contains("the party is over"), "{all}");
    // What an activity starts through its client is in the trace of its attempt.
    let start = of_instance("attributes-guest").into_iter().find(|span| span.name == "start ship").unwrap();
    let invite = host.iter().find(|span| span.name == "activity invite").unwrap();
    assert_eq!((start.trace, start.parent.as_ref()), (invite.trace.clone(), Some(&invite.span)));
}

#[tokio::test(flavor = "multi_thread")]
async fn o7_an_attempt_on_another_node_has_the_turn_that_scheduled_it_as_parent() {
    collect();
    let store = TestServer::shared().new_schema();
    let node = |name: &str| RuntimeOptions { node: name.to_owned(), ..RuntimeOptions::default() };
    let owner = shop::afar(&store, false).options(node("owner")).start().await.unwrap();
    let worker = RuntimeOptions { owns_shards: false, tags: vec!["gpu".to_owned()], ..node("worker") };
    let worker = shop::afar(&store, true).options(worker).start().await.unwrap();
    let run = owner.client().start("afar", "afar", ()).await.unwrap();
    let passed_on = run.result().await.unwrap();
    worker.shutdown().await.unwrap();
    owner.shutdown().await.unwrap();
    let spans = of_instance("afar");
    check(&spans, &[]);
    assert_eq!(drawn(&spans), ["start afar", "  turn afar", "    activity paint", "  turn afar"]);
    let attempt = spans.iter().find(|span| span.name == "activity paint").unwrap();
    assert_eq!(attempt.attribute("perennial.node"), Some("worker"));
    assert_eq!(passed_on.as_json(), format!("\"00-{}-{}-01\"", attempt.trace, attempt.span));
    let turns: Vec<&Exported> = spans.iter().filter(|span| span.name == "turn afar").collect();
    assert_eq!(turns[1].links, [(attempt.trace.clone(), attempt.span.clone())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn o7_after_a_reset_activities_of_kept_turns_belong_to_the_start() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    let client = runtime.client();
    client.start("ship", "again-guest", "p".to_owned()).await.unwrap().result().await.unwrap();
    assert!(client.start("host", "again", "again-guest".to_owned()).await.unwrap().result().await.is_err());
    client.delete("again-guest", false).await.unwrap();
    // The first turn is kept, and its activity, which failed, runs again.
    client.reset("again").to_turn(1).reason("test").await.unwrap();
    assert!(client.run("host", "again").result().await.is_err());
    runtime.shutdown().await.unwrap();
    let spans = of_instance("again");
    check(&spans, &[]);
    assert_eq!(
        drawn(&spans),
        [
            "start host",
            "  turn host",
            "    activity invite",
            "  turn host",
            "  activity invite",
            "  turn host"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn o8_each_next_execution_begins_a_trace_that_links_back() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    runtime
        .client()
        .start("rounds", "rounds", Payload::from(serde_json::json!(2)))
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    runtime.shutdown().await.unwrap();
    let spans = of_instance("rounds");
    check(&spans, &[]);
    let turns: Vec<&Exported> = spans.iter().filter(|span| span.name == "turn rounds").collect();
    let starts: Vec<&Exported> = spans.iter().filter(|span| span.name == "start rounds").collect();
    assert_eq!((turns.len(), starts.len()), (3, 3));
    let traces: BTreeSet<&str> = spans.iter().map(|span| &*span.trace).collect();
    assert_eq!(traces.len(), 3, "a trace for each execution");
    for (index, turn) in turns.iter().enumerate() {
        assert_eq!(turn.parent.as_ref(), Some(&starts[index].span));
        assert_eq!(starts[index].parent, None);
        let back: Vec<(String, String)> = index
            .checked_sub(1)
            .map(|before| (turns[before].trace.clone(), turns[before].span.clone()))
            .into_iter()
            .collect();
        assert_eq!(starts[index].links, back);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_a_start_within_a_span_of_the_program_belongs_to_it() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    let client = runtime.client();
    let request = tracing::info_span!("request", otel.kind = "server", otel.name = "POST /orders");
    let work = async {
        client.start("ship", "within", "parcel".to_owned()).await.unwrap().result().await.unwrap();
        client.start("dial", "within-dial", ()).await.unwrap();
        assert_eq!(client.query("within-dial", "position", ()).await.unwrap().as_json(), "0");
        assert!(client.query("within-dial", "nothing", ()).await.is_err());
        client.update("within-dial", "set", Payload::from(serde_json::json!(10))).await.unwrap();
        client.run("dial", "within-dial").result().await.unwrap();
    };
    work.instrument(request).await;
    runtime.shutdown().await.unwrap();
    let start = of_instance("within").into_iter().find(|span| span.name == "start ship").unwrap();
    let spans = of_trace(&start.trace);
    check(&spans, &[]);
    assert_eq!(
        drawn(&spans),
        [
            "POST /orders",
            "  start ship",
            "    turn ship",
            "  start dial",
            "    turn dial",
            "    turn dial",
            "  query position",
            "  query nothing",
            "  update set",
        ]
    );
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    assert_eq!((&named("POST /orders").kind[..], &named("update set").kind[..]), ("Server", "Client"));
    assert!(
        named("query nothing").is_error
            && named("query nothing").attribute("error.type").unwrap().starts_with("PER-")
    );
    // The turn that took the update links to it.
    let last = spans.iter().filter(|span| span.name == "turn dial").max_by_key(|span| span.began_ns).unwrap();
    assert_eq!(last.links, [(start.trace.clone(), named("update set").span.clone())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn o10_what_is_not_sampled_emits_nothing_and_passes_that_on() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    let trace = "0af7651916cd43dd8448eb211c803191";
    let unsampled = traceparent(trace).replace("-01", "-00");
    let client = runtime.client().with_trace_context(&unsampled, None).unwrap();
    let run = client.start("order", "unsampled", "unsampled".to_owned()).await.unwrap();
    turns(&client, "unsampled", 3).await;
    client.raise_event("unsampled", "paid", "yes").await.unwrap();
    assert_eq!(run.result().await.unwrap(), unsampled, "the activity passes it on");
    shop::turns(&client, "unsampled-letter", 1).await;
    runtime.shutdown().await.unwrap();
    assert_eq!(of_trace(trace), []);
    assert_eq!(of_instance("unsampled-letter"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_an_unreadable_context_is_recorded_and_emits_nothing() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    let client = runtime.client().with_trace_context("vendor format", None).unwrap();
    client.start("ship", "unreadable", "p".to_owned()).await.unwrap().result().await.unwrap();
    let history = client.history("unreadable").await.unwrap();
    assert_eq!(history.started().unwrap().trace.as_ref().unwrap().parent, "vendor format");
    runtime.shutdown().await.unwrap();
    assert_eq!(of_instance("unreadable"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn o11_a_turn_that_fails_has_a_span_with_its_code_and_no_words() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    let client = runtime.client();
    client.start("broken", "broken", ()).await.unwrap();
    client.raise_event("broken", "break", "now").await.unwrap();
    let failed = until(|| of_instance("broken").into_iter().find(|span| span.is_error)).await;
    runtime.shutdown().await.unwrap();
    assert_eq!(
        (failed.name.as_str(), failed.attribute("perennial.outcome")),
        ("turn broken", Some("failed"))
    );
    assert_eq!(failed.attribute("error.type"), Some(perennial::ErrorCode::Panic.as_str()));
    assert!(!format!("{failed:?}").contains("secret words"));
    let spans = of_trace(&failed.trace);
    let ids: BTreeSet<&str> = spans.iter().map(|span| &*span.span).collect();
    assert_eq!(ids.len(), spans.len(), "the failed turn has an id of its own");
}
