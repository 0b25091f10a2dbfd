//! Clean shutdown: the node decides the steps, and the process executes them.

use std::time::Duration;

use perennial_core::lane::Lane;
use perennial_core::node::{Node, StopPatience, Unfinished};
use perennial_core::store::{TaskRow, TaskState};

use super::Simulation;

/// The time that a stopping process waits for the store once its attempts have ended.
const STORE_PATIENCE: Duration = Duration::from_secs(8);
/// Cancelled attempts stop at once.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The last step of a process that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It starts no more attempts.
    Grace,
    /// It stops the running attempts.
    LastWords,
    /// It closes its lanes, of which this many have ended.
    Closing { ended: usize },
    /// Its node no longer waits for the store. Calls in progress may end until the process does.
    GivenUp,
    /// It has ended.
    Over,
}

/// An action between the stop of a process and its next start.
pub(super) type Change = Box<dyn FnOnce(&mut Simulation)>;

impl Simulation {
    /// Stops a process cleanly, changes it, and starts it again.
    pub(super) fn stop(&mut self, process: usize, change: impl FnOnce(&mut Simulation) + 'static) {
        if !self.is_up(process) || self.processes[process].stage.is_some() {
            // It is down or stopping: the change takes effect with its next start.
            return change(self);
        }
        self.count("stop");
        let grace_ms = self.rng.weighted(&[(1, 0), (1, 500), (1, 3_000)]);
        let grace = Duration::from_millis(grace_ms);
        let patience = StopPatience { grace, last_words: LAST_WORDS, store: STORE_PATIENCE };
        self.processes[process].stage = Some(Stage::Grace);
        self.node_input(process, |node, now, _| node.handle_stop(now, patience));
        self.watch_stopping(process, Box::new(change));
    }

    /// Tells the node when no attempt runs any more, and ends the process when the node has stopped.
    fn watch_stopping(&mut self, process: usize, change: Change) {
        let incarnation = self.processes[process].incarnation;
        self.later(50, format!("p{process} is stopping"), move |this| {
            if this.processes[process].incarnation != incarnation {
                this.count("crash while stopping");
                return change(this);
            }
            if !this.is_awake(process) {
                return this.watch_stopping(process, change);
            }
            if this.processes[process].runs.is_empty() {
                this.node_input(process, |node, now, _| node.handle_idle(now));
                this.do_pending();
            }
            if !matches!(this.processes[process].stage, Some(Stage::GivenUp | Stage::Over)) {
                return this.watch_stopping(process, change);
            }
            change(this);
            this.fall(process);
        });
    }

    /// Drops a process at once, which ends its sessions.
    pub(super) fn abandon(&mut self, process: usize) {
        if !self.is_awake(process) || self.is_healed {
            return;
        }
        self.count("process abandoned");
        // If it was stopping, it no longer waits for writes.
        self.processes[process].stage = None;
        self.node_input(process, |node, now, _| node.handle_abandoned(now));
        self.do_pending();
        self.fall(process);
    }

    pub(super) fn stop_taking(&mut self, process: usize) {
        self.lane_inputs(process, Lane::handle_stopping);
    }

    pub(super) fn stop_attempts(&mut self, process: usize) {
        self.processes[process].stage = Some(Stage::LastWords);
        self.give_attempts_back(process);
    }

    pub(super) fn close_lanes(&mut self, process: usize) {
        self.processes[process].stage = Some(Stage::Closing { ended: 0 });
        self.lane_inputs(process, Lane::handle_closing);
    }

    pub(super) fn lane_ended(&mut self, process: usize, lane: usize) {
        match &mut self.processes[process].stage {
            Some(Stage::Closing { ended }) => *ended += 1,
            Some(Stage::GivenUp) => {}
            stage => {
                let what = format!("G31: lane {lane} of p{process} ended in stage {stage:?}");
                return self.fail(what);
            }
        }
        self.node_input(process, |node, now, _| node.handle_lane_ended(now, lane));
    }

    /// A node that stops ends its session only after the results of its tasks are written.
    pub(super) fn witness_end_of_node(&mut self, process: usize) {
        if self.processes[process].stage.is_none() {
            return;
        }
        let node = self.node(process).map(Node::id);
        let results = &self.processes[process].task_results;
        let is_lost = |task: &&TaskRow| {
            let is_mine = matches!(task.state, TaskState::Leased { holder, .. } if Some(holder) == node);
            is_mine && results.contains(&(task.id, task.attempt))
        };
        let lost = self.store.tables().tasks.values().filter(is_lost).count();
        if lost > 0 {
            let what =
                format!("N3: p{process} ends its session before the results of {lost} tasks are written");
            self.fail(what);
        }
    }

    pub(super) fn node_ended(&mut self, process: usize) {
        let (stage, lanes) = (self.processes[process].stage, self.lanes(process));
        if stage == Some(Stage::GivenUp) {
            return;
        }
        if stage != Some(Stage::Closing { ended: lanes }) {
            return self.fail(format!("G31: the node of p{process} ended in stage {stage:?}"));
        }
        self.count("stopped in good order");
        self.processes[process].stage = Some(Stage::Over);
    }

    pub(super) fn stopped_short(&mut self, process: usize, unfinished: Unfinished) {
        self.note(|| format!("p{process} gives up stopping: {unfinished:?}"));
        self.count("stop given up");
        self.processes[process].stage = Some(Stage::GivenUp);
    }
}
