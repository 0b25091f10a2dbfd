//! Draws a history as text: one line per operation, with a bar from its schedule to its recorded outcome.

use std::collections::BTreeMap;

use perennial::history::{Decision, EventKind, Job};
use perennial::history::{Ending, EventId, History};

use crate::output::{many, short, span};

/// The number of columns of the bars.
const WIDTH: usize = 48;
/// The number of columns of an operation's name.
const LABEL: usize = 26;

struct Bar {
    event: EventId,
    label: String,
    from_ms: u64,
    /// The time of its outcome or cancellation; `None` while it is open.
    to_ms: Option<u64>,
    note: String,
}

/// Times from outside the history, such as crashes of a process.
pub(crate) struct Marks<'a> {
    pub(crate) label: &'a str,
    pub(crate) at_ms: &'a [u64],
}

/// Draws a history. Open bars end at `now_ms`.
pub(crate) fn draw(id: &str, history: &History, now_ms: u64, marks: Option<Marks<'_>>) -> Vec<String> {
    let (Some(first), Some(last)) = (history.turns.first(), history.turns.last()) else {
        return vec![format!("{id}: no history yet")];
    };
    let from_ms = first.at_ms;
    let to_ms = if history.ending().is_some() { last.at_ms } else { now_ms.max(last.at_ms) };
    let scale = Scale { from_ms, length_ms: (to_ms - from_ms).max(1) };
    let ending = match history.ending() {
        None => "open",
        Some(Ending::OrchestrationCompleted { .. }) => "completed",
        Some(Ending::OrchestrationFailed { .. }) => "failed",
        Some(Ending::OrchestrationContinuedAsNew { .. }) => "continued as new",
        Some(Ending::OrchestrationCancelled { .. }) => "cancelled",
        Some(Ending::OrchestrationTerminated { .. }) => "terminated",
    };
    let name =
        first.started().map_or(String::new(), |started| format!("  {} {}", started.name, started.version));
    let turns = many(history.turns.len() as u64, "turn");
    let mut lines = vec![
        format!("{id}{name}  {ending}, {turns} in {}", span(to_ms - from_ms)),
        format!("{:LABEL$}      0{:>width$}", "", span(to_ms - from_ms), width = WIDTH - 1),
    ];
    for bar in bars(history) {
        let drawn = scale.bar(bar.from_ms, bar.to_ms);
        let took =
            bar.to_ms.map_or_else(|| "open".to_owned(), |to_ms| span(to_ms.saturating_sub(bar.from_ms)));
        let label = short(&bar.label, LABEL);
        let note = if bar.note.is_empty() { String::new() } else { format!("  {}", bar.note) };
        lines.push(format!("{:>4}  {label:LABEL$}{drawn}  {took:>8}{note}", bar.event.0));
    }
    if let Some(marks) = marks {
        let mut row = vec![' '; WIDTH];
        let seen: Vec<u64> =
            marks.at_ms.iter().copied().filter(|at_ms| (from_ms..=to_ms).contains(at_ms)).collect();
        for at_ms in &seen {
            row[scale.column(*at_ms)] = '✗';
        }
        if !seen.is_empty() {
            let row: String = row.into_iter().collect();
            lines.push(format!("      {:LABEL$}{}", marks.label, row.trim_end()));
        }
    }
    lines
}

struct Scale {
    from_ms: u64,
    length_ms: u64,
}

impl Scale {
    fn column(&self, at_ms: u64) -> usize {
        let into = u128::from(at_ms.saturating_sub(self.from_ms));
        let column = into * (WIDTH as u128 - 1) / u128::from(self.length_ms);
        usize::try_from(column).unwrap_or(WIDTH).min(WIDTH - 1)
    }

    fn bar(&self, from_ms: u64, to_ms: Option<u64>) -> String {
        let from = self.column(from_ms);
        let to = to_ms.map_or(WIDTH - 1, |to_ms| self.column(to_ms));
        let column = |column: usize| match column {
            _ if column < from || column > to => ' ',
            _ if from == to => '│',
            _ if column == from => '├',
            _ if column == to && to_ms.is_some() => '┤',
            _ if column == to => '…',
            _ => '─',
        };
        (0..WIDTH).map(column).collect()
    }
}

/// The operations of a history, in the order of their events.
fn bars(history: &History) -> Vec<Bar> {
    let mut bars: BTreeMap<EventId, Bar> = BTreeMap::new();
    let mut waits: BTreeMap<String, Vec<EventId>> = BTreeMap::new();
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    for turn in history {
        let at_ms = turn.at_ms;
        let answer = |bars: &mut BTreeMap<EventId, Bar>, source: EventId, note: String| {
            if let Some(bar) = bars.get_mut(&source)
                && bar.to_ms.is_none()
            {
                (bar.to_ms, bar.note) = (Some(at_ms), note);
            }
        };
        for event in &turn.events {
            let id = event.id;
            let mut open = |label: String| {
                bars.insert(id, Bar { event: id, label, from_ms: at_ms, to_ms: None, note: String::new() });
            };
            match &event.kind {
                EventKind::Decision { decision, .. } => match decision {
                    Decision::ActivityScheduled { name, id, .. } => open(activity_label(name, id.as_deref())),
                    Decision::TimerCreated { due_ms } => {
                        open(format!("timer {}", span(due_ms.saturating_sub(at_ms))));
                    }
                    Decision::SubOrchestrationScheduled { name, .. } => open(format!("child {name}")),
                    Decision::ExternalSubscribed { name } => {
                        open(format!("wait {name}"));
                        match kept.get_mut(name).filter(|count| **count > 0) {
                            Some(count) => {
                                *count -= 1;
                                answer(&mut bars, id, "the event had already arrived".to_owned());
                            }
                            None => waits.entry(name.clone()).or_default().push(id),
                        }
                    }
                    Decision::ExternalUnsubscribed { source_event_id } => {
                        for waiting in waits.values_mut() {
                            waiting.retain(|wait| wait != source_event_id);
                        }
                        answer(&mut bars, *source_event_id, "cancelled".to_owned());
                    }
                    Decision::ActivityCancelRequested { source_event_id }
                    | Decision::TimerCancelled { source_event_id }
                    | Decision::SubOrchestrationCancelRequested { source_event_id } => {
                        answer(&mut bars, *source_event_id, "cancelled".to_owned());
                    }
                    Decision::UpdateCompleted { source_event_id, result } => {
                        let note = if result.is_ok() { "" } else { "failed" };
                        answer(&mut bars, *source_event_id, note.to_owned());
                    }
                    _ => {}
                },
                EventKind::Job(job) => match job {
                    Job::ActivityCompleted { source_event_id, attempts, .. } => {
                        answer(&mut bars, *source_event_id, attempts_note("", *attempts));
                    }
                    Job::ActivityFailed { source_event_id, attempts, .. } => {
                        answer(&mut bars, *source_event_id, attempts_note("failed", *attempts));
                    }
                    Job::TimerFired { source_event_id }
                    | Job::SubOrchestrationCompleted { source_event_id, .. } => {
                        answer(&mut bars, *source_event_id, String::new());
                    }
                    // Sent messages have no bar, and the bar of a child shows its end.
                    Job::SubOrchestrationStarted { .. } | Job::DeliveryReported { .. } => {}
                    Job::SubOrchestrationFailed { source_event_id, .. } => {
                        answer(&mut bars, *source_event_id, "failed".to_owned());
                    }
                    Job::ExternalEvent { name, .. } => {
                        let waiting = waits.get_mut(name).filter(|waiting| !waiting.is_empty());
                        match waiting.map(|waiting| waiting.remove(0)) {
                            Some(wait) => answer(&mut bars, wait, String::new()),
                            None => *kept.entry(name.clone()).or_default() += 1,
                        }
                    }
                    Job::ExternalEventSkipped { event_id } => {
                        open(format!("event {event_id} skipped"));
                        answer(&mut bars, id, String::new());
                    }
                    Job::InstanceResumed { why, .. } => {
                        open(format!("resumed {why}"));
                        answer(&mut bars, id, String::new());
                    }
                    Job::MessageSkipped { number, .. } => {
                        open(format!("message {number} skipped"));
                        answer(&mut bars, id, String::new());
                    }
                    Job::UpdateRequested { name, .. } => open(format!("update {name}")),
                    Job::OrchestrationCancelRequested { .. } => {
                        open("cancel requested".to_owned());
                        answer(&mut bars, id, String::new());
                    }
                },
                EventKind::Started(_) | EventKind::Ended(_) => {}
            }
        }
    }
    if let (Some(_), Some(last)) = (history.ending(), history.turns.last()) {
        for bar in bars.values_mut().filter(|bar| bar.to_ms.is_none()) {
            (bar.to_ms, bar.note) = (Some(last.at_ms), "left open".to_owned());
        }
    }
    bars.into_values().collect()
}

fn attempts_note(outcome: &str, attempts: u32) -> String {
    match (outcome, attempts) {
        (_, 0 | 1) => outcome.to_owned(),
        ("", _) => format!("{attempts} attempts"),
        _ => format!("{outcome}, {attempts} attempts"),
    }
}

/// The name of an activity, and its id if the code set one.
fn activity_label(name: &str, id: Option<&str>) -> String {
    id.map_or_else(|| format!("activity {name}"), |id| format!("activity {name} {id}"))
}

#[cfg(test)]
mod tests {
    use perennial::Payload;
    use perennial::history::{ActivityError, Decision, Event, EventKind, Job, Started, Turn, UnitId};
    use perennial::history::{Ending, EventId, History};

    use super::{Marks, draw};

    fn decided(decision: Decision) -> EventKind {
        EventKind::Decision { unit: UnitId::ROOT, decision }
    }

    fn scheduled(name: &str) -> EventKind {
        decided(Decision::ActivityScheduled {
            name: name.to_owned(),
            id: None,
            input: Payload::null(),
            options: None,
        })
    }

    #[test]
    fn e6_an_activity_is_shown_with_its_id() {
        assert_eq!(super::activity_label("charge", None), "activity charge");
        assert_eq!(super::activity_label("charge", Some("invoice-7")), "activity charge invoice-7");
    }

    /// Turns at the given times, with consecutive event numbers.
    fn history(turns: Vec<(u64, Vec<EventKind>)>) -> History {
        let mut ids = (1..).map(EventId);
        let turns = (1..).zip(turns).map(|(number, (at_ms, kinds))| {
            let events = kinds.into_iter().map(|kind| Event { id: ids.next().unwrap(), kind }).collect();
            Turn { format: 1, number, at_ms, draws: 0, events }
        });
        History { turns: turns.collect() }
    }

    fn story() -> Vec<(u64, Vec<EventKind>)> {
        let wait = |name: &str| decided(Decision::ExternalSubscribed { name: name.to_owned() });
        let raised = |name: &str| {
            EventKind::Job(Job::ExternalEvent {
                name: name.to_owned(),
                payload: Payload::null(),
                key: None,
                trace: None,
            })
        };
        let done = |id, attempts| {
            EventKind::Job(Job::ActivityCompleted {
                source_event_id: EventId(id),
                result: Payload::null(),
                attempts,
                trail: Default::default(),
            })
        };
        vec![
            (
                1_000,
                vec![
                    EventKind::Started(Box::new(Started::new("order", "1.0.0", "a rose", 1))),
                    scheduled("charge"),
                    decided(Decision::TimerCreated { due_ms: 61_000 }),
                    wait("approved"),
                ],
            ),
            (2_000, vec![done(2, 3), raised("early"), wait("early"), scheduled("pack")]),
            (
                3_000,
                vec![
                    raised("approved"),
                    EventKind::Job(Job::ActivityFailed {
                        source_event_id: EventId(8),
                        error: ActivityError::Cancelled,
                        attempts: 1,
                        trail: Default::default(),
                    }),
                    decided(Decision::TimerCancelled { source_event_id: EventId(3) }),
                    scheduled("ship"),
                ],
            ),
        ]
    }

    #[test]
    fn p8_a_timeline_has_a_bar_per_operation() {
        let mut turns = story();
        turns.push((
            5_000,
            vec![EventKind::Ended(Ending::OrchestrationCompleted { output: Payload::null() })],
        ));
        let marks = Marks { label: "kill -9", at_ms: &[500, 2_500, 9_000] };
        insta::assert_snapshot!(draw("order-1", &history(turns), 0, Some(marks)).join("\n"), @r"
        order-1  order 1.0.0  completed, 4 turns in 4.00 s
                                        0                                         4.00 s
           2  activity charge           ├──────────┤                                        1.00 s  3 attempts
           3  timer 1 min 0 s           ├──────────────────────┤                            2.00 s  cancelled
           4  wait approved             ├──────────────────────┤                            2.00 s
           7  wait early                           │                                          0 ms  the event had already arrived
           8  activity pack                        ├───────────┤                            1.00 s  failed
          12  activity ship                                    ├───────────────────────┤    2.00 s  left open
              kill -9                                    ✗
        ");
    }

    #[test]
    fn p8_what_is_open_goes_on_until_now() {
        insta::assert_snapshot!(draw("order-1", &history(story()), 11_000, None).join("\n"), @r"
        order-1  order 1.0.0  open, 3 turns in 10.00 s
                                        0                                        10.00 s
           2  activity charge           ├───┤                                               1.00 s  3 attempts
           3  timer 1 min 0 s           ├────────┤                                          2.00 s  cancelled
           4  wait approved             ├────────┤                                          2.00 s
           7  wait early                    │                                                 0 ms  the event had already arrived
           8  activity pack                 ├────┤                                          1.00 s  failed
          12  activity ship                      ├─────────────────────────────────────…      open
        ");
        assert_eq!(draw("x", &History::default(), 0, None), ["x: no history yet"]);
    }
}
