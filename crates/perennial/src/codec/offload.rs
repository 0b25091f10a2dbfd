//! Offloading large payloads to a blob store.

use std::fmt::Write;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{BlobStore, CodecError, Encoded, PayloadCodec, PayloadContext};

/// The name of the codec, by which a sweep finds what refers to a blob.
pub(super) const NAME: &str = "blob";

/// Stores payloads above a size in a [`BlobStore`]; the store contains only their names.
///
/// A blob is named by the SHA-256 of its bytes and written before the commit that refers to it.
/// [`Client::sweep_blobs`](crate::Client::sweep_blobs) deletes blobs without references. Add this codec after
/// codecs that compress or encrypt, so that it stores their output.
pub struct Offload {
    above: usize,
    blobs: Arc<dyn BlobStore>,
}

impl Offload {
    /// Offloads payloads of more than `bytes` bytes, measured after the codecs before this one.
    pub fn above(bytes: usize, blobs: impl BlobStore) -> Offload {
        Offload { above: bytes, blobs: Arc::new(blobs) }
    }

    /// Like [`above`](Offload::above), for a blob store that is also used elsewhere.
    pub fn above_shared(bytes: usize, blobs: Arc<dyn BlobStore>) -> Offload {
        Offload { above: bytes, blobs }
    }
}

impl PayloadCodec for Offload {
    fn name(&self) -> &str {
        NAME
    }

    fn encode(&self, bytes: &[u8], _: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        if bytes.len() <= self.above {
            return Ok(None);
        }
        let name = name_of(bytes);
        let put = self.blobs.put(&name, bytes);
        put.map_err(|error| CodecError::Failed(format!("blob {name:?} cannot be written: {error}")))?;
        Ok(Some(Encoded { key: Some(name), bytes: Vec::new() }))
    }

    fn decode(&self, encoded: &Encoded, _: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        let name = encoded.key.as_deref().unwrap_or_default();
        match self.blobs.get(name) {
            Ok(Some(bytes)) if name_of(&bytes) == name => Ok(bytes),
            Ok(Some(_)) => Err(CodecError::Failed(format!("blob {name:?} was changed"))),
            Ok(None) => Err(CodecError::MissingBlob(name.to_owned())),
            Err(error) => Err(CodecError::Failed(format!("blob {name:?} cannot be read: {error}"))),
        }
    }
}

fn name_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut name, byte| {
        write!(name, "{byte:02x}").expect("a string takes all text");
        name
    })
}
