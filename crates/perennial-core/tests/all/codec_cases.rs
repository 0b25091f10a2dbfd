//! A codec that the tests of codecs share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use perennial_core::codec::{CodecError, Codecs, Encoded, PayloadCodec, PayloadContext};

/// Flips every bit, and can lose its key.
#[derive(Clone, Default)]
pub(crate) struct Flipped {
    is_lost: Arc<AtomicBool>,
}

impl Flipped {
    pub(crate) fn codecs(&self) -> Codecs {
        Codecs::default().with(self.clone())
    }

    pub(crate) fn lose_key(&self, is_lost: bool) {
        self.is_lost.store(is_lost, Ordering::Relaxed);
    }

    fn flip(&self, bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(CodecError::MissingKey("may".to_owned()));
        }
        Ok(bytes.iter().map(|byte| !byte).collect())
    }
}

impl PayloadCodec for Flipped {
    fn name(&self) -> &str {
        "flipped"
    }

    fn encode(&self, bytes: &[u8], _: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        Ok(Some(Encoded { key: Some("may".to_owned()), bytes: self.flip(bytes)? }))
    }

    fn decode(&self, encoded: &Encoded, _: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        self.flip(&encoded.bytes)
    }
}
