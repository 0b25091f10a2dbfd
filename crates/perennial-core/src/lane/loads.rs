//! Loads: the number of instances that are loaded at the same time is bounded, however many are due or owed.
//!
//! Most instances are loaded with one call. An instance that has not started and has more messages than fit is loaded
//! again with all of them, because its start may be the last. So is an instance whose execution is not the first, because
//! messages that were carried over to it are delivered before all others. An instance that cannot be loaded is loaded
//! again without its turns, so that its row, tasks and messages are known.

use std::collections::VecDeque;

use crate::instance::{InstanceKey, ShardId};
use crate::shard::Tenure;
use crate::store::{LoadedInstance, PageLimit};

use super::call::StoreCall;

/// How many messages of an instance a load returns at most. The next pass reads the others.
pub(super) const LOADED_INBOX: PageLimit = PageLimit { rows: 20_000, bytes: 64 << 20 };

/// How much of an instance a load reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Its turns and tasks, and a limited number of messages.
    Usual,
    /// Its turns and tasks, and all messages.
    AllMessages,
    /// No turns, because the previous load failed for this reason.
    WithoutTurns(String),
}

impl Extent {
    pub(super) fn call(&self, shard: ShardId, key: InstanceKey) -> StoreCall {
        let (after_turn, inbox) = match self {
            Extent::Usual => (0, LOADED_INBOX),
            Extent::AllMessages => (0, PageLimit::rows(usize::MAX)),
            Extent::WithoutTurns(_) => (u64::MAX, LOADED_INBOX),
        };
        StoreCall::Load { shard, key, after_turn, inbox }
    }

    /// How the instance has to be loaded again, if what was read is not sufficient.
    pub(super) fn after_loaded(&self, loaded: &LoadedInstance) -> Option<Extent> {
        let may_lack_first = loaded.turns.is_empty() || loaded.row.execution > 1;
        let is_cut = loaded.inbox.next.is_some() && !loaded.row.status.is_final();
        let is_read_again = *self == Extent::Usual && may_lack_first && is_cut;
        is_read_again.then_some(Extent::AllMessages)
    }

    /// How the instance has to be loaded again after a failure. `Err` with the reason of the first failure if nothing
    /// else can be tried.
    pub(super) fn after_failure(self, reason: String) -> Result<Extent, String> {
        match self {
            Extent::Usual | Extent::AllMessages => Ok(Extent::WithoutTurns(reason)),
            Extent::WithoutTurns(first) => Err(first),
        }
    }
}

/// An instance to load.
pub(super) type Wanted = (Tenure, ShardId, InstanceKey);

#[derive(Debug)]
pub(super) struct Loads {
    queue: VecDeque<Wanted>,
    open: usize,
    max: usize,
}

impl Loads {
    pub(super) fn new(max: usize) -> Loads {
        Loads { queue: VecDeque::new(), open: 0, max: max.max(1) }
    }

    pub(super) fn add(&mut self, wanted: Wanted) {
        self.queue.push_back(wanted);
    }

    /// The next instance to load, if the limit allows it.
    pub(super) fn take(&mut self) -> Option<Wanted> {
        if self.open >= self.max {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.open += 1;
        Some(next)
    }

    /// Notes that one was loaded, or is no longer needed.
    pub(super) fn handle_done(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.open = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Payload, Started};
    use crate::store::{InboxPage, InstanceRow, Status, TurnRow};

    fn loaded(is_cut: bool, turns: usize, status: Status) -> LoadedInstance {
        let started = Started::new("n", "1.0.0", Payload::null(), 7);
        let row = InstanceRow::pending(InstanceKey::new(1, 1), "i", &started, 1);
        let turn = |number| TurnRow { execution: 1, number, bytes: [].into(), checksum: 0 };
        let inbox = InboxPage { rows: Vec::new(), next: is_cut.then_some(9) };
        let turns = (1..=turns as u64).map(turn).collect();
        LoadedInstance { row: InstanceRow { status, ..row }, turns, inbox, tasks: Vec::new() }
    }

    #[test]
    fn g26_all_messages_of_an_execution_that_has_not_begun_are_read() {
        let again =
            |extent: Extent, is_cut, turns, status| extent.after_loaded(&loaded(is_cut, turns, status));
        assert_eq!(again(Extent::Usual, true, 0, Status::Running), Some(Extent::AllMessages));
        assert_eq!(again(Extent::Usual, false, 0, Status::Pending), None, "all are there");
        assert_eq!(again(Extent::Usual, true, 1, Status::Running), None, "it has begun");
        assert_eq!(again(Extent::Usual, true, 0, Status::Completed), None, "it never begins again");
        assert_eq!(again(Extent::AllMessages, true, 0, Status::Running), None, "once");
    }

    #[test]
    fn e16_all_messages_of_an_execution_that_something_may_have_crossed_to_are_read() {
        let again = |is_cut, execution| {
            let mut loaded = loaded(is_cut, 1, Status::Running);
            loaded.row.execution = execution;
            Extent::Usual.after_loaded(&loaded)
        };
        assert_eq!(again(true, 2), Some(Extent::AllMessages));
        assert_eq!((again(false, 2), again(true, 1)), (None, None));
    }

    #[test]
    fn g28_what_cannot_be_read_is_read_without_its_turns_and_keeps_the_first_reason() {
        let second = Extent::Usual.after_failure("first".to_owned()).unwrap();
        assert!(matches!(
            second.call(ShardId(0), InstanceKey::new(1, 1)),
            StoreCall::Load { after_turn: u64::MAX, .. }
        ));
        assert_eq!(second.after_failure("second".to_owned()), Err("first".to_owned()));
    }

    #[test]
    fn g11_a_bounded_number_of_loads_is_under_way() {
        let mut loads = Loads::new(2);
        (0..3).for_each(|number| loads.add((Tenure(1), ShardId(0), InstanceKey::new(1, number))));
        assert!(loads.take().is_some() && loads.take().is_some() && loads.take().is_none());
        loads.handle_done();
        assert!(loads.take().is_some());
    }
}
