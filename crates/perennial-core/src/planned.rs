//! Actions planned for a time, ordered by time and then by insertion.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use crate::lane::Moment;

#[derive(Debug)]
pub(crate) struct Planned<P> {
    next: u64,
    by_time: BTreeMap<(Moment, u64), P>,
}

impl<P> Default for Planned<P> {
    fn default() -> Planned<P> {
        Planned { next: 0, by_time: BTreeMap::new() }
    }
}

impl<P> Planned<P> {
    pub(crate) fn add(&mut self, at: Moment, what: P) {
        self.next += 1;
        self.by_time.insert((at, self.next), what);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &P> {
        self.by_time.values()
    }

    /// Removes the actions that are due.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<P> {
        let rest = self.by_time.split_off(&(now + Duration::from_nanos(1), 0));
        mem::replace(&mut self.by_time, rest).into_values().collect()
    }

    /// Removes matching actions, whatever their time.
    pub(crate) fn take_all(&mut self, is_it: impl Fn(&P) -> bool) -> Vec<P> {
        self.by_time.extract_if(.., |_, what| is_it(what)).map(|(_, what)| what).collect()
    }

    /// When the next action is due.
    pub(crate) fn next_wake(&self) -> Option<Moment> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn clear(&mut self) {
        self.by_time.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn n5_what_is_planned_comes_in_the_order_of_times_and_of_being_planned() {
        let mut planned = Planned::default();
        for (ms, what) in [(30, 'a'), (10, 'b'), (10, 'c'), (20, 'd')] {
            planned.add(at(ms), what);
        }
        assert_eq!(planned.next_wake(), Some(at(10)));
        assert!(planned.take_due(at(9)).is_empty());
        assert_eq!(planned.take_due(at(10)), ['b', 'c']);
        assert_eq!(planned.take_all(|what| *what == 'd'), ['d']);
        assert_eq!((planned.iter().collect::<String>(), planned.next_wake()), ("a".to_owned(), Some(at(30))));
    }
}
