//! Corrupts a recorded history: its turns, its events, the numbers and words in its text, its bytes.
//!
//! Random bytes never get past the parser, and random events never past the check of ids. So whole events are
//! moved, and usually renumbered afterwards, so that the code receives them.

use std::collections::BTreeMap;

use perennial_core::history::encode_turn;
use perennial_core::{Decision, Event, EventId, EventKind, Job, Turn};

use crate::renumber::source_mut;

use super::choices::Choices;
use super::target;

/// A changed copy of a history, one line per turn.
pub(super) fn mutate(mut turns: Vec<Turn>, choices: &mut Choices<'_>) -> Vec<u8> {
    for _ in 0..choices.below(4) {
        change_structure(&mut turns, choices);
    }
    if !choices.once_in(4) {
        renumber(&mut turns);
    }
    let mut text = turns.iter().map(encode_turn).collect::<Vec<_>>().join(&b'\n');
    if choices.once_in(2) {
        change_text(&mut text, choices);
    }
    text
}

fn change_structure(turns: &mut Vec<Turn>, choices: &mut Choices<'_>) {
    let Some(last) = turns.len().checked_sub(1) else {
        return;
    };
    let position = choices.below(turns.len());
    match choices.below(10) {
        0 => {
            turns.remove(position);
        }
        1 => turns.insert(position, turns[position].clone()),
        2 => turns.swap(position, last),
        3 => turns.truncate(position + 1),
        4 if position < last => {
            let next = turns.remove(position + 1);
            turns[position].events.extend(next.events);
        }
        5 => turns[position].at_ms = choices.number(),
        _ => change_events(turns, position, choices),
    }
}

fn change_events(turns: &mut [Turn], position: usize, choices: &mut Choices<'_>) {
    let others: Vec<Event> = turns.iter().flat_map(|turn| turn.events.clone()).collect();
    let events = &mut turns[position].events;
    let place = choices.below(events.len());
    if place >= events.len() {
        return;
    }
    match choices.below(6) {
        0 => {
            events.remove(place);
        }
        1 => events.insert(place, events[place].clone()),
        2 => {
            let other = choices.below(events.len());
            events.swap(place, other);
        }
        3 => events.extend(choices.pick(&others).cloned()),
        4 => {
            if let EventKind::Job(Job::ActivityCompleted { result, .. })
            | EventKind::Decision { decision: Decision::SystemCall { value: result, .. }, .. } =
                &mut events[place].kind
            {
                *result = target::value(choices);
            }
        }
        _ => {
            if let Some(other) = choices.pick(&others) {
                events[place].kind = other.kind.clone();
            }
        }
    }
}

/// Restores the order and the numbers of turns and events, and adjusts references.
fn renumber(turns: &mut [Turn]) {
    let mut moved = BTreeMap::new();
    let mut id = EventId(0);
    for (number, turn) in (1..).zip(turns.iter_mut()) {
        turn.number = number;
        turn.events.sort_by_key(|event| match event.kind {
            EventKind::Started(_) => 0,
            EventKind::Job(_) => 1,
            EventKind::Decision { .. } => 2,
            EventKind::Ended(_) => 3,
        });
        for event in &mut turn.events {
            id = id.next();
            moved.entry(event.id).or_insert(id);
            event.id = id;
        }
    }
    for event in turns.iter_mut().flat_map(|turn| &mut turn.events) {
        if let Some(source) = source_mut(&mut event.kind)
            && let Some(id) = moved.get(source)
        {
            *source = *id;
        }
    }
}

fn change_text(text: &mut Vec<u8>, choices: &mut Choices<'_>) {
    if text.is_empty() {
        return;
    }
    let position = choices.below(text.len());
    match choices.below(16) {
        0 => text[position] ^= 1 << choices.below(8),
        1 => {
            text.remove(position);
        }
        2 => text.insert(position, b"\"{}[],:0\n\\"[choices.below(10)]),
        3 => {
            let length = choices.below(64).min(text.len() - position);
            let copy = text[position..position + length].to_vec();
            text.splice(position..position, copy);
        }
        4..10 => {
            let number = choices.number().to_string();
            replace(text, position, u8::is_ascii_digit, number.as_bytes());
        }
        _ => {
            let from = choices.below(text.len());
            let word: Vec<u8> =
                run(text, from, u8::is_ascii_alphabetic).map_or(vec![], |run| text[run].to_vec());
            replace(text, position, u8::is_ascii_alphabetic, &word);
        }
    }
}

/// Replaces the next run of matching bytes.
fn replace(text: &mut Vec<u8>, from: usize, belongs: fn(&u8) -> bool, new: &[u8]) {
    if let Some(run) = run(text, from, belongs) {
        text.splice(run, new.iter().copied());
    }
}

/// The next run of matching bytes, starting at a position.
fn run(text: &[u8], from: usize, belongs: fn(&u8) -> bool) -> Option<std::ops::Range<usize>> {
    let start = from + text[from..].iter().position(belongs)?;
    let length = text[start..].iter().take_while(|byte| belongs(byte)).count();
    Some(start..start + length)
}
