//! Sends of one process that wait for others share a transaction, and nothing else.

use std::sync::mpsc::Receiver;

use perennial_core::store::{InboxNumber, SendOutcome, SendRequest, SessionId, StoreError};
use perennial_testkit::conformance::instances::{message, row, start, start_request};
use perennial_testkit::conformance::{Subject, answer_of, waiting};
use perennial_testkit::postgres::TestServer;

use crate::support::{Sql, Wire, schema_of, subject};

/// How many statements send at the same time.
const AT_WORK: i64 = 2;

type Answer = Receiver<Result<Vec<SendOutcome>, StoreError>>;

fn begin_send(store: &Subject, request: SendRequest) -> Answer {
    let (reply, answer) = waiting();
    store.store().send(vec![request], reply);
    answer
}

fn number_of(answer: &Answer) -> InboxNumber {
    match answer_of(answer).as_deref() {
        Ok([SendOutcome::Sent(number)]) => *number,
        other => panic!("not sent: {other:?}"),
    }
}

/// Instances that messages wait for, until they are let go.
struct Held {
    session: SessionId,
    locks: Vec<Sql>,
    answers: Vec<Answer>,
}

impl Held {
    /// Occupies every statement that may send, so that later sends wait.
    fn all(url: &str, store: &Subject) -> Held {
        let session = store.own_all();
        let beside = Sql::connect(url);
        let mut held = Held { session, locks: Vec::new(), answers: Vec::new() };
        for number in 1..=AT_WORK {
            let id = format!("held-{number}");
            store.write(session, start(&row(u64::try_from(number).unwrap(), &id)));
            held.locks.push(lock(url, &id));
            held.answers.push(begin_send(store, message(&id, None, "waits")));
            beside.wait_for_waiters(number, &format!("{}\".send_messages", schema_of(url)));
        }
        held
    }

    /// Lets go once all sends that were begun wait. A commit does not wait for sends, and is begun after them.
    fn let_go(self, store: &Subject) {
        store.write(self.session, start(&row(99, "after")));
        self.locks.iter().for_each(|lock| lock.run("ROLLBACK"));
        self.answers.iter().for_each(|answer| assert_ne!(number_of(answer), 0));
    }
}

/// Locks an instance, so that who sends to it waits.
fn lock(url: &str, id: &str) -> Sql {
    let sql = Sql::in_schema(url);
    sql.run(&format!("BEGIN; SELECT 1 FROM instances WHERE id = '{id}' FOR UPDATE"));
    sql
}

#[test]
fn s3_sends_that_wait_share_a_transaction_and_have_outcomes_of_their_own() {
    let url = TestServer::shared().new_schema();
    let store = subject(&url);
    let held = Held::all(&url, &store);
    let requests = [
        start_request(&row(11, "a"), "start"),
        start_request(&row(12, "b"), "start"),
        start_request(&row(13, "a"), "start again"),
        message("held-1", Some("k"), "first"),
        message("held-1", Some("k"), "second"),
        message("nobody", None, "lost"),
        // An index entry of the server cannot be this large, which no check before finds out.
        start_request(&row(14, &large_id()), "start"),
        start_request(&row(15, "no\0text"), "start"),
        message("held-2", None, "last"),
    ];
    let answers: Vec<Answer> = requests.into_iter().map(|request| begin_send(&store, request)).collect();
    held.let_go(&store);
    let outcomes: Vec<_> =
        answers.iter().map(|answer| answer_of(answer).map(|mut one| one.remove(0))).collect();
    let is_sent = |place: usize| matches!(outcomes[place], Ok(SendOutcome::Sent(_)));
    // Calls have no order among each other: either start of an id may come first.
    assert!(is_sent(0) != is_sent(2), "{outcomes:?}");
    let taken = |outcome: &Result<SendOutcome, StoreError>| matches!(outcome, Ok(SendOutcome::IdTaken(_)));
    assert!(taken(&outcomes[0]) || taken(&outcomes[2]), "{outcomes:?}");
    assert!(is_sent(1) && is_sent(8), "{outcomes:?}");
    assert!(is_sent(3) != is_sent(4), "{outcomes:?}");
    assert_eq!(outcomes[5], Ok(SendOutcome::NoInstance));
    for place in [6, 7] {
        assert!(matches!(outcomes[place], Err(StoreError::BatchRefused(_))), "{:?}", outcomes[place]);
    }
}

#[test]
fn s3_sends_that_wait_are_one_transaction() {
    let url = TestServer::shared().new_schema();
    let store = subject(&url);
    let held = Held::all(&url, &store);
    let starts = (0..100).map(|number| start_request(&row(100 + number, &format!("i{number}")), "start"));
    let answers: Vec<Answer> = starts.map(|request| begin_send(&store, request)).collect();
    held.let_go(&store);
    let mut numbers: Vec<InboxNumber> = answers.iter().map(number_of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
    let sql = Sql::in_schema(&url);
    let transactions = "SELECT count(DISTINCT xmin::text) FROM instances WHERE id LIKE 'i%'";
    let transactions: i64 = sql.query(transactions, &[])[0].get(0);
    assert!(transactions <= AT_WORK, "{transactions} transactions");
}

#[test]
fn s3_sends_that_share_a_transaction_whose_answer_is_lost_are_all_in_doubt() {
    let url = TestServer::shared().new_schema();
    let beside = subject(&url);
    let (wire, through) = Wire::to(&format!("{url}&hints=off"));
    let store = subject(&through);
    let held = Held::all(&url, &store);
    store.write(held.session, start(&row(9, "third")));
    // The first of those that wait leads the others, and then waits itself.
    let third = lock(&url, "third");
    let mut answers = vec![begin_send(&store, message("third", Some("k"), "leads"))];
    answers.extend(
        [(21, "a"), (22, "b")].map(|(key, id)| begin_send(&store, start_request(&row(key, id), "start"))),
    );
    held.let_go(&store);
    Sql::connect(&url).wait_for_waiters(1, &format!("{}\".send_messages", schema_of(&url)));
    wire.lose_answers();
    third.run("ROLLBACK");
    for answer in &answers {
        let lost = answer_of(answer);
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    }
    // The connection is cut after the messages were sent, so they are written anyway.
    while beside.find("b").is_none() {
        std::thread::yield_now();
    }
    wire.mend();
    let again = answer_of(&begin_send(&store, message("third", Some("k"), "leads"))).unwrap();
    assert!(matches!(again[..], [SendOutcome::Duplicate(_)]), "the key settles it: {again:?}");
}

/// A long id that cannot be compressed.
fn large_id() -> String {
    let mut state = 7_u64;
    let next = std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + u8::try_from((state >> 33) % 90).unwrap())
    });
    next.take(20_000).collect()
}
