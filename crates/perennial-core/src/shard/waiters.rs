//! Callers that wait for the end of an instance. A caller waits for one instance at a time.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::flaws::{self, Flaw};
use crate::instance::InstanceKey;

use super::request::RequestId;

#[derive(Default)]
pub(super) struct Waiters {
    by_key: FxHashMap<InstanceKey, BTreeSet<RequestId>>,
    of_request: FxHashMap<RequestId, InstanceKey>,
}

impl Waiters {
    pub(super) fn add(&mut self, key: InstanceKey, request: RequestId) {
        self.remove(request);
        self.by_key.entry(key).or_default().insert(request);
        self.of_request.insert(request, key);
    }

    /// A caller no longer waits.
    pub(super) fn remove(&mut self, request: RequestId) {
        if let Some(key) = self.of_request.remove(&request)
            && let Some(waiting) = self.by_key.get_mut(&key)
        {
            waiting.remove(&request);
            if waiting.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Removes and returns all callers that wait for an instance, in request order.
    pub(super) fn take(&mut self, key: InstanceKey) -> Vec<RequestId> {
        if flaws::is(Flaw::WaitersForgotten) {
            return Vec::new();
        }
        let waiting = self.by_key.remove(&key).unwrap_or_default();
        for request in &waiting {
            self.of_request.remove(request);
        }
        waiting.into_iter().collect()
    }

    /// Removes and returns all callers, in request order.
    pub(super) fn take_all(&mut self) -> Vec<RequestId> {
        self.by_key.clear();
        let mut all: Vec<RequestId> = self.of_request.drain().map(|(request, _)| request).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> InstanceKey {
        InstanceKey::new(1, number)
    }

    #[test]
    fn n5_a_caller_that_is_gone_is_not_told_and_leaves_nothing() {
        let mut waiters = Waiters::default();
        waiters.add(key(1), RequestId(1));
        waiters.add(key(1), RequestId(2));
        waiters.add(key(2), RequestId(3));
        waiters.remove(RequestId(2));
        waiters.remove(RequestId(9));
        assert_eq!(waiters.take(key(1)), [RequestId(1)]);
        assert!(waiters.take(key(1)).is_empty());
        waiters.remove(RequestId(3));
        assert!(waiters.by_key.is_empty() && waiters.of_request.is_empty());
    }

    #[test]
    fn n5_a_caller_waits_for_one_instance_at_a_time() {
        let mut waiters = Waiters::default();
        waiters.add(key(1), RequestId(1));
        waiters.add(key(2), RequestId(1));
        assert!(waiters.take(key(1)).is_empty());
        assert_eq!(waiters.take_all(), [RequestId(1)]);
    }
}
