//! What gathers while the store is busy is written as one transaction.

use std::sync::mpsc::{self, Receiver, Sender};

use crate::support::{Place, durable};
use perennial_core::SHARDS;
use perennial_core::store::{Commit, CommitOutcome, Conflict, SessionId, StoreError};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::instances::{Build, bytes, member, outgoing, row, start};
use perennial_testkit::conformance::{Subject, answer_of, waiting};

/// Keeps the thread that writes in a reply until this is dropped, so that calls gather.
struct Pause {
    _until_dropped: Sender<()>,
}

impl Pause {
    fn new(subject: &Subject) -> Pause {
        let (began, begins) = mpsc::channel();
        let (until_dropped, dropped) = mpsc::channel::<()>();
        let reply = move |_| {
            began.send(()).unwrap();
            dropped.recv().unwrap_err();
        };
        subject.store().send(vec![], Box::new(reply));
        begins.recv().unwrap();
        Pause { _until_dropped: until_dropped }
    }
}

type Response<T> = Receiver<Result<T, StoreError>>;

fn committing(subject: &Subject, session: SessionId, batch: Vec<Commit>) -> Response<Vec<CommitOutcome>> {
    let (reply, answer) = waiting();
    subject.store().commit(session, subject.with_epochs(session, batch), reply);
    answer
}

#[test]
fn g6_what_has_gathered_shares_one_transaction() {
    let place = Place::new();
    let small = SqliteOptions::default().max_pages(100);
    let owner = Subject::over(SqliteStore::open(place.path(), small).unwrap());
    let session = owner.own_all();
    let pause = Pause::new(&owner);
    let fits = committing(&owner, session, vec![start(&row(1, "a"))]);
    let too_large = committing(&owner, session, vec![start(&row(2, "b")).turn(1, &"x".repeat(1 << 20))]);
    drop(pause);
    let failure = answer_of(&too_large).unwrap_err();
    assert!(matches!(failure, StoreError::Failed(_)), "{failure}");
    assert_eq!(answer_of(&fits), Err(failure), "they are written together, or not at all");
    drop(owner);
    assert_eq!(place.owner().find("a"), None);
}

#[test]
fn s1_sessions_and_commits_of_one_transaction_see_one_another_also_when_it_is_done_again() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let heir = owner.open_session(60_000);
    let pause = Pause::new(&owner);
    let (reply, ended) = waiting();
    owner.store().end_session(session, reply);
    let fenced = committing(&owner, session, vec![member(&a).turn(2, "too late")]);
    let (reply, claimed) = waiting();
    owner.store().claim_shards(heir, SHARDS, reply);
    // The second member can only be undone when something of it is written: all of this is done twice.
    let b = row(2, "b");
    let as_heir = |member: Commit| Commit { epoch: 2, ..member };
    let two = [start(&b), member(&b).inserting(row(3, "c")).turn(1, "another")].map(as_heir);
    let heirs = committing(&owner, heir, two.into());
    let (reply, renewed) = waiting();
    owner.store().renew_session(heir, None, reply);
    drop(pause);
    assert_eq!(answer_of(&ended), Ok(()));
    assert_eq!(answer_of(&fenced), Ok(vec![CommitOutcome::Fenced]));
    assert_eq!(answer_of(&claimed).unwrap().len(), SHARDS);
    let conflict = CommitOutcome::Conflict(Conflict::OtherTurn);
    assert_eq!(answer_of(&heirs), Ok(vec![durable(), conflict]));
    assert!(answer_of(&renewed).is_ok());
    assert_eq!(owner.find("c"), None);
    owner.write(heir, as_heir(member(&a).turn(2, "the heir's")));
}

#[test]
fn s2_a_transaction_that_is_done_again_sends_each_message_once() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    owner.write(session, start(&b));
    let batch = [
        start(&a).sending([outgoing(&b, Some("key"), "from a"), outgoing(&b, None, "also from a")]),
        member(&b).inserting(row(3, "c")).turn(1, "another").sending([outgoing(&b, None, "never")]),
        member(&b)
            .turn(2, "second")
            .sending([outgoing(&b, Some("key"), "known"), outgoing(&a, None, "from b")]),
    ];
    let outcomes = owner.commit(session, batch);
    let inbox = owner.inbox(session, 0, 10);
    let bodies: Vec<_> = inbox.iter().map(|row| row.body.clone()).collect();
    assert_eq!(bodies, ["from a", "also from a", "from b"].map(bytes));
    let numbers: Vec<u64> = inbox.iter().map(|row| row.number).collect();
    assert_eq!(
        outcomes,
        [
            CommitOutcome::Durable { sent: vec![Some(numbers[0]), Some(numbers[1])] },
            CommitOutcome::Conflict(Conflict::OtherTurn),
            CommitOutcome::Durable { sent: vec![None, Some(numbers[2])] },
        ]
    );
}
