//! The messages sent by a client and its clones. Keeps the order of one sender across routes and changes of
//! owner.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use perennial_core::history::DRAWN_KEY_PREFIX;
use perennial_core::store::InboxNumber;

/// Maximum number of remembered instances. Requests to others are sent without regard to order.
const MAX_INSTANCES: usize = 100_000;

/// The last acknowledged message to each instance that went through the store, and generated deduplication
/// keys.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    last: Mutex<HashMap<String, InboxNumber>>,
    /// Random, so that keys of two senders differ. Drawn on demand: every attempt of an activity has a
    /// client, and few send anything.
    name: OnceLock<u64>,
    drawn: AtomicU64,
}

impl Sender {
    /// Generates a key for an event or update without one, so that sending it again after a lost reply has no
    /// second effect.
    pub(super) fn draw_key(&self) -> String {
        let name = self.name.get_or_init(|| uuid::Uuid::new_v4().as_u64_pair().0);
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        format!("{DRAWN_KEY_PREFIX}{name:x}.{number:x}")
    }

    /// Notes the number of a message that is stored for an instance.
    pub(super) fn note(&self, id: &str, number: InboxNumber) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_INSTANCES && !last.contains_key(id) {
            last.clear();
        }
        let known = last.entry(id.to_owned()).or_default();
        *known = number.max(*known);
    }

    /// The message after which the next request to an instance must take effect.
    pub(super) fn after(&self, id: &str) -> Option<InboxNumber> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    /// Forgets a deleted instance; its successor's requests have nothing to wait for.
    pub(super) fn forget(&self, id: &str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
