//! Events whose sender needs to know whether the instance ended without reading them: start-or-raise then
//! starts.
//!
//! In the runtime's process the lane responds after the turn that takes the event. Through the store, an
//! event is a request that the owner answers with the commit of that turn.

use perennial_core::ErrorCode;
use perennial_core::shard::{CallReply, InstanceCall, Request};
use perennial_core::store::{NewRequest, RequestNumber, RequestOutcome};
use perennial_core::{InstanceKey, Payload, check_derived_id, check_name};

use super::sending::{LocalOutcome, bound, outcome_of};
use super::{Client, check};
use crate::error::ClientError;

/// The outcome of a request, as far as the sender knows it.
pub(super) enum CallOutcome {
    /// The owner replied.
    Reply(CallReply),
    /// The instance was deleted before its owner took the request.
    Gone,
    /// There was no reply in time. The request was withdrawn.
    NoReply,
}

impl Client {
    /// Raises an event at the instance with a key. Returns [`ClientError::Ended`] if the instance ended before
    /// its code could read it.
    pub(super) async fn raise_and_confirm(
        &self,
        id: &str,
        instance: InstanceKey,
        name: &str,
        payload: Payload,
    ) -> Result<(), ClientError> {
        check("instance id", id, check_derived_id)?;
        check("event", name, check_name)?;
        self.check_payload(id, &payload)?;
        let key = self.sender.draw_key();
        let (name, trace) = (name.to_owned(), self.caller_trace());
        let instance_call = InstanceCall::Raise {
            name: name.clone(),
            payload: payload.clone(),
            key: key.clone(),
            trace: trace.clone(),
        };
        let request = Request::Raise { name, payload, key: Some(key.clone()), trace };
        let request = bound(Some(instance), request);
        if let LocalOutcome::Here(answer) = self.request_here(id, request.clone()).await? {
            return outcome_of(id, answer).map(drop);
        }
        let outcome = match self.has_owner(id).await? {
            true => self.call_through_owner(id, instance, &instance_call).await?,
            false => CallOutcome::NoReply,
        };
        match outcome {
            CallOutcome::Reply(CallReply::Answered(_) | CallReply::KeyTaken) => Ok(()),
            CallOutcome::Reply(CallReply::Refused { reason, error })
                if ErrorCode::leading(&reason) == Some(ErrorCode::PayloadMismatch) =>
            {
                Err(ClientError::Refused { id: id.to_owned(), reason, error })
            }
            // The runtime of this process may have taken it before it lost the instance.
            CallOutcome::Reply(CallReply::Ended) | CallOutcome::Gone
                if self.driver.is_some()
                    && self.has_taken(id, Some(instance), &key).await.unwrap_or(false) =>
            {
                Ok(())
            }
            CallOutcome::Reply(CallReply::Ended) | CallOutcome::Gone => {
                Err(ClientError::Ended { id: id.to_owned() })
            }
            // The instance is blocked, has not begun, or is not owned: the event waits in its inbox. If it
            // was taken after all, its key prevents a second effect.
            CallOutcome::Reply(_) | CallOutcome::NoReply => match self.send_message(id, request).await {
                Err(ClientError::Ended { .. }) if self.has_taken(id, Some(instance), &key).await? => Ok(()),
                sent => sent,
            },
        }
    }

    /// Writes a request and waits for the owner's reply.
    pub(super) async fn call_through_owner(
        &self,
        id: &str,
        instance: InstanceKey,
        instance_call: &InstanceCall,
    ) -> Result<CallOutcome, ClientError> {
        let patience = self.call_patience;
        let request = NewRequest {
            instance: id.to_owned(),
            key: Some(instance),
            patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
            after: self.sender.after(id),
            body: instance_call.encode(),
        };
        let number = match self.call(id, |store, reply| store.put_request(request, reply)).await? {
            RequestOutcome::Written(number) => number,
            RequestOutcome::NoInstance => return Err(ClientError::NotFound { id: id.to_owned() }),
        };
        let outcome = self.look_until(id, || self.call_outcome(id, number, instance));
        if let Ok(outcome) = tokio::time::timeout(patience, outcome).await {
            return outcome;
        }
        self.call(id, |store, reply| store.withdraw_request(number, reply)).await?;
        Ok(self.read_answer(id, number).await?.map_or(CallOutcome::NoReply, CallOutcome::Reply))
    }

    /// The current outcome of a request, if there is one.
    async fn call_outcome(
        &self,
        id: &str,
        number: RequestNumber,
        instance: InstanceKey,
    ) -> Result<Option<CallOutcome>, ClientError> {
        if let Some(reply) = self.read_answer(id, number).await? {
            return Ok(Some(CallOutcome::Reply(reply)));
        }
        match self.row_of(id, Some(instance)).await {
            Ok(_) => return Ok(None),
            Err(ClientError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        // Requests are deleted with their instance, replies are not: an earlier reply still exists.
        Ok(Some(self.read_answer(id, number).await?.map_or(CallOutcome::Gone, CallOutcome::Reply)))
    }
}
