//! Requests to a router that an application mounts, beside spans of the application's own.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::middleware::{self, Next};
use perennial_server::{Access, Caller, Options, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::Instrument;

use crate::collected::{Exported, collect, drawn, of_instance, of_trace, until};
use crate::shop::builder;

/// An application with a login and a span for each request, in which the router is mounted.
async fn application(router: axum::Router) -> SocketAddr {
    let traced = middleware::from_fn(async |request: Request, next: Next| {
        next.run(request).instrument(tracing::info_span!("shop request", otel.kind = "server")).await
    });
    let app = axum::Router::new().nest("/admin/ops", router).layer(traced);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn start(address: SocketAddr, id: &str, headers: &str) -> String {
    let body = format!(r#"{{"name":"ship","id":"{id}","input":"parcel"}}"#);
    let request = format!(
        "POST /admin/ops/api/v1/instances?wait_ms=30000 HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The spans of the trace in which an instance was started, once all of them have ended.
async fn trace_of(id: &str, spans: usize) -> Vec<Exported> {
    until(|| {
        let trace = of_instance(id).first()?.trace.clone();
        Some(of_trace(&trace)).filter(|found| found.len() >= spans)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_requests_to_a_mounted_router_are_in_the_trace_of_the_application() {
    collect();
    let runtime = builder("memory:").start().await.unwrap();
    let login = Access::login(|parts| {
        let is_known = parts.headers.get("cookie").is_some_and(|cookie| cookie == "app=1");
        is_known.then(|| Caller { name: "ada".to_owned(), role: Role::Operator })
    });
    let options = Options::default().access(login);
    let address = application(perennial_server::router(runtime.client(), options)).await;
    let started = start(address, "mounted", "cookie: app=1\r\n").await;
    assert!(started.starts_with("HTTP/1.1 201"), "{started}");
    let spans = trace_of("mounted", 4).await;
    let tree = ["shop request", "  POST /admin/ops/api/v1/instances", "    start ship", "      turn ship"];
    assert_eq!(drawn(&spans), tree);
    let request = spans.iter().find(|span| span.name.starts_with("POST")).unwrap();
    assert_eq!(request.kind, "Server");
    for (name, value) in [
        ("http.request.method", "POST"),
        ("url.path", "/admin/ops/api/v1/instances"),
        ("url.scheme", "http"),
        ("http.route", "/admin/ops/api/v1/instances"),
        ("http.response.status_code", "201"),
    ] {
        assert_eq!(request.attribute(name), Some(value), "{request:#?}");
    }
    // A caller that brings a trace is not torn out of it.
    let trace = "0af7651916cd43dd8448eb211c803e44";
    let headers = format!("cookie: app=1\r\ntraceparent: 00-{trace}-b7ad6b7169203331-01\r\n");
    assert!(start(address, "traced", &headers).await.starts_with("HTTP/1.1 201"));
    let spans = trace_of("traced", 3).await;
    assert_eq!(spans[0].trace, trace);
    assert_eq!(drawn(&spans), ["POST /admin/ops/api/v1/instances", "  start ship", "    turn ship"]);
    assert_eq!(spans[0].parent.as_deref(), Some("b7ad6b7169203331"));
    // Nobody gets in without the application's login, and the span says what was answered.
    let trace = "0af7651916cd43dd8448eb211c803e45";
    let headers = format!("traceparent: 00-{trace}-b7ad6b7169203331-01\r\n");
    assert!(start(address, "refused", &headers).await.starts_with("HTTP/1.1 401"));
    let refused = until(|| of_trace(trace).into_iter().next()).await;
    assert_eq!(refused.attribute("http.response.status_code"), Some("401"));
    assert!(!refused.is_error, "the errors of callers are not the server's");
    runtime.shutdown().await.unwrap();
}
