//! Encodes and decodes the payloads of rows.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::log;
use crate::shard::envelope::{self, BodyKind};
use crate::shard::{BodyError, CallReply, InstanceCall, Message, TaskWork};
use crate::store::{
    Commit, InstanceRow, Outgoing, RequestReply, SendRequest, TaskChange, TaskId, TaskReport, TaskRow,
};

use super::form::may_be_encoded;
use super::{CodecError, Codecs, PayloadContext, quoted, unquoted};
use crate::history::Payload;

type Body = Arc<[u8]>;

#[derive(Clone)]
pub(super) struct Recoder {
    pub(super) codecs: Codecs,
}

impl Recoder {
    // ---- bodies ---------------------------------------------------------------------------------------------------

    pub(super) fn encode_message(&self, body: &Body) -> Result<Body, CodecError> {
        self.encode::<Message>(BodyKind::Message, PayloadContext::default(), body)
    }

    pub(super) fn decode_message(&self, body: &Body) -> Body {
        self.decode::<Message>(BodyKind::Message, PayloadContext::default(), body)
    }

    pub(super) fn encode_request(&self, body: &Body) -> Result<Body, CodecError> {
        self.encode::<InstanceCall>(BodyKind::Request, PayloadContext::default(), body)
    }

    pub(super) fn decode_request(&self, body: &Body) -> Body {
        self.decode::<InstanceCall>(BodyKind::Request, PayloadContext::default(), body)
    }

    pub(super) fn decode_reply(&self, body: &Body) -> Body {
        self.decode::<CallReply>(BodyKind::Reply, PayloadContext::default(), body)
    }

    /// A body that is not valid is left alone: its reader detects the damage. A body that could not be decoded when it
    /// was read is written back unchanged.
    fn encode<T: Serialize + DeserializeOwned>(
        &self,
        kind: BodyKind,
        context: PayloadContext,
        body: &Body,
    ) -> Result<Body, CodecError> {
        match envelope::open_decoded::<T>(kind, body) {
            Ok(opened) => envelope::seal_with(&self.codecs, context, kind, &opened),
            Err(_) => Ok(envelope::as_stored(body)),
        }
    }

    /// A body that cannot be decoded is returned in its stored form, with the reason: code that needs its payloads is
    /// refused, and everything else in it can be read.
    fn decode<T: Serialize + DeserializeOwned>(
        &self,
        kind: BodyKind,
        context: PayloadContext,
        body: &Body,
    ) -> Body {
        if !may_be_encoded(body) {
            return Arc::clone(body);
        }
        match envelope::open_with::<T>(&self.codecs, context, kind, body) {
            Ok(opened) => envelope::seal(kind, &opened),
            Err(BodyError::Undecodable(cause)) => {
                let key = context.instance.map(tracing::field::display);
                tracing::warn!(target: log::STORE, key, %cause, "payload cannot be decoded");
                envelope::seal_undecoded(cause, body).unwrap_or_else(|| Arc::clone(body))
            }
            Err(_) => Arc::clone(body),
        }
    }

    // ---- tasks ----------------------------------------------------------------------------------------------------

    fn encode_task(&self, row: &TaskRow) -> Result<TaskRow, CodecError> {
        let context = PayloadContext::of(row.id.key);
        let work = row.work.as_ref().map(|work| self.encode::<TaskWork>(BodyKind::Task, context, work));
        let details = row.details.as_ref().map(|details| self.encode_details(details, &context));
        Ok(TaskRow { work: work.transpose()?, details: details.transpose()?, ..row.clone() })
    }

    /// Details that could not be decoded when they were read are written back unchanged.
    fn encode_details(&self, details: &Payload, context: &PayloadContext) -> Result<Payload, CodecError> {
        match unquoted(details) {
            Ok(details) => self.codecs.encode(&details, context),
            Err(_) => Ok(details.clone()),
        }
    }

    /// Details that cannot be decoded are left as they are: the activity must not run without them.
    pub(super) fn decode_task(&self, row: &mut TaskRow) {
        let context = PayloadContext::of(row.id.key);
        if let Some(details) = &row.details {
            match self.codecs.decode(details, &context) {
                Ok(decoded) => row.details = Some(quoted(&decoded)),
                Err(cause) => tracing::warn!(
                    target: log::ACTIVITY,
                    key = %row.id.key,
                    execution = row.id.execution,
                    event = row.id.event.0,
                    attempt = row.attempt,
                    activity = row.name,
                    %cause,
                    "heartbeat details cannot be decoded"
                ),
            }
        }
        row.work = row.work.take().map(|work| self.decode::<TaskWork>(BodyKind::Task, context, &work));
    }

    /// Details that cannot be encoded now are dropped; the next heartbeat reports again.
    pub(super) fn encode_report(&self, report: &mut TaskReport) {
        let Some(details) = &report.details else { return };
        match self.encode_details(details, &PayloadContext::of(report.task.key)) {
            Ok(encoded) => report.details = Some(encoded),
            Err(error) => {
                let TaskId { key, execution, event } = report.task;
                tracing::warn!(
                    target: log::ACTIVITY,
                    %key,
                    execution,
                    event = event.0,
                    %error,
                    "heartbeat details cannot be encoded"
                );
                report.details = None;
            }
        }
    }

    // ---- commits and messages -------------------------------------------------------------------------------------

    /// Whether a commit holds payloads besides those of its turn.
    pub(super) fn has_payloads(commit: &Commit) -> bool {
        let is_put = |change: &TaskChange| matches!(change, TaskChange::Put(_));
        let is_published = |row: &InstanceRow| row.published.is_some();
        !commit.send.is_empty()
            || !commit.replies.is_empty()
            || commit.tasks.iter().any(is_put)
            || commit.insert.as_deref().is_some_and(is_published)
            || matches!(commit.change.published, Some(Some(_)))
    }

    pub(super) fn encode_commit(&self, commit: &Commit) -> Result<Commit, CodecError> {
        let mut commit = commit.clone();
        if let Some(row) = &mut commit.insert {
            self.encode_row(row)?;
        }
        if let Some(Some(published)) = &mut commit.change.published {
            *published = self.codecs.encode(published, &PayloadContext::of(commit.key))?;
        }
        for change in &mut commit.tasks {
            if let TaskChange::Put(row) = change {
                **row = self.encode_task(row)?;
            }
        }
        for RequestReply { body, .. } in &mut commit.replies {
            *body = self.encode::<CallReply>(BodyKind::Reply, PayloadContext::default(), body)?;
        }
        for message in &mut commit.send {
            self.encode_outgoing(message)?;
        }
        Ok(commit)
    }

    fn encode_outgoing(&self, message: &mut Outgoing) -> Result<(), CodecError> {
        match message {
            Outgoing::ToKey { body, .. } | Outgoing::ToId { body, .. } => {
                *body = self.encode_message(body)?
            }
            Outgoing::Start { row, body, otherwise, started, replaces_ended: _ } => {
                self.encode_row(row)?;
                *body = self.encode_message(body)?;
                for told in [otherwise, started].into_iter().flatten() {
                    *told = self.encode_message(told)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn encode_send(&self, request: SendRequest) -> Result<SendRequest, CodecError> {
        Ok(match request {
            SendRequest::Start { mut row, body } => {
                self.encode_row(&mut row)?;
                SendRequest::Start { row, body: self.encode_message(&body)? }
            }
            SendRequest::Message { id, key, dedupe, urgent, body } => {
                SendRequest::Message { id, key, dedupe, urgent, body: self.encode_message(&body)? }
            }
        })
    }

    fn encode_row(&self, row: &mut InstanceRow) -> Result<(), CodecError> {
        if let Some(published) = &mut row.published {
            *published = self.codecs.encode(published, &PayloadContext::of(row.key))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "recode_tests.rs"]
mod tests;
