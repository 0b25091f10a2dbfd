//! The way of every request: host, caller, role, origin, sizes, parameters, then its handler, under limits of time.

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use perennial::{ErrorCode, InstanceKey};
use tracing::Instrument;

use crate::access::{COOKIE, check_host, check_origin, is_allowed_origin};
use crate::answer;
use crate::ask::Ask;
use crate::dashboard;
use crate::options::{AccessKind, Caller, Role};
use crate::problem::Problem;
use crate::query::Query;
use crate::request_span;
use crate::route::{Cost, Found, Needs, Route, find};
use crate::routes::METRICS_PATH;
use crate::segment;
use crate::server::Server;

/// The largest body.
pub(crate) const MAX_BODY: usize = 5 << 20;
/// The longest URL.
pub(crate) const MAX_URL: usize = 8 << 10;
/// How long a request may take, besides what its caller is willing to wait. Longer than a client waits for the reply of a
/// runtime in another process, whose error says more.
const HANDLER_PATIENCE: Duration = Duration::from_secs(40);
/// How long an expensive request waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// Answers a request.
pub(crate) async fn handle(server: Arc<Server>, request: Request<Body>) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let measured = server.meters.begin(&parts.method, parts.uri.path());
    let span = request_span::open(&mut parts, server.options.secure);
    let allowed_origin = is_allowed_origin(&server.options, &parts.headers)
        .then(|| parts.headers.get(header::ORIGIN).cloned())
        .flatten();
    let is_head = parts.method == Method::HEAD;
    let is_chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
    let answering = answer(Arc::clone(&server), parts, body).instrument(span.clone());
    let handled = AssertUnwindSafe(answering).catch_unwind().await;
    let answered = handled.unwrap_or_else(|_| {
        tracing::error!(target: crate::LOG, "a handler panicked");
        Err(Problem::new(
            ErrorCode::OutcomeUnknown,
            "the server failed while it handled the request, which may have been carried out",
        ))
    });
    let code = answered.as_ref().err().map(|problem| problem.code().as_str());
    let mut response = answered.unwrap_or_else(Problem::into_response);
    request_span::end(&span, &response, code);
    let headers = response.headers_mut();
    if let Some(origin) = allowed_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if is_chunked {
        // A proxy may have gone by another length, which is dropped before the request gets here, and has not seen what
        // follows as a request.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if is_head {
        *response.body_mut() = Body::empty();
    }
    server.meters.end(measured, &response);
    response
}

async fn answer(server: Arc<Server>, mut parts: Parts, body: Body) -> Result<Response<Body>, Problem> {
    if server.checks_host() {
        check_host(&server.options, &parts)?;
    }
    if parts.uri.path_and_query().map_or(0, |target| target.as_str().len()) > MAX_URL {
        return Err(Problem::too_large("the URL", MAX_URL));
    }
    let has_pages = !server.options.only_metrics && !matches!(server.options.access.0, AccessKind::Nobody);
    if has_pages && dashboard::covers(parts.uri.path()) {
        return dashboard::answer(&parts);
    }
    if parts.method == Method::HEAD {
        parts.method = Method::GET;
    }
    let path = parts.uri.path().to_owned();
    let found = find(&parts.method, &path);
    let found = if server.options.only_metrics { only_metrics(found) } else { found };
    let needs = if let Found::Route(route, _) = &found { route.needs } else { Needs::Reader };
    let caller = identify(&server, &parts);
    if needs != Needs::Nobody && caller.is_none() && parts.method != Method::OPTIONS {
        if has_credentials(&parts.headers) {
            server.failures.note(address(&parts));
        }
        let challenge = HeaderValue::from_static("Bearer");
        let problem = Problem::new(ErrorCode::NotAuthenticated, "the request has no valid token or session");
        return Err(problem.header(header::WWW_AUTHENTICATE, challenge));
    }
    let (route, variables) = match found {
        Found::Route(route, variables) => (route, variables),
        Found::Methods(methods) => return other_method(&server, &parts, &methods),
        Found::Nothing => {
            return Err(Problem::new(
                ErrorCode::NoRoute,
                format!("no route has the path {:?}", shorten(&path)),
            ));
        }
    };
    request_span::route(route, &parts);
    let identified = caller.clone();
    let caller = caller.unwrap_or(Caller { name: String::new(), role: Role::Reader });
    check_role(&server, route, &caller)?;
    if route.method != Method::GET {
        check_change(&server, &parts)?;
    }
    if server.stop().is_stopped() && needs != Needs::Nobody {
        return Err(Problem::new(ErrorCode::Stopping, "the server is stopping"));
    }
    if server.client.is_stopping() && needs != Needs::Nobody {
        return Err(stopped());
    }
    let query = Query::parse(parts.uri.query(), &route.parameters)?;
    let decode = |(name, value): (&'static str, &str)| Ok((name, segment::decode(value)?));
    let variables = variables.into_iter().map(decode).collect::<Result<Vec<_>, Problem>>()?;
    let body = read_body(route, body, server.options.times.body).await?;
    let (address, headers) = (address(&parts), parts.headers);
    run(Ask { server, caller, identified, address, route, variables, query, headers, body, turn: None }).await
}

/// Runs a handler: few expensive ones at a time, none for ever, and every change logged.
async fn run(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let (server, route) = (Arc::clone(&ask.server), ask.route);
    if route.cost == Cost::Heavy {
        let turn = tokio::time::timeout(TURN_PATIENCE, Arc::clone(&server.heavy).acquire_owned()).await;
        let busy = || Problem::new(ErrorCode::Busy, "too many expensive requests run at the same time");
        ask.turn = Some(turn.map_err(|_| busy())?.map_err(|_| busy())?);
    }
    let is_change = route.needs == Needs::Operator;
    let (caller, id) = (ask.caller.name.clone(), ask.id().to_owned());
    let key = if is_change { logged_key(&ask).await } else { None };
    let repeatable = route.idempotent || route.keyed && ask.idempotency_key()?.is_some();
    let patience = HANDLER_PATIENCE + ask.wait().unwrap_or_default();
    let answered = match tokio::time::timeout(patience, (route.handler)(ask)).await {
        Ok(answered) => answered,
        Err(_) if is_change => Err(Problem::new(
            ErrorCode::OutcomeUnknown,
            "the request took too long and may have been carried out",
        )),
        Err(_) => Err(Problem::new(ErrorCode::TooSlow, "the store did not answer in time")),
    };
    let answered = match answered {
        // Of a request that changes nothing, no outcome can be unknown.
        Err(problem)
            if problem.code() == ErrorCode::OutcomeUnknown && !is_change && server.client.is_stopping() =>
        {
            Err(stopped())
        }
        answered => answered,
    };
    if is_change {
        let outcome = match &answered {
            Ok(response) => response.status().as_u16().to_string(),
            Err(problem) => problem.code().to_string(),
        };
        let made = answered.as_ref().ok().and_then(|response| response.extensions().get::<Made>());
        let (id, key) = match made {
            Some(Made { id, key }) => (id, Some(*key)),
            None => (&id, key),
        };
        let key = key.map(|key| key.to_string());
        tracing::info!(target: crate::LOG, caller, route = route.name, instance = id, key, outcome, "change");
    }
    answered.map_err(|problem| problem.repeatable(repeatable))
}

fn stopped() -> Problem {
    Problem::new(ErrorCode::Stopped, "the runtime of this process has stopped")
}

/// An instance that a request started, for the log.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) key: InstanceKey,
}

/// The key of the instance that a request is about to change, if somebody reads the log: afterwards the instance may be
/// gone, or its id another's.
async fn logged_key(ask: &Ask) -> Option<InstanceKey> {
    if ask.id().is_empty() || !tracing::enabled!(target: crate::LOG, tracing::Level::INFO) {
        return None;
    }
    match ask.query.key("key") {
        Ok(None) => ask.server.client.status(ask.id()).await.ok().map(|view| view.key),
        given => given.ok().flatten(),
    }
}

/// Who sends a request.
fn identify(server: &Server, parts: &Parts) -> Option<Caller> {
    let found = match &server.options.access.0 {
        AccessKind::Nobody => None,
        AccessKind::Everybody(role) => Some(Caller { name: String::new(), role: *role }),
        AccessKind::Login(login) => login(parts),
        AccessKind::Tokens(tokens) => match bearer(&parts.headers) {
            Some(token) => tokens.caller(token),
            None => cookie(&parts.headers)
                .and_then(|secret| server.sessions.token_digest(secret))
                .and_then(|digest| tokens.caller_of(digest)),
        },
    };
    found.map(|caller| limited(server, caller))
}

/// A caller with the role that this server gives it.
pub(crate) fn limited(server: &Server, caller: Caller) -> Caller {
    let role = if server.options.read_only { Role::Reader } else { caller.role };
    Caller { role, ..caller }
}

fn check_role(server: &Server, route: &Route, caller: &Caller) -> Result<(), Problem> {
    let refused = |what: &str| Err(Problem::new(ErrorCode::ForOperators, what));
    match (route.needs, caller.role) {
        (Needs::Operator, Role::Reader) => refused("readers may not change anything"),
        (Needs::PayloadReader, _) if server.hides_payloads_from(caller) => {
            refused("payloads are hidden from readers")
        }
        _ => Ok(()),
    }
}

/// Checks that a change comes from a program, or from a page of this server.
fn check_change(server: &Server, parts: &Parts) -> Result<(), Problem> {
    // A page cannot send the token of somebody else. Whoever is let in otherwise may be a browser.
    let is_by_token =
        matches!(server.options.access.0, AccessKind::Tokens(_)) && bearer(&parts.headers).is_some();
    if !is_by_token {
        check_origin(&server.options, &parts.headers)?;
    }
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let media = media.map(|media| media.split(';').next().unwrap_or_default().trim());
    match media.is_some_and(|media| media.eq_ignore_ascii_case("application/json")) {
        true => Ok(()),
        false => Err(Problem::new(ErrorCode::MediaType, "the request is not declared as application/json")),
    }
}

/// What a listener for metrics alone finds.
fn only_metrics(found: Found<'_>) -> Found<'_> {
    match found {
        Found::Route(route, variables) if route.path == METRICS_PATH => Found::Route(route, variables),
        _ => Found::Nothing,
    }
}

/// Answers a method that the path does not have, or a browser that asks which it may use.
fn other_method(server: &Server, parts: &Parts, methods: &[&Method]) -> Result<Response<Body>, Problem> {
    let names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
    let allow = HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static("GET"));
    if parts.method == Method::OPTIONS && is_allowed_origin(&server.options, &parts.headers) {
        let mut response = answer::no_content();
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, allow);
        let sent = "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Traceparent, Tracestate";
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(sent));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        return Ok(response);
    }
    let detail = format!("the path takes {}", names.join(", "));
    Err(Problem::new(ErrorCode::MethodNotAllowed, detail).header(header::ALLOW, allow))
}

/// Reads the body, within limits of size and time.
async fn read_body(route: &Route, body: Body, patience: Duration) -> Result<Bytes, Problem> {
    if route.method == Method::GET {
        return Ok(Bytes::new());
    }
    match tokio::time::timeout(patience, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::too_large("the body", MAX_BODY)),
        Ok(Err(_)) => Err(Problem::bad_request("the body ended early")),
        Err(_) => Err(Problem::new(ErrorCode::TooSlow, "the body did not arrive in time")),
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The secret of the session that a browser sends.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, secret)| secret)
}

fn has_credentials(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || cookie(headers).is_some()
}

fn address(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}

fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}

/// A status as the answers of this crate use it.
pub(crate) const ACCEPTED: StatusCode = StatusCode::ACCEPTED;
