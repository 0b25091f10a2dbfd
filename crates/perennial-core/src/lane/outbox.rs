//! The outputs of a lane that have not been handed out: they wait here while the lane may not act, and those of a
//! tenure that has ended are dropped.
//!
//! The order within one activity is preserved: an output that was handed out and came back is placed before everything
//! that is withheld.

use std::collections::VecDeque;
use std::mem;

use crate::instance::ShardId;
use crate::shard::{ActivityTask, Response, TurnTask};

use super::output::LaneOutput;
use super::tenures::Tenures;

#[derive(Default)]
pub(super) struct Outbox {
    outputs: Vec<LaneOutput>,
    /// Activities that need a quarantine slot: a turn that ends the process would count against the activities that run
    /// meanwhile.
    quarantine_wishes: Vec<LaneOutput>,
    /// Outputs that may not be handed out while the lane is suspended.
    withheld: VecDeque<LaneOutput>,
    /// Outputs about lost shards, which are handed out in any case, after everything else.
    parting: Vec<LaneOutput>,
}

impl Outbox {
    pub(super) fn push(&mut self, output: LaneOutput) {
        self.outputs.push(output);
    }

    pub(super) fn extend(&mut self, outputs: impl IntoIterator<Item = LaneOutput>) {
        self.outputs.extend(outputs);
    }

    /// Whether there is nothing left to do or to report.
    pub(super) fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.withheld.is_empty() && self.parting.is_empty()
    }

    /// Adds an output about a lost shard, which is handed out whether the lane may act or not.
    pub(super) fn push_parting(&mut self, output: LaneOutput) {
        self.parting.push(output);
    }

    /// Adds a request for a quarantine slot, which waits until no turn is being tried that may end the process.
    pub(super) fn push_quarantine_wish(&mut self, output: LaneOutput) {
        self.quarantine_wishes.push(output);
    }

    /// Hands out the requests for quarantine slots, because no turn is being tried.
    pub(super) fn send_quarantine_wishes(&mut self) {
        self.outputs.append(&mut self.quarantine_wishes);
    }

    /// Drops the execution of a turn that does not run, where user code may run.
    #[allow(clippy::boxed_local, reason = "turn tasks are boxed wherever they go")]
    pub(super) fn drop_turn(&mut self, task: Box<TurnTask>) {
        self.outputs.extend(task.source.into_resident().map(LaneOutput::Drop));
    }

    /// Takes the outputs to carry out now. Those that start or report something stay here unless the lane may act.
    pub(super) fn take(&mut self, may_act: bool) -> Vec<LaneOutput> {
        if may_act {
            if !self.withheld.is_empty() {
                let newer = mem::replace(&mut self.outputs, mem::take(&mut self.withheld).into());
                self.outputs.extend(newer);
            }
            self.outputs.append(&mut self.parting);
            return mem::take(&mut self.outputs);
        }
        let mut leaving = Vec::new();
        for output in mem::take(&mut self.outputs) {
            if output.is_harmless() && !self.withholds_beginning_of(&output) {
                leaving.push(output);
            } else {
                self.withheld.push_back(output);
            }
        }
        leaving.append(&mut self.parting);
        leaving
    }

    /// Whether this hands over an attempt whose start is withheld: if the start is then dropped, the node would hold
    /// and renew the lease of an attempt that nobody runs.
    fn withholds_beginning_of(&self, output: &LaneOutput) -> bool {
        let LaneOutput::HandOver(task) = output else { return false };
        let place = |task: &ActivityTask| (task.key, task.execution, task.event);
        let begins =
            |other: &LaneOutput| matches!(other, LaneOutput::RunActivity(it) if place(it) == place(task));
        self.withheld.iter().any(begins)
    }

    /// Takes back an output that was handed out but not carried out because the lane may no longer act.
    pub(super) fn take_back(&mut self, output: LaneOutput, tenures: &Tenures) {
        // It was handed out before everything that is withheld now: an activity must start before it is cancelled.
        // Outputs that are already withheld were checked when the last tenure ended.
        let newer = mem::replace(&mut self.withheld, VecDeque::from([output]));
        self.drop_stale(tenures);
        let kept = mem::replace(&mut self.withheld, newer);
        kept.into_iter().for_each(|output| self.withheld.push_front(output));
    }

    /// Drops outputs that were withheld for a tenure that has ended.
    pub(super) fn drop_stale(&mut self, tenures: &Tenures) {
        for output in mem::take(&mut self.withheld) {
            let kept = match output {
                LaneOutput::TakeTurn(task) if !tenures.has(task.shard, task.tenure) => {
                    self.drop_turn(task);
                    continue;
                }
                // A hand-over waits here only if its attempt has not started: its lease expires.
                LaneOutput::RunActivity(task) | LaneOutput::HandOver(task)
                    if !tenures.has(ShardId::of(&task.instance), task.tenure) =>
                {
                    continue;
                }
                LaneOutput::WantQuarantineSlot { shard, tenure, .. } if !tenures.has(shard, tenure) => {
                    continue;
                }
                LaneOutput::Reply { shard, request, key, .. } if tenures.get(shard).is_none() => {
                    let answer = Response::Moved { key };
                    self.parting.push(LaneOutput::Reply { shard, request, answer, key });
                    continue;
                }
                output => output,
            };
            self.withheld.push_back(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::EventId;
    use crate::instance::InstanceKey;
    use crate::shard::{RequestId, Shard, ShardOptions, Tenure};
    use crate::store::{ShardSet, TaskId};

    const SHARD: ShardId = ShardId(3);

    fn reply(request: u64) -> LaneOutput {
        let (request, key) = (RequestId(request), Some(InstanceKey::new(1, 1)));
        LaneOutput::Reply { shard: SHARD, request, answer: Response::Accepted, key }
    }

    fn want_quarantine_slot(tenure: u64) -> LaneOutput {
        let task = TaskId { key: InstanceKey::new(1, 1), execution: 1, event: EventId(2) };
        LaneOutput::WantQuarantineSlot { shard: SHARD, tenure: Tenure(tenure), interruptions: 3, task }
    }

    /// A short description of each output: the request that is answered, or its kind.
    fn words(outputs: Vec<LaneOutput>) -> Vec<String> {
        let word = |output: LaneOutput| match output {
            LaneOutput::Reply { request, answer, .. } => format!("{} {answer:?}", request.0),
            LaneOutput::Gained(_) => "gained".to_owned(),
            LaneOutput::Lost(_) => "lost".to_owned(),
            LaneOutput::WantQuarantineSlot { .. } => "alone".to_owned(),
            other => format!("{other:?}"),
        };
        outputs.into_iter().map(word).collect()
    }

    fn holding(shard: ShardId) -> Tenures {
        let mut tenures = Tenures::default();
        tenures.gain(shard, 1, |tenure| Shard::new(shard, tenure, ShardOptions::default(), 7));
        tenures
    }

    #[test]
    fn n9_a_suspended_lane_answers_nobody_until_it_may_act_again() {
        let mut outbox = Outbox::default();
        outbox.push(reply(1));
        outbox.push(LaneOutput::Gained(ShardSet::ALL));
        assert_eq!(words(outbox.take(false)), ["gained"]);
        outbox.push(reply(2));
        outbox.push_parting(LaneOutput::Lost(ShardSet::ALL));
        assert_eq!(words(outbox.take(false)), ["lost"]);
        outbox.push(reply(3));
        assert_eq!(words(outbox.take(true)), ["1 Accepted", "2 Accepted", "3 Accepted"]);
        assert!(outbox.take(true).is_empty());
    }

    #[test]
    fn n9_what_comes_back_goes_before_what_is_withheld() {
        let (mut outbox, tenures) = (Outbox::default(), holding(SHARD));
        outbox.push(reply(2));
        outbox.take(false);
        outbox.take_back(reply(1), &tenures);
        assert_eq!(words(outbox.take(true)), ["1 Accepted", "2 Accepted"]);
    }

    #[test]
    fn n9_callers_of_a_shard_that_is_lost_meanwhile_hear_that_it_moved() {
        let mut outbox = Outbox::default();
        outbox.push(reply(1));
        outbox.push(want_quarantine_slot(1));
        outbox.take(false);
        outbox.drop_stale(&holding(ShardId(4)));
        let moved = Response::Moved { key: Some(InstanceKey::new(1, 1)) };
        assert_eq!(words(outbox.take(false)), [format!("1 {moved:?}")], "also while it may not act");
        assert!(outbox.take(true).is_empty());
    }

    #[test]
    fn g29_activities_wait_with_their_wish_to_run_alone_until_no_turn_is_tried() {
        let mut outbox = Outbox::default();
        outbox.push_quarantine_wish(want_quarantine_slot(1));
        assert!(outbox.take(true).is_empty());
        outbox.send_quarantine_wishes();
        assert_eq!(words(outbox.take(true)), ["alone"]);
    }
}
