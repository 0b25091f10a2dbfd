//! Ids and names in paths: one segment each, percent-encoded, or `~` and the bytes in base64url.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::problem::Problem;

/// Decodes a segment of a path.
pub(crate) fn decode(segment: &str) -> Result<String, Problem> {
    let bytes = percent_decode(segment.as_bytes(), false).ok_or_else(|| {
        Problem::bad_request(format!("the path segment {segment:?} is not percent-encoded"))
    })?;
    let bytes = match bytes.strip_prefix(b"~") {
        Some(encoded) => URL_SAFE_NO_PAD.decode(encoded).map_err(|_| {
            Problem::bad_request(format!(
                "the path segment {segment:?} begins with `~`, but no base64url follows"
            ))
        })?,
        None => bytes,
    };
    String::from_utf8(bytes)
        .map_err(|_| Problem::bad_request(format!("the path segment {segment:?} is not UTF-8")))
}

/// Encodes an id or a name as a segment of a path that [`decode`] reads back. Names that URLs would swallow are written
/// in base64url.
pub(crate) fn encode(name: &str) -> String {
    if matches!(name, "" | "." | "..") || name.starts_with('~') {
        return format!("~{}", URL_SAFE_NO_PAD.encode(name));
    }
    percent_encode(name)
}

/// Encodes a text so that it stands for itself in a path or a query.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Decodes `%41`, and in forms `+` as a blank. `None` if a percent sign is not followed by two digits.
pub(crate) fn percent_decode(text: &[u8], is_form: bool) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let digits = rest.get(..2)?;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(digits[0])? * 16 + digit(digits[1])?;
                decoded.push(u8::try_from(value).ok()?);
                rest = &rest[2..];
            }
            b'+' if is_form => decoded.push(b' '),
            byte => decoded.push(byte),
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h17_every_id_round_trips_as_one_segment() {
        let long = "x".repeat(1_000);
        for id in ["a", ".", "..", "~", "~x", "a/b", "a%b", "a?b#c d", "p::3", "🦀", "", &long, "%2F", "+"]
        {
            let segment = encode(id);
            assert!(!segment.is_empty() && !segment.contains('/'), "{segment}");
            assert!(segment != "." && segment != "..", "{segment}");
            assert_eq!(decode(&segment).unwrap(), id);
            let any = format!("~{}", URL_SAFE_NO_PAD.encode(id));
            assert_eq!(decode(&any).unwrap(), id, "any id can be written in base64url");
        }
        for wrong in ["%", "%4", "%zz", "~*", "%FF", "%+1", "~~"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }
}
