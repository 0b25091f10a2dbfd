//! The keys of events and updates that were taken, and what came of the updates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{EventId, Payload};

/// How a key begins that a client drew because its caller gave none.
pub const DRAWN_KEY_PREFIX: char = '~';
/// For so long of turn time a drawn key is remembered.
const DRAWN_KEYS_MS: u64 = 60_000;
/// How many keys of events and updates cross a continue-as-new.
const CARRIED_KEYS: usize = 1_000;

/// The updates that came with a key, latest first to be remembered, so that one sent again gets the first's answer.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyedUpdates {
    pub(super) by_key: BTreeMap<String, (EventId, Option<Result<Payload, Payload>>)>,
    order: VecDeque<String>,
}

impl KeyedUpdates {
    pub(super) fn insert(&mut self, key: &str, event: EventId) {
        self.by_key.insert(key.to_owned(), (event, None));
        self.order.push_back(key.to_owned());
        if self.order.len() > CARRIED_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }

    pub(super) fn complete(&mut self, key: &str, answer: &Result<Payload, Payload>) {
        if let Some((_, result)) = self.by_key.get_mut(key) {
            *result = Some(answer.clone());
        }
    }
}

/// The keys of events and updates that were taken.
///
/// Keys that a caller gave are remembered for the whole execution, and the latest of them across continue-as-new. Keys
/// that a client drew serve to settle a request whose answer was lost, which happens within moments; they are remembered
/// for a minute of turn time.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenKeys {
    all: BTreeSet<String>,
    latest: VecDeque<String>,
    drawn: VecDeque<(u64, String)>,
}

impl SeenKeys {
    pub(super) fn contains(&self, key: &str) -> bool {
        self.all.contains(key)
    }

    pub(super) fn insert(&mut self, key: &str, at_ms: u64) {
        self.all.insert(key.to_owned());
        if is_drawn_key(key) {
            self.drawn.push_back((at_ms, key.to_owned()));
            while let Some((seen_ms, _)) = self.drawn.front()
                && seen_ms.saturating_add(DRAWN_KEYS_MS) < at_ms
                && let Some((_, forgotten)) = self.drawn.pop_front()
            {
                self.all.remove(&forgotten);
            }
            return;
        }
        self.latest.push_back(key.to_owned());
        if self.latest.len() > CARRIED_KEYS {
            self.latest.pop_front();
        }
    }

    /// The latest keys that callers gave, oldest first.
    pub(super) fn to_carry(&self) -> Vec<String> {
        self.latest.iter().cloned().collect()
    }

    /// The drawn keys that are remembered at a time, oldest first, and when each was taken.
    pub(super) fn drawn_at(&self, at_ms: u64) -> Vec<(u64, String)> {
        let is_remembered = |(seen_ms, _): &&(u64, String)| seen_ms.saturating_add(DRAWN_KEYS_MS) >= at_ms;
        self.drawn.iter().filter(is_remembered).cloned().collect()
    }
}

/// Whether a client drew a key because its caller gave none.
pub fn is_drawn_key(key: &str) -> bool {
    key.starts_with(DRAWN_KEY_PREFIX)
}
