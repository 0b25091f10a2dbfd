//! From dormant to resident: loading and starting instances.

use crate::code::ErrorCode;
use crate::history::{Job, Started};
use crate::store::{Blocked, Commit, InboxPage, InstanceRow, LoadedInstance, TaskRow};

use super::super::block_reason::BlockReason;
use super::super::gaps::Gaps;
use super::super::message::{Message, Start};
use super::super::record::Past;
use super::super::request::{CallReply, Response};
use super::super::shared::Shared;
use super::super::turn_task::TurnSource;
use super::Instance;
use super::calls::refuse_calls;
use super::in_flight::{Delivery, InFlight, Next, Phase};
use super::limits::{Limits, not_done_in_time};
use super::queued::{Arrived, Batch, Origin, Queued};
use super::tending::View;
use super::turns::still_of;

impl Instance {
    /// Starts a new instance for a caller.
    pub(in crate::shard) fn start(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        request: super::RequestId,
        start: Start,
    ) {
        let origin = Origin::Caller(request);
        if let Some(pause) = shared.paused.pause_of(&start.started.name) {
            self.limits = Limits::of_start(&start, now_ms, &shared.gaps);
            let message = Queued::new(Message::Start(Box::new(start)), origin, now_ms);
            let failure = BlockReason::Paused(pause);
            return self.block(shared, now_ms, vec![message], &failure, Vec::new());
        }
        self.begin(shared, now_ms, Arrived { what: start, origin, arrived_ms: now_ms });
    }

    /// Handles the loaded rows of the instance, or that it does not exist.
    pub(in crate::shard) fn handle_loaded(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        loaded: Option<LoadedInstance>,
    ) {
        if !self.is_loading() {
            return;
        }
        let Some(LoadedInstance { row, turns, inbox, tasks }) = loaded else {
            return self.forget_missing(shared);
        };
        let cut = inbox.next;
        self.read_rows(shared, &row, &inbox, tasks);
        if turns.is_empty() {
            // What an earlier execution left unread is in the inbox.
            self.recorded_unread = 0;
        }
        if self.pending_calls.has_reset() {
            return self.begin_reset(shared, now_ms, &row, turns);
        }
        if row.status.is_final() {
            self.bring_all_behind(shared, now_ms);
            if self.pending_calls.has_query() {
                let source = TurnSource::History(turns);
                shared.counters.hydrations += 1;
                return self.take_turn(shared, now_ms, source, Delivery::default());
            }
            return self.clear_leftovers(shared);
        }
        self.bring_behind(shared, now_ms, cut, self.tasks.is_refreshing());
        // Whether it has to end, and what is open then, follows from its history.
        if !turns.is_empty() && (row.blocked.is_some() || self.queue.has_termination()) {
            return self.read_record(shared, now_ms, Box::new(row), turns);
        }
        self.revive(shared, now_ms, &row, Past::Stored(turns));
    }

    /// Takes over the loaded rows other than turns.
    fn read_rows(&mut self, shared: &mut Shared, row: &InstanceRow, inbox: &InboxPage, tasks: Vec<TaskRow>) {
        self.read_row(row);
        self.refuse_rivals(shared, row.status);
        (self.kept_events, self.is_uncounted) = (0, false);
        self.tasks.load(tasks);
        self.read_inbox(shared, inbox);
    }

    /// Adds loaded inbox messages. They arrived before everything that callers have sent since.
    fn read_inbox(&mut self, shared: &Shared, page: &InboxPage) {
        self.queue.handle_read(page.next.is_some());
        let brought = self.queue.take_brought();
        for row in &page.rows {
            if !shared.consumed.contains(row.number) && !self.knows_inbox(row.number) {
                self.queue.insert_loaded(row);
            }
        }
        self.queue.bring_after_read(brought, &mut self.pending_calls);
    }

    /// Decides what happens to a loaded instance that has not ended.
    pub(super) fn revive(&mut self, shared: &mut Shared, now_ms: u64, row: &InstanceRow, past: Past) {
        if let Some(reason) = self.has_to_end(shared, now_ms, row, &past) {
            let parent = row.parent.as_ref().filter(|_| row.is_sound());
            return self.terminate_loaded(shared, now_ms, past, &reason, parent);
        }
        if row.blocked.is_some() && self.has_to_hand_over(shared) {
            self.hand_over_blocked(shared, now_ms, row.execution, past.record());
            return self.stay_blocked(shared, now_ms);
        }
        if self.heed_pauses(shared, now_ms, row) {
            return;
        }
        if self.stays_paused(row) {
            return self.stay_blocked(shared, now_ms);
        }
        self.queue.skip_messages(self.skippable());
        // Before the start there is no turn that could record repairs. A first turn with a cancel request would also
        // take the other messages, and so deliver messages that come after the unreadable one.
        let has_begun = !matches!(&past, Past::Stored(turns) if turns.is_empty());
        let can_record = has_begun || (self.queue.start().is_some() && !self.queue.has_cancel());
        if let Some(failure) = self.queue.unreadable(can_record).or_else(|| self.tasks.undecodable()) {
            return self.block(shared, now_ms, Vec::new(), &failure, Vec::new());
        }
        if !row.is_sound() {
            let words = "its checksum does not match its key, id, name, parent and time";
            let failure = BlockReason::Unreadable(ErrorCode::CorruptRow.message(words));
            return self.block(shared, now_ms, Vec::new(), &failure, Vec::new());
        }
        let is_wanted = std::mem::take(&mut self.is_retried) || self.queue.asks_for_try(&self.tried);
        let is_not_retried = shared.no_auto_retry.contains(&self.key);
        let is_left = |blocked: &Blocked| is_not_retried || !BlockReason::is_tried_unasked(blocked);
        if !is_wanted && row.blocked.as_ref().is_some_and(is_left) {
            return self.stay_blocked(shared, now_ms);
        }
        shared.no_auto_retry.remove(&self.key);
        if let Some(blocked) = &row.blocked {
            self.lost_turns = BlockReason::lost_turns(blocked);
            self.is_asked_for = is_wanted;
        }
        self.hydrate(shared, now_ms, past);
    }

    /// Why it has to end without its code now, if it has to.
    fn has_to_end(&mut self, shared: &Shared, now_ms: u64, row: &InstanceRow, past: &Past) -> Option<String> {
        let (gaps, is_blocked) = (&shared.gaps, row.blocked.is_some());
        let overdue = match past {
            Past::Stored(turns) if turns.is_empty() => self.overdue_start(gaps, now_ms),
            Past::Read(record) if is_blocked => {
                self.limits = Limits::of_execution(&record.ledger, record.started(), gaps);
                self.limits.overdue(record.ledger.cancel_reason(), now_ms)
            }
            Past::Stored(_) | Past::Read(_) | Past::Unreadable(_) => None,
        };
        if let Some(reason) = self.queue.termination() {
            return Some(reason.to_owned());
        }
        // If the code runs, the grace period counts from the turn that delivers the cancel request, so a waiting
        // request is not overdue.
        let cancelled = self.queue.overdue_cancel(gaps, now_ms).filter(|_| is_blocked);
        cancelled.map(not_done_in_time).or(overdue)
    }

    /// Why an execution that has not started has to end now, if it has to.
    fn overdue_start(&mut self, gaps: &Gaps, now_ms: u64) -> Option<String> {
        let (start, arrived_ms) = self.queue.start_and_arrival()?;
        // A cancel request that the code took over keeps its grace period across continue-as-new.
        self.limits = Limits::of_start(start, arrived_ms, gaps);
        self.limits.overdue(start.cancel().map(|(reason, _)| reason), now_ms)
    }

    /// Handles an instance that cannot be loaded because of its own data. The rest of its rows may be readable, without
    /// its turns: they tell whether it has ended, who waits for it, and what else is stored for it.
    pub(in crate::shard) fn handle_load_failed(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        reason: String,
        rest: Option<LoadedInstance>,
    ) {
        if !self.is_loading() {
            return;
        }
        let failure = BlockReason::Unreadable(reason);
        if self.has_to_hand_over(shared) {
            // Without a history nothing is known about them; the next owner finds the activities without an attempt.
            shared.stop_attempts(self.key);
        }
        let Some(LoadedInstance { row, inbox, tasks, .. }) = rest else {
            return match self.queue.termination().map(str::to_owned) {
                Some(wanted) => self.terminate_unread(shared, now_ms, &wanted, None),
                None => self.block(shared, now_ms, Vec::new(), &failure, Vec::new()),
            };
        };
        let cut = inbox.next;
        self.read_rows(shared, &row, &inbox, tasks);
        if row.status.is_final() {
            self.bring_all_behind(shared, now_ms);
            return self.block(shared, now_ms, Vec::new(), &failure, Vec::new());
        }
        self.bring_behind(shared, now_ms, cut, self.tasks.is_refreshing());
        match self.has_to_end(shared, now_ms, &row, &Past::Stored(Vec::new())) {
            Some(wanted) => {
                let parent = row.parent.as_ref().filter(|_| row.is_sound());
                self.terminate_unread(shared, now_ms, &wanted, parent);
            }
            None => self.block(shared, now_ms, Vec::new(), &failure, Vec::new()),
        }
    }

    fn hydrate(&mut self, shared: &mut Shared, now_ms: u64, past: Past) {
        let source = match past {
            Past::Stored(turns) if turns.is_empty() => None,
            Past::Stored(turns) => Some(TurnSource::History(turns)),
            Past::Read(record) => Some(TurnSource::Read(record)),
            Past::Unreadable(failure) => {
                return self.block(shared, now_ms, Vec::new(), &failure, Vec::new());
            }
        };
        if let Some(source) = source {
            shared.counters.hydrations += 1;
            return self.take_turn(shared, now_ms, source, Delivery::default());
        }
        let not_before_ms = self.queue.start().and_then(|start| start.not_before_ms);
        if not_before_ms.is_some_and(|at_ms| at_ms > now_ms) && !self.queue.has_cancel() {
            // Its deadline may pass before it starts.
            let wake = not_before_ms.into_iter().chain(self.limits.deadline_ms()).min();
            return self.settle(shared, now_ms, Phase::Delayed, wake);
        }
        let Some(start) = self.queue.take_start() else {
            let reason = ErrorCode::CorruptRow.message("it has neither turns nor a start");
            return self.block(shared, now_ms, Vec::new(), &BlockReason::Unreadable(reason), Vec::new());
        };
        self.begin(shared, now_ms, start);
    }

    /// Takes the first turn of an execution, with everything that waits for it.
    pub(super) fn begin(&mut self, shared: &mut Shared, now_ms: u64, start: Arrived<Start>) {
        let Arrived { what: start, origin, arrived_ms } = start;
        let (jobs, started) = (start.jobs.clone(), Box::new(start.started.clone()));
        self.limits = Limits::of_start(&start, arrived_ms, &shared.gaps);
        let messages = vec![Queued::new(Message::Start(Box::new(start)), origin, arrived_ms)];
        let mut delivery = Delivery { jobs, messages, ..Delivery::default() };
        if let Origin::Inbox(number) = origin {
            // It may have been read from the inbox while the commit that sent it was in progress.
            self.queue.take_row(number);
        }
        // If a cancel request is already waiting, the first turn must not take effect without it.
        let skips = self.queue.take_skips();
        if self.queue.has_cancel() {
            self.take_first_jobs(shared, &started, &mut delivery);
        } else {
            // The start is the first event.
            delivery.cut(self.jobs_before(&skips, 1));
        }
        delivery.append(self.queue.take_repairs());
        self.deliver_skips(shared, skips, &mut delivery);
        self.take_turn(shared, now_ms, TurnSource::Start(started), delivery);
    }

    /// The jobs of a first turn that includes a cancel request: as many as one turn takes, and the request.
    fn take_first_jobs(&mut self, shared: &Shared, started: &Started, delivery: &mut Delivery) {
        let (limit, max_bytes) = shared.options.jobs_per_turn();
        let mut bytes: u64 = delivery.jobs.iter().map(Job::weight).sum();
        let mut rest = Vec::new();
        for queued in self.queue.take_jobs() {
            let (count, weight) = queued.jobs();
            let fits = delivery.jobs.len() + count <= limit && bytes + weight <= max_bytes;
            if queued.cancel().is_none() && (!fits || !rest.is_empty()) {
                rest.push(queued);
                continue;
            }
            bytes += weight;
            delivery.append([still_of(started, queued)]);
        }
        self.queue.put_back(rest);
    }

    /// Handles tasks and messages that were read again. Other nodes may have taken, renewed or finished tasks; messages
    /// that arrived while it was blocked are now in order.
    pub(in crate::shard) fn handle_refreshed(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        loaded: Option<LoadedInstance>,
    ) {
        let Some(mut given_meanwhile) = self.tasks.end_refresh() else { return };
        let Some(loaded) = loaded else { return self.bring_all_behind(shared, now_ms) };
        self.queue.handle_read(loaded.inbox.next.is_some());
        for row in &loaded.inbox.rows {
            if !shared.consumed.contains(row.number) && !self.knows_inbox(row.number) {
                self.queue.insert_read(row);
            }
        }
        if std::mem::take(&mut self.is_uncounted) {
            self.kept_events = self.queue.stored_events();
            self.go_on(shared, now_ms);
        }
        self.bring_behind(shared, now_ms, loaded.inbox.next, self.is_loading());
        if self.columns.as_ref().map(|columns| columns.execution) != Some(loaded.row.execution) {
            return self.go_on(shared, now_ms);
        }
        if let Phase::Committing(in_flight) = &self.phase {
            given_meanwhile.extend(&in_flight.given);
        }
        self.tasks.handle_read(loaded.tasks, |event| given_meanwhile.contains(&event));
        if let Some(execution) = self.take_idle() {
            self.tend_tasks(shared, now_ms, &execution, View::Fresh);
            self.phase = Phase::Idle(execution);
            self.go_on(shared, now_ms);
        }
    }

    /// Handles an instance that was deleted.
    fn forget_missing(&mut self, shared: &mut Shared) {
        self.forget(shared);
        let messages = self.queue.take_all();
        shared.counters.stale += messages.len() as u64;
        self.respond_to_all(shared, &Response::NotFound);
        self.answer_all(shared, &messages, &Response::NotFound);
    }

    /// Handles leftovers of an ended instance: requests get their replies, and its messages are deleted.
    pub(super) fn clear_leftovers(&mut self, shared: &mut Shared) {
        if self.pending_calls.has_query() || self.pending_calls.has_reset() {
            // A query can be answered from the history.
            return self.reload(shared);
        }
        let messages = Batch::new(self.queue.take_all());
        let calls = self.pending_calls.take_all();
        let (all, events) = (messages.iter().count() as u64, messages.events() as u64);
        shared.counters.stale += all - events;
        shared.counters.events_refused += events;
        let mut commit = Commit { consumed: messages.numbers().to_vec(), ..shared.empty_commit(self.key) };
        let mut outputs = refuse_calls(&calls, &CallReply::Ended, &mut commit.replies);
        if commit.is_empty() {
            self.forget(shared);
            shared.outputs.extend(outputs);
            return self.answer_all(shared, &messages.into_messages(), &Response::EndedBefore);
        }
        outputs.extend(messages.replies(&Response::EndedBefore));
        let in_flight = InFlight::new(self.stored(), Next::Gone, messages);
        self.commit(shared, commit, InFlight { outputs, refused: calls, ..in_flight });
    }
}
