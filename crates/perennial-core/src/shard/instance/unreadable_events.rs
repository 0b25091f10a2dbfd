//! External events that the code cannot decode: refused while their sender waits for a reply, otherwise skipped by a
//! person.

use crate::execution::TurnFailure;
use crate::history::{HistoryError, Job, PayloadSource};
use crate::store::{Commit, InboxNumber, RequestReply, Skippable};

use super::super::block_reason::BlockReason;
use super::super::message::Message;
use super::super::request::{CallReply, InstanceCall, PendingCall, Response};
use super::super::shared::Shared;
use super::super::task_work::open_end;
use super::Instance;
use super::calls::send_reply;
use super::in_flight::{Delivery, InFlight, Next, Phase};
use super::queued::{Batch, Queued};
use super::row_columns::RowColumns;
use super::tasks::TaskPlan;

impl Instance {
    /// Refuses the event, or the result that came with a token, that made a turn fail, if its sender waits for a reply:
    /// nothing of the turn is recorded, and another turn can be taken without it. Returns whether it did.
    pub(super) fn refuse_event(
        &self,
        shared: &mut Shared,
        failure: &BlockReason,
        messages: &mut Vec<Queued>,
        accepted: &mut Vec<PendingCall>,
        answers: &mut Vec<RequestReply>,
    ) -> bool {
        let BlockReason::Turn(TurnFailure::History(HistoryError::PayloadMismatch {
            type_name,
            problem,
            came_with,
            ..
        })) = failure
        else {
            return false;
        };
        // An instance that is not stored has no history to be hydrated from.
        if self.columns.is_none() {
            return false;
        }
        let asked = accepted.iter().position(|pending| match (&pending.call, came_with) {
            (InstanceCall::Raise { key, .. }, PayloadSource::NewEvent { key: Some(found) }) => key == found,
            (InstanceCall::Token(call), PayloadSource::NewResult { activity }) => call.event == *activity,
            _ => false,
        });
        if let Some(position) = asked {
            let pending = accepted.remove(position);
            let reply = CallReply::Refused { reason: failure.to_string(), error: None };
            shared.outputs.extend(send_reply(pending.reply_to, reply, answers));
            return true;
        }
        let PayloadSource::NewEvent { key: Some(key) } = came_with else { return false };
        let brought = messages.iter().enumerate().find_map(|(position, queued)| match &queued.message {
            Message::Job(Job::ExternalEvent { name, key: Some(found), .. }) if found == key => {
                Some((position, queued.caller()?, name.clone()))
            }
            _ => None,
        });
        let Some((position, caller, event)) = brought else { return false };
        messages.remove(position);
        shared.reply(caller, Response::Unreadable { event, type_name, problem: problem.clone() });
        true
    }

    /// Hydrates the instance again after a turn that failed because of a refused event. Task rows and replies that were
    /// planned for the turn are written first; the other messages are delivered by the next turn.
    pub(super) fn try_without(
        &mut self,
        shared: &mut Shared,
        messages: Vec<Queued>,
        answers: Vec<RequestReply>,
    ) {
        self.queue.put_back(messages);
        let mut commit = Commit { replies: answers, ..shared.empty_commit(self.key) };
        let mut in_flight = InFlight::new(self.stored(), Next::Reloaded, Batch::default());
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        if commit.is_empty() {
            return self.reload(shared);
        }
        self.commit(shared, commit, in_flight);
    }

    /// The message with the result of a token call, if the code cannot decode it. The activity keeps waiting without
    /// it.
    pub(super) fn unreadable_result(&self, failure: &BlockReason, messages: &Batch) -> Option<InboxNumber> {
        let BlockReason::Turn(TurnFailure::History(HistoryError::PayloadMismatch {
            came_with: PayloadSource::NewResult { activity },
            ..
        })) = failure
        else {
            return None;
        };
        self.tasks.get(*activity).and_then(open_end)?;
        messages.iter().find_map(|queued| match &queued.message {
            Message::Outcome { job, .. } if job.source_event_id() == Some(*activity) => queued.number(),
            _ => None,
        })
    }

    /// What can be skipped to unblock the instance.
    pub(super) fn skippable(&self) -> Option<Skippable> {
        let columns = match &self.phase {
            Phase::Committing(in_flight) => Some(&in_flight.columns),
            _ => self.columns.as_ref(),
        };
        columns.and_then(|columns: &RowColumns| columns.skippable)
    }

    /// Whether a message requests to skip the event that blocks the instance.
    fn is_wanted_skip(&self, message: &Message) -> bool {
        message.is_skip() && message.skipped() == self.skippable()
    }

    /// How many jobs a turn takes that follows this many events and skips the event that blocks the instance: those up to
    /// that event. Another event that the code cannot read may follow. It would make the turn fail, and since a skip request
    /// is valid for one attempt only, neither of them could ever be skipped.
    pub(super) fn jobs_before(&self, skips: &[Queued], events: u64) -> usize {
        let skipped = skips.iter().filter(|queued| self.is_wanted_skip(&queued.message));
        let skipped = skipped.filter_map(|queued| match &queued.message {
            Message::Job(Job::ExternalEventSkipped { event_id }) => Some(event_id.0),
            _ => None,
        });
        let Some(last) = skipped.max() else { return usize::MAX };
        usize::try_from(last.saturating_sub(events)).unwrap_or(usize::MAX)
    }

    /// Delivers the requests to skip the event that blocks the instance, after everything else. Requests that name
    /// another event have no effect: that event may be readable, or the id may belong to a different event by now.
    pub(super) fn deliver_skips(&self, shared: &mut Shared, skips: Vec<Queued>, delivery: &mut Delivery) {
        for queued in skips {
            if self.is_wanted_skip(&queued.message) {
                delivery.append([queued]);
            } else {
                shared.counters.stale += 1;
                delivery.messages.push(queued);
            }
        }
    }
}
