//! S3: messages from senders other than the owner.

use perennial_core::store::memory::MAX_UNREAD;
use perennial_core::store::{InstanceRow, RowChange, SendOutcome, SendRequest, Status};

use super::instances::{
    Build, blocked, bytes, member, message, outgoing, row, start, start_request as starting, status, urgent,
};
use super::subject::{Make, Subject, answer_of, waiting};

pub fn s3_a_message_reaches_the_instance_of_the_id(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&a));
    subject.write(session, start(&b));
    let number = subject.sent(message("b", None, "hello"));
    let inbox = subject.inbox(session, 0, 10);
    assert_eq!(inbox.len(), 1);
    assert_eq!((inbox[0].number, inbox[0].key, inbox[0].shard), (number, b.key, b.shard));
    assert_eq!(inbox[0].body, bytes("hello"));
}

pub fn s3_a_start_inserts_a_row_and_a_message(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    let number = subject.sent(starting(&a, "start"));
    let pending = InstanceRow { status: Status::Pending, ..a.clone() };
    assert_eq!(subject.find("a"), Some(pending.clone()));
    let inbox = subject.inbox(session, 0, 10);
    assert_eq!(inbox.len(), 1);
    assert_eq!((inbox[0].number, inbox[0].key, inbox[0].body.clone()), (number, a.key, bytes("start")));
    // Its first turn is committed without a row.
    let first = member(&a).turn(1, "started").changing(status(Status::Running)).consuming([number]);
    subject.write(session, first);
    assert_eq!(subject.find("a"), Some(a));
    assert_eq!(subject.inbox(session, 0, 10), []);
}

pub fn s3_only_one_of_many_starts_of_an_id_succeeds(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let answers: Vec<_> = (1..=20)
        .map(|number| {
            let (reply, answer) = waiting();
            subject.store().send(vec![starting(&row(number, "a"), "start")], reply);
            answer
        })
        .collect();
    let outcomes: Vec<SendOutcome> =
        answers.iter().flat_map(|answer| answer_of(answer).expect("the send is answered")).collect();
    let winner = subject.find("a").expect("one of them");
    let won = outcomes.iter().filter(|outcome| matches!(outcome, SendOutcome::Sent(_))).count();
    let lost = SendOutcome::IdTaken(Box::new(winner.clone()));
    assert_eq!((won, outcomes.iter().filter(|outcome| **outcome == lost).count()), (1, 19));
    let inbox = subject.inbox(session, 0, 100);
    assert_eq!(inbox.iter().map(|row| row.key).collect::<Vec<_>>(), [winner.key]);
}

pub fn s3_a_key_is_accepted_once_while_its_message_waits(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let number = subject.sent(message("a", Some("payment"), "first"));
    let again = subject.send(message("a", Some("payment"), "second"));
    assert_eq!(again, SendOutcome::Duplicate(number), "the waiting message is named");
    subject.sent(message("a", Some("Payment"), "another key"));
    subject.sent(message("a", None, "no key"));
    subject.sent(message("a", None, "no key either"));
    let bodies: Vec<_> = subject.inbox(session, 0, 10).into_iter().map(|row| row.body).collect();
    assert_eq!(bodies, ["first", "another key", "no key", "no key either"].map(bytes));
    // Keys of consumed messages are remembered by the instance.
    subject.write(session, member(&a).turn(2, "paid").consuming([number]));
    subject.sent(message("a", Some("payment"), "third"));
}

pub fn s3_keys_belong_to_their_instance(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.write(session, start(&row(1, "a")));
    subject.write(session, start(&row(2, "b")));
    let (one, other) = (message("a", Some("k"), "1"), message("b", Some("k"), "2"));
    assert!(subject.sent(one) < subject.sent(other));
}

pub fn s3_an_ended_instance_accepts_no_messages(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    for (number, ended) in (1..).zip(Status::ALL.into_iter().filter(|status| status.is_final())) {
        let row = InstanceRow { status: ended, ..row(number, ended.name()) };
        subject.write(session, member(&row).inserting(row.clone()));
        let outcome = subject.send(message(ended.name(), None, "late"));
        assert_eq!(outcome, SendOutcome::Ended(Box::new(row)));
    }
    assert_eq!(subject.inbox(session, 0, 10), []);
}

pub fn s3_a_message_without_an_instance_is_refused(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.write(session, start(&row(1, "a")));
    for id in ["b", "A", "a ", ""] {
        assert_eq!(subject.send(message(id, None, "hello")), SendOutcome::NoInstance, "{id:?}");
    }
    assert_eq!(subject.inbox(session, 0, 10), []);
}

pub fn s3_a_sender_does_not_change_the_row_of_the_instance(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let sleeps = InstanceRow { status: Status::Running, wake_at_ms: Some(9_000_000), ..row(1, "a") };
    let is_blocked = InstanceRow { blocked: Some(blocked()), ..row(2, "b") };
    for row in [sleeps, is_blocked] {
        subject.write(session, member(&row).inserting(row.clone()));
        let before = subject.load(&row, 0).expect("it is stored").row;
        subject.sent(message(&row.id, None, "event"));
        subject.sent(message(&row.id, Some("k"), "once"));
        subject.send(message(&row.id, Some("k"), "again"));
        subject.sent(urgent(&row.id, Some("u"), "urgent"));
        let after = subject.load(&row, 0).expect("it is stored").row;
        assert_eq!(after, before, "only its owner writes the row of {:?}", row.id);
    }
}

pub fn s3_a_blocked_instance_accepts_messages(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = InstanceRow { blocked: Some(blocked()), ..row(1, "a") };
    subject.write(session, member(&a).inserting(a.clone()));
    subject.sent(message("a", None, "kept"));
    let kept: Vec<_> = subject.load(&a, 0).unwrap().inbox.into_iter().map(|row| row.body).collect();
    assert_eq!(kept, [bytes("kept")]);
}

pub fn s3_an_urgent_message_is_read_by_a_blocked_instance(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let blocked_row = InstanceRow { blocked: Some(blocked()), wake_at_ms: Some(9_000), ..row(1, "blocked") };
    let healthy = InstanceRow { wake_at_ms: Some(9_000), ..row(2, "healthy") };
    let rows = [&blocked_row, &healthy];
    subject.commit(session, rows.map(|row| member(row).inserting(row.clone())));
    let read = || {
        let rows = subject.inbox(session, 0, 10).into_iter();
        rows.map(|row| (row.number, row.urgent)).collect::<Vec<_>>()
    };
    let plain = subject.sent(message("blocked", None, "not urgent"));
    let to_healthy = subject.sent(urgent("healthy", None, "look"));
    assert_eq!(read(), [(to_healthy, true)]);
    let first = subject.sent(urgent("blocked", Some("k"), "look"));
    assert_eq!(read(), [(to_healthy, true), (first, true)]);
    let rows: Vec<_> = subject.load(&blocked_row, 0).unwrap().inbox;
    assert_eq!(rows.iter().map(|row| row.urgent).collect::<Vec<_>>(), [false, true]);
    // Only the owner writes the row of an instance: senders do not change it.
    assert_eq!(subject.find("blocked"), Some(blocked_row.clone()));
    assert_eq!(subject.find("healthy"), Some(healthy));
    // The message was seen, and its instance stays blocked. Sending it again makes it urgent again, although
    // it waits.
    subject.write(session, member(&blocked_row).having_seen([first]));
    assert_eq!(read(), [(to_healthy, true)]);
    assert_eq!(subject.send(urgent("blocked", Some("k"), "look")), SendOutcome::Duplicate(first));
    assert_eq!(read(), [(to_healthy, true), (first, true)]);
    // A duplicate that is not urgent does not make it less urgent.
    assert_eq!(subject.send(message("blocked", Some("k"), "look")), SendOutcome::Duplicate(first));
    assert_eq!(read(), [(to_healthy, true), (first, true)]);
    let unblock = RowChange { blocked: Some(None), ..RowChange::default() };
    subject.write(session, member(&blocked_row).changing(unblock));
    assert_eq!(read(), [(plain, false), (to_healthy, true), (first, true)]);
}

pub fn s3_ten_thousand_unread_messages_refuse_the_next(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&b));
    // Messages of a commit are never refused: the sender has decided.
    let nearly_full = (2..MAX_UNREAD).map(|_| outgoing(&a, None, "x"));
    let numbers = subject.write(session, start(&a).sending(nearly_full));
    subject.sent(message("a", None, "the last but one"));
    subject.sent(message("a", None, "the last"));
    assert_eq!(subject.send(message("a", None, "too much")), SendOutcome::Full(MAX_UNREAD));
    subject.sent(message("b", None, "another instance"));
    subject.write(session, member(&a).turn(2, "read one").consuming([numbers[0].unwrap()]));
    subject.sent(message("a", None, "room again"));
    subject.write(session, member(&a).turn(3, "sent one to itself").sending([outgoing(&a, None, "x")]));
    assert_eq!(subject.send(message("a", None, "too much")), SendOutcome::Full(MAX_UNREAD + 1));
}

pub fn s3_requests_of_a_call_are_independent(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    let outcomes = subject
        .try_send(vec![
            message("a", None, "too early"),
            starting(&a, "start"),
            starting(&row(2, "a"), "start again"),
            message("a", Some("k"), "first"),
            message("nobody", None, "lost"),
            message("a", Some("k"), "second"),
            message("a", None, "last"),
        ])
        .unwrap();
    let pending = InstanceRow { status: Status::Pending, ..a };
    let kinds: Vec<_> = outcomes.iter().map(|outcome| !matches!(outcome, SendOutcome::Sent(_))).collect();
    assert_eq!(kinds, [true, false, true, false, true, true, false]);
    assert_eq!(outcomes[0], SendOutcome::NoInstance);
    assert_eq!(outcomes[2], SendOutcome::IdTaken(Box::new(pending)));
    let SendOutcome::Sent(first) = outcomes[3] else { panic!("{outcomes:?}") };
    assert_eq!((&outcomes[4], &outcomes[5]), (&SendOutcome::NoInstance, &SendOutcome::Duplicate(first)));
    let bodies: Vec<_> = subject.inbox(session, 0, 10).into_iter().map(|row| row.body).collect();
    assert_eq!(bodies, ["start", "first", "last"].map(bytes), "in the order of the call");
    assert_eq!(subject.try_send(vec![]), Ok(vec![]));
}

pub fn s3_concurrent_calls_have_outcomes_of_their_own(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, ended) = (row(1, "a"), InstanceRow { status: Status::Completed, ..row(2, "ended") });
    subject.write(session, start(&a));
    subject.write(session, member(&ended).inserting(ended.clone()));
    let begin = |requests| {
        let (reply, answer) = waiting();
        subject.store().send(requests, reply);
        answer
    };
    let mut answers = Vec::new();
    for number in 0..50 {
        let id = format!("new-{number}");
        answers.push(begin(vec![starting(&row(100 + number, &id), "start"), message(&id, None, "hello")]));
        answers.push(begin(vec![message("nobody", None, "lost"), message("a", None, "to a")]));
        answers.push(begin(vec![message("ended", None, "late")]));
        answers.push(begin(vec![message("a", Some("k"), "once")]));
    }
    let outcomes = answers.iter().map(|answer| answer_of(answer).expect("the send is answered"));
    let (mut numbers, mut repeated) = (Vec::new(), Vec::new());
    for (outcomes, place) in outcomes.zip((0..4).cycle()) {
        let mut sent = |outcome: &SendOutcome| match outcome {
            SendOutcome::Sent(number) => numbers.push(*number),
            other => panic!("not sent: {other:?}"),
        };
        match (place, &outcomes[..]) {
            (0, [start, message]) => [start, message].into_iter().for_each(sent),
            (1, [SendOutcome::NoInstance, to_a]) => sent(to_a),
            (2, [SendOutcome::Ended(row)]) => assert_eq!(**row, ended),
            (3, [SendOutcome::Duplicate(number)]) => repeated.push(*number),
            (3, [first]) => sent(first),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((numbers.len(), repeated.len()), (50 * 3 + 1, 49));
    assert!(repeated.iter().all(|number| *number == repeated[0] && numbers.contains(number)));
    let mut stored: Vec<_> = subject.inbox(session, 0, 1_000).iter().map(|row| row.number).collect();
    stored.sort_unstable();
    numbers.sort_unstable();
    assert_eq!(stored, numbers, "what was sent is stored, once");
}

pub fn s3_a_message_number_is_never_reused(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let mut last = 0;
    for _ in 0..5 {
        let number = subject.sent(message("a", None, "hello"));
        assert!(number > last, "{number} after {last}");
        // With its row deleted, the table does not contain the number.
        subject.write(session, member(&a).changing(RowChange::default()).consuming([number]));
        last = number;
    }
}

pub fn s3_a_message_for_another_key_finds_no_instance(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let to = |key| SendRequest::Message {
        id: "a".to_owned(),
        key: Some(key),
        dedupe: None,
        urgent: false,
        body: bytes("hello"),
    };
    assert_eq!(subject.send(to(row(2, "a").key)), SendOutcome::NoInstance);
    assert_eq!(subject.inbox(session, 0, 10), []);
    let number = subject.sent(to(a.key));
    assert_eq!(subject.inbox(session, 0, 10)[0].number, number);
    // Even if the instance with the id has ended.
    let numbers = [number];
    subject.write(session, member(&a).changing(status(Status::Completed)).consuming(numbers));
    assert_eq!(subject.send(to(row(2, "a").key)), SendOutcome::NoInstance);
    assert!(matches!(subject.send(to(a.key)), SendOutcome::Ended(_)));
}

pub fn s3_a_message_arrives_when_the_store_inserts_it(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&a));
    let begun_ms = subject.clock.now_ms();
    subject.sent(message("a", None, "sent"));
    subject.clock.advance(10);
    subject.write(session, member(&a).turn(2, "second").sending([outgoing(&a, None, "committed")]));
    subject.clock.advance(10);
    subject.sent(starting(&b, "start"));
    let arrived: Vec<u64> = subject.inbox(session, 0, 10).iter().map(|row| row.arrived_ms).collect();
    assert_eq!(arrived, [begun_ms, begun_ms + 10, begun_ms + 20]);
    let loaded = subject.load(&a, 0).unwrap().inbox;
    assert_eq!(loaded.iter().map(|row| row.arrived_ms).collect::<Vec<_>>(), arrived[..2]);
}

pub fn n18_a_full_instance_refuses_senders(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let waiting = subject.sent(message("a", Some("k"), "first"));
    let full = |full| RowChange { full: Some(full), ..RowChange::default() };
    subject.write(session, member(&a).changing(full(true)));
    assert_eq!(subject.send(message("a", None, "too much")), SendOutcome::Full(1));
    assert_eq!(subject.send(message("a", Some("l"), "too much")), SendOutcome::Full(1));
    // A duplicate adds nothing, and cancelling the instance is always possible.
    assert_eq!(subject.send(message("a", Some("k"), "again")), SendOutcome::Duplicate(waiting));
    let cancel = subject.sent(urgent("a", None, "cancel"));
    // The sender of a commit has decided.
    let sent = subject.write(session, member(&a).sending([outgoing(&a, None, "to itself")]));
    let numbers: Vec<_> = subject.inbox(session, 0, 10).iter().map(|row| row.number).collect();
    assert_eq!(numbers, [waiting, cancel, sent[0].unwrap()]);
    subject.write(session, member(&a).changing(full(false)));
    subject.sent(message("a", None, "room again"));
}

pub fn n18_ten_thousand_unread_messages_refuse_no_urgent_one(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    let first = outgoing(&a, Some("k"), "x");
    let rest = (1..MAX_UNREAD).map(|_| outgoing(&a, None, "x"));
    let numbers = subject.write(session, start(&a).sending(std::iter::once(first).chain(rest)));
    assert_eq!(subject.send(message("a", None, "too much")), SendOutcome::Full(MAX_UNREAD));
    let again = subject.send(message("a", Some("k"), "it waits"));
    assert_eq!(again, SendOutcome::Duplicate(numbers[0].unwrap()));
    subject.sent(urgent("a", None, "cancel"));
    assert_eq!(subject.send(message("a", None, "too much")), SendOutcome::Full(MAX_UNREAD + 1));
}
