//! Queries and updates: asked where the owner is or through request rows, answered once what they say is durable.

use perennial_core::shard::{AskReply, Question, Request};
use perennial_core::store::{Ask, AskNumber, AskOutcome, AskRow, MemoryStore, Reply, Store};
use perennial_core::{Decision, EventKind, InstanceKey, Job, Payload};

use super::Simulation;
use super::callers::Asked;
use super::store_calls::{PAGE, ask};
use crate::Program;
use crate::program::STATE_QUERY;

/// An update that somebody asks for.
pub(super) struct Update {
    pub(super) id: String,
    /// How often its instance's id had been deleted when it was asked first.
    deletions: u64,
    name: String,
    payload: Payload,
    key: Option<String>,
    answer: Option<AskReply>,
}

impl Simulation {
    /// Somebody asks for an update: a new one, one that is to be refused, or an earlier one again.
    pub(super) fn update(&mut self, id: &str, name: &str) {
        let deletions = self.deletions(id);
        let known: Vec<usize> = self
            .callers
            .updates
            .iter()
            .enumerate()
            .filter(|(_, it)| it.id == id && it.name == name && it.key.is_some() && it.deletions == deletions)
            .map(|(number, _)| number)
            .collect();
        if !known.is_empty() && self.chance.percent(30) {
            self.count("update asked again");
            let number = *self.chance.pick(&known);
            return self.put_update(number);
        }
        let number = self.callers.updates.len();
        let payload = match self.chance.percent(20) {
            true => Program::refused_update(),
            false => Payload::from(format!("<u{number}>")),
        };
        let key = self.chance.percent(70).then(|| format!("update-{number}"));
        let (id, name) = (id.to_owned(), name.to_owned());
        self.callers.updates.push(Update { id, deletions, name, payload, key, answer: None });
        self.put_update(number);
    }

    fn put_update(&mut self, number: usize) {
        let Update { id, name, payload, key, .. } = &self.callers.updates[number];
        let (id, key) = (id.clone(), key.clone());
        let question = Question::Update { name: name.clone(), payload: payload.clone(), key: key.clone() };
        // A row without a key may be taken twice, by one owner after the other.
        match self.near(&id) {
            Some(node) => self.ask_near(node, &id, Asked::Update(number), Request::Ask(question)),
            None if key.is_some() => self.ask_far(id, question, Asked::Update(number)),
            None => {}
        }
    }

    pub(super) fn query(&mut self, id: &str) {
        let name = if self.chance.percent(90) { STATE_QUERY } else { "nobody answers this" };
        let question = Question::Query { name: name.to_owned(), payload: Payload::null() };
        match self.near(id) {
            Some(node) => {
                self.ask_near(node, id, Asked::Query { healed: self.is_healed }, Request::Ask(question))
            }
            None => self.ask_far(id.to_owned(), question, Asked::Query { healed: self.is_healed }),
        }
    }

    /// Writes a request row.
    fn ask_far(&mut self, id: String, question: Question, asked: Asked) {
        let delay_ms = self.call_delay_ms();
        self.later(delay_ms, format!("something is asked of {id}"), move |this| {
            let unavailable = this.faults(|faults| faults.unavailable);
            if this.chance.percent(unavailable) {
                return this.count("ask refused");
            }
            let patience_ms = if this.is_healed { 30_000 } else { this.chance.between(500, 10_000) };
            let deadline_ms = this.now_ms() + patience_ms;
            let body = serde_json::to_vec(&question).expect("a question encodes").into();
            let row = Ask { instance: id, deadline_ms, body };
            let outcome = ask(|reply| this.store.ask(row, reply)).expect("the store is open");
            this.hint();
            if let AskOutcome::Asked(number) = outcome {
                this.count("request row written");
                this.poll_answer(number, deadline_ms, asked);
            }
        });
    }

    fn poll_answer(&mut self, number: AskNumber, deadline_ms: u64, asked: Asked) {
        let pause_ms = self.chance.between(1, 300);
        self.later(pause_ms, format!("the answer to request row {number} is looked for"), move |this| {
            let answer = ask(|reply| this.store.read_answer(number, reply)).expect("the store is open");
            if let Some(body) = answer {
                this.count("request row answered");
                let reply = serde_json::from_slice(&body).expect("the engine wrote it");
                return this.told(asked, reply);
            }
            if this.now_ms() < deadline_ms {
                return this.poll_answer(number, deadline_ms, asked);
            }
            this.count("request row withdrawn");
            let _ = ask(|reply| this.store.withdraw_ask(number, reply));
            if matches!(asked, Asked::Query { healed: true }) {
                this.fail(format!("I17: the query of request row {number} was not answered"));
            }
        });
    }

    /// Somebody is told what became of a question.
    pub(super) fn told(&mut self, asked: Asked, reply: AskReply) {
        match (asked, &reply) {
            (Asked::Query { .. }, AskReply::Answered(_)) => self.count("query answered"),
            (Asked::Query { .. }, _) => self.count("query refused"),
            (Asked::Update(number), AskReply::Answered(_) | AskReply::Failed(_)) => {
                self.update_done(number, reply)
            }
            (Asked::Update(_), AskReply::Refused { .. }) => self.count("update refused"),
            (Asked::Update(_), AskReply::Blocked { .. }) => self.count("update of a blocked instance"),
            (Asked::Update(_), AskReply::Ended) => self.count("update too late"),
            _ => {}
        }
    }

    fn update_done(&mut self, number: usize, reply: AskReply) {
        self.count("update answered");
        let Update { id, deletions, payload, answer, .. } = &self.callers.updates[number];
        let (id, payload, answer) = (id.clone(), payload.clone(), answer.clone());
        if *deletions != self.deletions(&id) {
            return;
        }
        if payload == Program::refused_update() {
            return self.fail(format!("E21: an update of {id} was carried out that its validator refuses"));
        }
        if !self.is_recorded(&id, &payload, &reply) {
            return self.fail(format!("G5: update {payload:?} of {id} was answered before that is durable"));
        }
        match answer {
            Some(first) if first != reply => {
                self.fail(format!("G16: update {payload:?} of {id} was answered in two ways"));
            }
            Some(_) => self.count("update answered again"),
            None => self.callers.updates[number].answer = Some(reply),
        }
    }

    /// Whether an answer to an update is in the history.
    fn is_recorded(&self, id: &str, payload: &Payload, reply: &AskReply) -> bool {
        let Some(key) = self.store.tables().ids.get(id).copied() else { return false };
        self.executions(key).iter().any(|history| {
            let requested =
                history.flatten().find(|event| is_update(&event.kind, payload)).map(|event| event.id);
            history.flatten().any(|event| match &event.kind {
                EventKind::Decision {
                    decision: Decision::UpdateCompleted { source_event_id, result },
                    ..
                } => {
                    requested == Some(*source_event_id)
                        && match reply {
                            AskReply::Answered(payload) => result.as_ref() == Ok(payload),
                            AskReply::Failed(payload) => result.as_ref() == Err(payload),
                            _ => false,
                        }
                }
                _ => false,
            })
        })
    }

    /// How many of the latest updates were accepted and have no answer.
    pub(super) fn count_accepted_updates(&mut self) {
        let late = self.callers.updates.iter().rev().take(6);
        let open: Vec<(String, Payload)> = late
            .filter(|update| update.answer.is_none())
            .map(|update| (update.id.clone(), update.payload.clone()))
            .collect();
        for (id, payload) in open {
            let key: Option<InstanceKey> = self.store.tables().ids.get(&id).copied();
            let Some(key) = key.filter(|_| payload != Program::refused_update()) else { continue };
            let is_accepted = self
                .executions(key)
                .iter()
                .any(|history| history.flatten().any(|event| is_update(&event.kind, &payload)));
            if is_accepted {
                self.count("crash between acceptance and answer of an update");
            }
        }
    }

    /// I8, for updates: one that has a key of its own is taken once.
    pub(super) fn audit_updates(&mut self) {
        let keyed = self.callers.updates.iter().filter(|update| update.key.is_some());
        let keyed: Vec<(String, Payload)> =
            keyed.map(|update| (update.id.clone(), update.payload.clone())).collect();
        for (id, payload) in keyed {
            let Some(key) = self.store.tables().ids.get(&id).copied() else { continue };
            if payload == Program::refused_update() {
                continue;
            }
            let taken: usize = self
                .executions(key)
                .iter()
                .map(|history| history.flatten().filter(|event| is_update(&event.kind, &payload)).count())
                .sum();
            if taken > 1 {
                return self.fail(format!("I8: update {payload:?} of {id} was taken {taken} times"));
            }
        }
    }

    /// A node reads the requests to its instances.
    pub(super) fn read_asks(&mut self, node: usize) {
        self.read_asks_from(node, 0);
    }

    fn read_asks_from(&mut self, node: usize, from: AskNumber) {
        let read = move |store: &MemoryStore, session, reply: Reply<Vec<AskRow>>| {
            store.read_asks(session, from, PAGE, reply);
        };
        // If this one fails, the next look around reads again.
        self.read(node, "read_asks", read, move |this, rows| {
            let rows = rows.unwrap_or_default();
            let next = (rows.len() == PAGE).then(|| rows.last().map(|row| row.number + 1)).flatten();
            this.bring_asks(node, rows.clone());
            let stale_page = this.faults(|faults| faults.stale_page);
            if !rows.is_empty() && this.chance.percent(stale_page) {
                let (delay_ms, session) = (this.chance.between(1, 2_000), this.nodes[node].session);
                this.later_on(node, delay_ms, format!("n{node} gets an old page of requests"), move |this| {
                    if this.nodes[node].session == session {
                        this.count("stale page of requests");
                        this.bring_asks(node, rows);
                    }
                });
            }
            if let Some(next) = next {
                this.read_asks_from(node, next);
            }
        });
    }

    fn bring_asks(&mut self, node: usize, rows: Vec<AskRow>) {
        for row in rows {
            self.with_shard(node, row.shard, |shard, now_ms| shard.handle_asks(now_ms, vec![row]));
        }
    }

    pub(super) fn sweep_asks(&mut self, node: usize) {
        let effect = move |this: &mut Simulation| ask(|reply| this.store.sweep_asks(reply));
        self.call(node, "sweep_asks", effect, |_, _| ());
    }
}

fn is_update(kind: &EventKind, payload: &Payload) -> bool {
    matches!(kind, EventKind::Job(Job::UpdateRequested { payload: other, .. }) if other == payload)
}
