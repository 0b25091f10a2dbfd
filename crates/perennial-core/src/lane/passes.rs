//! Passes over what the store holds for a lane's shards: when each is due, and that only one of a kind runs at a time.
//!
//! Hints start passes at once. Polling is the truth: a hint may be lost, so every pass is also made after a while. While
//! polls find nothing that a hint had not told of, they become rare.

use std::time::Duration;

use crate::store::ShardSet;

use super::clock::Moment;

/// One kind of pass.
#[derive(Debug, Default)]
pub(super) struct Pass {
    wanted: ShardSet,
    is_running: bool,
}

impl Pass {
    /// The shards are read soon, or once more if they are being read.
    pub(super) fn want(&mut self, shards: &ShardSet) {
        self.wanted.extend_from(shards);
    }

    /// The shards to read now, of those that can be: a pass over them runs from here on.
    pub(super) fn take(&mut self, readable: &ShardSet) -> Option<ShardSet> {
        if self.is_running || self.wanted.is_empty() {
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
}

/// The pass over instances that are due. It covers all shards, up to a time.
#[derive(Debug, Default)]
pub(super) struct DuePass {
    wanted_ms: Option<u64>,
    is_running: bool,
}

impl DuePass {
    /// What is due before this is read soon, or once more if it is being read: a page that is on its way may have been
    /// read before the latest rows were written.
    pub(super) fn want(&mut self, before_ms: u64) {
        self.wanted_ms = self.wanted_ms.max(Some(before_ms));
    }

    /// Up to when to read now, if there are shards to read: a pass runs from here on.
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
}

/// When a lane polls, and when it reads ahead what will be due.
#[derive(Debug)]
pub(super) struct Passes {
    pub(super) inbox: Pass,
    pub(super) requests: Pass,
    pub(super) due: DuePass,
    pauses: (Duration, Duration),
    pause: Duration,
    poll_at: Moment,
    /// Whether the passes that run were started by a poll.
    is_poll: bool,
    read_ahead_every: Duration,
    read_ahead_at: Moment,
    /// After news the store is read ahead at once, but no more often than this.
    news_pause: Duration,
    may_look_at: Moment,
    news_at: Option<Moment>,
}

impl Passes {
    /// Polls with pauses between these two, reads ahead every so often, and after news with at least this pause.
    pub(super) fn new(
        pauses: (Duration, Duration),
        read_ahead_every: Duration,
        news_pause: Duration,
    ) -> Passes {
        Passes {
            inbox: Pass::default(),
            requests: Pass::default(),
            due: DuePass::default(),
            pauses,
            pause: pauses.0,
            poll_at: Moment::ZERO,
            is_poll: false,
            read_ahead_every,
            read_ahead_at: Moment::ZERO,
            news_pause,
            may_look_at: Moment::ZERO,
            news_at: None,
        }
    }

    /// Everything about these shards is read: they were gained, or pages were lost.
    pub(super) fn want_all(&mut self, shards: &ShardSet) {
        self.inbox.want(shards);
        self.requests.want(shards);
    }

    /// Somebody may have added what is due before the next read-ahead.
    pub(super) fn handle_news(&mut self) {
        self.news_at.get_or_insert(self.may_look_at);
    }

    /// Whether it is time to poll; the next one is planned.
    pub(super) fn take_poll(&mut self, now: Moment) -> Option<Duration> {
        if now < self.poll_at {
            return None;
        }
        self.is_poll = true;
        self.poll_at = now + self.pause;
        self.pause = (self.pause * 2).min(self.pauses.1);
        Some(self.pause)
    }

    /// A pass found something that was not known.
    pub(super) fn handle_found(&mut self) {
        if std::mem::take(&mut self.is_poll) {
            // No hint had told of it.
            self.pause = self.pauses.0;
        }
    }

    /// A hint came: what is found now, it told of.
    pub(super) fn handle_hint(&mut self) {
        self.is_poll = false;
    }

    /// Whether it is time to read ahead.
    pub(super) fn take_read_ahead(&mut self, now: Moment) -> bool {
        let is_due = now >= self.read_ahead_at;
        if is_due {
            self.read_ahead_at = now + self.read_ahead_every;
        }
        is_due
    }

    /// Whether news make a look ahead due.
    pub(super) fn take_look_ahead(&mut self, now: Moment) -> bool {
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

    /// The lane lost its session: passes that ran are over.
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
        let mut passes = Passes::new(pauses, Duration::from_secs(30), Duration::from_secs(1));
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
}
