//! The waits of an instance, as data.

use std::collections::BTreeMap;
use std::fmt;

use perennial_core::store::Status;
use perennial_core::{EventId, InstanceKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Found, text};
use crate::client::InstanceView;

/// An activity with at least this many failed attempts counts as failing repeatedly.
const FAILING_ATTEMPTS: u32 = 3;

/// Everything that an instance waits for. Computed by [`Client::explain`](crate::Client::explain).
///
/// `Display` writes one line per wait, and one for events that no wait has taken. Serialised, each wait has its line and
/// the same facts as fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The id of the instance.
    pub id: String,
    /// The key of the instance.
    pub key: InstanceKey,
    /// The status of the instance.
    pub status: Status,
    /// The store's clock when this was computed. Ages in texts are relative to it.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// Waits of the whole instance first, then open operations in the order in which they were scheduled.
    /// Of more than 50, those that are stuck and the first of the others. Empty if the instance has ended.
    pub waits: Vec<Wait>,
    /// The number of open operations that are not listed.
    pub more: usize,
    /// The numbers of events that arrived and that no wait has taken, by name: events that nothing waits for yet,
    /// misspelled ones, and events of names that the code handles with `on_event`, which the history does not
    /// show.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub untaken_events: BTreeMap<String, usize>,
    /// The error of an instance that failed, or the reason of one that was cancelled or terminated, shortened.
    /// `None` for others, and in a list, for which histories of ended instances are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// The approximate size of the history of the current execution in bytes; `None` if it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_bytes: Option<u64>,
}

impl Explanation {
    pub(super) fn of(instance: &InstanceView, at: Timestamp, found: Found) -> Explanation {
        let InstanceView { id, key, status, .. } = instance;
        let Found { waits, more, untaken: untaken_events, ending, bytes: history_bytes } = found;
        let (id, key, status) = (id.clone(), *key, *status);
        Explanation { id, key, status, at, waits, more, untaken_events, ending, history_bytes }
    }

    /// The first wait that is stuck, or else the first one, in a few words, with the number of the others, for a
    /// column of a list. A missing runtime is left out if the instance waits for something else anyway.
    pub fn short(&self) -> String {
        let is_own = |wait: &&Wait| {
            !matches!(wait.reason, WaitReason::NoRuntime { has_work: false, .. } | WaitReason::NoOwner { .. })
        };
        let own = self.waits.iter().filter(is_own).count();
        let stuck = self.waits.iter().find(|wait| wait.is_stuck());
        let first = stuck.or_else(|| self.waits.iter().find(is_own)).or(self.waits.first());
        let Some(first) = first else { return String::new() };
        match own.max(1) - 1 + self.more {
            0 => text::short(&first.reason, self.at),
            others => format!("{} (+{others})", text::short(&first.reason, self.at)),
        }
    }

    /// Names the [events](Explanation::untaken_events) that no wait has taken in one line; `None` if there are none.
    pub fn untaken_text(&self) -> Option<String> {
        text::untaken(&self.untaken_events)
    }

    /// Whether one of the waits does not end without intervention.
    pub fn is_stuck(&self) -> bool {
        self.waits.iter().any(Wait::is_stuck)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.waits.is_empty() {
            write!(f, "nothing: it has {}", text::ended(self.status))?;
            return self.ending.as_ref().map_or(Ok(()), |ending| write!(f, ": {ending}"));
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
        match self.untaken_text() {
            Some(untaken) => write!(f, "\n{untaken}"),
            None => Ok(()),
        }
    }
}

/// One wait of an instance. `Display` writes [`text`](Wait::text).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// The wait in one line of English, with ages as of [`Explanation::at`].
    pub text: String,
    /// The action to take, if the wait does not end without intervention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The unit of the code that waits, as in histories; `None` if the orchestration itself does, or no code does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The wait as data.
    #[serde(flatten)]
    pub reason: WaitReason,
}

impl Wait {
    pub(super) fn new(reason: WaitReason, at: Timestamp) -> Wait {
        Wait { text: text::line(&reason, at), remedy: text::remedy(&reason), unit: None, reason }
    }

    /// The same, with the unit of the operation that is waited for.
    pub(super) fn of_unit(
        reason: WaitReason,
        at: Timestamp,
        unit_of: impl Fn(EventId) -> Option<String>,
    ) -> Wait {
        let unit = reason.event().and_then(unit_of);
        Wait { unit, ..Wait::new(reason, at) }
    }

    /// Whether it does not end without intervention.
    pub fn is_stuck(&self) -> bool {
        self.reason.is_stuck()
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kinds of waits. All times are by the store's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// No process runs orchestrations on this store.
    NoRuntime {
        /// When the last runtime was known to run: the time of its shutdown, or of the last sign of its lease if
        /// its process ended without one. `None` if no runtime has run yet.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// Whether the instance has work to do now.
        has_work: bool,
    },
    /// Nodes are running, but none of them owns the instance's shard at the moment.
    NoOwner {
        /// Since when; `None` if it was never owned.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
    },
    /// The instance is paused.
    Paused {
        /// The time of the pause.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// The reason given for the pause.
        reason: String,
        /// The person or program that paused it, if given.
        by: Option<String>,
        /// Whether the whole orchestration is paused.
        orchestration: bool,
    },
    /// The instance cannot take its next turn.
    Blocked {
        /// The stable code of the error.
        code: String,
        /// The error in one line.
        reason: String,
        /// The time at which it was blocked.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// How often the turn has been tried.
        attempts: u32,
    },
    /// The owner does not have the code of the instance; another node or the next deployment may bring it.
    MissingCode {
        /// The name of the orchestration.
        name: String,
        /// The version that the instance is pinned to; empty if it takes the latest.
        version: String,
        /// The live nodes that have it and own shards, by name.
        nodes: Vec<String>,
        /// A similar name that a live node has registered, if no version of this one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        similar: Option<String>,
        /// When the owner first found that it does not have it.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// When the instance is blocked, if the code is still missing.
        #[serde(rename = "until_ms")]
        until: Timestamp,
    },
    /// No live node has the orchestration registered, so the instance cannot take another turn.
    OrchestrationNotRegistered {
        /// The name of the orchestration.
        name: String,
        /// The version that the instance is pinned to; empty if it takes the latest.
        version: String,
        /// The versions that live nodes have registered.
        registered: Vec<String>,
        /// A similar name that a live node has registered, if no version of this one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        similar: Option<String>,
    },
    /// The start is delayed.
    Start {
        /// The time of the start.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// Messages that the next turn takes.
    Messages {
        /// The number of messages, as far as they were counted.
        count: usize,
        /// Whether there are more.
        more: bool,
        /// The arrival of the oldest message.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// The instance has so many unread events that senders are refused.
    Full,
    /// Cancellation was requested, and the code cleans up.
    Cancellation {
        /// The reason given for the cancellation.
        reason: String,
        /// When the request was delivered.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// The end of the grace period, when the instance is ended.
        #[serde(rename = "until_ms")]
        until: Timestamp,
    },
    /// The result of an activity.
    Activity(ActivityWait),
    /// An external event.
    Event {
        /// The name of the event.
        name: String,
        /// The event id of the wait.
        event: EventId,
        /// The time at which the wait began.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// The due time of the timer that the code set together with the wait. A time limit is recorded like
        /// this; so is a timer that merely runs beside the wait.
        #[serde(rename = "timer_ms", default, skip_serializing_if = "Option::is_none")]
        timer: Option<Timestamp>,
    },
    /// A timer that has not fired.
    Timer {
        /// The event id of its creation.
        event: EventId,
        /// The time at which it fires.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// A sub-orchestration.
    Child {
        /// The id of the child.
        id: String,
        /// The name of the child's orchestration.
        name: String,
        /// The event id of its schedule.
        event: EventId,
        /// When it was scheduled.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// The status of the child; `None` if it has not been started yet.
        status: Option<Status>,
        /// The waits of the child; only states of the whole instance, such as a block, if it is too deep in the
        /// tree for its history to be read. Empty if it has ended.
        waits: Vec<Wait>,
    },
    /// The handler of an update that has not returned yet.
    Update {
        /// The name of the update.
        name: String,
        /// The event id of the request.
        event: EventId,
        /// When it was accepted.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// The delivery report of a message to another instance.
    Delivery {
        /// The id of the receiver.
        to: String,
        /// The event id of the message.
        event: EventId,
        /// When it was sent.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// A condition of the code, which handlers of events or updates change. The history shows no open
    /// operation.
    Condition,
    /// The history was not read: it is damaged, of a newer version, or too long.
    Unread {
        /// Why it was not read.
        problem: String,
        /// Whether it is only too long to be read here.
        too_long: bool,
    },
}

impl WaitReason {
    /// The event id of the operation that is waited for, if it is one.
    pub fn event(&self) -> Option<EventId> {
        match self {
            WaitReason::Activity(activity) => Some(activity.event),
            WaitReason::Event { event, .. }
            | WaitReason::Timer { event, .. }
            | WaitReason::Child { event, .. }
            | WaitReason::Update { event, .. }
            | WaitReason::Delivery { event, .. } => Some(*event),
            _ => None,
        }
    }

    /// Whether this is a state of the whole instance, as opposed to an operation.
    pub fn is_state(&self) -> bool {
        matches!(
            self,
            WaitReason::NoRuntime { .. }
                | WaitReason::NoOwner { .. }
                | WaitReason::Paused { .. }
                | WaitReason::Blocked { .. }
                | WaitReason::MissingCode { .. }
                | WaitReason::OrchestrationNotRegistered { .. }
                | WaitReason::Cancellation { .. }
                | WaitReason::Unread { .. }
        )
    }

    /// Whether it does not end without intervention.
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

/// An activity without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActivityWait {
    /// The registered name of the activity.
    pub name: String,
    /// The id that the code gave it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The event id of its schedule.
    pub event: EventId,
    /// The tag that a node needs to run it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// When it was scheduled.
    #[serde(rename = "scheduled_ms")]
    pub scheduled: Timestamp,
    /// The number of the running or next attempt, from 1.
    pub attempt: u32,
    /// The number of attempts that its retry policy allows; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The deadline for all attempts.
    #[serde(rename = "deadline_ms", default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The last failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedAttempt>,
    /// How often in a row the process ended while it ran, counting only cases that may have been caused by
    /// it.
    #[serde(default)]
    pub interruptions: u32,
    /// Whether the code requested it to stop.
    #[serde(default)]
    pub stopping: bool,
    /// The current state of the activity.
    #[serde(flatten)]
    pub state: ActivityState,
}

impl ActivityWait {
    /// Whether its attempts repeatedly fail or end their process.
    pub fn is_failing(&self) -> bool {
        let failures = if self.failed.is_some() { self.attempt.saturating_sub(1) } else { 0 };
        failures >= FAILING_ATTEMPTS || self.interruptions > 0
    }

    fn is_stuck(&self) -> bool {
        // Without any node, the cause is the missing runtime.
        self.is_failing() || matches!(self.state, ActivityState::NotRegistered { nodes: 1.., .. })
    }
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// The time of the failure.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// The error, shortened.
    pub error: String,
    /// The name of the node that ran it, or `None` for the instance's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// The state of an activity without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActivityState {
    /// The node that owns the instance has it: it runs, or waits there for a free slot. The store shows which
    /// only after the first heartbeat.
    WithOwner {
        /// The name of the node.
        node: String,
        /// Since when the node has it.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// A node runs it.
    Running {
        /// The name of the node.
        node: String,
        /// When the attempt began.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// The time of the last heartbeat with details, or `None`.
        #[serde(rename = "heard_ms")]
        heard: Option<Timestamp>,
        /// The last heartbeat details of its attempts, shortened.
        details: Option<String>,
    },
    /// The node that ran it is gone. It runs again once another node takes it.
    Interrupted {
        /// The name of the node, if known.
        node: Option<String>,
        /// Since when it has not been running, if known.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
    },
    /// It runs once there is a runtime.
    NotStarted,
    /// A failed attempt is retried later.
    Retry {
        /// The time of the next attempt.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// It is delayed because its process ended while it ran.
    Held {
        /// The end of the delay.
        #[serde(rename = "due_ms")]
        due: Timestamp,
    },
    /// Its next attempt is due.
    Due {
        /// The time at which it was due.
        #[serde(rename = "since_ms")]
        since: Timestamp,
    },
    /// It waits for a free slot of a node that can run it.
    Queued {
        /// The time at which it was queued.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// The live nodes that can run it.
        nodes: Vec<String>,
        /// The number of all queued activities, up to 10,000.
        queued: u64,
    },
    /// No live node can run it.
    NotRegistered {
        /// The time at which it was queued.
        #[serde(rename = "since_ms")]
        since: Option<Timestamp>,
        /// The number of live nodes.
        nodes: usize,
    },
    /// It had no result at a past turn. What its attempts did then is recorded with its result.
    Open,
    /// Its code has returned, and the holder of its token completes it.
    Token {
        /// When the attempt began.
        #[serde(rename = "since_ms")]
        since: Timestamp,
        /// The deadline of the attempt.
        #[serde(rename = "gives_up_ms")]
        gives_up: Option<Timestamp>,
    },
}
