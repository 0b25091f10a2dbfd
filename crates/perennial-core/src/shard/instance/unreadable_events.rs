//! External events that the code cannot read: refused while somebody waits for the answer, else skipped by a person.

use crate::execution::TurnFailure;
use crate::history::{HistoryError, Job, PayloadSource};
use crate::store::{Commit, InboxNumber, RequestReply, Skippable};

use super::super::message::Message;
use super::super::request::{Answer, AskReply, PendingAsk, Question};
use super::super::shared::Shared;
use super::super::task_work::open_end;
use super::super::turn_task::TaskFailure;
use super::Instance;
use super::asking::reply_to;
use super::facts::Facts;
use super::in_flight::{Delivery, InFlight, Next, Phase};
use super::queued::{Batch, Queued};
use super::tasks::TaskPlan;

impl Instance {
    /// Refuses the event, or the result that came with a token, that made a turn fail, if its sender waits for the answer:
    /// nothing of the turn is recorded, and another can be taken without it. Returns whether it did.
    pub(super) fn refuse_event(
        &self,
        shared: &mut Shared,
        failure: &TaskFailure,
        messages: &mut Vec<Queued>,
        accepted: &mut Vec<PendingAsk>,
        answers: &mut Vec<RequestReply>,
    ) -> bool {
        let TaskFailure::Turn(TurnFailure::History(HistoryError::PayloadMismatch {
            type_name,
            problem,
            came_with,
            ..
        })) = failure
        else {
            return false;
        };
        // One that is not stored has nothing to be hydrated from.
        if self.facts.is_none() {
            return false;
        }
        let asked = accepted.iter().position(|ask| match (&ask.question, came_with) {
            (Question::Raise { key, .. }, PayloadSource::NewEvent { key: Some(found) }) => key == found,
            (Question::Token(call), PayloadSource::NewResult { activity }) => call.event == *activity,
            _ => false,
        });
        if let Some(position) = asked {
            let ask = accepted.remove(position);
            let reply = AskReply::Refused { reason: failure.to_string(), error: None };
            shared.outputs.extend(reply_to(ask.asker, reply, answers));
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
        shared.reply(caller, Answer::Unreadable { event, type_name, problem: problem.clone() });
        true
    }

    /// Hydrates the instance again after a turn that failed because of an event that was refused. Task rows and answers
    /// that were planned for the turn are written first; the other messages are for the next one.
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

    /// The message that brought a result with a token, if the code cannot read it. The activity goes on waiting without it.
    pub(super) fn unreadable_result(&self, failure: &TaskFailure, messages: &Batch) -> Option<InboxNumber> {
        let TaskFailure::Turn(TurnFailure::History(HistoryError::PayloadMismatch {
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

    /// What can be skipped to let the instance go on.
    pub(super) fn skippable(&self) -> Option<Skippable> {
        let facts = match &self.phase {
            Phase::Committing(in_flight) => Some(&in_flight.facts),
            _ => self.facts.as_ref(),
        };
        facts.and_then(|facts: &Facts| facts.skippable)
    }

    /// Whether a message asks for skipping the event that blocks the instance.
    fn is_wanted_skip(&self, message: &Message) -> bool {
        message.is_skip() && message.skipped() == self.skippable()
    }

    /// How many jobs a turn takes that comes after this many events and skips the one that blocks the instance: those up to
    /// it. Another event that the code cannot read may wait after it. The turn would fail for that one, and a skip counts
    /// for one try, so that neither of them could ever be skipped.
    pub(super) fn jobs_before(&self, skips: &[Queued], events: u64) -> usize {
        let skipped = skips.iter().filter(|queued| self.is_wanted_skip(&queued.message));
        let skipped = skipped.filter_map(|queued| match &queued.message {
            Message::Job(Job::ExternalEventSkipped { event_id }) => Some(event_id.0),
            _ => None,
        });
        let Some(last) = skipped.max() else { return usize::MAX };
        usize::try_from(last.saturating_sub(events)).unwrap_or(usize::MAX)
    }

    /// Delivers the requests to skip the event that blocks the instance, after everything else. Those that name another
    /// event come to nothing: that one may be in order, or be another one by now.
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
