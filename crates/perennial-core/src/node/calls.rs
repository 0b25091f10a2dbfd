//! Calls of a node that are in progress, and planned ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::instance::ShardId;
use crate::lane::{CallId, Moment, StoreCall};
use crate::planned::Planned;
use crate::shard::{ActivityTask, Tenure};
use crate::store::{NewSession, SessionId, SessionRole, TaskId, TaskReport};

use super::options::NodeOptions;
use super::taken::Renewal;

/// The pause before a call is repeated after a temporary failure.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The purpose of a call, with everything needed to repeat it.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Open,
    /// With the record to publish, if it has changed.
    Renew(Option<Arc<[u8]>>),
    End,
    Directory,
    Take {
        limit: usize,
    },
    /// The reply to a take was lost: tasks that are held and not known were taken then.
    Held,
    RenewTasks(Vec<Renewal>),
    /// Note the start of a task that may end the process.
    Begin(Box<ActivityTask>),
    /// A task has been held back for long enough.
    Admit(Box<ActivityTask>),
    Finish {
        /// The id of the instance, if the task could be read.
        instance: Option<Arc<str>>,
        task: TaskId,
        tenure: Tenure,
        shard: ShardId,
        attempt: u32,
        body: Arc<[u8]>,
    },
    GiveBack(TaskId),
}

impl Purpose {
    /// The call of a node's session, with a report on the task that begins. `None` if there is nothing to call for.
    pub(super) fn call(
        &self,
        holder: SessionId,
        options: &NodeOptions,
        begins: Option<TaskReport>,
    ) -> Option<StoreCall> {
        let lease_ms = options.task_lease_ms;
        Some(match self {
            Purpose::Open => StoreCall::OpenSession(NewSession {
                id: holder,
                role: SessionRole::Node,
                node: holder,
                lease_ms: options.lease_ms,
                info: options.info.encode(),
            }),
            Purpose::Renew(info) => StoreCall::RenewSession { session: holder, info: info.clone() },
            Purpose::End => StoreCall::EndSession(holder),
            Purpose::Directory => StoreCall::Directory,
            Purpose::Take { limit } => {
                StoreCall::TakeTasks { holder, served: options.served.clone(), limit: *limit, lease_ms }
            }
            Purpose::Held => StoreCall::HeldTasks { holder },
            Purpose::RenewTasks(renewals) => {
                let tasks = renewals.iter().map(|renewal| renewal.report.clone()).collect();
                StoreCall::RenewTasks { holder, tasks, lease_ms }
            }
            Purpose::Begin(_) => StoreCall::RenewTasks { holder, tasks: vec![begins?], lease_ms },
            Purpose::Admit(_) => return None,
            Purpose::Finish { task, attempt, body, .. } => {
                StoreCall::FinishTask { holder, task: *task, attempt: *attempt, body: Arc::clone(body) }
            }
            Purpose::GiveBack(task) => StoreCall::GiveBackTasks { holder, tasks: vec![*task] },
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    next: u64,
    /// With the moment at which each was made.
    open: BTreeMap<CallId, (Purpose, Moment)>,
    planned: Planned<Purpose>,
}

impl Calls {
    pub(super) fn begin(&mut self, purpose: Purpose, now: Moment) -> CallId {
        self.next += 1;
        let id = CallId(self.next);
        self.open.insert(id, (purpose, now));
        id
    }

    /// Ends a call. `None` if its result is no longer wanted.
    pub(super) fn end(&mut self, id: CallId) -> Option<(Purpose, Moment)> {
        self.open.remove(&id)
    }

    /// Whether a matching call is in progress or planned.
    pub(super) fn has(&self, is_it: impl Fn(&Purpose) -> bool) -> bool {
        self.open.values().map(|(purpose, _)| purpose).chain(self.planned.iter()).any(is_it)
    }

    /// Plans to repeat a call because the store could not be reached.
    pub(super) fn again_later(&mut self, now: Moment, purpose: Purpose) {
        self.at(now + RETRY_PAUSE, purpose);
    }

    /// Plans a call for a time.
    pub(super) fn at(&mut self, at: Moment, purpose: Purpose) {
        self.planned.add(at, purpose);
    }

    /// Removes the planned calls that are due, in order.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Purpose> {
        self.planned.take_due(now)
    }

    /// Removes matching planned calls, whatever their time, in order.
    pub(super) fn take_planned(&mut self, is_it: impl Fn(&Purpose) -> bool) -> Vec<Purpose> {
        self.planned.take_all(is_it)
    }

    /// When the next planned call is to be made.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        self.planned.next_wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn n5_a_call_is_known_while_it_is_under_way_or_planned() {
        let mut calls = Calls::default();
        let is_end = |purpose: &Purpose| matches!(purpose, Purpose::End);
        let id = calls.begin(Purpose::End, at(1));
        assert!(calls.has(is_end));
        let (purpose, sent) = calls.end(id).expect("it is under way");
        assert!(sent == at(1) && calls.end(id).is_none() && !calls.has(is_end));
        calls.again_later(at(2), purpose);
        calls.at(at(2), Purpose::Renew(None));
        assert!(calls.has(is_end));
        assert_eq!(calls.take_planned(is_end).len(), 1);
        assert!(!calls.has(is_end) && calls.next_wake() == Some(at(2)), "the other one stays");
    }
}
