//! Codecs: payloads compressed, encrypted or kept elsewhere on their way to the store.
//!
//! A [`PayloadCodec`] is added with [`RuntimeBuilder::codec`](crate::RuntimeBuilder::codec), and given to clients in other
//! processes with [`Client::open_with_codecs`](crate::Client::open_with_codecs). What is encoded, one by one, are payloads:
//! inputs, results, errors that are values, events, updates, queries, details of heartbeats, published statuses. Histories
//! keep their structure, so names, ids, times and sizes can be read without the codec.
//!
//! | stays in plain | because |
//! |---|---|
//! | attributes in the instance's row | instances are searched by them |
//! | names, ids, versions, tags, deduplication keys | the engine goes by them |
//! | reasons of cancels and terminations, texts of attempts that failed | people read them where they have no codec |
//!
//! So nothing secret belongs into those. Replay compares decoded payloads; checksums cover what is stored, so `perennial
//! verify` needs no codec.
//!
//! A payload that cannot be decoded blocks its instance alone (PER-0104), and the reason names the codec and the key or
//! blob. Once it can be decoded the instance goes on by itself, or at once with a retry.

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

/// A store whose payloads are encoded.
pub(crate) fn encoded(store: Arc<dyn Store>, codecs: &Codecs) -> Arc<dyn Store> {
    if codecs.is_empty() {
        return Arc::new(EncodedStore::new(store, Codecs::default(), |task| task()));
    }
    Arc::new(EncodedStore::new(store, codecs.clone(), threads::start()))
}
