//! Codecs: what happens to payloads on their way to the store and back.
//!
//! A payload is plain JSON in memory. Where turns, messages, tasks, requests and replies become bytes, each payload passes
//! through the configured [`Codecs`], and the result is embedded in its place, in the form that the module `form` describes; names,
//! ids, times and the structure of a history stay readable. Reading goes the other way before anything looks at the
//! payload, so replay compares decoded payloads, while checksums cover the bytes that are stored.
//!
//! - Turns are encoded and decoded on turn threads ([`TurnRow::seal_with`](crate::store::TurnRow::seal_with),
//!   [`read_turns_with`](crate::store::read_turns_with)), because each turn's checksum chains from the stored bytes before it.
//! - Everything else is encoded and decoded by an [`EncodedStore`] around the store, outside of the engine's locks.
//!
//! Without a codec neither costs anything: one comparison of a few bytes per payload.

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

/// Changes payload bytes on their way to the store, and changes them back: compresses, encrypts, or keeps them elsewhere.
///
/// Several codecs are applied one after the other, in the order in which they are configured, and undone in reverse. The
/// store keeps with each payload which of them were applied and with which key, so codecs and keys can be added and
/// replaced at any time. One that is no longer wanted for new payloads has to stay configured until nothing that it wrote
/// is left: let its [`encode`](PayloadCodec::encode) return `None`.
///
/// Codecs run on turn threads and on threads of the runtime's own, never on those of tokio. They may block for a moment,
/// as long as a turn may take. A panic counts as [`CodecError::Failed`].
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
    /// A name that is stored with each payload, such as `aes-256-gcm`. A payload is decoded by the codec of this name, so
    /// it stays the same for as long as anything is stored under it.
    fn name(&self) -> &str;

    /// Encodes bytes: the JSON text of a payload, or what the codec before this one made of it. `None` leaves them as they
    /// are.
    fn encode(&self, bytes: &[u8], context: &PayloadContext) -> Result<Option<Encoded>, CodecError>;

    /// Decodes what [`encode`](PayloadCodec::encode) gave.
    fn decode(&self, encoded: &Encoded, context: &PayloadContext) -> Result<Vec<u8>, CodecError>;
}

/// What a codec made of some bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// What is needed to decode them: the id of a key, never the key, or the name of a blob. Stored in plain.
    pub key: Option<String>,
    /// The encoded bytes.
    pub bytes: Vec<u8>,
}

/// Where a payload belongs, the same when it is encoded and when it is decoded. For associated data of a cipher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PayloadContext {
    /// The instance whose turn, task or published status carries the payload. `None` for messages, requests and replies,
    /// which may be written before anybody knows who will read them.
    pub instance: Option<InstanceKey>,
}

impl PayloadContext {
    /// The context of what belongs to an instance.
    pub fn of(instance: InstanceKey) -> PayloadContext {
        PayloadContext { instance: Some(instance) }
    }
}

/// Why a codec could not do its part. It is shown to people and stored with the instance, so it says nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A key is not among those that the codec has.
    #[error("key {0:?} is missing")]
    MissingKey(String),
    /// A blob is not where the codec keeps them.
    #[error("blob {0:?} is missing")]
    MissingBlob(String),
    /// No codec of the name is configured here.
    #[error("it is not configured here")]
    NotConfigured,
    /// Something else went wrong: the bytes were changed, or a service did not answer.
    #[error("{0}")]
    Failed(String),
}

/// A payload that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("codec {codec}{}: {error}", with_key(.key.as_deref()))]
pub struct Undecodable {
    /// The codec that did not do its part.
    pub codec: String,
    /// The key that it had named.
    pub key: Option<String>,
    /// Why.
    pub error: CodecError,
}

fn with_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(" with key {key:?}"))
}

/// Whether a payload is as a store has it and was not decoded: the encoded form, or a
/// [marker](EncodedPayload::marker).
pub fn is_encoded(payload: &Payload) -> bool {
    is_marked(payload.as_json()) && form::is_form(payload.as_json())
}

/// A payload for a place where one may stand that is still encoded: details of tasks. What only looks encoded is put into
/// the form of a payload that no codec has changed. See [`unquoted`].
pub fn quoted(payload: &Payload) -> Payload {
    Codecs::default().encode(payload, &PayloadContext::default()).expect("no codec can fail")
}

/// The payload that was [`quoted`]; an error for one that is still encoded.
pub fn unquoted(payload: &Payload) -> Result<Payload, Undecodable> {
    Codecs::default().decode(payload, &PayloadContext::default())
}

/// The codecs of a runtime or a client, in the order in which they encode. Cheap to clone.
#[derive(Clone, Default)]
pub struct Codecs(Option<Arc<[Arc<dyn PayloadCodec>]>>);

impl Codecs {
    /// These codecs, and then one more. One with the name of another takes its place.
    #[must_use]
    pub fn with(self, codec: impl PayloadCodec) -> Codecs {
        self.with_shared(Arc::new(codec))
    }

    /// The same, for a codec that others have as well.
    #[must_use]
    pub fn with_shared(self, codec: Arc<dyn PayloadCodec>) -> Codecs {
        let others = self.iter().filter(|other| other.name() != codec.name()).cloned();
        Codecs(Some(others.chain([Arc::clone(&codec)]).collect()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Encodes a payload for the store. What no codec changed is stored as it is.
    pub fn encode(&self, payload: &Payload, context: &PayloadContext) -> Result<Payload, CodecError> {
        match self.encode_json(payload.as_json(), context)? {
            Some(encoded) => Ok(encoded.to_payload()),
            None => Ok(payload.clone()),
        }
    }

    /// Decodes a payload from the store. One that is not encoded is itself.
    pub fn decode(&self, payload: &Payload, context: &PayloadContext) -> Result<Payload, Undecodable> {
        match EncodedPayload::of(payload) {
            Some(encoded) => self.decode_form(&encoded, context),
            None => Ok(payload.clone()),
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<dyn PayloadCodec>> {
        self.0.iter().flat_map(|codecs| codecs.iter())
    }

    /// What is stored instead of a payload's text; `None` if that is the text itself.
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
        // What only looks encoded must not be taken for it when it is read.
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

/// Calls a codec, whose code is the user's.
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
