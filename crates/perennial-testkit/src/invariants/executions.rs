//! I9: continue-as-new. The old execution ends with it, the next starts with the state that it left, and
//! unread events are its first jobs.

use perennial_core::shard::Message;
use perennial_core::{
    Decision, Ending, Execution, ExecutionOptions, Handlers, Job, Ledger, Payload, Started, Successor, Turn,
};

use super::{Checked, Decoded};

impl Checked<'_, '_> {
    pub(super) fn continuations(&mut self, decoded: &Decoded<'_>, handlers: Option<&Handlers>) {
        let row = decoded.row();
        for (execution, turns) in &decoded.executions {
            let ending = turns.last().and_then(Turn::ending);
            let Some(Ending::OrchestrationContinuedAsNew { .. }) = ending else {
                if *execution < row.execution && !self.reset(decoded, *execution, turns) {
                    let ending = ending.map_or("nothing", Ending::name);
                    let next = execution + 1;
                    self.breach("I9", format!("execution {next} follows one that ended with {ending}"));
                }
                continue;
            };
            self.successor(decoded, *execution, turns, handlers);
        }
    }

    /// Whether the next execution was reset to a turn of this one. Then it must contain the turns up to
    /// there.
    fn reset(&mut self, decoded: &Decoded<'_>, execution: u64, turns: &[Turn]) -> bool {
        let next = decoded.executions.get(&(execution + 1)).map_or(&[][..], Vec::as_slice);
        let Some(started) = next.first().and_then(Turn::started).cloned().or_else(|| {
            let mut messages = decoded.messages()?;
            messages.find_map(|message| match message {
                Message::Start(start) if start.started.execution == execution + 1 => Some(start.started),
                _ => None,
            })
        }) else {
            // The turns could not be read.
            return next.is_empty() && decoded.messages().is_none();
        };
        let Some(reset) = started.reset.as_ref().filter(|reset| reset.execution == execution) else {
            return false;
        };
        let kept = usize::try_from(reset.turn).unwrap_or(usize::MAX);
        let is_kept = |(place, (old, new)): (usize, (&Turn, &Turn))| {
            let skipped = usize::from(place == 0);
            old.at_ms == new.at_ms && old.events.iter().skip(skipped).eq(new.events.iter().skip(skipped))
        };
        let is_whole = turns.len() >= kept && next.len() >= kept;
        if !is_whole || !turns.iter().zip(next).take(kept).enumerate().all(is_kept) {
            self.breach(
                "I9",
                format!("execution {} does not keep {kept} turns of {execution}", execution + 1),
            );
        }
        true
    }

    fn successor(
        &mut self,
        decoded: &Decoded<'_>,
        execution: u64,
        turns: &[Turn],
        handlers: Option<&Handlers>,
    ) {
        let next = decoded.executions.get(&(execution + 1)).map_or(&[][..], Vec::as_slice);
        let waiting = decoded.messages().map(|all| all.collect::<Vec<_>>());
        let start = waiting.iter().flatten().find_map(|message| match message {
            Message::Start(start) if start.started.execution == execution + 1 => Some(&start.started),
            _ => None,
        });
        match (next.first().and_then(Turn::started), start, &waiting) {
            (Some(started), ..) => self.started(turns, started),
            (None, Some(started), _) => self.started(turns, started),
            // The turns could not be read.
            (None, None, None) => return,
            (None, None, Some(_)) => {
                let what = format!("execution {execution} continued as new, and the next does not exist");
                return self.breach("I9", what);
            }
        }
        if next.is_empty() {
            return;
        }
        let carried = handlers.and_then(|handlers| carried_by_code(handlers, &decoded.row().id, turns));
        match carried {
            Some(successor) => self.carried(&successor.jobs, next, waiting.as_deref()),
            None => self.carried_in_order(turns, next),
        }
    }

    /// Checks that the next execution starts with the state that the last one left.
    fn started(&mut self, turns: &[Turn], started: &Started) {
        let (Some(first), Some(last)) = (turns.first().and_then(Turn::started), turns.last()) else { return };
        let Some(Ending::OrchestrationContinuedAsNew { input, version }) = last.ending() else { return };
        let read = turns.iter().try_fold(Ledger::default(), |mut ledger, turn| {
            ledger.apply_turn(turn).ok()?;
            Some(ledger)
        });
        let execution = started.execution;
        let mut differs = Vec::new();
        let mut compare = |what: &'static str, is_same: bool| differs.extend((!is_same).then_some(what));
        compare("name", started.name == first.name);
        // A version that was not given is resolved in the first turn.
        let is_asked = |version: &String| *version == started.version;
        compare("version", version.as_ref().is_none_or(is_asked));
        compare("input", started.input == *input);
        compare("parent", started.parent == first.parent);
        compare("deadline", started.deadline_ms == first.deadline_ms);
        compare("time of its predecessor", started.predecessor_at_ms == Some(last.at_ms));
        if let Some(ledger) = read {
            compare("attributes", started.attributes == *ledger.attributes());
            compare("status", started.status.as_ref() == ledger.status());
        }
        if !differs.is_empty() {
            let what = format!("execution {execution} starts with another {}", differs.join(", "));
            self.breach("I9", what);
        }
    }

    /// Unread events come first, in order; those without room in a turn still wait. Records of skips and resumes may be in
    /// between.
    fn carried(&mut self, carried: &[Job], next: &[Turn], waiting: Option<&[Message]>) {
        let jobs = next.iter().flat_map(|turn| turn.jobs().map(|(_, job)| job));
        let taken: Vec<&Job> = jobs.filter(|job| !is_record(job)).collect();
        if let Some((expected, found)) =
            carried.iter().zip(&taken).find(|(expected, found)| !is_same(expected, found))
        {
            let what =
                format!("{} was to cross a continue-as-new, and {} came", expected.name(), found.name());
            return self.breach("I9", what);
        }
        let has_ended = next.last().is_some_and(|turn| turn.ending().is_some());
        let waits = |job: &Job| {
            waiting.is_none_or(|all| {
                all.iter().any(|message| match message {
                    Message::Job(other) => is_same(job, other),
                    Message::Carried { jobs, .. } => jobs.iter().any(|other| is_same(job, other)),
                    _ => false,
                })
            })
        };
        for lost in carried.iter().skip(taken.len()).filter(|job| !has_ended && !waits(job)) {
            self.breach("I9", format!("{} was to cross a continue-as-new, and is lost", lost.name()));
        }
    }

    /// Without the code it is unknown which events were read. But the events that were carried over keep
    /// their order.
    fn carried_in_order(&mut self, turns: &[Turn], next: &[Turn]) {
        let before: Vec<(&String, &Payload, Option<&str>)> = turns.iter().flat_map(events).collect();
        let mut place = 0;
        for event in next.first().into_iter().flat_map(events) {
            let Some(found) = before.iter().position(|other| *other == event) else { continue };
            let Some(further) = before.iter().skip(place).position(|other| *other == event) else {
                let what = format!(
                    "event {} was carried over a continue-as-new out of order, from {found}",
                    event.0
                );
                return self.breach("I9", what);
            };
            place += further + 1;
        }
    }
}

fn events(turn: &Turn) -> impl Iterator<Item = (&String, &Payload, Option<&str>)> {
    turn.jobs().filter_map(|(_, job)| match job {
        Job::ExternalEvent { name, payload, key, .. } => Some((name, payload, key.as_deref())),
        _ => None,
    })
}

/// The events that the code leaves unread, if it takes its last turn again in the same way. It does not if
/// values came from outside.
fn carried_by_code(handlers: &Handlers, id: &str, turns: &[Turn]) -> Option<Successor> {
    let (last, before) = turns.split_last()?;
    let calls_out = |(_, _, decision): (_, _, &Decision)| matches!(decision, Decision::SystemCall { .. });
    if last.decisions().any(calls_out) {
        return None;
    }
    let started = turns.first()?.started()?;
    let handler = handlers.get(&started.name, &started.version)?;
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let mut execution = Execution::new(id, handler, started.clone(), options).ok()?;
    before.iter().try_for_each(|turn| execution.replay_turn(turn)).ok()?;
    let jobs = last.jobs().map(|(_, job)| job.clone()).collect();
    let taken = execution.take_turn(last.at_ms, jobs).ok()?;
    taken.successor.filter(|_| taken.turn.as_ref() == Some(last))
}

/// Whether a job delivers nothing to the code, and only records what was done to the instance.
fn is_record(job: &Job) -> bool {
    matches!(job, Job::ExternalEventSkipped { .. } | Job::MessageSkipped { .. } | Job::InstanceResumed { .. })
}

/// Whether a job was carried over unchanged. The grace period of a cancel is extended by the times without an
/// owner.
fn is_same(expected: &Job, found: &Job) -> bool {
    match (expected, found) {
        (
            Job::OrchestrationCancelRequested { reason, grace_ms },
            Job::OrchestrationCancelRequested { reason: crossed, grace_ms: left_ms },
        ) => reason == crossed && left_ms >= grace_ms,
        _ => expected == found,
    }
}
