//! Queries, and the routes of queries and updates to an instance.

use std::time::Duration;

use perennial_core::ErrorCode;
use perennial_core::shard::{CallReply, InstanceCall, Request, Response};
use perennial_core::store::{
    InstanceRow, NewRequest, RequestNumber, RequestOutcome, SessionRole, SessionRow, StoreError,
};
use perennial_core::{HandlerNames, InstanceKey, Payload, check_derived_id, check_name};

use super::call_span::Call;
use super::sending::{LocalOutcome, bound, outcome_of};
use super::{Client, check};
use crate::error::ClientError;
use crate::typed::QueryTarget;

/// How long a client in another process waits for a reply.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(30);

impl Client {
    /// Returns this client with another limit on how long a query or update waits for the reply of a runtime in another
    /// process. Default 30 s.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Client {
        self.call_patience = patience;
        self
    }

    /// Runs a read-only query handler of an instance. Nothing is recorded. Instances that have ended can be
    /// queried, too.
    ///
    /// The query is a [`Query`](crate::Query), or a name: then a string gets a string, and a payload (or
    /// `()`) gets a payload.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn count(ctx: OrchestrationContext, upto: u32) -> Result<(), String> {
    ///     let counted = ctx.state(0);
    ///     ctx.on_query("counted", &counted, |counted, ()| counted.read(|counted| *counted));
    ///     counted.update(|counted| *counted = upto);
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(count).start().await?;
    /// let client = runtime.client();
    /// client.start(count, "count-1", 3).await?.result().await?;
    /// const COUNTED: Query<(), u32> = Query::named("counted");
    /// assert_eq!(client.query("count-1", COUNTED, ()).await?, 3);
    /// assert_eq!(client.query("count-1", "counted", ()).await?.as_json(), "3");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn query<T, I, K>(&self, id: &str, query: T, input: I) -> Result<T::Output, ClientError>
    where
        T: QueryTarget<I, K>,
    {
        let payload = T::encode(input).map_err(|error| ClientError::unwritable(id, error))?;
        let name = query.name().into_owned();
        let instance_call = InstanceCall::Query { name: name.clone(), payload: payload.clone() };
        let answered = async {
            let reply = self.put(id, self.only, &name, payload, instance_call).await;
            outcome(id, self.tell_apart(id, reply).await?)
        };
        let answer = self.call_span(Call::Query(&name), id).over(answered, |_| "answered").await?;
        T::read_output(answer).map_err(|problem| ClientError::unreadable(id, &problem))
    }

    /// Returns the queries, updates and events that the code of an instance takes. The code itself knows them, so a
    /// runtime has to run it: without one this is [`ClientError::NotAnswered`] at once. Nothing is recorded.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn approval(ctx: OrchestrationContext, _: ()) -> Result<bool, String> {
    ///     let asked = ctx.state(0_u32);
    ///     ctx.on_query("asked", &asked, |asked, ()| asked.read(|asked| *asked));
    ///     Ok(ctx.schedule_wait(ExternalEvent::<bool>::named("approved")).await)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(approval).start().await?;
    /// let client = runtime.client();
    /// client.start(approval, "a-1", ()).await?;
    /// let handlers = client.handlers("a-1").await?;
    /// assert_eq!((handlers.queries, handlers.events), (vec!["asked".to_owned()], vec!["approved".to_owned()]));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn handlers(&self, id: &str) -> Result<HandlerNames, ClientError> {
        let row = self.row(id).await?;
        let reply = self.put_to_owner(&row, InstanceCall::Handlers).await;
        let named = outcome(id, self.tell_apart(id, reply).await?)?;
        named.decode_as().map_err(|problem| ClientError::unreadable(id, &problem))
    }

    /// Sends a call to the owner of an instance that was read. Without an owner nobody would reply.
    pub(super) async fn put_to_owner(
        &self,
        row: &InstanceRow,
        instance_call: InstanceCall,
    ) -> Result<CallReply, ClientError> {
        if !self.has_owner(&row.id).await? {
            return Err(ClientError::NotAnswered { id: row.id.clone(), patience: Duration::ZERO });
        }
        self.put_bound(&row.id, row.key, instance_call).await
    }

    pub(super) async fn put(
        &self,
        id: &str,
        instance: Option<InstanceKey>,
        name: &str,
        payload: Payload,
        instance_call: InstanceCall,
    ) -> Result<CallReply, ClientError> {
        check("instance id", id, check_derived_id)?;
        check("handler", name, check_name)?;
        self.check_payload(id, &payload)?;
        match self.request_here(id, bound(instance, Request::Call(instance_call.clone()))).await? {
            LocalOutcome::Elsewhere { reached } => {
                self.put_from_afar(id, instance.or(reached), &instance_call).await
            }
            LocalOutcome::Here(Response::Reply(reply)) => Ok(reply),
            LocalOutcome::Here(Response::EndedBefore) => Ok(CallReply::Ended),
            LocalOutcome::Here(answer) => {
                outcome_of(id, answer)?;
                Err(ClientError::Unknown { id: id.to_owned(), reason: "an unexpected reply".to_owned() })
            }
        }
    }

    /// Sends a call that needs no code to the instance with the key, and not to another one that has its id
    /// now.
    pub(super) async fn put_bound(
        &self,
        id: &str,
        key: InstanceKey,
        instance_call: InstanceCall,
    ) -> Result<CallReply, ClientError> {
        match self.request_here(id, bound(Some(key), Request::Call(instance_call.clone()))).await? {
            LocalOutcome::Elsewhere { .. } => self.put_from_afar(id, Some(key), &instance_call).await,
            LocalOutcome::Here(Response::Reply(reply)) => Ok(reply),
            LocalOutcome::Here(Response::EndedBefore) => Ok(CallReply::Ended),
            LocalOutcome::Here(answer) => {
                outcome_of(id, answer)?;
                Err(ClientError::Unknown { id: id.to_owned(), reason: "an unexpected reply".to_owned() })
            }
        }
    }

    /// Writes the call into the store and waits for the owner's reply.
    async fn put_from_afar(
        &self,
        id: &str,
        key: Option<InstanceKey>,
        instance_call: &InstanceCall,
    ) -> Result<CallReply, ClientError> {
        let body = instance_call.encode();
        let patience = self.call_patience;
        let request = NewRequest {
            instance: id.to_owned(),
            key,
            patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
            after: self.sender.after(id),
            body,
        };
        let number = match self.call(id, |store, reply| store.put_request(request, reply)).await? {
            RequestOutcome::Written(number) => number,
            RequestOutcome::NoInstance => return Err(ClientError::NotFound { id: id.to_owned() }),
        };
        let answered = self.look_until(id, || self.read_answer(id, number));
        let late = match tokio::time::timeout(patience, answered).await {
            Ok(answer) => return answer,
            Err(late) => late,
        };
        let is_untaken = self.call(id, |store, reply| store.withdraw_request(number, reply)).await?;
        if let Some(answer) = self.read_answer(id, number).await? {
            return Ok(answer);
        }
        let id = id.to_owned();
        if is_untaken && self.left_no_trace(&id, instance_call).await? {
            return Err(ClientError::NotAnswered { id, patience });
        }
        Err(ClientError::Unknown { id, reason: format!("no reply in time: {late}") })
    }

    /// Whether a call that was withdrawn has certainly had no effect. A query never has one. An update has
    /// none if no live owner could still carry it out and nothing is recorded.
    async fn left_no_trace(&self, id: &str, instance_call: &InstanceCall) -> Result<bool, ClientError> {
        let key = match instance_call {
            InstanceCall::Update { key, .. } => key,
            // Repeating a reset has no effect if it was carried out.
            InstanceCall::Reset { .. } | InstanceCall::RetryActivity { .. } => {
                return Ok(!self.has_owner(id).await?);
            }
            InstanceCall::Query { .. }
            | InstanceCall::Handlers
            | InstanceCall::Raise { .. }
            | InstanceCall::Token(_) => {
                return Ok(true);
            }
        };
        if self.has_owner(id).await? {
            return Ok(false);
        }
        match key {
            Some(key) => Ok(!self.has_taken(id, None, key).await?),
            None => Ok(false),
        }
    }

    /// Whether a live runtime could take messages to an instance.
    pub(super) async fn has_owner(&self, id: &str) -> Result<bool, ClientError> {
        let directory = self.call(id, |store, reply| store.directory(reply)).await?;
        let is_owner = |session: &SessionRow| {
            session.role == SessionRole::Lane && session.shards > 0 && session.expires_ms > directory.now_ms
        };
        Ok(directory.sessions.iter().any(is_owner))
    }

    pub(super) async fn read_answer(
        &self,
        id: &str,
        number: RequestNumber,
    ) -> Result<Option<CallReply>, ClientError> {
        let body = self.call(id, |store, reply| store.read_reply(number, reply)).await?;
        body.map(|body| CallReply::decode(&body)).transpose().map_err(|error| {
            let source = StoreError::CorruptRow(format!("a reply cannot be decoded: {error}"));
            ClientError::Store { id: id.to_owned(), source }
        })
    }
}

pub(super) fn outcome(id: &str, reply: CallReply) -> Result<Payload, ClientError> {
    let id = id.to_owned();
    match reply {
        CallReply::Answered(payload) => Ok(payload),
        CallReply::Failed(error) => Err(ClientError::UpdateFailed { id, error }),
        CallReply::Refused { reason, error } => Err(ClientError::Refused { id, reason, error }),
        CallReply::KeyTaken => {
            let reason =
                ErrorCode::UpdateRefused.message("an event or update with this key was taken before");
            Err(ClientError::Refused { id, reason, error: None })
        }
        CallReply::Ended => Err(ClientError::Ended { id }),
        CallReply::NotOpen | CallReply::Outdated { .. } => {
            Err(ClientError::Unknown { id, reason: "an unexpected reply".to_owned() })
        }
        CallReply::Unanswered => Err(ClientError::Unanswered { id }),
        CallReply::Blocked { code, reason } => Err(ClientError::Blocked { id, code, reason }),
    }
}
