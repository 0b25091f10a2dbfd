//! What the store is asked for, with the place for the answer.

use std::sync::Arc;

use perennial_core::store::{
    Ask, AskNumber, AskOutcome, AskRow, Commit, CommitOutcome, Count, DeleteOutcome, DueInstance, Filter,
    InboxNumber, InboxRow, InstanceRow, Lease, LoadedInstance, Page, PageKey, Reply, SendOutcome,
    SendRequest, Served, Session, SessionId, StoreError, StoreStats, TaskId, TaskRenewal, TaskRow,
};
use perennial_core::{InstanceKey, Payload, ShardId};

use crate::read_queue::Asker;

/// Where an answer goes. Should the thread that owes it stop in the middle, whoever waits is told so.
pub(crate) struct Answer<T>(Option<Reply<T>>);

impl<T> Answer<T> {
    pub(crate) fn to(reply: Reply<T>) -> Answer<T> {
        Answer(Some(reply))
    }

    pub(crate) fn give(mut self, answer: Result<T, StoreError>) {
        if let Some(reply) = self.0.take() {
            reply(answer);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            let reason =
                "a thread of the store stopped before it could answer; this is a defect of Perennial";
            reply(Err(StoreError::Unknown(reason.to_owned())));
        }
    }
}

/// A question of the thread that writes. The answer is kept until the transaction is durable.
pub(crate) struct Asked<Q, A> {
    pub(crate) question: Q,
    pub(crate) answer: Option<Result<A, StoreError>>,
    reply: Answer<A>,
}

impl<Q, A> Asked<Q, A> {
    pub(crate) fn new(question: Q, reply: Reply<A>) -> Asked<Q, A> {
        Asked { question, answer: None, reply: Answer::to(reply) }
    }

    fn finish(self, outcome: &Result<(), StoreError>) {
        let answer = match outcome {
            Ok(()) => self.answer.expect("every question of a transaction is answered in it"),
            Err(error) => Err(error.clone()),
        };
        self.reply.give(answer);
    }
}

/// What is written.
pub(crate) enum WriteRequest {
    OpenSession(Asked<NewSession, Session>),
    RenewSession(Asked<SessionId, Lease>),
    EndSession(Asked<SessionId, ()>),
    ClaimShards(Asked<Claim, Vec<ShardId>>),
    Commit(Asked<Batch, Vec<CommitOutcome>>),
    Send(Asked<Vec<SendRequest>, Vec<SendOutcome>>),
    TakeTasks(Asked<TaskTake, Vec<TaskRow>>),
    RenewTasks(Asked<TaskRenewals, Vec<TaskRenewal>>),
    FinishTask(Asked<TaskEnd, bool>),
    GiveBackTasks(Asked<(SessionId, Vec<TaskId>), ()>),
    Ask(Asked<Ask, AskOutcome>),
    WithdrawAsk(Asked<AskNumber, bool>),
    SweepAsks(Asked<(), ()>),
    WriteNote(Asked<NewNote, ()>),
    Delete(Asked<Vec<InstanceKey>, Vec<DeleteOutcome>>),
}

pub(crate) struct NewSession {
    pub(crate) node: String,
    pub(crate) lease_ms: u64,
}

pub(crate) struct Claim {
    pub(crate) session: SessionId,
    pub(crate) at_most: usize,
}

pub(crate) struct Batch {
    pub(crate) session: SessionId,
    pub(crate) members: Arc<[Commit]>,
}

pub(crate) struct TaskTake {
    pub(crate) holder: SessionId,
    pub(crate) served: Served,
    pub(crate) limit: usize,
    pub(crate) lease_ms: u64,
}

pub(crate) struct TaskRenewals {
    pub(crate) holder: SessionId,
    pub(crate) tasks: Vec<(TaskId, Option<Payload>)>,
    pub(crate) lease_ms: u64,
}

pub(crate) struct TaskEnd {
    pub(crate) holder: SessionId,
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) body: Arc<[u8]>,
}

pub(crate) struct NewNote {
    pub(crate) session: SessionId,
    pub(crate) name: String,
    pub(crate) body: Option<Arc<[u8]>>,
}

impl WriteRequest {
    /// Answers, now that the outcome of the transaction is known.
    pub(crate) fn finish(self, outcome: &Result<(), StoreError>) {
        match self {
            WriteRequest::OpenSession(asked) => asked.finish(outcome),
            WriteRequest::RenewSession(asked) => asked.finish(outcome),
            WriteRequest::EndSession(asked) => asked.finish(outcome),
            WriteRequest::ClaimShards(asked) => asked.finish(outcome),
            WriteRequest::Commit(asked) => asked.finish(outcome),
            WriteRequest::Send(asked) => asked.finish(outcome),
            WriteRequest::TakeTasks(asked) => asked.finish(outcome),
            WriteRequest::RenewTasks(asked) => asked.finish(outcome),
            WriteRequest::FinishTask(asked) => asked.finish(outcome),
            WriteRequest::GiveBackTasks(asked) => asked.finish(outcome),
            WriteRequest::Ask(asked) => asked.finish(outcome),
            WriteRequest::WithdrawAsk(asked) => asked.finish(outcome),
            WriteRequest::SweepAsks(asked) => asked.finish(outcome),
            WriteRequest::WriteNote(asked) => asked.finish(outcome),
            WriteRequest::Delete(asked) => asked.finish(outcome),
        }
    }

    /// How much there is to write.
    pub(crate) fn weight(&self) -> usize {
        match self {
            WriteRequest::Commit(asked) => asked.question.members.len(),
            WriteRequest::Send(asked) => asked.question.len(),
            WriteRequest::RenewTasks(asked) => asked.question.tasks.len(),
            WriteRequest::GiveBackTasks(asked) => asked.question.1.len(),
            // Each with all its turns.
            WriteRequest::Delete(asked) => asked.question.len().saturating_mul(16),
            _ => 1,
        }
    }

    /// Whether somebody may wait for what it wrote, once it is answered.
    pub(crate) fn is_news(&self) -> bool {
        match self {
            WriteRequest::Commit(asked) => match &asked.answer {
                Some(Ok(outcomes)) => {
                    let members = asked.question.members.iter();
                    members.zip(outcomes).any(|(member, outcome)| speaks(member, outcome))
                }
                _ => false,
            },
            WriteRequest::Send(asked) => match &asked.answer {
                Some(Ok(outcomes)) => outcomes.iter().any(|outcome| matches!(outcome, SendOutcome::Sent(_))),
                _ => false,
            },
            WriteRequest::FinishTask(asked) => asked.answer == Some(Ok(true)),
            WriteRequest::GiveBackTasks(asked) => !asked.question.1.is_empty(),
            WriteRequest::Ask(asked) => matches!(asked.answer, Some(Ok(AskOutcome::Asked(_)))),
            _ => false,
        }
    }
}

/// Whether a member sent a message, or answered somebody.
fn speaks(member: &Commit, outcome: &CommitOutcome) -> bool {
    match outcome {
        CommitOutcome::Durable { sent } => !member.answers.is_empty() || sent.iter().any(Option::is_some),
        _ => false,
    }
}

/// What is read.
pub(crate) enum ReadRequest {
    Inbox {
        session: SessionId,
        from: InboxNumber,
        limit: usize,
        reply: Answer<Vec<InboxRow>>,
    },
    Due {
        session: SessionId,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
        reply: Answer<Vec<DueInstance>>,
    },
    Owed {
        session: SessionId,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Answer<Vec<(InstanceKey, ShardId)>>,
    },
    Find {
        id: String,
        reply: Answer<Option<InstanceRow>>,
    },
    Load {
        key: InstanceKey,
        after_turn: u64,
        reply: Answer<Option<LoadedInstance>>,
    },
    Turns {
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: usize,
        reply: Answer<Vec<Arc<[u8]>>>,
    },
    List {
        filter: Filter,
        after: Option<PageKey>,
        limit: usize,
        reply: Answer<Page>,
    },
    Count {
        filter: Filter,
        at_most: u64,
        reply: Answer<Count>,
    },
    Stats {
        reply: Answer<StoreStats>,
    },
    Asks {
        session: SessionId,
        from: AskNumber,
        limit: usize,
        reply: Answer<Vec<AskRow>>,
    },
    AnswerTo {
        number: AskNumber,
        reply: Answer<Option<Arc<[u8]>>>,
    },
    Note {
        name: String,
        reply: Answer<Option<Arc<[u8]>>>,
    },
}

impl ReadRequest {
    /// Who waits for the answer.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            ReadRequest::List { .. } | ReadRequest::Count { .. } | ReadRequest::Stats { .. } => Asker::Looker,
            _ => Asker::Engine,
        }
    }

    /// Answers without having looked.
    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            ReadRequest::Inbox { reply, .. } => reply.give(Err(error)),
            ReadRequest::Due { reply, .. } => reply.give(Err(error)),
            ReadRequest::Owed { reply, .. } => reply.give(Err(error)),
            ReadRequest::Find { reply, .. } => reply.give(Err(error)),
            ReadRequest::Load { reply, .. } => reply.give(Err(error)),
            ReadRequest::Turns { reply, .. } => reply.give(Err(error)),
            ReadRequest::List { reply, .. } => reply.give(Err(error)),
            ReadRequest::Count { reply, .. } => reply.give(Err(error)),
            ReadRequest::Stats { reply } => reply.give(Err(error)),
            ReadRequest::Asks { reply, .. } => reply.give(Err(error)),
            ReadRequest::AnswerTo { reply, .. } => reply.give(Err(error)),
            ReadRequest::Note { reply, .. } => reply.give(Err(error)),
        }
    }
}

/// What the thread that writes is given.
pub(crate) enum Work {
    Write(WriteRequest),
    /// In memory there is one connection only, and this thread reads, too.
    Read(ReadRequest),
    Close(Answer<()>),
}

impl Work {
    /// Answers without having done anything.
    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            Work::Write(request) => request.finish(&Err(error)),
            Work::Read(request) => request.refuse(error),
            Work::Close(reply) => reply.give(Err(error)),
        }
    }
}
