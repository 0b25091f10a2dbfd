//! The stored form of bodies: messages, task work, requests and replies.
//!
//! A body is one line of JSON, `{"v":1,"crc":"0a1b2c3d","message":{…}}`: a format number, a checksum, and the body
//! under the name of its kind. The checksum covers the format, the kind and the text of the body, so that a changed
//! byte and a body of another kind are both detected before the body is parsed. Only this module writes and reads the
//! form; nothing else may parse a stored body.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::code::ErrorCode;
use crate::codec::{self, CodecError, Codecs, Mode, PayloadContext, PayloadFormatter, Undecodable};
use crate::history::shorten;

/// The current format of bodies. Stored in each of them; older formats remain readable.
pub const BODY_FORMAT: u32 = 1;

/// The kind of a stored body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Message,
    Task,
    Request,
    Reply,
    /// Any of them with payloads that cannot be decoded, see [`Undecoded`].
    Undecodable,
}

impl BodyKind {
    fn name(self) -> &'static str {
        match self {
            BodyKind::Message => "message",
            BodyKind::Task => "task",
            BodyKind::Request => "request",
            BodyKind::Reply => "reply",
            BodyKind::Undecodable => "undecodable",
        }
    }
}

/// Why a stored body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// A newer engine wrote it.
    #[error("a newer engine wrote it, in format {found}; this one knows formats up to {BODY_FORMAT}")]
    NewerEngine {
        /// Its format.
        found: u32,
    },
    /// A payload in it was encoded by a codec that cannot decode it now.
    #[error("{prefix}: {0}; configure the codec or key that it was written with", prefix = self.code().prefix())]
    Undecodable(Undecodable),
    /// It is not what the engine wrote.
    #[error("{0}")]
    Damaged(String),
}

/// Encodes a body.
pub(crate) fn seal<T: Serialize>(kind: BodyKind, body: &T) -> Arc<[u8]> {
    seal_with(&Codecs::default(), PayloadContext::default(), kind, body).expect("no codec can fail")
}

/// Encodes a body and its payloads.
pub(crate) fn seal_with<T: Serialize>(
    codecs: &Codecs,
    context: PayloadContext,
    kind: BodyKind,
    body: &T,
) -> Result<Arc<[u8]>, CodecError> {
    let mut json = Vec::with_capacity(128);
    PayloadFormatter { codecs, context }.write(&mut json, body)?;
    let mut sealed = head(BODY_FORMAT, checksum(BODY_FORMAT, kind, &json), kind).into_bytes();
    sealed.extend_from_slice(&json);
    sealed.push(b'}');
    Ok(sealed.into())
}

/// Decodes a body and its payloads.
pub(crate) fn open_with<T: DeserializeOwned>(
    codecs: &Codecs,
    context: PayloadContext,
    kind: BodyKind,
    sealed: &[u8],
) -> Result<T, BodyError> {
    let (opened, undecodable) = codec::reading(Mode::Decode(codecs.clone(), context), || open(kind, sealed));
    match (opened, undecodable) {
        (Err(BodyError::Damaged(_)), Some(cause)) => {
            let known = open_as::<Undecoded>(BodyKind::Undecodable, sealed);
            Err(BodyError::Undecodable(known.map_or(cause, |undecoded| undecoded.cause)))
        }
        (opened, _) => opened,
    }
}

/// A body whose payloads cannot be decoded, with the reason. It is never stored; it carries the reason to the code that
/// acts on the body.
#[derive(Serialize, Deserialize)]
struct Undecoded {
    cause: Undecodable,
    body: Box<RawValue>,
}

/// Wraps a stored body together with the reason why its payloads cannot be decoded.
pub(crate) fn seal_undecoded(cause: Undecodable, sealed: &[u8]) -> Option<Arc<[u8]>> {
    let body = serde_json::from_slice(&as_stored(sealed)).ok()?;
    Some(seal(BodyKind::Undecodable, &Undecoded { cause, body }))
}

/// The stored body, without the reason why its payloads could not be decoded.
pub(crate) fn as_stored(sealed: &[u8]) -> Arc<[u8]> {
    match open_as::<Undecoded>(BodyKind::Undecodable, sealed) {
        Ok(undecoded) => undecoded.body.get().as_bytes().into(),
        Err(_) => sealed.into(),
    }
}

/// Decodes a body that the engine acts on. A payload that is still encoded must not be mistaken for the value itself.
pub(crate) fn open_decoded<T: DeserializeOwned>(kind: BodyKind, sealed: &[u8]) -> Result<T, BodyError> {
    open_with(&Codecs::default(), PayloadContext::default(), kind, sealed)
}

/// Decodes a body. Nothing is parsed unless the checksum is correct. Encoded payloads are left in their stored form.
pub(crate) fn open<T: DeserializeOwned>(kind: BodyKind, sealed: &[u8]) -> Result<T, BodyError> {
    match open_as(kind, sealed) {
        Err(error @ BodyError::Damaged(_)) => match open_as::<Undecoded>(BodyKind::Undecodable, sealed) {
            Ok(undecoded) => open_as(kind, undecoded.body.get().as_bytes()),
            Err(_) => Err(error),
        },
        opened => opened,
    }
}

fn open_as<T: DeserializeOwned>(kind: BodyKind, sealed: &[u8]) -> Result<T, BodyError> {
    let length = head(BODY_FORMAT, 0, kind).len();
    let Some(json) = sealed.get(length..).and_then(|rest| rest.strip_suffix(b"}")) else {
        return Err(explain(kind, sealed));
    };
    // Any defect in the head makes it different from the correct head of this body.
    if sealed[..length] != *head(BODY_FORMAT, checksum(BODY_FORMAT, kind, json), kind).as_bytes() {
        return Err(explain(kind, sealed));
    }
    serde_json::from_slice(json).map_err(|error| BodyError::Damaged(shorten(&error.to_string(), 200)))
}

fn head(format: u32, checksum: u32, kind: BodyKind) -> String {
    format!(r#"{{"v":{format},"crc":"{checksum:08x}","{}":"#, kind.name())
}

/// Finds out what is wrong with a body.
fn explain(kind: BodyKind, sealed: &[u8]) -> BodyError {
    #[derive(Deserialize)]
    struct Stamp {
        v: u32,
    }

    match serde_json::from_slice(sealed) {
        Ok(Stamp { v }) if v > BODY_FORMAT => BodyError::NewerEngine { found: v },
        Ok(Stamp { .. }) => {
            BodyError::Damaged(format!("its checksum does not match, or it is not a {}", kind.name()))
        }
        Err(error) => BodyError::Damaged(shorten(&error.to_string(), 200)),
    }
}

fn checksum(format: u32, kind: BodyKind, json: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&format.to_le_bytes());
    hasher.update(kind.name().as_bytes());
    hasher.update(&[0]);
    hasher.update(json);
    hasher.finalize()
}

impl BodyError {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            BodyError::Undecodable(_) => ErrorCode::PayloadUndecodable,
            BodyError::NewerEngine { .. } | BodyError::Damaged(_) => ErrorCode::UnreadableMessage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e3_a_body_is_read_back_as_it_was_sealed() {
        let sealed = seal(BodyKind::Reply, &vec!["a", "é"]);
        assert!(
            sealed.starts_with(br#"{"v":1,"crc":""#) && sealed.ends_with(r#""reply":["a","é"]}"#.as_bytes())
        );
        assert!(serde_json::from_slice::<serde_json::Value>(&sealed).is_ok(), "it stays readable as JSON");
        assert_eq!(open::<Vec<String>>(BodyKind::Reply, &sealed).unwrap(), ["a", "é"]);
    }

    #[test]
    fn e3_a_changed_byte_or_another_kind_of_body_is_refused() {
        let sealed = seal(BodyKind::Message, &"text");
        for place in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.to_vec();
                changed[place] ^= 1 << bit;
                assert!(open::<String>(BodyKind::Message, &changed).is_err(), "byte {place}, bit {bit}");
            }
            assert!(open::<String>(BodyKind::Message, &sealed[..place]).is_err(), "cut off at {place}");
        }
        for kind in [BodyKind::Task, BodyKind::Request, BodyKind::Reply] {
            assert!(matches!(open::<String>(kind, &sealed), Err(BodyError::Damaged(_))));
        }
    }

    #[test]
    fn e3_a_body_of_a_newer_engine_says_so() {
        let newer = br#"{"v":2,"crc":"00000000","message":{"Something":"new"},"more":1}"#;
        let error = open::<super::super::Message>(BodyKind::Message, newer).unwrap_err();
        assert_eq!(error, BodyError::NewerEngine { found: 2 });
        assert!(error.to_string().contains("newer engine"), "{error}");
        let bare = open::<super::super::Message>(BodyKind::Message, br#""Retry""#);
        assert!(matches!(bare, Err(BodyError::Damaged(_))), "a body without an envelope");
    }
}
