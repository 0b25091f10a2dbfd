//! O1 to O3 over real sockets: Prometheus text of a mounted router, of a server beside the runtime, and on a port of its
//! own. The recorder belongs to the process, so these tests compare what they did with what was there before.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use perennial::Client;
use perennial_server::{Access, MetricsHandle, Options, Role, TokenFile, prometheus};
use serde_json::json;

use crate::wire::Place;
use crate::world::{Setup, World, serve};

static RECORDED: LazyLock<MetricsHandle> = LazyLock::new(|| prometheus::install().unwrap());

fn options() -> Options {
    Options::default().access(Access::everybody(Role::Operator)).metrics(RECORDED.clone())
}

/// The values by series. Panics on a line that is not Prometheus text.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(series.contains('{'), series.ends_with('}'), "{line}");
        values.insert(series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")));
    }
    values
}

async fn scrape(place: &Place) -> BTreeMap<String, f64> {
    let answer = place.get("/metrics").expect(200).await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    parse(&answer.text())
}

fn of(values: &BTreeMap<String, f64>, series: &str) -> f64 {
    values.get(series).copied().unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn o1_metrics_of_runtime_store_and_requests_are_prometheus_text() {
    for setup in Setup::ALL {
        let world = World::with(setup, options()).await;
        let before = scrape(&world.place).await;
        for number in 0..3 {
            world.start("hello", &format!("private-{number}"), json!("secret-payload")).await;
            world.ended(&format!("private-{number}")).await;
        }
        world.place.get("instances/private-0").expect(200).await;
        world.place.get("nowhere").refused(404, "PER-0807").await;
        world.place.get("instances").header("host", "evil.example").refused(421, "PER-0803").await;
        // Gauges of the store are read at most every five seconds, by each router.
        let text = world.place.get("/metrics").expect(200).await.text();
        let after = parse(&text);
        let grown = |series: &str| of(&after, series) - of(&before, series);
        // The runtime is in this process, too; tests that run beside this one count as well.
        let ended = r#"perennial_instances_ended_total{orchestration="hello",outcome="completed"}"#;
        assert!(grown(ended) >= 3.0, "{setup:?}");
        let asked =
            r#"http_server_request_duration_seconds_count{method="GET",route="instances/{id}",status="200"}"#;
        assert!(grown(asked) >= 1.0);
        let unknown =
            r#"http_server_request_duration_seconds_count{method="GET",route="_other",status="404"}"#;
        assert!(grown(unknown) >= 1.0);
        assert!(grown(r#"perennial_http_refused_total{reason="host"}"#) >= 1.0);
        assert!(of(&after, "http_server_active_requests") >= 1.0, "this one");
        assert!(after.contains_key(r#"perennial_store_instances{status="completed"}"#));
        assert!(text.contains("# HELP perennial_turns_total Turns that code took."), "{text}");
        assert!(text.contains("# TYPE perennial_instance_duration_seconds histogram"));
        assert!(text.contains(r#"le="2592000""#), "up to 30 days");
        for secret in ["private-", "secret-payload", "evil.example", "Hello"] {
            assert!(!text.contains(secret), "{secret} leaked: {text}");
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o1_metrics_are_for_readers_and_can_have_a_port_of_their_own() {
    let world = World::new(Setup::SqliteMounted).await;
    let path = world.path("tokens");
    let made = perennial_server::NewToken::generate("scraper", Role::Reader);
    made.append_to(&path).unwrap();
    let access = Access::tokens(TokenFile::open(&path).unwrap());
    let options = Options::default().access(access).metrics(RECORDED.clone());
    let client = || Client::open(&world.url).unwrap();
    let place = serve(client(), options.clone()).await;
    place.get("/metrics").refused(401, "PER-0801").await;
    place.get("/metrics").token(&made.token).expect(200).await;
    let apart = serve(client(), options.only_metrics(true)).await;
    apart.get("/metrics").refused(401, "PER-0801").await;
    apart.get("/metrics").token(&made.token).expect(200).await;
    for other in ["instances", "/livez", "stats", "openapi.json", "/"] {
        // The document is about whole servers.
        let answer = apart.get(other).token(&made.token).send_unchecked().await;
        assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("PER-0807")), "{other}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_open_streams_are_counted_while_they_are_open() {
    let world = World::with(Setup::MemoryMounted, options()).await;
    world.start("approval", "a", json!(null)).await;
    let before = of(&scrape(&world.place).await, "perennial_http_streams");
    let stream = world.place.get("stream?stats=true").open().await;
    while of(&scrape(&world.place).await, "perennial_http_streams") < before + 1.0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    while of(&scrape(&world.place).await, "perennial_http_streams") > before {
        tokio::task::yield_now().await;
    }
    world.end().await;
}
