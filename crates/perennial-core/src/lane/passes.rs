//! Passes over the store's rows for a lane's shards: when each is due, and at most one of a kind at a time.
//!
//! A hint starts a pass immediately. Hints may be lost, so correctness relies on polling: every pass is also made after
//! a while. While polls find nothing that a hint had not announced, they become rare.

use std::sync::Arc;
use std::time::Duration;

use crate::store::ShardSet;

use super::clock::Moment;
use super::purpose::Purpose;

/// One kind of pass.
#[derive(Debug, Default)]
pub(super) struct Pass {
    wanted: ShardSet,
    is_running: bool,
    /// Where the next pass begins, if it is planted that it does not begin with the lowest number.
    #[cfg(feature = "flaws")]
    pub(super) cursor: u64,
}

impl Pass {
    /// Requests a read of the shards, or another one if they are being read.
    pub(super) fn want(&mut self, shards: &ShardSet) {
        self.wanted.extend_from(shards);
    }

    /// The shards to read now, among those that can be read: a pass over them starts.
    pub(super) fn take(&mut self, readable: &ShardSet) -> Option<ShardSet> {
        if !self.is_due() {
            return None;
        }
        let shards = std::mem::take(&mut self.wanted).and(readable);
        self.is_running = !shards.is_empty();
        self.is_running.then_some(shards)
    }

    /// The pass that ran is over.
    pub(super) fn end(&mut self) {
        self.is_running = false;
    }

    /// Ends the pass without using its result: the shards are read again.
    pub(super) fn start_over(&mut self, shards: &ShardSet) {
        self.end();
        self.want(shards);
    }

    fn is_due(&self) -> bool {
        !self.is_running && !self.wanted.is_empty()
    }
}

/// The pass over due instances. It covers all shards, up to a time.
#[derive(Debug, Default)]
pub(super) struct DuePass {
    wanted_ms: Option<u64>,
    is_running: bool,
}

impl DuePass {
    /// Requests a read of instances due before this time, or another one if they are being read: a page in progress may
    /// have been read before the latest rows were written.
    pub(super) fn want(&mut self, before_ms: u64) {
        self.wanted_ms = self.wanted_ms.max(Some(before_ms));
    }

    /// Up to when to read now, if there are shards to read: a pass starts.
    pub(super) fn take(&mut self, readable: &ShardSet) -> Option<u64> {
        if self.is_running || readable.is_empty() {
            return None;
        }
        let wanted_ms = self.wanted_ms.take();
        self.is_running = wanted_ms.is_some();
        wanted_ms
    }

    /// The pass that ran is over.
    pub(super) fn end(&mut self) {
        self.is_running = false;
    }

    fn is_due(&self) -> bool {
        !self.is_running && self.wanted_ms.is_some()
    }
}

/// When a lane polls, and when it reads ahead what is due soon.
#[derive(Debug)]
pub(super) struct Passes {
    pub(super) inbox: Pass,
    pub(super) requests: Pass,
    pub(super) due: DuePass,
    pauses: (Duration, Duration),
    pause: Duration,
    poll_at: Moment,
    /// Whether the current passes were started by a poll.
    is_poll: bool,
    /// How far ahead due instances are known; they are read twice in that time.
    lookahead_ms: u64,
    read_ahead_at: Moment,
    /// After news the store is read ahead immediately, but not more often than this.
    news_pause: Duration,
    may_look_at: Moment,
    news_at: Option<Moment>,
}

impl Passes {
    /// Polls with pauses between these two, reads this far ahead, and after news at least this long after the last
    /// time.
    pub(super) fn new(pauses: (Duration, Duration), lookahead_ms: u64, news_pause: Duration) -> Passes {
        Passes {
            inbox: Pass::default(),
            requests: Pass::default(),
            due: DuePass::default(),
            pauses,
            pause: pauses.0,
            poll_at: Moment::ZERO,
            is_poll: false,
            lookahead_ms,
            read_ahead_at: Moment::ZERO,
            news_pause,
            may_look_at: Moment::ZERO,
            news_at: None,
        }
    }

    /// Requests a read of all messages and requests of these shards, because they were gained or pages were lost.
    pub(super) fn want_all(&mut self, shards: &ShardSet) {
        self.inbox.want(shards);
        self.requests.want(shards);
    }

    /// Requests a read of what is due soon.
    pub(super) fn want_ahead(&mut self, now_ms: u64) {
        self.due.want(now_ms.saturating_add(self.lookahead_ms));
    }

    /// Plans the passes that are due, over the shards that can be read. Returns whether maintenance is due, too.
    pub(super) fn handle_time(&mut self, now: Moment, now_ms: u64, readable: &ShardSet) -> bool {
        if let Some(pause) = self.take_poll(now) {
            self.want_all(readable);
            // The slowest polls leave due instances to the read-ahead: a hint tells of those that others add.
            if pause < self.pauses.1 {
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                self.due.want(now_ms.saturating_add(pause_ms.saturating_mul(2)).saturating_add(1));
            }
        }
        let reads_ahead = self.take_read_ahead(now);
        if reads_ahead || self.take_look_ahead(now) {
            self.want_ahead(now_ms);
        }
        reads_ahead
    }

    /// Whether a pass is to start.
    pub(super) fn has_next(&self) -> bool {
        self.inbox.is_due() || self.requests.is_due() || self.due.is_due()
    }

    /// The passes that start now, over the shards that can be read.
    pub(super) fn take_next(&mut self, readable: &ShardSet) -> impl Iterator<Item = Purpose> + use<> {
        let inbox = self.inbox.take(readable);
        let requests = self.requests.take(readable);
        let due = self.due.take(readable);
        #[cfg(not(feature = "flaws"))]
        let from = 0;
        #[cfg(feature = "flaws")]
        let from = self.inbox.cursor;
        let inbox = inbox.map(|shards| Purpose::Inbox { shards, from, known: Arc::from([]) });
        let requests = requests.map(|shards| Purpose::Requests { shards, from: 0 });
        let due = due.map(|before_ms| Purpose::Due { before_ms, after: None });
        inbox.into_iter().chain(requests).chain(due)
    }

    /// Ends a pass whose next page will not arrive.
    pub(super) fn handle_none(&mut self, purpose: &Purpose) {
        match purpose {
            Purpose::Inbox { .. } => self.inbox.end(),
            Purpose::Requests { .. } => self.requests.end(),
            Purpose::Due { .. } => self.due.end(),
            _ => {}
        }
    }

    /// Notes that something may have been added that is due before the next read-ahead.
    pub(super) fn handle_news(&mut self) {
        self.news_at.get_or_insert(self.may_look_at);
    }

    /// Whether a poll is due; the next one is planned.
    fn take_poll(&mut self, now: Moment) -> Option<Duration> {
        if now < self.poll_at {
            return None;
        }
        self.is_poll = true;
        self.poll_at = now + self.pause;
        self.pause = (self.pause * 2).min(self.pauses.1);
        Some(self.pause)
    }

    /// Notes that a pass found something new.
    pub(super) fn handle_found(&mut self) {
        if std::mem::take(&mut self.is_poll) {
            // No hint had announced it.
            self.pause = self.pauses.0;
        }
    }

    /// Notes a hint, so that what is found next counts as announced.
    pub(super) fn handle_hint(&mut self) {
        self.is_poll = false;
    }

    /// Whether a read-ahead is due.
    fn take_read_ahead(&mut self, now: Moment) -> bool {
        let is_due = now >= self.read_ahead_at;
        if is_due {
            self.read_ahead_at = now + Duration::from_millis((self.lookahead_ms / 2).max(1));
        }
        is_due
    }

    /// Whether news make a read-ahead due.
    fn take_look_ahead(&mut self, now: Moment) -> bool {
        let is_due = self.news_at.is_some_and(|at| now >= at);
        if is_due {
            self.news_at = None;
            self.may_look_at = now + self.news_pause;
        }
        is_due
    }

    pub(super) fn next_wake(&self) -> Moment {
        self.poll_at.min(self.read_ahead_at).min(self.news_at.unwrap_or(Moment::MAX))
    }

    /// Ends all passes after the session was lost.
    pub(super) fn handle_lost(&mut self) {
        (self.inbox, self.requests, self.due) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::ShardId;

    #[test]
    fn s4_a_pass_that_is_wanted_while_it_runs_is_made_once_more() {
        let mut pass = Pass::default();
        let one: ShardSet = [ShardId(1)].into_iter().collect();
        pass.want(&one);
        assert_eq!(pass.take(&ShardSet::ALL), Some(one));
        pass.want(&one);
        assert_eq!(pass.take(&ShardSet::ALL), None, "one at a time");
        pass.end();
        assert_eq!(pass.take(&ShardSet::ALL), Some(one));
        pass.end();
        assert_eq!(pass.take(&ShardSet::ALL), None);
    }

    #[test]
    fn s4_due_instances_that_are_wanted_while_a_pass_runs_are_read_once_more() {
        let mut pass = DuePass::default();
        pass.want(100);
        assert_eq!(pass.take(&ShardSet::EMPTY), None, "there is nothing to read");
        assert_eq!(pass.take(&ShardSet::ALL), Some(100));
        pass.want(90);
        pass.want(80);
        assert_eq!(pass.take(&ShardSet::ALL), None, "one at a time");
        pass.end();
        assert_eq!(pass.take(&ShardSet::ALL), Some(90));
        pass.end();
        assert_eq!(pass.take(&ShardSet::ALL), None);
    }

    #[test]
    fn n12_polls_become_rare_while_hints_tell_of_everything() {
        let pauses = (Duration::from_millis(20), Duration::from_secs(1));
        let mut passes = Passes::new(pauses, 60_000, Duration::from_secs(1));
        let mut now = Moment::ZERO;
        for _ in 0..10 {
            assert!(passes.take_poll(now).is_some() && passes.take_poll(now).is_none());
            now = passes.poll_at;
        }
        assert_eq!(passes.pause, pauses.1);
        passes.handle_hint();
        passes.handle_found();
        assert_eq!(passes.pause, pauses.1, "a hint had told of it");
        passes.take_poll(now);
        passes.handle_found();
        assert_eq!(passes.pause, pauses.0, "a hint was lost");
    }

    #[test]
    fn g13_a_poll_reads_up_to_the_one_after_the_next_and_a_read_ahead_the_whole_window() {
        let pauses = (Duration::from_millis(20), Duration::from_millis(160));
        let mut passes = Passes::new(pauses, 10_000, Duration::from_secs(1));
        let at = Duration::from_millis;
        let due = |passes: &mut Passes| {
            let next: Vec<Purpose> = passes.take_next(&ShardSet::ALL).collect();
            next.iter().for_each(|purpose| passes.handle_none(purpose));
            next.iter().find_map(|purpose| match purpose {
                Purpose::Due { before_ms, .. } => Some(*before_ms),
                _ => None,
            })
        };
        assert!(passes.handle_time(at(0), 1_000, &ShardSet::ALL), "upkeep comes with a read-ahead");
        assert!(passes.has_next());
        assert_eq!(due(&mut passes), Some(11_000));
        assert!(!passes.has_next() && !passes.handle_time(at(10), 1_010, &ShardSet::ALL));
        assert_eq!(due(&mut passes), None);
        assert!(!passes.handle_time(at(20), 1_020, &ShardSet::ALL));
        assert_eq!(due(&mut passes), Some(1_181));
        assert!(!passes.handle_time(at(60), 1_060, &ShardSet::ALL));
        assert_eq!(due(&mut passes), None, "polls are as slow as they get");
        assert!(passes.handle_time(at(5_000), 6_000, &ShardSet::ALL));
        assert_eq!(due(&mut passes), Some(16_000));
    }
}
