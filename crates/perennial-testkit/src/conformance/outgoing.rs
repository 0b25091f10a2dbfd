//! S2: messages and starts that a member sends.

use perennial_core::store::{
    CommitOutcome, Conflict, DeleteOutcome, DeliveryReport, InboxNumber, InstanceRow, Outgoing, RowChange,
    SendOutcome, SessionId, Status,
};
use perennial_core::{EventId, ParentLink, SHARDS};

use super::instances::{
    Build, attributes, blocked, bytes, member, message, outgoing, row, start, start_request, starting,
    status, urgent, urgently,
};
use super::subject::{Make, Subject};

fn to_id(id: &str, dedupe: Option<&str>, body: &str) -> Outgoing {
    let (id, dedupe, body) = (id.to_owned(), dedupe.map(str::to_owned), bytes(body));
    Outgoing::ToId { id, dedupe, urgent: false, body, report: None }
}

/// The messages of an instance, including parked ones.
fn messages(subject: &Subject, row: &InstanceRow) -> Vec<(InboxNumber, String)> {
    let inbox = subject.load(row, 0).expect("the instance").inbox;
    assert!(inbox.iter().all(|message| (message.key, message.shard) == (row.key, row.shard)));
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).expect("tests send text");
    inbox.iter().map(|message| (message.number, text(&message.body))).collect()
}

fn bodies(subject: &Subject, row: &InstanceRow) -> Vec<String> {
    messages(subject, row).into_iter().map(|(_, body)| body).collect()
}

/// A store with running instances `a` and `b`.
fn with_two(make: Make<'_>) -> (Subject, SessionId, InstanceRow, InstanceRow) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&a));
    subject.write(session, start(&b));
    (subject, session, a, b)
}

pub fn s2_nothing_is_sent_to_a_missing_or_ended_instance(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let mut targets = vec![row(3, "nobody"), InstanceRow { id: "a".to_owned(), ..row(4, "a") }];
    for (number, ended) in (10..).zip(Status::ALL.into_iter().filter(|status| status.is_final())) {
        let ended = InstanceRow { status: ended, ..row(number, ended.name()) };
        subject.write(session, member(&ended).inserting(ended.clone()));
        targets.push(ended);
    }
    let plain = targets.iter().map(|target| outgoing(target, None, "lost"));
    let keyed = targets.iter().map(|target| outgoing(target, Some("k"), "lost"));
    let pressing = targets.iter().map(|target| urgently(target, None, "lost"));
    let lost: Vec<Outgoing> = plain.chain(keyed).chain(pressing).collect();
    let count = lost.len();
    let sent = subject.write(session, member(&a).turn(2, "sent").sending(lost));
    assert_eq!(sent, vec![None; count]);
    assert_eq!(subject.stats().inbox.rows, 0, "no row is left without an instance that reads it");
    // The same holds among other messages.
    let sent = subject.write(
        session,
        member(&a).sending([
            outgoing(&b, None, "1"),
            outgoing(&targets[0], None, "lost"),
            outgoing(&a, None, "2"),
        ]),
    );
    assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!((bodies(&subject, &b), bodies(&subject, &a)), (vec!["1".to_owned()], vec!["2".to_owned()]));
}

pub fn s2_an_instance_that_ends_in_a_batch_gets_no_later_messages_of_it(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let batch = [
        member(&b).sending([outgoing(&a, None, "in time")]),
        member(&a).turn(2, "ended").changing(status(Status::Completed)).sending([
            outgoing(&a, None, "to itself"),
            to_id("a", None, "to itself"),
            starting(&row(3, "b"), "start", Some("taken")),
        ]),
        member(&b).sending([outgoing(&a, None, "late"), to_id("a", None, "late")]),
    ];
    let outcomes = subject.commit(session, batch);
    let CommitOutcome::Durable { sent } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(sent[0].is_some());
    assert_eq!(outcomes[1], CommitOutcome::Durable { sent: vec![None, None, None] });
    assert_eq!(outcomes[2], CommitOutcome::Durable { sent: vec![None, None] });
    assert_eq!(bodies(&subject, &a), ["in time"]);
}

pub fn s2_an_urgent_message_of_a_member_is_read_by_a_blocked_instance(make: Make<'_>) {
    let (subject, session, a, _) = with_two(make);
    let blocked_row = InstanceRow { blocked: Some(blocked()), wake_at_ms: Some(9_000), ..row(3, "blocked") };
    let healthy = InstanceRow { wake_at_ms: Some(9_000), ..row(4, "healthy") };
    for row in [&blocked_row, &healthy] {
        subject.write(session, member(row).inserting(row.clone()));
    }
    let read = || {
        let rows = subject.inbox(session, 0, 10).into_iter();
        rows.map(|row| (Some(row.number), row.urgent)).collect::<Vec<_>>()
    };
    let sent = subject.write(
        session,
        member(&a).sending([
            outgoing(&blocked_row, None, "not urgent"),
            to_id("blocked", None, "nor this"),
            urgently(&healthy, None, "not blocked"),
        ]),
    );
    assert_eq!(read(), [(sent[2], true)]);
    let first = subject.write(session, member(&a).sending([urgently(&blocked_row, Some("k"), "look")]));
    assert_eq!(read(), [(sent[2], true), (first[0], true)]);
    assert_eq!(subject.find("blocked"), Some(blocked_row.clone()));
    // The message was seen, and its instance stays blocked. Sending it again makes it urgent again, although
    // it waits.
    subject.write(session, member(&blocked_row).having_seen(first[0]));
    assert_eq!(read(), [(sent[2], true)]);
    let again = subject.write(session, member(&a).sending([urgently(&blocked_row, Some("k"), "look")]));
    assert_eq!((again, read()), (vec![None], vec![(sent[2], true), (first[0], true)]));
}

pub fn s2_urgent_messages_are_urgent_until_they_are_seen(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let block = RowChange { blocked: Some(Some(blocked())), ..RowChange::default() };
    subject.write(session, member(&a).changing(block));
    let [one, two, of_b] = ["a", "a", "b"].map(|id| subject.sent(urgent(id, None, "look")));
    let read = || subject.inbox(session, 0, 10).iter().map(|row| row.number).collect::<Vec<_>>();
    assert_eq!(read(), [one, two, of_b]);
    // Naming a message that is gone, or was never urgent, is not a conflict.
    let plain = subject.sent(message("a", None, "plain"));
    subject.write(session, member(&a).having_seen([one, plain, 999_999]));
    assert_eq!(read(), [two, of_b]);
    let urgent_now: Vec<_> =
        subject.load(&a, 0).unwrap().inbox.iter().map(|row| (row.number, row.urgent)).collect();
    assert_eq!(urgent_now, [(one, false), (two, true), (plain, false)], "they still wait");
    // A refused member marks nothing as seen.
    let stale = member(&b).turn(9, "early").having_seen([of_b, two]);
    assert_eq!(subject.commit(session, [stale]), [CommitOutcome::Conflict(Conflict::MissingTurn)]);
    assert_eq!(read(), [two, of_b]);
}

pub fn s2_a_member_sees_its_own_earlier_writes(make: Make<'_>) {
    let (subject, session, a, _) = with_two(make);
    // Starts a child and cancels it, starts another and raises an event at it: messages follow their start.
    let (child, other) = (row(5, "child"), row(6, "other"));
    let member_of_a = member(&a).turn(2, "started two").sending([
        starting(&child, "start child", None),
        urgently(&child, Some("cancel"), "cancel child"),
        starting(&other, "start other", None),
        to_id("other", None, "event"),
        urgently(&child, Some("cancel"), "cancel child again"),
    ]);
    let sent = subject.write(session, member_of_a);
    let is_sent: Vec<bool> = sent.iter().map(Option::is_some).collect();
    assert_eq!(is_sent, [true, true, true, true, false]);
    assert_eq!(bodies(&subject, &child), ["start child", "cancel child"]);
    assert_eq!(bodies(&subject, &other), ["start other", "event"]);
    // A row that the member inserts receives its messages; one that it ends does not.
    let new = row(7, "new");
    let sent = subject.write(session, start(&new).sending([outgoing(&new, None, "to itself")]));
    assert!(sent[0].is_some());
    let ended = member(&new).turn(2, "ended").changing(status(Status::Completed));
    assert_eq!(subject.write(session, ended.sending([to_id("new", None, "late")])), [None]);
    // An idempotency key is free once the same member consumes its message.
    let keyed = subject.sent(message("a", Some("k"), "first"));
    let again = member(&a).turn(3, "read").consuming([keyed]).sending([outgoing(&a, Some("k"), "second")]);
    assert!(subject.write(session, again)[0].is_some());
}

pub fn s2_a_message_to_an_id_reaches_its_instance(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let ended = InstanceRow { status: Status::Failed, ..row(3, "ended") };
    subject.write(session, member(&ended).inserting(ended.clone()));
    let sent = subject.write(
        session,
        member(&a).turn(2, "sent").sending([
            to_id("b", Some("k"), "1"),
            to_id("b", Some("k"), "again"),
            to_id("nobody", None, "lost"),
            to_id("ended", None, "lost"),
            to_id("B", None, "lost"),
            to_id("b", None, "2"),
            to_id("a", Some("k"), "to itself"),
        ]),
    );
    let is_sent: Vec<bool> = sent.iter().map(Option::is_some).collect();
    assert_eq!(is_sent, [true, false, false, false, false, true, true]);
    assert!(sent.iter().flatten().is_sorted());
    assert_eq!(messages(&subject, &b), [(sent[0].unwrap(), "1".into()), (sent[5].unwrap(), "2".into())]);
    assert_eq!(bodies(&subject, &a), ["to itself"]);
    assert_eq!(subject.stats().inbox.rows, 3);
}

pub fn s2_a_start_of_a_member_inserts_a_row_and_a_message(make: Make<'_>) {
    let (subject, session, a, _) = with_two(make);
    let child = InstanceRow { attributes: attributes(&[("n", "1")]), ..row(5, "child") };
    let member = member(&a).turn(2, "started a child").sending([
        outgoing(&child, None, "too early"),
        starting(&child, "start", Some("taken")),
        outgoing(&child, None, "after it"),
        to_id("child", Some("k"), "by its id"),
    ]);
    let sent = subject.write(session, member);
    assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true, true]);
    assert!(sent.iter().flatten().is_sorted(), "numbered in the order of the member: {sent:?}");
    let pending = InstanceRow { status: Status::Pending, ..child.clone() };
    assert_eq!(subject.find("child"), Some(pending.clone()));
    assert_eq!(bodies(&subject, &child), ["start", "after it", "by its id"]);
    let inbox = subject.inbox(session, 0, 10);
    assert_eq!(inbox.iter().map(|row| Some(row.number)).collect::<Vec<_>>(), sent[1..]);
    assert_eq!(bodies(&subject, &a), Vec::<String>::new());
    // It is an ordinary instance.
    let again = subject.send(start_request(&row(6, "child"), "start"));
    assert_eq!(again, SendOutcome::IdTaken(Box::new(pending)));
    assert_eq!(subject.delete([&child]), [DeleteOutcome::NotEnded]);
}

pub fn s2_a_repeated_start_of_the_same_key_has_no_effect(make: Make<'_>) {
    let (subject, session, a, _) = with_two(make);
    let child = row(5, "child");
    let sent = subject.write(
        session,
        member(&a).sending([starting(&child, "start", Some("taken")), starting(&child, "2", Some("taken"))]),
    );
    assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    let sent = subject.write(session, member(&a).sending([starting(&child, "3", Some("taken"))]));
    assert_eq!((sent, bodies(&subject, &child)), (vec![None], vec!["start".to_owned()]));
    // The same holds when it has continued as new, and when it has ended.
    let begun = subject.load(&child, 0).unwrap().inbox[0].number;
    for (number, now) in (1..).zip([Status::Running, Status::Completed]) {
        let consumed = (number == 1).then_some(begun);
        subject
            .write(session, member(&child).turn(number, "went on").changing(status(now)).consuming(consumed));
        let sent = subject.write(session, member(&a).sending([starting(&child, "4", Some("taken"))]));
        assert_eq!(sent, [None]);
        assert_eq!(subject.find("child"), Some(InstanceRow { status: now, ..child.clone() }));
    }
    assert_eq!(subject.stats().inbox.rows, 0);
}

pub fn s2_a_start_with_an_existing_id_notifies_its_sender(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let ended = InstanceRow { status: Status::Completed, ..row(3, "ended") };
    subject.write(session, member(&ended).inserting(ended.clone()));
    let sent = subject.write(
        session,
        member(&a).turn(2, "tried").sending([
            starting(&row(5, "b"), "start", Some("b is taken")),
            starting(&row(6, "b"), "start", None),
            starting(&row(7, "ended"), "start", Some("ended is taken")),
            starting(&row(8, "new"), "start", Some("new is taken")),
            starting(&row(9, "new"), "start", Some("new is taken by now")),
        ]),
    );
    assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true, true]);
    assert!(sent.iter().flatten().is_sorted());
    let expected = [(0, "b is taken"), (2, "ended is taken"), (4, "new is taken by now")];
    let expected: Vec<_> = expected.map(|(place, body)| (sent[place].unwrap(), body.to_owned())).into();
    assert_eq!(messages(&subject, &a), expected);
    assert_eq!(subject.find("b"), Some(b));
    for number in [5, 6, 7, 9] {
        assert_eq!(subject.load(&row(number, "b"), 0), None, "an id has only one row");
    }
    assert_eq!(subject.stats().inbox.rows, 4);
}

pub fn s2_a_start_with_a_time_is_parked_until_then(make: Make<'_>) {
    let (subject, session, a, _) = with_two(make);
    let by_member = InstanceRow { wake_at_ms: Some(9_000), ..row(5, "by-member") };
    let by_send = InstanceRow { wake_at_ms: Some(8_000), ..row(6, "by-send") };
    let sent = subject.write(session, member(&a).sending([starting(&by_member, "start", None)]));
    let number = subject.sent(start_request(&by_send, "start"));
    let parked = [(by_member.clone(), sent[0].unwrap()), (by_send.clone(), number)];
    for (row, number) in &parked {
        assert_eq!(messages(&subject, row), [(*number, "start".to_owned())], "loading shows it");
    }
    assert_eq!(subject.inbox(session, 0, 10), []);
    let due: Vec<_> = subject.due(session, 9_001, None, 10).iter().map(|due| due.key).collect();
    assert_eq!(due, [by_send.key, by_member.key]);
    // Other messages reach it meanwhile, and once it is due it is still read by loading.
    let event = subject.sent(message("by-send", None, "hello"));
    let seen = || subject.inbox(session, 0, 10).iter().map(|row| row.number).collect::<Vec<_>>();
    assert_eq!(seen(), [event]);
    subject.clock.advance(60_000);
    assert_eq!(seen(), [event]);
    let begin = RowChange { wake_at_ms: Some(None), ..status(Status::Running) };
    subject.write(session, member(&by_send).turn(1, "started").changing(begin).consuming([number, event]));
    assert_eq!(bodies(&subject, &by_send), Vec::<String>::new());
}

pub fn s2_messages_and_starts_cross_shards(make: Make<'_>) {
    let subject = Subject::new(make);
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    let mine = subject.claim(one, SHARDS / 2).unwrap();
    subject.claim(other, SHARDS).unwrap();
    let candidates: Vec<InstanceRow> =
        (1..=64).map(|number| row(number, &format!("order-{number}"))).collect();
    let sender = candidates.iter().find(|row| mine.contains(&row.shard)).unwrap();
    let theirs: Vec<_> = candidates.iter().filter(|row| !mine.contains(&row.shard)).collect();
    subject.write(other, start(theirs[0]));
    let sent = subject.write(
        one,
        start(sender).sending([
            outgoing(theirs[0], None, "hello"),
            to_id(&theirs[0].id, None, "by id"),
            starting(theirs[1], "start", None),
        ]),
    );
    assert!(sent.iter().all(Option::is_some), "only the sender's shard has to be owned");
    assert_eq!(subject.inbox(one, 0, 10), []);
    let seen: Vec<_> = subject.inbox(other, 0, 10).iter().map(|row| Some(row.number)).collect();
    assert_eq!(seen, sent);
}

pub fn s2_a_repeated_turn_sends_nothing_again(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let first = member(&a).turn(2, "sent").sending([
        outgoing(&b, None, "hello"),
        to_id("b", None, "by id"),
        starting(&row(5, "child"), "start", None),
        starting(&row(6, "b"), "start", Some("taken")),
        urgently(&b, None, "urgent"),
    ]);
    subject.write(session, first.clone());
    let block = RowChange { blocked: Some(Some(blocked())), ..RowChange::default() };
    subject.write(session, member(&b).changing(block));
    let (inbox, due) = (subject.stats().inbox, subject.due(session, u64::MAX, None, 10));
    assert_eq!(inbox.rows, 5);
    assert_eq!(subject.commit(session, [first]), [CommitOutcome::Durable { sent: vec![None; 5] }]);
    assert_eq!((subject.stats().inbox, subject.due(session, u64::MAX, None, 10)), (inbox, due));
}

fn reported(id: &str) -> Outgoing {
    let (delivered, not_found, ended) = (bytes("delivered"), bytes("not found"), bytes("ended"));
    let report = Some(Box::new(DeliveryReport { delivered, not_found, ended }));
    Outgoing::ToId { id: id.to_owned(), dedupe: None, urgent: false, body: bytes("hello"), report }
}

pub fn s2_the_sender_gets_the_outcome_of_a_message_to_an_id(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let over = InstanceRow { status: Status::Completed, ..row(3, "over") };
    subject.write(session, member(&over).inserting(over.clone()));
    let send = ["b", "over", "nobody"].map(reported);
    let sent = subject.write(session, member(&a).turn(2, "sent").sending(send));
    assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(bodies(&subject, &b), ["hello"]);
    assert_eq!(bodies(&subject, &a), ["delivered", "ended", "not found"]);
    // A sender that ends with the same turn receives no message.
    let ends = member(&a).turn(3, "ended").changing(status(Status::Completed)).sending([reported("b")]);
    subject.write(session, ends);
    assert_eq!(bodies(&subject, &b), ["hello", "hello"]);
    assert_eq!(bodies(&subject, &a).len(), 3);
}

pub fn s2_a_start_may_replace_an_ended_instance_and_its_sender_gets_the_outcome(make: Make<'_>) {
    let (subject, session, a, b) = with_two(make);
    let over = InstanceRow { status: Status::Completed, ..row(3, "over") };
    let damaged = InstanceRow { status: Status::Running, checksum: 1, ..row(4, "damaged") };
    for row in [&over, &damaged] {
        subject.write(session, member(row).inserting(row.clone()));
    }
    let replacing =
        |number, id: &str, replaces_ended| match starting(&row(number, id), "start", Some("taken")) {
            Outgoing::Start { row, body, otherwise, .. } => {
                Outgoing::Start { row, body, otherwise, replaces_ended, started: Some(bytes("started")) }
            }
            other => other,
        };
    let send = [
        replacing(10, "over", false),
        replacing(11, "b", true),
        replacing(12, "damaged", true),
        replacing(13, "new", false),
    ];
    subject.write(session, member(&a).turn(2, "sent").sending(send));
    assert_eq!(bodies(&subject, &a), ["taken", "taken", "taken", "started"]);
    assert!(subject.load(&b, 0).is_some() && subject.load(&over, 0).is_some(), "no instance is replaced");
    subject.write(session, member(&a).turn(3, "again").sending([replacing(14, "over", true)]));
    assert_eq!(bodies(&subject, &a)[4], "started");
    assert!(subject.load(&over, 0).is_none(), "the ended instance is deleted");
    assert_eq!(bodies(&subject, &row(14, "over")), ["start"]);
}

pub fn s2_replacing_an_instance_deletes_its_ended_children(make: Make<'_>) {
    let (subject, session, a, _) = with_two(make);
    let of = |number, id: &str, parent: &InstanceRow, status| {
        let (instance, key) = (parent.id.clone(), parent.key.to_string());
        let parent = Some(ParentLink { instance, key, execution: 1, event_id: EventId(2) });
        InstanceRow { parent, status, ..row(number, id) }.sealed()
    };
    let over = InstanceRow { status: Status::Failed, ..row(3, "over") };
    let ended = of(4, "ended", &over, Status::Completed);
    let runs = of(5, "runs", &over, Status::Running);
    let below_ended = of(6, "below ended", &ended, Status::Cancelled);
    let below_running = of(7, "below running", &runs, Status::Completed);
    let stranger = of(8, "stranger", &a, Status::Completed);
    let all = [&over, &ended, &runs, &below_ended, &below_running, &stranger];
    for row in all {
        subject.write(session, member(row).inserting(row.clone()));
    }
    let replacing = match starting(&row(13, "over"), "start", None) {
        Outgoing::Start { row, body, otherwise, started, .. } => {
            Outgoing::Start { row, body, otherwise, started, replaces_ended: true }
        }
        other => other,
    };
    subject.write(session, member(&a).turn(2, "sent").sending([replacing]));
    let is_there = all.map(|row| subject.load(row, 0).is_some());
    assert_eq!(is_there, [false, false, true, false, true, true]);
}
