//! Calls that wait to be made to an instance, in order.

use std::collections::{BTreeSet, VecDeque};

use crate::store::RequestNumber;

use super::super::request::{InstanceCall, PendingCall, ReplyTo, RequestId};

#[derive(Default)]
pub(super) struct PendingCalls {
    waiting: VecDeque<PendingCall>,
    /// The request rows among them.
    rows: BTreeSet<RequestNumber>,
    /// How many are queries.
    queries: usize,
    /// Resets, which do not involve the code: they wait separately until the instance can be loaded for them.
    resets: VecDeque<PendingCall>,
}

fn is_query(pending: &PendingCall) -> bool {
    pending.call.is_query()
}

impl PendingCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, reply_to: ReplyTo, call: InstanceCall, place: u64) {
        self.push_back(PendingCall { reply_to, call, place, row: None });
    }

    /// Adds calls after all others.
    pub(super) fn extend(&mut self, calls: impl IntoIterator<Item = PendingCall>) {
        calls.into_iter().for_each(|pending| self.push_back(pending));
    }

    fn push_back(&mut self, pending: PendingCall) {
        if pending.call.is_reset() {
            return self.resets.push_back(pending);
        }
        self.count(&pending);
        self.waiting.push_back(pending);
    }

    /// Puts calls back: they keep their position before those that arrived meanwhile.
    pub(super) fn put_back(&mut self, calls: Vec<PendingCall>) {
        for pending in calls.into_iter().rev() {
            if pending.call.is_reset() {
                self.resets.push_front(pending);
                continue;
            }
            self.count(&pending);
            self.waiting.push_front(pending);
        }
    }

    /// Whether a query waits. Queries can also be answered after the end.
    pub(super) fn has_query(&self) -> bool {
        self.queries > 0
    }

    /// Whether a reset waits.
    pub(super) fn has_reset(&self) -> bool {
        !self.resets.is_empty()
    }

    pub(super) fn take_reset(&mut self) -> Option<PendingCall> {
        self.resets.pop_front()
    }

    pub(super) fn knows_row(&self, number: RequestNumber) -> bool {
        self.rows.contains(&number)
            || self.resets.iter().any(|pending| pending.reply_to.row() == Some(number))
    }

    pub(super) fn take_all(&mut self) -> Vec<PendingCall> {
        self.rows.clear();
        self.queries = 0;
        std::mem::take(&mut self.waiting).into()
    }

    /// Takes the first calls, up to a place.
    pub(super) fn take_before(&mut self, place: Option<u64>) -> Vec<PendingCall> {
        let Some(place) = place else { return self.take_all() };
        let count = self.waiting.iter().take_while(|pending| pending.place < place).count();
        let taken: Vec<PendingCall> = self.waiting.drain(..count).collect();
        taken.iter().for_each(|pending| self.uncount(pending));
        taken
    }

    /// Takes the updates, which cannot be answered after the end.
    pub(super) fn take_updates(&mut self) -> Vec<PendingCall> {
        let (queries, updates): (Vec<PendingCall>, Vec<PendingCall>) =
            self.take_all().into_iter().partition(is_query);
        self.extend(queries);
        updates
    }

    /// Removes the calls of request rows, which are read again by the owner of the shard.
    pub(super) fn forget_rows(&mut self) {
        let all = self.take_all();
        self.extend(all.into_iter().filter(|pending| pending.reply_to.row().is_none()));
        self.resets.retain(|pending| pending.reply_to.row().is_none());
    }

    /// Takes all, and returns the callers of this process among them.
    pub(super) fn take_callers(&mut self) -> Vec<RequestId> {
        let resets = std::mem::take(&mut self.resets);
        self.take_all().iter().chain(&resets).filter_map(|pending| pending.reply_to.caller()).collect()
    }

    fn count(&mut self, pending: &PendingCall) {
        self.rows.extend(pending.reply_to.row());
        self.queries += usize::from(is_query(pending));
    }

    fn uncount(&mut self, pending: &PendingCall) {
        if let Some(number) = pending.reply_to.row() {
            self.rows.remove(&number);
        }
        self.queries -= usize::from(is_query(pending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Payload;

    fn query() -> InstanceCall {
        InstanceCall::Query { name: "q".to_owned(), payload: Payload::null() }
    }

    fn update() -> InstanceCall {
        InstanceCall::Update { name: "u".to_owned(), payload: Payload::null(), key: None, trace: None }
    }

    fn places(calls: &[PendingCall]) -> Vec<u64> {
        calls.iter().map(|pending| pending.place).collect()
    }

    #[test]
    fn n16_questions_are_taken_up_to_the_first_message_that_came_before_them() {
        let mut pending_calls = PendingCalls::default();
        pending_calls.push(ReplyTo::Row(1), query(), 2);
        pending_calls.push(ReplyTo::Row(2), query(), 4);
        pending_calls.push(ReplyTo::Row(3), update(), 6);
        assert_eq!(places(&pending_calls.take_before(Some(4))), [2]);
        assert!(!pending_calls.knows_row(1) && pending_calls.knows_row(2));
        let rest = pending_calls.take_before(None);
        assert_eq!(places(&rest), [4, 6]);
        pending_calls.push(ReplyTo::Row(4), query(), 8);
        pending_calls.put_back(rest);
        assert_eq!(places(&pending_calls.take_all()), [4, 6, 8]);
    }

    #[test]
    fn n5_rows_and_queries_are_counted_through_every_way_out() {
        let mut pending_calls = PendingCalls::default();
        pending_calls.push(ReplyTo::Row(1), query(), 1);
        pending_calls.push(ReplyTo::Row(2), update(), 2);
        pending_calls.push(ReplyTo::Request(RequestId(7)), update(), 3);
        assert_eq!(places(&pending_calls.take_updates()), [2, 3]);
        assert!(pending_calls.has_query() && pending_calls.knows_row(1) && !pending_calls.knows_row(2));
        pending_calls.push(ReplyTo::Request(RequestId(8)), update(), 4);
        pending_calls.forget_rows();
        assert!(!pending_calls.has_query() && !pending_calls.knows_row(1));
        assert_eq!(pending_calls.take_callers(), [RequestId(8)]);
        assert!(pending_calls.is_empty());
    }
}
