//! Stopping in good order: no more work is taken, attempts end or are given back, the lanes come to rest and end their
//! sessions, and the node ends its own.

use perennial_core::lane::Lane;
use perennial_core::node::Node;

use super::Simulation;

/// How long a process tries to stop in good order.
const STOP_MS: u64 = 8_000;

/// How far a process has come in stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Attempts that run may end until then.
    Grace { until_ms: u64 },
    /// The lanes come to rest.
    Closing,
    /// The sessions of this many lanes are being ended.
    Ending { lanes: usize },
    /// The node comes to rest.
    Resting,
    /// The node's session is being ended.
    EndingNode,
    /// Nothing is left to be done.
    Ended,
}

impl Simulation {
    /// A process stops in good order, is changed, and starts again.
    pub(super) fn stop(&mut self, process: usize, change: impl FnOnce(&mut Simulation) + 'static) {
        if !self.is_up(process) || self.processes[process].stage.is_some() {
            // It is down, or on its way: the change comes with its next start.
            return change(self);
        }
        self.count("stop");
        let grace_ms = self.chance.weighted(&[(1, 0), (1, 500), (1, 3_000)]);
        self.processes[process].stage = Some(Stage::Grace { until_ms: self.now_ms + grace_ms });
        self.node_input(process, |node, _, _| node.handle_stopping());
        self.lane_inputs(process, Lane::handle_stopping);
        let until_ms = self.now_ms + STOP_MS;
        self.stop_later(process, until_ms, Box::new(change));
    }

    fn stop_later(&mut self, process: usize, until_ms: u64, change: Box<dyn FnOnce(&mut Simulation)>) {
        let incarnation = self.processes[process].incarnation;
        self.later(50, format!("p{process} is stopping"), move |this| {
            if this.processes[process].incarnation != incarnation {
                this.count("crash while stopping");
                return change(this);
            }
            if !this.is_awake(process) {
                return this.stop_later(process, until_ms, change);
            }
            this.go_on_stopping(process);
            this.do_pending();
            let has_stopped = this.processes[process].stage == Some(Stage::Ended);
            if !has_stopped && this.now_ms < until_ms {
                return this.stop_later(process, until_ms, change);
            }
            this.count(if has_stopped { "stopped in good order" } else { "stop given up" });
            change(this);
            this.fall(process);
        });
    }

    /// Goes on to the next stage, if this one is over.
    fn go_on_stopping(&mut self, process: usize) {
        match self.processes[process].stage {
            Some(Stage::Grace { until_ms }) => {
                if self.processes[process].runs.is_empty() || self.now_ms >= until_ms {
                    self.give_attempts_back(process);
                    self.do_pending();
                    self.lane_inputs(process, Lane::handle_closing);
                    self.processes[process].stage = Some(Stage::Closing);
                }
            }
            Some(Stage::Closing) => {
                let lanes = self.lanes(process);
                let rests = |lane| self.lane(process, lane).is_some_and(Lane::is_at_rest);
                if (0..lanes).all(rests) {
                    self.processes[process].stage = Some(Stage::Ending { lanes });
                    self.lane_inputs(process, Lane::handle_end);
                }
            }
            Some(Stage::Ending { lanes: 0 }) => self.processes[process].stage = Some(Stage::Resting),
            Some(Stage::Resting) => {
                if self.node(process).is_some_and(Node::is_at_rest) {
                    self.processes[process].stage = Some(Stage::EndingNode);
                    self.node_input(process, |node, now, _| node.handle_end(now));
                }
            }
            Some(Stage::Ending { .. } | Stage::EndingNode | Stage::Ended) | None => {}
        }
    }

    pub(super) fn lane_ended(&mut self, process: usize, lane: usize) {
        match &mut self.processes[process].stage {
            Some(Stage::Ending { lanes }) if *lanes > 0 => *lanes -= 1,
            stage => {
                let what = format!("G31: lane {lane} of p{process} ended in stage {stage:?}");
                self.fail(what);
            }
        }
    }

    pub(super) fn node_ended(&mut self, process: usize) {
        match &mut self.processes[process].stage {
            Some(stage @ Stage::EndingNode) => *stage = Stage::Ended,
            stage => {
                let what = format!("G31: the node of p{process} ended in stage {stage:?}");
                self.fail(what);
            }
        }
    }
}
