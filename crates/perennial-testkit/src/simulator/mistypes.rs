//! Payloads that the code cannot decode: inputs that the next version does not accept, events of another
//! type.
//!
//! An instance that one of them blocks continues with code that can decode it, or after the event is skipped.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::ErrorCode;
use perennial_core::shard::{Message, Request};
use perennial_core::store::{Blocked, Commit, InstanceRow, Skippable, Status};
use perennial_core::{EventId, InstanceKey, Job, Payload};

use super::Simulation;
use super::callers::{CallerRequest, to_instance};
use super::classes::Remedy;
use super::deployments::NEXT_VERSION;
use crate::{Expectations, ProgramHandler};

/// The code of a block by a payload that cannot be decoded.
const CODE: ErrorCode = ErrorCode::PayloadMismatch;
/// The event with an execution's input.
const INPUT: EventId = EventId(1);

#[derive(Default)]
pub(super) struct Mistypes {
    current: Expectations,
    next: Expectations,
    /// The instances that are blocked by an event.
    blocked: BTreeSet<InstanceKey>,
}

impl Simulation {
    /// The code of a version.
    pub(super) fn code_of(&self, version: &str) -> ProgramHandler {
        let Mistypes { current, next, .. } = &self.mistypes;
        let expectations = if version == NEXT_VERSION { next } else { current };
        ProgramHandler::new(self.side_effects.clone()).expecting(expectations.clone())
    }

    pub(super) fn plan_mistypes(&mut self) {
        let wants_text = self.plan.classes.mistypes.is_some();
        self.mistypes.current.want_text(wants_text);
        self.mistypes.next.want_text(wants_text);
        if let Some(at_ms) = self.plan.classes.refuses_inputs_ms {
            self.later(at_ms, "the next version does not take some inputs", |this| {
                this.mistypes.next.refuse_inputs(!this.is_healed);
            });
        }
    }

    /// Deploys code that can decode all inputs, and all events unless they are skipped.
    pub(super) fn deploy_remedy(&mut self) {
        self.mistypes.next.refuse_inputs(false);
        let wants_text = self.plan.classes.mistypes == Some(Remedy::Skip);
        self.mistypes.current.want_text(wants_text);
        self.mistypes.next.want_text(wants_text);
    }

    /// The payload of an event: text, or now and then something else.
    pub(super) fn event_payload(&mut self, number: usize, id: &str, name: &str) -> Payload {
        let can_be_other = self.plan.classes.mistypes.is_some() && !self.is_healed;
        let is_awaited =
            can_be_other && self.program(id).is_some_and(|program| program.awaited_events().contains(name));
        if can_be_other && self.rng.percent(if is_awaited { 40 } else { 5 }) {
            self.count("mistyped event raised");
            return Payload::encode(&BTreeMap::from([("mistyped", number)])).expect("it encodes");
        }
        Payload::from(format!("<{number}>"))
    }

    /// Counts blocks by payloads that cannot be decoded, and instances that are no longer blocked by one.
    pub(super) fn witness_mistype(&mut self, commit: &Commit) {
        match &commit.change.blocked {
            Some(Some(blocked)) if blocked.code == CODE => self.count_mistype(commit.key, blocked),
            _ if commit.turn.is_some() && self.mistypes.blocked.remove(&commit.key) => {
                let is_ended = matches!(commit.change.status, Some(Status::Terminated | Status::Cancelled));
                if self.is_healed && !is_ended && self.plan.classes.mistypes == Some(Remedy::Deployment) {
                    self.count("mistyped event read after a deployment");
                }
            }
            _ => {}
        }
    }

    fn count_mistype(&mut self, key: InstanceKey, blocked: &Blocked) {
        if refused_event(blocked) != Some(INPUT) {
            self.count("blocked by an event of another type");
            self.mistypes.blocked.insert(key);
            return;
        }
        let (execution, is_delayed) = {
            let tables = self.store.tables();
            let mut mine = tables.inbox.values().filter(|message| message.to == key);
            let is_delayed = mine.any(|message| {
                matches!(Message::decode(&message.body), Ok(Message::Start(start)) if start.not_before_ms.is_some())
            });
            (tables.instances.get(&key).map_or(0, |row| row.execution), is_delayed)
        };
        if execution > 1 {
            self.count("input refused at a renewal");
        } else if is_delayed {
            self.count("input refused at a delayed start");
        }
    }

    /// Applies the remedy for a blocked instance.
    pub(super) fn help_blocked(&mut self, id: &str) {
        let Some(InstanceRow { blocked: Some(blocked), .. }) = self.row(id) else { return };
        if self.is_damaged(id) {
            return self.end_damaged(id, &blocked);
        }
        if self.plan.classes.mistypes == Some(Remedy::Skip)
            && let Some(event) = refused_event(&blocked).filter(|event| *event != INPUT)
            && self.rng.percent(30)
        {
            self.skip(id, event);
        }
    }

    /// Applies the remedy to a blocked instance, if there is one.
    pub(super) fn help_somebody_blocked(&mut self) {
        let blocked: Vec<String> = {
            let tables = self.store.tables();
            let rows = tables.instances.values().filter(|row| row.blocked.is_some());
            rows.map(|row| row.id.clone()).collect()
        };
        if !blocked.is_empty() {
            let id = self.rng.pick(&blocked).clone();
            self.help_blocked(&id);
        }
    }

    fn skip(&mut self, id: &str, event: EventId) {
        match self.near(id) {
            Some(place) => self.request_of_lane(
                place,
                id,
                CallerRequest::Retry,
                Request::Skip(Skippable::Event(event)),
                None,
            ),
            None => {
                let message = Message::Job(Job::ExternalEventSkipped { event_id: event });
                self.send(to_instance(id, None, &message), |_, _| ());
            }
        }
    }
}

/// The event that the code cannot decode, according to the reason of the block.
fn refused_event(blocked: &Blocked) -> Option<EventId> {
    if blocked.code != CODE {
        return None;
    }
    let (_, rest) = blocked.reason.split_once("event ")?;
    rest.split([' ', ',']).next()?.trim_start_matches('#').parse().ok().map(EventId)
}
