//! Every route × who asks × which host × which origin.

use perennial_server::{Access, Options, Role, TokenFile};
use serde_json::Value;

use crate::access::add_token;
use crate::contract::DOCUMENT;
use crate::world::{Setup, World};

/// A path for a template of the document.
fn path(template: &str) -> String {
    template
        .replace("{id}", "a")
        .replace("{name}", "x")
        .replace("{n}", "1")
        .replace("{e}", "1")
        .replace("{o}", "o")
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_every_route_is_guarded_for_every_caller_host_and_origin() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let reader = add_token(&tokens, "bob", Role::Reader);
    let operator = add_token(&tokens, "ada", Role::Operator);
    for setup in Setup::ALL {
        let options =
            Options::default().access(Access::tokens(TokenFile::open(&tokens).unwrap())).check_host(true);
        let world = World::with(setup, options).await;
        let own = format!("http://{}", world.place.address);
        let mut tried = 0;
        for (template, methods) in DOCUMENT["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                for caller in [None, Some(&reader), Some(&operator)] {
                    for host in [None, Some("evil.example")] {
                        for origin in [None, Some(own.as_str()), Some("https://evil.example")] {
                            let mut asked = world.place.ask(&method.to_ascii_uppercase(), &path(template));
                            if template == "/api/v1/stream" {
                                asked = world.place.get("stream?from=now");
                            }
                            if let Some(token) = caller {
                                asked = asked.token(token);
                            }
                            if let Some(host) = host {
                                asked = asked.header("host", host);
                            }
                            if let Some(origin) = origin {
                                asked = asked.header("origin", origin);
                            }
                            let answer = asked.send().await;
                            let code = match answer.status {
                                400.. => answer.json()["code"].as_str().unwrap().to_owned(),
                                _ => String::new(),
                            };
                            let expected = expected(
                                operation,
                                method,
                                caller.map(|token| *token == operator),
                                host,
                                origin,
                                &own,
                            );
                            let shown = format!(
                                "{method} {template} {caller:?} {host:?} {origin:?}: {}",
                                answer.text()
                            );
                            match expected {
                                Some(expected) => assert_eq!(code, expected, "{shown}"),
                                None => {
                                    let guards = ["PER-0801", "PER-0802", "PER-0803", "PER-0804"];
                                    assert!(
                                        !guards.contains(&code.as_str())
                                            || method == "post" && template.ends_with("session"),
                                        "{shown}"
                                    );
                                }
                            }
                            tried += 1;
                        }
                    }
                }
            }
        }
        assert!(tried > 900, "only {tried} were tried");
        world.end().await;
    }
}

/// The code that refuses a request at the gate; `None` if it is let in.
fn expected(
    operation: &Value,
    method: &str,
    caller: Option<bool>,
    host: Option<&str>,
    origin: Option<&str>,
    own: &str,
) -> Option<&'static str> {
    let needs = operation["description"].as_str().unwrap();
    let is_open = needs.starts_with("Everybody");
    match () {
        () if host.is_some() => Some("PER-0803"),
        () if caller.is_none() && !is_open => Some("PER-0801"),
        () if needs.starts_with("Operators") && caller == Some(false) => Some("PER-0802"),
        // A token proves who asks, so that the origin need not.
        () if method != "get" && caller.is_none() && origin.is_some_and(|origin| origin != own) => {
            Some("PER-0804")
        }
        () => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h38_router_and_document_have_the_same_routes() {
    let world = World::new(Setup::MemoryMounted).await;
    for (template, methods) in DOCUMENT["paths"].as_object().unwrap() {
        let documented = methods.as_object().unwrap();
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let is_documented = documented.contains_key(&method.to_ascii_lowercase());
            let mut asked = world.place.ask(method, &path(template));
            if template == "/api/v1/stream" && method == "GET" {
                asked = world.place.get("stream?from=now");
            }
            let answer = asked.send().await;
            let code = if answer.status >= 400 { answer.json()["code"].clone() } else { Value::Null };
            let is_missing = code == "PER-0808" || code == "PER-0807" && template != "/metrics";
            assert_eq!(is_documented, !is_missing, "{method} {template}: {}", answer.text());
        }
    }
    world.end().await;
}
