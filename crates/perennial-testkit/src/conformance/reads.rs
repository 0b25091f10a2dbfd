//! S4: reads of the engine.

use std::sync::Arc;

use perennial_core::store::{
    CommitOutcome, DueInstance, InboxQuery, InboxRow, InstanceRow, PageLimit, RowChange, SendRequest,
    SessionId, ShardSet, Status,
};
use perennial_core::{InstanceKey, SHARDS, ShardId};

use super::instances::{Build, blocked, bytes, member, message, row, start, status};
use super::subject::{Make, Subject, wait_for};

fn numbers(rows: &[InboxRow]) -> Vec<u64> {
    rows.iter().map(|row| row.number).collect()
}

fn insert(subject: &Subject, session: SessionId, rows: &[InstanceRow]) {
    let outcomes = subject.commit(session, rows.iter().map(|row| member(row).inserting(row.clone())));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Durable { .. })));
}

pub fn s4_the_inbox_is_read_from_the_lowest_number_in_pages(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    insert(&subject, session, &[row(1, "a"), row(2, "b")]);
    let sent: Vec<u64> = (0..10)
        .map(|number| subject.sent(message(if number % 3 == 0 { "a" } else { "b" }, None, "x")))
        .collect();
    assert_eq!(numbers(&subject.inbox(session, 0, 100)), sent);
    assert_eq!(numbers(&subject.inbox(session, 0, 4)), sent[..4]);
    assert_eq!(numbers(&subject.inbox(session, sent[3] + 1, 4)), sent[4..8]);
    assert_eq!(numbers(&subject.inbox(session, sent[8], 4)), sent[8..]);
    assert_eq!(numbers(&subject.inbox(session, sent[9] + 1, 4)), Vec::<u64>::new());
    assert_eq!(numbers(&subject.inbox(session, 0, 0)), sent[..1], "a page has at least one row");
}

pub fn s4_each_pass_reads_the_messages_since_the_last_one(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let first: Vec<u64> = (0..4).map(|_| subject.sent(message("a", None, "x"))).collect();
    assert_eq!(numbers(&subject.inbox(session, 0, 100)), first);
    subject.write(session, member(&a).turn(2, "took two").consuming([first[0], first[2]]));
    let later = subject.sent(message("a", None, "x"));
    assert_eq!(numbers(&subject.inbox(session, 0, 100)), [first[1], first[3], later]);
}

pub fn s4_the_inbox_contains_only_messages_of_the_sessions_shards(make: Make<'_>) {
    let subject = Subject::new(make);
    let first = subject.own_all();
    let rows: Vec<InstanceRow> = (1..=32).map(|number| row(number, &format!("order-{number}"))).collect();
    insert(&subject, first, &rows);
    subject.try_send(rows.iter().map(|row| message(&row.id, None, "x")).collect()).unwrap();
    subject.end(first).unwrap();
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    let of_one = subject.claim(one, SHARDS / 2).unwrap();
    subject.claim(other, SHARDS).unwrap();
    let (mine, theirs) = (subject.inbox(one, 0, 100), subject.inbox(other, 0, 100));
    assert!(mine.iter().all(|row| of_one.contains(&row.shard)));
    assert!(!mine.is_empty() && !theirs.is_empty() && mine.len() + theirs.len() == rows.len());
    // A page is full even if rows of other owners lie in between.
    assert_eq!(numbers(&subject.inbox(one, 0, mine.len())), numbers(&mine));
    // A read can name a part of the shards.
    let shards = [rows[0].shard, rows[1].shard].map(|shard| ShardSet::from_iter([shard]));
    for (shards, row) in shards.into_iter().zip(&rows) {
        let session = if of_one.contains(&row.shard) { one } else { other };
        let query = InboxQuery { shards, from: 0, known: [].into(), limit: PageLimit::rows(100) };
        let page = wait_for(|reply| subject.store().read_inbox(session, query, reply)).unwrap();
        assert!(page.rows.iter().any(|message| message.key == row.key));
        assert!(page.rows.iter().all(|message| message.shard == row.shard));
    }
}

pub fn s4_messages_of_blocked_instances_are_parked(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    insert(&subject, session, &[a.clone(), b.clone()]);
    let parked: Vec<u64> = (0..5).map(|_| subject.sent(message("a", None, "x"))).collect();
    let other = subject.sent(message("b", None, "x"));
    let block = RowChange { blocked: Some(Some(blocked())), ..RowChange::default() };
    subject.write(session, member(&a).changing(block));
    assert_eq!(numbers(&subject.inbox(session, 0, 3)), [other], "they take no room in a page");
    let loaded = subject.load(&a, 0).unwrap();
    assert_eq!(numbers(&loaded.inbox), parked, "loading the instance returns them");
    let unblock = RowChange { blocked: Some(None), ..RowChange::default() };
    subject.write(session, member(&a).changing(unblock));
    assert_eq!(numbers(&subject.inbox(session, 0, 100)), [&parked[..], &[other]].concat());
}

fn waking(number: u64, wake_at_ms: u64) -> InstanceRow {
    InstanceRow { wake_at_ms: Some(wake_at_ms), ..row(number, &format!("order-{number}")) }
}

fn due(row: &InstanceRow) -> DueInstance {
    DueInstance { key: row.key, shard: row.shard, wake_at_ms: row.wake_at_ms.unwrap() }
}

pub fn s4_due_instances_come_in_due_order_in_pages(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let rows = [
        waking(1, 3_000),
        waking(2, 1_000),
        waking(3, 2_000),
        waking(4, 2_000),
        waking(5, 2_000),
        waking(6, 9_000),
    ];
    insert(&subject, session, &rows);
    insert(&subject, session, &[row(7, "never")]);
    let in_order = [1, 2, 3, 4, 0, 5].map(|place: usize| due(&rows[place]));
    assert_eq!(subject.due(session, 10_000, None, 100), in_order);
    assert_eq!(subject.due(session, 9_000, None, 100), in_order[..5], "due before that time, not at it");
    assert_eq!(subject.due(session, u64::MAX, None, 2), in_order[..2]);
    let mut paged: Vec<DueInstance> = Vec::new();
    loop {
        let after = paged.last().map(|last| (last.wake_at_ms, last.key));
        let page = subject.due(session, 10_000, after, 2);
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, in_order);
}

/// A wait without an end is due at the largest timestamp, which not every store can represent: it may be due
/// earlier, but not within any lifetime.
pub fn s4_endless_waits_are_stored_and_not_due(make: Make<'_>) {
    const FAR_MS: u64 = 1 << 62;
    let subject = Subject::new(make);
    let session = subject.own_all();
    insert(&subject, session, &[waking(1, u64::MAX), waking(2, 1_000)]);
    let forever = RowChange { wake_at_ms: Some(Some(u64::MAX)), ..RowChange::default() };
    subject.write(session, member(&waking(2, 1_000)).changing(forever));
    let delayed = InstanceRow { status: Status::Pending, ..waking(3, u64::MAX - 1) };
    subject.sent(SendRequest::Start { row: Box::new(delayed), body: bytes("start") });
    assert_eq!(subject.due(session, FAR_MS, None, 10), []);
    for id in ["order-1", "order-2", "order-3"] {
        let wake_at_ms = subject.find(id).and_then(|row| row.wake_at_ms);
        assert!(wake_at_ms >= Some(FAR_MS), "{id}: {wake_at_ms:?}");
    }
}

pub fn s4_only_unfinished_instances_of_the_sessions_shards_are_due(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let rows: Vec<InstanceRow> = (1..)
        .zip(Status::ALL)
        .map(|(number, status)| InstanceRow { status, owed: true, ..waking(number, 1_000) })
        .collect();
    insert(&subject, session, &rows);
    let keys = |rows: &[&InstanceRow]| rows.iter().map(|row| row.key).collect::<Vec<_>>();
    let due_keys = || subject.due(session, 2_000, None, 100).iter().map(|due| due.key).collect::<Vec<_>>();
    let owed_keys = || subject.owed(session, None, 100).iter().map(|owed| owed.0).collect::<Vec<_>>();
    assert_eq!((due_keys(), owed_keys()), (keys(&[&rows[0], &rows[1]]), keys(&[&rows[0], &rows[1]])));
    subject.write(session, member(&rows[1]).changing(status(Status::Failed)));
    assert_eq!((due_keys(), owed_keys()), (keys(&[&rows[0]]), keys(&[&rows[0]])));
    let later = RowChange { wake_at_ms: Some(Some(2_000)), owed: Some(false), ..RowChange::default() };
    subject.write(session, member(&rows[0]).changing(later));
    assert_eq!((due_keys(), owed_keys()), (vec![], vec![]));
    let never = RowChange { wake_at_ms: Some(None), owed: Some(true), ..RowChange::default() };
    subject.write(session, member(&rows[0]).changing(never));
    assert_eq!(subject.due(session, u64::MAX, None, 100), []);
    assert_eq!(owed_keys(), [rows[0].key]);
}

pub fn s4_owed_instances_come_by_key_in_pages(make: Make<'_>) {
    let subject = Subject::new(make);
    let first = subject.own_all();
    let rows: Vec<InstanceRow> = (1..=40)
        .map(|number| InstanceRow { owed: number % 2 == 0, ..row(number, &format!("order-{number}")) })
        .collect();
    insert(&subject, first, &rows);
    let owed: Vec<(InstanceKey, ShardId)> =
        rows.iter().filter(|row| row.owed).map(|row| (row.key, row.shard)).collect();
    assert_eq!(subject.owed(first, None, 100), owed);
    assert_eq!(subject.owed(first, None, 3), owed[..3]);
    assert_eq!(subject.owed(first, Some(owed[2].0), 100), owed[3..]);
    assert_eq!(subject.owed(first, Some(owed[19].0), 100), []);
    subject.end(first).unwrap();
    let half = subject.open_session(60_000);
    let shards = subject.claim(half, SHARDS / 2).unwrap();
    let mine: Vec<_> = owed.into_iter().filter(|(_, shard)| shards.contains(shard)).collect();
    assert!(!mine.is_empty() && mine.len() < 20);
    assert_eq!(subject.owed(half, None, 100), mine);
}

pub fn s4_loading_returns_the_row_the_turns_after_one_and_the_messages(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&a));
    subject.write(session, start(&b));
    subject.commit(session, (2..=12).map(|number| member(&a).turn(number, &format!("turn {number}"))));
    // With and without a key, so that only the number can order them.
    let sent: Vec<u64> = [Some("z"), None, Some("a"), None, Some("m")]
        .map(|dedupe| subject.sent(message("a", dedupe, "x")))
        .into();
    subject.sent(message("b", None, "not a's"));
    let loaded = subject.load(&a, 0).unwrap();
    assert_eq!(loaded.row, a);
    assert_eq!(loaded.turns.len(), 12);
    assert_eq!((&loaded.turns[1], &loaded.turns[11]), (&bytes("turn 2"), &bytes("turn 12")));
    assert_eq!(numbers(&loaded.inbox), sent);
    let rest = subject.load(&a, 10).unwrap();
    assert_eq!(rest.turns, [bytes("turn 11"), bytes("turn 12")]);
    assert_eq!(subject.load(&a, 12).unwrap().turns, Vec::<Arc<[u8]>>::new());
    assert_eq!(subject.load(&row(3, "nobody"), 0), None);
    assert_eq!(subject.find("nobody"), None);
}

pub fn s4_turns_are_read_after_a_number_up_to_a_limit(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&a));
    subject.write(session, start(&b));
    subject.commit(session, (2..=300).map(|number| member(&a).turn(number, &format!("turn {number}"))));
    let turns = subject.turns(&a, 1, 0, 1_000);
    assert_eq!((turns.len(), &turns[298]), (300, &bytes("turn 299")));
    assert_eq!(subject.turns(&a, 1, 1, 2), [bytes("turn 2"), bytes("turn 3")]);
    assert_eq!(subject.turns(&a, 1, 299, 2), [bytes("turn 300")]);
    assert_eq!(subject.turns(&a, 1, 300, 2), Vec::<Arc<[u8]>>::new());
    assert_eq!(subject.turns(&a, 2, 0, 2), Vec::<Arc<[u8]>>::new(), "another execution's");
    assert_eq!(subject.turns(&b, 1, 0, 2), [bytes("started")]);
}

pub fn s4_a_read_returns_every_commit_that_was_answered(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    for number in 2..=50 {
        subject.write(session, member(&a).turn(number, "x"));
        assert_eq!(subject.turns(&a, 1, number - 1, 10).len(), 1, "turn {number}");
        let sent = subject.sent(message("a", None, "x"));
        assert_eq!(subject.inbox(session, sent, 10).len(), 1, "message {sent}");
    }
}
