//! Who am I; sessions of browsers; the document and versions.

use std::collections::BTreeMap;

use axum::http::{HeaderValue, Method, header};
use perennial::ErrorCode;
use serde::{Deserialize, Serialize};

use super::handler;
use crate::access::Sessions;
use crate::answer;
use crate::ask::Ask;
use crate::gate;
use crate::openapi;
use crate::options::{AccessKind, Caller, Role};
use crate::problem::Problem;
use crate::route::{Answered, Input, Needs, Output, Route, json};
use crate::schema::{Schema, boolean, map, named, nullable, object, string};

pub(crate) fn routes() -> Vec<Route> {
    let open = |method, path, name, about, handler| {
        Route::new(method, path, name, about, handler).needs(Needs::Nobody)
    };
    vec![
        open(
            Method::GET,
            "session",
            "getSession",
            "Who sends this request, and what they may do.",
            handler!(who),
        )
        .answers(&[json(200, "The caller; `role` is null for nobody.", session_schema)]),
        open(Method::POST, "session", "logIn", "Exchanges a token for a cookie.", handler!(log_in))
            .input(Input::Object(|| object(&[("token", string())], &[])))
            .answers(&[json(200, "The caller; the cookie is in the headers.", session_schema)])
            .fails_with(&[ErrorCode::NotAuthenticated]),
        open(Method::DELETE, "session", "logOut", "Ends the session of the cookie.", handler!(log_out))
            .answers(&[Output { status: 204, about: "It has ended.", media: "", schema: None }]),
        open(Method::GET, "openapi.json", "getDocument", "This document.", handler!(document))
            .answers(&[json(200, "An OpenAPI 3.1 document.", || serde_json::json!({"type": "object"}))]),
        open(Method::GET, "version", "getVersion", "Versions of the server and the API.", handler!(version))
            .answers(&[json(200, "The versions.", || {
                object(&[("server", string()), ("api", string())], &[])
            })]),
    ]
}

fn session_schema() -> Schema {
    let role = nullable(named(&["reader", "operator"]));
    object(
        &[
            ("role", role),
            ("name", string()),
            ("can_log_in", boolean()),
            ("payloads_hidden", boolean()),
            ("links", map(string())),
        ],
        &[("store", string()), ("store_url", string())],
    )
}

#[derive(Serialize)]
struct Session {
    role: Option<Role>,
    name: String,
    /// Whether a token can be exchanged for a session here.
    can_log_in: bool,
    payloads_hidden: bool,
    /// Templates of links, by name; none for nobody.
    links: BTreeMap<String, String>,
    /// A short name of the store, for those who may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_url: Option<String>,
}

/// The store's name: that of its file, or of its server and database.
fn store_name(url: &str) -> String {
    let (scheme, place) = url.split_once(':').unwrap_or(("", url));
    match scheme {
        "sqlite" => place.rsplit('/').next().unwrap_or(place).to_owned(),
        "memory" => "memory".to_owned(),
        _ => {
            let place = place.trim_start_matches('/');
            place.rsplit('@').next().unwrap_or(place).replace("?schema=", "/")
        }
    }
}

fn session(ask: &Ask, caller: Option<Caller>) -> Session {
    let url = ask.server.options.store_url.clone().or_else(|| ask.server.client.store_url());
    let store_url = url.filter(|_| caller.is_some());
    Session {
        store: store_url.as_deref().map(store_name),
        store_url,
        role: caller.as_ref().map(|caller| caller.role),
        can_log_in: matches!(ask.server.options.access.0, AccessKind::Tokens(_)),
        payloads_hidden: caller.as_ref().is_some_and(|caller| ask.server.hides_payloads_from(caller)),
        links: caller.as_ref().map(|_| ask.server.options.links.clone()).unwrap_or_default(),
        name: caller.map(|caller| caller.name).unwrap_or_default(),
    }
}

async fn who(ask: Ask) -> Answered {
    let caller = ask.identified.clone();
    ask.ok(&session(&ask, caller))
}

async fn log_in(ask: Ask) -> Answered {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct LogIn {
        token: String,
    }
    let body: LogIn = ask.object()?;
    let AccessKind::Tokens(tokens) = &ask.server.options.access.0 else {
        return Err(Problem::bad_request("this server has no tokens to log in with"));
    };
    let Some(caller) = tokens.caller(&body.token) else {
        ask.server.failures.note(ask.address);
        return Err(Problem::new(ErrorCode::NotAuthenticated, "the token is not known"));
    };
    let caller = gate::limited(&ask.server, caller);
    // Whoever has the cookie from before must not share what follows.
    if let Some(before) = gate::cookie(&ask.headers) {
        ask.server.sessions.end(before);
    }
    let secret = ask.server.sessions.begin(&body.token);
    let mut response = ask.ok(&session(&ask, Some(caller)))?;
    set_cookie(&mut response, Some(&secret), ask.server.options.secure);
    Ok(response)
}

async fn log_out(ask: Ask) -> Answered {
    if let Some(secret) = gate::cookie(&ask.headers) {
        ask.server.sessions.end(secret);
    }
    let mut response = answer::no_content();
    set_cookie(&mut response, None, ask.server.options.secure);
    Ok(response)
}

fn set_cookie(response: &mut axum::response::Response, secret: Option<&str>, secure: bool) {
    if let Ok(cookie) = HeaderValue::from_str(&Sessions::cookie(secret, secure)) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

async fn document(ask: Ask) -> Answered {
    ask.tagged_bytes(openapi::document().into_bytes(), false)
}

async fn version(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Versions {
        server: &'static str,
        api: &'static str,
    }
    ask.ok(&Versions { server: env!("CARGO_PKG_VERSION"), api: openapi::API_VERSION })
}
