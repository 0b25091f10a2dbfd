//! A real export over OTLP to a small collector on loopback.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use perennial_otel::{OtlpOptions, Traces};
use prost::Message;
use tracing_subscriber::layer::SubscriberExt;

use crate::shop::builder;

/// Receives traces over HTTP: the heads and bodies of requests.
struct Receiver {
    url: String,
    requests: Arc<Mutex<Vec<(String, ExportTraceServiceRequest)>>>,
}

impl Receiver {
    fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<_>>> = Arc::default();
        let received = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                    head.push_str(&line);
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                received.lock().unwrap().push((head, ExportTraceServiceRequest::decode(&body[..]).unwrap()));
                stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        Receiver { url, requests }
    }
}

/// A program as a user writes it: everything about the collector comes from the environment.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is a process of the other test"]
async fn exporting_process() {
    let traces =
        Traces::otlp(OtlpOptions::default().service_name("shop").header("x-team", "orders")).unwrap();
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = builder("memory:").start().await.unwrap();
    let run = runtime.client().start("stubborn", "exported", ()).await.unwrap();
    run.result().await.unwrap();
    runtime.shutdown().await.unwrap();
    traces.shutdown();
}

#[test]
fn o12_spans_reach_a_collector_over_otlp() {
    let receiver = Receiver::start();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "otlp::exporting_process", "--nocapture"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let requests = receiver.requests.lock().unwrap();
    let (head, first) = &requests[0];
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/x-protobuf"), "{head}");
    assert!(head.to_lowercase().contains("x-team: orders"), "{head}");
    let resource = first.resource_spans[0].resource.as_ref().unwrap();
    let resource = format!("{:?}", resource.attributes);
    assert!(resource.contains("\"shop\"") && resource.contains("deployment.environment.name"), "{resource}");
    let spans: Vec<_> = requests
        .iter()
        .flat_map(|(_, request)| &request.resource_spans)
        .flat_map(|resource| &resource.scope_spans)
        .flat_map(|scope| &scope.spans)
        .collect();
    let mut names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["activity flaky", "activity flaky", "start stubborn", "turn stubborn", "turn stubborn"]
    );
    let traces: BTreeSet<&[u8]> = spans.iter().map(|span| &*span.trace_id).collect();
    assert_eq!(traces.len(), 1);
    let known: BTreeSet<&[u8]> = spans.iter().map(|span| &*span.span_id).collect();
    let orphans =
        spans.iter().filter(|span| !span.parent_span_id.is_empty() && !known.contains(&*span.parent_span_id));
    assert_eq!((known.len(), orphans.count()), (5, 0));
    let linked = spans.iter().flat_map(|span| &span.links).collect::<Vec<_>>();
    assert!(linked.len() == 1 && known.contains(&*linked[0].span_id), "{linked:?}");
}
