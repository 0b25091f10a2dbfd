//! What a caller sees of a timeline: rows of a window, counts of a long one, sums by name, and the critical path.

use std::collections::BTreeMap;

use perennial::client::{TaskRow, TaskState};
use perennial::history::{EventId, PastAttempt};
use serde::Serialize;

use super::{Operation, Timeline};
use crate::schema::{Schema, array, boolean, component, integer, named, object, string, time};

/// How many buckets a long window is divided into.
const BUCKETS: u64 = 200;
/// How many names are summed up.
const NAMES: usize = 200;
/// How many steps of the critical path are shown: the last ones.
const STEPS: usize = 1_000;

const KINDS: &[&str] = &["activity", "timer", "event", "child", "update", "start", "send"];
const OUTCOMES: &[&str] = &["open", "completed", "failed", "cancelled"];

/// A window of a timeline.
#[derive(Serialize)]
pub(crate) struct Shown {
    /// In the order in which they were scheduled. Of more than the limit, the last ones.
    operations: Vec<Row>,
    /// How many operations of the window are not shown.
    others: usize,
    /// The turns of the window; none if there are more than the limit.
    turns: Vec<Tick>,
    /// How many turns the window has.
    turn_count: usize,
    /// Counts of the whole window, if it has more operations or turns than are shown.
    buckets: Vec<Bucket>,
    /// What the time from the first turn to the end, or to now, consists of.
    critical_path: Vec<Step>,
    totals: Vec<Total>,
    /// Whether there are more names than are summed up.
    more_totals: bool,
}

#[derive(Serialize)]
struct Row {
    event: EventId,
    kind: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    turn: u64,
    scheduled_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<EventId>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// The state of the row of an activity that is retried, queued, or runs elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    attempts: Vec<Attempt>,
}

#[derive(Serialize)]
struct Attempt {
    queued_ms: u64,
    began_ms: u64,
    ended_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Tick {
    number: u64,
    at_ms: u64,
}

#[derive(Clone, Default, Serialize)]
struct Bucket {
    from_ms: u64,
    turns: u64,
    scheduled: u64,
    ended: u64,
    failed: u64,
    retried: u64,
}

#[derive(Serialize)]
struct Step {
    event: EventId,
    from_ms: u64,
    to_ms: u64,
}

/// Times of all operations of a kind and name.
#[derive(Default, Serialize)]
struct Total {
    kind: &'static str,
    name: String,
    count: u64,
    open: u64,
    failed: u64,
    retried: u64,
    /// Waiting for a worker.
    queue_ms: u64,
    /// In attempts.
    run_ms: u64,
    /// Between attempts.
    pause_ms: u64,
    /// Everything else: timers, events, children.
    wait_ms: u64,
}

impl Timeline {
    /// A window of it, at the time `now_ms`.
    pub(crate) fn shown(
        &self,
        (from_ms, to_ms): (u64, u64),
        limit: usize,
        tasks: &[TaskRow],
        now_ms: u64,
        hides: bool,
    ) -> Shown {
        let is_within = |operation: &Operation| {
            operation.ended_ms.is_none_or(|ended_ms| ended_ms >= from_ms) && operation.scheduled_ms < to_ms
        };
        let within: Vec<(&EventId, &Operation)> =
            self.operations.iter().filter(|(_, operation)| is_within(operation)).collect();
        let others = within.len().saturating_sub(limit);
        let tasks: BTreeMap<EventId, &TaskRow> = tasks.iter().map(|task| (task.id.event, task)).collect();
        let row = |(event, operation): &(&EventId, &Operation)| {
            Row::new(**event, operation, tasks.get(event).copied(), hides)
        };
        let operations = within[others..].iter().map(row).collect();
        let marks = self.turns.iter().enumerate().map(|(place, mark)| (place as u64 + 1, mark));
        let ticks: Vec<Tick> = marks
            .filter(|(_, mark)| (from_ms..to_ms).contains(&mark.at_ms))
            .map(|(number, mark)| Tick { number, at_ms: mark.at_ms })
            .collect();
        let turn_count = ticks.len();
        let is_long = others > 0 || turn_count > limit;
        let buckets =
            if is_long { self.buckets(&within, &ticks, (from_ms, to_ms), now_ms) } else { Vec::new() };
        let mut totals = totals(&within, &tasks, now_ms);
        let more_totals = totals.len() > NAMES;
        totals.truncate(NAMES);
        Shown {
            operations,
            others,
            turns: if turn_count > limit { Vec::new() } else { ticks },
            turn_count,
            buckets,
            critical_path: self.critical_path(now_ms),
            totals,
            more_totals,
        }
    }

    fn buckets(
        &self,
        within: &[(&EventId, &Operation)],
        ticks: &[Tick],
        (from_ms, to_ms): (u64, u64),
        now_ms: u64,
    ) -> Vec<Bucket> {
        let first_ms = self.turns.first().map_or(now_ms, |turn| turn.at_ms);
        let (from_ms, to_ms) = (from_ms.max(first_ms), to_ms.min(now_ms.saturating_add(1)));
        let width_ms = to_ms.saturating_sub(from_ms).div_ceil(BUCKETS).max(1);
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut begin = from_ms;
        while begin < to_ms {
            buckets.push(Bucket { from_ms: begin, ..Bucket::default() });
            begin += width_ms;
        }
        let mut note = |at_ms: u64, count: fn(&mut Bucket)| {
            let place = at_ms.checked_sub(from_ms).map(|after_ms| after_ms / width_ms);
            if let Some(bucket) = place.and_then(|place| buckets.get_mut(usize::try_from(place).ok()?)) {
                count(bucket);
            }
        };
        ticks.iter().for_each(|tick| note(tick.at_ms, |bucket| bucket.turns += 1));
        for (_, operation) in within {
            note(operation.scheduled_ms, |bucket| bucket.scheduled += 1);
            if operation.trail.iter().count() > 1 {
                note(operation.scheduled_ms, |bucket| bucket.retried += 1);
            }
            if let Some(ended_ms) = operation.ended_ms {
                note(ended_ms, |bucket| bucket.ended += 1);
                if operation.outcome == "failed" {
                    note(ended_ms, |bucket| bucket.failed += 1);
                }
            }
        }
        buckets
    }

    /// From the end back to the first turn: the operation whose result a turn was taken for, then the turn that
    /// scheduled it, and so on. While the execution runs it begins with the operation that has been open for the longest.
    fn critical_path(&self, now_ms: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        let open = self.operations.iter().find(|(_, operation)| operation.outcome == "open");
        let mut turn = self.last_turn();
        if let Some((event, operation)) = open {
            steps.push(Step { event: *event, from_ms: operation.scheduled_ms, to_ms: now_ms });
            turn = operation.turn;
        }
        while turn > 0 && steps.len() < STEPS {
            let mark = usize::try_from(turn - 1).ok().and_then(|place| self.turns.get(place));
            let Some(mark) = mark else { break };
            let woken = mark.woken_by.and_then(|event| Some((event, self.operations.get(&event)?)));
            match woken.filter(|(_, operation)| operation.turn < turn) {
                Some((event, operation)) => {
                    let (from_ms, to_ms) = (operation.scheduled_ms, mark.at_ms);
                    steps.push(Step { event, from_ms, to_ms });
                    turn = operation.turn;
                }
                // Taken for something else, for example an event that nothing waited for.
                None => turn -= 1,
            }
        }
        steps.reverse();
        steps
    }
}

fn totals(within: &[(&EventId, &Operation)], tasks: &BTreeMap<EventId, &TaskRow>, now_ms: u64) -> Vec<Total> {
    let mut totals: BTreeMap<(&'static str, &str), Total> = BTreeMap::new();
    for (event, operation) in within {
        // While an activity is retried, its attempts are in its row.
        let trail = tasks.get(event).map_or(&operation.trail, |task| &task.past);
        let total = totals.entry((operation.kind, &operation.name)).or_insert_with(|| Total {
            kind: operation.kind,
            name: operation.name.clone(),
            ..Total::default()
        });
        let took_ms = match (operation.outcome, operation.ended_ms) {
            ("open", _) => now_ms.saturating_sub(operation.scheduled_ms),
            (_, Some(ended_ms)) => ended_ms.saturating_sub(operation.scheduled_ms),
            _ => 0,
        };
        total.count += 1;
        total.open += u64::from(operation.outcome == "open");
        total.failed += u64::from(operation.outcome == "failed");
        if operation.kind != "activity" {
            total.wait_ms += took_ms;
            continue;
        }
        let attempts = || trail.iter();
        let queue_ms: u64 = attempts().map(|past| past.began_ms.saturating_sub(past.queued_ms)).sum();
        let run_ms: u64 = attempts().map(|past| past.ended_ms.saturating_sub(past.began_ms)).sum();
        let is_retried = attempts().count() > 1 || tasks.get(event).is_some_and(|task| task.attempt > 1);
        total.retried += u64::from(is_retried);
        (total.queue_ms, total.run_ms) = (total.queue_ms + queue_ms, total.run_ms + run_ms);
        total.pause_ms += took_ms.saturating_sub(queue_ms + run_ms);
    }
    let mut totals: Vec<Total> = totals.into_values().collect();
    totals.sort_by_key(|total| {
        std::cmp::Reverse(total.queue_ms + total.run_ms + total.pause_ms + total.wait_ms)
    });
    totals
}

impl Row {
    fn new(event: EventId, operation: &Operation, task: Option<&TaskRow>, hides: bool) -> Row {
        let hidden = |error: String| if hides { "hidden".to_owned() } else { error };
        let Operation { kind, name, unit, turn, scheduled_ms, due_ms, ended_ms, ended_by, outcome, .. } =
            operation.clone();
        let trail = task.map_or(&operation.trail, |task| &task.past);
        let next_ms = task.filter(|task| task.state == TaskState::Waiting).and_then(|task| task.due_ms);
        Row {
            event,
            kind,
            name,
            unit,
            turn,
            scheduled_ms,
            due_ms: next_ms.or(due_ms),
            ended_ms,
            ended_by,
            outcome,
            error: operation.error.clone().map(hidden),
            instance: operation.instance.clone(),
            attempt: task.map(|task| task.attempt),
            state: task.map(|task| task.state.name()),
            since_ms: task.and_then(|task| task.since_ms),
            attempts: trail.iter().map(|past| Attempt::new(past, hides)).collect(),
        }
    }
}

impl Attempt {
    fn new(past: &PastAttempt, hides: bool) -> Attempt {
        let PastAttempt { queued_ms, began_ms, ended_ms, node, error } = past.clone();
        let error = error.map(|error| if hides { "hidden".to_owned() } else { error });
        Attempt { queued_ms, began_ms, ended_ms, node, error }
    }
}

/// The members of [`Shown`].
pub(crate) fn schema() -> Vec<(&'static str, Schema)> {
    let attempt = component(
        "Attempt",
        object(
            &[("queued_ms", time()), ("began_ms", time()), ("ended_ms", time())],
            &[("node", string()), ("error", string())],
        ),
    );
    let operation = component(
        "TimelineOperation",
        object(
            &[
                ("event", integer()),
                ("kind", named(KINDS)),
                ("name", string()),
                ("turn", integer()),
                ("scheduled_ms", time()),
                ("outcome", named(OUTCOMES)),
                ("attempts", array(attempt)),
            ],
            &[
                ("unit", string()),
                ("due_ms", time()),
                ("ended_ms", time()),
                ("ended_by", integer()),
                ("error", string()),
                ("instance", string()),
                ("attempt", integer()),
                ("state", named(&["queued", "leased", "waiting"])),
                ("since_ms", time()),
            ],
        ),
    );
    let turn = component("TurnMark", object(&[("number", integer()), ("at_ms", time())], &[]));
    let counts = ["turns", "scheduled", "ended", "failed", "retried"].map(|name| (name, integer()));
    let bucket = object(&[&[("from_ms", time())][..], &counts].concat(), &[]);
    let step = object(&[("event", integer()), ("from_ms", time()), ("to_ms", time())], &[]);
    let sums = ["count", "open", "failed", "retried", "queue_ms", "run_ms", "pause_ms", "wait_ms"];
    let sums = sums.map(|name| (name, integer()));
    let total = object(&[&[("kind", named(KINDS)), ("name", string())][..], &sums].concat(), &[]);
    vec![
        ("operations", array(operation)),
        ("others", integer()),
        ("turns", array(turn)),
        ("turn_count", integer()),
        ("buckets", array(component("TimelineBucket", bucket))),
        ("critical_path", array(component("TimelineStep", step))),
        ("totals", array(component("TimelineTotal", total))),
        ("more_totals", boolean()),
    ]
}
