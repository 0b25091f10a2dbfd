//! Facts: what happened in a shard, as plain values. The driver makes metrics of them.
//!
//! They are collected only if [`ShardOptions::observed`](super::ShardOptions::observed) is set; otherwise nothing is
//! computed or allocated for them. No decision depends on a fact. A fact is stated once it is final: that of a turn when
//! its commit is durable or was refused. Replaying and hydrating state none about the work that they repeat.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::code::ErrorCode;
use crate::pattern::NamePattern;
use crate::store::Status;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The first turn of an instance is durable.
    InstanceStarted {
        /// The label of the name it was registered under.
        orchestration: Label,
    },
    /// An instance reached its final status.
    InstanceEnded {
        /// The label of the name it was registered under.
        orchestration: Label,
        /// Its final status.
        status: Status,
        /// The time since it was created, in milliseconds.
        took_ms: u64,
    },
    /// A turn was taken.
    Turn {
        /// The label of the instance's orchestration.
        orchestration: Label,
        /// What became of it.
        end: TurnEnd,
        /// How long the code ran; `None` if the thread did not come back.
        took: Option<Duration>,
    },
    /// Another attempt of an activity follows a failed one.
    Retry {
        /// The label of the name it was scheduled under.
        activity: Label,
    },
    /// The firing of a timer is durable.
    TimerFired {
        /// How late, in milliseconds.
        late_ms: u64,
    },
    /// An instance cannot take its next turn, for the reason with this code.
    Blocked(ErrorCode),
    /// An instance is no longer blocked for this reason: it goes on, has ended, or is blocked for another one.
    Unblocked(ErrorCode),
    /// A dormant execution was loaded and replayed.
    Hydrated {
        /// How long decoding and replaying its turns took.
        took: Duration,
    },
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// Its commit is durable.
    Committed,
    /// Its code panicked, diverged or broke a limit.
    Failed,
    /// It was not written: the store refused it, or the shard was lost first.
    Refused,
}

/// The place of a name among those that facts tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(u16);

impl Label {
    /// All names that are not told apart.
    pub const OTHER: Label = Label(u16::MAX);

    /// Its index in [`ObservedNames::labels`]; `None` for [`Label::OTHER`].
    pub fn index(self) -> Option<usize> {
        (self != Label::OTHER).then_some(usize::from(self.0))
    }
}

/// The orchestrations and activities that facts tell apart.
#[derive(Debug, Default)]
pub struct Observed {
    /// Names and patterns that are registered as orchestrations here.
    pub orchestrations: ObservedNames,
    /// Names and patterns that are registered as activities here.
    pub activities: ObservedNames,
}

/// A limited number of names and patterns, each with a label.
#[derive(Debug, Default)]
pub struct ObservedNames {
    labels: Vec<String>,
    exact: FxHashMap<String, Label>,
    patterns: Vec<(NamePattern, Label)>,
}

impl ObservedNames {
    /// Gives labels to the first `limit` of these names, then to patterns.
    pub fn new(
        names: impl IntoIterator<Item = String>,
        patterns: impl IntoIterator<Item = NamePattern>,
        limit: usize,
    ) -> ObservedNames {
        let (mut observed, limit) = (ObservedNames::default(), limit.min(usize::from(u16::MAX)));
        let label = |labels: &Vec<String>| {
            let next = u16::try_from(labels.len()).map_or(Label::OTHER, Label);
            (labels.len() < limit).then_some(next)
        };
        for name in names {
            let Some(next) = label(&observed.labels) else { break };
            observed.exact.insert(name.clone(), next);
            observed.labels.push(name);
        }
        for pattern in patterns {
            let Some(next) = label(&observed.labels) else { break };
            observed.labels.push(pattern.to_string());
            observed.patterns.push((pattern, next));
        }
        // The longest prefix is the most specific.
        observed.patterns.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.prefix().len()));
        observed
    }

    /// The names and patterns with a label, in the order of their labels.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The label of a name.
    pub fn label(&self, name: &str) -> Label {
        if let Some(label) = self.exact.get(name) {
            return *label;
        }
        let covering = self.patterns.iter().find(|(pattern, _)| pattern.covers(name));
        covering.map_or(Label::OTHER, |(_, label)| *label)
    }
}

/// The facts of a shard that the driver has not taken.
#[derive(Default)]
pub(super) struct Facts {
    observed: Option<Arc<Observed>>,
    stated: Vec<Fact>,
}

impl Facts {
    pub(super) fn new(observed: Option<Arc<Observed>>) -> Facts {
        Facts { observed, stated: Vec::new() }
    }

    /// Whether facts are collected.
    pub(super) fn are_wanted(&self) -> bool {
        self.observed.is_some()
    }

    pub(super) fn state(&mut self, fact: Fact) {
        if self.are_wanted() {
            self.stated.push(fact);
        }
    }

    /// The label of an orchestration; `None` if no facts are collected.
    pub(super) fn orchestration(&self, name: &str) -> Option<Label> {
        self.observed.as_ref().map(|observed| observed.orchestrations.label(name))
    }

    pub(super) fn state_retry(&mut self, activity: &str) {
        if let Some(observed) = &self.observed {
            self.stated.push(Fact::Retry { activity: observed.activities.label(activity) });
        }
    }

    /// Exchanges the list with the caller's.
    pub(super) fn swap(&mut self, stated: &mut Vec<Fact>) {
        std::mem::swap(&mut self.stated, stated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("name-{number:03}"))
    }

    #[test]
    fn o2_names_beyond_the_limit_share_one_label() {
        let names = ObservedNames::new(numbered(300), [NamePattern::parse("http.*").unwrap()], 200);
        assert_eq!(names.labels().len(), 200);
        assert_eq!(names.label("name-199").index(), Some(199));
        assert_eq!(names.label("name-200"), Label::OTHER);
        assert_eq!(names.label("http.get"), Label::OTHER, "patterns come after names");
        assert_eq!(names.label("never registered"), Label::OTHER);
        assert_eq!(Label::OTHER.index(), None);
    }

    #[test]
    fn o2_a_name_that_only_a_pattern_covers_has_the_label_of_the_pattern() {
        let patterns = ["*", "http.*", "http.get.*"].map(|text| NamePattern::parse(text).unwrap());
        let names = ObservedNames::new(["http.put".to_owned()], patterns, 200);
        let shown = |name: &str| names.label(name).index().map(|index| names.labels()[index].as_str());
        assert_eq!(shown("http.put"), Some("http.put"));
        assert_eq!(shown("http.get.one"), Some("http.get.*"));
        assert_eq!(shown("http.delete"), Some("http.*"));
        assert_eq!(shown("mail"), Some("*"));
    }

    #[test]
    fn o1_nothing_is_collected_unless_it_is_asked_for() {
        let mut facts = Facts::default();
        facts.state(Fact::TimerFired { late_ms: 1 });
        facts.state_retry("charge");
        assert_eq!(facts.orchestration("order"), None);
        let mut taken = Vec::new();
        facts.swap(&mut taken);
        assert_eq!(taken.capacity(), 0);
    }
}
