//! Stopping: what waits is answered, and nothing is kept alive.

use std::time::{Duration, Instant};

use perennial_server::{Access, Options, Role};
use serde_json::{Value, json};

use crate::wire::exchange;
use crate::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn h4_after_a_shutdown_of_the_runtime_requests_are_refused() {
    for setup in [Setup::MemoryMounted, Setup::SqliteMounted, Setup::PostgresMounted] {
        let mut world = World::new(setup).await;
        world.start("approval", "a", Value::Null).await;
        let place = world.place.clone();
        let waiter = tokio::spawn(async move { place.get("instances/a/result?wait_ms=60000").send().await });
        let mut stream = world.place.get("stream?instance=a").open().await;
        stream.next_of("instance").await;
        let began = Instant::now();
        world.runtime.take().unwrap().shutdown().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(20), "{setup:?}");
        let waited = waiter.await.unwrap();
        assert!([202, 503].contains(&waited.status), "{}", waited.text());
        stream.next_of("end").await;
        assert_eq!(stream.next().await, None);
        for path in ["instances", "instances/a", "stats"] {
            world.place.get(path).refused(503, "PER-0613").await;
        }
        world.place.post("instances/a/cancel", json!({})).refused(503, "PER-0613").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h36_a_stopped_server_answers_what_waits_and_ends_its_streams() {
    let world = World::new(Setup::SqliteServed).await;
    world.start("approval", "a", Value::Null).await;
    world.running("a").await;
    let place = world.place.clone();
    let waiter = tokio::spawn(async move { place.get("instances/a/result?wait_ms=60000").expect(202).await });
    let mut stream = world.place.get("stream?instance=a").open().await;
    stream.next_of("instance").await;
    let began = Instant::now();
    world.stop.stop();
    let end = stream.next_of("end").await;
    assert!(end.data["retry_ms"].as_u64().unwrap() >= 1_000);
    assert_eq!(stream.next().await, None);
    assert_eq!(waiter.await.unwrap().json()["status"], "running");
    assert!(began.elapsed() < Duration::from_secs(10));
    // The listener is closed, and a mounted router that is stopped says so.
    let options = Options::default().access(Access::everybody(Role::Operator)).stop(world.stop.clone());
    let place = crate::world::mount(world.client.clone(), options).await;
    place.get("instances").refused(503, "PER-0811").await;
    place.get("/readyz").refused(503, "PER-0811").await;
    place.get("/livez").expect(200).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h34_a_request_of_nonsense_is_cut_off_and_harms_nobody() {
    let world = World::new(Setup::SqliteServed).await;
    for nonsense in ["\r\n\r\n", "GET\r\n\r\n", "\u{0}\u{1}\u{2}", "GET / HTTP/9.9\r\n\r\n"] {
        let answer = exchange_or_close(&world, nonsense.as_bytes()).await;
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    world.place.get("/livez").expect(200).await;
    world.end().await;
}

/// Sends bytes and closes the sending side.
async fn exchange_or_close(world: &World, bytes: &[u8]) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut stream = tokio::net::TcpStream::connect(world.place.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn h36_requests_after_a_stop_find_no_listener() {
    let world = World::new(Setup::SqliteServed).await;
    world.place.get("/livez").expect(200).await;
    world.stop.stop();
    let address = world.place.address;
    let closed = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.unwrap();
    let _ = exchange;
    world.end().await;
}
