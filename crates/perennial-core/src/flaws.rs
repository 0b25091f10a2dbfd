//! Mistakes that can be planted into the engine, to see that tests notice them.
//!
//! The switches are in the code that ships, compiled out unless the feature `flaws` is on, which only the test kit turns
//! on. A flaw is planted for one thread.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The store writes commits of sessions that do not own the shard.
    NoFencing,
    /// The store loses every tenth message that it acknowledged.
    LostMessages,
    /// Activities start when they are decided, not when that is durable.
    EffectsBeforeCommit,
    /// Turn time is ahead of the store's clock.
    EarlyTimers,
    /// What became of a child is sent to its parent twice.
    OutcomeTwice,
    /// Continue-as-new forgets the events that nobody read.
    ForgottenEvents,
    /// Retries and attempts after an interruption run before their rows are durable.
    RetryBeforeRow,
    /// Callers are told what an update returned before the turn that answers it is durable.
    AnswerBeforeTurn,
    /// Each time a batch is sent again, the children in it get new keys.
    FreshChildKeys,
    /// Interruptions are not counted.
    UncountedInterruptions,
    /// N8: a shard is given up while turns and commits of it are under way.
    ReleasedUndrained,
    /// N9: a lane that is past its deadline goes on as if it were not.
    ActsPastDeadline,
    /// N16: a request does not wait for its sender's earlier message.
    NoSenderOrder,
    /// N17: tasks whose take was answered by nothing are forgotten.
    ForgottenTakes,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 14] = [
        Flaw::NoFencing,
        Flaw::LostMessages,
        Flaw::EffectsBeforeCommit,
        Flaw::EarlyTimers,
        Flaw::OutcomeTwice,
        Flaw::ForgottenEvents,
        Flaw::RetryBeforeRow,
        Flaw::AnswerBeforeTurn,
        Flaw::FreshChildKeys,
        Flaw::UncountedInterruptions,
        Flaw::ReleasedUndrained,
        Flaw::ActsPastDeadline,
        Flaw::NoSenderOrder,
        Flaw::ForgottenTakes,
    ];
}

#[cfg(feature = "flaws")]
mod planted {
    use std::cell::Cell;

    use super::Flaw;

    thread_local! {
        static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    /// Restores what was planted before when it is dropped.
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

/// Whether a flaw is planted: without the feature none ever is.
#[cfg(not(feature = "flaws"))]
#[inline(always)]
pub(crate) const fn is(_: Flaw) -> bool {
    false
}
