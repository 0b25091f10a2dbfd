//! An instance as it was after a turn, from its history alone.

use std::collections::BTreeMap;

use perennial_core::shard::child_id;
use perennial_core::store::{Status, StoreError};
use perennial_core::{
    Attributes, Decision, Ending, EventId, HistoryError, InstanceKey, Payload, Timestamp, TurnFailure,
};
use serde::Serialize;

use super::activities::max_attempts;
use super::open_work::{OpenOperation, OpenWork, timers_beside};
use super::{
    ActivityState, ActivityWait, Client, LISTED_OPERATIONS, Wait, WaitReason, listed, of_code, other, text,
};
use crate::error::ClientError;

/// How many turns are read at a time.
const TURNS: usize = 1_000;

/// What an instance waited for after one of its turns, and what it showed of itself. See [`Client::explain_turn`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PastState {
    /// The id of the instance.
    pub id: String,
    /// The key of the instance.
    pub key: InstanceKey,
    /// The status after the turn.
    pub status: Status,
    /// The execution that the turn belongs to.
    pub execution: u64,
    /// The number of the turn.
    pub turn: u64,
    /// The time of the turn. Ages in texts are relative to it.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// The open operations, in the order in which they were scheduled, at most 50.
    pub waits: Vec<Wait>,
    /// The number of open operations that are not listed.
    pub more: usize,
    /// The numbers of events that no wait had taken, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub untaken_events: BTreeMap<String, usize>,
    /// The error or the reason with which the turn ended the instance, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// The searchable attributes.
    pub attributes: Attributes,
    /// The status that the code had published in this execution.
    pub published: Option<Payload>,
}

impl Client {
    /// Returns what an instance waited for after a turn of an execution: the state that its history shows, so the same
    /// whenever it is asked for. How far the attempts of activities were is not part of it.
    ///
    /// A turn after the last one is the last one. An execution that does not exist is [`ClientError::NoExecution`].
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
    ///
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext, _: u32) -> Result<bool, String> {
    ///     Ok(ctx.schedule_wait(APPROVED).await)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(order).start().await?;
    /// # let client = runtime.client();
    /// let run = client.start(order, "order-42", 7).await?;
    /// client.raise_event("order-42", APPROVED, true).await?;
    /// run.result().await?;
    /// let past = client.explain_turn("order-42", 1, 1).await?;
    /// assert!(past.waits[0].text.starts_with("event `approved`"));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn explain_turn(&self, id: &str, execution: u64, turn: u64) -> Result<PastState, ClientError> {
        let row = self.row(id).await?;
        let bound = self.bound_to(row.key);
        let (mut work, mut at, mut after) =
            (OpenWork::new(row.key), Timestamp::from_millis(row.created_ms), 0);
        while after < turn {
            let rows = usize::try_from(turn - after).unwrap_or(usize::MAX).min(TURNS);
            let page = bound.turn_page(id, execution, after, rows).await?;
            for read in &page.turns {
                work.apply(read).map_err(|error| corrupt(id, error))?;
                (after, at) = (read.number, read.at());
            }
            work.forget_closed();
            if !page.more {
                break;
            }
        }
        Ok(past_state(id, (row.key, execution), (after, at), &work))
    }
}

fn corrupt(id: &str, error: HistoryError) -> ClientError {
    let source = StoreError::CorruptRow(TurnFailure::from(error).to_string());
    ClientError::Store { id: id.to_owned(), source }
}

fn past_state(
    id: &str,
    (key, execution): (InstanceKey, u64),
    (turn, at): (u64, Timestamp),
    work: &OpenWork,
) -> PastState {
    let status = match work.ending() {
        Some(ending) => Status::after(ending),
        None if turn == 0 => Status::Pending,
        None => Status::Running,
    };
    let ending = match work.ending() {
        Some(Ending::OrchestrationFailed { error }) => Some(text::cut(error.as_json())),
        Some(Ending::OrchestrationCancelled { reason, .. } | Ending::OrchestrationTerminated { reason }) => {
            Some(text::cut(reason))
        }
        _ => None,
    };
    let (mut reasons, mut more) = (Vec::new(), 0);
    if !work.has_ended() {
        reasons.extend(of_code(work));
        let operations = work.operations();
        let timers = timers_beside(&operations);
        let is_folded = |event: EventId| timers.values().any(|(timer, _)| *timer == event);
        let shown: Vec<&OpenOperation> =
            operations.iter().filter(|operation| !is_folded(operation.event)).collect();
        let (listed, left_out) = listed(shown, |_| false);
        debug_assert!(listed.len() <= LISTED_OPERATIONS, "a list is bounded");
        more = left_out;
        reasons.extend(listed.into_iter().filter_map(|operation| {
            let timer = timers.get(&operation.event).map(|(_, due)| *due);
            past_operation(id, execution, operation, work).or_else(|| other(operation, timer))
        }));
        if reasons.is_empty() && turn > 0 {
            reasons.push(WaitReason::Condition);
        }
    }
    PastState {
        id: id.to_owned(),
        key,
        status,
        execution,
        turn,
        at,
        waits: reasons
            .into_iter()
            .map(|reason| Wait::of_unit(reason, at, |event| work.unit_of(event)))
            .collect(),
        more,
        untaken_events: if work.has_ended() { BTreeMap::new() } else { work.untaken_events() },
        ending,
        attributes: work.attributes().clone(),
        published: work.published().cloned(),
    }
}

/// An activity or a child, of which the history alone does not show how far it was.
fn past_operation(
    id: &str,
    execution: u64,
    operation: &OpenOperation,
    work: &OpenWork,
) -> Option<WaitReason> {
    let (event, since) = (operation.event, operation.at);
    match &operation.decision {
        Decision::ActivityScheduled { name, id, options, .. } => Some(WaitReason::Activity(ActivityWait {
            name: name.clone(),
            id: id.clone(),
            event,
            tag: options.as_ref().and_then(|options| options.tag.clone()),
            scheduled: since,
            attempt: 1,
            max_attempts: max_attempts(options.as_deref()),
            deadline: work.activity_deadline(event),
            failed: None,
            interruptions: 0,
            stopping: work.is_stopping(event),
            state: ActivityState::Open,
        })),
        Decision::SubOrchestrationScheduled { name, instance, .. } => {
            let starter = work.starter_of(event, execution);
            let child = instance.clone().unwrap_or_else(|| child_id(id, starter, event));
            let (name, waits) = (name.clone(), Vec::new());
            Some(WaitReason::Child { id: child, name, event, since, status: Some(Status::Running), waits })
        }
        _ => None,
    }
}
