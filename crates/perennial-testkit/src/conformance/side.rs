//! One of the two stores of the model test, with the numbers it has assigned.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use perennial_core::store::{
    Commit, CommitOutcome, InboxNumber, InboxQuery, InboxRow, InstanceRow, LoadedInstance, NewRequest,
    NewSession, PageLimit, RequestNumber, RequestOutcome, RequestReply, RequestRow, SendOutcome, SessionRole,
    ShardSet, StoreError,
};

use super::instances::bytes;
use super::operation::{Member, MessagePlace, Operation, RequestPlace, SessionPlace, Shards, session_id};
use super::subject::{Make, Subject, wait_for};

pub(super) struct Side {
    pub(super) subject: Subject,
    /// Message numbers by position.
    pub(super) messages: Vec<InboxNumber>,
    places: BTreeMap<InboxNumber, MessagePlace>,
    /// Request numbers by position.
    pub(super) requests: Vec<RequestNumber>,
}

impl Side {
    pub(super) fn new(make: Make<'_>) -> Side {
        Side {
            subject: Subject::new(make),
            messages: Vec::new(),
            places: BTreeMap::new(),
            requests: Vec::new(),
        }
    }

    /// Makes the call, and returns the answer as text that is comparable between stores.
    pub(super) fn perform(&mut self, operation: &Operation) -> String {
        let subject = &self.subject;
        match operation.clone() {
            Operation::Advance(ms) => {
                subject.clock.advance(ms);
                String::new()
            }
            Operation::Commit(session, members) => {
                let batch: Vec<Commit> = members.into_iter().map(|member| self.member(member)).collect();
                let outcomes = subject.try_commit(session_id(session), batch);
                self.outcomes(outcomes)
            }
            Operation::Send(requests) => {
                let outcomes = subject.try_send(requests);
                self.send_outcomes(outcomes)
            }
            Operation::ReadInbox(session, shards, from, known, limit) => {
                let query = InboxQuery {
                    shards: self.shards(session, shards),
                    from: from.map_or(0, |place| self.messages[place]),
                    known: known.iter().map(|place| self.messages[*place]).collect(),
                    limit: PageLimit::rows(limit),
                };
                let page = wait_for(|reply| subject.store().read_inbox(session_id(session), query, reply));
                // The start of the next page is a number specific to the store.
                text(&page.map(|page| (self.places_of(page.rows), page.next.is_some())))
            }
            Operation::ReadDue(session, shards, before_ms, after, limit) => {
                let shards = self.shards(session, shards);
                text(&subject.try_due(session_id(session), shards, before_ms, after, limit))
            }
            Operation::ReadOwed(session, shards, after, limit) => {
                let shards = self.shards(session, shards);
                text(&subject.try_owed(session_id(session), shards, after, limit))
            }
            Operation::ReadBlocked(session, shards, after, limit) => {
                let shards = self.shards(session, shards);
                format!("blocked {:?}", subject.try_blocked(session_id(session), shards, after, limit))
            }
            Operation::Find(id) => text(&subject.find(id)),
            Operation::Load(row, after_turn, limit) => {
                let loaded = subject.load_page(&row, after_turn, PageLimit::rows(limit));
                text(&loaded.map(|LoadedInstance { row, turns, inbox, tasks }| {
                    (row, turns, self.places_of(inbox.rows), inbox.next.is_some(), tasks)
                }))
            }
            Operation::ReadTurns(row, execution, after_turn, limit) => {
                text(&subject.turn_rows(&row, execution, after_turn, PageLimit::rows(limit)))
            }
            Operation::List(filter, after, limit) => text(&subject.list(&filter, after, limit)),
            Operation::Count(filter, at_most) => text(&subject.count(&filter, at_most)),
            Operation::Stats => text(&subject.stats()),
            Operation::Delete(rows) => text(&subject.delete(&rows)),
            Operation::PruneExecutions(session, InstanceRow { shard, key, .. }, execution, rows) => {
                let (store, session) = (subject.store(), session_id(session));
                let swept =
                    wait_for(|reply| store.prune_executions(session, shard, key, execution, rows, reply));
                format!("pruned {swept:?}")
            }
            // Sweeps everything, since the store chooses which rows are swept first.
            Operation::Sweep => text(&subject.sweep_some(100_000)),
            Operation::SweepExecutions(keep_ms) => {
                format!("executions {}", text(&subject.sweep_executions(100_000, keep_ms)))
            }
            Operation::ReadSetting(name) => format!("setting {:?}", subject.setting(name)),
            Operation::WriteSetting(name, value) => text(&subject.write_setting(name, value)),
            Operation::ReplaceSetting(name, read, value) => {
                text(&subject.replace_setting(name, read.map(bytes), value))
            }
            other => self.perform_of_sessions_and_tasks(other),
        }
    }

    fn perform_of_sessions_and_tasks(&mut self, operation: Operation) -> String {
        let subject = &self.subject;
        match operation {
            Operation::OpenSession(session, role, lease_ms) => {
                format!("opened {}", in_use(subject.open(new_session(session, role, lease_ms))))
            }
            Operation::RenewSession(session) => text(&subject.renew(session_id(session))),
            Operation::EndSession(session) => text(&subject.end(session_id(session))),
            Operation::ClaimShards(session, target) => text(&subject.claim_rows(session_id(session), target)),
            Operation::ReleaseShards(session, shards) => text(&subject.release(session_id(session), shards)),
            Operation::ReplaceSession(old, new, lease_ms) => {
                let new = new_session(new, SessionRole::Lane, lease_ms);
                format!("replaced {}", in_use(subject.replace(session_id(old), new)))
            }
            Operation::WriteShardNotes(session, notes, is_steady) => {
                let note = |note: &str| Arc::from(note.as_bytes());
                let notes = notes.into_iter().map(|(shard, text)| (shard, text.map(note))).collect();
                format!("noted {:?}", subject.note(session_id(session), notes, is_steady))
            }
            Operation::Directory => text(&subject.directory()),
            Operation::TakeTasks(holder, served, lease_ms) => {
                // Takes all of them, since the store chooses which come first.
                let mut taken = subject.take(session_id(holder), &served, 10_000, lease_ms);
                taken.sort_by_key(|task| task.id);
                format!("took {taken:?}")
            }
            Operation::HeldTasks(holder) => {
                let mut held = subject.held(session_id(holder));
                held.sort_by_key(|task| task.id);
                format!("holds {held:?}")
            }
            Operation::RenewTasks(holder, tasks, lease_ms) => {
                format!("renewals {:?}", subject.report_tasks(session_id(holder), tasks, lease_ms))
            }
            Operation::FinishTask(holder, task, attempt, body) => {
                let finished = subject.finish(session_id(holder), task, attempt, body);
                let rows = subject.list(&Default::default(), None, 100_000).rows;
                let row = rows.into_iter().find(|row| row.key == task.key);
                format!("finished {finished} {:?}", row.and_then(|row| self.place_of_result(&row)))
            }
            Operation::GiveBackTasks(holder, tasks) => text(&subject.give_back(session_id(holder), tasks)),
            other => self.perform_of_requests(other),
        }
    }

    fn perform_of_requests(&mut self, operation: Operation) -> String {
        let subject = &self.subject;
        match operation {
            Operation::PutRequest(id, patience_ms, body) => {
                let (instance, body) = (id.to_owned(), Arc::from(body.as_bytes()));
                let after = patience_ms.is_multiple_of(3).then_some(patience_ms);
                match subject.put(NewRequest { instance, key: None, patience_ms, after, body }) {
                    RequestOutcome::Written(number) => {
                        assert!(self.requests.last().is_none_or(|last| *last < number), "numbers ascend");
                        self.requests.push(number);
                        "requested".to_owned()
                    }
                    RequestOutcome::NoInstance => "requested of nobody".to_owned(),
                }
            }
            Operation::ReadRequests(session, shards, from, limit) => {
                let from = from.map_or(0, |place| self.requests[place]);
                let shards = self.shards(session, shards);
                let page = subject.request_page(session_id(session), shards, from, PageLimit::rows(limit));
                let page = page.map(|page| (self.requests_of(page.rows), page.next.is_some()));
                format!("requests {page:?}")
            }
            Operation::ReadReply(place) => format!("reply {:?}", subject.reply_to(self.requests[place])),
            Operation::WithdrawRequest(place) => {
                format!("withdrew {}", subject.withdraw(self.requests[place]))
            }
            other => unreachable!("{other:?} is handled elsewhere"),
        }
    }

    fn shards(&self, session: SessionPlace, shards: Shards) -> ShardSet {
        let owned = self.subject.shards_of(session_id(session));
        match shards {
            Shards::Owned => owned,
            Shards::OwnedAmong(some) => owned.and(&some),
            Shards::All => ShardSet::ALL,
        }
    }

    /// The member with the numbers of this store.
    fn member(&self, member: Member) -> Commit {
        let Member { mut commit, consumed, seen, replies } = member;
        commit.consumed = consumed.iter().map(|place| self.messages[*place]).collect();
        commit.seen = seen.iter().map(|place| self.messages[*place]).collect();
        let reply = |(place, body): (RequestPlace, &str)| RequestReply {
            number: self.requests[place],
            body: Arc::from(body.as_bytes()),
        };
        commit.replies = replies.into_iter().map(reply).collect();
        commit
    }

    fn outcomes(&mut self, outcomes: Result<Vec<CommitOutcome>, StoreError>) -> String {
        let mut words = Vec::new();
        for outcome in outcomes.expect("the commit is answered") {
            words.push(match outcome {
                CommitOutcome::Durable { sent } => {
                    let places: Vec<_> = sent.into_iter().map(|number| self.place_of(number)).collect();
                    format!("durable {places:?}")
                }
                other => text(&other),
            });
        }
        words.join("; ")
    }

    fn send_outcomes(&mut self, outcomes: Result<Vec<SendOutcome>, StoreError>) -> String {
        let mut words = Vec::new();
        for outcome in outcomes.expect("the send is answered") {
            words.push(match outcome {
                SendOutcome::Sent(number) => format!("sent {:?}", self.place_of(Some(number))),
                SendOutcome::Duplicate(number) => format!("duplicate of {:?}", self.places[&number]),
                other => text(&other),
            });
        }
        words.join("; ")
    }

    /// The position of a message that was just sent.
    fn place_of(&mut self, number: Option<InboxNumber>) -> Option<MessagePlace> {
        let number = number?;
        assert!(self.messages.last().is_none_or(|last| *last < number), "numbers ascend");
        self.places.insert(number, self.messages.len());
        self.messages.push(number);
        Some(self.messages.len() - 1)
    }

    /// The position of the message that the end of a task has sent. The store does not return its number.
    fn place_of_result(&mut self, row: &InstanceRow) -> Option<MessagePlace> {
        let inbox = self.subject.load(row, 0)?.inbox;
        let new: Vec<InboxNumber> =
            inbox.iter().map(|row| row.number).filter(|number| !self.places.contains_key(number)).collect();
        assert!(new.len() <= 1, "one message per task");
        self.place_of(new.first().copied())
    }

    pub(super) fn places_of(&self, rows: Vec<InboxRow>) -> Vec<(MessagePlace, impl Debug + use<>)> {
        let place = |row: InboxRow| (self.places[&row.number], InboxRow { number: 0, ..row });
        rows.into_iter().map(place).collect()
    }

    /// Requests with positions for numbers.
    fn requests_of(&self, requests: Vec<RequestRow>) -> Vec<RequestRow> {
        let place =
            |number: RequestNumber| self.requests.binary_search(&number).expect("its number was returned");
        let with_place = |request: RequestRow| RequestRow {
            number: u64::try_from(place(request.number)).expect("a usize fits"),
            ..request
        };
        requests.into_iter().map(with_place).collect()
    }
}

fn new_session(session: SessionPlace, role: SessionRole, lease_ms: u64) -> NewSession {
    let id = session_id(session);
    NewSession { id, role, node: id, lease_ms, info: [].into() }
}

/// The description of the current user depends on the store.
fn in_use<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::InUse(_)) => "in use".to_owned(),
        other => text(&other),
    }
}

fn text(answer: &impl Debug) -> String {
    format!("{answer:?}")
}
