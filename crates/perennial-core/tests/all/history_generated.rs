//! Generated histories: whatever can be recorded survives its bytes, and with an event missing it is no history
//! (E1, E2, E3). A failure names its seed.

use std::collections::BTreeMap;

use crate::history_builders::{
    activity, child, corrupt, ended, every_decision, every_ending, every_job, started, stored, timer, wait,
};
use perennial_core::history::{FORMAT, decode_turn, encode_turn};
use perennial_core::{
    ActivityError, Attributes, ChildError, Decision, Ending, Event, EventId, EventKind, Job, Ledger, Payload,
    Segment, Started, Turn, UnitId,
};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }

    fn text(&mut self) -> String {
        let pieces = ["a", "Zz", "é", "😀", "\"", "\\", "\n", "\0", "/", "\u{2028}", " ", "order-7"];
        (0..self.below(4)).map(|_| self.pick(&pieces)).collect()
    }

    /// A JSON text that is not written the way an encoder would.
    fn json(&mut self, depth: u64) -> String {
        let space = self.pick(&["", "", " ", "\n\t"]);
        match self.below(if depth == 0 { 4 } else { 6 }) {
            0 => self
                .pick(&["null", "true", "false", "-0", "0.10", "1E+9", "1e999", "-12345678901234567890123"])
                .to_owned(),
            1 => self.draw().to_string(),
            2 => self.pick(&[r#""\u00e9""#, r#""\/""#, r#""\ud800""#, r#""""#]).to_owned(),
            3 => serde_json::to_string(&self.text()).expect("a string encodes"),
            4 => {
                let items: Vec<String> = (0..self.below(4)).map(|_| self.json(depth - 1)).collect();
                format!("[{space}{}{space}]", items.join(&format!("{space},")))
            }
            _ => {
                let member = |rng: &mut Rng| {
                    let key = serde_json::to_string(&rng.text()).expect("a string encodes");
                    format!("{key}{space}:{}", rng.json(depth - 1))
                };
                let members: Vec<String> = (0..self.below(4)).map(|_| member(self)).collect();
                format!("{{{}{space}}}", members.join(&format!(",{space}")))
            }
        }
    }

    fn payload(&mut self) -> Payload {
        Payload::from_json(self.json(4)).expect("what is generated is JSON")
    }

    fn unit(&mut self) -> UnitId {
        (0..self.below(4)).fold(UnitId::ROOT, |unit, _| {
            let number = self.pick(&[0, 1, 10, u32::MAX]);
            unit.child(self.pick(&[Segment::Parallel(number), Segment::Handler(number)]))
        })
    }
}

/// Writes a history event by event, and keeps a count of its own of what is open.
struct Writer {
    rng: Rng,
    turns: Vec<Turn>,
    next_id: u64,
    now_ms: u64,
    open: BTreeMap<u64, Decision>,
    updates: Vec<u64>,
    keys: u64,
    patches: u64,
    cancelled: bool,
}

impl Writer {
    fn history(seed: u64) -> Writer {
        let mut writer = Writer {
            rng: Rng(seed),
            turns: Vec::new(),
            next_id: 1,
            now_ms: 1_000,
            open: BTreeMap::new(),
            updates: Vec::new(),
            keys: 0,
            patches: 0,
            cancelled: false,
        };
        let turns = 1 + writer.rng.below(8);
        for number in 1..=turns {
            writer.write_turn(number, number == turns);
        }
        writer
    }

    fn write_turn(&mut self, number: u64, is_last: bool) {
        self.now_ms += self.rng.below(3) * 500;
        let mut events = Vec::new();
        if number == 1 {
            events.push(EventKind::Started(Box::new(Started {
                input: self.rng.payload(),
                name: self.rng.text(),
                seed: self.rng.draw(),
                attributes: Attributes::from([(self.rng.text(), self.rng.payload())]),
                recent_keys: vec!["carried".to_owned()],
                ..started()
            })));
            self.next_id += 1;
        }
        for _ in 0..self.rng.below(5) {
            let job = self.job();
            events.push(EventKind::Job(job));
            self.next_id += 1;
        }
        for _ in 0..1 + self.rng.below(5) {
            let (unit, decision) = (self.rng.unit(), self.decision());
            events.push(EventKind::Decision { unit, decision });
            self.next_id += 1;
        }
        if is_last && self.rng.below(2) == 0 {
            let mut endings = every_ending();
            endings.retain(|ending| !matches!(ending, Ending::OrchestrationTerminated { .. }));
            events.push(ended(self.rng.pick(&endings)));
            self.next_id += 1;
        }
        let first = self.next_id - events.len() as u64;
        let numbered = |(id, kind)| Event { id: EventId(id), kind };
        self.turns.push(Turn {
            format: FORMAT,
            number,
            at_ms: self.now_ms,
            draws: self.rng.below(3),
            events: (first..).zip(events).map(numbered).collect(),
        });
    }

    /// A job that fits: a completion of something open, or something from outside.
    fn job(&mut self) -> Job {
        let ready: Vec<(u64, Decision)> = self
            .open
            .iter()
            .filter(|(_, open)| match open {
                Decision::TimerCreated { due_ms } => *due_ms <= self.now_ms,
                open => !matches!(open, Decision::ExternalSubscribed { .. }),
            })
            .map(|(id, open)| (*id, open.clone()))
            .collect();
        let (payload, attempts) = (self.rng.payload(), self.rng.draw() as u32);
        if !ready.is_empty() && self.rng.below(3) > 0 {
            let (id, opened) = self.rng.pick(&ready);
            self.open.remove(&id);
            let (source_event_id, fails) = (EventId(id), self.rng.below(3) == 0);
            return match opened {
                Decision::ActivityScheduled { .. } if fails => Job::ActivityFailed {
                    source_event_id,
                    error: ActivityError::Application(payload),
                    attempts,
                    trail: Default::default(),
                },
                Decision::ActivityScheduled { .. } => Job::ActivityCompleted {
                    source_event_id,
                    result: payload,
                    attempts,
                    trail: Default::default(),
                },
                Decision::TimerCreated { .. } => Job::TimerFired { source_event_id },
                _ if fails => {
                    Job::SubOrchestrationFailed { source_event_id, error: ChildError::Application(payload) }
                }
                _ => Job::SubOrchestrationCompleted { source_event_id, result: payload },
            };
        }
        self.keys += 1;
        let (name, key) = (self.rng.text(), self.rng.pick(&[None, Some(format!("key-{}", self.keys))]));
        match self.rng.below(8) {
            0 if !self.cancelled => {
                self.cancelled = true;
                Job::OrchestrationCancelRequested { reason: name, grace_ms: self.rng.draw() }
            }
            1..4 => {
                self.updates.push(self.next_id);
                Job::UpdateRequested { name, payload, key, trace: None }
            }
            _ => Job::ExternalEvent { name, payload, key, trace: None },
        }
    }

    /// A decision that fits: something new, or the end of something open.
    fn decision(&mut self) -> Decision {
        if self.rng.below(4) == 0
            && let Some(cancel) = self.cancel()
        {
            return cancel;
        }
        if self.rng.below(4) == 0
            && let Some(update) = self.updates.pop()
        {
            let payload = self.rng.payload();
            return Decision::UpdateCompleted {
                source_event_id: EventId(update),
                result: self.rng.pick(&[Ok(payload.clone()), Err(payload)]),
            };
        }
        let mut openings = every_decision();
        openings.retain(|decision| {
            matches!(
                decision,
                Decision::ActivityScheduled { .. } | Decision::SubOrchestrationScheduled { .. }
            )
        });
        openings.extend([activity(&self.rng.text()), child("c"), wait(&self.rng.text())]);
        openings.push(timer(self.now_ms + self.rng.below(3) * 500));
        let opening = match self.rng.below(10) {
            0 => {
                self.patches += 1;
                let id = format!("patch-{}", self.patches);
                return Decision::PatchMarked { id };
            }
            1 => {
                let (op, value) = (self.rng.text(), self.rng.payload());
                return Decision::SystemCall { op, value };
            }
            2 => {
                let status = self.rng.payload();
                return Decision::StatusSet { status };
            }
            3 => {
                let attributes = [(self.rng.text(), self.rng.payload())].into();
                return Decision::AttributesUpserted { attributes };
            }
            _ => self.rng.pick(&openings),
        };
        self.open.insert(self.next_id, opening.clone());
        opening
    }

    fn cancel(&mut self) -> Option<Decision> {
        let ids: Vec<u64> = self.open.keys().copied().collect();
        let id = (!ids.is_empty()).then(|| self.rng.pick(&ids))?;
        let source_event_id = EventId(id);
        Some(match self.open.remove(&id)? {
            Decision::ActivityScheduled { .. } => Decision::ActivityCancelRequested { source_event_id },
            Decision::TimerCreated { .. } => Decision::TimerCancelled { source_event_id },
            Decision::ExternalSubscribed { .. } => Decision::ExternalUnsubscribed { source_event_id },
            _ => Decision::SubOrchestrationCancelRequested { source_event_id },
        })
    }
}

#[test]
fn e3_generated_histories_survive_their_bytes() {
    for seed in 0..1_000 {
        let Writer { turns, open, mut updates, .. } = Writer::history(seed);
        let bytes: Vec<Vec<u8>> = turns.iter().map(encode_turn).collect();
        let decoded = stored(&turns).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(decoded.turns, turns, "seed {seed}");
        let again: Vec<Vec<u8>> = decoded.turns.iter().map(encode_turn).collect();
        assert_eq!(again, bytes, "seed {seed}: the payloads are kept to the byte");

        let mut ledger = Ledger::default();
        turns.iter().for_each(|turn| ledger.apply_turn(turn).expect("it applies"));
        let counted: BTreeMap<u64, Decision> = ledger.open().map(|(id, open)| (id.0, open.clone())).collect();
        assert_eq!(counted, open, "seed {seed}: what is open");
        updates.sort_unstable();
        assert_eq!(ledger.open_updates().map(|id| id.0).collect::<Vec<_>>(), updates, "seed {seed}");
    }
}

#[test]
fn e1_a_generated_history_with_an_event_missing_is_corrupt_where_it_is_missing() {
    for seed in 0..100 {
        let Writer { turns, next_id, .. } = Writer::history(seed);
        let last = next_id - 1;
        for missing in 1..last {
            let mut broken = turns.clone();
            for turn in &mut broken {
                turn.events.retain(|event| event.id.0 != missing);
            }
            let place = turns.iter().find(|turn| turn.events.iter().any(|event| event.id.0 == missing + 1));
            let number = place.map(|turn| turn.number);
            let (turn, event, problem) = corrupt(stored(&broken).expect_err("an event is missing"));
            if broken.iter().any(|turn| turn.events.is_empty()) {
                assert_eq!(problem, "a turn without events", "seed {seed}, event {missing}");
                continue;
            }
            assert_eq!((Some(turn), event), (number, Some(missing + 1)), "seed {seed}, event {missing}");
            assert_eq!(problem, format!("event {missing} was expected here"), "seed {seed}");
        }
    }
}

/// Any events at all, in any order, are kept by the encoding; whether they make sense is asked elsewhere.
#[test]
fn e3_any_events_survive_their_bytes() {
    for seed in 0..1_000 {
        let mut rng = Rng(seed);
        let events = (0..rng.below(8)).map(|_| {
            let id = EventId(rng.draw() >> rng.below(64));
            let kind = match rng.below(3) {
                0 => EventKind::Job(rng.pick(&every_job())),
                1 => EventKind::Decision { unit: rng.unit(), decision: rng.pick(&every_decision()) },
                _ => ended(rng.pick(&every_ending())),
            };
            Event { id, kind }
        });
        let events = events.collect();
        let turn = Turn {
            format: FORMAT,
            number: rng.draw(),
            at_ms: rng.draw(),
            draws: rng.draw() >> rng.below(64),
            events,
        };
        assert_eq!(decode_turn(1, &encode_turn(&turn)), Ok(turn), "seed {seed}");
    }
}
