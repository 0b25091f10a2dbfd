//! The lane: what each input leads to.

use std::sync::Arc;
use std::time::Duration;

use crate::execution::Stream;
use crate::flaws::{self, Flaw};
use crate::history::whole_ms;
use crate::history::{ActivityError, EventId, Payload};
use crate::instance::{InstanceKey, ShardId};
use crate::shard::{
    ActivityTask, BlockReason, Counters, Fact, Output, Request, RequestId, Response, Shard, Tenure,
    TurnTaskDone, TurnTaskOutput,
};
use crate::store::{
    Changes, InboxNumber, PausedOrchestrations, SessionId, SessionRole, ShardSet, StoreError,
};

use super::call::{CallId, StoreCall, StoreResult};
use super::calls::{Calls, Open};
use super::clock::{Moment, TurnClock};
use super::committer::Committer;
use super::gaps::OwnGaps;
use super::lease::{LeaseKeeper, Standing};
use super::loads::{Extent, Loads};
use super::options::LaneOptions;
use super::outbox::Outbox;
use super::output::LaneOutput;
use super::ownership::draw_session;
use super::passes::Passes;
use super::probation::{Probation, Verdict};
use super::purpose::{Planned, Purpose, Situation};
use super::stage::Stage;
use super::suspects::Suspects;
use super::tenures::Tenures;

/// The pause before the next sweep or pruning call, if there is more to delete.
pub(super) const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// The pause before a call that needs a live session checks for one again.
pub(super) const SESSION_PAUSE: Duration = Duration::from_millis(20);

/// One session and everything that belongs to it. See the [module](super) for how to drive it.
pub struct Lane {
    pub(super) options: LaneOptions,
    /// Generates session ids, and the nonces of shards.
    pub(super) stream: Stream,
    pub(super) clock: TurnClock,
    pub(super) lease: LeaseKeeper,
    pub(super) tenures: Tenures,
    pub(super) committer: Committer,
    pub(super) calls: Calls,
    pub(super) loads: Loads,
    pub(super) passes: Passes,
    pub(super) suspects: Suspects,
    pub(super) probation: Probation,
    pub(super) gaps: OwnGaps,
    /// The paused orchestrations. `None` until they were read; no shard is claimed before that.
    pub(super) paused: Option<Arc<PausedOrchestrations>>,
    /// When the paused orchestrations are read again, with a renewal.
    pub(super) reads_paused_from: Moment,
    /// The counters of shards that were lost or released.
    pub(super) counted: Counters,
    /// Whether there may be shards to claim that no claim has asked for yet.
    pub(super) wants_claim: bool,
    /// When surplus shards may be released next.
    pub(super) releases_from: Moment,
    pub(super) stage: Stage,
    pub(super) outbox: Outbox,
    /// The facts that the driver has not taken.
    pub(super) facts: Vec<Fact>,
    /// A buffer for the outputs of a shard, reused for every input.
    pub(super) shard_outputs: Vec<Output>,
}

impl Lane {
    /// A lane that opens its session immediately. The seed must be random and generated for this lane.
    pub fn new(options: LaneOptions, seed: u64, now: Moment) -> Lane {
        let mut stream = Stream::of_seed(seed);
        let session = draw_session(&mut stream);
        let mut lane = Lane {
            stream,
            clock: TurnClock::default(),
            lease: LeaseKeeper::new(session, options.lease_ms),
            tenures: Tenures::default(),
            committer: Committer::new(options.max_batch, options.max_batch_bytes),
            calls: Calls::default(),
            loads: Loads::new(options.max_loads),
            passes: Passes::new(options.poll_pauses, whole_ms(options.shard.lookahead), options.news_pause),
            suspects: Suspects::default(),
            probation: Probation::default(),
            gaps: OwnGaps::default(),
            // A maintenance owner runs no code.
            paused: (options.role != SessionRole::Lane).then(Arc::default),
            reads_paused_from: Moment::ZERO,
            counted: Counters::default(),
            wants_claim: false,
            releases_from: Moment::ZERO,
            stage: Stage::default(),
            outbox: Outbox::default(),
            facts: Vec::new(),
            shard_outputs: Vec::new(),
            options,
        };
        lane.issue(now, Purpose::Open);
        lane
    }

    // ---- what the driver asks -------------------------------------------------------------------------------------

    /// The requests to carry out now. To be called after every input.
    pub fn take_outputs(&mut self, now: Moment) -> Vec<LaneOutput> {
        self.outbox.take(self.lease.holds(now))
    }

    /// Returns an output that the driver reached only after [`Lane::deadline`]: it is handed out again once the lane
    /// may act.
    pub fn hold_back(&mut self, now: Moment, output: LaneOutput) {
        self.outbox.take_back(output, &self.tenures);
        self.go_on(now);
    }

    /// After this moment no output except calls may be started; zero if none may.
    pub fn deadline(&self) -> Moment {
        self.lease.deadline()
    }

    /// When [`Lane::handle_time`] should be called next.
    pub fn next_wake(&self, now: Moment) -> Option<Moment> {
        if self.stage.is_failed() {
            return None;
        }
        if self.is_done() {
            return Some(now);
        }
        let shards = self.tenures.next_wake_ms().and_then(|at_ms| self.clock.moment_of(at_ms));
        let shards = shards.filter(|_| !self.stage.is_closing());
        let passes = self.reads_by_itself().then(|| self.passes.next_wake());
        // After its deadline the lane claims together with the renewal that it waits for.
        let claims = self.lease.claims_from().filter(|at| self.lease.holds(now.max(*at)));
        let all = [self.lease.next_wake(), self.calls.next_wake(), shards, passes, claims];
        all.into_iter().flatten().chain(self.suspects.next_wake(now)).min()
    }

    /// Turn time as it is known, for code that needs the time without the lane.
    pub fn turn_clock(&self) -> TurnClock {
        self.clock
    }

    /// Turn time now.
    pub fn now_ms(&self, now: Moment) -> u64 {
        self.clock.now_ms(now)
    }

    /// The session's id.
    pub fn session(&self) -> SessionId {
        self.lease.session()
    }

    /// The shards that the lane holds.
    pub fn shards(&self) -> ShardSet {
        self.tenures.set()
    }

    /// Whether requests for a shard are accepted here.
    pub fn takes(&self, shard: ShardId) -> bool {
        self.tenures.get(shard).is_some() && !self.tenures.is_leaving(shard) && !self.stage.is_failed()
    }

    /// The tenure and the epoch at which the lane holds a shard.
    pub fn tenure_of(&self, shard: ShardId) -> Option<(Tenure, u64)> {
        self.tenures.get(shard).map(|held| (held.tenure(), held.epoch()))
    }

    /// Read access to a shard that the lane holds.
    pub fn shard(&self, shard: ShardId) -> Option<&Shard> {
        self.tenures.get(shard).map(|held| &held.shard)
    }

    /// How many commits wait to be written.
    pub fn queued_commits(&self) -> usize {
        self.committer.queued()
    }

    /// How many instances are in memory.
    pub fn slots(&self) -> usize {
        self.tenures.iter().map(|held| held.shard.slots()).sum()
    }

    /// The size of the histories of idle executions in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.tenures.iter().map(|held| held.shard.resident_bytes()).sum()
    }

    /// Exchanges the list of facts that were stated since with the caller's, which must be empty. See
    /// [`ShardOptions::observed`](crate::shard::ShardOptions::observed).
    pub fn swap_facts(&mut self, empty: &mut Vec<Fact>) {
        std::mem::swap(&mut self.facts, empty);
    }

    /// Whether turns are being tried that may end the process.
    pub fn is_trying_turns(&self) -> bool {
        self.suspects.is_trying()
    }

    /// Counters of events that are not visible anywhere else.
    pub fn counters(&self) -> Counters {
        self.tenures.iter().fold(self.counted, |sum, held| sum.plus(&held.shard.counters()))
    }

    /// Whether no turn, load or commit is in progress.
    pub fn is_at_rest(&self) -> bool {
        self.stage.is_failed()
            || (self.committer.is_idle()
                && self.tenures.iter().all(|held| held.shard.is_quiet())
                && !self.calls.has(|purpose| matches!(purpose, Purpose::ReadBack { .. })))
    }

    /// Whether the lane is closing and has nothing left to do or to report: its session may end. After that, nothing is
    /// handed out any more.
    fn is_done(&self) -> bool {
        self.stage.is_closing()
            && self.lease.standing() == Standing::Live
            && self.outbox.is_empty()
            && self.is_at_rest()
    }

    // ---- inputs ---------------------------------------------------------------------------------------------------

    /// Sets how many shards the lane should hold. It claims missing ones and releases surplus ones.
    pub fn handle_target(&mut self, now: Moment, target: usize) {
        self.tenures.set_target(target);
        self.wants_claim = true;
        self.balance(now);
        self.go_on(now);
    }

    /// Handles a caller's request to the instance with this id. `after` is the caller's last acknowledged message to
    /// it.
    pub fn handle_request(
        &mut self,
        now: Moment,
        request_id: RequestId,
        id: &str,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        let shard = ShardId::of(id);
        if self.stage.is_failed() {
            // The driver notifies all callers. Routed elsewhere, the request would go to the store that failed.
            return;
        }
        if !self.takes(shard) {
            let (request, answer) = (request_id, Response::Moved { key: None });
            return self.outbox.push(LaneOutput::Reply { shard, request, answer, key: None });
        }
        self.feed(now, shard, |shard, now_ms| shard.handle_request(now_ms, request_id, id, request, after));
        self.go_on(now);
    }

    /// A caller no longer waits for a reply.
    pub fn handle_caller_gone(&mut self, id: &str, request_id: RequestId) {
        if let Some(held) = self.tenures.get_mut(ShardId::of(id)) {
            held.shard.handle_caller_gone(request_id);
        }
    }

    /// A turn task was run.
    pub fn handle_turn_done(&mut self, now: Moment, done: TurnTaskDone) {
        self.turn_done(now, done);
        self.go_on(now);
    }

    /// Passes a completed turn task to its shard, without the steps that follow every input.
    pub(super) fn turn_done(&mut self, now: Moment, done: TurnTaskDone) {
        self.suspects.handle_settled(done.key);
        self.probation.handle_settled(done.key, false);
        if self.tenures.has(done.shard, done.tenure) {
            self.feed(now, done.shard, |shard, now_ms| shard.handle_turn_done(now_ms, done));
        } else {
            self.counted.stale += 1;
            let executions = done
                .outcome
                .ok()
                .and_then(TurnTaskOutput::into_execution)
                .into_iter()
                .chain(done.failed_execution);
            self.outbox.extend(executions.map(LaneOutput::Drop));
        }
    }

    /// The thread of a turn was abandoned, and its execution with it.
    pub fn handle_turn_lost(
        &mut self,
        now: Moment,
        shard: ShardId,
        tenure: Tenure,
        key: InstanceKey,
        number: u64,
    ) {
        self.suspects.handle_settled(key);
        self.probation.handle_settled(key, true);
        self.feed_tenure(now, shard, tenure, |shard, now_ms| shard.handle_turn_lost(now_ms, key, number));
        self.go_on(now);
    }

    /// An attempt of an activity ended.
    pub fn handle_activity_done(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        result: Result<Payload, ActivityError>,
    ) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_activity_done(now_ms, task, result));
    }

    /// The code of an attempt returned after this many milliseconds, without a result: the holder of its token
    /// completes it.
    pub fn handle_activity_left_open(&mut self, now: Moment, task: &ActivityTask, ran_ms: u64) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_activity_left_open(now_ms, task, ran_ms));
    }

    /// An attempt was stopped for the node's sake, or never started.
    pub fn handle_activity_released(&mut self, now: Moment, task: &ActivityTask) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_activity_released(now_ms, task));
    }

    /// An attempt waited too long for a free slot and was withdrawn before it started: it is queued for other nodes.
    pub fn handle_activity_spilled(&mut self, now: Moment, task: &ActivityTask) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_activity_spilled(now_ms, task));
    }

    /// A heartbeat of a running attempt.
    pub fn handle_heartbeat(&mut self, now: Moment, task: &ActivityTask, details: Payload) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_heartbeat(now_ms, task, details));
    }

    /// An activity that was interrupted repeatedly may run: few enough other suspects run on this node.
    pub fn handle_slot_granted(
        &mut self,
        now: Moment,
        shard: ShardId,
        tenure: Tenure,
        key: InstanceKey,
        event: EventId,
    ) {
        self.feed_tenure(now, shard, tenure, |shard, now_ms| shard.handle_slot_granted(now_ms, key, event));
        self.go_on(now);
    }

    /// Something may have changed in the store.
    pub fn handle_changes(&mut self, now: Moment, changes: &Changes) {
        if self.stage.is_failed() || !self.reads_by_itself() {
            return;
        }
        self.passes.handle_hint();
        self.wants_claim |= !changes.owners.is_empty();
        self.passes.inbox.want(&changes.inbox);
        self.passes.requests.want(&changes.requests);
        if !changes.inbox.is_empty() {
            self.passes.handle_news();
        }
        self.handle_time(now);
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Moment) {
        if self.stage.is_failed() {
            return;
        }
        if flaws::is(Flaw::ForgetsAtDeadline)
            && self.lease.standing() == Standing::Live
            && !self.lease.holds(now)
        {
            self.lose_session(now);
        }
        if self.lease.take_renewal(now) {
            self.issue(now, Purpose::Renew);
        }
        if self.is_done() {
            self.handle_end(now);
        }
        if self.lease.take_claim(now) {
            self.balance(now);
        }
        for purpose in self.calls.take_due(now) {
            self.issue(now, purpose);
        }
        let now_ms = self.clock.now_ms(now);
        for shard in self.tenures.due(now_ms) {
            self.feed(now, shard, Shard::handle_time);
        }
        if self.reads_by_itself() && self.passes.handle_time(now, now_ms, &self.tenures.readable()) {
            self.keep_up(now);
        }
        if let Some((notes, waiting)) = self.suspects.take_steady(now) {
            self.issue(now, Purpose::Notes { notes, is_steady: true });
            self.outbox.extend(waiting.into_iter().map(LaneOutput::TakeTurn));
        }
        self.go_on(now);
    }

    /// The node stops: work in progress completes, and no new work is started from the store.
    pub fn handle_stopping(&mut self, now: Moment) {
        self.stage.advance(Stage::Stopping);
        for shard in self.tenures.set().iter() {
            self.feed(now, shard, |shard, _| shard.handle_stopping());
        }
    }

    /// The shards come to rest: what exists in memory alone is written, and everything else is left to the next owner.
    /// Then the session ends; the last output is [`LaneOutput::Ended`].
    pub fn handle_closing(&mut self, now: Moment) {
        self.stage.advance(Stage::Closing);
        for shard in self.tenures.set().iter() {
            self.feed(now, shard, |shard, _| shard.handle_closing());
        }
        self.go_on(now);
    }

    /// Ends the session immediately, whatever is in progress.
    pub fn handle_end(&mut self, now: Moment) {
        self.lease.handle_ending();
        self.issue(now, Purpose::End);
    }

    /// The result of a call.
    pub fn handle_response(&mut self, now: Moment, id: CallId, answer: StoreResult) {
        if self.stage.is_failed() {
            return;
        }
        let Some(open) = self.calls.end(id) else {
            self.counted.stale += 1;
            return;
        };
        match answer {
            Ok(answered) => {
                self.calls.handle_reached();
                self.answered(now, open, answered);
            }
            Err(error) => self.refused(now, open, error),
        }
        self.go_on(now);
    }

    pub(super) fn fail(&mut self, error: StoreError) {
        self.stage.advance(Stage::Failed);
        self.calls.clear();
        self.outbox.push(LaneOutput::Failed(error));
    }

    // ---- what follows from every input ----------------------------------------------------------------------------

    pub(super) fn reads_by_itself(&self) -> bool {
        self.options.role == SessionRole::Lane && !self.stage.is_closing()
    }

    pub(super) fn go_on(&mut self, now: Moment) {
        if self.stage.is_failed() {
            return;
        }
        // After the machine slept, the renewal may be overdue: every input checks for that.
        if self.lease.take_renewal(now) {
            self.issue(now, Purpose::Renew);
        }
        while let Some(verdict) = self.probation.take() {
            match verdict {
                Verdict::Take(task) => {
                    self.outbox.extend(self.suspects.admit(task).map(LaneOutput::TakeTurn));
                }
                Verdict::Refuse(task) => self.block_untried(now, *task, BlockReason::NotTried),
            }
        }
        while let Some((tenure, shard, key)) = self.loads.take() {
            self.issue(now, Purpose::Load { tenure, shard, key, extent: Extent::Usual });
        }
        self.submit(now);
        if let Some(notes) = self.suspects.take_notes(now) {
            self.issue(now, Purpose::Notes { notes, is_steady: false });
        }
        if !self.suspects.is_trying() {
            self.outbox.send_quarantine_wishes();
        }
        if self.passes.has_next() && self.reads_by_itself() && self.lease.standing() == Standing::Live {
            for purpose in self.passes.take_next(&self.tenures.readable()) {
                self.issue(now, purpose);
            }
        }
        if !self.tenures.leaving().is_empty() {
            self.release_drained(now);
        }
        // A claim in progress may have missed them.
        if self.wants_claim && !self.is_moving() && self.lease.may_claim(now) {
            self.wants_claim = false;
            self.claim_missing(now);
        }
    }

    /// Deletes old rows, and evicts idle executions.
    fn keep_up(&mut self, now: Moment) {
        if !self.calls.has(|purpose| matches!(purpose, Purpose::Sweep)) {
            self.issue(now, Purpose::Sweep);
        }
        for shard in self.tenures.set().iter() {
            if self.tenures.get(shard).is_some_and(|held| held.shard.slots() > 0) {
                self.feed(now, shard, Shard::handle_time);
            }
        }
    }

    // ---- calls ----------------------------------------------------------------------------------------------------

    /// Makes a call under the current session; later if there is none, and not at all if it is no longer needed.
    pub(super) fn issue(&mut self, now: Moment, purpose: Purpose) {
        if matches!(purpose, Purpose::Commit) {
            return self.submit_again(now);
        }
        let situation = Situation { options: &self.options, lease: &self.lease, tenures: &self.tenures };
        match purpose.plan(&situation) {
            Planned::Call(call) => self.send(now, purpose, call),
            Planned::Later => self.calls.at(now + SESSION_PAUSE, purpose),
            Planned::Unwanted if matches!(purpose, Purpose::Load { .. }) => self.loads.handle_done(),
            Planned::Unwanted => self.passes.handle_none(&purpose),
        }
    }

    pub(super) fn send(&mut self, now: Moment, purpose: Purpose, call: StoreCall) {
        let ownership = self.tenures.changes();
        let id = self.calls.begin(Open { purpose, session: self.lease.session(), sent: now, ownership });
        self.outbox.push(LaneOutput::Call(id, call));
    }
}
