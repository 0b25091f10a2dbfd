//! Queries and updates that wait to be put to the code of an instance, in order.

use std::collections::{BTreeSet, VecDeque};

use crate::store::RequestNumber;

use super::super::request::{Asker, PendingAsk, Question, RequestId};

#[derive(Default)]
pub(super) struct Questions {
    waiting: VecDeque<PendingAsk>,
    /// The request rows that wait.
    rows: BTreeSet<RequestNumber>,
    /// How many are queries.
    queries: usize,
    /// Resets, which are no questions to the code: they wait apart until the instance can be loaded for them.
    resets: VecDeque<PendingAsk>,
}

fn is_query(ask: &PendingAsk) -> bool {
    matches!(ask.question, Question::Query { .. })
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, asker: Asker, question: Question, place: u64) {
        self.push_back(PendingAsk { asker, question, place, row: None });
    }

    /// Adds questions after all others.
    pub(super) fn extend(&mut self, asks: impl IntoIterator<Item = PendingAsk>) {
        asks.into_iter().for_each(|ask| self.push_back(ask));
    }

    fn push_back(&mut self, ask: PendingAsk) {
        if ask.question.is_reset() {
            return self.resets.push_back(ask);
        }
        self.count(&ask);
        self.waiting.push_back(ask);
    }

    /// Puts questions back that were taken: they keep their place before what was asked meanwhile.
    pub(super) fn put_back(&mut self, asks: Vec<PendingAsk>) {
        for ask in asks.into_iter().rev() {
            if ask.question.is_reset() {
                self.resets.push_front(ask);
                continue;
            }
            self.count(&ask);
            self.waiting.push_front(ask);
        }
    }

    /// Whether a query waits: it can be answered after the end, too.
    pub(super) fn has_query(&self) -> bool {
        self.queries > 0
    }

    /// Whether a reset waits.
    pub(super) fn has_reset(&self) -> bool {
        !self.resets.is_empty()
    }

    pub(super) fn take_reset(&mut self) -> Option<PendingAsk> {
        self.resets.pop_front()
    }

    pub(super) fn knows_row(&self, number: RequestNumber) -> bool {
        self.rows.contains(&number) || self.resets.iter().any(|ask| ask.asker.row() == Some(number))
    }

    pub(super) fn take_all(&mut self) -> Vec<PendingAsk> {
        self.rows.clear();
        self.queries = 0;
        std::mem::take(&mut self.waiting).into()
    }

    /// Takes the first questions, as far as they came before a place.
    pub(super) fn take_before(&mut self, place: Option<u64>) -> Vec<PendingAsk> {
        let Some(place) = place else { return self.take_all() };
        let count = self.waiting.iter().take_while(|ask| ask.place < place).count();
        let taken: Vec<PendingAsk> = self.waiting.drain(..count).collect();
        taken.iter().for_each(|ask| self.uncount(ask));
        taken
    }

    /// Takes the updates: they cannot be answered after the end.
    pub(super) fn take_updates(&mut self) -> Vec<PendingAsk> {
        let (queries, updates): (Vec<PendingAsk>, Vec<PendingAsk>) =
            self.take_all().into_iter().partition(is_query);
        self.extend(queries);
        updates
    }

    /// Forgets the questions of request rows, which are read again by whoever owns the shard.
    pub(super) fn forget_rows(&mut self) {
        let all = self.take_all();
        self.extend(all.into_iter().filter(|ask| ask.asker.row().is_none()));
        self.resets.retain(|ask| ask.asker.row().is_none());
    }

    /// Takes all, and returns the callers of this process among those who ask.
    pub(super) fn take_callers(&mut self) -> Vec<RequestId> {
        let resets = std::mem::take(&mut self.resets);
        self.take_all().iter().chain(&resets).filter_map(|ask| ask.asker.caller()).collect()
    }

    fn count(&mut self, ask: &PendingAsk) {
        self.rows.extend(ask.asker.row());
        self.queries += usize::from(is_query(ask));
    }

    fn uncount(&mut self, ask: &PendingAsk) {
        if let Some(number) = ask.asker.row() {
            self.rows.remove(&number);
        }
        self.queries -= usize::from(is_query(ask));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Payload;

    fn query() -> Question {
        Question::Query { name: "q".to_owned(), payload: Payload::null() }
    }

    fn update() -> Question {
        Question::Update { name: "u".to_owned(), payload: Payload::null(), key: None, trace: None }
    }

    fn places(asks: &[PendingAsk]) -> Vec<u64> {
        asks.iter().map(|ask| ask.place).collect()
    }

    #[test]
    fn n16_questions_are_taken_up_to_the_first_message_that_came_before_them() {
        let mut questions = Questions::default();
        questions.push(Asker::Row(1), query(), 2);
        questions.push(Asker::Row(2), query(), 4);
        questions.push(Asker::Row(3), update(), 6);
        assert_eq!(places(&questions.take_before(Some(4))), [2]);
        assert!(!questions.knows_row(1) && questions.knows_row(2));
        let rest = questions.take_before(None);
        assert_eq!(places(&rest), [4, 6]);
        questions.push(Asker::Row(4), query(), 8);
        questions.put_back(rest);
        assert_eq!(places(&questions.take_all()), [4, 6, 8]);
    }

    #[test]
    fn n5_rows_and_queries_are_counted_through_every_way_out() {
        let mut questions = Questions::default();
        questions.push(Asker::Row(1), query(), 1);
        questions.push(Asker::Row(2), update(), 2);
        questions.push(Asker::Request(RequestId(7)), update(), 3);
        assert_eq!(places(&questions.take_updates()), [2, 3]);
        assert!(questions.has_query() && questions.knows_row(1) && !questions.knows_row(2));
        questions.push(Asker::Request(RequestId(8)), update(), 4);
        questions.forget_rows();
        assert!(!questions.has_query() && !questions.knows_row(1));
        assert_eq!(questions.take_callers(), [RequestId(8)]);
        assert!(questions.is_empty());
    }
}
