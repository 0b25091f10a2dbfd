//! One instance with everything that a page about it begins with. The command prints it, and the HTTP API answers with it.

use std::collections::BTreeMap;

use perennial_core::store::StoreError;
use perennial_core::{Ending, Payload, Started, Timestamp, TraceContext, Turn};
use serde::Serialize;

use super::explaining::untaken_text;
use super::{Client, Explanation, InstanceView, Wait, WaitReason};
use crate::error::ClientError;

/// An instance with the ends of its current execution and what it waits for. See [`Client::details`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct InstanceDetails {
    /// The row.
    #[serde(flatten)]
    pub instance: InstanceView,
    /// How many turns the execution has. `None` if the history is damaged.
    pub turns: Option<u64>,
    /// How many events the execution has. `None` if the history is damaged.
    pub events: Option<u64>,
    /// About how many bytes the history of the execution has. `None` if it is damaged or too long to be read.
    pub bytes: Option<u64>,
    /// The input of the execution; `None` before its first turn.
    pub input: Option<Payload>,
    /// The output, if it completed, or was cancelled with one.
    pub output: Option<Payload>,
    /// The error, if it failed.
    pub error: Option<Payload>,
    /// Why it was cancelled or terminated.
    pub reason: Option<String>,
    /// What it waits for. At most 50 open operations are listed.
    pub waits_for: Vec<Wait>,
    /// The number of open operations that are not listed.
    pub more_waits: usize,
    /// The numbers of events that no wait has taken, by name.
    pub untaken_events: BTreeMap<String, usize>,
    /// When the execution times out.
    #[serde(rename = "deadline_ms")]
    pub deadline: Option<Timestamp>,
    /// The cancel request that the code handles now.
    pub cancel: Option<CancelView>,
    /// The trace of the caller that started it.
    pub trace: Option<TraceContext>,
    /// Why the history cannot be read; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// A cancel request whose grace period lasts. See [`InstanceDetails::cancel`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CancelView {
    /// The reason that the caller gave.
    pub reason: String,
    /// When the code got it.
    #[serde(rename = "since_ms")]
    pub since: Timestamp,
    /// When the instance is ended, if its code has not ended by then.
    #[serde(rename = "until_ms")]
    pub until: Timestamp,
}

impl Client {
    /// Returns an instance with the ends of its current execution and what it waits for. Reads few turns of a history of
    /// any length, besides what [`Client::explain`] reads.
    ///
    /// An instance whose history is damaged is returned with its row and the [damage](InstanceDetails::damage).
    ///
    /// ```
    /// use perennial::prelude::*;
    /// # #[orchestration]
    /// # async fn greet(_: OrchestrationContext, name: String) -> Result<String, String> { Ok(name) }
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(greet).start().await?;
    /// # let client = runtime.client();
    /// client.start(greet, "hello-1", "Ada".to_owned()).await?.result().await?;
    /// let details = client.details("hello-1").await?;
    /// assert_eq!(details.output.unwrap().as_json(), "\"Ada\"");
    /// assert_eq!(details.turns, Some(1));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn details(&self, id: &str) -> Result<InstanceDetails, ClientError> {
        let instance = self.status(id).await?;
        // Bound from here on, so that all parts are about the same instance.
        let bound = self.bound_to(instance.key);
        let (first, last, damage) = match bound.read_ends(&instance).await {
            Ok((first, last)) => (first, last, None),
            Err(ClientError::Store { source: damage @ StoreError::CorruptRow(_), .. }) => {
                (None, None, Some(damage.to_string()))
            }
            Err(error) => return Err(error),
        };
        let explained = match &damage {
            None => Some(bound.explain(id).await?),
            Some(_) => None,
        };
        let mut details = InstanceDetails::of(instance, (first.as_ref(), last.as_ref()), explained, damage);
        // Damage between the two ends.
        let unread = details.waits_for.iter().find_map(|wait| match &wait.reason {
            WaitReason::Unread { problem, too_long: false } => Some(problem.clone()),
            _ => None,
        });
        if let Some(problem) = unread {
            details.set_damage(problem);
        }
        Ok(details)
    }

    /// The first and the last turn of the current execution.
    async fn read_ends(&self, instance: &InstanceView) -> Result<(Option<Turn>, Option<Turn>), ClientError> {
        let (id, execution) = (instance.id.as_str(), instance.execution);
        let last = self.last_turn(id, execution).await?;
        let first = self.turn_page(id, execution, 0, 1).await?.turns.into_iter().next();
        let last = match last {
            0 => None,
            1 => first.clone(),
            last => self.turn_page(id, execution, last - 1, 1).await?.turns.into_iter().next(),
        };
        Ok((first, last))
    }
}

impl InstanceDetails {
    /// Notes damage that was found by reading more of the history. What follows from a history is left out then.
    pub fn set_damage(&mut self, damage: String) {
        (self.turns, self.events, self.bytes) = (None, None, None);
        (self.waits_for, self.more_waits) = (Vec::new(), 0);
        self.damage.get_or_insert(damage);
    }

    /// Names the [events](InstanceDetails::untaken_events) that no wait has taken in one line; `None` if there are none.
    pub fn untaken_text(&self) -> Option<String> {
        untaken_text(&self.untaken_events)
    }

    fn of(
        instance: InstanceView,
        (first, last): (Option<&Turn>, Option<&Turn>),
        explained: Option<Explanation>,
        damage: Option<String>,
    ) -> InstanceDetails {
        let counts = |count: fn(&Turn) -> u64| damage.is_none().then(|| last.map_or(0, count));
        let started: Option<&Started> = first.and_then(Turn::started);
        let (output, error, reason) = match last.and_then(Turn::ending).cloned() {
            Some(Ending::OrchestrationCompleted { output }) => (Some(output), None, None),
            Some(Ending::OrchestrationFailed { error }) => (None, Some(error), None),
            Some(Ending::OrchestrationCancelled { reason, output }) => (output, None, Some(reason)),
            Some(Ending::OrchestrationTerminated { reason }) => (None, None, Some(reason)),
            Some(Ending::OrchestrationContinuedAsNew { .. }) | None => (None, None, None),
        };
        let bytes = explained.as_ref().and_then(|explained| explained.history_bytes);
        let (waits_for, more_waits, untaken_events) = match explained {
            Some(explained) => (explained.waits, explained.more, explained.untaken_events),
            None => Default::default(),
        };
        let cancel = waits_for.iter().find_map(|wait| match &wait.reason {
            WaitReason::Cancellation { reason, since, until } => {
                Some(CancelView { reason: reason.clone(), since: *since, until: *until })
            }
            _ => None,
        });
        InstanceDetails {
            turns: counts(|turn| turn.number),
            events: counts(|turn| turn.events.last().map_or(0, |event| event.id.0)),
            bytes,
            input: started.map(|started| started.input.clone()),
            output,
            error,
            reason,
            waits_for,
            more_waits,
            untaken_events,
            deadline: started.and_then(|started| started.deadline_ms).map(Timestamp::from_millis),
            cancel,
            trace: started.and_then(|started| started.trace.as_deref().cloned()),
            damage,
            instance,
        }
    }
}
