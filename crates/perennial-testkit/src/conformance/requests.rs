//! S6: requests, and replies that are written with commits.

use perennial_core::SHARDS;
use perennial_core::store::{
    CommitOutcome, InstanceRow, NewRequest, RequestNumber, RequestOutcome, RequestRow, Status,
};

use super::instances::{Build, bytes, member, row, start, status};
use super::subject::{Make, Subject};
use super::tasks::with_one;

fn numbers(requests: &[RequestRow]) -> Vec<RequestNumber> {
    requests.iter().map(|request| request.number).collect()
}

/// Longer than these tests take on the store's clock.
const LONG_MS: u64 = 1_000_000;

pub fn s6_a_request_reaches_the_instance_of_the_id(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let (instance, body) = ("a".to_owned(), bytes("\0how far?"));
    let request =
        NewRequest { instance, key: Some(a.key), patience_ms: 7_000, after: Some(77), body: body.clone() };
    let RequestOutcome::Written(number) = subject.put(request) else { panic!("the request is refused") };
    let deadline_ms = subject.clock.now_ms() + 7_000;
    let expected = RequestRow { number, key: a.key, shard: a.shard, deadline_ms, after: Some(77), body };
    assert_eq!(subject.requests(session, 0, 10), [expected]);
    assert_eq!(subject.reply_to(number), None);
    // An instance that has ended can still be queried.
    subject.write(session, member(&a).turn(2, "ended").changing(status(Status::Completed)));
    let second = subject.requested("a", LONG_MS, "");
    assert_eq!(numbers(&subject.requests(session, 0, 10)), [number, second]);
    assert_eq!(subject.inbox(session, 0, 10), [], "a request is not a message");
}

pub fn s6_a_request_without_an_instance_is_refused(make: Make<'_>) {
    let (subject, session, _) = with_one(make);
    for id in ["b", "A", "a ", ""] {
        assert_eq!(subject.request(id, LONG_MS, "?"), RequestOutcome::NoInstance, "{id:?}");
    }
    let (instance, key, body) = ("a".to_owned(), Some(row(2, "a").key), bytes("?"));
    let of_another = NewRequest { instance, key, patience_ms: LONG_MS, after: None, body };
    assert_eq!(subject.put(of_another), RequestOutcome::NoInstance, "the id is another instance's");
    assert_eq!((subject.requests(session, 0, 10), subject.stats().requests.rows), (vec![], 0));
}

pub fn s6_requests_are_read_from_a_number_in_pages(make: Make<'_>) {
    let (subject, session, _) = with_one(make);
    subject.write(session, start(&row(2, "b")));
    let asked: Vec<RequestNumber> = (0..10)
        .map(|number| subject.requested(if number % 3 == 0 { "a" } else { "b" }, LONG_MS, "?"))
        .collect();
    assert!(asked.is_sorted_by(|one, next| one < next), "numbers ascend: {asked:?}");
    assert_eq!(numbers(&subject.requests(session, 0, 100)), asked);
    assert_eq!(numbers(&subject.requests(session, 0, 4)), asked[..4]);
    assert_eq!(numbers(&subject.requests(session, asked[3] + 1, 4)), asked[4..8]);
    assert_eq!(numbers(&subject.requests(session, asked[8], 4)), asked[8..]);
    assert_eq!(numbers(&subject.requests(session, asked[9] + 1, 4)), Vec::<RequestNumber>::new());
    assert_eq!(numbers(&subject.requests(session, 0, 0)), asked[..1], "a page has at least one row");
}

pub fn s6_requests_are_read_only_by_the_session_of_the_shard(make: Make<'_>) {
    let subject = Subject::new(make);
    let first = subject.own_all();
    let rows: Vec<InstanceRow> = (1..=32).map(|number| row(number, &format!("order-{number}"))).collect();
    subject.commit(first, rows.iter().map(start));
    for row in &rows {
        subject.requested(&row.id, LONG_MS, "?");
    }
    subject.end(first).unwrap();
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    let of_one = subject.claim(one, SHARDS / 2).unwrap();
    subject.claim(other, SHARDS).unwrap();
    let (mine, theirs) = (subject.requests(one, 0, 100), subject.requests(other, 0, 100));
    assert!(mine.iter().all(|request| of_one.contains(&request.shard)));
    assert!(!mine.is_empty() && !theirs.is_empty() && mine.len() + theirs.len() == rows.len());
    assert_eq!(
        subject.requests(one, 0, mine.len()),
        mine,
        "a page is full even if others' requests lie in between"
    );
}

pub fn s6_a_request_past_its_deadline_is_not_read(make: Make<'_>) {
    let (subject, session, _) = with_one(make);
    let [late, soon] = [2_000, 1_000].map(|patience_ms| subject.requested("a", patience_ms, "?"));
    let seen = || numbers(&subject.requests(session, 0, 10));
    subject.clock.advance(999);
    assert_eq!(seen(), [late, soon]);
    subject.clock.advance(1);
    assert_eq!(seen(), [late]);
    assert_eq!(numbers(&subject.requests(session, 0, 1)), [late], "the expired one takes no room in a page");
    subject.clock.advance(1_001);
    assert_eq!(seen(), Vec::<RequestNumber>::new());
    // A request that expires at once.
    subject.requested("a", 0, "?");
    assert_eq!(seen(), Vec::<RequestNumber>::new());
}

pub fn s6_a_reply_is_written_with_its_commit(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let [of_update, of_query, open] = [(); 3].map(|()| subject.requested("a", LONG_MS, "?"));
    subject.write(session, member(&a).turn(2, "updated").replying(of_update, "done"));
    assert_eq!(subject.reply_to(of_update), Some(bytes("done")));
    assert_eq!(numbers(&subject.requests(session, 0, 10)), [of_query, open]);
    // The reply to a query is written without a turn.
    subject.write(session, member(&a).replying(of_query, "\0half").replying(999_999, "to nobody"));
    assert_eq!((subject.reply_to(of_query), subject.reply_to(999_999)), (Some(bytes("\0half")), None));
    assert_eq!((subject.reply_to(open), subject.reply_to(of_update)), (None, Some(bytes("done"))));
    assert_eq!(numbers(&subject.requests(session, 0, 10)), [open]);
    assert_eq!(subject.stats().requests.rows, 1);
    // The first reply counts.
    subject
        .write(session, member(&a).replying(of_update, "otherwise").replying(open, "").replying(open, "2"));
    assert_eq!((subject.reply_to(of_update), subject.reply_to(open)), (Some(bytes("done")), Some(bytes(""))));
}

pub fn s6_a_fenced_member_writes_no_reply(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let number = subject.requested("a", LONG_MS, "?");
    subject.end(session).unwrap();
    let late = member(&a).turn(2, "updated").replying(number, "done");
    assert_eq!(subject.commit(session, [late]), [CommitOutcome::Fenced]);
    assert_eq!(subject.reply_to(number), None);
    let heir = subject.own_all();
    assert_eq!(numbers(&subject.requests(heir, 0, 10)), [number]);
    subject.write(heir, member(&a).replying(number, "done"));
    assert_eq!(subject.reply_to(number), Some(bytes("done")));
}

pub fn s6_a_request_is_withdrawn_once_unless_it_has_a_reply(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let [withdrawn, answered, open] = [(); 3].map(|()| subject.requested("a", LONG_MS, "?"));
    subject.write(session, member(&a).replying(answered, "done"));
    assert!(subject.withdraw(withdrawn));
    assert!(!subject.withdraw(withdrawn));
    assert!(!subject.withdraw(answered));
    assert!(!subject.withdraw(999_999));
    assert_eq!(numbers(&subject.requests(session, 0, 10)), [open]);
    assert_eq!(subject.reply_to(answered), Some(bytes("done")), "it can still be read");
    // A reply to a withdrawn request is dropped; the rest of the member is written.
    subject.write(session, member(&a).turn(2, "updated").replying(withdrawn, "too late"));
    assert_eq!(subject.reply_to(withdrawn), None);
    assert_eq!(subject.load(&a, 0).unwrap().turns.len(), 2);
}

pub fn s6_requests_and_replies_are_swept_at_their_deadline(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let [open, answered] = [(); 2].map(|()| subject.requested("a", 1_000, "?"));
    let [later, later_answered] = [(); 2].map(|()| subject.requested("a", 2_000, "?"));
    subject.write(session, member(&a).replying(answered, "done").replying(later_answered, "done"));
    subject.clock.advance(999);
    subject.sweep();
    assert_eq!(numbers(&subject.requests(session, 0, 10)), [open, later]);
    assert_eq!(subject.reply_to(answered), Some(bytes("done")));
    subject.clock.advance(1);
    subject.sweep();
    assert_eq!((subject.reply_to(answered), subject.withdraw(open)), (None, false));
    assert_eq!(subject.reply_to(later_answered), Some(bytes("done")));
    assert_eq!((numbers(&subject.requests(session, 0, 10)), subject.stats().requests.rows), (vec![later], 1));
    subject.write(session, member(&a).replying(open, "too late"));
    assert_eq!(subject.reply_to(open), None);
    subject.clock.advance(5_000);
    subject.sweep();
    assert_eq!((subject.reply_to(later_answered), subject.stats().requests.rows), (None, 0));
}

pub fn s6_a_request_number_is_never_reused(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let mut last = 0;
    for round in 0..6 {
        let number = subject.requested("a", 1_000, "?");
        assert!(number > last, "{number} after {last}");
        // With its rows deleted, the tables do not contain the number.
        match round % 3 {
            0 => assert!(subject.withdraw(number)),
            1 => drop(subject.write(session, member(&a).replying(number, "done"))),
            _ => {}
        }
        subject.clock.advance(1_001);
        subject.sweep();
        last = number;
    }
}
