//! Histories with one change each, at which replay must fail.
//!
//! A mutation changes the identity of one decision or ending: its content, its position, or its presence.
//! When events move, ids and references are adjusted, so that the result could have been recorded, as far as
//! possible. Options, recorded values and patch marks have no identity: replay accepts them as they are.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use perennial_core::{
    ClosePolicy, Decision, Ending, Event, EventId, EventKind, History, Payload, Segment, Turn, UnitId,
};

use crate::Rng;
use crate::renumber::{Draft, source_mut};

/// A history with one mutation.
#[derive(Debug)]
pub struct Mutant {
    /// The kind of change.
    pub mutation: Mutation,
    /// The number of the changed turn.
    pub turn: u64,
    /// The event, as numbered in the mutant, at which the history and the code differ.
    ///
    /// It is one event, with one exception. Code that asks for a recorded value which is missing cannot
    /// continue. It may have been about to drop the operations that its step has scheduled by then, which
    /// would have left no events; or they may be recorded next. So schedules that follow in the history may
    /// be taken for its own.
    pub parts_at: RangeInclusive<EventId>,
    /// The mutated history.
    pub history: History,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A decision is of another kind.
    Kind,
    /// Another unit made a decision.
    Unit,
    /// An activity, event, orchestration or system call has another name.
    Name,
    /// An input, a payload, a status, attributes or an answer are different.
    Input,
    /// The decision names another instance.
    Instance,
    /// The decision names another version.
    Version,
    /// A timer is due at another time.
    Due,
    /// Another event was cancelled or answered.
    Source,
    /// Two decisions are swapped.
    Order,
    /// A decision is missing.
    Dropped,
    /// A decision is added.
    Inserted,
    /// The execution ended differently: with another output, not at all, or although it did not end.
    Ending,
    /// Another number of random numbers was drawn.
    Draws,
}

impl Mutation {
    /// All kinds.
    pub const ALL: [Mutation; 13] = [
        Mutation::Kind,
        Mutation::Unit,
        Mutation::Name,
        Mutation::Input,
        Mutation::Instance,
        Mutation::Version,
        Mutation::Due,
        Mutation::Source,
        Mutation::Order,
        Mutation::Dropped,
        Mutation::Inserted,
        Mutation::Ending,
        Mutation::Draws,
    ];
}

/// All mutants of a history, created lazily, in any order.
pub fn mutants<'a>(history: &'a History, rng: &'a mut Rng) -> impl Iterator<Item = Mutant> + 'a {
    let mut sites: Vec<Site> = history.turns.iter().enumerate().flat_map(sites_of).collect();
    rng.shuffle(&mut sites);
    sites.into_iter().filter_map(move |site| mutate(history, site, rng))
}

/// A place for a mutation.
#[derive(Clone, Copy)]
struct Site {
    turn: usize,
    /// The position in the turn.
    position: usize,
    mutation: Mutation,
}

/// A terminating turn runs no code, so there is nothing to compare it with.
fn sites_of((turn, recorded): (usize, &Turn)) -> Vec<Site> {
    if let Some(Ending::OrchestrationTerminated { .. }) = recorded.ending() {
        return Vec::new();
    }
    let behind_decisions = recorded.events.len() - usize::from(recorded.ending().is_some());
    let mut sites = Vec::new();
    let mut add = |position, mutation| {
        sites.push(Site { turn, position, mutation });
    };
    for (position, event) in recorded.events.iter().enumerate() {
        if let EventKind::Decision { .. } = event.kind {
            let of_a_decision = |mutation: &Mutation| !matches!(mutation, Mutation::Ending | Mutation::Draws);
            for mutation in Mutation::ALL.into_iter().filter(of_a_decision) {
                add(position, mutation);
            }
        }
    }
    for mutation in [Mutation::Inserted, Mutation::Ending, Mutation::Draws] {
        add(behind_decisions, mutation);
    }
    sites
}

/// Applies a mutation, unless it would change nothing that replay compares.
fn mutate(history: &History, site: Site, rng: &mut Rng) -> Option<Mutant> {
    let Site { turn, position, mutation } = site;
    let original = &history.turns[turn];
    let mut draft = Draft::of(history);
    let events = &mut draft.turns[turn].events;
    match mutation {
        Mutation::Inserted => {
            let inserted = insertion(history, original, position, rng);
            events.insert(position, (None, inserted));
        }
        Mutation::Ending => end_otherwise(events, original.ending(), rng),
        Mutation::Draws => draft.turns[turn].draws += 1,
        of_a_decision => {
            let mutated = identity(&original.events[position])?;
            match of_a_decision {
                Mutation::Dropped => drop(events.remove(position)),
                Mutation::Order => {
                    let next = original.events.get(position + 1).and_then(identity);
                    next.filter(|next| *next != mutated)?;
                    events.swap(position, position + 1);
                }
                local => change(&mut events[position].1, local, history, rng)?,
            }
        }
    }
    let history = draft.finish();
    if misleads(original, &history.turns[turn]) {
        return None;
    }
    let parts_at = parting(original, &history.turns[turn])?;
    Some(Mutant { mutation, turn: original.number, parts_at, history })
}

/// The identity of a decision, or `None` if it has none.
fn identity(event: &Event) -> Option<(UnitId, Decision)> {
    let EventKind::Decision { unit, decision } = &event.kind else {
        return None;
    };
    let mut decision = decision.clone();
    match &mut decision {
        Decision::PatchMarked { .. } => return None,
        Decision::ActivityScheduled { options, .. } => *options = None,
        Decision::SubOrchestrationScheduled { close, .. } => *close = ClosePolicy::default(),
        Decision::SystemCall { value, .. } => *value = Payload::null(),
        _ => {}
    }
    Some((unit.clone(), decision))
}

/// The event at which a replay that decides `original` differs from `mutant`, if any.
fn parting(original: &Turn, mutant: &Turn) -> Option<RangeInclusive<EventId>> {
    let last = mutant.events.last()?.id;
    let behind_decisions = if mutant.ending().is_some() { last } else { last.next() };
    let mut expected = original.events.iter().filter_map(identity);
    let mut recorded = mutant.events.iter().filter_map(|event| Some((event.id, identity(event)?)));
    loop {
        match (expected.next(), recorded.next()) {
            (Some(expected), Some((_, recorded))) if expected == recorded => {}
            (Some((unit, Decision::SystemCall { op, .. })), Some((first, next)))
                if lacks(original, mutant, &op) =>
            {
                let goes_on =
                    |(_, recorded): &(_, (UnitId, Decision))| recorded.0 == unit && opens(&recorded.1);
                let latest =
                    std::iter::once((first, next)).chain(recorded).find(|recorded| !goes_on(recorded));
                return Some(first..=latest.map_or(behind_decisions, |(id, _)| id));
            }
            (_, Some((id, _))) => return Some(id..=id),
            (Some(_), None) => return Some(behind_decisions..=behind_decisions),
            (None, None) if original.ending() != mutant.ending() => {
                return Some(behind_decisions..=behind_decisions);
            }
            (None, None) => return (original.draws != mutant.draws).then_some(last..=last),
        }
    }
}

/// Whether a mutant gives a system call of the code another value than the recorded one. Then the behaviour
/// of the code is unknown, even in the current step: it may drop operations that the step has scheduled.
fn misleads(original: &Turn, mutant: &Turn) -> bool {
    let (recorded, given) = (call_values(original), call_values(mutant));
    recorded.iter().any(|(op, recorded)| {
        let given = given.get(op).map_or(&[][..], Vec::as_slice);
        recorded.iter().zip(given).any(|(recorded, given)| recorded != given)
    })
}

/// Whether a mutant has fewer values for a system call than the code asks for.
fn lacks(original: &Turn, mutant: &Turn, op: &str) -> bool {
    let count = |turn: &Turn| call_values(turn).get(op).map_or(0, Vec::len);
    count(mutant) < count(original)
}

/// The values of a turn's system calls, in order.
fn call_values(turn: &Turn) -> BTreeMap<&str, Vec<&Payload>> {
    let mut values: BTreeMap<&str, Vec<&Payload>> = BTreeMap::new();
    for (_, _, decision) in turn.decisions() {
        if let Decision::SystemCall { op, value } = decision {
            values.entry(op).or_default().push(value);
        }
    }
    values
}

/// Whether a decision schedules an operation that can be dropped again.
fn opens(decision: &Decision) -> bool {
    matches!(
        decision,
        Decision::ActivityScheduled { .. }
            | Decision::TimerCreated { .. }
            | Decision::ExternalSubscribed { .. }
            | Decision::SubOrchestrationScheduled { .. }
    )
}

/// Changes one property of a decision, if it has that property.
fn change(kind: &mut EventKind, mutation: Mutation, history: &History, rng: &mut Rng) -> Option<()> {
    if mutation == Mutation::Source {
        source_mut(kind)?.0 += 1;
        return Some(());
    }
    let EventKind::Decision { unit, decision } = kind else {
        return None;
    };
    match mutation {
        Mutation::Kind => *decision = foreign(rng, |other| other.name() != decision.name()),
        Mutation::Unit => {
            let units: Vec<_> =
                history.turns.iter().flat_map(Turn::decisions).map(|(_, unit, _)| unit).collect();
            let other = (*rng.pick(&units)).clone();
            *unit = if other == *unit { unit.child(Segment::Parallel(7)) } else { other };
        }
        field => return change_field(decision, field, rng),
    }
    Some(())
}

fn change_field(decision: &mut Decision, field: Mutation, rng: &mut Rng) -> Option<()> {
    let changed = |payload: &mut Payload| *payload = Payload::from("changed");
    match (field, decision) {
        (
            Mutation::Name,
            Decision::ActivityScheduled { name, .. }
            | Decision::ExternalSubscribed { name }
            | Decision::SubOrchestrationScheduled { name, .. }
            | Decision::OrchestrationChained { name, .. }
            | Decision::ExternalEventSent { name, .. }
            | Decision::SystemCall { op: name, .. },
        ) => name.push_str("-changed"),
        (
            Mutation::Input,
            Decision::ActivityScheduled { input: payload, .. }
            | Decision::SubOrchestrationScheduled { input: payload, .. }
            | Decision::OrchestrationChained { input: payload, .. }
            | Decision::ExternalEventSent { payload, .. }
            | Decision::StatusSet { status: payload },
        ) => changed(payload),
        (Mutation::Input, Decision::AttributesUpserted { attributes }) => {
            attributes.values_mut().for_each(changed);
        }
        (Mutation::Input, Decision::UpdateCompleted { result, .. }) => {
            *result = match result.clone() {
                Ok(answer) => Err(answer),
                Err(answer) => Ok(answer),
            };
        }
        (
            Mutation::Instance,
            Decision::OrchestrationChained { instance, .. }
            | Decision::ExternalEventSent { instance, .. }
            | Decision::CancelSent { instance, .. },
        ) => instance.push_str("-changed"),
        (Mutation::Instance, Decision::SubOrchestrationScheduled { instance, .. }) => {
            *instance = instance.is_none().then(|| "changed".to_owned());
        }
        (
            Mutation::Version,
            Decision::SubOrchestrationScheduled { version, .. }
            | Decision::OrchestrationChained { version, .. },
        ) => *version = version.is_none().then(|| "9.9.9".to_owned()),
        (Mutation::Due, Decision::TimerCreated { due_ms }) => *due_ms += rng.between(1, 1_000),
        _ => return None,
    }
    Some(())
}

/// A decision that no program makes, or a system call. The caller decides where it fits.
fn foreign(rng: &mut Rng, fits: impl Fn(&Decision) -> bool) -> Decision {
    let (name, text) = ("foreign".to_owned(), Payload::from("foreign"));
    let foreign = [
        Decision::ActivityScheduled { name: name.clone(), id: None, input: text.clone(), options: None },
        Decision::TimerCreated { due_ms: u64::MAX },
        Decision::ExternalSubscribed { name: name.clone() },
        Decision::SubOrchestrationScheduled {
            name: name.clone(),
            version: None,
            instance: None,
            input: text.clone(),
            close: ClosePolicy::default(),
            options: None,
        },
        Decision::OrchestrationChained {
            name: name.clone(),
            version: None,
            instance: name.clone(),
            input: text.clone(),
            reported: false,
        },
        Decision::ExternalEventSent {
            instance: name.clone(),
            name: name.clone(),
            payload: text.clone(),
            key: None,
            reported: false,
        },
        Decision::CancelSent {
            instance: name.clone(),
            reason: name.clone(),
            grace_ms: None,
            reported: false,
        },
        Decision::SystemCall {
            op: "utc_now".to_owned(),
            value: Payload::encode(&0).expect("a number encodes"),
        },
        Decision::AttributesUpserted { attributes: BTreeMap::from([(name, text.clone())]) },
        Decision::StatusSet { status: text },
    ];
    let fitting: Vec<&Decision> = foreign.iter().filter(|decision| fits(decision)).collect();
    (*rng.pick(&fitting)).clone()
}

/// A decision for a place where it does not belong: a foreign one, or a copy from elsewhere.
fn insertion(history: &History, turn: &Turn, position: usize, rng: &mut Rng) -> EventKind {
    let belongs = turn.events[position..].iter().find_map(identity);
    let fits_not = |event: &&Event| {
        let refers = source_mut(&mut event.kind.clone()).is_some();
        identity(event).is_some_and(|copied| !refers && Some(copied) != belongs)
    };
    let copies: Vec<&Event> = history.flatten().filter(fits_not).collect();
    if !copies.is_empty() && rng.percent(50) {
        return rng.pick(&copies).kind.clone();
    }
    let unit = belongs.as_ref().map_or(UnitId::ROOT, |(unit, _)| unit.clone());
    let decision = foreign(rng, |decision| Some((unit.clone(), decision.clone())) != belongs);
    EventKind::Decision { unit, decision }
}

fn end_otherwise(events: &mut Vec<(Option<EventId>, EventKind)>, ending: Option<&Ending>, rng: &mut Rng) {
    let changed = || Payload::from("changed");
    if ending.is_some() {
        events.pop();
    }
    let endings = [
        None,
        Some(Ending::OrchestrationCompleted { output: changed() }),
        Some(Ending::OrchestrationFailed { error: changed() }),
        Some(Ending::OrchestrationCancelled { reason: "changed".to_owned(), output: None }),
        Some(Ending::OrchestrationContinuedAsNew { input: changed(), version: None }),
    ];
    let others = &endings[usize::from(ending.is_none())..];
    events.extend(rng.pick(others).clone().map(|ending| (None, EventKind::Ended(ending))));
}
