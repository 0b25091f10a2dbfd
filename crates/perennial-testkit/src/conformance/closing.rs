//! S0: the end of a store.

use perennial_core::store::{CommitOutcome, Filter, StoreError};

use super::instances::{Build, key, member, message, row, start};
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
    closed(|reply| store.list(Filter::default(), None, 1, reply));
}

fn closed<T: Send + PartialEq + std::fmt::Debug + 'static>(
    call: impl FnOnce(perennial_core::store::Reply<T>),
) {
    let (reply, answer) = waiting();
    call(reply);
    assert_eq!(answer_of(&answer), Err(StoreError::Closed));
}
