//! Views of instances: one serialisable type for a status, a list and a tree.

use perennial_core::store::{Blocked, EndPlace, InstanceRow, PageKey, Status};
use perennial_core::{Attributes, InstanceKey, ParentLink, Payload, Timestamp};
use serde::{Deserialize, Serialize};

/// An instance as the store describes it. [`Client::status`](crate::Client::status), [`Client::list`](crate::Client::list)
/// and [`Client::tree`](crate::Client::tree) return it, and the command prints it with `--json`.
///
/// ```
/// use perennial::InstanceView;
/// # use perennial::prelude::*;
/// # #[orchestration]
/// # async fn greet(_: OrchestrationContext, name: String) -> Result<String, String> {
/// #     Ok(format!("Hello, {name}!"))
/// # }
/// # #[tokio::main]
/// # async fn main() -> perennial::Result<()> {
/// # let runtime = Runtime::open("memory:").register(greet).start().await?;
/// # let client = runtime.client();
/// client.start(greet, "hello-1", "Ada".to_owned()).await?.result().await?;
///
/// let view: InstanceView = client.status("hello-1").await?;
/// assert_eq!((view.name.as_str(), view.status), ("greet", Status::Completed));
/// let text = serde_json::to_string(&view).unwrap();
/// assert_eq!(serde_json::from_str::<InstanceView>(&text).unwrap(), view);
/// # runtime.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InstanceView {
    /// The id, chosen by the caller that started it. It can be used again once the instance is deleted.
    pub id: String,
    /// Identifies the instance among all that ever had its id.
    pub key: InstanceKey,
    /// The registered name of its orchestration.
    pub name: String,
    /// The version of its orchestration; empty until the first turn if the start did not ask for one.
    pub version: String,
    /// The status. Whether the instance is blocked or paused is in [`blocked`](InstanceView::blocked).
    pub status: Status,
    /// The number of the current execution, from 1. Each continue-as-new and each reset begins a new one.
    pub execution: u64,
    /// Why it cannot take its next turn: an error, or a pause.
    pub blocked: Option<Blocked>,
    /// Until when it waits for code that its owner does not have: another node or the next deployment may bring it. It
    /// is blocked after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_code: Option<MissingCode>,
    /// The searchable attributes.
    pub attributes: Attributes,
    /// The last status that its code published.
    pub published: Option<Payload>,
    /// The instance that waits for its result, if it is a sub-orchestration.
    pub parent: Option<ParentLink>,
    /// The time of its start.
    #[serde(rename = "created_ms")]
    pub created: Timestamp,
    /// The time of its end; `None` while it has not ended.
    #[serde(rename = "ended_ms")]
    pub ended: Option<Timestamp>,
    /// The time at which it is due next: a timer, a retry, a delayed start. It may be early.
    #[serde(rename = "wake_at_ms")]
    pub wake_at: Option<Timestamp>,
}

impl From<InstanceRow> for InstanceView {
    fn from(row: InstanceRow) -> InstanceView {
        let waits = row.blocked.as_ref().and_then(|blocked| {
            let until = Timestamp::from_millis(blocked.waits_until_ms?);
            Some(MissingCode { since: blocked.since(), until })
        });
        InstanceView {
            id: row.id,
            key: row.key,
            name: row.name,
            version: row.version,
            status: row.status,
            execution: row.execution,
            blocked: row.blocked.filter(|blocked| !blocked.is_waiting()),
            missing_code: waits,
            attributes: row.attributes,
            published: row.published,
            parent: row.parent,
            created: Timestamp::from_millis(row.created_ms),
            ended: row.ended_ms.map(Timestamp::from_millis),
            wake_at: row.wake_at_ms.map(Timestamp::from_millis),
        }
    }
}

/// The wait of an instance for its code. See [`InstanceView::missing_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MissingCode {
    /// When its owner first found that it does not have the code.
    #[serde(rename = "since_ms")]
    pub since: Timestamp,
    /// When the instance is blocked, if the code is still missing.
    #[serde(rename = "until_ms")]
    pub until: Timestamp,
}

/// A page of a list of instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InstancePage {
    /// The instances, in the order of the filter.
    pub rows: Vec<InstanceView>,
    /// Pass it to [`Client::list`](crate::Client::list) for the next page; `None` if this is the last.
    pub next: Option<PageKey>,
}

/// A page of a list of instances in the order of their end. See [`Client::list_ended`](crate::Client::list_ended).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EndedPage {
    /// The instances, the last ended first.
    pub rows: Vec<InstanceView>,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<EndPlace>,
}

/// An instance and the sub-orchestrations that it started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tree {
    /// The instance at the root.
    #[serde(flatten)]
    pub instance: InstanceView,
    /// Its children in the order in which they were scheduled, each with its own children.
    pub children: Vec<Tree>,
}

impl Tree {
    /// The number of instances in this tree.
    pub fn size(&self) -> usize {
        1 + self.children.iter().map(Tree::size).sum::<usize>()
    }
}
