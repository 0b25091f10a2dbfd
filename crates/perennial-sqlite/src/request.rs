//! What the store is asked for, with the place for the answer.

use std::sync::Arc;

use perennial_core::store::{
    Commit, CommitOutcome, DueInstance, Filter, InboxNumber, InboxRow, InstanceRow, Lease, LoadedInstance,
    Page, PageKey, Reply, SendOutcome, SendRequest, Session, SessionId, StoreError,
};
use perennial_core::{InstanceKey, ShardId};

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
        }
    }

    /// How much there is to write.
    pub(crate) fn weight(&self) -> usize {
        match self {
            WriteRequest::Commit(asked) => asked.question.members.len(),
            WriteRequest::Send(asked) => asked.question.len(),
            _ => 1,
        }
    }

    /// Whether it appended messages, once it is answered.
    pub(crate) fn sent_messages(&self) -> bool {
        match self {
            WriteRequest::Commit(asked) => match &asked.answer {
                Some(Ok(outcomes)) => outcomes.iter().any(has_sent),
                _ => false,
            },
            WriteRequest::Send(asked) => match &asked.answer {
                Some(Ok(outcomes)) => outcomes.iter().any(|outcome| matches!(outcome, SendOutcome::Sent(_))),
                _ => false,
            },
            _ => false,
        }
    }
}

fn has_sent(outcome: &CommitOutcome) -> bool {
    match outcome {
        CommitOutcome::Durable { sent } => sent.iter().any(Option::is_some),
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
}

impl ReadRequest {
    /// Who waits for the answer.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            ReadRequest::List { .. } => Asker::Looker,
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
