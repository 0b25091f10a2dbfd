//! Calls to the store: they take time, fail, or have unknown outcomes.

use std::sync::{Arc, mpsc};

use perennial_core::lane::{CallId, StoreCall, StoreResponse, StoreResult};
use perennial_core::store::{Reply, StoreError};

use super::Simulation;
use super::outages::is_write;
use super::plan::Faults;
use super::witness::outcome_name;

/// The memory store answers at once.
pub(super) fn wait_for<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).expect("the caller waits")));
    receiver.recv().expect("the memory store answers at once")
}

/// The node or lane that made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Lane(usize),
    Node,
}

impl Simulation {
    pub(super) fn call_delay_ms(&mut self) -> u64 {
        let slow = self.faults(|faults| faults.slow);
        if self.rng.percent(slow) {
            self.count("slow call");
            return self.rng.between(self.plan.call_ms, 2 * self.plan.lease_ms);
        }
        self.rng.between(0, self.plan.call_ms)
    }

    /// The current probability of a fault.
    pub(super) fn faults(&self, percent: impl FnOnce(&Faults) -> u64) -> u64 {
        if self.is_healed { 0 } else { percent(&self.plan.faults) }
    }

    /// Makes a call for a process, and passes the answer on. The call reaches the store even if the process
    /// crashes.
    pub(super) fn call(&mut self, process: usize, from: From, id: CallId, call: StoreCall) {
        self.witness_call(process, from, id, &call);
        if from == From::Node && matches!(call, StoreCall::EndSession(_)) {
            self.witness_end_of_node(process);
        }
        let (delay_ms, name) = (self.call_delay_ms(), call.name());
        let incarnation = self.processes[process].incarnation;
        self.later(delay_ms, format!("p{process} {name} reaches the store"), move |this| {
            this.arrive((process, incarnation), from, id, call);
        });
    }

    /// Handles a call that has reached the store. Writes may have to wait for the writer.
    fn arrive(&mut self, (process, incarnation): (usize, u64), from: From, id: CallId, call: StoreCall) {
        let (stall_ms, name) = (self.writer_stall_ms(), call.name());
        if stall_ms > 0 && is_write(&call) {
            self.count("call that waits for the writer");
            return self.later(stall_ms, format!("p{process} {name} is written"), move |this| {
                this.arrive((process, incarnation), from, id, call);
            });
        }
        let (answer, late_ms) = self.reach(call);
        if self.processes[process].incarnation != incarnation {
            return;
        }
        let delay_ms = late_ms + self.call_delay_ms();
        let label = format!("p{process} {name} is answered{}", describe(&answer));
        let answer_twice = self.faults(|faults| faults.answer_twice);
        if self.rng.percent(answer_twice) {
            let (again, again_ms) = (answer.clone(), delay_ms + self.rng.between(0, 2_000));
            let label = format!("p{process} {name} is answered once more");
            self.later_on(process, again_ms, label, move |this| {
                this.count("answer brought twice");
                this.bring_answer(process, from, id, again);
            });
        }
        self.later_on(process, delay_ms, label, move |this| this.bring_answer(process, from, id, answer));
    }

    fn bring_answer(&mut self, process: usize, from: From, id: CallId, answer: StoreResult) {
        self.witness_answer(process, from, id, &answer);
        match from {
            From::Lane(lane) => self.bring_lane_answer(process, lane, id, answer),
            From::Node => {
                self.node_input(process, |node, now, free| node.handle_response(now, id, answer, free));
            }
        }
    }

    /// Executes or fails a call at the store. Returns the answer, and its additional delay.
    fn reach(&mut self, call: StoreCall) -> (StoreResult, u64) {
        let reason = || "simulated".to_owned();
        let (unavailable, batch_refused, unknown) = (
            self.faults(|faults| faults.unavailable),
            self.faults(|faults| faults.batch_refused),
            self.faults(|faults| faults.unknown),
        );
        let is_commit = matches!(call, StoreCall::Commit { .. });
        if self.is_out_of_reach() {
            self.count("call during an outage");
            let error = if self.rng.percent(30) { StoreError::Unknown } else { StoreError::Unavailable };
            return (Err(error(reason())), 0);
        }
        if self.rng.percent(unavailable) {
            self.count(if is_commit { "commit refused" } else { "call refused" });
            return (Err(StoreError::Unavailable(reason())), 0);
        }
        if is_commit && self.rng.percent(batch_refused) {
            self.count("batch refused");
            return (Err(StoreError::BatchRefused(reason())), 0);
        }
        if !self.rng.percent(unknown) {
            return (self.make(call), 0);
        }
        let answer = Err(StoreError::Unknown(reason()));
        let session = match &call {
            StoreCall::Commit { session, .. } => Some(*session),
            _ => None,
        };
        let doubt = match self.rng.below(4) {
            0 => {
                self.count(if is_commit { "commit unknown and written" } else { "call unknown and done" });
                let _ = self.make(call);
                (answer, 0)
            }
            1 => {
                self.count(if is_commit {
                    "commit unknown and not written"
                } else {
                    "call unknown and not done"
                });
                (answer, 0)
            }
            2 => {
                let what = if is_commit {
                    "commit unknown and still under way"
                } else {
                    "call unknown and still under way"
                };
                self.count(what);
                let delay_ms = self.rng.weighted(&[(3, 400), (1, 6_000)]);
                let (delay_ms, name) = (self.rng.between(0, delay_ms), call.name());
                self.later(delay_ms, format!("a late {name} reaches the store"), move |this| {
                    let _ = this.make(call);
                });
                (answer, 0)
            }
            _ => {
                self.count("reply lost");
                let _ = self.make(call);
                (answer, self.rng.between(100, 3_000))
            }
        };
        if let Some(session) = session {
            self.seize_in_doubt(session);
        }
        doubt
    }

    /// Executes a call at the store.
    fn make(&mut self, call: StoreCall) -> StoreResult {
        let before = self.before_call(&call);
        let store = Arc::clone(&self.coded);
        let (sender, receiver) = mpsc::channel();
        call.clone().make(&*store, move |answer| sender.send(answer).expect("the caller waits"));
        let answer = receiver.recv().expect("the memory store answers at once");
        self.after_call(&call, &answer, before);
        self.deliver_hints();
        answer
    }
}

fn describe(answer: &StoreResult) -> String {
    match answer {
        Ok(StoreResponse::Committed(outcomes)) => {
            format!(": {}", outcomes.iter().map(outcome_name).collect::<Vec<_>>().join(", "))
        }
        Ok(_) => String::new(),
        Err(error) => format!(": {}", error.code()),
    }
}
