//! Health, limits and metrics.

use perennial_server::{Access, MetricsHandle, Options, Role};
use serde_json::json;

use crate::wire::exchange;
use crate::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn h37_health_needs_no_token_and_tells_no_more() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresMounted] {
        let mut world = World::with(setup, Options::default()).await;
        assert_eq!(world.place.get("/livez").expect(200).await.json(), json!({"status": "ok"}));
        assert_eq!(world.place.get("/readyz").expect(200).await.json(), json!({"status": "ok"}));
        world.place.get("instances").refused(401, "PER-0801").await;
        if setup != Setup::SqliteServed {
            world.runtime.take().unwrap().shutdown().await.unwrap();
            let unready = world.place.get("/readyz").refused(503, "PER-0613").await;
            assert_eq!(unready.json()["detail"], "requests cannot be served");
            assert_eq!(unready.header("retry-after"), Some("1"));
            world.place.get("/livez").expect(200).await;
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h33_sizes_are_checked_before_parsing() {
    let world = World::new(Setup::SqliteServed).await;
    let large = format!("\"{}\"", "x".repeat(5 << 20));
    let refused = world.place.ask("POST", "instances/a/events/e").body(&large).refused(413, "PER-0609").await;
    assert_eq!(refused.json()["limit"], 5 << 20);
    let url = format!("instances?id_prefix={}", "x".repeat(8 << 10));
    world.place.get(&url).refused(413, "PER-0609").await;
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    world.start("approval", "a", json!(null)).await;
    world.place.ask("POST", "instances/a/events/e").body(&deep).refused(400, "PER-0805").await;
    // Over the limit of the engine, but not of the server.
    let payload = format!("\"{}\"", "x".repeat((4 << 20) + 1));
    world.place.ask("POST", "instances/a/events/e").body(&payload).refused(413, "PER-0609").await;
    let head = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(20 << 10));
    let answer = exchange(world.place.address, head.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_served_to_readers_if_there_are_any() {
    let options = Options::default().access(Access::everybody(Role::Reader));
    let world = World::with(Setup::MemoryMounted, options.clone()).await;
    world.place.get("/metrics").refused(404, "PER-0807").await;
    world.end().await;
    let world = World::with(
        Setup::MemoryMounted,
        options.metrics(MetricsHandle::new(|| "perennial_up 1\n".to_owned())),
    )
    .await;
    let answer = world.place.get("/metrics").expect(200).await;
    assert_eq!(answer.text(), "perennial_up 1\n");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h18_unknown_routes_and_methods_are_problems_too() {
    let world = World::new(Setup::SqliteServed).await;
    for path in
        ["", "/nothing", "/api", "/api/v2/instances", "nothing", "instances/", "instances/a/b/c/d/e/f"]
    {
        world.place.get(path).refused(404, "PER-0807").await;
    }
    let answer = world.place.ask("PATCH", "instances/a").refused(405, "PER-0808").await;
    assert_eq!(answer.header("allow"), Some("GET, DELETE"));
    world.place.ask("POST", "stats").refused(405, "PER-0808").await;
    world.end().await;
}
