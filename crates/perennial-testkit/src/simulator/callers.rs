//! Callers: they start instances, raise events, send queries and updates, cancel, terminate and wait, and
//! record the answers.
//!
//! A caller is in one process now and in another the next time. If a lane there accepts requests for the
//! instance, the caller sends them to it; otherwise through the store. If the answer is that the shard has
//! moved, the caller repeats the request through the store, with the same key.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::{Message, Request, RequestId, Response};
use perennial_core::store::{InboxNumber, SendOutcome, SendRequest, StoreError};
use perennial_core::{InstanceKey, Job, ShardId, Started};

use super::Simulation;
use super::events::Raised;
use super::healing::ABSENT;
use super::instance_calls::Update;
use super::plan::Plan;
use super::starting::shaped;
use super::stopping::Stage;
use super::store_calls::wait_for;
use super::tokens::Spoken;
use crate::invariants::ClientLog;
use crate::program::{ActivityInput, Awaitable, HandlerKind, PROGRAM, Statement};
use crate::{Features, Program, ProgramInput, Rng, generate};

/// The shards of the instances, far apart, so that several processes own some of them.
const SHARDS_IN_USE: [u8; 3] = [3, 100, 200];
/// The number of callers that raise events at each instance, one event at a time each.
pub(super) const SENDERS: usize = 2;

pub(super) struct Callers {
    pub(super) subjects: Vec<Subject>,
    pub(super) log: ClientLog,
    /// The keys under which the start of each id was acknowledged.
    pub(super) acknowledged: BTreeMap<String, BTreeSet<InstanceKey>>,
    requested: BTreeMap<RequestId, (CallerRequest, Place)>,
    answered: BTreeSet<RequestId>,
    pub(super) events: Vec<Raised>,
    pub(super) updates: Vec<Update>,
    /// Calls with tokens.
    pub(super) spoken: Vec<Spoken>,
    /// The event that each sender waits for.
    pub(super) outstanding: BTreeMap<(String, usize), usize>,
    /// The last message of each sender to each instance that was acknowledged with a number.
    pub(super) last_rows: BTreeMap<(String, usize), InboxNumber>,
    pub(super) requests: u64,
    /// The instances that events are meant for, by payload.
    pub(super) bound: BTreeMap<String, InstanceKey>,
}

/// The origin of a request: the process, its life, and when it was made, if the run was healed.
type Place = (usize, u64, Option<u64>);

/// The maximum time for an answer once nothing fails.
const ANSWER_MS: u64 = 5_000;

/// An instance that callers start.
pub(super) struct Subject {
    pub(super) id: String,
    pub(super) program: Program,
    pub(super) name: &'static str,
    /// Whether it is started with an exact version.
    pub(super) is_exact: bool,
    pub(super) is_tried: bool,
}

impl Subject {
    /// Makes it wait for an activity first, with nothing that would end the wait.
    pub(super) fn begin_with_an_activity(&mut self) {
        let name = "activity-0".to_owned();
        let activity = Awaitable::Activity { name, input: ActivityInput::Fixed, tuned: false };
        self.program.body.0.insert(0, Statement::Await(activity));
        self.name = PROGRAM;
    }
}

/// The request of a caller.
#[derive(Clone, Debug)]
pub(super) enum CallerRequest {
    Start { subject: usize, key: InstanceKey, started: Box<Started>, event: Option<usize> },
    Raise { event: usize, existed: bool },
    End { id: String, cancels: bool },
    Retry,
    Repair,
    AwaitEnd { id: String, deletions: u64 },
    Update(usize),
    Query { id: String, healed: bool, sender: usize },
    Token(usize),
}

impl Callers {
    pub(super) fn new(rng: &mut Rng, plan: &Plan) -> Callers {
        let features = Features::all();
        let ids = (0..).map(|number| format!("i{number}"));
        let ids = ids.filter(|id| SHARDS_IN_USE.contains(&ShardId::of(id).0)).take(plan.instances);
        let subject = |id| Subject {
            id,
            program: shaped(generate(rng.draw(), &features, rng.weighted(plan.sizes)), rng, &plan.classes),
            name: if rng.percent(10) { ABSENT } else { PROGRAM },
            is_exact: rng.percent(40),
            is_tried: false,
        };
        Callers {
            subjects: ids.map(subject).collect(),
            log: ClientLog::default(),
            acknowledged: BTreeMap::new(),
            requested: BTreeMap::new(),
            answered: BTreeSet::new(),
            events: Vec::new(),
            updates: Vec::new(),
            spoken: Vec::new(),
            outstanding: BTreeMap::new(),
            last_rows: BTreeMap::new(),
            requests: 0,
            bound: BTreeMap::new(),
        }
    }
}

impl Simulation {
    pub(super) fn schedule_callers(&mut self) {
        let pause_ms = self.rng.between(1, 400);
        self.later(pause_ms, "a caller acts", |this| {
            if !this.is_healed {
                this.schedule_callers();
                if !this.left_out.takes_action() {
                    this.act();
                }
            }
        });
    }

    fn act(&mut self) {
        let new: Vec<usize> = (0..self.callers.subjects.len())
            .filter(|subject| !self.callers.subjects[*subject].is_tried)
            .collect();
        if !new.is_empty() && self.rng.percent(40) {
            let subject = *self.rng.pick(&new);
            self.start(subject);
            if self.rng.percent(30) {
                self.count("rival start");
                self.start(subject);
            }
            return;
        }
        let subject = self.rng.below(self.callers.subjects.len());
        let id = self.somebody(subject);
        match self.rng.below(24) {
            0 => {
                self.count("start again");
                self.start(subject);
            }
            // A storm must hit the lasting activity, so it is not ended.
            1 | 2 if self.plan.has_aim && self.is_of_lasting(&id) => {}
            1 if self.rng.percent(50) => self.end_instance(&id, true),
            2 if self.rng.percent(25) => self.end_instance(&id, false),
            3 | 4 => self.await_end(&id),
            5 | 6 => self.query(&id),
            7..=10 => {
                let name = self.some_name(&id, HandlerKind::Update);
                self.update(&id, &name);
            }
            11 => {
                self.count("storm of events");
                for sender in 0..self.rng.below(10) {
                    let name = self.some_name(&id, HandlerKind::Event);
                    self.raise_as(SENDERS + sender, &id, &name);
                }
            }
            12 if self.plan.classes.mistypes.is_some() => self.help_somebody_blocked(),
            13 if self.rng.percent(30) => {
                self.start_or_raise(subject);
            }
            _ => {
                let name = self.some_name(&id, HandlerKind::Event);
                self.raise(&id, &name);
            }
        }
    }

    /// A subject, or another existing instance.
    fn somebody(&mut self, subject: usize) -> String {
        if self.rng.percent(30) {
            let ids: Vec<String> = self.store.tables().ids.keys().cloned().collect();
            if !ids.is_empty() {
                return self.rng.pick(&ids).clone();
            }
        }
        self.callers.subjects[subject].id.clone()
    }

    /// A name that an instance may wait for, or one that it does not.
    pub(super) fn some_name(&mut self, id: &str, kind: HandlerKind) -> String {
        let mut names = vec!["nobody waits for this".to_owned()];
        if let Some(program) = self.program(id) {
            names.extend(program.handled(kind).map(str::to_owned));
            if kind == HandlerKind::Event {
                names.extend(program.awaited_events().into_iter().map(str::to_owned));
            }
        }
        // A full instance has room again only if it reads its events.
        if self.plan.classes.has_small_queues() && names.len() > 1 && self.rng.percent(70) {
            names.remove(0);
        }
        self.rng.pick(&names).clone()
    }

    /// The program that an instance runs, if it is known.
    pub(super) fn program(&self, id: &str) -> Option<Program> {
        if let Some(subject) = self.callers.subjects.iter().find(|subject| subject.id == id) {
            return Some(subject.program.clone());
        }
        let key = self.store.tables().ids.get(id).copied()?;
        let started = self.witness.histories.of(key, 1)?.turns.first()?.started()?;
        started.input.decode::<ProgramInput>().ok().map(|input| input.program)
    }

    /// The process and lane that accept requests for an instance, if the caller happens to be there.
    pub(super) fn near(&mut self, id: &str) -> Option<(usize, usize)> {
        let process = self.rng.below(self.processes.len());
        let takes_requests = matches!(self.processes[process].stage, None | Some(Stage::Grace));
        let lane = self.node(process)?.route(ShardId::of(id))?;
        (takes_requests && self.is_awake(process)).then_some((process, lane))
    }

    pub(super) fn request_of_lane(
        &mut self,
        (process, lane): (usize, usize),
        id: &str,
        requested: CallerRequest,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        self.callers.requests += 1;
        let request_id = RequestId(self.callers.requests);
        self.note(|| format!("p{process} is asked {requested:?} of {id}"));
        let healed_ms = self.is_healed.then_some(self.now_ms);
        let place = (process, self.processes[process].incarnation, healed_ms);
        self.callers.requested.insert(request_id, (requested, place));
        self.lane_input(process, lane, |lane, now| lane.handle_request(now, request_id, id, request, after));
    }

    /// Sends a message through the store.
    pub(super) fn send(
        &mut self,
        request: SendRequest,
        reply: impl FnOnce(&mut Simulation, SendOutcome) + 'static,
    ) {
        let delay_ms = self.call_delay_ms().max(self.writer_stall_ms());
        self.later(delay_ms, "something is sent", move |this| {
            let (unavailable, unknown) =
                (this.faults(|faults| faults.unavailable), this.faults(|faults| faults.unknown));
            if this.is_out_of_reach() || this.rng.percent(unavailable) {
                return this.count("send refused");
            }
            let outcomes: Result<Vec<SendOutcome>, StoreError> =
                this.with_sound_codecs(|_| wait_for(|reply| this.coded.send(vec![request], reply)));
            let outcome = outcomes.expect("the store is open").remove(0);
            if let SendOutcome::Sent(number) = outcome {
                this.witness.sent.insert(number);
            }
            this.deliver_hints();
            if this.rng.percent(unknown) {
                return this.count("send unknown");
            }
            let delay_ms = this.call_delay_ms();
            let label = format!("a sender gets {}", outcome_name(&outcome));
            this.later(delay_ms, label, move |this| reply(this, outcome));
        });
    }

    /// Cancels or terminates an instance.
    pub(super) fn end_instance(&mut self, id: &str, cancels: bool) {
        self.count(if cancels { "cancel" } else { "terminate" });
        let reason = "enough".to_owned();
        let grace_ms = self.rng.percent(30).then(|| self.rng.between(0, 5_000));
        if cancels && grace_ms.is_some() {
            self.count("cancel with a grace of its own");
        }
        if let Some(place) = self.near(id) {
            let request =
                if cancels { Request::Cancel { reason, grace_ms } } else { Request::Terminate { reason } };
            return self.request_of_lane(
                place,
                id,
                CallerRequest::End { id: id.to_owned(), cancels },
                request,
                None,
            );
        }
        self.end_far(id, cancels, grace_ms);
    }

    fn end_far(&mut self, id: &str, cancels: bool, grace_ms: Option<u64>) {
        let reason = "enough".to_owned();
        let grace_ms = grace_ms.unwrap_or(self.plan.shard.cancel_grace.as_millis() as u64);
        let message = match cancels {
            true => Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms }),
            false => Message::Terminate { reason },
        };
        self.send(to_instance(id, None, &message), |_, _| ());
    }

    /// Retries a blocked instance.
    pub(super) fn retry(&mut self, id: &str) {
        self.count("retry of a blocked instance");
        match self.near(id) {
            Some(place) => self.request_of_lane(place, id, CallerRequest::Retry, Request::Retry, None),
            None => self.send(to_instance(id, None, &Message::Retry), |_, _| ()),
        }
    }

    fn await_end(&mut self, id: &str) {
        if let Some(place) = self.near(id) {
            let deletions = self.deletions(id);
            self.ends.insert(RequestId(self.callers.requests + 1), id.to_owned());
            let requested = CallerRequest::AwaitEnd { id: id.to_owned(), deletions };
            self.request_of_lane(place, id, requested, Request::AwaitEnd, None);
        }
    }

    /// Handles an answer to a caller.
    pub(super) fn answered(&mut self, request: RequestId, answer: Response) {
        if !self.callers.answered.insert(request) {
            return self.fail(format!("G5: request {} was answered twice", request.0));
        }
        let Some((requested, _)) = self.callers.requested.remove(&request) else { return };
        self.note(|| format!("{requested:?} is answered with {}", answer_name(&answer)));
        match (requested, answer) {
            (requested, Response::Moved { .. }) => self.settle(requested),
            (CallerRequest::Start { subject, event, .. }, Response::Started(key)) => {
                self.acknowledge_start(subject, key);
                self.started_with(event, key);
            }
            (CallerRequest::Start { subject, event, .. }, Response::AlreadyExists(status)) => {
                let id = self.callers.subjects[subject].id.clone();
                if !self.store.tables().ids.contains_key(&id) && self.deletions(&id) == 0 {
                    return self.fail(format!("I7: {id} was refused as existing and does not exist"));
                }
                self.found_existing(event, status);
            }
            (CallerRequest::Raise { event, .. }, Response::Accepted) => self.acknowledge_event(event, None),
            (CallerRequest::Raise { event, existed }, answer) => {
                // The event is bound to the key that was found for it (G2), which may be a predecessor's.
                let is_reused = self.deletions(&self.callers.events[event].id) > 0;
                if existed && matches!(answer, Response::NotFound) && !is_reused {
                    self.fail("I2: an event was refused although its instance exists".to_owned());
                }
                match answer {
                    Response::NotFound | Response::EndedBefore | Response::TooLate => {
                        self.count("event too late");
                        self.refuse_late_event(event);
                    }
                    Response::Full { .. } => {
                        self.count("event refused as full");
                        self.refuse_event(event);
                    }
                    _ => {}
                }
            }
            (CallerRequest::AwaitEnd { deletions, .. }, Response::Ended(ending)) => {
                self.count("end told");
                let Some(id) = self.ends.remove(&request) else { return };
                let key = self.store.tables().ids.get(&id).copied();
                // It may have been reset, and run again, before the caller gets the answer.
                let mut histories = key.into_iter().flat_map(|key| self.executions(key));
                let is_stored = histories.any(|history| history.ending() == Some(&*ending));
                drop(histories);
                // It may be deleted before the caller that ended it gets the answer. If its history cannot be
                // decoded, only its row shows that it has ended.
                if !is_stored && deletions + self.deletions(&id) == 0 && !self.is_damaged(&id) {
                    self.fail(format!("G5: the end of {id} was reported and is not stored"));
                }
            }
            (
                requested
                @ (CallerRequest::Update(_) | CallerRequest::Query { .. } | CallerRequest::Token(_)),
                Response::Reply(reply),
            ) => self.call_answered(&requested, reply),
            _ => {}
        }
    }

    /// I17: requests after the healing, to a process that still exists, were answered.
    pub(super) fn audit_answers(&mut self) {
        let is_owed = |(_, (process, incarnation, healed_ms)): &&(CallerRequest, Place)| {
            healed_ms.is_some_and(|at_ms| at_ms + ANSWER_MS < self.now_ms)
                && self.processes[*process].incarnation == *incarnation
        };
        if let Some((requested, place)) = self.callers.requested.values().find(is_owed) {
            let what = format!("I17: {requested:?} was never answered by p{}", place.0);
            return self.fail(what);
        }
        let waits_for_end = |(requested, (process, incarnation, _)): &&(CallerRequest, Place)| match requested
        {
            CallerRequest::AwaitEnd { id, .. } => {
                let has_ended = self.row(id).is_some_and(|row| row.status.is_final());
                has_ended && self.deletions(id) == 0 && self.processes[*process].incarnation == *incarnation
            }
            _ => false,
        };
        if let Some((requested, place)) = self.callers.requested.values().find(waits_for_end) {
            let what = format!("G17: {requested:?} was never answered by p{}, and it has ended", place.0);
            self.fail(what);
        }
    }

    /// Repeats a request through the store, since the shard has moved and the request may have been carried
    /// out.
    fn settle(&mut self, requested: CallerRequest) {
        self.count("moved answer settled by key");
        match requested {
            CallerRequest::Start { subject, key, started, event } => {
                self.start_far(subject, key, *started, None, event);
            }
            CallerRequest::Raise { event, .. } => self.raise_far(event),
            CallerRequest::End { id, cancels } => self.end_far(&id, cancels, None),
            // It is repeated by chance, by this or another caller.
            CallerRequest::Retry | CallerRequest::Repair => {}
            CallerRequest::AwaitEnd { id, .. } => {
                self.later(200, format!("a caller waits for {id} again"), move |this| this.await_end(&id));
            }
            CallerRequest::Update(update) => self.update_far(update),
            CallerRequest::Query { id, healed, sender } => self.query_far(&id, healed, sender),
            CallerRequest::Token(spoken) => self.send_token_call(spoken),
        }
    }
}

/// A message to the instance with an id.
pub(super) fn to_instance(id: &str, dedupe: Option<String>, message: &Message) -> SendRequest {
    let (id, urgent, body) = (id.to_owned(), message.is_urgent(), message.encode());
    SendRequest::Message { id, key: None, dedupe, urgent, body }
}

fn outcome_name(outcome: &SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::Sent(_) => "sent",
        SendOutcome::Duplicate(_) => "duplicate",
        SendOutcome::IdTaken(_) => "id taken",
        SendOutcome::NoInstance => "no instance",
        SendOutcome::Ended(_) => "ended",
        SendOutcome::Full(_) => "full",
    }
}

fn answer_name(answer: &Response) -> &'static str {
    match answer {
        Response::Started(_) => "started",
        Response::AlreadyExists(_) => "already exists",
        Response::Accepted => "accepted",
        Response::Ended(_) => "ended",
        Response::EndedBefore | Response::EndedRow(_) => "ended before",
        Response::TooLate => "too late",
        Response::NotFound => "not found",
        Response::Full { .. } => "full",
        Response::NotBlocked => "not blocked",
        Response::Reply(_) => "what it asked",
        Response::Moved { .. } => "moved",
        Response::Unknown { .. } => "unknown",
        _ => "something else",
    }
}
