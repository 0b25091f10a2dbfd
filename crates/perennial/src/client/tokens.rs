//! Activities that are completed from outside: whoever has the token of an attempt says how it ended.
//!
//! In the runtime's process the lane is asked. Through the store it is a request that the owner answers with the commit
//! that takes what was said; while nobody owns the instance, or it is blocked, it waits in the inbox.

use perennial_core::ErrorCode;
use perennial_core::shard::{
    BadToken, CallReply, CompletionToken, InstanceCall, Message, Request, Response, Said, TaskWork, TokenCall,
};
use perennial_core::store::{InstanceRow, SendRequest};
use perennial_core::{ActivityError, Decision, History, Job, Payload, Turn};
use serde::Serialize;

use super::Client;
use super::hearing::Heard;
use super::sending::{LocalOutcome, bound, outcome_of};
use crate::error::ClientError;

/// What is recorded about an activity that nobody waits for any more.
enum Past {
    /// It ended like this, with this attempt.
    Ended { result: Result<Payload, ActivityError>, attempts: u32 },
    /// It was cancelled, or its execution ended without it.
    Cancelled,
}

impl Client {
    /// Completes an attempt of an activity whose [token](crate::ActivityContext::completion_token) somebody was given, from
    /// any process. The result is what the activity would have returned.
    ///
    /// When this returns, the result is on disk, and the orchestration goes on with it. Said twice, it is taken once, and
    /// the second time is no error. While no runtime owns the store, or the instance is blocked, the result waits for it
    /// there; it then counts if the attempt is still the current one when it is looked at.
    ///
    /// An attempt that is over (it failed, or ran out of time) has been replaced by another one, with another token:
    /// [`ClientError::AttemptOver`]. If nobody waits for the activity any more: [`ClientError::ActivityCancelled`]. A result
    /// that the orchestration cannot read is refused, and nothing is recorded.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[activity]
    /// async fn approval(ctx: ActivityContext, mailbox: String) -> Result<Later<bool>, String> {
    ///     std::fs::write(&mailbox, ctx.completion_token()).map_err(|error| error.to_string())?;
    ///     Ok(Later::Pending)
    /// }
    ///
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext, mailbox: String) -> Result<bool, String> {
    ///     Ok(ctx.schedule_activity(approval, mailbox).await?)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let mailbox = directory.path().join("token").display().to_string();
    /// # let runtime = Runtime::open("memory:").register(order).register(approval).start().await?;
    /// # let client = runtime.client();
    /// let run = client.start(order, "order-7", mailbox.clone()).await?;
    /// # while !std::path::Path::new(&mailbox).exists() { tokio::time::sleep(Duration::from_millis(5)).await; }
    /// let token = std::fs::read_to_string(&mailbox).unwrap();
    /// client.complete_activity(&token, true).await?;
    /// assert_eq!(run.result().await?, true);
    ///
    /// let late = client.complete_activity(&token, false).await;
    /// assert!(matches!(late, Err(ClientError::ActivityOver { .. })));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn complete_activity(&self, token: &str, result: impl Serialize) -> Result<(), ClientError> {
        self.say(token, &result, Said::Completed).await
    }

    /// Fails an attempt of an activity whose token somebody was given, with the error that the activity would have
    /// returned. If its retry policy says so, another attempt follows, with another token. See
    /// [`Client::complete_activity`].
    pub async fn fail_activity(&self, token: &str, error: impl Serialize) -> Result<(), ClientError> {
        self.say(token, &error, Said::Failed).await
    }

    /// Says that what was begun for an attempt is under way, and how far it is: it has its heartbeat timeout once more, and
    /// the next attempt finds the details. [`ClientError::ActivityCancelled`] says that nobody waits for it any more, and
    /// [`ClientError::AttemptOver`] that another attempt has taken its place. See [`Client::complete_activity`].
    pub async fn heartbeat_activity(&self, token: &str, details: impl Serialize) -> Result<(), ClientError> {
        self.say(token, &details, Said::UnderWay).await
    }

    async fn say(
        &self,
        token: &str,
        value: &impl Serialize,
        said: fn(Payload) -> Said,
    ) -> Result<(), ClientError> {
        let token: CompletionToken = token.parse().map_err(|problem: BadToken| {
            let problem = problem.to_string();
            ClientError::BadToken { problem }
        })?;
        let id = token.instance.as_str();
        let payload = Payload::encode(value).map_err(|error| ClientError::unwritable(id, error))?;
        self.check_payload(id, &payload)?;
        let said = said(payload);
        let (execution, event, secret) = (token.task.execution, token.task.event, token.secret);
        let call = TokenCall { execution, event, attempt: token.attempt, secret, said };
        let instance_call = InstanceCall::Token(Box::new(call.clone()));
        let request = bound(Some(token.task.key), Request::Call(instance_call.clone()));
        let (heard, is_moved) = match self.request_here(id, request).await? {
            LocalOutcome::Here(Response::Reply(reply)) => (Heard::Reply(reply), false),
            LocalOutcome::Here(Response::EndedBefore) => (Heard::Reply(CallReply::Ended), false),
            LocalOutcome::Here(Response::NotFound) => (Heard::Gone, false),
            LocalOutcome::Here(answer) => return outcome_of(id, answer).map(drop),
            LocalOutcome::Elsewhere { reached } => match self.has_owner(id).await? {
                true => {
                    (self.call_through_owner(id, token.task.key, &instance_call).await?, reached.is_some())
                }
                false => (Heard::Nothing, reached.is_some()),
            },
        };
        match heard {
            Heard::Reply(CallReply::Answered(_)) => Ok(()),
            Heard::Reply(CallReply::Refused { reason, .. })
                if ErrorCode::leading(&reason) == Some(ErrorCode::BadToken) =>
            {
                Err(never_handed_out())
            }
            Heard::Reply(CallReply::Refused { reason, error }) => {
                Err(ClientError::Refused { id: id.to_owned(), reason, error })
            }
            // The runtime of this process may have taken it before it lost the instance.
            Heard::Reply(CallReply::Outdated { .. }) if is_moved && matches!(call.said, Said::Failed(_)) => {
                Ok(())
            }
            Heard::Reply(CallReply::Outdated { attempt: current }) => {
                let (id, attempt) = (id.to_owned(), call.attempt);
                Err(ClientError::AttemptOver { id, event, attempt, current })
            }
            Heard::Reply(CallReply::NotOpen | CallReply::Ended) | Heard::Gone => {
                self.too_late(&token, &call).await
            }
            // It is blocked, or nobody owns it: what was said waits in its inbox.
            Heard::Reply(_) | Heard::Nothing => self.leave_said(&token, call).await,
        }
    }

    /// Puts what was said into the inbox of the instance, unless nobody waits for it any more.
    async fn leave_said(&self, token: &CompletionToken, call: TokenCall) -> Result<(), ClientError> {
        let id = token.instance.as_str();
        let row = self.row_of(id, Some(token.task.key)).await?;
        if self.past_of(&row, &call).await?.is_some() {
            return self.too_late(token, &call).await;
        }
        // Its owner judges it again. While another node hands the attempt back there is no row to judge it by.
        let stored = self.tasks(id).await?.into_iter().find(|task| task.id == token.task);
        if let Some(current) = stored.as_ref().map(|task| task.attempt).filter(|it| *it > call.attempt) {
            let (id, event, attempt) = (id.to_owned(), call.event, call.attempt);
            return Err(ClientError::AttemptOver { id, event, attempt, current });
        }
        let work = stored.and_then(|task| TaskWork::decode(task.work.as_deref()?).ok());
        if work.is_some_and(|work| work.open.is_none_or(|open| open.secret != call.secret)) {
            return Err(never_handed_out());
        }
        let body = Message::Token(Box::new(call.clone())).encode();
        let (key, id) = (Some(token.task.key), id.to_owned());
        let send = SendRequest::Message { id: id.clone(), key, dedupe: None, urgent: false, body };
        match self.send(&id, send).await {
            Err(ClientError::Ended { .. }) => self.too_late(token, &call).await,
            sent => sent.map(drop),
        }
    }

    /// What is said to somebody who came when nobody waited any more. Whoever said the same before is not told off.
    async fn too_late(&self, token: &CompletionToken, call: &TokenCall) -> Result<(), ClientError> {
        let (id, event) = (token.instance.clone(), call.event);
        let row = self.row_of(&id, Some(token.task.key)).await?;
        match self.past_of(&row, call).await? {
            Some(Past::Ended { result, attempts }) => match &call.said {
                _ if attempts > call.attempt => {
                    Err(ClientError::AttemptOver { id, event, attempt: call.attempt, current: attempts })
                }
                Said::Completed(said) if result.as_ref() == Ok(said) => Ok(()),
                Said::Failed(said) if result == Err(ActivityError::Application(said.clone())) => Ok(()),
                _ => Err(ClientError::ActivityOver { id, event }),
            },
            Some(Past::Cancelled) | None => Err(ClientError::ActivityCancelled { id, event }),
        }
    }

    /// What is recorded of an activity, if nobody waits for it any more.
    async fn past_of(&self, row: &InstanceRow, call: &TokenCall) -> Result<Option<Past>, ClientError> {
        let history = self.turns(row, call.execution).await?;
        let ended = recorded_end(&history, call);
        let is_over = row.status.is_final() || row.execution > call.execution;
        Ok(ended.or(is_over.then_some(Past::Cancelled)))
    }
}

fn never_handed_out() -> ClientError {
    ClientError::BadToken { problem: "it was never handed out".to_owned() }
}

/// How an activity ended, as far as a history tells.
fn recorded_end(history: &History, call: &TokenCall) -> Option<Past> {
    let mut jobs = history.turns.iter().flat_map(Turn::jobs).map(|(_, job)| job);
    let ended = jobs.find_map(|job| match job {
        Job::ActivityCompleted { source_event_id, result, attempts, .. }
            if *source_event_id == call.event =>
        {
            Some(Past::Ended { result: Ok(result.clone()), attempts: *attempts })
        }
        Job::ActivityFailed { source_event_id, error, attempts, .. } if *source_event_id == call.event => {
            Some(Past::Ended { result: Err(error.clone()), attempts: *attempts })
        }
        _ => None,
    });
    let mut decisions = history.turns.iter().flat_map(Turn::decisions).map(|(_, _, decision)| decision);
    let is_cancel = |decision: &Decision| matches!(decision, Decision::ActivityCancelRequested { source_event_id } if *source_event_id == call.event);
    ended.or_else(|| decisions.any(is_cancel).then_some(Past::Cancelled))
}
