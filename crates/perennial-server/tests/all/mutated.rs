//! Mutated requests: whatever arrives, no handler panics, no 500 leaves, and every error is a problem.

use std::net::SocketAddr;
use std::time::Duration;

use perennial_server::{Access, Options, Role};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::contract::DOCUMENT;
use crate::wire::Answer;
use crate::world::{Setup, World};

/// On each store.
const REQUESTS: usize = 4_000;
/// How many are sent at a time.
const TOGETHER: usize = 50;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// A generator whose numbers depend on its seed alone.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Texts that are unusual where they are put.
const ODD: &[&str] = &[
    "",
    "a",
    ".",
    "..",
    "~",
    "~Li4",
    "%",
    "%00",
    "%FF",
    "%2F",
    "a%20b",
    "🦀",
    "-1",
    "0",
    "18446744073709551616",
    "1e9",
    "true",
    "null",
    "[]",
    "{}",
    "\"",
    "'",
    "<script>",
    "a::b",
    "x=y",
    "&&",
    "=",
    "status=running",
    "../../etc/passwd",
];
const BODIES: &[&str] = &[
    "",
    "null",
    "1",
    "\"x\"",
    "[]",
    "{}",
    "{",
    "{\"name\":\"hello\"}",
    "{\"name\":\"hello\",\"id\":\"m\"}",
    "{\"token\":\"x\"}",
    "{\"filter\":\"\"}",
    "{\"action\":\"retry\",\"filter\":\"\",\"dry_run\":true}",
    "{\"reason\":\"x\"}",
    "{\"reason\":1}",
    "{\"event\":1}",
    "{\"label\":\"x\",\"report\":1}",
    "\u{0}",
    "[[[[[[[[",
    "{\"name\":\"hello\",\"input\":\"x\",\"delay_ms\":18446744073709551615,\"timeout_ms\":18446744073709551615}",
];
const METHODS: &[&str] = &["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "get", "BREW"];
const HEADERS: &[&str] = &[
    "content-type: text/plain",
    "content-type: application/json",
    "authorization: Bearer x",
    "authorization: x",
    "cookie: perennial_session=x",
    "origin: null",
    "if-none-match: *",
    "idempotency-key: k",
    "idempotency-key: ",
    "traceparent: 00-x",
    "last-event-id: x",
    "sec-fetch-site: cross-site",
    "accept: text/html",
    "expect: 100-continue",
];

fn request(
    rng: &mut Rng,
    templates: &[(String, Vec<String>, Vec<String>)],
    prefix: &str,
    host: &str,
) -> Vec<u8> {
    let (template, methods, parameters) = &templates[rng.below(templates.len())];
    let method = if rng.below(4) > 0 {
        methods[rng.below(methods.len())].clone()
    } else {
        rng.pick(METHODS).to_owned()
    };
    let fill = |segment: &str, rng: &mut Rng| match segment.starts_with('{') {
        true => {
            let odd = rng.pick(ODD);
            rng.pick(&["kept", "1", "2", "approved", odd]).to_owned()
        }
        false if rng.below(40) == 0 => rng.pick(ODD).to_owned(),
        false => segment.to_owned(),
    };
    let mut path = prefix.to_owned();
    for segment in template.split('/').skip(1) {
        path.push('/');
        path.push_str(&fill(segment, rng));
    }
    for place in 0..rng.below(4) {
        let name = match parameters.is_empty() || rng.below(5) == 0 {
            true => rng.pick(ODD).to_owned(),
            false => parameters[rng.below(parameters.len())].clone(),
        };
        let odd = rng.pick(ODD);
        let value = rng.pick(&["1", "2", "5", "true", "running", "%22x%22", "timer", "oldest", odd]);
        path.push_str(&format!("{}{name}={value}", if place == 0 { '?' } else { '&' }));
    }
    let body = rng.pick(BODIES);
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    if rng.below(4) > 0 {
        head.push_str("content-type: application/json\r\n");
    }
    for _ in 0..rng.below(3) {
        head.push_str(&format!("{}\r\n", rng.pick(HEADERS)));
    }
    let mut bytes = format!("{head}\r\n{body}").into_bytes();
    // Some bytes are changed, wherever they are.
    if rng.below(20) == 0 {
        for _ in 0..1 + rng.below(3) {
            let place = rng.below(bytes.len());
            bytes[place] = u8::try_from(rng.below(256)).unwrap();
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn h18_mutated_requests_get_answers_that_are_problems_and_never_a_500() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::with(setup, Options::default().access(Access::everybody(Role::Operator))).await;
        world.start("approval", "kept", json!(null)).await;
        let templates: Vec<(String, Vec<String>, Vec<String>)> = DOCUMENT["paths"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(template, methods)| {
                let methods = methods.as_object().unwrap();
                let names =
                    methods.values().flat_map(|operation| operation["parameters"].as_array().unwrap());
                let names = names.filter(|parameter| parameter["in"] == "query");
                // Waits and streams would only take time.
                let names = names
                    .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                    .filter(|name| name != "wait_ms");
                (
                    template.clone(),
                    methods.keys().map(|method| method.to_ascii_uppercase()).collect(),
                    names.collect(),
                )
            })
            .filter(|(template, ..)| template != "/api/v1/stream")
            .collect();
        let mut rng = Rng(2_026);
        let host = world.place.address.to_string();
        let (mut answered, mut refused) = (0, 0);
        for _ in 0..REQUESTS / TOGETHER {
            let batch: Vec<Vec<u8>> =
                (0..TOGETHER).map(|_| request(&mut rng, &templates, world.place.prefix, &host)).collect();
            let sent = batch.into_iter().map(|bytes| {
                let address = world.place.address;
                tokio::spawn(async move { (exchange_with_end(address, &bytes).await, bytes) })
            });
            for sent in sent.collect::<Vec<_>>() {
                let (received, bytes) = sent.await.unwrap();
                let shown = || {
                    format!("{}\n→ {}", String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&received))
                };
                // A head that is not HTTP is refused by the listener, without a body.
                if received.is_empty() {
                    continue;
                }
                let answer = Answer::parse(&skip_continue(&received));
                assert_ne!(answer.status, 500, "{}", shown());
                answered += 1;
                if answer.status >= 400 && !answer.body.is_empty() {
                    assert_eq!(
                        answer.header("content-type"),
                        Some("application/problem+json"),
                        "{}",
                        shown()
                    );
                    assert!(answer.json()["code"].as_str().unwrap().starts_with("PER-"), "{}", shown());
                    refused += 1;
                }
            }
        }
        assert!(
            answered > REQUESTS * 9 / 10 && refused > REQUESTS / 5,
            "{answered} answered, {refused} refused"
        );
        world.place.get("/livez").expect(200).await;
        world.end().await;
    }
}

/// An interim answer before the real one.
fn skip_continue(received: &[u8]) -> Vec<u8> {
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    received.strip_prefix(interim).unwrap_or(received).to_vec()
}

/// Sends a request. If its length was changed, the server waits for the rest, and nobody waits for the server.
async fn exchange_with_end(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    answer
}
