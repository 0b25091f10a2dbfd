//! The ways in which callers start instances: at once or delayed, at the owner or through the store, with an
//! event or without.

use perennial_core::shard::{Message, Request, Start, StartRequest};
use perennial_core::store::{InstanceRow, SendOutcome, SendRequest, Status};
use perennial_core::{InstanceKey, Job, Started};

use super::Simulation;
use super::callers::{CallerRequest, SENDERS, Subject};
use super::classes::ClassPlan;
use crate::program::{Awaitable, End, HandlerKind, PROGRAM_VERSION, Statement};
use crate::{Program, ProgramInput, Rng};

/// The event that waits in small queues.
const QUEUED: &str = "queued";

/// Adapts a program to the classes of a run: for small queues, it lets events wait and then reads them; for
/// inputs that the next version cannot decode, it continues as new.
pub(super) fn shaped(mut program: Program, rng: &mut Rng, classes: &ClassPlan) -> Program {
    if classes.has_small_queues() && rng.percent(60) {
        let wait = || Statement::Await(Awaitable::Event { name: QUEUED.to_owned() });
        let pause = Statement::Await(Awaitable::Timer { delay_ms: rng.between(500, 3_000) });
        program.body.0.splice(0..0, [pause, wait(), wait(), wait()]);
    }
    if classes.refuses_inputs_ms.is_some() && rng.percent(60) {
        program.end = End::ContinueAsNew;
        program.rounds = 3;
    }
    program
}

impl Simulation {
    pub(super) fn start(&mut self, subject: usize) {
        let (key, started) = self.draw_start(subject);
        let id = self.callers.subjects[subject].id.clone();
        let delayed = if self.plan.classes.refuses_inputs_ms.is_some() { 50 } else { 10 };
        if self.rng.percent(delayed) {
            self.count("delayed start");
            let not_before_ms = Some(self.caller_ms() + self.rng.between(0, 5_000));
            return self.start_far(subject, key, started, not_before_ms, None);
        }
        if let Some(place) = self.near(&id) {
            let request =
                Request::Start(Box::new(StartRequest { key, started: started.clone(), jobs: Vec::new() }));
            let requested = CallerRequest::Start { subject, key, started: Box::new(started), event: None };
            return self.request_of_lane(place, &id, requested, request, None);
        }
        self.start_far(subject, key, started, None, None);
    }

    /// The start of a subject.
    pub(super) fn started_of(&mut self, subject: usize) -> Started {
        let Subject { program, name, is_exact, .. } = &self.callers.subjects[subject];
        let (name, version) = (*name, if *is_exact { PROGRAM_VERSION } else { "" });
        let input = ProgramInput::from(program.clone()).payload();
        self.callers.subjects[subject].is_tried = true;
        let mut started = Started::new(name, version, input, self.rng.draw());
        // An outage should outlast some of them.
        let with_deadline = if self.plan.classes.outages.is_empty() { 5 } else { 35 };
        if self.rng.percent(with_deadline) {
            started.deadline_ms = Some(self.store_ms() + self.rng.between(1_000, 20_000));
        }
        started
    }

    /// The clock of a caller outside the nodes.
    fn caller_ms(&self) -> u64 {
        self.store_ms().saturating_add_signed(self.plan.classes.caller_off_ms)
    }

    pub(super) fn start_far(
        &mut self,
        subject: usize,
        key: InstanceKey,
        started: Started,
        not_before_ms: Option<u64>,
        event: Option<usize>,
    ) {
        if self.plan.classes.caller_off_ms != 0 {
            self.count("caller's clock off at a start");
        }
        let id = self.callers.subjects[subject].id.clone();
        let row = InstanceRow::pending(key, &id, &started, self.caller_ms());
        let row = InstanceRow { wake_at_ms: not_before_ms, ..row };
        let jobs = event.iter().map(|event| self.event_job(*event)).collect();
        let body = Message::Start(Box::new(Start { started, jobs, not_before_ms })).encode();
        self.send(SendRequest::Start { row: Box::new(row), body }, move |this, outcome| match outcome {
            SendOutcome::Sent(_) => {
                this.acknowledge_start(subject, key);
                this.started_with(event, key);
            }
            SendOutcome::IdTaken(row) if row.key == key => {
                this.acknowledge_start(subject, key);
                this.started_with(event, key);
            }
            SendOutcome::IdTaken(row) => this.found_existing(event, row.status),
            _ => {}
        });
    }

    pub(super) fn acknowledge_start(&mut self, subject: usize, key: InstanceKey) {
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

    /// Starts a subject with an event, or raises the event at the instance with the id. Each such caller is a
    /// separate sender.
    pub(super) fn start_or_raise(&mut self, subject: usize) {
        let id = self.callers.subjects[subject].id.clone();
        let name = self.some_name(&id, HandlerKind::Event);
        let sender = 2 * SENDERS + 100 + self.callers.events.len();
        let event = self.new_event(sender, &id, &name);
        // It is meant for whoever has the id.
        self.unbind(event);
        self.callers.events[event].starts = Some(subject);
        self.try_start_or_raise(event);
    }

    /// One try, as a client makes it: a start that includes the event.
    pub(super) fn try_start_or_raise(&mut self, event: usize) {
        let Some(subject) = self.callers.events[event].starts else { return };
        let (key, started) = self.draw_start(subject);
        let id = self.callers.subjects[subject].id.clone();
        let jobs = vec![self.event_job(event)];
        let Some(place) = self.near(&id) else {
            return self.start_far(subject, key, started, None, Some(event));
        };
        let request = Request::Start(Box::new(StartRequest { key, started: started.clone(), jobs }));
        let requested = CallerRequest::Start { subject, key, started: Box::new(started), event: Some(event) };
        self.request_of_lane(place, &id, requested, request, None);
    }

    /// The event without a key, as part of a start.
    pub(super) fn event_job(&self, event: usize) -> Job {
        let raised = &self.callers.events[event];
        let (name, payload) = (raised.name.clone(), raised.payload.clone());
        Job::ExternalEvent { name, payload, key: None, trace: None }
    }

    /// Records a start that was acknowledged, with its event.
    pub(super) fn started_with(&mut self, event: Option<usize>, key: InstanceKey) {
        let Some(event) = event.filter(|_| !self.witness.deleted.contains(&key)) else { return };
        self.count("start-or-raise started");
        // It belongs to the instance that it started.
        self.callers.events[event].deletions = self.deletions(&self.callers.events[event].id);
        self.acknowledge_event(event, None);
    }

    /// Handles an id that exists: the event is raised at the instance, or dropped if that has ended.
    pub(super) fn found_existing(&mut self, event: Option<usize>, status: Status) {
        let Some(event) = event else { return };
        if status.is_final() {
            self.count("start-or-raise found an ended instance");
            return self.refuse_event(event);
        }
        self.count("start-or-raise raised");
        self.callers.events[event].deletions = self.deletions(&self.callers.events[event].id);
        self.raise_again(event);
    }

    /// Draws everything that a start needs.
    pub(super) fn draw_start(&mut self, subject: usize) -> (InstanceKey, Started) {
        let started = self.started_of(subject);
        let random = u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw());
        (InstanceKey::new(self.store_ms(), random), started)
    }
}
