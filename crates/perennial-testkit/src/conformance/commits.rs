//! S2: the effects of a durable member.

use std::sync::Arc;

use perennial_core::store::{CommitOutcome, Conflict, InstanceRow, RowChange, Status};
use perennial_core::{Attributes, EventId, ParentLink, Payload, ShardId};

use super::instances::{
    Build, attributes, blocked, bytes, key, member, message, outgoing, row, start, status, turn_row,
};
use super::subject::{Make, Subject};

fn durable() -> CommitOutcome {
    CommitOutcome::Durable { sent: vec![] }
}

pub fn s2_durable_members_can_be_read(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    assert_eq!(subject.commit(session, [start(&a)]), [durable()]);
    assert_eq!(subject.find("a"), Some(a.clone()));
    let ended = member(&a).turn(2, "ended").changing(status(Status::Completed));
    assert_eq!(subject.commit(session, [ended]), [durable()]);
    let loaded = subject.load(&a, 0).unwrap();
    assert_eq!(loaded.row, InstanceRow { status: Status::Completed, ..a });
    assert_eq!(loaded.turns, [bytes("started"), bytes("ended")]);
    assert_eq!(loaded.inbox, []);
}

pub fn s2_an_empty_batch_is_answered(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    assert_eq!(subject.commit(session, []), []);
}

/// A row with a value in every column.
pub(super) fn full_row() -> InstanceRow {
    InstanceRow {
        key: key(7),
        id: "order-42::1.2 é 𝄞".to_owned(),
        shard: ShardId::of("order-42::1.2 é 𝄞"),
        name: "Zahlung – prüfen".to_owned(),
        version: "2.1.0-rc.1+build".to_owned(),
        status: Status::Pending,
        execution: 3,
        owed: true,
        wake_at_ms: Some(1_700_000_000_999),
        blocked: Some(blocked()),
        full: true,
        attributes: attributes(&[
            ("customer", "\"née \\\"X\\\"\""),
            ("amount", "12.50"),
            ("tags", "[1,null]"),
        ]),
        published: Some(Payload::from_json("{\"step\": 3, \"of\": 7}").unwrap()),
        parent: Some(ParentLink {
            instance: "order-42".to_owned(),
            key: key(6).to_string(),
            execution: 1,
            event_id: EventId(2),
        }),
        created_ms: 1_700_000_000_007,
        ended_ms: Some(1_700_000_000_999),
        checksum: 0xfedc_ba98,
    }
}

pub fn s2_every_column_of_a_row_is_kept(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let full = full_row();
    subject.write(session, member(&full).inserting(full.clone()));
    assert_eq!(subject.find(&full.id), Some(full.clone()));
    assert_eq!(subject.load(&full, 0).unwrap().row, full);
    assert_eq!(subject.list(&Default::default(), None, 10).rows, [full]);
}

pub fn s2_every_column_that_may_change_does_and_others_stay(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let mut expected = full_row();
    subject.write(session, member(&expected).inserting(expected.clone()));
    let unchanged = RowChange::default();
    let changes = [
        RowChange { status: Some(Status::Running), ..unchanged.clone() },
        RowChange { execution: Some(4), ..unchanged.clone() },
        RowChange { version: Some("3.0.0".to_owned()), ..unchanged.clone() },
        RowChange { owed: Some(false), ..unchanged.clone() },
        RowChange { wake_at_ms: Some(None), ..unchanged.clone() },
        RowChange { blocked: Some(None), ..unchanged.clone() },
        RowChange { full: Some(false), ..unchanged.clone() },
        RowChange { attributes: Some(Attributes::new()), ..unchanged.clone() },
        RowChange { published: Some(None), ..unchanged.clone() },
        RowChange { ended_ms: Some(None), ..unchanged.clone() },
        RowChange {
            status: Some(Status::Failed),
            execution: Some(5),
            version: Some("4.0.0".to_owned()),
            owed: Some(true),
            wake_at_ms: Some(Some(1_800_000_000_000)),
            blocked: Some(Some(blocked())),
            full: Some(true),
            attributes: Some(attributes(&[("customer", "null")])),
            published: Some(Some(Payload::null())),
            ended_ms: Some(Some(1_700_000_001_000)),
        },
        unchanged,
    ];
    for change in changes {
        subject.write(session, member(&expected).changing(change.clone()));
        change.apply(&mut expected);
        assert_eq!(subject.find(&expected.id), Some(expected.clone()), "after {change:?}");
    }
}

pub fn s2_a_member_can_insert_and_change_its_row(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a).changing(status(Status::Completed)));
    assert_eq!(subject.find("a"), Some(InstanceRow { status: Status::Completed, ..a }));
}

pub fn s2_turns_of_any_size_are_read_unchanged(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let sizes = [0, 1, 1_000, 1_100, 4_000, 5_000, 1 << 20];
    let bodies: Vec<String> =
        sizes.iter().map(|size| "\0é\u{1f}x".chars().cycle().take(*size).collect()).collect();
    for (number, body) in (2..).zip(&bodies) {
        subject.write(session, member(&a).turn(number, body));
    }
    let turns = subject.load(&a, 1).unwrap().turns;
    assert!(turns.iter().zip(&bodies).all(|(turn, body)| **turn == *body.as_bytes()));
    assert_eq!(turns.len(), bodies.len());
}

pub fn s2_executions_number_their_turns_separately(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    subject.write(session, member(&a).turn(2, "continued as new"));
    let begin = RowChange { execution: Some(2), ..RowChange::default() };
    subject.write(session, member(&a).turn_of(2, 1, "began").changing(begin));
    subject.write(session, member(&a).turn_of(2, 2, "went on"));
    assert_eq!(subject.load(&a, 0).unwrap().turns, [bytes("began"), bytes("went on")]);
    assert_eq!(subject.turns(&a, 1, 0, 10), [bytes("started"), bytes("continued as new")]);
}

pub fn s2_an_execution_may_start_with_several_turns(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a).changing(status(Status::Failed)));
    let again = RowChange { execution: Some(2), ..status(Status::Running) };
    let mut reset =
        member(&a).turn_of(2, 1, "began").changing(again).sending([outgoing(&a, None, "carried")]);
    reset.more_turns = vec![turn_row(2, 2, "went on"), turn_row(2, 3, "went further")];
    assert!(subject.write(session, reset.clone())[0].is_some(), "it runs again and receives messages");
    let turns = [bytes("began"), bytes("went on"), bytes("went further")];
    assert_eq!(subject.load(&a, 0).unwrap().turns, turns);
    // Repeating the member is durable and sends nothing.
    assert_eq!(subject.write(session, reset.clone()), [None]);
    subject.write(session, member(&a).turn_of(2, 4, "and further"));
    // One of the messages belongs to another history: no part of the member is written.
    let mut other = member(&a)
        .turn_of(3, 1, "began")
        .changing(RowChange { execution: Some(3), ..status(Status::Running) });
    other.more_turns = vec![turn_row(2, 3, "another way")];
    let outcome = subject.commit(session, [other]);
    assert_eq!(outcome, [CommitOutcome::Conflict(Conflict::OtherTurn)]);
    assert_eq!(subject.turns(&a, 3, 0, 10), Vec::<Arc<[u8]>>::new());
    assert_eq!(subject.load(&a, 0).unwrap().turns.len(), 4);
}

pub fn s2_members_of_a_batch_take_effect_in_order(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    let owed = |owed| RowChange { owed: Some(owed), ..RowChange::default() };
    let batch = [
        start(&a).changing(owed(true)),
        member(&a).turn(2, "second").changing(owed(false)),
        member(&a).turn(3, "third"),
    ];
    assert_eq!(subject.commit(session, batch), [durable(), durable(), durable()]);
    let loaded = subject.load(&a, 0).unwrap();
    assert_eq!(loaded.turns, [bytes("started"), bytes("second"), bytes("third")]);
    assert!(!loaded.row.owed);
}

pub fn s2_a_turn_deletes_the_messages_that_it_consumed(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let numbers: Vec<_> = ["x", "y", "z"].map(|body| subject.sent(message("a", None, body))).into();
    subject.write(session, member(&a).turn(2, "took y").consuming([numbers[1]]));
    let left: Vec<_> = subject.inbox(session, 0, 10).into_iter().map(|row| row.number).collect();
    assert_eq!(left, [numbers[0], numbers[2]]);
    // A member with only a change can consume messages, too.
    subject.write(session, member(&a).changing(status(Status::Completed)).consuming(left));
    assert_eq!(subject.inbox(session, 0, 10), []);
}

pub fn s2_messages_of_a_member_are_numbered_in_order(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&b));
    let sent = subject.write(
        session,
        start(&a).sending([outgoing(&b, None, "1"), outgoing(&b, None, "2"), outgoing(&a, None, "3")]),
    );
    let numbers: Vec<_> = sent.into_iter().map(|number| number.expect("it was sent")).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let inbox = subject.inbox(session, 0, 10);
    let seen: Vec<_> = inbox.iter().map(|row| (row.number, row.key, row.shard, row.body.clone())).collect();
    assert_eq!(
        seen,
        [
            (numbers[0], b.key, b.shard, bytes("1")),
            (numbers[1], b.key, b.shard, bytes("2")),
            (numbers[2], a.key, a.shard, bytes("3")),
        ]
    );
}

pub fn s2_a_message_whose_key_waits_is_not_sent_again(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&b));
    subject.sent(message("b", Some("known"), "first"));
    let sent = subject.write(
        session,
        start(&a).sending([
            outgoing(&b, Some("known"), "again"),
            outgoing(&b, Some("new"), "new"),
            outgoing(&b, Some("new"), "new again"),
            outgoing(&a, Some("known"), "another instance's"),
        ]),
    );
    assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false, true]);
    let bodies: Vec<_> = subject.inbox(session, 0, 10).into_iter().map(|row| row.body).collect();
    assert_eq!(bodies, [bytes("first"), bytes("new"), bytes("another instance's")]);
}
