//! The attempts of an instance's activities: ended ones from the history, and those of activities that are
//! still being retried from their tasks.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use perennial::history::History;
use perennial::history::{Decision, EventId, EventKind, Job, PastAttempt, Trail};
use perennial::options::ActivityOptions;
use perennial::store::{TaskRow, TaskState};
use perennial::{ActivityError, Payload};
use serde::Serialize;

use crate::output::{fitting, many, moment, span};

/// An activity that did not simply succeed at its first attempt.
#[derive(Serialize)]
pub(crate) struct Tried<'a> {
    name: &'a str,
    event: EventId,
    /// The number of attempts made, or the number of the next one.
    attempt: u32,
    state: &'static str,
    /// The time of the next attempt. For an attempt that waits for its token, the time at which it times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    /// The start of the attempt that waits for its completion token.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for_token_since_ms: Option<u64>,
    /// The number of times in a row that the process crashed while it ran, as far as the activity is
    /// suspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    interruptions: Option<NonZeroU32>,
    attempts: Vec<AttemptView<'a>>,
}

/// One attempt that has ended.
#[derive(Serialize)]
struct AttemptView<'a> {
    queued_ms: u64,
    began_ms: u64,
    ended_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    /// How it failed; absent if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The activities that were retried, failed, or wait for another attempt, in the order in which they were
/// scheduled.
pub(crate) fn tried<'a>(history: &'a History, tasks: &'a [TaskRow]) -> Vec<Tried<'a>> {
    let mut names: BTreeMap<EventId, &str> = BTreeMap::new();
    let mut deadlines: BTreeMap<EventId, u64> = BTreeMap::new();
    let mut found: BTreeMap<EventId, Tried<'_>> = BTreeMap::new();
    let reset_ms =
        history.started().and_then(|started| started.reset.as_ref()).map_or(0, |reset| reset.at_ms);
    let events = history.turns.iter().flat_map(|turn| turn.events.iter().map(|event| (turn.at_ms, event)));
    for (at_ms, event) in events {
        match &event.kind {
            EventKind::Decision { decision: Decision::ActivityScheduled { name, options, .. }, .. } => {
                names.insert(event.id, name);
                let total_ms = |options: &ActivityOptions| options.total_timeout_ms;
                let total_ms = options.as_deref().and_then(total_ms);
                deadlines.extend(total_ms.map(|ms| (event.id, at_ms.max(reset_ms).saturating_add(ms))));
            }
            EventKind::Job(
                job @ (Job::ActivityCompleted { source_event_id, attempts, trail, .. }
                | Job::ActivityFailed { source_event_id, attempts, trail, .. }),
            ) => {
                let failure = match job {
                    Job::ActivityFailed { error, .. } => Some(error),
                    _ => None,
                };
                if failure.is_some() || *attempts > 1 {
                    let name = names.get(source_event_id).copied().unwrap_or_default();
                    let state = if failure.is_some() { "failed" } else { "completed" };
                    let mut tried = Tried::new(name, *source_event_id, *attempts, state, trail);
                    // The trail leaves the error of the last attempt to the event.
                    if let (Some(last), Some(failure)) = (tried.attempts.last_mut(), failure) {
                        last.error.get_or_insert_with(|| failure_text(failure));
                    }
                    found.insert(*source_event_id, tried);
                }
            }
            _ => {}
        }
    }
    for task in tasks {
        let (event, state) = (task.id.event, task.state.name());
        let due_ms = task.due_ms.filter(|_| task.state == TaskState::Waiting);
        let waits_for_token_since_ms = task.waits_for_token_since_ms();
        // The attempt also ends at the deadline of the activity.
        let deadline_ms = deadlines.get(&event).filter(|_| waits_for_token_since_ms.is_some());
        let tried = Tried {
            due_ms: due_ms.into_iter().chain(deadline_ms.copied()).min(),
            waits_for_token_since_ms,
            interruptions: NonZeroU32::new(task.interruptions),
            ..Tried::new(&task.name, event, task.attempt, state, &task.past)
        };
        found.insert(event, tried);
    }
    found.into_values().collect()
}

/// How many activities are printed.
const SHOWN: usize = 50;

/// The lines for people: of many activities, the latest.
pub(crate) fn latest(tried: &[Tried<'_>]) -> Vec<String> {
    let left_out = tried.len().saturating_sub(SHOWN);
    let more = || format!("{} before these; `perennial show --json` has all", many_activities(left_out));
    let shown = tried[left_out..].iter().flat_map(Tried::lines);
    (left_out > 0).then(more).into_iter().chain(shown).collect()
}

fn many_activities(count: usize) -> String {
    format!("{count} {}", if count == 1 { "activity" } else { "activities" })
}

impl<'a> Tried<'a> {
    fn new(
        name: &'a str,
        event: EventId,
        attempt: u32,
        state: &'static str,
        attempts: &'a Trail,
    ) -> Tried<'a> {
        let attempts = attempts.iter().map(AttemptView::from).collect();
        let (due_ms, waits_for_token_since_ms, interruptions) = (None, None, None);
        Tried { name, event, attempt, state, due_ms, waits_for_token_since_ms, interruptions, attempts }
    }

    /// One line for the activity, and one for each attempt.
    fn lines(&self) -> Vec<String> {
        let Tried { name, event, attempt, state, due_ms, interruptions, attempts, .. } = self;
        let due_ms = due_ms.map(moment);
        let state = match (self.waits_for_token_since_ms, due_ms) {
            (Some(since_ms), Some(due)) => {
                format!("waiting for its token since {}, times out {due}", moment(since_ms))
            }
            (Some(since_ms), None) => {
                format!("waiting for its token since {}, without a time limit", moment(since_ms))
            }
            (None, Some(due)) => format!("{state}, due {due}"),
            (None, None) => (*state).to_owned(),
        };
        let interrupted = interruptions.map_or_else(String::new, |times| {
            format!("; the process crashed {} in a row while it ran", many(times.get().into(), "time"))
        });
        let head = format!("activity {name:?} (event {event}): attempt {attempt} {state}{interrupted}");
        std::iter::once(head).chain(attempts.iter().map(attempt_line)).collect()
    }
}

impl<'a> From<&'a PastAttempt> for AttemptView<'a> {
    fn from(past: &'a PastAttempt) -> AttemptView<'a> {
        let PastAttempt { queued_ms, began_ms, ended_ms, node, error } = past;
        let (queued_ms, began_ms, ended_ms) = (*queued_ms, *began_ms, *ended_ms);
        let error = error.as_ref().map(|error| error_text(error));
        AttemptView { queued_ms, began_ms, ended_ms, node: node.as_deref(), error }
    }
}

/// Errors are recorded as JSON. One that is a text reads better without its quotes.
fn error_text(error: &str) -> String {
    Payload::from_json(error).map_or_else(|_| error.to_owned(), |error| error.to_text())
}

fn failure_text(failure: &ActivityError) -> String {
    match failure {
        ActivityError::Application(error) => error.to_text(),
        failure => failure.to_string(),
    }
}

fn attempt_line(attempt: &AttemptView<'_>) -> String {
    let AttemptView { began_ms, ended_ms, node, error, .. } = attempt;
    let place = node.map_or_else(String::new, |node| format!(" on {node}"));
    let ended = error.as_ref().map_or_else(|| "ok".to_owned(), |error| fitting(error, 200));
    let took = span(ended_ms.saturating_sub(*began_ms));
    format!("  {}{place}, took {took}: {ended}", moment(*began_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p8_the_latest_of_many_activities_are_printed() {
        let attempts = Trail::default();
        let tried = |count: u64| {
            let one = |event| Tried::new("send", EventId(event), 1, "leased", &attempts);
            latest(&(1..=count).map(one).collect::<Vec<_>>())
        };
        assert_eq!(tried(50).len(), 50);
        let many = tried(10_000);
        assert_eq!(many.len(), 51);
        assert_eq!(many[0], "9950 activities before these; `perennial show --json` has all");
        assert_eq!(many[50], r#"activity "send" (event 10000): attempt 1 leased"#);
    }

    #[test]
    fn g22_an_activity_whose_process_died_shows_how_often() {
        let attempts = Trail::default();
        let (name, event, state, due_ms) = ("bomb", EventId(2), "waiting", Some(0));
        let line = |interruptions| {
            let interruptions = NonZeroU32::new(interruptions);
            let tried = Tried { due_ms, interruptions, ..Tried::new(name, event, 1, state, &attempts) };
            tried.lines().remove(0)
        };
        let due = r#"activity "bomb" (event 2): attempt 1 waiting, due 1970-01-01T00:00:00.000Z"#;
        assert_eq!(line(0), due);
        assert_eq!(line(1), format!("{due}; the process crashed 1 time in a row while it ran"));
        assert_eq!(line(4), format!("{due}; the process crashed 4 times in a row while it ran"));
    }
}
