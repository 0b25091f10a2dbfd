//! S0: the end of a store.

use perennial_core::store::{Ask, CommitOutcome, Filter, Served, StoreError};

use super::instances::{Build, bytes, key, member, message, row, start, task};
use super::subject::{Make, Subject, answer_of, waiting};

pub fn s0_what_is_asked_before_closing_is_answered(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    let (started, answer) = waiting();
    subject.store().commit(session, [start(&a)].into(), started);
    let (went_on, second_answer) = waiting();
    subject.store().commit(session, [member(&a).turn(2, "x")].into(), went_on);
    subject.close().unwrap();
    let durable = vec![CommitOutcome::Durable { sent: vec![] }];
    assert_eq!((answer_of(&answer), answer_of(&second_answer)), (Ok(durable.clone()), Ok(durable)));
}

pub fn s0_after_closing_every_call_says_so(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.close().unwrap();
    assert_eq!(subject.close(), Err(StoreError::Closed));
    assert_eq!(subject.try_open_session(1).unwrap_err(), StoreError::Closed);
    assert_eq!(subject.renew(session), Err(StoreError::Closed));
    assert_eq!(subject.end(session), Err(StoreError::Closed));
    assert_eq!(subject.claim(session, 1), Err(StoreError::Closed));
    assert_eq!(subject.try_commit(session, [start(&row(1, "a"))]), Err(StoreError::Closed));
    assert_eq!(subject.try_send(vec![message("a", None, "x")]), Err(StoreError::Closed));
    let store = subject.store();
    closed(|reply| store.read_inbox(session, 0, 1, reply));
    closed(|reply| store.read_due(session, 0, None, 1, reply));
    closed(|reply| store.read_owed(session, None, 1, reply));
    closed(|reply| store.find("a", reply));
    closed(|reply| store.load(key(1), 0, reply));
    closed(|reply| store.read_turns(key(1), 1, 0, 1, reply));
    closed(|reply| store.take_tasks(session, Served::default(), 1, 1, reply));
    closed(|reply| store.renew_tasks(session, vec![], 1, reply));
    closed(|reply| store.finish_task(session, task(&row(1, "a"), 2).id, 1, bytes("done"), reply));
    closed(|reply| store.give_back_tasks(session, vec![], reply));
    let ask = Ask { instance: "a".to_owned(), deadline_ms: u64::MAX, body: bytes("how far?") };
    closed(|reply| store.ask(ask, reply));
    closed(|reply| store.read_asks(session, 0, 1, reply));
    closed(|reply| store.read_answer(1, reply));
    closed(|reply| store.withdraw_ask(1, reply));
    closed(|reply| store.sweep_asks(reply));
    closed(|reply| store.read_note("n", reply));
    closed(|reply| store.write_note(session, "n", None, reply));
    closed(|reply| store.list(Filter::default(), None, 1, reply));
    closed(|reply| store.count(Filter::default(), 1, reply));
    closed(|reply| store.stats(reply));
    closed(|reply| store.delete(vec![key(1)], reply));
}

fn closed<T: Send + PartialEq + std::fmt::Debug + 'static>(
    call: impl FnOnce(perennial_core::store::Reply<T>),
) {
    let (reply, answer) = waiting();
    call(reply);
    assert_eq!(answer_of(&answer), Err(StoreError::Closed));
}
