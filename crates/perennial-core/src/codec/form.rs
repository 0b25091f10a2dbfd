//! The stored form of an encoded payload: `{"@codec":[["zstd"],["aes-256-gcm","key-7"]],"size":1234,"data":"…"}`.
//!
//! The steps are the codecs that were applied, in order, each with the key that it named; `size` is the length of the
//! payload's JSON text; `data` is the output of the last codec, in base64. It is an ordinary JSON value, so everything
//! around it can be read without codecs. A payload whose own text begins like this is stored in this form with no
//! steps, even without codecs, so that the form is never ambiguous.

use std::io;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;

use super::{CodecError, Codecs, PayloadContext};
use crate::history::Payload;

/// The beginning of every encoded payload.
const MARK: &str = r#"{"@codec":"#;

/// Whether a JSON text is an encoded payload.
pub(crate) fn is_marked(json: &str) -> bool {
    json.starts_with(MARK)
}

/// Whether a marked text has the form of an encoded payload, with or without its data.
pub(super) fn is_form(json: &str) -> bool {
    serde_json::from_str::<Wire>(json).is_ok()
}

/// Whether some of these bytes may be an encoded payload.
pub(super) fn may_be_encoded(bytes: &[u8]) -> bool {
    // Most bodies do not contain this byte, and searching for it is fast.
    let mut rest = bytes;
    while let Some(place) = rest.iter().position(|byte| *byte == b'@') {
        if rest[..place].ends_with(br#"{""#) && rest[place..].starts_with(br#"@codec":"#) {
            return true;
        }
        rest = &rest[place + 1..];
    }
    false
}

/// A payload in the form in which codecs have encoded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedPayload {
    pub(super) steps: Vec<(String, Option<String>)>,
    pub(super) size: u64,
    pub(super) data: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(rename = "@codec")]
    steps: Vec<Vec<String>>,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
}

impl EncodedPayload {
    /// The encoded form of a payload, if it is encoded.
    pub fn of(payload: &Payload) -> Option<EncodedPayload> {
        is_marked(payload.as_json()).then(|| EncodedPayload::parse(payload.as_json()))?
    }

    /// The applied codecs, in order, each with the key that it named.
    pub fn steps(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.steps.iter().map(|(codec, key)| (codec.as_str(), key.as_deref()))
    }

    /// The length of the decoded payload's JSON text in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What people see instead of the payload: the codecs and the size, without the data.
    pub fn marker(&self) -> Payload {
        self.payload(None)
    }

    /// Unencoded text in the form of an encoded payload.
    pub(super) fn plain(json: &str) -> EncodedPayload {
        EncodedPayload { steps: Vec::new(), size: json.len() as u64, data: json.as_bytes().to_vec() }
    }

    pub(super) fn to_payload(&self) -> Payload {
        self.payload(Some(BASE64_STANDARD.encode(&self.data)))
    }

    fn payload(&self, data: Option<String>) -> Payload {
        let step = |(codec, key): &(String, Option<String>)| {
            [codec].into_iter().chain(key).cloned().collect::<Vec<String>>()
        };
        let wire = Wire { steps: self.steps.iter().map(step).collect(), size: self.size, data };
        Payload::encode(&wire).expect("strings and a number encode")
    }

    /// `None` for a text that begins alike but was not written by the engine, and for a marker.
    pub(super) fn parse(json: &str) -> Option<EncodedPayload> {
        let Wire { steps, size, data } = serde_json::from_str(json).ok()?;
        let steps = steps.into_iter().map(|step| {
            let mut parts = step.into_iter();
            match (parts.next(), parts.next(), parts.next()) {
                (Some(codec), key, None) => Some((codec, key)),
                _ => None,
            }
        });
        Some(EncodedPayload {
            steps: steps.collect::<Option<_>>()?,
            size,
            data: BASE64_STANDARD.decode(data?).ok()?,
        })
    }
}

/// Parses decoded bytes as a payload.
pub(super) fn payload_of(bytes: Vec<u8>) -> Result<Payload, CodecError> {
    let text = String::from_utf8(bytes).ok().and_then(|text| Payload::from_json(text).ok());
    text.ok_or_else(|| CodecError::Failed("its output is not the payload that was encoded".to_owned()))
}

/// Writes JSON in which every embedded payload is encoded.
///
/// Payloads are the only raw fragments that are ever written, so none can be missed.
pub(crate) struct PayloadFormatter<'a> {
    pub(crate) codecs: &'a Codecs,
    pub(crate) context: PayloadContext,
}

/// Carries a codec error through the serializer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Failed(pub(crate) CodecError);

impl Formatter for PayloadFormatter<'_> {
    fn write_raw_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, json: &str) -> io::Result<()> {
        if self.codecs.is_empty() && !is_marked(json) {
            return writer.write_all(json.as_bytes());
        }
        match self.codecs.encode_json(json, &self.context).map_err(|error| io::Error::other(Failed(error)))? {
            Some(encoded) => writer.write_all(encoded.to_payload().as_json().as_bytes()),
            None => writer.write_all(json.as_bytes()),
        }
    }
}

impl PayloadFormatter<'_> {
    /// Writes a value into a buffer.
    pub(crate) fn write<T: Serialize>(self, buffer: &mut Vec<u8>, value: &T) -> Result<(), CodecError> {
        let written = value.serialize(&mut serde_json::Serializer::with_formatter(buffer, self));
        written.map_err(|error| {
            assert!(error.is_io(), "what is stored holds nothing that JSON cannot: {error}");
            match io::Error::from(error).downcast::<Failed>() {
                Ok(Failed(error)) => error,
                Err(error) => CodecError::Failed(error.to_string()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_a_payload_that_looks_encoded_is_read_back_as_itself() {
        let tricky = Payload::from_json(r#"{"@codec":[["none"]],"size":1,"data":"QQ=="}"#).unwrap();
        let codecs = Codecs::default();
        let mut bytes = Vec::new();
        PayloadFormatter { codecs: &codecs, context: PayloadContext::default() }
            .write(&mut bytes, &tricky)
            .unwrap();
        let stored = Payload::from_json(String::from_utf8(bytes).unwrap()).unwrap();
        assert_ne!(stored, tricky);
        assert_eq!(codecs.decode(&stored, &PayloadContext::default()).unwrap(), tricky);
    }

    #[test]
    fn s10_encoded_payloads_are_found_in_bodies() {
        assert!(may_be_encoded(br#"{"a":"@","b":{"@codec":[],"size":0}}"#));
        assert!(!may_be_encoded(br#"{"a":"@codec","b":"a@b"}"#));
    }
}
