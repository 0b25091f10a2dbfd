//! The keys of events and updates that were taken, and what came of the updates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{EventId, Payload};

/// How a key begins that a client drew because its caller gave none.
pub const DRAWN_KEY_PREFIX: char = '~';
/// For so long of turn time a drawn key is remembered.
const DRAWN_KEYS_MS: u64 = 60_000;
/// How many keys of events and updates cross a continue-as-new.
const CARRIED_KEYS: usize = 1_000;

/// The updates that came with a key, latest first to be remembered, so that one sent again gets the first's answer.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyedUpdates {
    pub(super) by_key: BTreeMap<String, (EventId, Option<Result<Payload, Payload>>)>,
    order: VecDeque<String>,
}

impl KeyedUpdates {
    pub(super) fn insert(&mut self, key: &str, event: EventId) {
        self.by_key.insert(key.to_owned(), (event, None));
        self.order.push_back(key.to_owned());
        if self.order.len() > CARRIED_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }

    pub(super) fn complete(&mut self, key: &str, answer: &Result<Payload, Payload>) {
        if let Some((_, result)) = self.by_key.get_mut(key) {
            *result = Some(answer.clone());
        }
    }
}

/// The keys of events and updates that were taken.
///
/// Keys that a caller gave are remembered for the whole execution, and the latest of them across continue-as-new, in
/// the order in which they were taken first. Keys that a client drew serve to settle a request whose answer was lost,
/// which happens within moments; they are remembered for a minute of turn time.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenKeys {
    all: BTreeSet<String>,
    /// `None` holds the place of a key whose job crosses from the execution before and is yet to be taken again.
    latest: VecDeque<Option<String>>,
    /// The places that are held, counted from the first key that was ever among the latest.
    places: VecDeque<usize>,
    /// How many keys are no longer among the latest.
    evicted: usize,
    /// How many jobs are yet to cross, those whose keys are too old for a place included.
    crossing: u64,
    drawn: VecDeque<(u64, String)>,
}

impl SeenKeys {
    pub(super) fn contains(&self, key: &str) -> bool {
        self.all.contains(key)
    }

    /// Begins with what the execution before knew. See [`Started::crossing_keys`](super::super::Started).
    pub(super) fn begin(&mut self, at_ms: u64, recent: &[String], crossing: &[(u64, u64)]) {
        self.all.extend(recent.iter().cloned());
        let mut crossing = crossing.iter().peekable();
        for (index, key) in recent.iter().enumerate() {
            while let Some((_, count)) = crossing.next_if(|(after, _)| *after <= index as u64) {
                self.hold_places(*count);
            }
            // Drawn ones are listed here by histories that have no list of their own for them.
            match is_drawn_key(key) {
                true => self.insert_drawn(key, at_ms),
                false => self.push_latest(Some(key.clone())),
            }
        }
        crossing.for_each(|(_, count)| self.hold_places(*count));
    }

    fn hold_places(&mut self, count: u64) {
        self.crossing = self.crossing.saturating_add(count);
        // More would only push each other out.
        (0..count.min(CARRIED_KEYS as u64)).for_each(|_| self.push_latest(None));
    }

    pub(super) fn insert(&mut self, key: &str, at_ms: u64) {
        self.all.insert(key.to_owned());
        match is_drawn_key(key) {
            true => self.insert_drawn(key, at_ms),
            false => self.insert_given(key),
        }
    }

    fn insert_drawn(&mut self, key: &str, at_ms: u64) {
        self.drawn.push_back((at_ms, key.to_owned()));
        while let Some((seen_ms, _)) = self.drawn.front()
            && seen_ms.saturating_add(DRAWN_KEYS_MS) < at_ms
            && let Some((_, forgotten)) = self.drawn.pop_front()
        {
            self.all.remove(&forgotten);
        }
    }

    fn insert_given(&mut self, key: &str) {
        if self.crossing == 0 {
            return self.push_latest(Some(key.to_owned()));
        }
        // What crosses is delivered before everything else, in the order in which it was taken first: the keys that are
        // too old for a place come before those that have one.
        let has_place = self.crossing <= self.places.len() as u64;
        self.crossing -= 1;
        if has_place && let Some(place) = self.places.pop_front() {
            self.latest[place - self.evicted] = Some(key.to_owned());
        }
    }

    fn push_latest(&mut self, key: Option<String>) {
        if key.is_none() {
            self.places.push_back(self.evicted + self.latest.len());
        }
        self.latest.push_back(key);
        if self.latest.len() > CARRIED_KEYS {
            self.latest.pop_front();
            if self.places.front() == Some(&self.evicted) {
                self.places.pop_front();
            }
            self.evicted += 1;
        }
    }

    /// The latest keys that callers gave, oldest first, without those of jobs that cross, and the places of these.
    pub(super) fn to_carry(&self, carried: &BTreeSet<&str>) -> (Vec<String>, Vec<(u64, u64)>) {
        let crosses = |key: &Option<String>| key.as_deref().is_none_or(|key| carried.contains(key));
        let given = carried.iter().filter(|key| !is_drawn_key(key)).count();
        let placed = self.latest.iter().filter(|key| crosses(key)).count();
        let unplaced = self.crossing.saturating_add(given as u64).saturating_sub(placed as u64);
        let mut recent = Vec::new();
        let mut places = if unplaced > 0 { vec![(0, unplaced)] } else { Vec::new() };
        for key in &self.latest {
            let after = recent.len() as u64;
            match (key, places.last_mut()) {
                (Some(key), _) if !carried.contains(key.as_str()) => recent.push(key.clone()),
                (_, Some((place, count))) if *place == after => *count = count.saturating_add(1),
                _ => places.push((after, 1)),
            }
        }
        (recent, places)
    }

    /// The drawn keys that are remembered at a time, oldest first, and when each was taken.
    pub(super) fn drawn_at(&self, at_ms: u64) -> Vec<(u64, String)> {
        let is_remembered = |(seen_ms, _): &&(u64, String)| seen_ms.saturating_add(DRAWN_KEYS_MS) >= at_ms;
        self.drawn.iter().filter(is_remembered).cloned().collect()
    }
}

/// Whether a client drew a key because its caller gave none.
pub fn is_drawn_key(key: &str) -> bool {
    key.starts_with(DRAWN_KEY_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn g16_keys_that_cross_keep_their_places_even_if_they_cross_again_before_they_were_taken() {
        let mut seen = SeenKeys::default();
        ["a", "x", "y", "b", "z"].iter().for_each(|key| seen.insert(key, 0));
        let (recent, crossing) = seen.to_carry(&BTreeSet::from(["x", "y", "z"]));
        assert_eq!((recent, crossing), (keys(&["a", "b"]), vec![(1, 2), (2, 1)]));

        let mut next = SeenKeys::default();
        next.begin(0, &keys(&["a", "b"]), &[(1, 2), (2, 1)]);
        assert!(next.contains("a") && !next.contains("x"), "a key that crosses is taken again");
        next.insert("x", 0);
        assert_eq!(next.to_carry(&BTreeSet::new()), (keys(&["a", "x", "b"]), vec![(2, 1), (3, 1)]));
        ["y", "z", "c"].iter().for_each(|key| next.insert(key, 0));
        assert_eq!(next.to_carry(&BTreeSet::new()), (keys(&["a", "x", "y", "b", "z", "c"]), vec![]));
    }

    #[test]
    fn g16_keys_too_old_for_a_place_take_none_when_they_cross() {
        let (mut seen, old) = (SeenKeys::default(), CARRIED_KEYS + 5);
        let names: Vec<String> = (0..old).map(|number| format!("k{number}")).collect();
        names.iter().for_each(|key| seen.insert(key, 0));
        seen.insert("last", 0);
        let all: BTreeSet<&str> = names.iter().map(String::as_str).chain(["~drawn"]).collect();
        let (recent, crossing) = seen.to_carry(&all);
        assert_eq!((&recent, &crossing), (&keys(&["last"]), &vec![(0, old as u64)]));

        let mut next = SeenKeys::default();
        next.begin(0, &recent, &crossing);
        names.iter().for_each(|key| next.insert(key, 0));
        let (recent, crossing) = next.to_carry(&BTreeSet::new());
        assert_eq!((recent.len(), crossing.len()), (CARRIED_KEYS, 0));
        assert_eq!((recent[0].as_str(), recent[CARRIED_KEYS - 1].as_str()), ("k6", "last"));
        assert!(names.iter().all(|key| next.contains(key)), "of this execution, all are known");
    }

    #[test]
    fn g16_places_that_make_no_sense_do_no_harm() {
        let mut seen = SeenKeys::default();
        seen.begin(0, &keys(&["a"]), &[(7, u64::MAX), (0, u64::MAX), (3, 1)]);
        seen.insert("b", 0);
        assert!(seen.contains("a") && seen.contains("b"));
        assert!(seen.latest.len() <= CARRIED_KEYS && seen.to_carry(&BTreeSet::new()).0.len() <= 2);
    }
}
