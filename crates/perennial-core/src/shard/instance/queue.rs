//! The messages that wait for the next turn of an instance, in order.
//!
//! Messages from callers keep the order in which they arrived. Inbox messages are ordered by number: one that is read
//! late is inserted before those with higher numbers, otherwise at the end. Adding, finding and taking a message takes
//! constant or logarithmic time; only operations on the whole queue visit all of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::history::{EventId, Job};
use crate::store::{InboxNumber, InboxRow, Skippable};

use super::super::block_reason::BlockReason;
use super::super::gaps::{Gaps, Grace};
use super::super::message::{Message, Start};
use super::pending_calls::PendingCalls;
use super::queued::{Arrived, Origin, Queued};

#[derive(Default)]
pub(super) struct Queue {
    /// Inbox messages. Their positions ascend with their numbers; messages with the same position are ordered by
    /// number.
    stored: BTreeMap<InboxNumber, Queued>,
    /// All others, with ascending positions and places.
    brought: VecDeque<Queued>,
    /// How many jobs of the inbox have each place.
    stored_places: BTreeMap<u64, usize>,
    /// How many messages contain an outcome of each activity or child.
    results: BTreeMap<(u64, EventId), usize>,
    counts: Counts,
    /// Whether the last read left messages in the inbox that follow all of these.
    is_cut: bool,
    /// A counter of arrivals.
    places: u64,
}

/// How many messages of each kind wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    starts: usize,
    events: usize,
    cancels: usize,
    terminations: usize,
    retries: usize,
    skips: usize,
    message_skips: usize,
    pauses: usize,
    repairs: usize,
    carried: usize,
    unreadable: usize,
}

impl Counts {
    fn of(&mut self, queued: &Queued) -> Option<&mut usize> {
        Some(match &queued.message {
            Message::Start(_) => &mut self.starts,
            Message::Terminate { .. } => &mut self.terminations,
            Message::Retry => &mut self.retries,
            Message::Pause(_) | Message::Resume(_) => &mut self.pauses,
            Message::SkipMessage { .. } => &mut self.message_skips,
            Message::Job(job) if job.is_repair() => &mut self.repairs,
            Message::Unreadable { .. } => &mut self.unreadable,
            Message::Carried { .. } => &mut self.carried,
            Message::Job(_) if queued.message.is_skip() => &mut self.skips,
            Message::Job(_) if queued.cancel().is_some() => &mut self.cancels,
            Message::Job(_)
            | Message::Outcome { .. }
            | Message::Attempt { .. }
            | Message::LeftOpen(_)
            | Message::Token(_)
            | Message::Requeue { .. } => return None,
        })
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.brought.is_empty()
    }

    /// The place of the next arrival.
    pub(super) fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Adds a message after all others.
    pub(super) fn push(&mut self, queued: Queued) {
        let place = self.next_place();
        let queued = Queued { place, position: place, ..queued };
        self.count(&queued);
        self.brought.push_back(queued);
    }

    /// Adds an inbox message that a load returned: it arrived before everything that waits.
    pub(super) fn insert_loaded(&mut self, row: &InboxRow) {
        self.insert(row, 0, self.places);
    }

    /// Adds an inbox message that was just read.
    pub(super) fn insert_read(&mut self, row: &InboxRow) {
        let place = self.next_place();
        self.insert(row, place, place);
    }

    /// Adds a message that was just written into the inbox under a number.
    pub(super) fn insert_written(&mut self, number: InboxNumber, queued: Queued) {
        let place = self.next_place();
        self.insert_at(number, Queued { origin: Origin::Inbox(number), place, ..queued }, place);
    }

    fn insert(&mut self, row: &InboxRow, place: u64, at_end: u64) {
        self.insert_at(row.number, Queued { place, ..Queued::of_row(row) }, at_end);
    }

    fn insert_at(&mut self, number: InboxNumber, queued: Queued, at_end: u64) {
        let later = self.stored.range(number + 1..).next();
        let position = later.map_or(at_end, |(_, later)| later.position);
        let queued = Queued { position, ..queued };
        self.count(&queued);
        self.stored.insert(number, queued);
    }

    /// Puts messages back, before all others.
    pub(super) fn put_back(&mut self, messages: Vec<Queued>) {
        for queued in messages.into_iter().rev() {
            self.count(&queued);
            match queued.origin {
                Origin::Inbox(number) => {
                    self.stored.insert(number, queued);
                }
                Origin::Caller(_) | Origin::Engine => self.brought.push_front(queued),
            }
        }
    }

    pub(super) fn front(&self) -> Option<&Queued> {
        if self.is_stored_first() {
            return self.stored.first_key_value().map(|(_, queued)| queued);
        }
        self.brought.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Queued> {
        let queued = if self.is_stored_first() {
            self.stored.pop_first().map(|(_, queued)| queued)
        } else {
            self.brought.pop_front()
        }?;
        self.uncount(&queued);
        Some(queued)
    }

    fn is_stored_first(&self) -> bool {
        match (self.stored.first_key_value(), self.brought.front()) {
            (Some((_, stored)), Some(brought)) => stored.position < brought.position,
            (stored, _) => stored.is_some(),
        }
    }

    /// Takes all messages, in order.
    pub(super) fn take_all(&mut self) -> Vec<Queued> {
        let mut all = Vec::with_capacity(self.stored.len() + self.brought.len());
        all.extend(std::iter::from_fn(|| self.pop_front()));
        all
    }

    /// Takes the messages that are not inbox rows.
    pub(super) fn take_brought(&mut self) -> Vec<Queued> {
        let brought = std::mem::take(&mut self.brought);
        brought.iter().for_each(|queued| self.uncount(queued));
        brought.into()
    }

    /// Takes the messages of the inbox.
    pub(super) fn take_stored(&mut self) -> Vec<Queued> {
        let stored = std::mem::take(&mut self.stored);
        stored.values().for_each(|queued| self.uncount(queued));
        stored.into_values().collect()
    }

    /// Takes the last events of callers, at most this many.
    pub(super) fn take_last_events(&mut self, count: usize) -> Vec<Queued> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        while taken.len() < count
            && let Some(queued) = self.brought.pop_back()
        {
            if queued.is_event() && queued.caller().is_some() {
                self.uncount(&queued);
                taken.push(queued);
            } else {
                left.push(queued);
            }
        }
        self.brought.extend(left.into_iter().rev());
        taken
    }

    /// Takes one message of the inbox.
    pub(super) fn take_row(&mut self, number: InboxNumber) -> Option<Queued> {
        let queued = self.stored.remove(&number)?;
        self.uncount(&queued);
        Some(queued)
    }

    /// Takes the retries, and returns whether there were any.
    pub(super) fn take_retries(&mut self) -> Vec<Queued> {
        match self.has_retry() {
            true => self.take_where(|queued| matches!(queued.message, Message::Retry)),
            false => Vec::new(),
        }
    }

    /// Takes the requests to pause or resume, in order.
    pub(super) fn take_pauses(&mut self) -> Vec<Queued> {
        match self.has_pause() {
            true => self.take_where(is_pause),
            false => Vec::new(),
        }
    }

    /// Takes the records of repairs, and the requests to skip messages, which have already led to records.
    pub(super) fn take_repairs(&mut self) -> Vec<Queued> {
        match self.counts.repairs > 0 {
            true => self.take_where(|queued| is_message_skip(queued) || queued.is_repair()),
            false => Vec::new(),
        }
    }

    /// Replaces every unreadable message that somebody requested to skip with the record that it was skipped.
    /// `blocking` is the message with a result that the code cannot read.
    pub(super) fn skip_messages(&mut self, blocking: Option<Skippable>) {
        if self.counts.message_skips == 0 {
            return;
        }
        let skipped: Vec<InboxNumber> = self.iter().filter_map(message_skip).collect();
        for number in skipped {
            let Some(mut queued) = self.take_row(number) else { continue };
            let problem = match &queued.message {
                Message::Unreadable { error, .. } => Some(error.to_string()),
                Message::Token(_) if blocking == Some(Skippable::Message(number)) => {
                    Some("the code cannot read the result that came with a token".to_owned())
                }
                _ => None,
            };
            if let Some(problem) = problem {
                queued.message = Message::Job(Job::MessageSkipped { number, problem });
            }
            self.put_back(vec![queued]);
        }
    }

    /// Takes the carried-over jobs, the events and the cancel requests, in delivery order.
    pub(super) fn take_jobs(&mut self) -> Vec<Queued> {
        let mut jobs: Vec<Queued> = std::iter::from_fn(|| self.take_carried(|_| true)).collect();
        jobs.extend(self.take_where(|queued| matches!(queued.message, Message::Job(_))));
        jobs
    }

    /// Takes the next portion of the jobs carried over to the current execution, if there is one and it fits. It is
    /// delivered before everything else. The most recently carried-over portion comes first: it had been delivered to
    /// the previous execution, while the others had not.
    pub(super) fn take_carried(&mut self, fits: impl FnOnce(&[Job]) -> bool) -> Option<Queued> {
        if self.counts.carried == 0 {
            return None;
        }
        let carried = self.stored.iter().filter_map(|(number, queued)| match &queued.message {
            Message::Carried { execution, jobs, in_place_of } => {
                Some(((Reverse(*execution), in_place_of.unwrap_or(*number)), *number, jobs))
            }
            _ => None,
        });
        let (_, number, jobs) = carried.min_by_key(|(place, ..)| *place)?;
        if fits(jobs) { self.take_row(number) } else { None }
    }

    /// Takes the requests to skip events. They are delivered together with, and after, the waiting events, so that
    /// those get the same event ids as in the turn that failed.
    pub(super) fn take_skips(&mut self) -> Vec<Queued> {
        match self.has_skip() {
            true => self.take_where(|queued| queued.message.is_skip()),
            false => Vec::new(),
        }
    }

    /// Takes the start.
    pub(super) fn take_start(&mut self) -> Option<Arrived<Start>> {
        let mut is_first = true;
        let starts = self.take_where(|queued| {
            matches!(queued.message, Message::Start(_)) && std::mem::replace(&mut is_first, false)
        });
        match starts.into_iter().next()? {
            Queued { message: Message::Start(start), origin, arrived_ms, .. } => {
                Some(Arrived { what: *start, origin, arrived_ms })
            }
            _ => None,
        }
    }

    fn take_where(&mut self, mut is_meant: impl FnMut(&Queued) -> bool) -> Vec<Queued> {
        let (taken, left): (Vec<Queued>, Vec<Queued>) =
            self.take_all().into_iter().partition(|queued| is_meant(queued));
        self.put_back(left);
        taken
    }

    /// Puts messages from callers that arrived while the inbox was being read after the messages that were read. Calls
    /// that arrived meanwhile keep their place among them.
    pub(super) fn bring_after_read(&mut self, brought: Vec<Queued>, pending_calls: &mut PendingCalls) {
        let mut calls = pending_calls.take_all().into_iter().peekable();
        for queued in brought {
            while let Some(pending) = calls.next_if(|pending| pending.place < queued.place) {
                pending_calls.push(pending.reply_to, pending.call, self.next_place());
            }
            self.push(queued);
        }
        for pending in calls {
            pending_calls.push(pending.reply_to, pending.call, self.next_place());
        }
    }

    /// Records whether the inbox was read to its end.
    pub(super) fn handle_read(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// The arrival time before which an unread message of the store would have to be delivered before a timer that is due
    /// at `due_ms`; `None` if there cannot be one. Messages that wait here, and those that a read left behind them, are
    /// delivered after the timer whatever their arrival time: messages keep their order, and the clock may have been set
    /// back after an earlier one arrived.
    pub(super) fn unread_before(&self, due_ms: u64) -> Option<u64> {
        if self.is_cut && !self.stored.is_empty() {
            return None;
        }
        self.stored.values().map(|queued| queued.arrived_ms).chain([due_ms]).min()
    }

    /// The lowest place of a message that has not been delivered to the code.
    pub(super) fn first_place(&self) -> Option<u64> {
        let stored = self.stored_places.first_key_value().map(|(place, _)| *place);
        let brought = self.brought.iter().find(|queued| queued.is_job()).map(|queued| queued.place);
        stored.into_iter().chain(brought).min()
    }

    /// Whether it contains an inbox message.
    pub(super) fn knows(&self, number: InboxNumber) -> bool {
        self.stored.contains_key(&number)
    }

    /// The numbers of the messages of the inbox.
    pub(super) fn numbers(&self) -> impl Iterator<Item = InboxNumber> + '_ {
        self.stored.keys().copied()
    }

    /// Whether an outcome of an execution's activity is waiting, so that it need not run again.
    pub(super) fn has_result(&self, execution: u64, event: EventId) -> bool {
        self.results.contains_key(&(execution, event))
    }

    /// Whether a token call for an execution's activity is waiting.
    pub(super) fn has_token(&self, execution: u64, event: EventId) -> bool {
        self.iter().any(|queued| match &queued.message {
            Message::Token(call) => (call.execution, call.event) == (execution, event),
            _ => false,
        })
    }

    /// The number of waiting events.
    pub(super) fn events(&self) -> usize {
        self.counts.events
    }

    /// The number of events that are in the inbox.
    pub(super) fn stored_events(&self) -> usize {
        self.stored.values().map(Queued::events).sum()
    }

    pub(super) fn has_cancel(&self) -> bool {
        self.counts.cancels > 0
    }

    pub(super) fn has_termination(&self) -> bool {
        self.counts.terminations > 0
    }

    pub(super) fn has_retry(&self) -> bool {
        self.counts.retries > 0
    }

    /// Whether a retry is requested that has not been made.
    pub(super) fn asks_for_try(&self, tried: &BTreeSet<InboxNumber>) -> bool {
        let is_untried = |queued: &Queued| queued.number().is_none_or(|number| !tried.contains(&number));
        (self.has_retry() || self.has_skip() || self.counts.message_skips > 0)
            && self.iter().any(|queued| queued.is_one_try() && is_untried(queued))
    }

    /// The rows that request a retry.
    pub(super) fn one_try_numbers(&self) -> Vec<InboxNumber> {
        self.stored.values().filter_map(Queued::retry_number).collect()
    }

    /// Whether a pause or a resumption is requested.
    pub(super) fn has_pause(&self) -> bool {
        self.counts.pauses > 0
    }

    /// Whether the last such request is a pause.
    pub(super) fn wants_pause(&self) -> bool {
        let last = || self.iter().filter(|queued| is_pause(queued)).last();
        self.has_pause() && last().is_some_and(|queued| matches!(queued.message, Message::Pause(_)))
    }

    pub(super) fn has_carried(&self) -> bool {
        self.counts.carried > 0
    }

    pub(super) fn has_skip(&self) -> bool {
        self.counts.skips > 0
    }

    /// The waiting start, if there is one.
    pub(super) fn start(&self) -> Option<&Start> {
        self.start_and_arrival().map(|(start, _)| start)
    }

    /// The waiting start, and when it arrived.
    pub(super) fn start_and_arrival(&self) -> Option<(&Start, u64)> {
        self.find(self.counts.starts, |queued| match &queued.message {
            Message::Start(start) => Some((&**start, queued.arrived_ms)),
            _ => None,
        })
    }

    /// The reason of a waiting termination.
    pub(super) fn termination(&self) -> Option<&str> {
        self.find(self.counts.terminations, |queued| match &queued.message {
            Message::Terminate { reason } => Some(reason.as_str()),
            _ => None,
        })
    }

    /// Why a waiting message cannot be read. Repairs are recorded first, if that is possible: otherwise the next
    /// unreadable message would prevent the record that this one was skipped.
    pub(super) fn unreadable(&self, can_record: bool) -> Option<BlockReason> {
        if can_record && self.counts.repairs > 0 {
            return None;
        }
        self.find(self.counts.unreadable, |queued| match &queued.message {
            Message::Unreadable { number, error } => {
                Some(BlockReason::UnreadableMessage { number: *number, error: error.clone() })
            }
            _ => None,
        })
    }

    /// The reason of a waiting cancel request whose grace period is over.
    pub(super) fn overdue_cancel(&self, gaps: &Gaps, now_ms: u64) -> Option<&str> {
        let is_over = |(_, grace): &(&str, Grace)| gaps.end_of(*grace) <= now_ms;
        self.find(self.counts.cancels, |queued| queued.cancel().filter(is_over).map(|(reason, _)| reason))
    }

    /// The grace periods of the waiting cancel requests.
    pub(super) fn cancel_graces(&self) -> impl Iterator<Item = Grace> {
        let messages = self.iter().take(if self.has_cancel() { usize::MAX } else { 0 });
        messages.filter_map(Queued::cancel).map(|(_, grace)| grace)
    }

    /// Finds the first message of a kind, if there are any of it.
    fn find<'a, T>(&'a self, count: usize, what: impl Fn(&'a Queued) -> Option<T>) -> Option<T> {
        if count == 0 { None } else { self.iter().find_map(what) }
    }

    /// All messages, in order.
    fn iter(&self) -> impl Iterator<Item = &Queued> {
        let mut stored = self.stored.values().peekable();
        let mut brought = self.brought.iter().peekable();
        std::iter::from_fn(move || match (stored.peek(), brought.peek()) {
            (Some(first), Some(second)) if first.position < second.position => stored.next(),
            (Some(_), None) => stored.next(),
            _ => brought.next(),
        })
    }

    fn count(&mut self, queued: &Queued) {
        if let Some(count) = self.counts.of(queued) {
            *count += 1;
        }
        self.counts.events += queued.events();
        for result in queued.results_of() {
            *self.results.entry(result).or_default() += 1;
        }
        if queued.number().is_some() && queued.is_job() {
            *self.stored_places.entry(queued.place).or_default() += 1;
        }
    }

    fn uncount(&mut self, queued: &Queued) {
        if let Some(count) = self.counts.of(queued) {
            *count -= 1;
        }
        self.counts.events -= queued.events();
        for result in queued.results_of() {
            decrease(&mut self.results, result);
        }
        if queued.number().is_some() && queued.is_job() {
            decrease(&mut self.stored_places, queued.place);
        }
    }
}

fn is_pause(queued: &Queued) -> bool {
    matches!(queued.message, Message::Pause(_) | Message::Resume(_))
}

fn message_skip(queued: &Queued) -> Option<InboxNumber> {
    match queued.message {
        Message::SkipMessage { number } => Some(number),
        _ => None,
    }
}

fn is_message_skip(queued: &Queued) -> bool {
    message_skip(queued).is_some()
}

fn decrease<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
