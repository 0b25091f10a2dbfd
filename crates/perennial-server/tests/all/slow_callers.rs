//! Callers that send or take too slowly. Times are divided, so that no test waits for the real ones.

use std::net::SocketAddr;
use std::time::Duration;

use perennial_server::{Access, Options, Role};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::wire::Place;
use crate::world::{Setup, World};

/// So many turns are more than what waits for a reader.
const STEPS: usize = 1_500;

fn hurried(divisor: u32) -> Options {
    Options::default().access(Access::everybody(Role::Operator)).divide_times(divisor)
}

/// Sends bytes, and reads until the server closes.
async fn until_closed(place: &Place, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(place.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    assert!(closed.is_ok(), "the server closes the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn h34_heads_bodies_and_idle_connections_have_their_time() {
    let world = World::with(Setup::SqliteServed, hurried(20)).await;
    let host = world.place.address;
    // Half of a head, and nothing more.
    let head = format!("GET /livez HTTP/1.1\r\nhost: {host}\r\nx-slow: ");
    assert_eq!(until_closed(&world.place, head.as_bytes()).await, "");
    // No byte at all.
    assert_eq!(until_closed(&world.place, b"").await, "");
    // A head that announces more body than comes.
    let body = format!(
        "POST /api/v1/instances HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{{"
    );
    let answer = until_closed(&world.place, body.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("PER-0813"), "{answer}");
    // After an answer, the connection waits for the next request, but not for ever.
    let whole = format!("GET /livez HTTP/1.1\r\nhost: {host}\r\n\r\n");
    assert!(until_closed(&world.place, whole.as_bytes()).await.starts_with("HTTP/1.1 200"));
    // A head that arrives byte by byte gets no more time for each.
    let mut stream = TcpStream::connect(host).await.unwrap();
    let began = std::time::Instant::now();
    let mut sent = 0;
    for byte in head.bytes().chain(std::iter::repeat(b'x')) {
        if stream.write_all(&[byte]).await.is_err() {
            break;
        }
        sent += 1;
        let mut answer = [0; 1];
        let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut answer)).await;
        if matches!(read, Ok(Ok(0) | Err(_))) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{sent} bytes were taken");
    }
    world.place.get("/livez").expect(200).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h34_an_answer_that_nobody_takes_is_given_up() {
    for setup in [Setup::SqliteServed, Setup::MemoryMounted] {
        let world = World::with(setup, hurried(20)).await;
        let large = "x".repeat(1 << 20);
        for number in 0..8 {
            let body = json!({"name": "approval", "id": format!("l-{number}"), "input": large});
            world.place.post("instances", body).expect(201).await;
            world.running(&format!("l-{number}")).await;
        }
        // As many exports as may run at a time, of which nobody takes a byte.
        let mut stalled = Vec::new();
        for _ in 0..8 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4_096).unwrap();
            let mut stream = socket.connect(world.place.address).await.unwrap();
            let request = format!(
                "GET {}/api/v1/export HTTP/1.1\r\nhost: {}\r\n\r\n",
                world.place.prefix, world.place.address
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            stalled.push(stream);
        }
        // Others get their turn when the exports are given up.
        let listed = loop {
            let answer = world.place.get("instances?limit=1").send().await;
            if answer.status == 200 {
                break answer;
            }
            assert_eq!(answer.json()["code"], "PER-0810", "{setup:?}");
        };
        assert_eq!(listed.json()["rows"].as_array().unwrap().len(), 1);
        drop(stalled);
        world.end().await;
    }
}

/// Waits until the server has closed a connection of which nobody reads. The other end does not hear of that before it has
/// read everything, but the system knows.
async fn until_given_up(server: SocketAddr, client: SocketAddr) {
    let ends = format!(":{:04X} 0100007F:{:04X} ", server.port(), client.port());
    let is_open = || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        sockets.lines().any(|line| line.contains(&format!("{ends}01")))
    };
    let closed = async {
        while is_open() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), closed).await.expect("the server gives up");
}

#[tokio::test(flavor = "multi_thread")]
async fn h32_a_reader_that_takes_nothing_is_cut_off_and_resumes_without_a_gap() {
    for setup in [Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::with(setup, hurried(20)).await;
        world.start("sequence", "s", json!(STEPS)).await;
        world.client.result("s").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stream = socket.connect(world.place.address).await.unwrap();
        let path = format!("{}/api/v1/stream?instance=s", world.place.prefix);
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", world.place.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        // Reads nothing until the server has given up; what the system kept is read then.
        until_given_up(world.place.address, stream.local_addr().unwrap()).await;
        let mut taken = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut taken)).await;
        assert!(ended.is_ok(), "the connection was closed");
        let text = String::from_utf8_lossy(&taken).into_owned();
        // The last message may have been cut in two.
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end + 2]);
        let turns = whole.matches("event: turn\n").count();
        assert!((1..=STEPS).contains(&turns), "it was cut off after {turns} turns, {setup:?}");
        let last = whole.rsplit("id: ").next().and_then(|rest| rest.lines().next()).unwrap();
        let mut resumed = world.place.get("stream?instance=s").header("last-event-id", last).open().await;
        let next = resumed.next_of("turn").await.data["turn"]["number"].as_u64().unwrap();
        assert_eq!(next, turns as u64 + 1, "{setup:?}");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h31_a_stream_is_kept_awake_and_is_not_buffered_or_compressed() {
    for setup in [Setup::SqliteServed, Setup::MemoryMounted] {
        let world = World::with(setup, hurried(50)).await;
        world.start("approval", "a", Value::Null).await;
        let mut stream = TcpStream::connect(world.place.address).await.unwrap();
        let request = format!(
            "GET {}/api/v1/stream?instance=a HTTP/1.1\r\nhost: {}\r\naccept-encoding: gzip, br\r\n\r\n",
            world.place.prefix, world.place.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.contains("\n:\n\n") {
            let mut bytes = [0; 4_096];
            let read = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut bytes)).await;
            let read = read.expect("a comment comes").unwrap();
            assert!(read > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("x-accel-buffering: no") && head.contains("text/event-stream"), "{head}");
        assert!(!head.contains("content-encoding") && head.contains("cache-control: no-store"), "{head}");
        let retry = body.split("retry: ").nth(1).unwrap().split('\n').next().unwrap();
        let retry: u64 = retry.parse().unwrap();
        assert!((1_000..1_500).contains(&retry), "{retry}");
        world.end().await;
    }
}
