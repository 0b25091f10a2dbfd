//! The LoneGate: activities that ended often with their process run one at a time.
//!
//! The one that takes the process down is then alone among its like when it does, and only its own interruptions grow.

use std::collections::VecDeque;
use std::time::Duration;

use crate::history::EventId;
use crate::instance::{InstanceKey, ShardId};
use crate::lane::Moment;
use crate::shard::{ActivityTask, Tenure};

/// How long an activity that may run has to begin. It may have been cancelled meanwhile.
const BEGINNING: Duration = Duration::from_secs(2);

/// An activity that waits to run alone, and who runs it then.
#[derive(Debug)]
pub(super) enum Waiting {
    Lane { lane: usize, shard: ShardId, tenure: Tenure, key: InstanceKey, event: EventId },
    Task(Box<ActivityTask>),
}

impl Waiting {
    fn place(&self) -> Place {
        match self {
            Waiting::Lane { key, event, .. } => (*key, *event),
            Waiting::Task(task) => (task.key, task.event),
        }
    }
}

type Place = (InstanceKey, EventId);

#[derive(Debug, Default)]
pub(super) struct LoneGate {
    waiting: VecDeque<Waiting>,
    /// Who may run, and until when it has to begin, if it has not.
    current: Option<(Place, Option<Moment>)>,
}

impl LoneGate {
    /// An activity waits to run alone. If it waits already, whoever asks now runs it: an earlier tenure is over.
    pub(super) fn add(&mut self, waiting: Waiting) {
        let place = waiting.place();
        match self.waiting.iter_mut().find(|other| other.place() == place) {
            Some(other) => *other = waiting,
            None => self.waiting.push_back(waiting),
        }
    }

    /// The next one, if none runs.
    pub(super) fn take(&mut self, now: Moment) -> Option<Waiting> {
        if self.current.is_some_and(|(_, begins_by)| begins_by.is_some_and(|by| now >= by)) {
            self.current = None;
        }
        if self.current.is_some() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.current = Some((next.place(), Some(now + BEGINNING)));
        Some(next)
    }

    pub(super) fn handle_begun(&mut self, key: InstanceKey, event: EventId) {
        if let Some((place, begins_by)) = &mut self.current
            && *place == (key, event)
        {
            *begins_by = None;
        }
    }

    pub(super) fn handle_ended(&mut self, key: InstanceKey, event: EventId) {
        self.current = self.current.filter(|(place, _)| *place != (key, event));
    }

    pub(super) fn next_wake(&self) -> Option<Moment> {
        self.current.and_then(|(_, begins_by)| begins_by).filter(|_| !self.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(event: u64) -> Waiting {
        let key = InstanceKey::new(1, 1);
        Waiting::Lane { lane: 0, shard: ShardId(0), tenure: Tenure(1), key, event: EventId(event) }
    }

    #[test]
    fn n10_an_activity_that_waits_to_run_alone_is_granted_to_the_latest_tenure() {
        let (mut gate, now) = (LoneGate::default(), Moment::ZERO);
        gate.add(waiting(1));
        let Waiting::Lane { lane, shard, key, event, .. } = waiting(1) else { unreachable!("a lane's") };
        gate.add(Waiting::Lane { lane, shard, tenure: Tenure(2), key, event });
        assert!(matches!(gate.take(now), Some(Waiting::Lane { tenure: Tenure(2), .. })));
        assert!(gate.waiting.is_empty());
    }

    #[test]
    fn g22_one_runs_at_a_time_and_one_that_does_not_begin_gives_way() {
        let (mut gate, key, mut now) = (LoneGate::default(), InstanceKey::new(1, 1), Moment::ZERO);
        (1..=3).for_each(|event| gate.add(waiting(event)));
        gate.add(waiting(2));
        assert_eq!(gate.take(now).map(|it| it.place().1), Some(EventId(1)));
        gate.handle_begun(key, EventId(1));
        now += BEGINNING * 2;
        assert!(gate.take(now).is_none(), "the first one runs");
        gate.handle_ended(key, EventId(1));
        assert_eq!(gate.take(now).map(|it| it.place().1), Some(EventId(2)));
        now += BEGINNING;
        assert_eq!(gate.take(now).map(|it| it.place().1), Some(EventId(3)), "the second never began");
        assert!(gate.take(now).is_none());
    }
}
