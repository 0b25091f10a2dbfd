//! The lane itself: what it does about each input.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::execution::{Execution, Stream};
use crate::flaws::{self, Flaw};
use crate::history::{ActivityFailure, EventId, Payload};
use crate::instance::{InstanceKey, ShardId};
use crate::shard::{
    ActivityTask, Answer, Counters, Output, Request, RequestId, Shard, Tenure, TurnSource, TurnTask,
    TurnTaskDone,
};
use crate::store::{
    Changes, InboxNumber, InboxQuery, NewSession, PageLimit, SessionId, SessionRole, ShardSet, StoreError,
};

use super::call::{CallId, StoreAnswer, StoreCall};
use super::calls::{Calls, Open, Purpose};
use super::clock::{Moment, TurnClock};
use super::committer::Committer;
use super::doubts::read_back;
use super::lease::{LeaseKeeper, Standing};
use super::loads::Loads;
use super::options::LaneOptions;
use super::output::LaneOutput;
use super::passes::Passes;
use super::suspects::Suspects;
use super::tenures::{Held, Tenures};

/// How many rows one sweep or one pruning call deletes, and the pause before the next.
const SWEEP_ROWS: usize = 1_000;
pub(super) const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// The pause before a call that needs a live session looks for one again.
const SESSION_PAUSE: Duration = Duration::from_millis(20);
/// How many messages of an instance a load brings at most. The next pass brings the rest.
const LOADED_INBOX: PageLimit = PageLimit { rows: 20_000, bytes: 64 << 20 };

/// One session and everything under it. See the [module](super) for how to drive it.
pub struct Lane {
    pub(super) options: LaneOptions,
    pub(super) target: usize,
    /// Draws session ids, and what shards need.
    pub(super) stream: Stream,
    pub(super) clock: TurnClock,
    pub(super) lease: LeaseKeeper,
    pub(super) tenures: Tenures,
    pub(super) committer: Committer,
    pub(super) calls: Calls,
    pub(super) loads: Loads,
    pub(super) passes: Passes,
    pub(super) suspects: Suspects,
    /// What was counted by shards that are gone.
    pub(super) counted: Counters,
    pub(super) is_stopping: bool,
    is_closing: bool,
    is_failed: bool,
    pub(super) outputs: Vec<LaneOutput>,
    /// Activities that want to run alone: a turn that ends the process would count against whoever runs meanwhile.
    lone_wanted: Vec<LaneOutput>,
    /// What may not leave while the lane is suspended.
    withheld: Vec<LaneOutput>,
    /// What leaves in any case, after everything else: it is about shards that are lost.
    parting: Vec<LaneOutput>,
}

impl Lane {
    /// A lane that opens its session at once. The seed is random, and drawn for this lane alone.
    pub fn new(options: LaneOptions, seed: u64, now: Moment) -> Lane {
        let mut stream = Stream::of_seed(seed);
        let session = draw_session(&mut stream);
        let half_window = Duration::from_millis(options.shard.lookahead_ms / 2).max(Duration::from_millis(1));
        let mut lane = Lane {
            target: 0,
            stream,
            clock: TurnClock::default(),
            lease: LeaseKeeper::new(session, options.lease_ms),
            tenures: Tenures::default(),
            committer: Committer::new(options.max_batch, options.max_batch_bytes),
            calls: Calls::default(),
            loads: Loads::new(options.max_loads),
            passes: Passes::new(options.poll_pauses, half_window, options.news_pause),
            suspects: Suspects::default(),
            counted: Counters::default(),
            is_stopping: false,
            is_closing: false,
            is_failed: false,
            outputs: Vec::new(),
            lone_wanted: Vec::new(),
            withheld: Vec::new(),
            parting: Vec::new(),
            options,
        };
        lane.issue(now, Purpose::Open);
        lane
    }

    // ---- what the driver asks -------------------------------------------------------------------------------------

    /// What is to be done now. To be taken after every input.
    pub fn take_outputs(&mut self, now: Moment) -> Vec<LaneOutput> {
        if self.lease.holds(now) {
            if !self.withheld.is_empty() {
                let newer = mem::take(&mut self.outputs);
                self.outputs = mem::take(&mut self.withheld);
                self.outputs.extend(newer);
            }
            self.outputs.append(&mut self.parting);
            return mem::take(&mut self.outputs);
        }
        let (mut harmless, rest): (Vec<_>, Vec<_>) =
            mem::take(&mut self.outputs).into_iter().partition(LaneOutput::is_harmless);
        self.withheld.extend(rest);
        harmless.append(&mut self.parting);
        harmless
    }

    /// The driver came to an output only after [`Lane::deadline`]: it is given out again once the lane may act.
    pub fn hold_back(&mut self, now: Moment, output: LaneOutput) {
        // It was given out before whatever is withheld now: an activity begins before it is told to stop.
        self.withheld.insert(0, output);
        self.drop_stale_withheld();
        self.go_on(now);
    }

    /// Past this moment no output but calls may be begun; zero if none may.
    pub fn deadline(&self) -> Moment {
        self.lease.deadline()
    }

    /// When [`Lane::handle_time`] is wanted next.
    pub fn next_wake(&self, now: Moment) -> Option<Moment> {
        if self.is_failed {
            return None;
        }
        let shards = self.tenures.next_wake_ms().and_then(|at_ms| self.clock.moment_of(at_ms));
        let shards = shards.filter(|_| !self.is_closing);
        let passes = self.reads_by_itself().then(|| self.passes.next_wake());
        // Past its deadline the lane claims with the renewal that it waits for.
        let claims = self.lease.claims_from().filter(|at| self.lease.holds(now.max(*at)));
        let all = [self.lease.next_wake(), self.calls.next_wake(), shards, passes, claims];
        all.into_iter().flatten().chain(self.suspects.next_wake(now)).min()
    }

    /// Turn time as it is known, for whoever needs the time without the lane.
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

    /// Whether requests for a shard are taken here.
    pub fn takes(&self, shard: ShardId) -> bool {
        self.tenures.get(shard).is_some() && !self.tenures.is_leaving(shard) && !self.is_failed
    }

    /// The tenure and the epoch at which the lane holds a shard.
    pub fn tenure_of(&self, shard: ShardId) -> Option<(Tenure, u64)> {
        self.tenures.get(shard).map(|held| (held.tenure(), held.epoch()))
    }

    /// A shard that the lane holds, to look at.
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

    /// Whether turns are being tried that may end the process.
    pub fn is_trying_turns(&self) -> bool {
        self.suspects.is_trying()
    }

    /// What leaves no other trace.
    pub fn counters(&self) -> Counters {
        self.tenures.iter().fold(self.counted, |sum, held| sum.plus(&held.shard.counters()))
    }

    /// Whether no turn, load or commit is under way.
    pub fn is_at_rest(&self) -> bool {
        self.is_failed
            || (self.committer.is_idle()
                && self.tenures.iter().all(|held| held.shard.is_quiet())
                && !self.calls.has(|purpose| matches!(purpose, Purpose::ReadBack { .. })))
    }

    // ---- inputs ---------------------------------------------------------------------------------------------------

    /// How many shards the lane should have. It claims what is missing and gives up what it has too many.
    pub fn handle_target(&mut self, now: Moment, target: usize) {
        self.target = target;
        // What is too much leaves with renewals, so that a join moves shards without a stall.
        self.claim_missing(now);
        self.go_on(now);
    }

    /// A caller asks something of the instance with this id. `after` is the caller's last acknowledged message to it.
    pub fn handle_request(
        &mut self,
        now: Moment,
        request_id: RequestId,
        id: &str,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        let shard = ShardId::of(id);
        if !self.takes(shard) {
            return self.outputs.push(LaneOutput::Reply {
                shard,
                request: request_id,
                answer: Answer::Moved,
            });
        }
        self.feed(now, shard, |shard, now_ms| shard.handle_request(now_ms, request_id, id, request, after));
        self.go_on(now);
    }

    /// A caller no longer waits for an answer.
    pub fn handle_caller_gone(&mut self, id: &str, request_id: RequestId) {
        if let Some(held) = self.tenures.get_mut(ShardId::of(id)) {
            held.shard.handle_caller_gone(request_id);
        }
    }

    /// A turn task was run.
    pub fn handle_turn_done(&mut self, now: Moment, done: TurnTaskDone) {
        self.suspects.handle_settled(done.key);
        if self.tenures.has(done.shard, done.tenure) {
            self.feed(now, done.shard, |shard, now_ms| shard.handle_turn_done(now_ms, done));
        } else {
            self.counted.stale += 1;
            let executions = done.outcome.ok().map(|run| run.execution).into_iter().chain(done.wreck);
            self.outputs.extend(executions.map(LaneOutput::Drop));
        }
        self.go_on(now);
    }

    /// A turn's thread was given up, and its execution with it.
    pub fn handle_turn_lost(
        &mut self,
        now: Moment,
        shard: ShardId,
        tenure: Tenure,
        key: InstanceKey,
        number: u64,
    ) {
        self.suspects.handle_settled(key);
        self.feed_tenure(now, shard, tenure, |shard, now_ms| shard.handle_turn_lost(now_ms, key, number));
        self.go_on(now);
    }

    /// An attempt of an activity ended.
    pub fn handle_activity_done(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        result: Result<Payload, ActivityFailure>,
    ) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_activity_done(now_ms, task, result));
    }

    /// An attempt is told to stop for the node's sake, or never began.
    pub fn handle_activity_released(&mut self, now: Moment, task: &ActivityTask) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_activity_released(now_ms, task));
    }

    /// A running attempt reports how far it is.
    pub fn handle_heartbeat(&mut self, now: Moment, task: &ActivityTask, details: Payload) {
        self.feed_activity(now, task, |shard, now_ms| shard.handle_heartbeat(now_ms, task, details));
    }

    /// An activity that was interrupted often may run: no other such runs on this node.
    pub fn handle_lone_granted(
        &mut self,
        now: Moment,
        shard: ShardId,
        tenure: Tenure,
        key: InstanceKey,
        event: EventId,
    ) {
        self.feed_tenure(now, shard, tenure, |shard, now_ms| shard.handle_lone_granted(now_ms, key, event));
        self.go_on(now);
    }

    /// Something may have changed in the store.
    pub fn handle_changes(&mut self, now: Moment, changes: &Changes) {
        if self.is_failed || !self.reads_by_itself() {
            return;
        }
        self.passes.handle_hint();
        self.passes.inbox.want(&changes.inbox);
        self.passes.requests.want(&changes.requests);
        if !changes.inbox.is_empty() {
            self.passes.handle_news();
        }
        self.handle_time(now);
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Moment) {
        if self.is_failed {
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
        if self.reads_by_itself() {
            self.read_by_time(now, now_ms);
        }
        if let Some((notes, waiting)) = self.suspects.take_steady(now) {
            self.issue(now, Purpose::Notes { notes, is_steady: true });
            self.outputs.extend(waiting.into_iter().map(LaneOutput::TakeTurn));
        }
        self.go_on(now);
    }

    /// The node stops: what is under way ends, and nothing is begun for its own sake.
    pub fn handle_stopping(&mut self, now: Moment) {
        self.is_stopping = true;
        for shard in self.tenures.set().iter() {
            self.feed(now, shard, |shard, _| shard.handle_stopping());
        }
    }

    /// The shards come to rest: what is in memory and nowhere else is written, and everything else is left to the next
    /// owner.
    pub fn handle_closing(&mut self, now: Moment) {
        self.is_stopping = true;
        self.is_closing = true;
        for shard in self.tenures.set().iter() {
            self.feed(now, shard, |shard, _| shard.handle_closing());
        }
        self.go_on(now);
    }

    /// The session is to end, having come to rest.
    pub fn handle_end(&mut self, now: Moment) {
        self.lease.handle_ending();
        self.issue(now, Purpose::End);
    }

    /// The store answered a call.
    pub fn handle_answer(&mut self, now: Moment, id: CallId, answer: StoreAnswer) {
        if self.is_failed {
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

    // ---- shards ---------------------------------------------------------------------------------------------------

    /// Gives a shard an input, and does what it wants done about it.
    pub(super) fn feed(&mut self, now: Moment, id: ShardId, input: impl FnOnce(&mut Shard, u64)) {
        let now_ms = self.clock.now_ms(now);
        let Some(held) = self.tenures.get_mut(id) else { return };
        let tenure = held.tenure();
        input(&mut held.shard, now_ms);
        let outputs = held.shard.take_outputs();
        self.tenures.note_wake(id);
        for output in outputs {
            self.carry(now, id, tenure, output);
        }
    }

    /// Gives a shard an input that belongs to a tenure, unless that one is over.
    pub(super) fn feed_tenure(
        &mut self,
        now: Moment,
        id: ShardId,
        tenure: Tenure,
        input: impl FnOnce(&mut Shard, u64),
    ) {
        if self.tenures.has(id, tenure) && !self.is_failed {
            self.feed(now, id, input);
        } else {
            self.counted.stale += 1;
        }
    }

    fn feed_activity(&mut self, now: Moment, task: &ActivityTask, input: impl FnOnce(&mut Shard, u64)) {
        self.feed_tenure(now, ShardId::of(&task.instance), task.tenure, input);
        self.go_on(now);
    }

    fn carry(&mut self, now: Moment, shard: ShardId, tenure: Tenure, output: Output) {
        let output = match output {
            Output::Find { request, id } => {
                return self.issue(now, Purpose::Find { tenure, shard, request, id });
            }
            Output::Load { key } => return self.loads.add((tenure, shard, key)),
            Output::Refresh { key } => return self.issue(now, Purpose::Refresh { tenure, shard, key }),
            Output::Commit(commit) => return self.committer.add(tenure, *commit),
            Output::TakeTurn(task) => match self.suspects.admit(task) {
                Some(task) => LaneOutput::TakeTurn(task),
                None => return,
            },
            Output::Continued { key, execution } => return self.prune(now, shard, tenure, key, execution),
            Output::RunActivity(task) => LaneOutput::RunActivity(task),
            Output::HandOver(task) => LaneOutput::HandOver(task),
            Output::WantLone { key, event } => {
                return self.lone_wanted.push(LaneOutput::WantLone { shard, tenure, key, event });
            }
            Output::CancelActivity { key, execution, event } => {
                LaneOutput::CancelActivity { key, execution, event }
            }
            Output::Reply(request, answer) => LaneOutput::Reply { shard, request, answer },
            Output::Drop(execution) => LaneOutput::Drop(execution),
        };
        self.outputs.push(output);
    }

    /// Old executions of an instance that runs on are deleted, a bounded number of rows at a time.
    fn prune(&mut self, now: Moment, shard: ShardId, tenure: Tenure, key: InstanceKey, execution: u64) {
        let kept = self.options.keep_executions.map(|keep| keep.max(1));
        if let Some(keep) = kept.filter(|keep| execution > *keep && self.reads_by_itself()) {
            let execution = execution - keep + 1;
            self.calls.at(now + SWEEP_PAUSE, Purpose::Prune { tenure, shard, key, execution });
        }
    }

    /// A shard belongs to somebody else now, or may: its memory is forgotten, and callers are told to ask elsewhere.
    pub(super) fn lose(&mut self, now: Moment, id: ShardId) {
        for task in self.suspects.handle_lost(id) {
            self.outputs.extend(undone(task).map(LaneOutput::Drop));
        }
        let Some(mut held) = self.tenures.lose(id) else { return };
        held.shard.handle_lost();
        self.counted = self.counted.plus(&held.shard.counters());
        for output in held.shard.take_outputs() {
            match output {
                // Another owner may run it: it stops, whether this lane may act or not.
                Output::CancelActivity { key, execution, event } => {
                    self.parting.push(LaneOutput::CancelActivity { key, execution, event });
                }
                output => self.carry(now, id, held.tenure(), output),
            }
        }
        self.drop_stale_withheld();
    }

    /// Outputs that were withheld for a tenure that is over do not happen.
    fn drop_stale_withheld(&mut self) {
        let mut unbegun = Vec::new();
        for output in mem::take(&mut self.withheld) {
            let kept = match output {
                LaneOutput::TakeTurn(task) if !self.tenures.has(task.shard, task.tenure) => {
                    self.outputs.extend(undone(task).map(LaneOutput::Drop));
                    continue;
                }
                LaneOutput::RunActivity(task)
                    if !self.tenures.has(ShardId::of(&task.instance), task.tenure) =>
                {
                    unbegun.push((task.key, task.event));
                    continue;
                }
                // Its row is leased to this node, which is not concerned by the loss. If the attempt never began, the
                // lease runs out.
                LaneOutput::HandOver(task) if !self.tenures.has(ShardId::of(&task.instance), task.tenure) => {
                    if !unbegun.contains(&(task.key, task.event)) {
                        self.parting.push(LaneOutput::HandOver(task));
                    }
                    continue;
                }
                LaneOutput::WantLone { shard, tenure, .. } if !self.tenures.has(shard, tenure) => continue,
                LaneOutput::Reply { shard, request, .. } if self.tenures.get(shard).is_none() => {
                    self.parting.push(LaneOutput::Reply { shard, request, answer: Answer::Moved });
                    continue;
                }
                output => output,
            };
            self.withheld.push(kept);
        }
    }

    /// The session is gone, and all its shards: forget them, and open the next one.
    pub(super) fn lose_session(&mut self, now: Moment) {
        tracing::warn!("PER-0504 session gone: another node may own this node's shards");
        let lost = self.tenures.set();
        self.calls.clear();
        self.committer.clear();
        self.loads.clear();
        self.passes.handle_lost();
        for task in self.suspects.handle_session_lost() {
            self.outputs.extend(undone(task).map(LaneOutput::Drop));
        }
        lost.iter().for_each(|shard| self.lose(now, shard));
        if !lost.is_empty() {
            self.outputs.push(LaneOutput::Lost(lost));
        }
        let next = draw_session(&mut self.stream);
        self.lease.handle_gone(next, now);
        self.issue(now, Purpose::Open);
    }

    pub(super) fn fail(&mut self, error: StoreError) {
        self.is_failed = true;
        self.calls.clear();
        self.outputs.push(LaneOutput::Failed(error));
    }

    // ---- what follows from every input ----------------------------------------------------------------------------

    pub(super) fn reads_by_itself(&self) -> bool {
        self.options.role == SessionRole::Lane && !self.is_closing
    }

    fn wants_claim(&self) -> bool {
        let has = self.tenures.set().len();
        self.lease.standing() == Standing::Live && has < self.target && !self.is_stopping
    }

    fn go_on(&mut self, now: Moment) {
        if self.is_failed {
            return;
        }
        // A machine that slept has slept over the time to renew: whoever brings something notices.
        if self.lease.take_renewal(now) {
            self.issue(now, Purpose::Renew);
        }
        while let Some((tenure, shard, key)) = self.loads.take() {
            self.issue(now, Purpose::Load { tenure, shard, key });
        }
        self.submit(now);
        if self.suspects.is_trying()
            && let Some(notes) = self.suspects.take_notes(now)
        {
            self.issue(now, Purpose::Notes { notes, is_steady: false });
        }
        if !self.lone_wanted.is_empty() && !self.suspects.is_trying() {
            self.outputs.append(&mut self.lone_wanted);
        }
        if self.reads_by_itself() && self.lease.standing() == Standing::Live {
            self.start_passes(now);
        }
        if !self.tenures.leaving().is_empty() {
            self.release_drained(now);
        }
    }

    /// Submits the next batch, unless one is in flight or the lane is suspended.
    pub(super) fn submit(&mut self, now: Moment) {
        if self.lease.holds(now)
            && let Some(batch) = self.committer.take_batch(&self.tenures)
        {
            self.send(now, Purpose::Commit, StoreCall::Commit { session: self.lease.session(), batch });
        }
    }

    fn start_passes(&mut self, now: Moment) {
        let readable = self.readable();
        if let Some(shards) = self.passes.inbox.take(&readable) {
            self.issue(now, Purpose::Inbox { shards, from: 0, known: Arc::from([]) });
        }
        if let Some(shards) = self.passes.requests.take(&readable) {
            self.issue(now, Purpose::Requests { shards, from: 0 });
        }
        if let Some(before_ms) = self.passes.due.take(&readable) {
            self.issue(now, Purpose::Due { before_ms, after: None });
        }
    }

    /// The shards that are held and stay.
    pub(super) fn readable(&self) -> ShardSet {
        self.tenures.set().without(&self.tenures.leaving())
    }

    /// Reads what is due to be read by now.
    fn read_by_time(&mut self, now: Moment, now_ms: u64) {
        let lookahead_ms = self.options.shard.lookahead_ms;
        let mut before_ms = None;
        if let Some(pause) = self.passes.take_poll(now) {
            let readable = self.readable();
            self.passes.want_all(&readable);
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            before_ms = Some(now_ms.saturating_add(pause_ms.saturating_mul(2)).saturating_add(1));
        }
        let reads_ahead = self.passes.take_read_ahead(now);
        if reads_ahead || self.passes.take_look_ahead(now) {
            before_ms = before_ms.max(Some(now_ms.saturating_add(lookahead_ms)));
        }
        if let Some(before_ms) = before_ms {
            self.passes.due.want(before_ms);
        }
        if reads_ahead {
            if !self.calls.has(|purpose| matches!(purpose, Purpose::Sweep)) {
                self.issue(now, Purpose::Sweep);
            }
            // Idle executions are put away.
            for shard in self.tenures.set().iter() {
                if self.tenures.get(shard).is_some_and(|held| held.shard.slots() > 0) {
                    self.feed(now, shard, Shard::handle_time);
                }
            }
        }
    }

    /// Claims what is missing, and begins to give up what is too much. With every renewal.
    pub(super) fn balance(&mut self, now: Moment) {
        if self.is_stopping || self.is_moving() || self.claim_missing(now) {
            return;
        }
        let (has, leaving) = (self.tenures.set().len(), self.tenures.leaving());
        let excess = (has - leaving.len()).saturating_sub(self.target);
        if excess == 0 || !self.lease.holds(now) {
            return;
        }
        // The highest shards leave first; others claim from the lowest on, so that few move twice.
        let stay = self.readable();
        let shards: Vec<ShardId> = stay.iter().collect();
        let count = excess.min(self.options.releases_per_renewal);
        let gone: ShardSet = shards.into_iter().rev().take(count).collect();
        self.outputs.push(LaneOutput::Lost(gone));
        let (holder, lease_ms) = (self.options.node, 3 * self.lease.lease_ms());
        for shard in gone.iter() {
            self.tenures.leave(shard);
            self.feed(now, shard, |shard, now_ms| shard.handle_releasing(now_ms, holder, lease_ms));
        }
    }

    /// Whether shards are being claimed, confirmed or released. One at a time: an answer tells what the session owned when it was
    /// made, and an older one would contradict a newer one.
    pub(super) fn is_moving(&self) -> bool {
        self.calls.has(|purpose| matches!(purpose, Purpose::Claim | Purpose::Confirm | Purpose::Release(_)))
    }

    /// Claims what is missing. Returns whether something is.
    pub(super) fn claim_missing(&mut self, now: Moment) -> bool {
        let is_missing = self.wants_claim() && self.lease.may_claim(now);
        if is_missing && !self.is_moving() {
            self.issue(now, Purpose::Claim);
        }
        is_missing
    }

    /// Gives up the shards that have come to rest.
    fn release_drained(&mut self, now: Moment) {
        // What is withheld for a shard leaves before it is given up.
        if self.is_moving() || !self.lease.holds(now) {
            return;
        }
        let is_drained = |shard: &ShardId| {
            let held = self.tenures.get(*shard);
            let is_drained = |held: &Held| held.shard.is_drained() && !self.committer.concerns(held.tenure());
            held.is_some_and(|held| is_drained(held) || flaws::is(Flaw::ReleasedUndrained))
        };
        let drained: ShardSet = self.tenures.leaving().iter().filter(is_drained).collect();
        if !drained.is_empty() {
            self.issue(now, Purpose::Release(drained));
        }
    }

    // ---- calls ----------------------------------------------------------------------------------------------------

    /// Makes a call under the current session; later if there is none, or never if nobody wants it any more.
    pub(super) fn issue(&mut self, now: Moment, purpose: Purpose) {
        if let Some(call) = self.call_for(now, &purpose) {
            self.send(now, purpose, call);
        }
    }

    fn send(&mut self, now: Moment, purpose: Purpose, call: StoreCall) {
        let ownership = self.tenures.changes();
        let id = self.calls.begin(Open { purpose, session: self.lease.session(), sent: now, ownership });
        self.outputs.push(LaneOutput::Call(id, call));
    }

    fn call_for(&mut self, now: Moment, purpose: &Purpose) -> Option<StoreCall> {
        let session = self.lease.session();
        match purpose {
            Purpose::Open => Some(StoreCall::OpenSession(self.new_session(session))),
            Purpose::End => Some(StoreCall::EndSession(session)),
            Purpose::Sweep => {
                let keep_executions_ms = self.options.keep_executions_ms;
                Some(StoreCall::Sweep { rows: SWEEP_ROWS, keep_executions_ms })
            }
            Purpose::Replace => match self.lease.standing() {
                Standing::Replacing(new) => {
                    Some(StoreCall::ReplaceSession { old: session, new: self.new_session(new) })
                }
                _ => None,
            },
            Purpose::Find { tenure, shard, id, .. } => {
                self.tenures.has(*shard, *tenure).then(|| StoreCall::Find { id: Arc::clone(id) })
            }
            Purpose::Load { tenure, shard, key } => {
                if !self.tenures.has(*shard, *tenure) {
                    self.loads.handle_done();
                    return None;
                }
                Some(StoreCall::Load { shard: *shard, key: *key, after_turn: 0, inbox: LOADED_INBOX })
            }
            Purpose::Refresh { tenure, shard, key } => {
                self.tenures.has(*shard, *tenure).then_some(StoreCall::Load {
                    shard: *shard,
                    key: *key,
                    after_turn: u64::MAX,
                    inbox: LOADED_INBOX,
                })
            }
            Purpose::ReadBack { tenure, commit, .. } => {
                self.tenures.has(commit.shard, *tenure).then(|| read_back(commit, LOADED_INBOX)).flatten()
            }
            _ if self.lease.standing() != Standing::Live => {
                self.calls.at(now + SESSION_PAUSE, purpose.clone());
                None
            }
            purpose => self.session_call(now, session, purpose),
        }
    }

    /// A call that is made under a live session only.
    fn session_call(&mut self, now: Moment, session: SessionId, purpose: &Purpose) -> Option<StoreCall> {
        let rows = self.options.page_rows;
        let limit = PageLimit { rows, bytes: self.options.page_bytes };
        let held = self.tenures.set();
        let call = match purpose {
            Purpose::Renew => StoreCall::RenewSession(session),
            Purpose::Claim => StoreCall::ClaimShards { session, target: self.target },
            Purpose::Confirm => StoreCall::ClaimShards { session, target: 0 },
            Purpose::Release(shards) => StoreCall::ReleaseShards { session, shards: *shards },
            Purpose::Notes { notes, is_steady } => {
                StoreCall::WriteShardNotes { session, notes: notes.clone(), is_steady: *is_steady }
            }
            Purpose::Commit if !self.lease.holds(now) => {
                self.calls.at(now + SESSION_PAUSE, Purpose::Commit);
                return None;
            }
            Purpose::Commit => {
                // It may have been planned for a batch that was settled since. One batch is in flight at a time.
                if self.calls.is_open(session, |purpose| matches!(purpose, Purpose::Commit)) {
                    return None;
                }
                let batch = self.committer.take_again(&self.tenures)?;
                StoreCall::Commit { session, batch }
            }
            Purpose::Owed { shards, after } => {
                let shards = some(shards.and(&held))?;
                StoreCall::ReadOwed { session, shards, after: *after, limit: rows }
            }
            Purpose::Blocked { shards, after } => {
                let shards = some(shards.and(&held))?;
                StoreCall::ReadBlocked { session, shards, after: *after, limit: rows }
            }
            Purpose::Due { before_ms, after } => {
                let Some(shards) = some(held) else {
                    self.passes.due.end();
                    return None;
                };
                let before_ms = *before_ms;
                StoreCall::ReadDue { session, shards, before_ms, after: *after, limit: rows }
            }
            Purpose::Inbox { shards, from, known } => {
                let Some(shards) = some(shards.and(&self.readable())) else {
                    self.passes.inbox.end();
                    return None;
                };
                let query = InboxQuery { shards, from: *from, known: Arc::clone(known), limit };
                StoreCall::ReadInbox { session, query }
            }
            Purpose::Requests { shards, from } => {
                let Some(shards) = some(shards.and(&self.readable())) else {
                    self.passes.requests.end();
                    return None;
                };
                StoreCall::ReadRequests { session, shards, from: *from, limit }
            }
            Purpose::Prune { tenure, shard, key, execution } => {
                if !self.tenures.has(*shard, *tenure) {
                    return None;
                }
                let (shard, key, execution) = (*shard, *key, *execution);
                StoreCall::PruneExecutions { session, shard, key, execution, rows: SWEEP_ROWS }
            }
            Purpose::Open
            | Purpose::End
            | Purpose::Sweep
            | Purpose::Replace
            | Purpose::Find { .. }
            | Purpose::Load { .. }
            | Purpose::Refresh { .. }
            | Purpose::ReadBack { .. } => return None,
        };
        Some(call)
    }

    fn new_session(&self, id: SessionId) -> NewSession {
        let LaneOptions { role, node, lease_ms, info, .. } = &self.options;
        NewSession { id, role: *role, node: *node, lease_ms: *lease_ms, info: Arc::clone(info) }
    }
}

fn draw_session(stream: &mut Stream) -> SessionId {
    SessionId(u128::from(stream.draw()) << 64 | u128::from(stream.draw()))
}

fn some(shards: ShardSet) -> Option<ShardSet> {
    (!shards.is_empty()).then_some(shards)
}

/// The execution of a turn task that is not run.
#[allow(clippy::boxed_local, reason = "turn tasks are boxed wherever they go")]
fn undone(task: Box<TurnTask>) -> Option<Box<Execution>> {
    match task.source {
        TurnSource::Resident(execution, _) => Some(execution),
        TurnSource::Start(_) | TurnSource::History(_) => None,
    }
}
