//! Callers: they start instances, raise events, cancel, terminate, wait, and write down what they were told.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::{Answer, Message, Request, RequestId, Start, StartRequest};
use perennial_core::store::{InstanceRow, SendOutcome, SendRequest, Status, Store, StoreError};
use perennial_core::{InstanceKey, Job, Payload, ShardId, Started};

use super::healing::ABSENT;
use super::plan::Plan;
use super::store_calls::ask;
use super::{Flaw, Simulation};
use crate::invariants::ClientLog;
use crate::program::{HandlerKind, PROGRAM, PROGRAM_VERSION};
use crate::{Chance, Features, Program, ProgramInput, generate};

/// Shards that the instances share, far apart, so that several nodes have some of them.
const SHARDS_IN_USE: [u8; 3] = [3, 100, 200];
/// How many callers raise events at each instance, one event at a time each.
const SENDERS: usize = 2;
/// The sender that is always where the owner is; the other one never is.
const NEAR: usize = 0;
/// How long a caller waits for an answer.
const PATIENCE_MS: u64 = 2_500;

pub(super) struct Callers {
    pub(super) subjects: Vec<Subject>,
    pub(super) log: ClientLog,
    /// Under which keys each id was acknowledged as started.
    pub(super) acknowledged: BTreeMap<String, BTreeSet<InstanceKey>>,
    asked: BTreeMap<RequestId, Asked>,
    answered: BTreeSet<RequestId>,
    events: Vec<Raised>,
    /// What each sender waits for.
    outstanding: BTreeMap<(usize, usize), usize>,
    requests: u64,
}

/// An instance that callers have to do with.
pub(super) struct Subject {
    pub(super) id: String,
    pub(super) program: Program,
    pub(super) name: &'static str,
    is_tried: bool,
}

/// What a caller asked for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Start(usize),
    Raise { event: usize, existed: bool },
    End,
    AwaitEnd(usize),
}

/// An event that a sender raises.
struct Raised {
    subject: usize,
    sender: usize,
    name: String,
    payload: Payload,
    key: Option<String>,
    since_ms: u64,
    is_given_up: bool,
    is_acknowledged: bool,
}

impl Callers {
    pub(super) fn new(chance: &mut Chance, plan: &Plan) -> Callers {
        let features = Features {
            children: false,
            starts: false,
            sent_events: false,
            updates: false,
            continue_as_new: false,
            ..Features::all()
        };
        let ids = (0..).map(|number| format!("i{number}"));
        let ids = ids.filter(|id| SHARDS_IN_USE.contains(&ShardId::of(id).0)).take(plan.instances);
        let subject = |id| Subject {
            id,
            program: generate(chance.draw(), &features, chance.weighted(&[(2, 4), (3, 10), (1, 25)])),
            name: if chance.percent(10) { ABSENT } else { PROGRAM },
            is_tried: false,
        };
        Callers {
            subjects: ids.map(subject).collect(),
            log: ClientLog::default(),
            acknowledged: BTreeMap::new(),
            asked: BTreeMap::new(),
            answered: BTreeSet::new(),
            events: Vec::new(),
            outstanding: BTreeMap::new(),
            requests: 0,
        }
    }
}

impl Simulation {
    pub(super) fn callers_go_on(&mut self) {
        let pause_ms = self.chance.between(1, 400);
        self.later(pause_ms, "a caller acts", |this| {
            if !this.is_healed {
                this.callers_go_on();
                this.act();
            }
        });
    }

    fn act(&mut self) {
        let new: Vec<usize> = (0..self.callers.subjects.len())
            .filter(|subject| !self.callers.subjects[*subject].is_tried)
            .collect();
        if !new.is_empty() && self.chance.percent(40) {
            let subject = *self.chance.pick(&new);
            self.start(subject);
            if self.chance.percent(30) {
                self.count("rival start");
                self.start(subject);
            }
            return;
        }
        let subject = self.chance.below(self.callers.subjects.len());
        match self.chance.below(20) {
            0 => {
                self.count("start again");
                self.start(subject);
            }
            1 if self.chance.percent(50) => self.end(subject, true),
            2 if self.chance.percent(25) => self.end(subject, false),
            3 | 4 => self.await_end(subject),
            _ => {
                let program = &self.callers.subjects[subject].program;
                let mut names: Vec<String> =
                    program.awaited_events().into_iter().map(str::to_owned).collect();
                names.extend(program.handled(HandlerKind::Event).map(str::to_owned));
                names.push("nobody waits for this".to_owned());
                let name = self.chance.pick(&names).clone();
                self.raise(subject, &name);
            }
        }
    }

    /// A node that takes requests for an instance in memory, if the caller happens to be there.
    fn near(&mut self, subject: usize) -> Option<usize> {
        let node = self.chance.below(self.nodes.len());
        self.takes(node, subject).then_some(node)
    }

    /// The node that takes requests for an instance in memory.
    fn owner(&self, subject: usize) -> Option<usize> {
        (0..self.nodes.len()).find(|node| self.takes(*node, subject))
    }

    fn takes(&self, node: usize, subject: usize) -> bool {
        let shard = ShardId::of(&self.callers.subjects[subject].id);
        let it = &self.nodes[node];
        it.owned.contains_key(&shard) && it.paused_until_ms <= self.now_ms() && !self.is_past_deadline(node)
    }

    fn ask_near(&mut self, node: usize, subject: usize, asked: Asked, request: Request) {
        self.callers.requests += 1;
        let request_id = RequestId(self.callers.requests);
        self.callers.asked.insert(request_id, asked);
        let id = self.callers.subjects[subject].id.clone();
        self.note(|| format!("n{node} is asked {asked:?} of {id}"));
        self.with_shard(node, ShardId::of(&id), |shard, now_ms| {
            shard.handle_request(now_ms, request_id, &id, request);
        });
    }

    /// Sends something from outside of the owner.
    fn send(&mut self, request: SendRequest, reply: impl FnOnce(&mut Simulation, SendOutcome) + 'static) {
        let delay_ms = self.call_delay_ms();
        self.later(delay_ms, "something is sent", move |this| {
            let (unavailable, unknown) =
                (this.faults(|faults| faults.unavailable), this.faults(|faults| faults.unknown));
            if this.chance.percent(unavailable) {
                return this.count("send refused");
            }
            let outcomes: Result<Vec<SendOutcome>, StoreError> =
                ask(|reply| this.store.send(vec![request], reply));
            let outcome = outcomes.expect("the store is open").remove(0);
            if let SendOutcome::Sent(number) = outcome {
                this.witness.sent.insert(number);
                if this.flaw == Some(Flaw::LostMessages) && this.chance.percent(10) {
                    this.store.tables().inbox.remove(&number);
                }
            }
            this.hint();
            if this.chance.percent(unknown) {
                return this.count("send unknown");
            }
            let delay_ms = this.call_delay_ms();
            let label = format!("a sender is told {}", outcome_name(&outcome));
            this.later(delay_ms, label, move |this| reply(this, outcome));
        });
    }

    /// Some nodes notice that something was sent.
    fn hint(&mut self) {
        for node in 0..self.nodes.len() {
            if self.chance.percent(60) && self.nodes[node].is_up {
                let delay_ms = self.chance.between(0, 10);
                self.later_on(node, delay_ms, format!("n{node} gets a hint"), move |this| {
                    this.read_inbox(node)
                });
            }
        }
    }

    pub(super) fn start(&mut self, subject: usize) {
        let Subject { id, program, name, .. } = &self.callers.subjects[subject];
        let (id, name) = (id.clone(), *name);
        let input = ProgramInput::from(program.clone()).payload();
        self.callers.subjects[subject].is_tried = true;
        let started = Started::new(name, PROGRAM_VERSION, input, self.chance.draw());
        let random = u128::from(self.chance.draw()) << 64 | u128::from(self.chance.draw());
        let key = InstanceKey::new(self.now_ms(), random);
        if let Some(node) = self.near(subject) {
            let request = Request::Start(Box::new(StartRequest { key, started, jobs: Vec::new() }));
            return self.ask_near(node, subject, Asked::Start(subject), request);
        }
        let row = InstanceRow {
            key,
            shard: ShardId::of(&id),
            id,
            name: started.name.clone(),
            version: started.version.clone(),
            status: Status::Pending,
            execution: started.execution,
            owed: false,
            wake_at_ms: None,
            blocked: None,
            attributes: started.attributes.clone(),
            published: None,
            parent: None,
            created_ms: self.now_ms(),
            ended_ms: None,
        };
        let body = Message::Start(Box::new(Start::new(started))).encode();
        self.send(SendRequest::Start { row: Box::new(row), body }, move |this, outcome| {
            if let SendOutcome::Sent(_) = outcome {
                this.acknowledge_start(subject, key);
            }
        });
    }

    fn acknowledge_start(&mut self, subject: usize, key: InstanceKey) {
        self.count("start acknowledged");
        let id = self.callers.subjects[subject].id.clone();
        let exists = self.store.tables().ids.get(&id) == Some(&key);
        self.callers.log.started(id.as_str());
        self.callers.acknowledged.entry(id.clone()).or_default().insert(key);
        if !exists {
            self.fail(format!("I2: {id} was acknowledged as started and is not stored"));
        }
    }

    /// Somebody raises an event: a sender that waits for nothing, or the same one again.
    pub(super) fn raise(&mut self, subject: usize, name: &str) {
        let sender = self.chance.below(SENDERS);
        if !self.roams && sender == NEAR && self.owner(subject).is_none() {
            return;
        }
        if let Some(event) = self.callers.outstanding.get(&(subject, sender)).copied() {
            let raised = &mut self.callers.events[event];
            if raised.since_ms + PATIENCE_MS > self.clock.load(std::sync::atomic::Ordering::Relaxed) {
                return;
            }
            if raised.key.is_some() && self.chance.percent(80) {
                self.count("event sent again");
                return self.raise_again(event);
            }
            self.callers.events[event].is_given_up = true;
        }
        let number = self.callers.events.len();
        let key = self.chance.percent(40).then(|| format!("key-{number}"));
        self.callers.events.push(Raised {
            subject,
            sender,
            name: name.to_owned(),
            payload: Payload::from(format!("<{number}>")),
            key,
            since_ms: self.now_ms(),
            is_given_up: false,
            is_acknowledged: false,
        });
        self.callers.outstanding.insert((subject, sender), number);
        self.raise_again(number);
    }

    fn raise_again(&mut self, event: usize) {
        let Raised { subject, name, payload, key, .. } = &self.callers.events[event];
        let (subject, name, payload, key) = (*subject, name.clone(), payload.clone(), key.clone());
        self.callers.events[event].since_ms = self.now_ms();
        let id = self.callers.subjects[subject].id.clone();
        let existed = self.store.tables().ids.contains_key(&id);
        let node = match self.callers.events[event].sender {
            _ if self.roams => self.near(subject),
            NEAR => self.owner(subject),
            _ => None,
        };
        if let Some(node) = node {
            let request = Request::Raise { name, payload, key };
            return self.ask_near(node, subject, Asked::Raise { event, existed }, request);
        }
        self.note(|| format!("event {event} is sent to {id}"));
        let message = Message::Job(Job::ExternalEvent { name, payload, key: key.clone() });
        let request = SendRequest::Message { id, dedupe: key, urgent: false, body: message.encode() };
        self.send(request, move |this, outcome| match outcome {
            SendOutcome::Sent(_) | SendOutcome::Duplicate => this.acknowledge_event(event),
            _ => this.refuse_event(event),
        });
    }

    fn acknowledge_event(&mut self, event: usize) {
        self.count("event acknowledged");
        let Raised { subject, sender, name, payload, is_given_up, is_acknowledged, .. } =
            &self.callers.events[event];
        let (subject, sender, late) = (*subject, *sender, *is_given_up || *is_acknowledged);
        let id = self.callers.subjects[subject].id.clone();
        if !self.is_on_disk(&id, payload) {
            let what = format!("I8: {payload:?} of {id} was acknowledged and is not stored");
            return self.fail(what);
        }
        if !late {
            self.callers.log.raised(&format!("sender-{sender}"), &id, name, payload.clone());
            self.callers.events[event].is_acknowledged = true;
            self.callers.outstanding.remove(&(subject, sender));
        }
    }

    fn refuse_event(&mut self, event: usize) {
        let Raised { subject, sender, is_given_up, is_acknowledged, .. } = &self.callers.events[event];
        if !*is_given_up && !*is_acknowledged {
            let place = (*subject, *sender);
            self.callers.events[event].is_given_up = true;
            self.callers.outstanding.remove(&place);
        }
    }

    /// Whether an event is in the history or in the inbox, or came too late for either.
    fn is_on_disk(&self, id: &str, payload: &Payload) -> bool {
        let marker = payload.as_json().as_bytes();
        let holds = |bytes: &[u8]| bytes.windows(marker.len()).any(|window| window == marker);
        let tables = self.store.tables();
        let Some(key) = tables.ids.get(id) else { return false };
        tables.instances[key].status.is_final()
            || tables.turns.range((*key, 0, 0)..=(*key, u64::MAX, u64::MAX)).any(|(_, bytes)| holds(bytes))
            || tables.inbox.values().any(|message| message.to == *key && holds(&message.body))
    }

    /// Somebody cancels or terminates an instance.
    fn end(&mut self, subject: usize, cancels: bool) {
        self.count(if cancels { "cancel" } else { "terminate" });
        let reason = "enough".to_owned();
        if let Some(node) = self.near(subject) {
            let request = if cancels { Request::Cancel { reason } } else { Request::Terminate { reason } };
            return self.ask_near(node, subject, Asked::End, request);
        }
        let grace_until_ms = self.now_ms() + self.plan.shard.cancel_grace_ms;
        let message = match cancels {
            true => Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms }),
            false => Message::Terminate { reason },
        };
        let id = self.callers.subjects[subject].id.clone();
        self.send(
            SendRequest::Message { id, dedupe: None, urgent: message.is_urgent(), body: message.encode() },
            |_, _| (),
        );
    }

    fn await_end(&mut self, subject: usize) {
        if let Some(node) = self.near(subject) {
            self.ask_near(node, subject, Asked::AwaitEnd(subject), Request::AwaitEnd);
        }
    }

    /// A caller gets an answer.
    pub(super) fn answered(&mut self, request: RequestId, answer: Answer) {
        if !self.callers.answered.insert(request) {
            return self.fail(format!("G5: request {} was answered twice", request.0));
        }
        let Some(asked) = self.callers.asked.remove(&request) else { return };
        self.note(|| format!("{asked:?} is told {}", answer_name(&answer)));
        match (asked, answer) {
            (Asked::Start(subject), Answer::Started(key)) => self.acknowledge_start(subject, key),
            (Asked::Start(subject), Answer::AlreadyExists(_)) => {
                let id = self.callers.subjects[subject].id.clone();
                if !self.store.tables().ids.contains_key(&id) {
                    self.fail(format!("I7: {id} was refused as existing and does not exist"));
                }
            }
            (Asked::Raise { event, .. }, Answer::Accepted) => self.acknowledge_event(event),
            (Asked::Raise { event, existed }, answer) => {
                if existed && matches!(answer, Answer::NotFound) {
                    self.fail("I2: an event was refused although its instance exists".to_owned());
                }
                let is_refused =
                    matches!(answer, Answer::NotFound | Answer::EndedBefore | Answer::Full { .. });
                if is_refused {
                    self.refuse_event(event);
                }
            }
            (Asked::AwaitEnd(subject), Answer::Ended(ending)) => {
                self.count("end told");
                let id = self.callers.subjects[subject].id.clone();
                let key = self.store.tables().ids.get(&id).copied();
                let history = key.and_then(|key| self.history(key));
                if history.as_ref().and_then(|history| history.ending()) != Some(&*ending) {
                    self.fail(format!("G5: the end of {id} was told and is not stored"));
                }
            }
            _ => {}
        }
    }
}

fn outcome_name(outcome: &SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::Sent(_) => "sent",
        SendOutcome::Duplicate => "duplicate",
        SendOutcome::IdTaken(_) => "id taken",
        SendOutcome::NoInstance => "no instance",
        SendOutcome::Ended(_) => "ended",
        SendOutcome::Full(_) => "full",
    }
}

fn answer_name(answer: &Answer) -> &'static str {
    match answer {
        Answer::Started(_) => "started",
        Answer::AlreadyExists(_) => "already exists",
        Answer::Accepted => "accepted",
        Answer::Ended(_) => "ended",
        Answer::EndedBefore => "ended before",
        Answer::NotFound => "not found",
        Answer::Full { .. } => "full",
        Answer::NotBlocked => "not blocked",
        Answer::Unknown { .. } => "unknown",
        _ => "something else",
    }
}
