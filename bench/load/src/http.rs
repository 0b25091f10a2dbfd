//! The HTTP API: what a request costs more than a call, how soon a change is on a stream, pages of long lists, and readers
//! that take nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use perennial::{Client, Payload, Runtime, StartOptions};
use perennial_server::{Access, Options, Role, Stop};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::figures::{Latencies, Report, median};
use crate::fleet::{Outcome, Place, runtime};
use crate::workloads::{fresh, run_many};

/// How many readers take nothing.
const SLOW_READERS: usize = 300;
/// How often a page is read.
const PAGES: usize = 40;
/// How many instances are in flight while others are made.
const IN_FLIGHT: usize = 256;

pub(crate) async fn measure(place: &Place, runs: usize, scale: u64) -> Outcome<Vec<Report>> {
    let mut reports = Vec::new();
    reports.extend(starts(place, runs, 500 / scale).await?);
    reports.extend(changes(place, 400 / scale).await?);
    reports.extend(slow_readers(place, runs, 60_000 / scale).await?);
    reports.extend(lists(place, 1_000_000 / scale).await?);
    Ok(reports)
}

/// A server over a client, on a free port.
async fn serve(client: Client) -> Outcome<(SocketAddr, Stop)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, stop) = (listener.local_addr()?, Stop::default());
    let options = Options::default().access(Access::everybody(Role::Operator)).stop(stop.clone());
    tokio::spawn(perennial_server::serve(listener, client, options, None));
    Ok((address, stop))
}

/// A connection that is used for one request after the other.
struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Outcome<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, address, buffer: Vec::new() })
    }

    /// Sends a request and returns the body of its answer.
    async fn ask(&mut self, method: &str, path: &str, body: &str) -> Outcome<Vec<u8>> {
        let head = format!(
            "{method} /api/v1/{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        self.stream.write_all(format!("{head}{body}").as_bytes()).await?;
        self.buffer.clear();
        loop {
            let mut bytes = [0; 64 << 10];
            let read = self.stream.read(&mut bytes).await?;
            if read == 0 {
                return Err(format!("{path}: the server closed the connection").into());
            }
            self.buffer.extend_from_slice(&bytes[..read]);
            let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.ok_or("an answer without a length")?.trim().parse()?;
            if self.buffer.len() >= end + 4 + length {
                let answer = self.buffer[end + 4..end + 4 + length].to_vec();
                return match head.starts_with("http/1.1 2") {
                    true => Ok(answer),
                    false => Err(format!("{path}: {head} {}", String::from_utf8_lossy(&answer)).into()),
                };
            }
        }
    }
}

/// A start with its result, in process and over HTTP, in turns.
async fn starts(place: &Place, runs: usize, count: u64) -> Outcome<Vec<Report>> {
    let (mut more, mut over, mut within) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        let site = fresh(place, &format!("http-starts-{run}")).await?;
        let runtime = runtime(&site).await?;
        let client = runtime.client();
        let (address, stop) = serve(runtime.client()).await?;
        let mut connection = Connection::open(address).await?;
        run_many(&client, "hello", "warm", 50, 1, &Payload::null()).await?;
        let (mut called, mut asked) = (Latencies::new(), Latencies::new());
        for index in 0..count + 20 {
            let begun = Instant::now();
            let id = format!("call-{index}");
            client.start("hello", &id, Payload::null()).await?;
            client.result(&id).await?;
            let call = begun.elapsed();
            let begun = Instant::now();
            let body = format!(r#"{{"name":"hello","id":"ask-{index}"}}"#);
            connection.ask("POST", "instances?wait_ms=10000", &body).await?;
            if index >= 20 {
                called.record(call);
                asked.record(begun.elapsed());
            }
        }
        more.push(asked.ms(0.5) - called.ms(0.5));
        over.push(asked.ms(0.5));
        within.push(called.ms(0.5));
        stop.stop();
        runtime.shutdown().await?;
        site.clear().await?;
    }
    let report = Report::new("http-start", place.name(), "ms more p50", more);
    Ok(vec![report.with("over_http_ms", median(&over)).with("in_process_ms", median(&within))])
}

/// From the call that raises an event to the turn on a stream, at the owner and beside it.
async fn changes(place: &Place, count: u64) -> Outcome<Vec<Report>> {
    let site = fresh(place, "http-changes").await?;
    let runtime = runtime(&site).await?;
    let mut reports = Vec::new();
    let mut servers = vec![("owner", runtime.client())];
    if site.is_durable() {
        servers.push(("beside", Client::open(&site.url)?));
    }
    for (where_to, client) in servers {
        let (address, stop) = serve(client).await?;
        let mut latencies = Latencies::new();
        for index in 0..count + 5 {
            let id = format!("{where_to}-{index}");
            runtime.client().start("signal", &id, Payload::null()).await?;
            let mut stream = TcpStream::connect(address).await?;
            let head = format!("GET /api/v1/stream?instance={id} HTTP/1.1\r\nhost: {address}\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            until(&mut stream, "event: instance").await?;
            let begun = Instant::now();
            runtime.client().raise_event(&id, "go", Payload::null()).await?;
            until(&mut stream, "event: turn").await?;
            if index >= 5 {
                latencies.record(begun.elapsed());
            }
        }
        let name = format!("http-stream-{where_to}");
        let report = Report::new(&name, place.name(), "ms p99", vec![latencies.ms(0.99)]);
        reports.push(report.with("p50_ms", latencies.ms(0.5)).with("count", count));
        stop.stop();
    }
    runtime.shutdown().await?;
    site.clear().await?;
    Ok(reports)
}

/// Reads a stream until it has said something.
async fn until(stream: &mut TcpStream, text: &str) -> Outcome<()> {
    let mut read = Vec::new();
    loop {
        let mut bytes = [0; 16 << 10];
        match stream.read(&mut bytes).await? {
            0 => return Err(format!("the stream ended before {text:?}").into()),
            count => read.extend_from_slice(&bytes[..count]),
        }
        if String::from_utf8_lossy(&read).contains(text) {
            return Ok(());
        }
    }
}

/// The throughput of hello without and with readers that take nothing, in turns.
async fn slow_readers(place: &Place, runs: usize, count: u64) -> Outcome<Vec<Report>> {
    let (mut ratios, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        let site = fresh(place, &format!("http-slow-{run}")).await?;
        let runtime = runtime(&site).await?;
        let (address, stop) = serve(runtime.client()).await?;
        run_many(&runtime.client(), "hello", "warm", count / 10, 128, &Payload::null()).await?;
        let without = rate(&runtime, &format!("alone-{run}"), count).await?;
        let mut readers = Vec::new();
        for reader in 0..SLOW_READERS {
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(4_096)?;
            let mut stream = socket.connect(address).await?;
            let topics = format!("stats=true&list=&list=status%3Drunning&instance=warm-{}", reader % 20);
            let head = format!("GET /api/v1/stream?{topics} HTTP/1.1\r\nhost: {address}\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            readers.push(stream);
        }
        // Until the last one is answered, they are not readers yet.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let with = rate(&runtime, &format!("beside-{run}"), count).await?;
        drop(readers);
        ratios.push(100.0 * with / without);
        alone.push(without);
        beside.push(with);
        stop.stop();
        runtime.shutdown().await?;
        site.clear().await?;
    }
    let report = Report::new("http-slow", place.name(), "% of hello", ratios);
    Ok(vec![
        report
            .with("alone_per_s", median(&alone))
            .with("beside_per_s", median(&beside))
            .with("readers", SLOW_READERS),
    ])
}

async fn rate(runtime: &Runtime, prefix: &str, count: u64) -> Outcome<f64> {
    let begun = Instant::now();
    run_many(&runtime.client(), "hello", prefix, count, 128, &Payload::null()).await?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Pages of a list of many instances, for every filter that an index answers.
async fn lists(place: &Place, count: u64) -> Outcome<Vec<Report>> {
    let site = fresh(place, "http-lists").await?;
    let runtime = runtime(&site).await?;
    let client = runtime.client();
    let begun = Instant::now();
    fill(&client, count).await?;
    let made = begun.elapsed();
    let now_ms = client.now().await?.as_millis();
    let middle_ms = now_ms - u64::try_from(made.as_millis() / 2)?;
    let parent = client.status("list-0").await?.key;
    let (address, stop) = serve(client).await?;
    let mut connection = Connection::open(address).await?;
    let filters = [
        String::new(),
        "order=oldest".to_owned(),
        "status=completed".to_owned(),
        "status=running".to_owned(),
        "status=running,failed,terminated".to_owned(),
        "name=hello".to_owned(),
        "name=signal".to_owned(),
        "version=1.0.0".to_owned(),
        "name=nobody".to_owned(),
        "name=hello,signal".to_owned(),
        "version=9.9.9&status=running".to_owned(),
        "order=ended".to_owned(),
        "order=ended&status=terminated".to_owned(),
        "order=ended&name=signal".to_owned(),
        "retrying=true".to_owned(),
        "id=list-77".to_owned(),
        "id_prefix=list-77".to_owned(),
        "id_prefix=list-".to_owned(),
        format!("parent={parent}"),
        "blocked=true".to_owned(),
        "attr.region=%22r-7%22".to_owned(),
        "attr.region=%22r-7%22&status=running".to_owned(),
        format!("created_from_ms={middle_ms}"),
        format!("created_before_ms={middle_ms}"),
        format!("ended_from_ms={}", now_ms.saturating_sub(1_000)),
        format!("ended_before_ms={}", now_ms - u64::try_from(made.as_millis())? + 1_000),
        format!("ended_from_ms={middle_ms}&status=completed"),
    ];
    let mut reports = Vec::new();
    let mut worst: (f64, String) = (0.0, String::new());
    for filter in filters {
        let mut latencies = Latencies::new();
        let mut rows = 0;
        for _ in 0..PAGES {
            let begun = Instant::now();
            let page = connection.ask("GET", &format!("instances?limit=50&{filter}"), "").await?;
            latencies.record(begun.elapsed());
            let page: Value = serde_json::from_slice(&page)?;
            rows = page["rows"].as_array().map_or(0, Vec::len);
        }
        let p99 = latencies.ms(0.99);
        if p99 > worst.0 {
            worst = (p99, filter.clone());
        }
        let report = Report::new("http-list", place.name(), "ms p50", vec![latencies.ms(0.5)]);
        reports.push(report.with("max_ms", p99).with("rows", rows as u64).with("filter", filter));
    }
    let report = Report::new("http-lists", place.name(), "ms max", vec![worst.0]);
    reports
        .push(report.with("filter", worst.1).with("instances", count).with("made_in_s", made.as_secs_f64()));
    stop.stop();
    runtime.shutdown().await?;
    site.clear().await?;
    Ok(reports)
}

/// Instances that have ended, and a few that wait or were terminated, with an attribute of a hundred values.
async fn fill(client: &Client, count: u64) -> Outcome<()> {
    let mut running = FuturesUnordered::new();
    for index in 0..count {
        let (client, id) = (client.clone(), format!("list-{index}"));
        let name = if index % 1_000 == 0 { "signal" } else { "hello" };
        let options = StartOptions::default().attribute("region", format!("r-{}", index % 100));
        running.push(async move {
            client.start_with(name, &id, Payload::null(), options).await?;
            if name == "hello" {
                client.result(&id).await?;
            } else if index % 2_000 == 0 && index > 0 {
                client.terminate(&id, "bench").await?;
            }
            Ok::<_, perennial::Error>(())
        });
        if running.len() >= IN_FLIGHT {
            running.next().await.transpose()?;
        }
    }
    while let Some(done) = running.next().await {
        done?;
    }
    Ok(())
}
