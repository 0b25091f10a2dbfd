//! S0: closing a store.

use perennial_core::ShardId;
use perennial_core::store::{
    CommitOutcome, Criteria, InboxQuery, NewRequest, PageLimit, Served, SessionRole, ShardSet, StoreError,
};

use super::instances::{bytes, key, message, row, start, task};
use super::subject::{Make, Subject, answer_of, new_session, waiting};

pub fn s0_calls_before_closing_are_answered(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    let (started, answer) = waiting();
    subject.store().commit(session, subject.with_epochs(session, [start(&a)]), started);
    // Concurrent calls have no order, so the second does not depend on the first.
    let (also_started, second_answer) = waiting();
    subject.store().commit(session, subject.with_epochs(session, [start(&b)]), also_started);
    subject.close().unwrap();
    let durable = vec![CommitOutcome::Durable { sent: vec![] }];
    assert_eq!((answer_of(&answer), answer_of(&second_answer)), (Ok(durable.clone()), Ok(durable)));
}

pub fn s0_after_closing_every_call_fails_as_closed(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.close().unwrap();
    assert_eq!(subject.close(), Err(StoreError::Closed));
    let lane = || new_session(SessionRole::Lane, 1_000);
    assert_eq!(subject.open(lane()), Err(StoreError::Closed));
    assert_eq!(subject.renew(session), Err(StoreError::Closed));
    assert_eq!(subject.end(session), Err(StoreError::Closed));
    assert_eq!(subject.claim(session, 1), Err(StoreError::Closed));
    assert_eq!(subject.try_commit(session, [start(&row(1, "a"))]), Err(StoreError::Closed));
    assert_eq!(subject.try_send(vec![message("a", None, "x")]), Err(StoreError::Closed));
    let store = subject.store();
    let (shards, page, shard) = (ShardSet::EMPTY, PageLimit::rows(1), ShardId(0));
    closed(|reply| store.release_shards(session, shards, reply));
    closed(|reply| store.replace_session(session, lane(), reply));
    closed(|reply| store.write_shard_notes(session, vec![], false, reply));
    closed(|reply| store.directory(reply));
    closed(|reply| store.shard_owner(shard, reply));
    let query = InboxQuery { shards, from: 0, known: [].into(), limit: page };
    closed(|reply| store.read_inbox(session, query, reply));
    closed(|reply| store.read_due(session, shards, 0, None, 1, reply));
    closed(|reply| store.read_owed(session, shards, None, 1, reply));
    closed(|reply| store.read_blocked(session, shards, None, 1, reply));
    closed(|reply| store.find("a", reply));
    closed(|reply| store.load(shard, key(1), 0, page, reply));
    closed(|reply| store.read_turns(shard, key(1), 1, 0, page, reply));
    closed(|reply| store.take_tasks(session, Served::default(), 1, 1, reply));
    closed(|reply| store.held_tasks(session, reply));
    closed(|reply| store.renew_tasks(session, vec![], 1, reply));
    closed(|reply| store.finish_task(session, task(&row(1, "a"), 2).id, 1, bytes("done"), reply));
    closed(|reply| store.give_back_tasks(session, vec![], reply));
    let (instance, body) = ("a".to_owned(), bytes("how far?"));
    let request = NewRequest { instance, key: None, patience_ms: 1_000, after: None, body };
    closed(|reply| store.put_request(request, reply));
    closed(|reply| store.read_requests(session, shards, 0, page, reply));
    closed(|reply| store.read_reply(1, reply));
    closed(|reply| store.withdraw_request(1, reply));
    closed(|reply| store.sweep(1, None, reply));
    closed(|reply| store.read_setting("n", reply));
    closed(|reply| store.write_setting("n", None, None, reply));
    closed(|reply| store.list(Criteria::default(), None, 1, reply));
    closed(|reply| store.count(Criteria::default(), 1, reply));
    closed(|reply| store.list_tasks(None, 1, reply));
    closed(|reply| store.stats(reply));
    closed(|reply| store.prune_executions(session, shard, key(1), 1, 1, reply));
    closed(|reply| store.delete(vec![(shard, key(1))], reply));
}

fn closed<T: Send + PartialEq + std::fmt::Debug + 'static>(
    call: impl FnOnce(perennial_core::store::Reply<T>),
) {
    let (reply, answer) = waiting();
    call(reply);
    assert_eq!(answer_of(&answer), Err(StoreError::Closed));
}
