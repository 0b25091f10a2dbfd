//! Faults of the store: it is unreachable, its answers are lost, or it is slow.

use std::collections::BTreeSet;

use perennial_core::lane::{LaneOutput, StoreCall, StoreResult};
use perennial_core::store::StoreError;

use super::ManualNode;

/// The faults of the store.
#[derive(Default)]
pub(super) struct StoreFaults {
    is_cut_off: bool,
    /// The next call of this name is made, and its answer is lost.
    lost: Vec<&'static str>,
    /// Calls of these names wait until the test makes them.
    slow: BTreeSet<&'static str>,
}

impl StoreFaults {
    pub(super) fn is_slow(&self, call: &StoreCall) -> bool {
        self.slow.contains(call.name())
    }

    /// Applies the faults to a call.
    pub(super) fn apply(&mut self, name: &str, answer: impl FnOnce() -> StoreResult) -> StoreResult {
        if self.is_cut_off {
            return Err(StoreError::Unavailable("cut off".to_owned()));
        }
        let answer = answer();
        match self.lost.iter().position(|lost| *lost == name) {
            Some(position) => {
                self.lost.remove(position);
                Err(StoreError::Unknown("connection lost".to_owned()))
            }
            None => answer,
        }
    }
}

impl ManualNode {
    /// Sets whether the store is unreachable.
    pub fn cut_off(&mut self, is_cut_off: bool) -> &mut ManualNode {
        self.faults.is_cut_off = is_cut_off;
        self
    }

    /// Loses the answer to the next call of this store method, which is made.
    pub fn lose_answer(&mut self, method: &'static str) {
        self.faults.lost.push(method);
    }

    /// Makes calls of this store method wait until [`ManualNode::make_slow`].
    pub fn slow_down(&mut self, method: &'static str) {
        self.faults.slow.insert(method);
    }

    /// Makes the calls that wait because the store is slow. Returns their number.
    pub fn make_slow(&mut self) -> usize {
        let calls = self.waiting.take_where(|call| self.faults.is_slow(call));
        let count = calls.len();
        for (call, made) in calls {
            let answer = self.answer_of(made);
            self.feed(|lane, now| lane.handle_response(now, call, answer));
        }
        count
    }

    /// Gives an activity back, as if it reached a worker only after the lane's deadline.
    pub fn give_back_activity(&mut self, id: &str, activity: &str) {
        let task = self.pick_activity(id, activity);
        self.feed(|lane, now| lane.hold_back(now, LaneOutput::RunActivity(Box::new(task))));
    }

    /// Gives a turn back, as if it reached a thread only after the lane's deadline.
    pub fn give_back_turn(&mut self, id: &str) {
        let task = self.pick_turn(id);
        self.seen.turning.remove(&task.key);
        self.feed(|lane, now| lane.hold_back(now, LaneOutput::TakeTurn(Box::new(task))));
    }
}
