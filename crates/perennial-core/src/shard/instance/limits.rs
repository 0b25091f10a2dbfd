//! When the engine ends an execution regardless of its code.

use crate::history::{Ledger, Started, TIMEOUT_REASON};

use super::super::gaps::{Gaps, Grace};
use super::super::message::Start;

/// The times at which the engine ends the execution, kept separately because the execution may not be in memory.
#[derive(Default)]
pub(super) struct Limits {
    /// The end of a cancel request's grace period.
    grace_until_ms: Option<u64>,
    /// When the instance is terminated because of its time limit.
    deadline_ms: Option<u64>,
}

impl Limits {
    /// The limits of an execution that has not started. The grace period of a cancel request in its start counts from
    /// the arrival of the start.
    pub(super) fn of_start(start: &Start, arrived_ms: u64, gaps: &Gaps) -> Limits {
        let end_of = |grace_ms| gaps.end_of(Grace { from_ms: arrived_ms, grace_ms });
        let grace_until_ms = start.cancel().map(|(_, grace_ms)| end_of(grace_ms));
        Limits { grace_until_ms, deadline_ms: start.started.deadline_ms }
    }

    pub(super) fn of_execution(ledger: &Ledger, started: &Started, gaps: &Gaps) -> Limits {
        let grace_until_ms = ledger.cancel_request().map(|cancel| gaps.end_of(Grace::of(cancel)));
        Limits { grace_until_ms, deadline_ms: started.deadline_ms }
    }

    /// Why the engine has to end the execution now, if it has to.
    pub(super) fn overdue(&self, reason: Option<&str>, now_ms: u64) -> Option<String> {
        if self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            return Some(TIMEOUT_REASON.to_owned());
        }
        let grace_is_over = self.grace_until_ms.is_some_and(|until_ms| until_ms <= now_ms);
        grace_is_over.then(|| not_done_in_time(reason.unwrap_or_default()))
    }

    /// Handles the end of an execution. The next one has the same deadline.
    pub(super) fn end_grace(&mut self) {
        self.grace_until_ms = None;
    }

    pub(super) fn grace_until_ms(&self) -> Option<u64> {
        self.grace_until_ms
    }

    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    /// Both times, as far as they are known.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> + use<> {
        self.grace_until_ms.into_iter().chain(self.deadline_ms)
    }
}

/// The reason of an execution that did not end within its grace period.
pub(super) fn not_done_in_time(reason: &str) -> String {
    format!("cancelled, but did not end within its grace period: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Job, Payload};

    #[test]
    fn g30_a_start_brings_its_deadline_and_the_grace_of_its_cancel() {
        let mut started = Started::new("n", "1.0.0", Payload::null(), 7);
        started.deadline_ms = Some(90);
        let cancel = Job::OrchestrationCancelRequested { reason: "c".to_owned(), grace_ms: 40 };
        let start = Start { jobs: vec![cancel], ..Start::new(started) };
        let mut limits = Limits::of_start(&start, 10, &Gaps::default());
        assert_eq!(limits.ends().collect::<Vec<_>>(), [50, 90]);
        limits.end_grace();
        assert_eq!((limits.ends().collect::<Vec<_>>(), limits.deadline_ms()), (vec![90], Some(90)));
    }
}
