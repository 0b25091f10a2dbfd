//! A request that was let in, with everything that its handler needs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use perennial::{Client, Payload, Why};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use crate::access::hex;
use crate::answer::{self, Payloads};
use crate::options::Caller;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::{Answered, Route};
use crate::server::Server;

/// Objects and lists within each other, at most.
const JSON_DEPTH: usize = 128;
const MAX_IDEMPOTENCY_KEY: usize = 200;

pub(crate) struct Ask {
    pub(crate) server: Arc<Server>,
    /// Who sends the request; a reader without a name if nobody needs to be known.
    pub(crate) caller: Caller,
    /// Who sends the request, if that is known.
    pub(crate) identified: Option<Caller>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) route: &'static Route,
    /// The decoded variables of the path.
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Held by an expensive request until its work is done.
    pub(crate) turn: Option<OwnedSemaphorePermit>,
}

impl Ask {
    /// The client for this request: bound to the instance that the caller saw, with the caller's trace.
    pub(crate) fn client(&self) -> Result<Client, Problem> {
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let client = self.server.client.clone();
        // A malformed trace is ignored, as the standard asks.
        let client = match header("traceparent") {
            Some(parent) => client.with_trace_context(parent, header("tracestate")).unwrap_or(client),
            None => client,
        };
        Ok(match self.query.key("key")? {
            Some(key) => client.bound_to(key),
            None => client,
        })
    }

    /// A variable of the path.
    pub(crate) fn variable(&self, name: &str) -> &str {
        self.variables.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// A variable of the path that is a number.
    pub(crate) fn number(&self, name: &str) -> Result<u64, Problem> {
        let value = self.variable(name);
        value.parse().map_err(|_| Problem::nothing(format!("{value:?} in the path is not a number")))
    }

    pub(crate) fn id(&self) -> &str {
        self.variable("id")
    }

    /// The body as a payload; `null` if there is none.
    pub(crate) fn payload(&self) -> Result<Payload, Problem> {
        if self.body.is_empty() {
            return Ok(Payload::null());
        }
        let text = self.body_text()?;
        Payload::from_json(text)
            .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))
    }

    /// The body as an object with known members; an empty body is an empty object.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let text = if self.body.is_empty() { "{}" } else { self.body_text()? };
        serde_json::from_str(text).map_err(|error| Problem::bad_request(format!("the body: {error}")))
    }

    fn body_text(&self) -> Result<&str, Problem> {
        let text = std::str::from_utf8(&self.body)
            .map_err(|_| Problem::bad_request("the body is not UTF-8".to_owned()))?;
        match is_too_deep(text) {
            true => {
                Err(Problem::bad_request(format!("the body is nested more than {JSON_DEPTH} levels deep")))
            }
            false => Ok(text),
        }
    }

    /// How payloads are shown to this caller.
    pub(crate) fn payloads(&self) -> Payloads<'static> {
        if self.hides_payloads() { Payloads::Hidden } else { Payloads::Whole }
    }

    pub(crate) fn hides_payloads(&self) -> bool {
        self.server.hides_payloads_from(&self.caller)
    }

    /// An answer with a JSON body.
    pub(crate) fn answer(&self, status: StatusCode, value: &impl Serialize) -> Answered {
        Ok(answer::respond(status, answer::json(value, self.payloads())?))
    }

    pub(crate) fn ok(&self, value: &impl Serialize) -> Answered {
        self.answer(StatusCode::OK, value)
    }

    /// An answer with an ETag, or 304 if the caller has it. `is_final` says that it rarely changes: the caller keeps it, and
    /// asks whether it is still the same, since the id may be another instance's by then.
    pub(crate) fn tagged(&self, value: &impl Serialize, is_final: bool) -> Answered {
        let body = answer::json(value, self.payloads())?;
        self.tagged_bytes(body, is_final)
    }

    pub(crate) fn tagged_bytes(&self, body: Vec<u8>, is_final: bool) -> Answered {
        let tag = format!("\"{}\"", hex(&Sha256::digest(&body)[..16]));
        self.with_tag(&tag, body, is_final)
    }

    /// An answer with a tag that recognises something else than its bytes, without those that only the time changes.
    pub(crate) fn tagged_by(&self, recognised: &[u8], body: Vec<u8>) -> Answered {
        let tag = format!("W/\"{}\"", hex(&Sha256::digest(recognised)[..16]));
        self.with_tag(&tag, body, false)
    }

    fn with_tag(&self, tag: &str, body: Vec<u8>, is_final: bool) -> Answered {
        let known = self.headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
        let is_known = known.is_some_and(|known| {
            known
                .split(',')
                .map(|known| known.trim().trim_start_matches("W/"))
                .any(|known| known == tag.trim_start_matches("W/") || known == "*")
        });
        let mut response = match is_known {
            true => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            false => answer::respond(StatusCode::OK, body),
        };
        if let Ok(tag) = HeaderValue::from_str(tag) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        if is_final {
            let cached = HeaderValue::from_static("private, no-cache");
            response.headers_mut().insert(header::CACHE_CONTROL, cached);
        }
        Ok(response)
    }

    /// How long the caller is willing to wait.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.query.number("wait_ms").filter(|wait_ms| *wait_ms > 0).map(Duration::from_millis)
    }

    /// Waits for something, for as long as the caller wants and the server runs. `None` if it did not come.
    pub(crate) async fn wait_for<T>(&self, limit: Duration, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            awaited = awaited => Some(awaited),
            () = tokio::time::sleep(limit) => None,
            () = self.server.stop().stopped() => None,
        }
    }

    /// The key under which a repeated request is recognised.
    pub(crate) fn idempotency_key(&self) -> Result<Option<&str>, Problem> {
        let Some(key) = self.headers.get("idempotency-key") else { return Ok(None) };
        match key.to_str() {
            Ok(key) if !key.is_empty() && key.len() <= MAX_IDEMPOTENCY_KEY => Ok(Some(key)),
            _ => Err(Problem::bad_request(format!(
                "the header Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters"
            ))),
        }
    }

    /// A reason as it is recorded, with the name of who gave it.
    pub(crate) fn reason(&self, given: Option<&str>) -> String {
        let reason = given.unwrap_or_default();
        match self.caller.name.as_str() {
            "" => reason.to_owned(),
            name => Why::new(reason).by(name).to_string(),
        }
    }
}

/// Whether a JSON text is nested too deep. Its brackets are counted before it is parsed.
fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > JSON_DEPTH {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h33_deep_json_is_seen_before_it_is_parsed() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!is_too_deep(&nested(JSON_DEPTH)));
        assert!(is_too_deep(&nested(JSON_DEPTH + 1)));
        assert!(!is_too_deep(&format!("\"{}\"", "[".repeat(1_000))), "brackets in a string");
        assert!(!is_too_deep(&format!(r#""\"{}""#, "[".repeat(1_000))));
    }
}
