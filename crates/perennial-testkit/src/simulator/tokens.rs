//! Holders of completion tokens: they complete or fail an attempt or send heartbeats, from anywhere and at
//! any time, perhaps after the attempt has ended.

use perennial_core::ErrorCode;
use perennial_core::shard::{
    ActivityTask, CallReply, CompletionToken, InstanceCall, Message, Request, Said, TokenCall,
};
use perennial_core::store::SendRequest;
use perennial_core::{Job, Payload, ShardId};

use super::Simulation;
use super::activities::{Run, task_id};
use super::callers::CallerRequest;

/// A call with a token.
pub(super) struct Spoken {
    token: CompletionToken,
    call: TokenCall,
}

impl Simulation {
    /// Returns from the code of an attempt without a result.
    pub(super) fn leave_open(&mut self, process: usize, run: &Run, ran_ms: u64) {
        self.count("attempt left open");
        let Run { task, lane, .. } = run;
        self.hand_out(task);
        if self.node(process).is_some_and(|node| node.holds(task)) {
            self.count("attempt left open by a node that does not own it");
            let details = task.details.clone();
            self.processes[process].task_results.insert((task_id(task), task.attempt));
            return self.node_input(process, |node, now, _| {
                node.handle_task_left_open(now, task, ran_ms, details);
            });
        }
        let Some(lane) = *lane else { return };
        let tenure = (ShardId::of(&task.instance), task.tenure);
        self.tenure_input(process, lane, tenure, "a return without a result", |lane, now| {
            lane.handle_activity_left_open(now, task, ran_ms);
        });
    }

    /// Gives the token of an attempt to a caller.
    pub(super) fn hand_out(&mut self, task: &ActivityTask) {
        if let Some(token) = CompletionToken::of(task) {
            let text = token.to_string();
            assert_eq!(text.parse(), Ok(token.clone()), "a token survives formatting and parsing");
            self.use_token_later(token);
        }
    }

    fn use_token_later(&mut self, token: CompletionToken) {
        let spans = [(6, (0, 300)), (3, (300, 3_000)), (1, (3_000, 12_000))];
        let (low, high) = self.rng.weighted(&spans);
        let (delay_ms, id) = (self.rng.between(low, high), token.instance.clone());
        self.later(delay_ms, format!("a token of {id} is used"), move |this| this.use_token(token));
    }

    fn use_token(&mut self, token: CompletionToken) {
        let number = self.callers.spoken.len();
        let payload = Payload::from(format!("<t{number}>"));
        let said = match self.rng.weighted(&[(6, 0), (2, 1), (3, 2)]) {
            0 => Said::Completed(payload),
            1 => Said::Failed(payload),
            _ => {
                self.use_token_later(token.clone());
                Said::UnderWay(payload)
            }
        };
        let (execution, event, secret) = (token.task.execution, token.task.event, token.secret);
        let call = TokenCall { execution, event, attempt: token.attempt, secret, said };
        self.callers.spoken.push(Spoken { token: token.clone(), call: call.clone() });
        let (id, key) = (token.instance, token.task.key);
        let instance_call = InstanceCall::Token(Box::new(call.clone()));
        if let Some(place) = self.near(&id) {
            let request = Request::Bound { key, request: Box::new(Request::Call(instance_call)) };
            return self.request_of_lane(place, &id, CallerRequest::Token(number), request, None);
        }
        if self.rng.percent(70) {
            return self.send_token_call(number);
        }
        self.count("token used while nobody may be there");
        let body = Message::Token(Box::new(call)).encode();
        let message = SendRequest::Message { id, key: Some(key), dedupe: None, urgent: false, body };
        self.send(message, |_, _| ());
    }

    pub(super) fn send_token_call(&mut self, number: usize) {
        let Spoken { token, call } = &self.callers.spoken[number];
        let (id, key, instance_call) =
            (token.instance.clone(), token.task.key, InstanceCall::Token(Box::new(call.clone())));
        self.call_through_store(id, Some(key), instance_call, CallerRequest::Token(number), 0);
    }

    /// Handles the answer to a token call. G43: an accepted outcome is recorded.
    pub(super) fn token_call_answered(&mut self, number: usize, reply: &CallReply) {
        let Spoken { token, call } = &self.callers.spoken[number];
        let (key, event, said, id) = (token.task.key, call.event, call.said.clone(), token.instance.clone());
        match (reply, &said) {
            (CallReply::Answered(_), Said::Completed(payload)) => {
                let is_it = |job: &Job| match job {
                    Job::ActivityCompleted { source_event_id, result, attempts, .. } => {
                        (*source_event_id, result, *attempts) == (event, payload, call.attempt)
                    }
                    _ => false,
                };
                let history = self.witness.histories.of(key, call.execution);
                let mut turns = history.into_iter().flat_map(|history| &history.turns);
                let is_recorded = turns.any(|turn| turn.jobs().any(|(_, job)| is_it(job)));
                self.count("completed with a token");
                if !is_recorded && !self.witness.deleted.contains(&key) {
                    self.fail(format!(
                        "G43: {payload:?} of activity {event} of {id} was accepted and is not recorded"
                    ));
                }
            }
            (CallReply::Answered(_), Said::Failed(_)) => self.count("failed with a token"),
            (CallReply::Answered(_), Said::UnderWay(_)) => self.count("heartbeat with a token"),
            (CallReply::Outdated { .. }, _) => self.count("token of an attempt that is over"),
            (CallReply::NotOpen | CallReply::Ended, _) => self.count("token of an activity that is over"),
            (CallReply::Refused { reason, .. }, _)
                if ErrorCode::leading(reason) == Some(ErrorCode::BadToken)
                    && self.plan.classes.damage_ms.is_empty() =>
            {
                self.fail(format!("G42: a token of activity {event} of {id} was handed out and is refused"));
            }
            _ => {}
        }
    }

    /// G44: the owner does not start an attempt again that is durably left open.
    pub(super) fn witness_not_left_open(&mut self, task: &ActivityTask) {
        if self.witness.left_open.contains(&(task_id(task), task.attempt)) {
            let (event, attempt) = (task.event, task.attempt);
            self.fail(format!("G44: attempt {attempt} of {event} waits for its token, and is begun again"));
        }
    }
}
