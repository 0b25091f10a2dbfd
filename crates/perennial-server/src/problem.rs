//! Errors as `application/problem+json`, the only form in which errors leave the server.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use perennial::{ClientError, Error, ErrorCode, InstanceKey, Payload};
use serde::Serialize;

/// How long a caller should wait before it repeats a request that was refused because of load.
const RETRY_AFTER_SECONDS: &str = "1";

/// An error and everything that a caller is told about it.
#[derive(Debug)]
pub(crate) struct Problem(Box<Told>);

#[derive(Debug)]
struct Told {
    code: ErrorCode,
    detail: String,
    /// The instance that the request was for.
    id: Option<String>,
    /// The status of the instance that has the id.
    existing: Option<&'static str>,
    /// The limit that was exceeded.
    limit: Option<u64>,
    /// The error that the code of the instance returned.
    error: Option<Payload>,
    retryable: bool,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The members of the body.
#[derive(Serialize)]
struct Members<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: ErrorCode,
    remedy: &'a str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    existing: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Payload>,
}

impl Problem {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Problem {
        let mut headers = Vec::new();
        if matches!(status(code), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.push((header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS)));
        }
        let (detail, retryable) = (detail.into(), code.is_retryable());
        let (id, existing, limit, error) = (None, None, None, None);
        Problem(Box::new(Told { code, detail, id, existing, limit, error, retryable, headers }))
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// A parameter, header or body is wrong.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(ErrorCode::BadRequest, detail)
    }

    /// The path names something that does not exist.
    pub(crate) fn nothing(detail: impl Into<String>) -> Problem {
        Problem::new(ErrorCode::NoSuchThing, detail)
    }

    /// Something is larger than the server takes.
    pub(crate) fn too_large(what: &str, limit: usize) -> Problem {
        let mut problem = Problem::new(ErrorCode::TooLarge, format!("{what} has more than {limit} bytes"));
        problem.0.limit = Some(limit as u64);
        problem
    }

    /// The code and what happened, in one line.
    pub(crate) fn text(&self) -> String {
        self.code().message(&self.0.detail)
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.0.headers.push((name, value));
        self
    }

    /// Marks an unknown outcome as safe to repeat, for requests that have the same effect however often they arrive.
    pub(crate) fn repeatable(mut self, is_repeatable: bool) -> Problem {
        if is_outcome_unknown(self.code()) {
            self.0.retryable = is_repeatable;
        }
        self
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let (status, code) = (status(self.code()), self.code());
        let Told { detail, id, existing, limit, error, retryable, headers: more, .. } = *self.0;
        let members = Members {
            r#type: format!("urn:perennial:{code}"),
            title: code.title(),
            status: status.as_u16(),
            detail: &detail,
            code,
            remedy: code.remedy(),
            retryable,
            id: id.as_deref(),
            existing,
            limit,
            error: error.as_ref(),
        };
        let body = serde_json::to_vec(&members).unwrap_or_else(|_| b"{}".to_vec());
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in more {
            headers.insert(name, value);
        }
        response
    }
}

/// Whether a request with this code may have been carried out.
pub(crate) fn is_outcome_unknown(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::OutcomeUnknown | ErrorCode::StoreOutcomeUnknown)
}

/// The HTTP status of a code.
pub(crate) fn status(code: ErrorCode) -> StatusCode {
    use ErrorCode as C;
    match code {
        C::InvalidName
        | C::NotHere
        | C::BadVersion
        | C::BadRequest
        | C::BadCursor
        | C::BadToken
        | C::BadFilter
        | C::BadTime
        | C::Unwritable => StatusCode::BAD_REQUEST,
        C::NotAuthenticated => StatusCode::UNAUTHORIZED,
        C::ForOperators | C::OriginNotAllowed => StatusCode::FORBIDDEN,
        C::NotFound | C::NoRoute | C::NoSuchThing | C::NoExecution => StatusCode::NOT_FOUND,
        C::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        C::AlreadyExists
        | C::Ended
        | C::NotBlocked
        | C::NotBlockedBy
        | C::NotWaiting
        | C::NotEnded
        | C::Blocked
        | C::OrchestrationPaused
        | C::NotReset
        | C::Unanswered
        | C::OutcomeDeleted
        | C::AttemptOver
        | C::ActivityOver
        | C::ActivityAbandoned => StatusCode::CONFLICT,
        C::AnotherInstance => StatusCode::PRECONDITION_FAILED,
        C::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        C::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        C::HostNotAllowed => StatusCode::MISDIRECTED_REQUEST,
        C::NotRegistered
        | C::Refused
        | C::UpdateFailed
        | C::BadInput
        | C::BadEvent
        | C::PayloadUndecodable
        | C::PayloadMismatch
        | C::Unreadable => StatusCode::UNPROCESSABLE_ENTITY,
        C::Full => StatusCode::TOO_MANY_REQUESTS,
        C::StoreUnavailable | C::StoreFailed | C::StoreClosed | C::Stopped | C::Busy | C::Stopping => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        C::NotAnswered | C::TooSlow | C::Elapsed => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        let code = error.code();
        let text = match &error {
            // A call about no instance has no id to name.
            ClientError::Store { id, source } if id.is_empty() => source.to_string(),
            error => error.to_string(),
        };
        let words = text.strip_prefix(code.prefix()).map(|rest| rest.trim_start_matches(": ").to_owned());
        let mut problem = Problem::new(code, words.unwrap_or(text));
        let id = error_id(&error);
        let (existing, limit, returned) = match error {
            ClientError::AlreadyExists { status, .. } | ClientError::NotEnded { status, .. } => {
                (Some(status.name()), None, None)
            }
            ClientError::TooLarge { limit, .. } => (None, Some(limit as u64), None),
            ClientError::Refused { error, .. } => (None, None, error),
            ClientError::UpdateFailed { error, .. } => (None, None, Some(error)),
            _ => (None, None, None),
        };
        let told = &mut *problem.0;
        (told.id, told.existing, told.limit, told.error) = (id, existing, limit, returned);
        problem
    }
}

/// The instance that an error is about.
fn error_id(error: &ClientError) -> Option<String> {
    use ClientError as E;
    match error {
        E::NotFound { id }
        | E::AnotherInstance { id, .. }
        | E::AlreadyExists { id, .. }
        | E::Ended { id }
        | E::Unanswered { id }
        | E::BadInput { id, .. }
        | E::BadVersion { id, .. }
        | E::Encoded { id, .. }
        | E::TooLarge { id, .. }
        | E::Full { id, .. }
        | E::NotBlocked { id }
        | E::NotBlockedBy { id, .. }
        | E::NotWaiting { id, .. }
        | E::NotReset { id, .. }
        | E::OrchestrationPaused { id, .. }
        | E::BadEvent { id, .. }
        | E::NoExecution { id, .. }
        | E::Store { id, .. }
        | E::Unknown { id, .. }
        | E::NotEnded { id, .. }
        | E::OutcomeDeleted { id }
        | E::Refused { id, .. }
        | E::UpdateFailed { id, .. }
        | E::Blocked { id, .. }
        | E::NotAnswered { id, .. }
        | E::AttemptOver { id, .. }
        | E::ActivityOver { id, .. }
        | E::ActivityCancelled { id, .. } => Some(id.clone()).filter(|id| !id.is_empty()),
        _ => None,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        match error {
            Error::Client(error) => error.into(),
            error => Problem::new(error.code(), error.to_string()),
        }
    }
}

/// Reads the key of an instance, as answers show it.
pub(crate) fn key(text: &str) -> Result<InstanceKey, Problem> {
    text.parse().map_err(|_| Problem::bad_request(format!("{text:?} is not the key of an instance")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h19_every_code_of_the_server_has_its_status() {
        let statuses = [
            (400, &["0601", "0614", "0619", "0805", "0809"][..]),
            (401, &["0801"]),
            (403, &["0802", "0804"]),
            (404, &["0605", "0807", "0814"]),
            (405, &["0808"]),
            (409, &["0606", "0607", "0611", "0620", "0623"]),
            (412, &["0812"]),
            (413, &["0609"]),
            (415, &["0806"]),
            (421, &["0803"]),
            (422, &["0608", "0621", "0622"]),
            (429, &["0610"]),
            (500, &["0502", "0508", "0612"]),
            (503, &["0501", "0503", "0505", "0613", "0810", "0811"]),
            (504, &["0624", "0813"]),
        ];
        for (expected, numbers) in statuses {
            for number in numbers {
                let code: ErrorCode = format!("PER-{number}").parse().unwrap();
                assert_eq!(status(code).as_u16(), expected, "{code}");
                let response = Problem::new(code, "x").into_response();
                let has_pause = response.headers().contains_key(header::RETRY_AFTER);
                assert_eq!(has_pause, [429, 503].contains(&expected), "{code}");
            }
        }
    }

    #[test]
    fn h20_an_unknown_outcome_may_be_repeated_only_if_that_is_safe() {
        for code in [ErrorCode::OutcomeUnknown, ErrorCode::StoreOutcomeUnknown] {
            assert!(!Problem::new(code, "x").repeatable(false).0.retryable);
            assert!(Problem::new(code, "x").repeatable(true).0.retryable);
        }
        assert!(!Problem::new(ErrorCode::NotFound, "x").repeatable(true).0.retryable);
        assert!(Problem::new(ErrorCode::Busy, "x").repeatable(false).0.retryable);
    }
}
