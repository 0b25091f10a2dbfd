//! Numbers of rows that are finished. A page that contains them may have been read before they were.

use std::collections::{BTreeSet, VecDeque};

#[derive(Default)]
pub(super) struct Consumed {
    numbers: BTreeSet<u64>,
    order: VecDeque<u64>,
}

impl Consumed {
    /// How many numbers are remembered: far more than a page that is being read can contain.
    const REMEMBERED: usize = 20_000;
    /// What a number takes in memory: its place in the order, and in a tree whose nodes are on average two thirds full.
    const NUMBER_BYTES: u64 = 8 + 8 * 3 / 2 + 4;

    /// What the numbers take in memory. It counts as much as the histories of idle executions (G11).
    pub(super) fn bytes(&self) -> u64 {
        self.order.len() as u64 * Consumed::NUMBER_BYTES
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    pub(super) fn extend(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if self.numbers.insert(number) {
                self.order.push_back(number);
            }
            if self.order.len() > Consumed::REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.numbers.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_the_numbers_that_were_consumed_last_are_remembered() {
        let mut consumed = Consumed::default();
        let count = Consumed::REMEMBERED as u64;
        consumed.extend([7, 7]);
        consumed.extend(100..100 + count - 1);
        assert!(consumed.contains(7) && consumed.contains(100));
        consumed.extend([8]);
        assert!(!consumed.contains(7) && consumed.contains(100) && consumed.contains(8));
        assert_eq!(consumed.numbers.len(), consumed.order.len());
    }
}
