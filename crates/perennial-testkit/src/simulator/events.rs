//! Events that callers raise: one at a time by each sender, with a key, over the route that the sender has.

use perennial_core::shard::{Message, Request};
use perennial_core::store::{InboxNumber, SendOutcome, SendRequest};
use perennial_core::{InstanceKey, Job, Payload, Turn};

use super::Simulation;
use super::callers::{CallerRequest, SENDERS, to_instance};

/// The maximum time that a caller waits for an answer.
const PATIENCE_MS: u64 = 2_500;

pub(super) struct Raised {
    pub(super) id: String,
    /// The number of deletions of its instance's id at that time.
    pub(super) deletions: u64,
    sender: usize,
    pub(super) name: String,
    pub(super) payload: Payload,
    /// The subject that is started with it unless its id exists.
    pub(super) starts: Option<usize>,
    key: String,
    /// The instance that it is meant for; `None` if it is meant for whoever has the id.
    bound: Option<InstanceKey>,
    since_ms: u64,
    is_abandoned: bool,
    is_acknowledged: bool,
}

impl Simulation {
    /// Raises an event: by a sender that waits for nothing, or again by the same one.
    pub(super) fn raise(&mut self, id: &str, name: &str) {
        let sender = self.rng.below(SENDERS);
        self.raise_as(sender, id, name);
    }

    pub(super) fn raise_as(&mut self, sender: usize, id: &str, name: &str) {
        let (place, deletions) = ((id.to_owned(), sender), self.deletions(id));
        if let Some(event) = self.callers.outstanding.get(&place).copied() {
            let raised = &self.callers.events[event];
            if raised.since_ms + PATIENCE_MS > self.now_ms && raised.deletions == deletions {
                return;
            }
            // Who means one instance asks again even if another one has its id by now.
            let is_meant = raised.deletions == deletions || raised.bound.is_some();
            if is_meant && self.rng.percent(80) {
                self.count("event sent again");
                return self.raise_again(event);
            }
            self.callers.events[event].is_abandoned = true;
        }
        let number = self.new_event(sender, id, name);
        self.raise_again(number);
    }

    /// Creates an event for a sender.
    pub(super) fn new_event(&mut self, sender: usize, id: &str, name: &str) -> usize {
        let number = self.callers.events.len();
        let payload = self.event_payload(number, id, name);
        let bound = self.store.tables().ids.get(id).copied().filter(|_| self.rng.percent(50));
        if let Some(key) = bound {
            self.callers.bound.insert(payload.as_json().to_owned(), key);
        }
        self.callers.events.push(Raised {
            id: id.to_owned(),
            deletions: self.deletions(id),
            sender,
            name: name.to_owned(),
            payload,
            starts: None,
            key: format!("key-{number}"),
            bound,
            since_ms: self.now_ms,
            is_abandoned: false,
            is_acknowledged: false,
        });
        self.callers.outstanding.insert((id.to_owned(), sender), number);
        number
    }

    /// The number of a sender's last message to an instance that was acknowledged with one.
    pub(super) fn last_row(&self, id: &str, sender: usize) -> Option<InboxNumber> {
        self.callers.last_rows.get(&(id.to_owned(), sender)).copied()
    }

    pub(super) fn raise_again(&mut self, event: usize) {
        let Raised { id, name, payload, key, sender, bound, .. } = &self.callers.events[event];
        let (id, after) = (id.clone(), self.last_row(id, *sender));
        let (name, payload, key) = (name.clone(), payload.clone(), Some(key.clone()));
        let request = Request::Raise { name, payload, key, trace: None };
        let request = match bound {
            Some(key) => Request::Bound { key: *key, request: Box::new(request) },
            None => request,
        };
        self.callers.events[event].since_ms = self.now_ms;
        let existed = self.store.tables().ids.contains_key(&id);
        match self.near(&id) {
            Some(place) => {
                self.request_of_lane(place, &id, CallerRequest::Raise { event, existed }, request, after)
            }
            None => self.raise_far(event),
        }
    }

    pub(super) fn raise_far(&mut self, event: usize) {
        let Raised { id, name, payload, key, bound, .. } = &self.callers.events[event];
        let (id, name, payload, key) = (id.clone(), name.clone(), payload.clone(), Some(key.clone()));
        let bound = *bound;
        self.note(|| format!("event {event} is sent to {id}"));
        let message = Message::Job(Job::ExternalEvent { name, payload, key: key.clone(), trace: None });
        let mut request = to_instance(&id, key, &message);
        if let SendRequest::Message { key, .. } = &mut request {
            *key = bound;
        }
        self.send(request, move |this, outcome| match outcome {
            SendOutcome::Sent(number) | SendOutcome::Duplicate(number) => {
                this.acknowledge_event(event, Some(number));
            }
            SendOutcome::Full(_) => {
                this.count("event refused as full elsewhere");
                this.refuse_event(event);
            }
            _ => this.refuse_late_event(event),
        });
    }

    /// Handles an event whose instance ended or was deleted before: a sender that would have started it tries
    /// again.
    pub(super) fn refuse_late_event(&mut self, event: usize) {
        if self.callers.events[event].starts.is_some() && !self.is_healed {
            return self.try_start_or_raise(event);
        }
        self.refuse_event(event);
    }

    /// Whether the instance that an event was sent to is gone.
    fn is_outlived(&self, event: usize) -> bool {
        let Raised { id, deletions, .. } = &self.callers.events[event];
        *deletions != self.deletions(id)
    }

    pub(super) fn acknowledge_event(&mut self, event: usize, number: Option<InboxNumber>) {
        self.count("event acknowledged");
        if self.is_outlived(event) {
            return self.refuse_event(event);
        }
        let Raised { id, sender, name, payload, is_abandoned, is_acknowledged, .. } =
            &self.callers.events[event];
        let (id, sender, late) = (id.clone(), *sender, *is_abandoned || *is_acknowledged);
        if !self.is_on_disk(&id, payload) && !self.is_damaged(&id) {
            let what = format!("I8: {payload:?} of {id} was acknowledged and is not stored");
            return self.fail(what);
        }
        if !late {
            self.callers.log.raised(&format!("sender-{sender}"), &id, name, payload.clone());
            self.callers.events[event].is_acknowledged = true;
            self.callers.outstanding.remove(&(id.clone(), sender));
        }
        if let Some(number) = number {
            let last = self.callers.last_rows.entry((id, sender)).or_default();
            *last = number.max(*last);
        }
    }

    pub(super) fn refuse_event(&mut self, event: usize) {
        let Raised { id, sender, is_abandoned, is_acknowledged, .. } = &self.callers.events[event];
        if !*is_abandoned && !*is_acknowledged {
            let place = (id.clone(), *sender);
            self.callers.events[event].is_abandoned = true;
            self.callers.outstanding.remove(&place);
        }
    }

    /// Makes an event one for whoever has the id.
    pub(super) fn unbind(&mut self, event: usize) {
        let Raised { bound, payload, .. } = &mut self.callers.events[event];
        *bound = None;
        self.callers.bound.remove(payload.as_json());
    }

    /// G2: an event that is meant for an instance reaches no other one.
    pub(super) fn witness_bound(&mut self, key: InstanceKey, turn: &Turn) {
        for (_, job) in turn.jobs() {
            let Job::ExternalEvent { payload, .. } = job else { continue };
            let bound = self.callers.bound.get(payload.as_json()).copied();
            if bound.is_some_and(|bound| bound != key) {
                return self.fail(format!("G2: {payload:?}, which is meant for {bound:?}, reaches {key}"));
            }
        }
    }

    /// The acknowledged events of a sender to an instance.
    pub(super) fn acknowledged_by(&self, id: &str, sender: usize) -> Vec<Payload> {
        let deletions = self.deletions(id);
        let is_it = |event: &&Raised| {
            event.id == id && event.sender == sender && event.deletions == deletions && event.is_acknowledged
        };
        self.callers.events.iter().filter(is_it).map(|event| event.payload.clone()).collect()
    }

    /// Whether an event is in the history or in the inbox, or was too late for either.
    fn is_on_disk(&self, id: &str, payload: &Payload) -> bool {
        let marker = payload.as_json().as_bytes();
        let holds = |bytes: &[u8]| bytes.windows(marker.len()).any(|window| window == marker);
        let tables = self.store.tables();
        let Some(key) = tables.ids.get(id) else { return false };
        let all = (*key, 0, 0)..=(*key, u64::MAX, u64::MAX);
        tables.instances[key].status.is_final()
            // An event from before an end is not stored after it, even if the instance runs again.
            || self.has_ended_before(*key)
            || tables
                .inbox
                .values()
                .rev()
                .any(|message| message.to == *key && holds(&self.plain_body(&message.body)))
            || self.witness.turns.range(all).rev().any(|(_, turn)| holds(&self.plain_turn(*key, turn)))
    }
}
