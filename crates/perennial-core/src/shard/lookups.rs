//! Requests whose instance is being looked up by its id, and the instances that ended meanwhile: what a look-up found may
//! be how they were before.

use std::collections::{BTreeMap, BTreeSet};

use crate::instance::InstanceKey;
use crate::store::InboxNumber;

use super::request::{Request, RequestId};

#[derive(Default)]
pub(super) struct Lookups {
    open: BTreeMap<RequestId, Lookup>,
    ended: BTreeSet<InstanceKey>,
}

/// A request that waits for its instance to be found.
pub(super) struct Lookup {
    pub(super) request: Request,
    /// The message after which it takes effect.
    pub(super) after: Option<InboxNumber>,
}

impl Lookups {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn begin(&mut self, id: RequestId, request: Request, after: Option<InboxNumber>) {
        self.open.insert(id, Lookup { request, after });
    }

    /// A look-up ended. Returns its request, and whether the instance that was found has ended since it began.
    pub(super) fn end(&mut self, id: RequestId, found: Option<InstanceKey>) -> Option<(Lookup, bool)> {
        let lookup = self.open.remove(&id)?;
        let has_ended = found.is_some_and(|key| self.ended.contains(&key));
        self.forget_ended();
        Some((lookup, has_ended))
    }

    /// A caller is gone: nobody is to be told of an end. What it asked otherwise is done all the same.
    pub(super) fn handle_caller_gone(&mut self, id: RequestId) {
        if self.open.get(&id).is_some_and(|lookup| matches!(lookup.request, Request::AwaitEnd)) {
            self.open.remove(&id);
            self.forget_ended();
        }
    }

    pub(super) fn handle_ended(&mut self, key: InstanceKey) {
        if !self.open.is_empty() {
            self.ended.insert(key);
        }
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        self.ended.clear();
        std::mem::take(&mut self.open).into_keys()
    }

    fn forget_ended(&mut self) {
        if self.open.is_empty() {
            self.ended.clear();
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
    fn n5_a_gone_caller_drops_a_wait_for_the_end_and_nothing_else() {
        let mut lookups = Lookups::default();
        lookups.begin(RequestId(1), Request::AwaitEnd, None);
        lookups.begin(RequestId(2), Request::Retry, None);
        lookups.handle_caller_gone(RequestId(1));
        lookups.handle_caller_gone(RequestId(2));
        assert_eq!(lookups.take_all().collect::<Vec<_>>(), [RequestId(2)]);
    }
}
