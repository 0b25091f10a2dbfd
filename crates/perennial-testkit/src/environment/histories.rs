//! Recorded histories in a form that tests compare.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial_core::{Decision, Event, EventKind, History, Job, Turn};

/// The history of one execution under test.
#[derive(Clone, Debug, PartialEq)]
pub struct TestHistory {
    history: History,
}

impl TestHistory {
    pub(super) fn new(history: History) -> TestHistory {
        TestHistory { history }
    }

    /// The underlying history.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The names of the activities that were scheduled, in order.
    pub fn activities(&self) -> Vec<String> {
        self.decisions(|_, decision| match decision {
            Decision::ActivityScheduled { name, .. } => Some(name.clone()),
            _ => None,
        })
    }

    /// The names of the sub-orchestrations that were scheduled, in order.
    pub fn children(&self) -> Vec<String> {
        self.decisions(|_, decision| match decision {
            Decision::SubOrchestrationScheduled { name, .. } => Some(name.clone()),
            _ => None,
        })
    }

    /// The durations of the timers, in order. Includes the timers of timeouts.
    pub fn timers(&self) -> Vec<Duration> {
        self.decisions(|turn, decision| match decision {
            Decision::TimerCreated { due_ms } => {
                Some(Duration::from_millis(due_ms.saturating_sub(turn.at_ms)))
            }
            _ => None,
        })
    }

    /// The names of the events that were waited for, in order.
    pub fn waits(&self) -> Vec<String> {
        self.decisions(|_, decision| match decision {
            Decision::ExternalSubscribed { name } => Some(name.clone()),
            _ => None,
        })
    }

    /// The number of attempts of each activity that has ended, by name, in the order in which they ended.
    pub fn attempts(&self) -> Vec<(String, u32)> {
        let mut names = BTreeMap::new();
        let mut attempts = Vec::new();
        for event in self.history.flatten() {
            match &event.kind {
                EventKind::Decision { decision: Decision::ActivityScheduled { name, .. }, .. } => {
                    names.insert(event.id, name.clone());
                }
                EventKind::Job(
                    Job::ActivityCompleted { source_event_id, attempts: count, .. }
                    | Job::ActivityFailed { source_event_id, attempts: count, .. },
                ) => attempts.extend(names.get(source_event_id).map(|name| (name.clone(), *count))),
                _ => {}
            }
        }
        attempts
    }

    /// The virtual time from the first turn of the execution to its last.
    pub fn duration(&self) -> Duration {
        let first = self.history.turns.first().map_or(0, |turn| turn.at_ms);
        let last = self.history.turns.last().map_or(0, |turn| turn.at_ms);
        Duration::from_millis(last - first)
    }

    /// Every event as a line, such as `2 ActivityScheduled "charge" 500`. Timers show their duration.
    pub fn lines(&self) -> Vec<String> {
        let turns = self.history.turns.iter();
        turns.flat_map(|turn| turn.events.iter().map(|event| line(turn, event))).collect()
    }

    /// Asserts that exactly these activities were scheduled, in this order.
    ///
    /// # Panics
    ///
    /// If other activities were scheduled.
    #[track_caller]
    pub fn assert_activities(&self, names: &[&str]) {
        assert_eq!(
            self.activities(),
            names,
            "other activities were scheduled; the history:\n{}",
            self.text()
        );
    }

    /// Asserts that the history has exactly these lines, see [`TestHistory::lines`].
    ///
    /// # Panics
    ///
    /// If the history has other lines.
    #[track_caller]
    pub fn assert_lines(&self, lines: &[&str]) {
        assert_eq!(self.lines(), lines, "the history has other events:\n{}", self.text());
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }

    fn decisions<T>(&self, pick: impl Fn(&Turn, &Decision) -> Option<T>) -> Vec<T> {
        let turns = self.history.turns.iter();
        let picked = turns.flat_map(|turn| {
            let decisions: Vec<T> =
                turn.decisions().filter_map(|(_, _, decision)| pick(turn, decision)).collect();
            decisions
        });
        picked.collect()
    }
}

fn line(turn: &Turn, event: &Event) -> String {
    match &event.kind {
        EventKind::Decision { decision: Decision::TimerCreated { due_ms }, .. } => {
            let runs = Duration::from_millis(due_ms.saturating_sub(turn.at_ms));
            format!("{} TimerCreated for {runs:?}", event.id)
        }
        _ => format!("{} {}", event.id, event.summary()),
    }
}
