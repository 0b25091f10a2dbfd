//! Callers: they start instances, raise events, cancel, terminate, wait, and write down what they were told.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::history::decode_turn;
use perennial_core::shard::{Answer, Message, Request, RequestId, Start, StartRequest};
use perennial_core::store::{InstanceRow, SendOutcome, SendRequest, Store, StoreError};
use perennial_core::{InstanceKey, Job, Payload, ShardId, Started};

use super::asks::Update;
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
    pub(super) updates: Vec<Update>,
    /// What each sender waits for.
    outstanding: BTreeMap<(String, usize), usize>,
    requests: u64,
}

/// An instance that callers start.
pub(super) struct Subject {
    pub(super) id: String,
    pub(super) program: Program,
    pub(super) name: &'static str,
    /// Whether it is started at an exact version.
    is_exact: bool,
    is_tried: bool,
}

/// What a caller asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Start(usize),
    Raise { event: usize, existed: bool },
    End,
    AwaitEnd { deletions: u64 },
    Update(usize),
    Query { healed: bool },
}

/// An event that a sender raises.
struct Raised {
    id: String,
    /// How often its instance's id had been deleted by then.
    deletions: u64,
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
        let features = Features::all();
        let ids = (0..).map(|number| format!("i{number}"));
        let ids = ids.filter(|id| SHARDS_IN_USE.contains(&ShardId::of(id).0)).take(plan.instances);
        let subject = |id| Subject {
            id,
            program: generate(chance.draw(), &features, chance.weighted(&[(2, 4), (3, 10), (1, 25)])),
            name: if chance.percent(10) { ABSENT } else { PROGRAM },
            is_exact: chance.percent(40),
            is_tried: false,
        };
        Callers {
            subjects: ids.map(subject).collect(),
            log: ClientLog::default(),
            acknowledged: BTreeMap::new(),
            asked: BTreeMap::new(),
            answered: BTreeSet::new(),
            events: Vec::new(),
            updates: Vec::new(),
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
        let id = self.somebody(subject);
        match self.chance.below(24) {
            0 => {
                self.count("start again");
                self.start(subject);
            }
            1 if self.chance.percent(50) => self.end(&id, true),
            2 if self.chance.percent(25) => self.end(&id, false),
            3 | 4 => self.await_end(&id),
            5 | 6 => self.query(&id),
            7..=10 => {
                let name = self.some_name(&id, HandlerKind::Update);
                self.update(&id, &name);
            }
            11 => {
                self.count("storm of events");
                for sender in 0..self.chance.below(10) {
                    let name = self.some_name(&id, HandlerKind::Event);
                    self.raise_as(SENDERS + sender, &id, &name);
                }
            }
            _ => {
                let name = self.some_name(&id, HandlerKind::Event);
                self.raise(&id, &name);
            }
        }
    }

    /// A subject, or whatever else there is.
    fn somebody(&mut self, subject: usize) -> String {
        if self.chance.percent(30) {
            let ids: Vec<String> = self.store.tables().ids.keys().cloned().collect();
            if !ids.is_empty() {
                return self.chance.pick(&ids).clone();
            }
        }
        self.callers.subjects[subject].id.clone()
    }

    /// What an instance may wait for, or what nobody waits for.
    fn some_name(&mut self, id: &str, kind: HandlerKind) -> String {
        let mut names = vec!["nobody waits for this".to_owned()];
        if let Some(program) = self.program(id) {
            names.extend(program.handled(kind).map(str::to_owned));
            if kind == HandlerKind::Event {
                names.extend(program.awaited_events().into_iter().map(str::to_owned));
            }
        }
        self.chance.pick(&names).clone()
    }

    /// The program that an instance runs, if it is known.
    pub(super) fn program(&self, id: &str) -> Option<Program> {
        if let Some(subject) = self.callers.subjects.iter().find(|subject| subject.id == id) {
            return Some(subject.program.clone());
        }
        let key = self.store.tables().ids.get(id).copied()?;
        let bytes = self.store.tables().turns.get(&(key, 1, 1)).cloned()?;
        let started = decode_turn(1, &bytes).ok()?.started()?.clone();
        started.input.decode::<ProgramInput>().ok().map(|input| input.program)
    }

    /// A node that takes requests for an instance in memory, if the caller happens to be there.
    pub(super) fn near(&mut self, id: &str) -> Option<usize> {
        let node = self.chance.below(self.nodes.len());
        self.takes(node, id).then_some(node)
    }

    /// The node that takes requests for an instance in memory.
    fn owner(&self, id: &str) -> Option<usize> {
        (0..self.nodes.len()).find(|node| self.takes(*node, id))
    }

    fn takes(&self, node: usize, id: &str) -> bool {
        let it = &self.nodes[node];
        it.owned.contains_key(&ShardId::of(id))
            && it.paused_until_ms <= self.now_ms()
            && !it.is_stopping
            && !self.is_past_deadline(node)
    }

    pub(super) fn ask_near(&mut self, node: usize, id: &str, asked: Asked, request: Request) {
        self.callers.requests += 1;
        let request_id = RequestId(self.callers.requests);
        self.callers.asked.insert(request_id, asked);
        self.note(|| format!("n{node} is asked {asked:?} of {id}"));
        self.with_shard(node, ShardId::of(id), |shard, now_ms| {
            shard.handle_request(now_ms, request_id, id, request);
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
    pub(super) fn hint(&mut self) {
        for node in 0..self.nodes.len() {
            if self.chance.percent(60) && self.nodes[node].is_up && !self.nodes[node].is_stopping {
                let delay_ms = self.chance.between(0, 10);
                self.later_on(node, delay_ms, format!("n{node} gets a hint"), move |this| {
                    this.read_inbox(node);
                    this.read_asks(node);
                    this.take_tasks(node);
                });
            }
        }
    }

    pub(super) fn start(&mut self, subject: usize) {
        let Subject { id, program, name, is_exact, .. } = &self.callers.subjects[subject];
        let (id, name, version) = (id.clone(), *name, if *is_exact { PROGRAM_VERSION } else { "" });
        let input = ProgramInput::from(program.clone()).payload();
        self.callers.subjects[subject].is_tried = true;
        let mut started = Started::new(name, version, input, self.chance.draw());
        if self.chance.percent(5) {
            started.deadline_ms = Some(self.now_ms() + self.chance.between(1_000, 20_000));
        }
        let random = u128::from(self.chance.draw()) << 64 | u128::from(self.chance.draw());
        let key = InstanceKey::new(self.now_ms(), random);
        if let Some(node) = self.near(&id) {
            let request = Request::Start(Box::new(StartRequest { key, started, jobs: Vec::new() }));
            return self.ask_near(node, &id, Asked::Start(subject), request);
        }
        let mut not_before_ms = None;
        if self.chance.percent(15) {
            self.count("delayed start");
            not_before_ms = Some(self.now_ms() + self.chance.between(0, 5_000));
        }
        let row = InstanceRow::pending(key, &id, &started, self.now_ms());
        let row = InstanceRow { wake_at_ms: not_before_ms, ..row };
        let body = Message::Start(Box::new(Start { not_before_ms, ..Start::new(started) })).encode();
        self.send(SendRequest::Start { row: Box::new(row), body }, move |this, outcome| {
            if let SendOutcome::Sent(_) = outcome {
                this.acknowledge_start(subject, key);
            }
        });
    }

    fn acknowledge_start(&mut self, subject: usize, key: InstanceKey) {
        self.count("start acknowledged");
        if self.witness.deleted.contains(&key) {
            return;
        }
        let id = self.callers.subjects[subject].id.clone();
        if self.deletions(&id) > 0 {
            self.count("id used again");
        }
        let exists = self.store.tables().ids.get(&id) == Some(&key);
        self.callers.log.started(id.as_str());
        self.callers.acknowledged.entry(id.clone()).or_default().insert(key);
        if !exists {
            self.fail(format!("I2: {id} was acknowledged as started and is not stored"));
        }
    }

    /// Somebody raises an event: a sender that waits for nothing, or the same one again.
    pub(super) fn raise(&mut self, id: &str, name: &str) {
        let sender = self.chance.below(SENDERS);
        self.raise_as(sender, id, name);
    }

    fn raise_as(&mut self, sender: usize, id: &str, name: &str) {
        if !self.roams && sender == NEAR && self.owner(id).is_none() {
            return;
        }
        let (place, deletions) = ((id.to_owned(), sender), self.deletions(id));
        if let Some(event) = self.callers.outstanding.get(&place).copied() {
            let raised = &self.callers.events[event];
            if raised.since_ms + PATIENCE_MS > self.now_ms() && raised.deletions == deletions {
                return;
            }
            if raised.key.is_some() && raised.deletions == deletions && self.chance.percent(80) {
                self.count("event sent again");
                return self.raise_again(event);
            }
            self.callers.events[event].is_given_up = true;
        }
        let number = self.callers.events.len();
        let key = self.chance.percent(40).then(|| format!("key-{number}"));
        self.callers.events.push(Raised {
            id: id.to_owned(),
            deletions,
            sender,
            name: name.to_owned(),
            payload: Payload::from(format!("<{number}>")),
            key,
            since_ms: self.now_ms(),
            is_given_up: false,
            is_acknowledged: false,
        });
        self.callers.outstanding.insert(place, number);
        self.raise_again(number);
    }

    fn raise_again(&mut self, event: usize) {
        let Raised { id, name, payload, key, .. } = &self.callers.events[event];
        let (id, name, payload, key) = (id.clone(), name.clone(), payload.clone(), key.clone());
        self.callers.events[event].since_ms = self.now_ms();
        let existed = self.store.tables().ids.contains_key(&id);
        let node = match self.callers.events[event].sender {
            _ if self.roams => self.near(&id),
            NEAR => self.owner(&id),
            _ => None,
        };
        if let Some(node) = node {
            let request = Request::Raise { name, payload, key };
            return self.ask_near(node, &id, Asked::Raise { event, existed }, request);
        }
        self.note(|| format!("event {event} is sent to {id}"));
        let message = Message::Job(Job::ExternalEvent { name, payload, key: key.clone() });
        let request = SendRequest::Message { id, dedupe: key, urgent: false, body: message.encode() };
        self.send(request, move |this, outcome| match outcome {
            SendOutcome::Sent(_) | SendOutcome::Duplicate => this.acknowledge_event(event),
            _ => this.refuse_event(event),
        });
    }

    /// Whether the instance that an event was meant for is gone.
    fn is_outlived(&self, event: usize) -> bool {
        let Raised { id, deletions, .. } = &self.callers.events[event];
        *deletions != self.deletions(id)
    }

    fn acknowledge_event(&mut self, event: usize) {
        self.count("event acknowledged");
        if self.is_outlived(event) {
            return self.refuse_event(event);
        }
        let Raised { id, sender, name, payload, is_given_up, is_acknowledged, .. } =
            &self.callers.events[event];
        let (id, sender, late) = (id.clone(), *sender, *is_given_up || *is_acknowledged);
        if !self.is_on_disk(&id, payload) {
            let what = format!("I8: {payload:?} of {id} was acknowledged and is not stored");
            return self.fail(what);
        }
        if !late {
            self.callers.log.raised(&format!("sender-{sender}"), &id, name, payload.clone());
            self.callers.events[event].is_acknowledged = true;
            self.callers.outstanding.remove(&(id, sender));
        }
    }

    fn refuse_event(&mut self, event: usize) {
        let Raised { id, sender, is_given_up, is_acknowledged, .. } = &self.callers.events[event];
        if !*is_given_up && !*is_acknowledged {
            let place = (id.clone(), *sender);
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
    fn end(&mut self, id: &str, cancels: bool) {
        self.count(if cancels { "cancel" } else { "terminate" });
        let reason = "enough".to_owned();
        if let Some(node) = self.near(id) {
            let request = if cancels { Request::Cancel { reason } } else { Request::Terminate { reason } };
            return self.ask_near(node, id, Asked::End, request);
        }
        let grace_until_ms = self.now_ms() + self.plan.shard.cancel_grace_ms;
        let message = match cancels {
            true => Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms }),
            false => Message::Terminate { reason },
        };
        let (id, urgent) = (id.to_owned(), message.is_urgent());
        self.send(SendRequest::Message { id, dedupe: None, urgent, body: message.encode() }, |_, _| ());
    }

    fn await_end(&mut self, id: &str) {
        if let Some(node) = self.near(id) {
            let deletions = self.deletions(id);
            self.ends.insert(RequestId(self.callers.requests + 1), id.to_owned());
            self.ask_near(node, id, Asked::AwaitEnd { deletions }, Request::AwaitEnd);
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
                if !self.store.tables().ids.contains_key(&id) && self.deletions(&id) == 0 {
                    self.fail(format!("I7: {id} was refused as existing and does not exist"));
                }
            }
            (Asked::Raise { event, .. }, Answer::Accepted) => self.acknowledge_event(event),
            (Asked::Raise { event, existed }, answer) => {
                // It is bound to the key that was found for it (G2), which may be a predecessor's.
                let is_reused = self.deletions(&self.callers.events[event].id) > 0;
                if existed && matches!(answer, Answer::NotFound) && !is_reused {
                    self.fail("I2: an event was refused although its instance exists".to_owned());
                }
                let is_refused =
                    matches!(answer, Answer::NotFound | Answer::EndedBefore | Answer::Full { .. });
                if is_refused {
                    self.refuse_event(event);
                }
            }
            (Asked::AwaitEnd { deletions }, Answer::Ended(ending)) => {
                self.count("end told");
                let Some(id) = self.ends.remove(&request) else { return };
                let key = self.store.tables().ids.get(&id).copied();
                let history = key.and_then(|key| self.history(key));
                let is_stored = history.as_ref().and_then(|history| history.ending()) == Some(&*ending);
                // It may be deleted before the one who ended it is told.
                if !is_stored && deletions + self.deletions(&id) == 0 {
                    self.fail(format!("G5: the end of {id} was told and is not stored"));
                }
            }
            (asked @ (Asked::Update(_) | Asked::Query { .. }), Answer::Asked(reply)) => {
                self.told(asked, reply)
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
        Answer::Asked(_) => "what it asked",
        Answer::Unknown { .. } => "unknown",
        _ => "something else",
    }
}
