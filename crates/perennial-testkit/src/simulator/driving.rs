//! The driver of a process: passes inputs to its node and lanes, and executes their outputs in order.

use perennial_core::ShardId;
use perennial_core::lane::{Lane, LaneOutput, Moment};
use perennial_core::node::{Node, NodeOutput};
use perennial_core::shard::{Tenure, TurnTask};
use perennial_core::store::Changes;

use super::Simulation;
use super::process::Engine;
use super::store_calls::From;

/// An output of a process in one of its lives, to be executed.
pub(super) struct Pending {
    process: usize,
    incarnation: u64,
    output: Output,
}

enum Output {
    Lane(usize, LaneOutput),
    Node(NodeOutput),
}

impl Simulation {
    pub(super) fn lane_input(&mut self, process: usize, lane: usize, input: impl FnOnce(&mut Lane, Moment)) {
        let now = self.moment(process);
        let Some(it) = self.lane_mut(process, lane) else { return };
        let before = (it.session(), it.shards());
        input(it, now);
        let outputs = it.take_outputs(now);
        self.witness_lane(process, lane, before);
        let incarnation = self.processes[process].incarnation;
        let pending = |output| Pending { process, incarnation, output: Output::Lane(lane, output) };
        self.pending.extend(outputs.into_iter().map(pending));
        self.promise_wake(process);
    }

    /// Passes an input to the node, with the time and the number of free activity slots.
    pub(super) fn node_input(&mut self, process: usize, input: impl FnOnce(&mut Node, Moment, usize)) {
        let (now, free) = (self.moment(process), self.free_slots(process));
        let Some(engine) = &mut self.processes[process].engine else { return };
        input(&mut engine.node, now, free);
        let outputs = engine.node.take_outputs();
        let incarnation = self.processes[process].incarnation;
        let pending = |output| Pending { process, incarnation, output: Output::Node(output) };
        self.pending.extend(outputs.into_iter().map(pending));
        self.promise_wake(process);
    }

    /// Passes an input to the lanes, one after the other.
    pub(super) fn lane_inputs(&mut self, process: usize, input: impl Fn(&mut Lane, Moment)) {
        for lane in 0..self.lanes(process) {
            self.lane_input(process, lane, &input);
        }
    }

    pub(super) fn lanes(&self, process: usize) -> usize {
        self.processes[process].engine.as_ref().map_or(0, |engine| engine.lanes.len())
    }

    pub(super) fn lane(&self, process: usize, lane: usize) -> Option<&Lane> {
        self.processes[process].engine.as_ref().and_then(|engine| engine.lanes.get(lane))
    }

    pub(super) fn lane_mut(&mut self, process: usize, lane: usize) -> Option<&mut Lane> {
        self.processes[process].engine.as_mut().and_then(|engine| engine.lanes.get_mut(lane))
    }

    pub(super) fn node(&self, process: usize) -> Option<&Node> {
        self.processes[process].engine.as_ref().map(|engine| &engine.node)
    }

    /// Executes the outputs of nodes and lanes.
    pub(super) fn do_pending(&mut self) {
        while let Some(Pending { process, incarnation, output }) = self.pending.pop_front() {
            if self.processes[process].incarnation != incarnation {
                continue;
            }
            match output {
                Output::Lane(lane, output) => self.do_lane_output(process, lane, output),
                Output::Node(output) => self.do_node_output(process, output),
            }
        }
    }

    fn do_lane_output(&mut self, process: usize, lane: usize, output: LaneOutput) {
        match output {
            LaneOutput::Call(id, call) => self.call(process, From::Lane(lane), id, call),
            LaneOutput::TakeTurn(task) => self.take_turn(process, lane, task),
            LaneOutput::Drop(execution) => drop(execution),
            LaneOutput::RunActivity(task) => self.run_activity(process, Some(lane), *task),
            LaneOutput::HandOver(task) => self.hand_over(process, lane, &task),
            LaneOutput::CancelActivity { key, execution, event } => {
                self.cancel_activity(process, lane, (key, execution, event));
            }
            LaneOutput::WantQuarantineSlot { shard, tenure, interruptions, task } => {
                self.count("attempt wants to run alone");
                self.node_input(process, |node, now, free| {
                    node.handle_want_quarantine_slot(now, lane, (shard, tenure), interruptions, task, free);
                });
            }
            LaneOutput::Reply { shard, request, answer, key } => {
                self.witness_reply(process, lane, shard, request, &answer);
                let late_output = self.faults(|faults| faults.late_output);
                if self.rng.percent(late_output) {
                    return self.reply_late(process, lane, LaneOutput::Reply { shard, request, answer, key });
                }
                self.answered(request, answer);
            }
            LaneOutput::Gained(shards) => {
                self.note(|| format!("p{process} lane {lane} gained {} shards", shards.len()));
                self.node_input(process, |node, _, _| node.handle_gained(lane, &shards));
            }
            LaneOutput::Lost(shards) => {
                self.note(|| {
                    format!("p{process} lane {lane} takes nothing more for {} shards", shards.len())
                });
                self.node_input(process, |node, _, _| node.handle_lost(lane, &shards));
            }
            LaneOutput::StoreTime { set_back_ms, .. } => {
                if set_back_ms.is_some() {
                    self.count("store clock found set back");
                }
            }
            LaneOutput::Ended => self.lane_ended(process, lane),
            LaneOutput::Failed(error) => {
                self.fail(format!("G32: a lane gave up on a store that is well: {error}"))
            }
        }
    }

    fn do_node_output(&mut self, process: usize, output: NodeOutput) {
        match output {
            NodeOutput::Call(id, call) => self.call(process, From::Node, id, call),
            NodeOutput::Target { lane, shards } => {
                self.note(|| format!("p{process} lane {lane} is to have {shards} shards"));
                self.lane_input(process, lane, |lane, now| lane.handle_target(now, shards));
            }
            // All simulated nodes run the same code.
            NodeOutput::PeerCode(_) => {}
            NodeOutput::RunTask(task) => {
                self.count("task taken");
                self.run_activity(process, None, *task);
            }
            NodeOutput::CancelTask(id) => self.cancel_task(process, id),
            NodeOutput::ListWaiting => self.list_waiting(process),
            // The driver may be slow, and the attempt begin first.
            NodeOutput::Withdraw(number) => {
                let delay_ms = self.rng.weighted(&[(3, 0), (1, 20), (1, 300)]);
                self.later_on(process, delay_ms, format!("p{process} withdraws an attempt"), move |this| {
                    this.withdraw(process, number);
                });
            }
            NodeOutput::GrantQuarantineSlot { lane, shard, tenure, key, event } => {
                self.lane_input(process, lane, |lane, now| {
                    lane.handle_slot_granted(now, shard, tenure, key, event);
                });
            }
            NodeOutput::Changed(changes) => self.lanes_changed(process, &changes),
            NodeOutput::StopTaking => self.stop_taking(process),
            NodeOutput::StopAttempts => self.stop_attempts(process),
            NodeOutput::CloseLanes => self.close_lanes(process),
            NodeOutput::EndLanes => self.lane_inputs(process, Lane::handle_end),
            NodeOutput::Ended => self.node_ended(process),
            NodeOutput::StoppedShort(unfinished) => self.stopped_short(process, unfinished),
            NodeOutput::Failed(error) => {
                self.fail(format!("G32: a node gave up on a store that is well: {error}"))
            }
        }
    }

    pub(super) fn lanes_changed(&mut self, process: usize, changes: &Changes) {
        self.lane_inputs(process, |lane, now| lane.handle_changes(now, changes));
    }

    /// Delays the answer to a request.
    fn reply_late(&mut self, process: usize, lane: usize, output: LaneOutput) {
        let delay_ms = self.rng.between(1, self.plan.lease_ms);
        let deadline = self.deadline(process, lane);
        self.later_on(process, delay_ms, format!("p{process} handles an answer late"), move |this| {
            if let Some(LaneOutput::Reply { request, answer, .. }) =
                this.in_time(process, lane, deadline, output)
            {
                this.answered(request, answer);
            }
        });
    }

    /// The time until which a process may execute the current outputs of a lane.
    pub(super) fn deadline(&self, process: usize, lane: usize) -> Moment {
        self.lane(process, lane).map_or(Moment::ZERO, Lane::deadline)
    }

    /// Executes an output, unless the lane's deadline has passed, now or as of the output: then the lane gets
    /// it back.
    pub(super) fn in_time(
        &mut self,
        process: usize,
        lane: usize,
        deadline: Moment,
        output: LaneOutput,
    ) -> Option<LaneOutput> {
        if self.moment(process) < deadline.min(self.deadline(process, lane)) {
            return Some(output);
        }
        self.count("output held back past the deadline");
        self.lane_input(process, lane, |lane, now| lane.hold_back(now, output));
        None
    }

    fn take_turn(&mut self, process: usize, lane: usize, task: Box<TurnTask>) {
        let turn_lost = self.faults(|faults| faults.turn_lost);
        let is_lost = self.rng.percent(turn_lost);
        let delay_ms = self.rng.weighted(&[(8, 0), (4, 3), (1, 200)]);
        let (place, deadline) = ((lane, task.shard, task.tenure), self.deadline(process, lane));
        *self.processes[process].turns.entry(place).or_default() += 1;
        let label = format!("p{process} takes a turn of {} with {} jobs", task.instance, task.jobs.len());
        self.later_on(process, delay_ms, label, move |this| {
            if let Some(turns) = this.processes[process].turns.get_mut(&place) {
                *turns -= 1;
            }
            let output = LaneOutput::TakeTurn(task);
            let Some(LaneOutput::TakeTurn(task)) = this.in_time(process, lane, deadline, output) else {
                return;
            };
            this.witness_standing(process, lane, "takes a turn");
            let (shard, tenure, key, number) = (task.shard, task.tenure, task.key, task.number);
            let done = task.run(&this.deployed(process), |_| ());
            this.turn_takes_its_time(process, place, move |this| {
                this.count(if is_lost { "turn given up" } else { "turn taken" });
                this.tenure_input(process, lane, (shard, tenure), "a turn", |lane, now| match is_lost {
                    true => lane.handle_turn_lost(now, shard, tenure, key, number),
                    false => lane.handle_turn_done(now, done),
                });
            });
        });
    }

    /// Ends a turn after a while.
    fn turn_takes_its_time(
        &mut self,
        process: usize,
        place: (usize, ShardId, Tenure),
        end: impl FnOnce(&mut Simulation) + 'static,
    ) {
        let delay_ms = self.rng.weighted(&[(8, 0), (2, 5), (1, 300)]);
        *self.processes[process].turns.entry(place).or_default() += 1;
        self.later_on(process, delay_ms, format!("p{process} has taken a turn"), move |this| {
            if let Some(turns) = this.processes[process].turns.get_mut(&place) {
                *turns -= 1;
            }
            end(this);
        });
    }

    /// Schedules the next time input when it is requested, or somewhat later.
    fn promise_wake(&mut self, process: usize) {
        let now = self.moment(process);
        let it = &self.processes[process];
        let Some(Engine { node, lanes }) = &it.engine else { return };
        let wakes = lanes.iter().filter_map(|lane| lane.next_wake(now)).chain(node.next_wake());
        let Some(moment) = wakes.min() else { return };
        let at_ms = it.clock.time_of(moment).max(self.now_ms);
        if it.wakes_ms.is_some_and(|promised_ms| promised_ms <= at_ms) {
            return;
        }
        self.processes[process].wakes_ms = Some(at_ms);
        let late_ms = self.rng.weighted(&[(6, 0), (1, 3), (1, 40)]);
        let delay_ms = at_ms - self.now_ms + late_ms;
        self.later_on(process, delay_ms, format!("p{process} wakes"), move |this| {
            if this.processes[process].wakes_ms == Some(at_ms) {
                this.processes[process].wakes_ms = None;
                this.bring_time(process);
            }
        });
    }

    fn bring_time(&mut self, process: usize) {
        let now = self.moment(process);
        let is_due = |wake: Option<Moment>| wake.is_some_and(|at| at <= now);
        if self.node(process).is_some_and(|node| is_due(node.next_wake())) {
            self.node_input(process, |node, now, free| node.handle_time(now, free));
        }
        for lane in 0..self.lanes(process) {
            if self.lane(process, lane).is_some_and(|lane| is_due(lane.next_wake(now))) {
                self.lane_input(process, lane, Lane::handle_time);
            }
        }
        self.promise_wake(process);
    }
}
