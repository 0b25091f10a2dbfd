//! What a shard knows about one instance that is not dormant.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{Ending, Job, Ledger, Started};
use crate::store::{InboxNumber, InstanceRow, RowChange, Status};

use super::message::Message;
use super::output::Output;
use super::request::RequestId;

pub(super) struct Slot {
    pub(super) id: Arc<str>,
    pub(super) phase: Phase,
    /// What waits for the next turn, in order.
    pub(super) queue: VecDeque<Queued>,
    /// What the stored row says; nothing before it is known.
    pub(super) facts: Option<Facts>,
    pub(super) last_used_ms: u64,
    /// Callers that want to start this id while it is being started.
    pub(super) rival_starts: Vec<RequestId>,
}

/// What is going on with an instance. Whatever it is, it is one thing at a time.
pub(super) enum Phase {
    /// Its rows were asked for.
    Loading,
    /// A turn is being taken with these messages.
    Turning(Vec<Queued>),
    /// A commit is under way.
    Committing(Box<InFlight>),
    /// Its execution waits for something to happen.
    Idle(Box<Execution>),
    /// It cannot go on.
    Blocked,
}

/// What happens once a commit is durable.
pub(super) struct InFlight {
    pub(super) outputs: Vec<Output>,
    pub(super) facts: Facts,
    pub(super) next: Next,
    /// The messages that are part of it, in case it comes to nothing.
    pub(super) messages: Vec<Queued>,
    /// Whether it inserts the instance.
    pub(super) start: Option<RequestId>,
}

/// Where an instance goes from a durable commit.
pub(super) enum Next {
    Idle(Box<Execution>),
    Blocked,
    Ended(Option<Box<Execution>>, Box<Ending>),
    /// It had ended before; only left-overs were cleared.
    Gone,
}

/// A message and who it came from.
pub(super) struct Queued {
    pub(super) message: Message,
    pub(super) origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A caller who waits for an answer.
    Caller(RequestId),
    /// The inbox row of this number.
    Inbox(InboxNumber),
    /// The engine itself, which will know again after a crash.
    Engine,
}

/// The searched columns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) status: Status,
    pub(super) owed: bool,
    pub(super) wake_at_ms: Option<u64>,
    pub(super) blocked_attempts: u32,
    pub(super) execution: u64,
}

impl Facts {
    pub(super) fn of_row(row: &InstanceRow) -> Facts {
        Facts {
            status: row.status,
            owed: row.owed,
            wake_at_ms: row.wake_at_ms,
            blocked_attempts: row.blocked.as_ref().map_or(0, |blocked| blocked.attempts),
            execution: row.execution,
        }
    }

    /// What the row has to say after a turn. The time may stay early, which costs a look, but is never late.
    pub(super) fn after_turn(
        ledger: &Ledger,
        started: &Started,
        ending: Option<&Ending>,
        stored: &Facts,
        now_ms: u64,
    ) -> Facts {
        let status = ending.map_or(Status::Running, Status::after);
        let running = !status.is_final();
        let wanted = if running { wake_at_ms(ledger, started) } else { None };
        let wake_at_ms = match (stored.wake_at_ms, wanted) {
            (Some(stored), Some(wanted)) if stored <= wanted && stored > now_ms => Some(stored),
            (_, wanted) => wanted,
        };
        let owed = running && ledger.open_activities() > 0;
        Facts { status, owed, wake_at_ms, blocked_attempts: 0, execution: started.execution }
    }

    /// What has to be written to get from what is stored to this.
    pub(super) fn change_from(&self, stored: &Facts) -> RowChange {
        RowChange {
            status: (self.status != stored.status).then_some(self.status),
            owed: (self.owed != stored.owed).then_some(self.owed),
            wake_at_ms: (self.wake_at_ms != stored.wake_at_ms).then_some(self.wake_at_ms),
            blocked: (stored.blocked_attempts > 0 && self.blocked_attempts == 0).then_some(None),
            execution: (self.execution != stored.execution).then_some(self.execution),
            ..RowChange::default()
        }
    }
}

/// When a running execution wants attention by itself: a timer, the end of a cancel's grace, its deadline.
pub(super) fn wake_at_ms(ledger: &Ledger, started: &Started) -> Option<u64> {
    let timer = ledger.timers().next().map(|(due_ms, _)| due_ms);
    [timer, ledger.cancel_grace_until_ms(), started.deadline_ms].into_iter().flatten().min()
}

impl Slot {
    pub(super) fn new(id: Arc<str>, phase: Phase, now_ms: u64) -> Slot {
        Slot {
            id,
            phase,
            queue: VecDeque::new(),
            facts: None,
            last_used_ms: now_ms,
            rival_starts: Vec::new(),
        }
    }

    /// Whether a message of the inbox is in memory already.
    pub(super) fn knows_inbox(&self, number: InboxNumber) -> bool {
        let is_it = |queued: &Queued| queued.origin == Origin::Inbox(number);
        let in_work = match &self.phase {
            Phase::Turning(messages) => messages.iter().any(is_it),
            Phase::Committing(in_flight) => in_flight.messages.iter().any(is_it),
            Phase::Loading | Phase::Idle(_) | Phase::Blocked => false,
        };
        in_work || self.queue.iter().any(is_it)
    }

    /// The reason of a termination that waits, if one does.
    pub(super) fn termination(&self) -> Option<String> {
        self.queue.iter().find_map(|queued| match &queued.message {
            Message::Terminate { reason } => Some(reason.clone()),
            _ => None,
        })
    }

    /// The reason of a cancel request that waits and whose grace is over.
    pub(super) fn overdue_cancel(&self, now_ms: u64) -> Option<String> {
        self.queue.iter().find_map(|queued| match &queued.message {
            Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms })
                if *grace_until_ms <= now_ms =>
            {
                Some(reason.clone())
            }
            _ => None,
        })
    }
}
