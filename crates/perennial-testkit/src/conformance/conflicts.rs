//! S2: members that are refused have no effect.

use perennial_core::store::{
    Commit, CommitOutcome, Conflict, Criteria, InboxRow, InstanceRow, Page, RequestRow, RowChange, Served,
    SessionId, Status, StoreStats, TurnRow,
};
use perennial_core::{SHARDS, ShardId};

use super::instances::{
    Build, bytes, member, message, outgoing, row, start, starting, status, task, turn_row, urgently,
};
use super::subject::{Make, Subject};
use super::subject_reads::Loaded;

fn durable() -> CommitOutcome {
    CommitOutcome::Durable { sent: vec![] }
}

fn conflict(conflict: Conflict) -> CommitOutcome {
    CommitOutcome::Conflict(conflict)
}

fn taken(row: &InstanceRow) -> CommitOutcome {
    conflict(Conflict::IdTaken(Box::new(row.clone())))
}

pub fn s2_repeated_bytes_are_durable_and_not_written_again(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&b));
    let number = subject.sent(message("b", None, "unread"));
    let first = start(&a).sending([outgoing(&b, None, "hello")]);
    subject.write(session, first.clone());
    // Not even effects that the first member did not have.
    let again = first.clone().changing(status(Status::Failed)).consuming([number]);
    let again = again.sending([outgoing(&b, Some("k"), "more")]);
    assert_eq!(subject.commit(session, [again]), [CommitOutcome::Durable { sent: vec![None, None] }]);
    let without_insert = Commit { insert: None, ..first };
    assert_eq!(subject.commit(session, [without_insert]), [CommitOutcome::Durable { sent: vec![None] }]);
    assert_eq!(subject.find("a"), Some(a.clone()));
    let bodies: Vec<_> = subject.inbox(session, 0, 10).into_iter().map(|row| row.body).collect();
    assert_eq!(bodies, [bytes("unread"), bytes("hello")]);
    // The same holds for an earlier turn after which others have followed.
    subject.write(session, member(&a).turn(2, "second"));
    assert_eq!(subject.commit(session, [member(&a).turn(1, "started")]), [durable()]);
    assert_eq!(subject.load(&a, 0).unwrap().turns, [bytes("started"), bytes("second")]);
}

pub fn s2_another_turn_of_the_same_number_is_a_conflict(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    subject.write(session, member(&a).turn(2, "this"));
    let others = [
        member(&a).turn(2, "that"),
        member(&a).turn(2, ""),
        member(&a).turn(1, "another start"),
        member(&a).inserting(a.clone()).turn(1, "another start"),
        // The same bytes as another turn.
        Commit { turn: Some(TurnRow { checksum: 7, ..turn_row(1, 2, "this") }), ..member(&a) },
    ];
    for other in others {
        assert_eq!(subject.commit(session, [other]), [conflict(Conflict::OtherTurn)]);
    }
    assert_eq!(subject.load(&a, 0).unwrap().turns, [bytes("started"), bytes("this")]);
}

pub fn s2_a_turn_without_the_one_before_is_a_conflict(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let missing = [member(&a).turn(3, "x"), member(&a).turn_of(2, 2, "x"), member(&row(2, "b")).turn(2, "x")];
    for early in missing {
        assert_eq!(subject.commit(session, [early]), [conflict(Conflict::MissingTurn)]);
    }
    assert_eq!(subject.load(&a, 0).unwrap().turns, [bytes("started")]);
}

pub fn s2_an_existing_id_is_a_conflict_that_returns_the_row(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (first, second) = (row(1, "a"), row(2, "a"));
    assert_eq!(subject.commit(session, [start(&first), start(&second)]), [durable(), taken(&first)]);
    subject.write(session, member(&first).changing(status(Status::Completed)));
    let finished = InstanceRow { status: Status::Completed, ..first.clone() };
    assert_eq!(subject.commit(session, [start(&second)]), [taken(&finished)]);
    // Without a turn, a repeated start cannot be recognized.
    assert_eq!(subject.commit(session, [member(&first).inserting(first.clone())]), [taken(&finished)]);
    assert_eq!(subject.load(&second, 0), None);
    assert_eq!(subject.turns(&second, 1, 0, 10), Vec::<std::sync::Arc<[u8]>>::new());
}

pub fn s2_a_member_without_an_instance_is_a_conflict(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let nobody = row(1, "nobody");
    let members = [
        member(&nobody),
        member(&nobody).turn(1, "started"),
        member(&nobody).changing(status(Status::Failed)),
        member(&nobody).turn(1, "started").changing(status(Status::Failed)),
        member(&nobody).sending([outgoing(&nobody, None, "hello")]),
    ];
    for member in members {
        assert_eq!(subject.commit(session, [member]), [conflict(Conflict::NoInstance)]);
    }
    assert_eq!(subject.inbox(session, 0, 10), []);
}

pub fn s2_a_member_for_a_shard_of_another_session_is_fenced(make: Make<'_>) {
    let subject = Subject::new(make);
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    let of_one: Vec<ShardId> = subject.claim(one, SHARDS / 2).unwrap();
    subject.claim(other, SHARDS).unwrap();
    let rows: Vec<InstanceRow> = (1..=32).map(|number| row(number, &format!("order-{number}"))).collect();
    let outcomes = subject.commit(one, rows.iter().map(start));
    let fenced = rows.iter().filter(|row| !of_one.contains(&row.shard)).count();
    assert!(fenced > 0 && fenced < rows.len(), "there must be members of both kinds");
    for (row, outcome) in rows.iter().zip(outcomes) {
        let owned = of_one.contains(&row.shard);
        assert_eq!(outcome, if owned { durable() } else { CommitOutcome::Fenced }, "{}", row.id);
        assert_eq!(subject.find(&row.id).is_some(), owned, "{}", row.id);
    }
    let unknown = SessionId(u128::MAX);
    assert_eq!(subject.commit(unknown, [start(&row(99, "z"))]), [CommitOutcome::Fenced]);
    // The same holds for repeated bytes: a fenced session does not learn whether they are stored.
    assert_eq!(subject.commit(unknown, [start(&rows[0])]), [CommitOutcome::Fenced]);
}

/// The complete visible content of a store.
#[derive(Debug, PartialEq)]
struct Everything {
    page: Page,
    inbox: Vec<InboxRow>,
    turns: Vec<usize>,
    loaded: Vec<Option<Loaded>>,
    requests: Vec<RequestRow>,
    stats: StoreStats,
}

fn everything(subject: &Subject, session: SessionId, rows: &[&InstanceRow]) -> Everything {
    Everything {
        page: subject.list(&Criteria::default(), None, 100),
        inbox: subject.inbox(session, 0, 100),
        turns: rows.iter().map(|row| subject.turns(row, 1, 0, 100).len()).collect(),
        loaded: rows.iter().map(|row| subject.load(row, 0)).collect(),
        requests: subject.requests(session, 0, 100),
        stats: subject.stats(),
    }
}

pub fn s2_a_member_is_written_as_a_whole_or_not_at_all(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b, nobody) = (row(1, "a"), row(2, "b"), row(3, "nobody"));
    subject.write(session, start(&a));
    subject.write(session, start(&b));
    let number = subject.sent(message("a", None, "unread"));
    let gone = subject.sent(message("a", None, "read"));
    subject.write(session, member(&a).consuming([gone]).putting([task(&a, 2), task(&a, 3)]));
    let asked = subject.requested("a", 60_000, "how far?");
    let before = everything(&subject, session, &[&a, &b, &nobody]);
    let with_all = |member: Commit| {
        let change = RowChange { status: Some(Status::Failed), owed: Some(true), ..RowChange::default() };
        let sends = [
            outgoing(&b, Some("key"), "sent"),
            urgently(&b, None, "urgent"),
            starting(&row(9, "child"), "start", None),
            starting(&row(10, "b"), "start", Some("taken")),
        ];
        let member = member.changing(change).consuming([number]).sending(sends);
        member.putting([task(&a, 4)]).cancelling([task(&a, 2).id]).replying(asked, "done")
    };
    let bad = [
        (with_all(member(&a).turn(1, "another")), conflict(Conflict::OtherTurn)),
        (with_all(member(&a).turn(3, "early")), conflict(Conflict::MissingTurn)),
        (with_all(start(&row(3, "a"))), taken(&a)),
        (with_all(member(&nobody).turn(1, "x")), conflict(Conflict::NoInstance)),
        (with_all(member(&nobody)), conflict(Conflict::NoInstance)),
        (with_all(member(&a).turn(2, "read again")).consuming([gone]), conflict(Conflict::MessageGone)),
        (with_all(member(&a)).consuming([gone]), conflict(Conflict::MessageGone)),
        (with_all(start(&nobody)).consuming([gone]), conflict(Conflict::MessageGone)),
        // The row could be inserted, but the turn belongs to an instance that has another one.
        (with_all(member(&a).inserting(nobody.clone()).turn(1, "another")), conflict(Conflict::OtherTurn)),
    ];
    for (member, outcome) in bad {
        assert_eq!(subject.commit(session, [member]), std::slice::from_ref(&outcome));
        assert_eq!(everything(&subject, session, &[&a, &b, &nobody]), before, "after {outcome:?}");
        assert_eq!(subject.reply_to(asked), None, "after {outcome:?}");
    }
    // Without its flaw, the same member is written.
    subject.write(session, with_all(member(&a).turn(2, "second")));
    assert_eq!(subject.reply_to(asked), Some(bytes("done")));
    assert_eq!(subject.find("child").map(|row| row.status), Some(Status::Pending));
}

pub fn s2_a_message_that_is_gone_is_a_conflict(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&a));
    subject.write(session, start(&b));
    let [read, unread, of_b] = ["a", "a", "b"].map(|id| subject.sent(message(id, None, "hello")));
    subject.write(session, member(&a).turn(2, "read it").consuming([read]));
    let batch = [
        member(&b).turn(2, "before"),
        member(&a).turn(3, "read it again").consuming([unread, read]),
        member(&a).changing(status(Status::Failed)).consuming([read]),
        member(&a).turn(3, "never sent").consuming([unread, 999_999]),
        member(&b).turn(3, "behind").consuming([of_b]),
        // A message that another member of the batch consumed is gone, too.
        member(&b).turn(4, "read what is gone").consuming([of_b]),
        member(&a).turn(3, "read the other").consuming([unread]),
    ];
    let gone = || conflict(Conflict::MessageGone);
    let outcomes = [durable(), gone(), gone(), gone(), durable(), gone(), durable()];
    assert_eq!(subject.commit(session, batch), outcomes);
    assert_eq!(subject.find("a"), Some(a.clone()));
    assert_eq!(subject.turns(&a, 1, 1, 10), [bytes("read it"), bytes("read the other")]);
    assert_eq!(subject.turns(&b, 1, 1, 10), [bytes("before"), bytes("behind")]);
    assert_eq!(subject.stats().inbox.rows, 0);
}

pub fn s2_a_repeated_turn_is_durable_after_its_messages_are_gone(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let number = subject.sent(message("a", None, "hello"));
    let asked = subject.requested("a", 60_000, "how far?");
    let first = member(&a).turn(2, "read it").consuming([number]).putting([task(&a, 3)]);
    let first = first.replying(asked, "far");
    subject.write(session, first.clone());
    assert_eq!(subject.commit(session, [first.clone()]), [durable()]);
    // Its task has run meanwhile, and is not inserted again.
    let served = Served { names: ["charge".to_owned()].into(), ..Served::default() };
    assert_eq!(subject.take(session, &served, 10, 1_000).len(), 1);
    assert!(subject.finish(session, task(&a, 3).id, 1, "charged"));
    let again = Commit { replies: vec![], ..first }.replying(asked, "further").cancelling([task(&a, 3).id]);
    assert_eq!(subject.commit(session, [again]), [durable()]);
    let loaded = subject.load(&a, 0).unwrap();
    assert_eq!((loaded.turns.len(), loaded.inbox.len(), loaded.tasks), (2, 1, vec![]));
    assert_eq!(subject.reply_to(asked), Some(bytes("far")));
    // Other bytes with that number are another turn, whatever they consume.
    let other = member(&a).turn(2, "read it otherwise").consuming([number]);
    assert_eq!(subject.commit(session, [other]), [conflict(Conflict::OtherTurn)]);
}

pub fn s2_a_bad_member_does_not_affect_other_members(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b, c, nobody) = (row(1, "a"), row(2, "b"), row(3, "c"), row(4, "nobody"));
    subject.write(session, start(&a));
    let batch = [
        start(&b),
        member(&a).turn(1, "another"),
        member(&a).turn(3, "early"),
        member(&a).turn(2, "second"),
        member(&nobody).changing(status(Status::Failed)),
        start(&row(5, "a")),
        member(&a).inserting(nobody.clone()).turn(2, "not the second"),
        start(&c),
        member(&a).turn(3, "third"),
    ];
    let outcomes = [
        durable(),
        conflict(Conflict::OtherTurn),
        conflict(Conflict::MissingTurn),
        durable(),
        conflict(Conflict::NoInstance),
        taken(&a),
        conflict(Conflict::OtherTurn),
        durable(),
        durable(),
    ];
    assert_eq!(subject.commit(session, batch), outcomes);
    let ids: Vec<String> =
        subject.list(&Default::default(), None, 10).rows.into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(subject.load(&a, 0).unwrap().turns, [bytes("started"), bytes("second"), bytes("third")]);
}
