//! What an instance can wait for, as data.

use std::fmt;

use perennial_core::store::Status;
use perennial_core::{EventId, InstanceKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::text;

/// From this many failed attempts on, an activity counts as failing again and again.
const FAILING_ATTEMPTS: u32 = 3;

/// Why an instance does not move: everything that it waits for. [`Client::explain`](crate::Client::explain) computes it.
///
/// `Display` writes one line for each wait. Serialised, each wait has its line and the same facts as fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The instance's id.
    pub id: String,
    /// The instance's key.
    pub key: InstanceKey,
    /// Where the instance stands.
    pub status: Status,
    /// The store's clock when this was computed. Ages in texts are relative to it.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// What it waits for: first what concerns the whole instance, then open operations in the order of their schedule.
    /// Empty if it has ended.
    pub waits: Vec<Wait>,
    /// How many further open operations there are; not all of a large fan-out are listed.
    pub more: usize,
}

impl Explanation {
    /// The first wait in a few words, and how many others there are. For a column of a list, so that no runtime runs is left
    /// out if the instance waits for something else anyway.
    pub fn short(&self) -> String {
        let is_own = |wait: &&Wait| {
            !matches!(wait.reason, WaitReason::NoRuntime { has_work: false, .. } | WaitReason::NoOwner { .. })
        };
        let own = self.waits.iter().filter(is_own).count();
        let Some(first) = self.waits.iter().find(is_own).or(self.waits.first()) else { return String::new() };
        match own.max(1) - 1 + self.more {
            0 => text::short(&first.reason, self.at),
            others => format!("{} (+{others})", text::short(&first.reason, self.at)),
        }
    }

    /// Whether one of the waits does not end unless somebody acts.
    pub fn is_stuck(&self) -> bool {
        self.waits.iter().any(Wait::is_stuck)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.waits.is_empty() {
            return write!(f, "nothing: it has {}", text::ended(self.status));
        }
        for (place, wait) in self.waits.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{wait}")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

/// One thing that an instance waits for. `Display` writes [`text`](Wait::text).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// The wait in one line of English, with ages as of [`Explanation::at`].
    pub text: String,
    /// What to do about it, if it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The same as data.
    #[serde(flatten)]
    pub reason: WaitReason,
}

impl Wait {
    pub(super) fn new(reason: WaitReason, at: Timestamp) -> Wait {
        Wait { text: text::line(&reason, at), remedy: text::remedy(&reason), reason }
    }

    /// Whether it does not end unless somebody acts.
    pub fn is_stuck(&self) -> bool {
        self.reason.is_stuck()
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What an instance waits for. All times are by the store's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// No process runs orchestrations on this store.
    NoRuntime {
        /// Since when; `None` if none ever did.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// Whether the instance has something to do now.
        has_work: bool,
    },
    /// Nodes run, but none of them owns the instance's shard at the moment.
    NoOwner {
        /// Since when; `None` if none ever did.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
    },
    /// Somebody paused it.
    Paused {
        /// Since when.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// The reason that was given.
        reason: String,
        /// Who did it, if they said so.
        by: Option<String>,
        /// Whether the whole orchestration is paused.
        orchestration: bool,
    },
    /// It cannot take its next turn.
    Blocked {
        /// The stable code of the failure.
        code: String,
        /// What happened, in a line.
        reason: String,
        /// Since when.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// How often the turn has been tried.
        attempts: u32,
    },
    /// No live node has its orchestration registered, so it cannot take another turn.
    OrchestrationNotRegistered {
        /// The orchestration.
        name: String,
        /// The version that the instance is pinned to; empty if it takes the latest.
        version: String,
        /// The versions that live nodes have instead.
        registered: Vec<String>,
    },
    /// Its start was delayed.
    Start {
        /// When it starts.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// Messages that its next turn takes.
    Messages {
        /// How many, as far as they were counted.
        count: usize,
        /// Whether there are more.
        more: bool,
        /// When the oldest arrived.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// It has so many unread events that senders are refused.
    Full,
    /// Somebody asked it to cancel, and its code cleans up.
    Cancellation {
        /// The reason that was given.
        reason: String,
        /// When the request was delivered.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// When it is ended if it has not ended by itself.
        #[serde(rename = "until_ms")]
        until: Timestamp,
    },
    /// An activity.
    Activity(ActivityWait),
    /// An external event.
    Event {
        /// The event's name.
        name: String,
        /// The event id of the wait.
        event: EventId,
        /// Since when it waits.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// When a timer is due that the code created beside the wait, which is how a time limit is recorded.
        #[serde(rename = "gives_up_ms", default, skip_serializing_if = "Option::is_none")]
        gives_up: Option<Timestamp>,
    },
    /// A timer.
    Timer {
        /// The event id of its creation.
        event: EventId,
        /// When it fires.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// A sub-orchestration.
    Child {
        /// The child's id.
        id: String,
        /// The child's orchestration.
        name: String,
        /// The event id of its schedule.
        event: EventId,
        /// When it was scheduled.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// Where it stands; `None` if it has not been started yet.
        status: Option<Status>,
        /// What the child itself waits for. Empty if it has ended, or is too deep in the tree to be looked at.
        waits: Vec<Wait>,
    },
    /// The handler of an update that has no answer yet.
    Update {
        /// The update's name.
        name: String,
        /// The event id of the request.
        event: EventId,
        /// When it was accepted.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// A report on something that it sent to another instance.
    Delivery {
        /// The instance that it was sent to.
        to: String,
        /// The event id of the sending.
        event: EventId,
        /// When it was sent.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// Nothing that its history tells of: a condition of its own code, which handlers of events or updates change.
    Condition,
    /// Its history was not read: it is damaged, of a newer version, or too long.
    Unread {
        /// Why.
        problem: String,
        /// Whether it is only too long to be read here.
        too_long: bool,
    },
}

impl WaitReason {
    /// Whether it is a state of the whole instance, and not a thing that it waits for.
    pub fn is_state(&self) -> bool {
        matches!(
            self,
            WaitReason::NoRuntime { .. }
                | WaitReason::NoOwner { .. }
                | WaitReason::Paused { .. }
                | WaitReason::Blocked { .. }
                | WaitReason::OrchestrationNotRegistered { .. }
                | WaitReason::Cancellation { .. }
                | WaitReason::Unread { .. }
        )
    }

    /// Whether it does not end unless somebody acts.
    pub fn is_stuck(&self) -> bool {
        match self {
            WaitReason::NoRuntime { has_work, .. } => *has_work,
            WaitReason::Blocked { .. } | WaitReason::OrchestrationNotRegistered { .. } => true,
            WaitReason::Unread { too_long, .. } => !too_long,
            WaitReason::Activity(activity) => activity.is_stuck(),
            WaitReason::Child { waits, .. } => waits.iter().any(Wait::is_stuck),
            _ => false,
        }
    }
}

/// An activity that has no result yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActivityWait {
    /// The activity's registered name.
    pub name: String,
    /// The id that the code gave it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The event id of its schedule.
    pub event: EventId,
    /// Only nodes that serve this tag run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// When it was scheduled.
    #[serde(rename = "scheduled_ms")]
    pub scheduled: Timestamp,
    /// The attempt that runs or is next, from 1.
    pub attempt: u32,
    /// How many attempts its retry policy allows; `None` if it sets no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// When all attempts together have taken too long.
    #[serde(rename = "deadline_ms", default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The last attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedAttempt>,
    /// How often in a row the process ended while it ran, as far as that is evidence against it.
    #[serde(default)]
    pub interruptions: u32,
    /// Whether the code asked it to stop.
    #[serde(default)]
    pub stopping: bool,
    /// What happens with it now.
    #[serde(flatten)]
    pub state: ActivityState,
}

impl ActivityWait {
    /// Whether its attempts fail or end their process again and again.
    pub fn is_failing(&self) -> bool {
        let failures = if self.failed.is_some() { self.attempt.saturating_sub(1) } else { 0 };
        failures >= FAILING_ATTEMPTS || self.interruptions > 0
    }

    fn is_stuck(&self) -> bool {
        // Without any node, it is a runtime that is missing.
        self.is_failing() || matches!(self.state, ActivityState::NotRegistered { nodes: 1.., .. })
    }
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// When it ended.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// How it failed, shortened.
    pub error: String,
    /// The node that ran it, unless that was the instance's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What happens with an activity that has no result yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActivityState {
    /// The node that owns the instance has it: it runs, or waits there for a free slot. Which of both is not stored until
    /// it sends a heartbeat.
    WithOwner {
        /// The node's name.
        node: String,
        /// Since when the node has it.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// A node runs it.
    Running {
        /// The node's name.
        node: String,
        /// When the attempt began.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// When it last sent a heartbeat with details; `None` if it has not.
        #[serde(rename = "heard_ms")]
        heard: Option<Timestamp>,
        /// What its attempts reported last, shortened.
        details: Option<String>,
    },
    /// The node that ran it is gone. It runs again once another node takes it.
    Interrupted {
        /// The node's name, if it is known.
        node: Option<String>,
        /// Since when nobody runs it, if it is known.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
    },
    /// It runs when there is a runtime.
    NotStarted,
    /// Another attempt follows one that failed.
    Retry {
        /// When.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// It is held back because its process ended while it ran.
    Held {
        /// Until when.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// Its next attempt is due.
    Due {
        /// Since when.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// It waits for a free slot of a node that can run it.
    Queued {
        /// Since when.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// The live nodes that can run it.
        nodes: Vec<String>,
        /// How many activities are queued in all, up to 10,000.
        queued: u64,
    },
    /// It waits for a node that can run it, and no live one can.
    NotRegistered {
        /// Since when it waits.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// How many nodes are alive.
        nodes: usize,
    },
    /// Its code has returned, and whoever has its token completes it.
    Token {
        /// When the attempt began.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// When the attempt is given up.
        #[serde(rename = "gives_up_ms")]
        gives_up: Option<Timestamp>,
    },
}
