//! S6: requests that want an answer, and answers that come with commits.

use perennial_core::SHARDS;
use perennial_core::store::{AskNumber, AskOutcome, AskRow, CommitOutcome, InstanceRow, Status};

use super::instances::{Build, bytes, member, row, start, status};
use super::subject::{Make, Subject};
use super::tasks::with_one;

fn numbers(asks: &[AskRow]) -> Vec<AskNumber> {
    asks.iter().map(|ask| ask.number).collect()
}

/// A time that does not come in these tests.
fn far(subject: &Subject) -> u64 {
    subject.clock.now_ms() + 1_000_000
}

pub fn s6_a_request_reaches_the_instance_of_the_id(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let deadline_ms = far(&subject) + 7;
    let number = subject.asked("a", deadline_ms, "\0how far?");
    let expected = AskRow { number, key: a.key, shard: a.shard, deadline_ms, body: bytes("\0how far?") };
    assert_eq!(subject.asks(session, 0, 10), [expected]);
    assert_eq!(subject.answer_to(number), None);
    // Who has ended can still be asked.
    subject.write(session, member(&a).turn(2, "ended").changing(status(Status::Completed)));
    let second = subject.asked("a", deadline_ms, "");
    assert_eq!(numbers(&subject.asks(session, 0, 10)), [number, second]);
    assert_eq!(subject.inbox(session, 0, 10), [], "a request is no message");
}

pub fn s6_a_request_to_nobody_is_refused(make: Make<'_>) {
    let (subject, session, _) = with_one(make);
    for id in ["b", "A", "a ", ""] {
        assert_eq!(subject.try_ask(id, far(&subject), "?"), AskOutcome::NoInstance, "{id:?}");
    }
    assert_eq!((subject.asks(session, 0, 10), subject.stats().asks.rows), (vec![], 0));
}

pub fn s6_requests_are_read_from_a_number_in_pages(make: Make<'_>) {
    let (subject, session, _) = with_one(make);
    subject.write(session, start(&row(2, "b")));
    let asked: Vec<AskNumber> = (0..10)
        .map(|number| subject.asked(if number % 3 == 0 { "a" } else { "b" }, far(&subject), "?"))
        .collect();
    assert!(asked.is_sorted_by(|one, next| one < next), "numbers count up: {asked:?}");
    assert_eq!(numbers(&subject.asks(session, 0, 100)), asked);
    assert_eq!(numbers(&subject.asks(session, 0, 4)), asked[..4]);
    assert_eq!(numbers(&subject.asks(session, asked[3] + 1, 4)), asked[4..8]);
    assert_eq!(numbers(&subject.asks(session, asked[8], 4)), asked[8..]);
    assert_eq!(numbers(&subject.asks(session, asked[9] + 1, 4)), Vec::<AskNumber>::new());
    assert_eq!(numbers(&subject.asks(session, 0, 0)), Vec::<AskNumber>::new());
}

pub fn s6_requests_are_read_by_the_shards_session_only(make: Make<'_>) {
    let subject = Subject::new(make);
    let first = subject.own_all();
    let rows: Vec<InstanceRow> = (1..=32).map(|number| row(number, &format!("order-{number}"))).collect();
    subject.commit(first, rows.iter().map(start));
    for row in &rows {
        subject.asked(&row.id, far(&subject), "?");
    }
    subject.end(first).unwrap();
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    let of_one = subject.claim(one, SHARDS / 2).unwrap();
    subject.claim(other, SHARDS).unwrap();
    let (mine, theirs) = (subject.asks(one, 0, 100), subject.asks(other, 0, 100));
    assert!(mine.iter().all(|ask| of_one.contains(&ask.shard)));
    assert!(!mine.is_empty() && !theirs.is_empty() && mine.len() + theirs.len() == rows.len());
    assert_eq!(subject.asks(one, 0, mine.len()), mine, "a page is filled although others' lie between");
    assert_eq!(subject.asks(first, 0, 100), [], "a session that is gone owns nothing");
}

pub fn s6_a_request_past_its_deadline_is_not_read(make: Make<'_>) {
    let (subject, session, _) = with_one(make);
    let now_ms = subject.clock.now_ms();
    let [late, soon] = [2_000, 1_000].map(|after_ms| subject.asked("a", now_ms + after_ms, "?"));
    let seen = || numbers(&subject.asks(session, 0, 10));
    subject.clock.advance(999);
    assert_eq!(seen(), [late, soon]);
    subject.clock.advance(1);
    assert_eq!(seen(), [late]);
    assert_eq!(numbers(&subject.asks(session, 0, 1)), [late], "it takes no room in a page");
    subject.clock.advance(1_001);
    assert_eq!(seen(), Vec::<AskNumber>::new());
    // One that was late from the beginning.
    subject.asked("a", now_ms, "?");
    assert_eq!(seen(), Vec::<AskNumber>::new());
}

pub fn s6_an_answer_comes_with_the_commit_that_gives_it(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let [of_update, of_query, open] = [(); 3].map(|()| subject.asked("a", far(&subject), "?"));
    subject.write(session, member(&a).turn(2, "updated").answering(of_update, "done"));
    assert_eq!(subject.answer_to(of_update), Some(bytes("done")));
    assert_eq!(numbers(&subject.asks(session, 0, 10)), [of_query, open]);
    // A query's comes without a turn.
    subject.write(session, member(&a).answering(of_query, "\0half").answering(999_999, "to nobody"));
    assert_eq!((subject.answer_to(of_query), subject.answer_to(999_999)), (Some(bytes("\0half")), None));
    assert_eq!((subject.answer_to(open), subject.answer_to(of_update)), (None, Some(bytes("done"))));
    assert_eq!(numbers(&subject.asks(session, 0, 10)), [open]);
    assert_eq!(subject.stats().asks.rows, 1);
    // The first answer counts.
    subject.write(
        session,
        member(&a).answering(of_update, "otherwise").answering(open, "").answering(open, "2"),
    );
    assert_eq!(
        (subject.answer_to(of_update), subject.answer_to(open)),
        (Some(bytes("done")), Some(bytes("")))
    );
}

pub fn s6_who_is_fenced_answers_nothing(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let number = subject.asked("a", far(&subject), "?");
    subject.end(session).unwrap();
    let late = member(&a).turn(2, "updated").answering(number, "done");
    assert_eq!(subject.commit(session, [late]), [CommitOutcome::Fenced]);
    assert_eq!(subject.answer_to(number), None);
    let heir = subject.own_all();
    assert_eq!(numbers(&subject.asks(heir, 0, 10)), [number]);
    subject.write(heir, member(&a).answering(number, "done"));
    assert_eq!(subject.answer_to(number), Some(bytes("done")));
}

pub fn s6_a_request_is_withdrawn_once_unless_it_was_answered(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let [withdrawn, answered, open] = [(); 3].map(|()| subject.asked("a", far(&subject), "?"));
    subject.write(session, member(&a).answering(answered, "done"));
    assert!(subject.withdraw(withdrawn));
    assert!(!subject.withdraw(withdrawn));
    assert!(!subject.withdraw(answered));
    assert!(!subject.withdraw(999_999));
    assert_eq!(numbers(&subject.asks(session, 0, 10)), [open]);
    assert_eq!(subject.answer_to(answered), Some(bytes("done")), "it can be read still");
    // An answer to what was withdrawn is dropped; the rest of the member is written.
    subject.write(session, member(&a).turn(2, "updated").answering(withdrawn, "too late"));
    assert_eq!(subject.answer_to(withdrawn), None);
    assert_eq!(subject.load(a.key, 0).unwrap().turns.len(), 2);
}

pub fn s6_requests_and_answers_are_swept_at_their_deadline(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let now_ms = subject.clock.now_ms();
    let [open, answered] = [(); 2].map(|()| subject.asked("a", now_ms + 1_000, "?"));
    let [later, later_answered] = [(); 2].map(|()| subject.asked("a", now_ms + 2_000, "?"));
    subject.write(session, member(&a).answering(answered, "done").answering(later_answered, "done"));
    subject.clock.advance(999);
    subject.sweep();
    assert_eq!(numbers(&subject.asks(session, 0, 10)), [open, later]);
    assert_eq!(subject.answer_to(answered), Some(bytes("done")));
    subject.clock.advance(1);
    subject.sweep();
    assert_eq!((subject.answer_to(answered), subject.withdraw(open)), (None, false));
    assert_eq!(subject.answer_to(later_answered), Some(bytes("done")));
    assert_eq!((numbers(&subject.asks(session, 0, 10)), subject.stats().asks.rows), (vec![later], 1));
    subject.write(session, member(&a).answering(open, "too late"));
    assert_eq!(subject.answer_to(open), None);
    subject.clock.advance(5_000);
    subject.sweep();
    assert_eq!((subject.answer_to(later_answered), subject.stats().asks.rows), (None, 0));
}

pub fn s6_a_requests_number_is_never_given_twice(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let mut last = 0;
    for round in 0..6 {
        let number = subject.asked("a", subject.clock.now_ms() + 1_000, "?");
        assert!(number > last, "{number} after {last}");
        // With its rows gone, nothing in the tables remembers it.
        match round % 3 {
            0 => assert!(subject.withdraw(number)),
            1 => drop(subject.write(session, member(&a).answering(number, "done"))),
            _ => {}
        }
        subject.clock.advance(1_001);
        subject.sweep();
        last = number;
    }
}
