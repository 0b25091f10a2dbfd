//! What a client and its clones have sent: the order of one sender holds across routes and changes of owner.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use perennial_core::history::DRAWN_KEY_PREFIX;
use perennial_core::store::InboxNumber;

/// More instances than this are not remembered; an instance that is forgotten is asked without regard to order.
const MAX_INSTANCES: usize = 100_000;

/// The last acknowledged message to each instance that went through the store, and keys for what callers gave none.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    last: Mutex<HashMap<String, InboxNumber>>,
    /// Random, so that keys of two senders differ. Drawn when it is needed: every attempt of an activity has a client, and
    /// few send anything.
    name: OnceLock<u64>,
    drawn: AtomicU64,
}

impl Sender {
    /// A key for an event or update whose caller gave none: sent again after a lost answer, it takes effect once.
    pub(super) fn draw_key(&self) -> String {
        let name = self.name.get_or_init(|| uuid::Uuid::new_v4().as_u64_pair().0);
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        format!("{DRAWN_KEY_PREFIX}{name:x}.{number:x}")
    }

    /// A message to an instance is on disk under this number.
    pub(super) fn note(&self, id: &str, number: InboxNumber) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_INSTANCES && !last.contains_key(id) {
            last.clear();
        }
        let known = last.entry(id.to_owned()).or_default();
        *known = number.max(*known);
    }

    /// The message after which the next request to an instance takes effect.
    pub(super) fn after(&self, id: &str) -> Option<InboxNumber> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    /// Requests to an instance that is gone need not wait for anything.
    pub(super) fn forget(&self, id: &str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
