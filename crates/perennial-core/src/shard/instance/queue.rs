//! What waits for the next turn of an instance, in order.
//!
//! Messages that were brought here keep the order in which they came. Messages of the inbox are in the order of their
//! numbers: one that is read late goes before those of higher numbers, else to the end. Adding, finding and taking a
//! message costs the same however many wait; only what is done once for a whole queue looks at all of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::history::{EventId, Job};
use crate::store::{InboxNumber, InboxRow, Skippable};

use super::super::gaps::{Gaps, Grace};
use super::super::message::{Message, Start};
use super::super::turn_task::TaskFailure;
use super::questions::Questions;
use super::queued::{Arrived, Origin, Queued};

#[derive(Default)]
pub(super) struct Queue {
    /// Messages of the inbox. Their positions ascend with their numbers; those of one position are by number.
    stored: BTreeMap<InboxNumber, Queued>,
    /// All others, with ascending positions and places.
    brought: VecDeque<Queued>,
    /// How many jobs of the inbox have each place.
    stored_places: BTreeMap<u64, usize>,
    /// How many messages bring an outcome of each activity or child.
    results: BTreeMap<(u64, EventId), usize>,
    counts: Counts,
    /// Whether the last read left messages in the inbox that come after all of these.
    is_cut: bool,
    /// Counts what came.
    places: u64,
}

/// How many messages of a kind wait.
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

    /// The place of what comes now.
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

    /// Adds a message of the inbox that a load found: it came before everything that waits.
    pub(super) fn insert_loaded(&mut self, row: &InboxRow) {
        self.insert(row, 0, self.places);
    }

    /// Adds a message of the inbox that was read just now.
    pub(super) fn insert_read(&mut self, row: &InboxRow) {
        let place = self.next_place();
        self.insert(row, place, place);
    }

    /// Adds a message that was written into the inbox under a number just now.
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

    /// Puts messages back that were taken, before all others.
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

    /// Takes the messages that are in no row.
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

    /// Takes the last events that callers brought, at most this many.
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

    /// Takes the records of repairs, and the requests to skip messages, which have led to some of them.
    pub(super) fn take_repairs(&mut self) -> Vec<Queued> {
        match self.counts.repairs > 0 {
            true => self.take_where(|queued| is_message_skip(queued) || queued.is_repair()),
            false => Vec::new(),
        }
    }

    /// Puts the record that it is skipped in the place of every message that cannot be read and that somebody asks to go
    /// on without. The code cannot read the result that the message in `blocking` brought.
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

    /// Takes what crossed to the current execution, and the events and cancel requests, in the order in which they are
    /// delivered.
    pub(super) fn take_jobs(&mut self) -> Vec<Queued> {
        let mut jobs: Vec<Queued> = std::iter::from_fn(|| self.take_carried(|_| true)).collect();
        jobs.extend(self.take_where(|queued| matches!(queued.message, Message::Job(_))));
        jobs
    }

    /// Takes the next portion of what crossed to the current execution, if there is one and it fits. It is delivered
    /// before everything else. What crossed last comes first: it had been delivered to the execution before, while the
    /// rest had not.
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

    /// Takes the requests to skip events. They are delivered with what waits, after it, so that the events have the
    /// numbers that they had when the turn failed.
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

    /// Puts what callers brought while the inbox was being read after what was read. Questions that were put meanwhile
    /// keep their place among these messages.
    pub(super) fn bring_after_read(&mut self, brought: Vec<Queued>, questions: &mut Questions) {
        let mut asks = questions.take_all().into_iter().peekable();
        for queued in brought {
            while let Some(ask) = asks.next_if(|ask| ask.place < queued.place) {
                questions.push(ask.asker, ask.question, self.next_place());
            }
            self.push(queued);
        }
        for ask in asks {
            questions.push(ask.asker, ask.question, self.next_place());
        }
    }

    /// The inbox was read, to its end or not.
    pub(super) fn handle_read(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// How late an unread message can have arrived that should have gone before a timer of this due time, if one can.
    /// What waits here, and what a read left behind it, comes after the timer whenever it arrived: messages keep their
    /// order, and the clock may have been set back after an earlier one came.
    pub(super) fn unread_before(&self, due_ms: u64) -> Option<u64> {
        if self.is_cut && !self.stored.is_empty() {
            return None;
        }
        self.stored.values().map(|queued| queued.arrived_ms).chain([due_ms]).min()
    }

    /// The lowest place of a message that the code is still to get.
    pub(super) fn first_place(&self) -> Option<u64> {
        let stored = self.stored_places.first_key_value().map(|(place, _)| *place);
        let brought = self.brought.iter().find(|queued| queued.is_job()).map(|queued| queued.place);
        stored.into_iter().chain(brought).min()
    }

    /// Whether a message of the inbox is among them.
    pub(super) fn knows(&self, number: InboxNumber) -> bool {
        self.stored.contains_key(&number)
    }

    /// The numbers of the messages of the inbox.
    pub(super) fn numbers(&self) -> impl Iterator<Item = InboxNumber> + '_ {
        self.stored.keys().copied()
    }

    /// Whether an outcome of an execution's activity waits: it need not run again.
    pub(super) fn has_result(&self, execution: u64, event: EventId) -> bool {
        self.results.contains_key(&(execution, event))
    }

    /// Whether something waits that was said with the token of an execution's activity.
    pub(super) fn has_token(&self, execution: u64, event: EventId) -> bool {
        self.iter().any(|queued| match &queued.message {
            Message::Token(call) => (call.execution, call.event) == (execution, event),
            _ => false,
        })
    }

    /// How many events wait.
    pub(super) fn events(&self) -> usize {
        self.counts.events
    }

    /// How many of the events are in the inbox.
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

    /// Whether somebody asks for a try who has not had it.
    pub(super) fn asks_for_try(&self, tried: &BTreeSet<InboxNumber>) -> bool {
        let is_untried = |queued: &Queued| queued.number().is_none_or(|number| !tried.contains(&number));
        (self.has_retry() || self.has_skip() || self.counts.message_skips > 0)
            && self.iter().any(|queued| queued.is_one_try() && is_untried(queued))
    }

    /// The rows that ask for a try.
    pub(super) fn one_try_numbers(&self) -> Vec<InboxNumber> {
        self.stored.values().filter_map(Queued::retry_number).collect()
    }

    /// Whether somebody wants the instance to be paused or resumed.
    pub(super) fn has_pause(&self) -> bool {
        self.counts.pauses > 0
    }

    /// Whether the last of those who want it to be paused or resumed wants it to be paused.
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

    /// The start that waits, if one does.
    pub(super) fn start(&self) -> Option<&Start> {
        self.start_and_arrival().map(|(start, _)| start)
    }

    /// The start that waits, and when it arrived.
    pub(super) fn start_and_arrival(&self) -> Option<(&Start, u64)> {
        self.find(self.counts.starts, |queued| match &queued.message {
            Message::Start(start) => Some((&**start, queued.arrived_ms)),
            _ => None,
        })
    }

    /// The reason of a termination that waits.
    pub(super) fn termination(&self) -> Option<&str> {
        self.find(self.counts.terminations, |queued| match &queued.message {
            Message::Terminate { reason } => Some(reason.as_str()),
            _ => None,
        })
    }

    /// Why a message that waits cannot be read. Repairs are recorded before that blocks the instance, if they can be: skipping
    /// one such message would be for nothing if the next one kept that from being recorded.
    pub(super) fn unreadable(&self, can_record: bool) -> Option<TaskFailure> {
        if can_record && self.counts.repairs > 0 {
            return None;
        }
        self.find(self.counts.unreadable, |queued| match &queued.message {
            Message::Unreadable { number, error } => {
                Some(TaskFailure::UnreadableMessage { number: *number, error: error.clone() })
            }
            _ => None,
        })
    }

    /// The reason of a cancel request that waits and whose grace is over.
    pub(super) fn overdue_cancel(&self, gaps: &Gaps, now_ms: u64) -> Option<&str> {
        let is_over = |(_, grace): &(&str, Grace)| gaps.end_of(*grace) <= now_ms;
        self.find(self.counts.cancels, |queued| queued.cancel().filter(is_over).map(|(reason, _)| reason))
    }

    /// The graces of the cancel requests that wait.
    pub(super) fn cancel_graces(&self) -> impl Iterator<Item = Grace> {
        let messages = self.iter().take(if self.has_cancel() { usize::MAX } else { 0 });
        messages.filter_map(Queued::cancel).map(|(_, grace)| grace)
    }

    /// Looks for the first message of a kind, if there are any of it.
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
