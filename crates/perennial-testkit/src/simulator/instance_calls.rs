//! Queries and updates: sent to the owner or through request rows, and answered once their effects are
//! durable.

use perennial_core::shard::{CallReply, InstanceCall, Request};
use perennial_core::store::{NewRequest, RequestNumber, RequestOutcome, Store};
use perennial_core::{Decision, EventKind, InstanceKey, Job, Payload, Turn};

use super::Simulation;
use super::callers::{CallerRequest, SENDERS};
use super::remembered_keys::{Takings, takings};
use super::store_calls::wait_for;
use crate::Program;
use crate::program::STATE_QUERY;

/// An update that a caller sends.
pub(super) struct Update {
    pub(super) id: String,
    sender: usize,
    /// The number of deletions of its instance's id when it was first sent.
    deletions: u64,
    name: String,
    payload: Payload,
    key: String,
    answer: Option<CallReply>,
    /// Earlier events of its sender that were acknowledged.
    follows: Vec<Payload>,
}

impl Simulation {
    /// Sends an update: a new one, one to be refused, or an earlier one again.
    pub(super) fn update(&mut self, id: &str, name: &str) {
        let deletions = self.deletions(id);
        let known: Vec<usize> = self
            .callers
            .updates
            .iter()
            .enumerate()
            .filter(|(_, it)| it.id == id && it.name == name && it.deletions == deletions)
            .map(|(number, _)| number)
            .collect();
        if !known.is_empty() && self.rng.percent(30) {
            self.count("update asked again");
            let number = *self.rng.pick(&known);
            return self.put_update(number);
        }
        let number = self.callers.updates.len();
        let payload = match self.rng.percent(20) {
            true => Program::refused_update(),
            false => Payload::from(format!("<u{number}>")),
        };
        let (key, sender) = (format!("update-{number}"), self.rng.below(SENDERS));
        let follows = self.acknowledged_by(id, sender);
        let (id, name) = (id.to_owned(), name.to_owned());
        let answer = None;
        self.callers.updates.push(Update { id, sender, deletions, name, payload, key, answer, follows });
        self.put_update(number);
    }

    fn put_update(&mut self, update: usize) {
        let Update { id, sender, .. } = &self.callers.updates[update];
        let (id, after) = (id.clone(), self.last_row(id, *sender));
        let Some(place) = self.near(&id) else { return self.update_far(update) };
        let request = Request::Call(self.update_call(update));
        self.request_of_lane(place, &id, CallerRequest::Update(update), request, after);
    }

    pub(super) fn update_far(&mut self, update: usize) {
        let Update { id, sender, .. } = &self.callers.updates[update];
        let (id, sender, instance_call) = (id.clone(), *sender, self.update_call(update));
        self.call_through_store(id, None, instance_call, CallerRequest::Update(update), sender);
    }

    fn update_call(&self, update: usize) -> InstanceCall {
        let Update { name, payload, key, .. } = &self.callers.updates[update];
        InstanceCall::Update {
            name: name.clone(),
            payload: payload.clone(),
            key: Some(key.clone()),
            trace: None,
        }
    }

    pub(super) fn query(&mut self, id: &str) {
        let (healed, sender) = (self.is_healed, self.rng.below(SENDERS));
        let Some(place) = self.near(id) else { return self.query_far(id, healed, sender) };
        let (request, after) = (Request::Call(self.query_call()), self.last_row(id, sender));
        self.request_of_lane(
            place,
            id,
            CallerRequest::Query { id: id.to_owned(), healed, sender },
            request,
            after,
        );
    }

    pub(super) fn query_far(&mut self, id: &str, healed: bool, sender: usize) {
        let instance_call = self.query_call();
        let requested = CallerRequest::Query { id: id.to_owned(), healed, sender };
        self.call_through_store(id.to_owned(), None, instance_call, requested, sender);
    }

    fn query_call(&mut self) -> InstanceCall {
        let name = if self.rng.percent(90) { STATE_QUERY } else { "nobody answers this" };
        InstanceCall::Query { name: name.to_owned(), payload: Payload::null() }
    }

    /// Writes a request row.
    pub(super) fn call_through_store(
        &mut self,
        id: String,
        key: Option<InstanceKey>,
        instance_call: InstanceCall,
        requested: CallerRequest,
        sender: usize,
    ) {
        let delay_ms = self.call_delay_ms();
        self.later(delay_ms, format!("something is asked of {id}"), move |this| {
            let unavailable = this.faults(|faults| faults.unavailable);
            if this.is_out_of_reach() || this.rng.percent(unavailable) {
                return this.count("ask refused");
            }
            let patience_ms = if this.is_healed {
                30_000 + this.plan.max_clock_lag_ms()
            } else {
                this.rng.between(500, 10_000)
            };
            let body = instance_call.encode();
            let after = this.last_row(&id, sender);
            let row = NewRequest { instance: id, key, patience_ms, after, body };
            let outcome = this
                .with_sound_codecs(|_| wait_for(|reply| this.coded.put_request(row, reply)))
                .expect("the store is open");
            this.deliver_hints();
            if let RequestOutcome::Written(number) = outcome {
                this.count("request row written");
                let deadline_ms = this.now_ms + patience_ms;
                this.poll_reply(number, deadline_ms, this.deaths, requested);
            }
        });
    }

    /// Polls for a reply until its deadline. `deaths` is the number of crashes by an activity until then.
    fn poll_reply(&mut self, number: RequestNumber, deadline_ms: u64, deaths: u64, requested: CallerRequest) {
        let pause_ms = self.rng.between(1, 300);
        self.later(pause_ms, format!("the reply to request row {number} is looked for"), move |this| {
            let reply = this
                .with_sound_codecs(|_| wait_for(|reply| this.coded.read_reply(number, reply)))
                .expect("the store is open");
            if let Some(body) = reply {
                this.count("request row answered");
                let reply = CallReply::decode(&body).expect("the engine wrote it");
                return this.call_answered(&requested, reply);
            }
            if this.now_ms < deadline_ms {
                return this.poll_reply(number, deadline_ms, deaths, requested);
            }
            this.count("request row withdrawn");
            let instance = this.called_instance(number);
            let _ = wait_for(|reply| this.store.withdraw_request(number, reply));
            // The owner of the instance may be down repeatedly until that activity has failed.
            if matches!(requested, CallerRequest::Query { healed: true, .. }) && this.deaths == deaths {
                let unserved = this.unserved();
                this.fail(format!(
                    "I17: the query of request row {number} was not answered by {instance}, {unserved}"
                ));
            }
        });
    }

    /// Describes the instance of a request row.
    fn called_instance(&self, number: RequestNumber) -> String {
        let tables = self.store.tables();
        let key = tables.requests.get(&number).map(|request| request.key);
        let row = key.and_then(|key| tables.instances.get(&key));
        row.map_or("nobody".to_owned(), |row| {
            let blocked = row.blocked.as_ref().map_or("", |blocked| &blocked.code);
            format!("{} ({} {blocked})", row.id, row.status.name())
        })
    }

    /// Handles the reply to a query or an update.
    pub(super) fn call_answered(&mut self, requested: &CallerRequest, reply: CallReply) {
        match (requested, &reply) {
            (CallerRequest::Token(spoken), reply) => self.token_call_answered(*spoken, reply),
            (CallerRequest::Query { .. }, CallReply::Answered(_)) => self.count("query answered"),
            (CallerRequest::Query { .. }, _) => self.count("query refused"),
            (CallerRequest::Update(update), CallReply::Answered(_) | CallReply::Failed(_)) => {
                self.update_done(*update, reply);
            }
            (CallerRequest::Update(_), CallReply::Refused { .. }) => self.count("update refused"),
            (CallerRequest::Update(_), CallReply::Blocked { .. }) => {
                self.count("update of a blocked instance")
            }
            (CallerRequest::Update(_), CallReply::Ended) => self.count("update too late"),
            (CallerRequest::Update(_), CallReply::Unanswered) => self.count("update ended unanswered"),
            _ => {}
        }
    }

    fn update_done(&mut self, number: usize, reply: CallReply) {
        self.count("update answered");
        let Update { id, deletions, payload, answer, .. } = &self.callers.updates[number];
        let (id, payload, answer) = (id.clone(), payload.clone(), answer.clone());
        if *deletions != self.deletions(&id) {
            return;
        }
        let key = self.store.tables().ids.get(&id).copied();
        if key.is_some_and(|key| self.was_reset(key)) {
            return;
        }
        if payload == Program::refused_update() {
            return self.fail(format!("E21: an update of {id} was carried out that its validator refuses"));
        }
        if !self.is_recorded(&id, &payload, &reply) {
            return self.fail(format!("G5: update {payload:?} of {id} was answered before that is durable"));
        }
        match answer {
            Some(first) if first != reply => match self.takings(number) {
                Takings { count: 2.., while_known: false } => self.count("update forgotten and taken again"),
                _ => self.fail(format!("G16: update {payload:?} of {id} was answered in two ways")),
            },
            Some(_) => self.count("update answered again"),
            None => self.callers.updates[number].answer = Some(reply),
        }
    }

    /// The number of times that an update was accepted by the instance with its id.
    fn takings(&self, number: usize) -> Takings {
        let Update { id, key, .. } = &self.callers.updates[number];
        let Some(instance) = self.store.tables().ids.get(id).copied() else { return Takings::default() };
        let executions = self.executions(instance).map(|history| history.turns.iter().flat_map(Turn::jobs));
        takings(executions.map(|jobs| jobs.map(|(_, job)| job)), key)
    }

    /// Whether an answer to an update is in the history.
    fn is_recorded(&self, id: &str, payload: &Payload, reply: &CallReply) -> bool {
        let Some(key) = self.store.tables().ids.get(id).copied() else { return false };
        self.executions(key).any(|history| {
            let requested =
                history.flatten().find(|event| is_update(&event.kind, payload)).map(|event| event.id);
            history.flatten().any(|event| match &event.kind {
                EventKind::Decision {
                    decision: Decision::UpdateCompleted { source_event_id, result },
                    ..
                } => {
                    requested == Some(*source_event_id)
                        && match reply {
                            CallReply::Answered(payload) => result.as_ref() == Ok(payload),
                            CallReply::Failed(payload) => result.as_ref() == Err(payload),
                            _ => false,
                        }
                }
                _ => false,
            })
        })
    }

    /// Counts the latest updates that were accepted and have no answer.
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
                .any(|history| history.flatten().any(|event| is_update(&event.kind, &payload)));
            if is_accepted {
                self.count("crash between acceptance and answer of an update");
            }
        }
    }

    /// I8 for updates: each is accepted once, as long as its key is remembered (G16), and after the earlier
    /// events of its sender.
    pub(super) fn audit_updates(&mut self) {
        for number in 0..self.callers.updates.len() {
            let Update { id, payload, answer, follows, deletions, .. } = &self.callers.updates[number];
            let Some(key) = self.store.tables().ids.get(id).copied() else { continue };
            let is_excused = *deletions != self.deletions(id) || self.was_reset(key);
            if *payload == Program::refused_update() || is_excused {
                continue;
            }
            let executions = self.executions(key);
            let events: Vec<&EventKind> =
                executions.flat_map(|history| history.flatten().map(|event| &event.kind)).collect();
            let taken = events.iter().filter(|kind| is_update(kind, payload)).count();
            if taken > 1 && self.takings(number).while_known {
                return self.fail(format!("I8: update {payload:?} of {id} was taken {taken} times"));
            }
            let place = events.iter().position(|kind| is_update(kind, payload));
            let (Some(place), Some(_)) = (place, answer) else { continue };
            let is_event = |kind: &&EventKind, event: &Payload| matches!(kind, EventKind::Job(Job::ExternalEvent { payload, .. }) if payload == event);
            let overtaken =
                follows.iter().find(|event| !events[..place].iter().any(|kind| is_event(kind, event)));
            if let Some(event) = overtaken {
                return self
                    .fail(format!("I8: update {payload:?} of {id} came before {event:?} of its sender"));
            }
        }
    }
}

fn is_update(kind: &EventKind, payload: &Payload) -> bool {
    matches!(kind, EventKind::Job(Job::UpdateRequested { payload: other, .. }) if other == payload)
}
