//! `serve --otlp-endpoint`: the spans of requests, and of what they start, reach a collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::serving::{Served, curl};
use crate::support::Shop;

type Received = Arc<Mutex<Vec<Span>>>;

/// A collector on loopback: its URL, and the spans that it has received.
fn collector() -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let received: Received = Arc::default();
    let kept = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            kept.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    (url, received)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(span: &Span) -> Vec<String> {
    let value = |span: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        format!("{} {:?}", span.key, span.value.as_ref().and_then(|value| value.value.as_ref()))
    };
    let mut attributes: Vec<String> = span.attributes.iter().map(value).collect();
    attributes.sort();
    attributes
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_serve_exports_its_requests_and_what_they_start_in_the_callers_trace() {
    let shop = Shop::open().await;
    let (url, received) = collector();
    let served = Served::start(&shop.url(), &["--listen", "127.0.0.1:0", "--otlp-endpoint", &url]);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("traceparent: 00-{trace}-b7ad6b7169203331-01");
    let instances = format!("{}api/v1/instances", served.url);
    let body = r#"{"name":"parcel","id":"traced","input":"secret"}"#;
    let json = "content-type: application/json";
    let started = curl(&["-H", &parent, "-H", json, "-d", body, &instances]);
    assert!(started.contains("\"traced\""), "{started}");
    let unsampled = parent.replace("31-01", "31-00");
    curl(&["-H", &unsampled, &instances]);
    curl(&["-H", &parent, &format!("{instances}/nobody")]);
    assert_eq!(served.stop(), Some(0));
    let spans = std::mem::take(&mut *received.lock().unwrap());
    assert!(spans.iter().all(|span| hex(&span.trace_id) == trace), "{spans:#?}");
    let mut names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["GET /api/v1/instances/{id}", "POST /api/v1/instances", "start parcel"]);
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (post, start) = (named("POST /api/v1/instances"), named("start parcel"));
    assert_eq!(hex(&post.parent_span_id), "b7ad6b7169203331");
    assert_eq!(start.parent_span_id, post.span_id);
    assert_eq!(
        attributes(post),
        [
            "http.request.method Some(StringValue(\"POST\"))",
            "http.response.status_code Some(IntValue(201))",
            "http.route Some(StringValue(\"/api/v1/instances\"))",
            "url.path Some(StringValue(\"/api/v1/instances\"))",
            "url.scheme Some(StringValue(\"http\"))",
        ]
    );
    let missing = named("GET /api/v1/instances/{id}");
    assert!(attributes(missing).contains(&"http.response.status_code Some(IntValue(404))".to_owned()));
    assert!(
        missing.status.as_ref().is_none_or(|status| status.code == 0),
        "the caller's error, not the server's"
    );
    // What is recorded is the span that started the instance.
    shop.client().wait("traced").await.unwrap();
    let history = shop.client().history("traced").await.unwrap();
    let recorded = history.started().unwrap().trace.clone().unwrap();
    assert_eq!(recorded.parent, format!("00-{trace}-{}-01", hex(&start.span_id)));
    assert!(!format!("{spans:?}").contains("secret"));
}
