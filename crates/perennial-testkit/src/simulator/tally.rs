//! Counts of everything that happened, which show that faults did occur.

use std::collections::BTreeMap;

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(pub(super) BTreeMap<&'static str, u64>);

impl Tally {
    /// The count of a name.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Tally) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// All counts by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, count)| (*what, *count))
    }
}
