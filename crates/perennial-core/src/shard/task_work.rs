//! Activities as task rows: what another node needs to run one, and conversions between rows and attempts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::{Undecodable, unquoted};
use crate::history::{ActivityOptions, PastAttempt, Payload, TraceContext};
use crate::instance::ShardId;
use crate::store::{TaskId, TaskRow, TaskState};

use super::envelope::{self, BodyError, BodyKind};
use super::output::ActivityTask;
use super::tenure::Tenure;
use super::token::TokenSecret;

/// Everything that another node needs to run an activity, in addition to its row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskWork {
    /// The instance's id.
    pub instance: String,
    /// The id that the code gave the activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity_id: Option<String>,
    /// The input of the activity.
    pub input: Payload,
    /// How it is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Box<ActivityOptions>>,
    /// When its total timeout ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// When it could have started.
    #[serde(default)]
    pub queued_ms: u64,
    /// Set if the holder's own lane wrote the row for an attempt that was already running there: the number of
    /// interruptions at that time, and whether its start was noted. An expired lease changes one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<(u32, bool)>,
    /// Set if the attempt can be completed from outside. A row for the owner itself contains nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Box<OpenEnd>>,
    /// The trace context of the turn that scheduled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceContext>>,
}

/// An attempt that the holder of its token can complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenEnd {
    /// The secret of the token.
    pub secret: TokenSecret,
    /// Set once its code has returned. The row is then in the state waiting, and due when the attempt times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
}

/// An attempt whose code has returned without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Left {
    /// When it could have started.
    pub queued_ms: u64,
    /// When it started.
    pub began_ms: u64,
    /// The name of the node that ran it, if it was not the owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// When the attempt times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The longest time between two heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
}

impl Left {
    /// When it needs attention, if nothing is reported after `now_ms`.
    pub(super) fn due_ms(&self, now_ms: u64) -> Option<u64> {
        let silent_ms = self.silence_ms.map(|silence_ms| now_ms.saturating_add(silence_ms));
        silent_ms.into_iter().chain(self.until_ms).min()
    }

    /// The record of the attempt once it is over.
    pub(super) fn ended(&self, now_ms: u64) -> PastAttempt {
        PastAttempt::new(self.queued_ms, self.began_ms, now_ms).on(&self.node)
    }
}

/// How an attempt can be completed from outside, if it can.
pub(super) fn open_end(row: &TaskRow) -> Option<OpenEnd> {
    let work = row.work.as_deref().and_then(|work| TaskWork::decode(work).ok())?;
    work.open.map(|open| *open)
}

impl TaskRow {
    /// When the attempt started whose code has returned and that waits for the holder of its token; `None` if there is
    /// none.
    pub fn waits_for_token_since_ms(&self) -> Option<u64> {
        open_end(self)?.left.map(|left| left.began_ms)
    }
}

/// The work of an attempt that can be completed from outside, as only its owner needs it.
pub(super) fn open_work(open: OpenEnd) -> Arc<[u8]> {
    let open = Some(Box::new(open));
    let (instance, activity_id, input) = (String::new(), None, Payload::null());
    TaskWork {
        instance,
        activity_id,
        input,
        options: None,
        deadline_ms: None,
        queued_ms: 0,
        handed_over: None,
        open,
        trace: None,
    }
    .encode()
}

impl TaskWork {
    /// Encodes the work as the body of a task row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Task, self)
    }

    /// Decodes the body of a task row.
    pub fn decode(body: &[u8]) -> Result<TaskWork, BodyError> {
        envelope::open(BodyKind::Task, body)
    }
}

/// Checks that the details of a task are decoded. It must not run without the details of its earlier attempts.
pub(super) fn decoded_details(row: &TaskRow) -> Result<(), Undecodable> {
    row.details.as_ref().map_or(Ok(()), |details| unquoted(details).map(drop))
}

/// Whether a task is leased to its holder because a lane there handed it over, rather than because the node took it.
pub(crate) fn is_handed_over(row: &TaskRow) -> bool {
    let work = row.work.as_deref().and_then(|work| TaskWork::decode(work).ok());
    work.and_then(|work| work.handed_over) == Some((row.interruptions, row.begun.is_some()))
}

impl ActivityTask {
    /// The task that a node takes from the store.
    pub fn from_row(row: &TaskRow) -> Result<ActivityTask, BodyError> {
        decoded_details(row).map_err(BodyError::Undecodable)?;
        let work: TaskWork = envelope::open_decoded(BodyKind::Task, row.work.as_deref().unwrap_or_default())?;
        Ok(ActivityTask {
            tenure: Tenure::default(),
            key: row.id.key,
            instance: Arc::from(work.instance),
            execution: row.id.execution,
            event: row.id.event,
            attempt: row.attempt,
            interruptions: row.interruptions,
            begun: row.begun,
            details: row.details.clone(),
            queued_ms: work.queued_ms,
            past: row.past.clone(),
            deadline_ms: work.deadline_ms,
            name: row.name.clone(),
            activity_id: work.activity_id,
            input: work.input,
            options: work.options,
            secret: work.open.map(|open| open.secret),
            trace: work.trace,
        })
    }

    pub(super) fn id(&self) -> TaskId {
        TaskId { key: self.key, execution: self.execution, event: self.event }
    }

    /// Whether its attempts can be completed from outside.
    pub(super) fn completes_later(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.completes_later)
    }

    /// The tag that a node has to serve to run it.
    pub fn tag(&self) -> Option<&str> {
        self.options.as_ref().and_then(|options| options.tag.as_deref())
    }

    /// Its row with a state since a time, for its owner only.
    pub(super) fn row(
        &self,
        shard: ShardId,
        state: TaskState,
        since_ms: u64,
        due_ms: Option<u64>,
    ) -> TaskRow {
        TaskRow {
            id: self.id(),
            shard,
            attempt: self.attempt,
            state,
            due_ms,
            since_ms: Some(since_ms),
            details: self.details.clone(),
            heard_ms: None,
            interruptions: self.interruptions,
            begun: self.begun,
            past: self.past.clone(),
            name: self.name.clone(),
            tag: self.tag().map(str::to_owned),
            work: self.secret.map(|secret| open_work(OpenEnd { secret, left: None })),
        }
    }

    /// Its row once its code has returned without a result: it waits for the holder of the token.
    pub(super) fn left_open_row(
        &self,
        shard: ShardId,
        secret: TokenSecret,
        left: Left,
        now_ms: u64,
    ) -> TaskRow {
        let due_ms = left.due_ms(now_ms);
        let work = Some(open_work(OpenEnd { secret, left: Some(left) }));
        TaskRow { work, ..self.row(shard, TaskState::Waiting, now_ms, due_ms) }
    }

    /// Its row for other nodes to take, queued from now on.
    pub(super) fn queued_row(&self, shard: ShardId, now_ms: u64) -> TaskRow {
        self.offered_row(shard, now_ms, now_ms, None)
    }

    /// The same for an attempt that has waited on its owner since it could have started: its time in the queue counts
    /// from then.
    pub(super) fn spilled_row(&self, shard: ShardId, now_ms: u64) -> TaskRow {
        self.offered_row(shard, now_ms, self.queued_ms, None)
    }

    /// Its row under a lease of the node that runs it, written by the node's own lane.
    pub(super) fn handed_over_row(&self, shard: ShardId, now_ms: u64) -> TaskRow {
        self.offered_row(shard, now_ms, now_ms, Some((self.interruptions, self.begun.is_some())))
    }

    fn offered_row(
        &self,
        shard: ShardId,
        now_ms: u64,
        queued_ms: u64,
        handed_over: Option<(u32, bool)>,
    ) -> TaskRow {
        let options = self.options.as_deref();
        let queue_until_ms =
            options.and_then(|options| options.queue_timeout_ms).map(|ms| queued_ms.saturating_add(ms));
        let due_ms = queue_until_ms.into_iter().chain(self.deadline_ms).min();
        let work = TaskWork {
            instance: self.instance.to_string(),
            activity_id: self.activity_id.clone(),
            input: self.input.clone(),
            options: self.options.clone(),
            deadline_ms: self.deadline_ms,
            queued_ms: self.queued_ms,
            handed_over,
            open: self.secret.map(|secret| Box::new(OpenEnd { secret, left: None })),
            trace: self.trace.clone(),
        };
        TaskRow { work: Some(work.encode()), ..self.row(shard, TaskState::Queued, now_ms, due_ms) }
    }
}
