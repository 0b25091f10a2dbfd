//! Completing activities from outside: the holder of an attempt's token reports the result.
//!
//! In the runtime's process the call goes to the lane. Otherwise it is a request through the store, which the
//! owner answers with the commit that takes the result. While the instance is not owned, or is blocked, the
//! call waits in the inbox.

use perennial_core::ErrorCode;
use perennial_core::shard::{
    BadToken, CallReply, CompletionToken, InstanceCall, Message, Request, Response, Said, TaskWork, TokenCall,
};
use perennial_core::store::{InstanceRow, SendRequest};
use perennial_core::{ActivityError, Decision, History, Job, Payload, Turn};
use serde::Serialize;

use super::Client;
use super::owner_replies::CallOutcome;
use super::sending::{LocalOutcome, bound, outcome_of};
use crate::error::ClientError;

/// The recorded end of an activity.
enum Past {
    /// It ended with this result, in this attempt.
    Ended { result: Result<Payload, ActivityError>, attempts: u32 },
    /// It was cancelled, or its execution ended without it.
    Cancelled,
}

impl Client {
    /// Completes an attempt of an activity by its [token](crate::ActivityContext::completion_token), from any
    /// process. The result is the one that the activity would have returned.
    ///
    /// When this returns, the result is on disk, and the orchestration continues with it. A repeated call
    /// with the same result succeeds and has no further effect. While no runtime owns the store, or the
    /// instance is blocked, the result waits in the store; it is then used if the attempt is still the
    /// current one.
    ///
    /// If the attempt has failed or timed out and was replaced by another one, with another token, the error
    /// is [`ClientError::AttemptOver`]. If the result is no longer needed, it is
    /// [`ClientError::ActivityCancelled`]. A result that the orchestration cannot decode is refused, and
    /// nothing is recorded.
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

    /// Fails an attempt of an activity by its token, with the error that the activity would have returned.
    /// Depending on its retry policy another attempt follows, with another token. See
    /// [`Client::complete_activity`].
    pub async fn fail_activity(&self, token: &str, error: impl Serialize) -> Result<(), ClientError> {
        self.say(token, &error, Said::Failed).await
    }

    /// Reports that the work of an attempt is in progress, with details. The heartbeat timeout restarts, and
    /// the next attempt gets the details. [`ClientError::ActivityCancelled`] means that the result is no
    /// longer needed, and [`ClientError::AttemptOver`] that another attempt has replaced this one. See
    /// [`Client::complete_activity`].
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
        let (outcome, is_moved) = match self.request_here(id, request).await? {
            LocalOutcome::Here(Response::Reply(reply)) => (CallOutcome::Reply(reply), false),
            LocalOutcome::Here(Response::EndedBefore) => (CallOutcome::Reply(CallReply::Ended), false),
            LocalOutcome::Here(Response::NotFound) => (CallOutcome::Gone, false),
            LocalOutcome::Here(answer) => return outcome_of(id, answer).map(drop),
            LocalOutcome::Elsewhere { reached } => match self.has_owner(id).await? {
                true => {
                    (self.call_through_owner(id, token.task.key, &instance_call).await?, reached.is_some())
                }
                false => (CallOutcome::NoReply, reached.is_some()),
            },
        };
        match outcome {
            CallOutcome::Reply(CallReply::Answered(_)) => Ok(()),
            CallOutcome::Reply(CallReply::Refused { reason, .. })
                if ErrorCode::leading(&reason) == Some(ErrorCode::BadToken) =>
            {
                Err(never_handed_out())
            }
            CallOutcome::Reply(CallReply::Refused { reason, error }) => {
                Err(ClientError::Refused { id: id.to_owned(), reason, error })
            }
            // The runtime of this process may have taken the call before it lost the instance.
            CallOutcome::Reply(CallReply::Outdated { .. })
                if is_moved && matches!(call.said, Said::Failed(_)) =>
            {
                Ok(())
            }
            CallOutcome::Reply(CallReply::Outdated { attempt: current }) => {
                let (id, attempt) = (id.to_owned(), call.attempt);
                Err(ClientError::AttemptOver { id, event, attempt, current })
            }
            CallOutcome::Reply(CallReply::NotOpen | CallReply::Ended) | CallOutcome::Gone => {
                self.too_late(&token, &call).await
            }
            // The instance is blocked or not owned: the call waits in its inbox.
            CallOutcome::Reply(_) | CallOutcome::NoReply => self.leave_in_inbox(&token, call).await,
        }
    }

    /// Puts the call into the inbox of the instance, unless the activity has ended.
    async fn leave_in_inbox(&self, token: &CompletionToken, call: TokenCall) -> Result<(), ClientError> {
        let id = token.instance.as_str();
        let row = self.row_of(id, Some(token.task.key)).await?;
        if self.past_of(&row, &call).await?.is_some() {
            return self.too_late(token, &call).await;
        }
        // The owner checks the call again. While another node hands the attempt back there is no row to check
        // against.
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

    /// The error for a call that came after the end of the activity. Repeating the call that ended it is not
    /// an error.
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

    /// The recorded end of an activity, if it has ended.
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

/// Finds the end of an activity in a history.
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
