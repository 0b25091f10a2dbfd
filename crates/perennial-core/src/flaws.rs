//! Defects that can be planted into the engine, to prove that tests detect them.
//!
//! The switches are in the code that ships, compiled out unless the feature `flaws` is on, which only the test kit
//! enables. A flaw is planted for one thread.

/// A defect that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "flaws"), allow(unreachable_pub, reason = "only tests can name it"))]
pub enum Flaw {
    /// The store accepts commits of sessions that do not own the shard.
    NoFencing,
    /// Epochs are ignored, by the store and by lanes (N10).
    EpochUnchecked,
    /// A turn or result of an earlier tenure is attributed to the current one (N10).
    TenureUnchecked,
    /// Activities start when they are decided, before the decision is durable.
    EffectsBeforeCommit,
    /// A known deduplication key is not recognised.
    NoDedupe,
    /// Occasionally a message disappears from the inbox.
    LostMessages,
    /// Turn time is ahead of the store's clock.
    EarlyTimers,
    /// The outcome of a child is sent to its parent twice.
    OutcomeTwice,
    /// Continue-as-new loses unread events.
    ForgottenEvents,
    /// Retries, and attempts after an interruption, run before their rows are durable.
    RetryBeforeRow,
    /// Updates are answered before the turn with their reply is durable.
    AnswerBeforeTurn,
    /// Each time a turn is sent to the store, its children get new keys.
    FreshChildKeys,
    /// Interruptions are not counted.
    UncountedInterruptions,
    /// Every end of a process counts against the activities that ran in it, however it ended and however long they had
    /// run (G22).
    EveryEndCounts,
    /// A shard is released before it is drained (N8).
    ReleasedUndrained,
    /// A lane acts and replies past its deadline (N9).
    ActsPastDeadline,
    /// A lane forgets its shards at its deadline instead of when the store reports that they have another owner (N9).
    ForgetsAtDeadline,
    /// A request does not wait for its sender's earlier message to be read (N16).
    UnorderedSenders,
    /// Losing a lane's shards stops the tasks that the node holds (N17).
    TasksDieWithLanes,
    /// Tasks whose take reply was lost are forgotten (N17).
    ForgottenTakes,
    /// A stopping node ends its session together with its lanes, not after them (N3).
    EndsWithLanes,
    /// A paused instance runs again when it is loaded (G46).
    PausesForgotten,
    /// A reset does not redeliver the events that arrived after the turn (G48).
    ResetForgetsEvents,
    /// A child that may replace an ended instance also replaces a running one (G36).
    ReplacesRunning,
    /// The result of an attempt that was replaced by a later one is accepted (G20).
    StaleAttempts,
    /// A due timer is delivered before a message that arrived before it was due (G13).
    TimersFirst,
    /// The store accepts a fired timer although an earlier message is unread (G13).
    UnreadEventsOvertaken,
    /// Evicting an instance stops its activities (G11).
    EvictionCancels,
    /// Evicting an instance forgets its wake time (G13).
    EvictionForgetsWakes,
    /// A cancelled wait takes the event that it held with it (E15).
    EatenEvents,
    /// An event that arrives before the code waits for it is lost (E19).
    EarlyEventsLost,
    /// What is meant for an earlier instance reaches the one that has its id now (G2).
    IdsConfused,
    /// A pass over the inbox begins where the previous one ended (S4).
    InboxByCursor,
    /// A lease counts from the answer to its renewal, not from before it was sent (G8).
    LeaseFromAnswer,
    /// A commit with an unknown outcome is taken for durable (G7).
    DoubtTakenForDone,
    /// A child that continues as new forgets its parent (G25).
    ParentsForgotten,
    /// Deduplication keys do not cross continue-as-new (G16).
    KeysForgotten,
    /// A turn may have an earlier time than the one before it (E1).
    TimeGoesBack,
    /// Stored wake times are later than what they are for (G12).
    WakesStoredLate,
    /// Callers that wait for the end of an instance are not told (G17).
    WaitersForgotten,
}

impl Flaw {
    /// All of them.
    #[cfg(feature = "flaws")]
    pub const ALL: [Flaw; 40] = [
        Flaw::NoFencing,
        Flaw::EpochUnchecked,
        Flaw::TenureUnchecked,
        Flaw::EffectsBeforeCommit,
        Flaw::NoDedupe,
        Flaw::LostMessages,
        Flaw::EarlyTimers,
        Flaw::OutcomeTwice,
        Flaw::ForgottenEvents,
        Flaw::RetryBeforeRow,
        Flaw::AnswerBeforeTurn,
        Flaw::FreshChildKeys,
        Flaw::UncountedInterruptions,
        Flaw::EveryEndCounts,
        Flaw::ReleasedUndrained,
        Flaw::ActsPastDeadline,
        Flaw::ForgetsAtDeadline,
        Flaw::UnorderedSenders,
        Flaw::TasksDieWithLanes,
        Flaw::ForgottenTakes,
        Flaw::EndsWithLanes,
        Flaw::PausesForgotten,
        Flaw::ResetForgetsEvents,
        Flaw::ReplacesRunning,
        Flaw::StaleAttempts,
        Flaw::TimersFirst,
        Flaw::UnreadEventsOvertaken,
        Flaw::EvictionCancels,
        Flaw::EvictionForgetsWakes,
        Flaw::EatenEvents,
        Flaw::EarlyEventsLost,
        Flaw::IdsConfused,
        Flaw::InboxByCursor,
        Flaw::LeaseFromAnswer,
        Flaw::DoubtTakenForDone,
        Flaw::ParentsForgotten,
        Flaw::KeysForgotten,
        Flaw::TimeGoesBack,
        Flaw::WakesStoredLate,
        Flaw::WaitersForgotten,
    ];
}

#[cfg(feature = "flaws")]
mod planted {
    use std::cell::Cell;

    use super::Flaw;

    thread_local! {
        static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    /// Restores the previous flaw when dropped.
    #[derive(Debug)]
    pub struct Guard(Option<Flaw>);

    impl Drop for Guard {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }

    /// Plants a flaw, or none, for this thread until the guard is dropped.
    #[must_use]
    pub fn plant(flaw: Option<Flaw>) -> Guard {
        Guard(PLANTED.replace(flaw))
    }

    /// Whether a flaw is planted.
    pub(crate) fn is(flaw: Flaw) -> bool {
        PLANTED.get() == Some(flaw)
    }
}

#[cfg(feature = "flaws")]
pub(crate) use planted::is;
#[cfg(feature = "flaws")]
pub use planted::{Guard, plant};

/// Whether a flaw is planted; never without the feature.
#[cfg(not(feature = "flaws"))]
#[inline(always)]
pub(crate) const fn is(_: Flaw) -> bool {
    false
}
