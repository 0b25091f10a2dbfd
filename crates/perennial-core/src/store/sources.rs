//! The indexes that can find the rows of a list, and the choice among them.
//!
//! Stores with indexes share this: which parts of a filter an index can answer, and which index has the fewest rows. The
//! store counts rows, and the choice says which ones to count next.

use std::collections::VecDeque;

use super::{Criteria, KeyRange, Status};

/// A source whose rows all have to be sorted is used only if it has at most this many rows.
const FEW: u64 = 10_000;
/// A source with at most this many rows is used without counting the others.
const VERY_FEW: u64 = 100;

/// A set of rows that an index can find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// All instances, in the order of their keys.
    All,
    /// Blocked instances, including paused ones.
    Blocked,
    /// Instances with a status, which is never `Completed`: most instances are, and an index of them would not help.
    Status(Status),
    /// Instances of an orchestration.
    Name(String),
    /// The children of an instance, by the text of its key.
    Parent(String),
    /// An attribute's name and the order key of its value.
    Attribute(String, Vec<u8>),
    /// An attribute's name and the range of its order keys.
    AttributeRange(String, KeyRange),
    /// Ids from the first (inclusive) to the second (exclusive).
    Ids(String, Option<String>),
    /// Instances that ended from the first time (inclusive) to the second (exclusive).
    Ended(u64, u64),
}

/// The choice of the sources for a filter.
#[derive(Debug)]
pub struct SourceChoice {
    /// What was not counted yet, the most selective first. The first one may be counted in part.
    candidates: VecDeque<Vec<Source>>,
    /// How many sources of the first candidate were counted, and their rows.
    counted: (usize, u64),
    best: (u64, Vec<Source>),
    needs_sorting: fn(&Source) -> bool,
}

impl SourceChoice {
    /// Counting can stop at one more row than this.
    pub const COUNT_LIMIT: u64 = FEW;

    /// Begins a choice. `needs_sorting` tells whether the store's index returns the rows of a source in another order
    /// than that of their keys.
    pub fn new(filter: &Criteria, needs_sorting: fn(&Source) -> bool) -> SourceChoice {
        let mut candidates = VecDeque::from(candidates(filter));
        let mut best = (u64::MAX, vec![Source::All]);
        if candidates.len() == 1 && !candidates[0].iter().any(needs_sorting) {
            best.1 = candidates.pop_front().unwrap_or_default();
        }
        SourceChoice { candidates, counted: (0, 0), best, needs_sorting }
    }

    /// The source whose rows have to be counted next; `None` when the choice is made.
    pub fn to_count(&self) -> Option<&Source> {
        self.candidates.front()?.get(self.counted.0)
    }

    /// Takes the number of rows of the source that [`to_count`](SourceChoice::to_count) returned.
    pub fn set_count(&mut self, rows: u64) {
        let Some(first) = self.candidates.front() else { return };
        self.counted = (self.counted.0 + 1, self.counted.1.saturating_add(rows));
        if self.counted.0 < first.len() {
            return;
        }
        let (_, size) = std::mem::take(&mut self.counted);
        let sources = self.candidates.pop_front().unwrap_or_default();
        let is_usable = size <= FEW || !sources.iter().any(self.needs_sorting);
        if is_usable && size < self.best.0 {
            self.best = (size, sources);
        }
        if self.best.0 <= VERY_FEW {
            self.candidates.clear();
        }
    }

    /// The sources that together contain every match and, as far as is known, the fewest other rows.
    pub fn finish(self) -> Vec<Source> {
        self.best.1
    }
}

/// All combinations of sources that contain every match, the most selective first.
fn candidates(filter: &Criteria) -> Vec<Vec<Source>> {
    let mut candidates = Vec::new();
    if let Some(parent) = &filter.parent {
        candidates.push(vec![Source::Parent(parent.to_string())]);
    }
    if filter.blocked == Some(true) || filter.paused == Some(true) {
        candidates.push(vec![Source::Blocked]);
    }
    for (name, range) in filter.attribute_ranges() {
        let name = name.to_owned();
        candidates.push(vec![match range.only() {
            Some(order_key) => Source::Attribute(name, order_key.to_vec()),
            None => Source::AttributeRange(name, range),
        }]);
    }
    if let Some(prefix) = filter.id_prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
        candidates.push(vec![Source::Ids(prefix.clone(), after_prefix(prefix))]);
    }
    // A list in the order of the end otherwise walks the index of ends, which has the statuses apart.
    let is_by_end = filter.by_end.is_some();
    if !is_by_end && !filter.statuses.is_empty() && !filter.statuses.contains(&Status::Completed) {
        let asked = Status::ALL.into_iter().filter(|status| filter.statuses.contains(status));
        candidates.push(asked.map(Source::Status).collect());
    }
    let (from_ms, before_ms) = (filter.ended_from_ms, filter.ended_before_ms);
    if !is_by_end && (from_ms.is_some() || before_ms.is_some()) {
        candidates.push(vec![Source::Ended(from_ms.unwrap_or(0), before_ms.unwrap_or(u64::MAX))]);
    }
    if let Some(name) = &filter.name {
        candidates.push(vec![Source::Name(name.clone())]);
    }
    candidates
}

/// The smallest text that is greater than every text with the prefix; `None` if there is none.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_sorting(source: &Source) -> bool {
        matches!(source, Source::Ids(..) | Source::Ended(..))
    }

    /// Chooses with these sizes, and returns the sources that were counted.
    fn chosen(filter: &Criteria, size: impl Fn(&Source) -> u64) -> (Vec<Source>, usize) {
        let (mut choice, mut counted) = (SourceChoice::new(filter, needs_sorting), 0);
        while let Some(source) = choice.to_count() {
            let rows = size(source);
            counted += 1;
            choice.set_count(rows);
        }
        (choice.finish(), counted)
    }

    fn name() -> Source {
        Source::Name("order".to_owned())
    }

    #[test]
    fn s7_the_smallest_source_is_chosen_and_counting_stops_at_few_rows() {
        let filter = Criteria {
            name: Some("order".to_owned()),
            id_prefix: Some("o-".to_owned()),
            ended_before_ms: Some(5),
            ..Criteria::default()
        };
        let ids = Source::Ids("o-".to_owned(), Some("o.".to_owned()));
        let sizes = |of_ids: u64, of_ended: u64, of_name: u64| {
            move |source: &Source| match source {
                Source::Ids(..) => of_ids,
                Source::Ended(..) => of_ended,
                _ => of_name,
            }
        };
        assert_eq!(chosen(&filter, sizes(500, 400, 300)), (vec![name()], 3));
        assert_eq!(chosen(&filter, sizes(100, 0, 0)), (vec![ids], 1));
        assert_eq!(chosen(&filter, sizes(10_001, 10_001, 10_001)), (vec![name()], 3), "it needs no sorting");
        let ids_only = Criteria { id_prefix: Some("o-".to_owned()), ..Criteria::default() };
        assert_eq!(chosen(&ids_only, sizes(10_001, 0, 0)), (vec![Source::All], 1), "all would be sorted");
    }

    #[test]
    fn s7_a_single_source_in_the_order_of_keys_is_not_counted() {
        let filter = Criteria { name: Some("order".to_owned()), ..Criteria::default() };
        assert_eq!(chosen(&filter, |_| unreachable!("nothing to choose")), (vec![name()], 0));
        assert_eq!(chosen(&Criteria::default(), |_| unreachable!("no source")), (vec![Source::All], 0));
    }

    #[test]
    fn s7_several_statuses_count_together() {
        let statuses = vec![Status::Failed, Status::Running];
        let filter = Criteria { statuses, name: Some("order".to_owned()), ..Criteria::default() };
        let both = vec![Source::Status(Status::Running), Source::Status(Status::Failed)];
        let sizes = |of_name: u64| move |source: &Source| if *source == name() { of_name } else { 200 };
        assert_eq!(chosen(&filter, sizes(399)), (vec![name()], 3));
        assert_eq!(chosen(&filter, sizes(401)), (both, 3));
        let completed = Criteria { statuses: vec![Status::Completed], ..Criteria::default() };
        assert_eq!(chosen(&completed, |_| 0), (vec![Source::All], 0), "most instances are completed");
    }

    #[test]
    fn s7_texts_with_a_prefix_end_before_the_next_one() {
        assert_eq!(after_prefix("order-").as_deref(), Some("order."));
        assert_eq!(after_prefix("\u{d7ff}").as_deref(), Some("\u{e000}"), "there are no characters between");
        assert_eq!(after_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(after_prefix("\u{10ffff}"), None);
    }
}
