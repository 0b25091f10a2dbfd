//! Codecs: transformations of payloads on their way to the store and back.
//!
//! A payload is plain JSON in memory. When turns, messages, tasks, requests and replies are serialised, each payload
//! passes through the configured [`Codecs`], and the result is embedded in its place, in the form described in the
//! module `form`; names, ids, times and the structure of a history remain readable. Decoding happens before anything
//! looks at a payload, so a replay compares decoded payloads, while checksums cover the stored bytes.
//!
//! - Turns are encoded and decoded on turn threads ([`TurnRow::seal_with`](crate::store::TurnRow::seal_with),
//!   [`read_turns_with`](crate::store::read_turns_with)), because each turn's checksum chains from the stored bytes before it.
//! - Everything else is encoded and decoded by an [`EncodedStore`] around the store, outside the engine's locks.
//!
//! Without a codec the only cost is a comparison of a few bytes per payload.

mod encoded_store;
mod form;
mod reading;
mod recode;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;
use crate::history::Payload;
use crate::instance::InstanceKey;

pub use encoded_store::{EncodedStore, EncodingTask};
pub use form::EncodedPayload;
pub(crate) use form::{PayloadFormatter, is_marked};
pub(crate) use reading::{Mode, read, reading};

/// Transforms payload bytes on their way to the store and back: compresses them, encrypts them, or stores them
/// elsewhere.
///
/// Several codecs are applied in the order in which they are configured, and undone in reverse. The store keeps with
/// each payload which of them were applied and with which key, so codecs and keys can be added and replaced at any
/// time. A codec that is no longer wanted for new payloads has to remain configured until everything that it encoded is
/// deleted: let its [`encode`](PayloadCodec::encode) return `None`.
///
/// Codecs run on turn threads and on the runtime's own threads, never on tokio's. They may block, for less time than a
/// turn may take. A panic is treated as [`CodecError::Failed`].
///
/// ```
/// use perennial_core::codec::{CodecError, Codecs, Encoded, PayloadCodec, PayloadContext};
///
/// /// Not a secret from anybody.
/// struct Flip;
///
/// impl PayloadCodec for Flip {
///     fn name(&self) -> &str {
///         "flip"
///     }
///
///     fn encode(&self, bytes: &[u8], _: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
///         Ok(Some(Encoded { key: None, bytes: bytes.iter().map(|byte| !byte).collect() }))
///     }
///
///     fn decode(&self, encoded: &Encoded, _: &PayloadContext) -> Result<Vec<u8>, CodecError> {
///         Ok(encoded.bytes.iter().map(|byte| !byte).collect())
///     }
/// }
///
/// let codecs = Codecs::default().with(Flip);
/// let context = PayloadContext::default();
/// let stored = codecs.encode(&"order-42".into(), &context)?;
/// assert!(stored.as_json().starts_with(r#"{"@codec":[["flip"]],"size":10,"data":"#));
/// assert_eq!(codecs.decode(&stored, &context).unwrap(), "order-42".into());
/// # Ok::<(), CodecError>(())
/// ```
pub trait PayloadCodec: Send + Sync + 'static {
    /// A name that is stored with each payload, such as `aes-256-gcm`. A payload is decoded by the codec of this name,
    /// so the name must not change while anything is stored under it.
    fn name(&self) -> &str;

    /// Encodes bytes: the JSON text of a payload, or the output of the previous codec. `None` leaves them unchanged.
    fn encode(&self, bytes: &[u8], context: &PayloadContext) -> Result<Option<Encoded>, CodecError>;

    /// Decodes the output of [`encode`](PayloadCodec::encode).
    fn decode(&self, encoded: &Encoded, context: &PayloadContext) -> Result<Vec<u8>, CodecError>;
}

/// The output of a codec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// What is needed to decode the bytes: the id of a key, never the key itself, or the name of a blob. Stored in
    /// plain text.
    pub key: Option<String>,
    /// The encoded bytes.
    pub bytes: Vec<u8>,
}

/// Where a payload belongs; the same when it is encoded and when it is decoded. Suitable as a cipher's associated data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PayloadContext {
    /// The instance whose turn, task or published status contains the payload. `None` for messages, requests and
    /// replies, which may be written before their reader is known.
    pub instance: Option<InstanceKey>,
}

impl PayloadContext {
    /// The context of payloads that belong to an instance.
    pub fn of(instance: InstanceKey) -> PayloadContext {
        PayloadContext { instance: Some(instance) }
    }
}

/// Why a codec failed. The text is shown to people and stored with the instance, so it must not contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The codec does not have this key.
    #[error("key {0:?} is missing")]
    MissingKey(String),
    /// The codec cannot find this blob.
    #[error("blob {0:?} is missing")]
    MissingBlob(String),
    /// No codec of this name is configured.
    #[error("it is not configured here")]
    NotConfigured,
    /// Another failure: the bytes were changed, or a service did not respond.
    #[error("{0}")]
    Failed(String),
}

/// A payload that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("codec {codec}{}: {error}", with_key(.key.as_deref()))]
pub struct Undecodable {
    /// The codec that failed.
    pub codec: String,
    /// The key that was stored with the payload.
    pub key: Option<String>,
    /// What is wrong with it.
    pub error: CodecError,
}

fn with_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(" with key {key:?}"))
}

/// Whether a payload is still in its stored form: encoded, or a [marker](EncodedPayload::marker).
pub fn is_encoded(payload: &Payload) -> bool {
    is_marked(payload.as_json()) && form::is_form(payload.as_json())
}

/// Prepares a payload for a place that may also contain an encoded payload, such as the details of tasks: a payload
/// that only looks encoded is wrapped as one without codecs. See [`unquoted`].
pub fn quoted(payload: &Payload) -> Payload {
    Codecs::default().encode(payload, &PayloadContext::default()).expect("no codec can fail")
}

/// The payload that was [`quoted`]; an error if it is still encoded.
pub fn unquoted(payload: &Payload) -> Result<Payload, Undecodable> {
    Codecs::default().decode(payload, &PayloadContext::default())
}

/// The codecs of a runtime or a client, in encoding order. Cheap to clone.
#[derive(Clone, Default)]
pub struct Codecs(Option<Arc<[Arc<dyn PayloadCodec>]>>);

impl Codecs {
    /// Adds a codec after the others. It replaces a codec of the same name.
    #[must_use]
    pub fn with(self, codec: impl PayloadCodec) -> Codecs {
        self.with_shared(Arc::new(codec))
    }

    /// Like [`with`](Codecs::with), for a shared codec.
    #[must_use]
    pub fn with_shared(self, codec: Arc<dyn PayloadCodec>) -> Codecs {
        let others = self.iter().filter(|other| other.name() != codec.name()).cloned();
        Codecs(Some(others.chain([Arc::clone(&codec)]).collect()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Encodes a payload for the store. If no codec changes it, it is stored as it is.
    pub fn encode(&self, payload: &Payload, context: &PayloadContext) -> Result<Payload, CodecError> {
        match self.encode_json(payload.as_json(), context)? {
            Some(encoded) => Ok(encoded.to_payload()),
            None => Ok(payload.clone()),
        }
    }

    /// Decodes a payload from the store. A payload that is not encoded is returned unchanged.
    pub fn decode(&self, payload: &Payload, context: &PayloadContext) -> Result<Payload, Undecodable> {
        match EncodedPayload::of(payload) {
            Some(encoded) => self.decode_form(&encoded, context),
            None => Ok(payload.clone()),
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<dyn PayloadCodec>> {
        self.0.iter().flat_map(|codecs| codecs.iter())
    }

    /// The text to store instead of a payload's JSON; `None` to store the JSON itself.
    pub(crate) fn encode_json(
        &self,
        json: &str,
        context: &PayloadContext,
    ) -> Result<Option<EncodedPayload>, CodecError> {
        let mut encoded: Option<EncodedPayload> = None;
        for codec in self.iter() {
            let bytes = encoded.as_ref().map_or(json.as_bytes(), |encoded| &encoded.data);
            let Some(Encoded { key, bytes }) = guarded(|| codec.encode(bytes, context))? else { continue };
            let encoded = encoded.get_or_insert_with(|| EncodedPayload::plain(json));
            encoded.steps.push((codec.name().to_owned(), key));
            encoded.data = bytes;
        }
        // A payload that only looks encoded must not be mistaken for an encoded one when it is read.
        Ok(encoded.or_else(|| is_marked(json).then(|| EncodedPayload::plain(json))))
    }

    fn decode_form(
        &self,
        encoded: &EncodedPayload,
        context: &PayloadContext,
    ) -> Result<Payload, Undecodable> {
        let mut bytes = encoded.data.clone();
        for (name, key) in encoded.steps.iter().rev() {
            let undecodable = |error| Undecodable { codec: name.clone(), key: key.clone(), error };
            let codec = self.iter().find(|codec| codec.name() == name);
            let codec = codec.ok_or_else(|| undecodable(CodecError::NotConfigured))?;
            let step = Encoded { key: key.clone(), bytes };
            bytes = guarded(|| codec.decode(&step, context)).map_err(undecodable)?;
        }
        form::payload_of(bytes).map_err(|error| {
            let (codec, key) = encoded.steps.first().cloned().unwrap_or_default();
            Undecodable { codec, key, error }
        })
    }
}

impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|codec| codec.name())).finish()
    }
}

/// Calls a codec, which is user code and may panic.
fn guarded<T>(call: impl FnOnce() -> Result<T, CodecError>) -> Result<T, CodecError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(CodecError::Failed("it panicked".to_owned())))
}

impl CodecError {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::Codec
    }
}

impl Undecodable {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::PayloadUndecodable
    }
}

crate::error_model!(CodecError, Undecodable);
