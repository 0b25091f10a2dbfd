//! Answers as JSON. One formatter writes all of them, so that what must hold in every answer has one place: hidden
//! payloads, omitted large payloads, and numbers that every reader of JSON can represent.

use std::io::{self, Write};

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use perennial::ErrorCode;
use serde::Serialize;
use serde_json::ser::Formatter;

use crate::problem::Problem;

/// The largest number that every reader of JSON represents exactly.
const SAFE_INTEGER: u64 = (1 << 53) - 1;
/// The end of the year 9999, in milliseconds since 1970.
const LAST_TIME_MS: u64 = 253_402_300_799_999;

/// How payloads are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payloads<'a> {
    /// As they are recorded.
    Whole,
    /// By their size alone.
    Hidden,
    /// As they are recorded up to a size; larger ones by their size and the path at which they are found.
    UpTo(usize, &'a str),
}

/// Writes a value as JSON. Payloads, and nothing else, are raw values.
pub(crate) fn json(value: &impl Serialize, payloads: Payloads<'_>) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(256);
    let formatter = AnswerFormatter { payloads, in_key: false, key: String::new() };
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => Ok(bytes),
        Err(error) => {
            Err(Problem::new(ErrorCode::OutcomeUnknown, format!("the answer cannot be written: {error}")))
        }
    }
}

/// An answer with a JSON body.
pub(crate) fn respond(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// An answer without a body.
pub(crate) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

struct AnswerFormatter<'a> {
    payloads: Payloads<'a>,
    in_key: bool,
    /// The name of the member that is written.
    key: String,
}

impl Formatter for AnswerFormatter<'_> {
    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.in_key = true;
        self.key.clear();
        if first { Ok(()) } else { writer.write_all(b",") }
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.in_key = false;
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if self.in_key {
            self.key.push_str(fragment);
        }
        writer.write_all(fragment.as_bytes())
    }

    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        if self.key.ends_with("_ms") {
            return write!(writer, "{}", value.min(LAST_TIME_MS));
        }
        // A seed is always text, so that its type does not depend on its value.
        if value > SAFE_INTEGER || self.key == "seed" {
            return write!(writer, "\"{value}\"");
        }
        write!(writer, "{value}")
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let bytes = fragment.len();
        match self.payloads {
            Payloads::Hidden => write!(writer, r#"{{"hidden":true,"bytes":{bytes}}}"#),
            Payloads::UpTo(limit, place) if bytes > limit => {
                write!(writer, r#"{{"omitted":true,"bytes":{bytes},"at":"{place}"}}"#)
            }
            Payloads::Whole | Payloads::UpTo(..) => writer.write_all(fragment.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perennial::Payload;

    #[derive(Serialize)]
    struct Shown {
        payload: Payload,
        seed: u64,
        large: u64,
        due_ms: u64,
        count: u64,
    }

    fn shown(payloads: Payloads<'_>) -> String {
        let payload = Payload::from_json(r#"{"n": 9007199254740993, "seed": 12345678901234567890}"#).unwrap();
        let shown = Shown { payload, seed: 7, large: u64::MAX, due_ms: u64::MAX, count: 3 };
        String::from_utf8(json(&shown, payloads).ok().unwrap()).unwrap()
    }

    #[test]
    fn h16_payloads_are_shown_byte_for_byte_and_numbers_are_safe() {
        let rest = r#","seed":"7","large":"18446744073709551615","due_ms":253402300799999,"count":3}"#;
        let payload = r#"{"n": 9007199254740993, "seed": 12345678901234567890}"#;
        assert_eq!(shown(Payloads::Whole), format!(r#"{{"payload":{payload}{rest}"#));
        assert_eq!(shown(Payloads::UpTo(1_000, "x")), format!(r#"{{"payload":{payload}{rest}"#));
    }

    #[test]
    fn h13_hidden_payloads_show_their_size_alone() {
        assert!(shown(Payloads::Hidden).starts_with(r#"{"payload":{"hidden":true,"bytes":53},"seed""#));
    }

    #[test]
    fn large_payloads_are_replaced_by_their_size_and_place() {
        let text = shown(Payloads::UpTo(10, "executions/1/events/2"));
        assert!(
            text.starts_with(r#"{"payload":{"omitted":true,"bytes":53,"at":"executions/1/events/2"}"#),
            "{text}"
        );
    }
}
