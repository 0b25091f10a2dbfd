//! Requests whose instance is being looked up by id, and the instances that ended meanwhile: a look-up may return their
//! state from before the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::instance::InstanceKey;
use crate::store::InboxNumber;

use super::request::{Request, RequestId};

#[derive(Default)]
pub(super) struct Lookups {
    open: BTreeMap<RequestId, Lookup>,
    /// When the open look-ups started, in ticks of `count`.
    begun: BTreeSet<u64>,
    /// The instances that ended since the oldest open look-up started, and when, in ticks of `count`.
    ended: BTreeMap<InstanceKey, u64>,
    ended_order: BTreeSet<(u64, InstanceKey)>,
    /// A logical clock of look-ups and ends of instances.
    count: u64,
}

/// A request that waits for its instance to be found.
pub(super) struct Lookup {
    pub(super) request: Request,
    /// The message after which it takes effect.
    pub(super) after: Option<InboxNumber>,
    begun: u64,
}

impl Lookups {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn begin(&mut self, id: RequestId, request: Request, after: Option<InboxNumber>) {
        self.count += 1;
        let begun = self.count;
        self.begun.insert(begun);
        if let Some(earlier) = self.open.insert(id, Lookup { request, after, begun }) {
            self.forget(&earlier);
        }
    }

    /// Ends a look-up. Returns its request, and whether the instance that was found has ended since the look-up
    /// started.
    pub(super) fn end(&mut self, id: RequestId, found: Option<InstanceKey>) -> Option<(Lookup, bool)> {
        let lookup = self.open.remove(&id)?;
        let ended = found.and_then(|key| self.ended.get(&key));
        let has_ended = ended.is_some_and(|ended| *ended > lookup.begun);
        self.forget(&lookup);
        Some((lookup, has_ended))
    }

    /// Handles a caller that no longer waits: a request to await the end is dropped; other requests are still carried
    /// out.
    pub(super) fn handle_caller_gone(&mut self, id: RequestId) {
        if self.open.get(&id).is_some_and(|lookup| matches!(lookup.request, Request::AwaitEnd))
            && let Some(lookup) = self.open.remove(&id)
        {
            self.forget(&lookup);
        }
    }

    pub(super) fn handle_ended(&mut self, key: InstanceKey) {
        if self.open.is_empty() {
            return;
        }
        self.count += 1;
        self.ended_order.insert((self.count, key));
        if let Some(earlier) = self.ended.insert(key, self.count) {
            self.ended_order.remove(&(earlier, key));
        }
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        std::mem::take(self).open.into_keys()
    }

    /// Forgets the ends that no open look-up can have missed, after this one was closed.
    fn forget(&mut self, lookup: &Lookup) {
        self.begun.remove(&lookup.begun);
        let oldest = self.begun.first().copied().unwrap_or(u64::MAX);
        while let Some((_, key)) = self.ended_order.first().copied().filter(|(at, _)| *at < oldest) {
            self.ended_order.pop_first();
            self.ended.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> InstanceKey {
        InstanceKey::new(1, number)
    }

    #[test]
    fn n5_an_end_is_remembered_while_any_lookup_is_open() {
        let mut lookups = Lookups::default();
        lookups.handle_ended(key(1));
        lookups.begin(RequestId(1), Request::Retry, Some(7));
        lookups.begin(RequestId(2), Request::Retry, None);
        lookups.handle_ended(key(2));
        let (lookup, has_ended) = lookups.end(RequestId(1), Some(key(1))).unwrap();
        assert_eq!((lookup.after, has_ended), (Some(7), false), "it ended before the look-up began");
        assert!(lookups.end(RequestId(1), None).is_none());
        assert!(lookups.end(RequestId(2), Some(key(2))).unwrap().1);
        assert!(lookups.is_empty() && lookups.ended.is_empty());
    }

    #[test]
    fn n5_ends_are_forgotten_though_some_lookup_is_always_open() {
        let mut lookups = Lookups::default();
        lookups.begin(RequestId(0), Request::Retry, None);
        for number in 1..100 {
            lookups.begin(RequestId(number), Request::Retry, None);
            lookups.handle_ended(key(u128::from(number)));
            let (_, has_ended) = lookups.end(RequestId(number - 1), Some(key(u128::from(number)))).unwrap();
            assert!(has_ended);
        }
        assert_eq!((lookups.ended.len(), lookups.ended_order.len(), lookups.begun.len()), (1, 1, 1));
        assert!(lookups.end(RequestId(99), Some(key(99))).unwrap().1, "it ended after this one began");
        assert!(lookups.ended.is_empty() && lookups.ended_order.is_empty() && lookups.begun.is_empty());
    }

    #[test]
    fn n5_a_gone_caller_drops_a_wait_for_the_end_and_nothing_else() {
        let mut lookups = Lookups::default();
        lookups.begin(RequestId(1), Request::AwaitEnd, None);
        lookups.begin(RequestId(2), Request::Retry, None);
        lookups.handle_caller_gone(RequestId(1));
        lookups.handle_caller_gone(RequestId(2));
        assert_eq!(lookups.take_all().collect::<Vec<_>>(), [RequestId(2)]);
    }
}
