//! Trouble with the store: it cannot be reached, its answers are lost, or it is slow.

use std::collections::BTreeSet;

use perennial_core::lane::{LaneOutput, StoreCall, StoreResult};
use perennial_core::store::StoreError;

use super::ManualNode;

/// What is wrong with the store.
#[derive(Default)]
pub(super) struct Trouble {
    is_cut_off: bool,
    /// The next call of this name is made, and its answer is lost.
    lost: Vec<&'static str>,
    /// Calls of these names lie there until they are taken up.
    slow: BTreeSet<&'static str>,
}

impl Trouble {
    pub(super) fn is_slow(&self, call: &StoreCall) -> bool {
        self.slow.contains(call.name())
    }

    /// What comes of a call instead of the store's answer.
    pub(super) fn spoil(&mut self, name: &str, answer: impl FnOnce() -> StoreResult) -> StoreResult {
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
    /// From now on the store cannot be reached; or it can again.
    pub fn cut_off(&mut self, is_cut_off: bool) -> &mut ManualNode {
        self.trouble.is_cut_off = is_cut_off;
        self
    }

    /// The next call to this method of the store is made, and its answer is lost.
    pub fn lose_answer(&mut self, method: &'static str) {
        self.trouble.lost.push(method);
    }

    /// From now on calls to this method of the store lie there until [`ManualNode::make_slow`].
    pub fn slow_down(&mut self, method: &'static str) {
        self.trouble.slow.insert(method);
    }

    /// Makes the calls that lie there because the store is slow. Returns how many there were.
    pub fn make_slow(&mut self) -> usize {
        let calls = self.waiting.take_where(|call| self.trouble.is_slow(call));
        let count = calls.len();
        for (call, made) in calls {
            let answer = self.answer_of(made);
            self.feed(|lane, now| lane.handle_response(now, call, answer));
        }
        count
    }

    /// An activity comes to a worker only after the lane's deadline: it is given back.
    pub fn give_back_activity(&mut self, id: &str, activity: &str) {
        let task = self.pick_activity(id, activity);
        self.feed(|lane, now| lane.hold_back(now, LaneOutput::RunActivity(Box::new(task))));
    }

    /// A turn comes to a thread only after the lane's deadline: it is given back.
    pub fn give_back_turn(&mut self, id: &str) {
        let task = self.pick_turn(id);
        self.seen.turning.remove(&task.key);
        self.feed(|lane, now| lane.hold_back(now, LaneOutput::TakeTurn(Box::new(task))));
    }
}
