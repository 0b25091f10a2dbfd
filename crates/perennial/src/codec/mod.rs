//! Codecs: compressing, encrypting or offloading payloads before they are stored.
//!
//! Add a [`PayloadCodec`] with [`RuntimeBuilder::codec`](crate::RuntimeBuilder::codec), and pass it to
//! clients in other processes with [`Client::open_with_codecs`](crate::Client::open_with_codecs). Payloads
//! are encoded one by one: inputs, results, errors that are values, events, updates, queries, heartbeat
//! details and published statuses. Histories keep their structure, so names, ids, times and sizes can be read
//! without the codec.
//!
//! | not encoded | because |
//! |---|---|
//! | attributes in the instance's row | searches use them |
//! | names, ids, versions, tags, deduplication keys | the engine uses them |
//! | reasons of cancels and terminations, errors of failed attempts | people read them where they have no codec |
//!
//! Do not put secrets there. Replay compares decoded payloads. Checksums cover the stored bytes, so
//! `perennial verify` needs no codec.
//!
//! A payload that cannot be decoded blocks only its instance (PER-0104), and the reason names the codec and
//! the key or blob. Once the payload can be decoded, the instance continues automatically, or at once with a
//! retry.

mod blobs;
mod offload;
mod sweeping;
mod threads;

use std::sync::Arc;

use perennial_core::store::Store;

pub use blobs::{BlobDirectory, BlobStore};
pub use offload::Offload;
pub use perennial_core::codec::{
    CodecError, Codecs, Encoded, EncodedPayload, EncodedStore, PayloadCodec, PayloadContext, Undecodable,
    is_encoded,
};
pub use sweeping::SweptBlobs;

/// Wraps a store so that its payloads are encoded.
pub(crate) fn encoded(store: Arc<dyn Store>, codecs: &Codecs) -> Arc<dyn Store> {
    if codecs.is_empty() {
        return Arc::new(EncodedStore::new(store, Codecs::default(), |task| task()));
    }
    Arc::new(EncodedStore::new(store, codecs.clone(), threads::start()))
}
