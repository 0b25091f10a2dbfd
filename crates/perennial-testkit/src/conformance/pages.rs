//! S4: reads under a session, and page sizes.

use perennial_core::store::{
    InboxQuery, InboxRow, InstanceRow, PageLimit, RowChange, SessionId, ShardSet, Status, StoreError,
};
use perennial_core::{SHARDS, ShardId};

use super::instances::{Build, blocked, member, message, outgoing, row, start, status, turn_row, urgent};
use super::subject::{Make, Subject, wait_for};

fn numbers(rows: &[InboxRow]) -> Vec<u64> {
    rows.iter().map(|row| row.number).collect()
}

fn bytes_of(rows: usize, bytes: u64) -> PageLimit {
    PageLimit { rows, bytes }
}

/// Every read that takes a session and shards, with its error if it was refused.
fn reads(subject: &Subject, session: SessionId, shards: ShardSet) -> Vec<Result<(), StoreError>> {
    let store = subject.store();
    let limit = PageLimit::rows(10);
    let query = InboxQuery { shards, from: 0, known: [].into(), limit };
    vec![
        wait_for(|reply| store.read_inbox(session, query, reply)).map(drop),
        wait_for(|reply| store.read_due(session, shards, u64::MAX, None, 10, reply)).map(drop),
        wait_for(|reply| store.read_owed(session, shards, None, 10, reply)).map(drop),
        wait_for(|reply| store.read_blocked(session, shards, None, 10, reply)).map(drop),
        wait_for(|reply| store.read_requests(session, shards, 0, limit, reply)).map(drop),
    ]
}

pub fn s4_reads_under_a_session_that_is_gone_answer_session_gone(make: Make<'_>) {
    let subject = Subject::new(make);
    let (ended, expired) = (subject.open_session(60_000), subject.open_session(1_000));
    let of_ended: ShardSet = subject.claim(ended, 20).unwrap().into_iter().collect();
    let of_expired: ShardSet = subject.claim(expired, 20).unwrap().into_iter().collect();
    let gone = vec![Err(StoreError::SessionGone); 5];
    subject.end(ended).unwrap();
    assert_eq!(reads(&subject, ended, of_ended), gone);
    subject.clock.advance(1_001);
    assert_eq!(reads(&subject, expired, of_expired), vec![Ok(()); 5], "the session has not been ended");
    let heir = subject.own_all();
    assert_eq!(reads(&subject, expired, of_expired), gone);
    assert_eq!(reads(&subject, expired, ShardSet::EMPTY), gone, "whatever it reads");
    assert_eq!(reads(&subject, SessionId(u128::MAX), ShardSet::EMPTY), gone);
    assert_eq!(reads(&subject, heir, ShardSet::ALL), vec![Ok(()); 5]);
    assert_eq!(reads(&subject, heir, ShardSet::EMPTY), vec![Ok(()); 5]);
}

pub fn s4_reads_of_a_shard_that_the_session_does_not_own_answer_session_gone(make: Make<'_>) {
    let subject = Subject::new(make);
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    let mine: ShardSet = subject.claim(one, SHARDS / 2).unwrap().into_iter().collect();
    let gone = vec![Err(StoreError::SessionGone); 5];
    assert_eq!(reads(&subject, one, ShardSet::ALL), gone, "half of them have no owner");
    subject.claim(other, SHARDS).unwrap();
    assert_eq!(reads(&subject, one, ShardSet::ALL), gone, "another session owns half of them");
    assert_eq!(reads(&subject, one, mine), vec![Ok(()); 5]);
    let first = mine.iter().next().expect("a shard");
    subject.release(one, [first].into_iter().collect()).unwrap();
    assert_eq!(reads(&subject, one, mine), gone, "one of them was released");
    let mut rest = mine;
    rest.remove(first);
    assert_eq!(reads(&subject, one, rest), vec![Ok(()); 5]);
}

pub fn s4_the_inbox_leaves_out_known_numbers(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.write(session, start(&row(1, "a")));
    let sent: Vec<u64> = (0..10).map(|_| subject.sent(message("a", None, "x"))).collect();
    let read = |from: u64, known: &[u64], rows: usize| {
        let page = subject.inbox_page(session, from, known, PageLimit::rows(rows)).unwrap();
        (numbers(&page.rows), page.next)
    };
    assert_eq!(read(0, &sent, 100), (vec![], None));
    assert_eq!(read(0, &sent[2..8], 100), (vec![sent[0], sent[1], sent[8], sent[9]], None));
    // Known messages take no room in a page, and a page that is full names the start of the next.
    let (first, next) = read(0, &sent[1..7], 2);
    assert_eq!(first, [sent[0], sent[7]]);
    assert_eq!(read(next.expect("there is more"), &sent[1..7], 2), (vec![sent[8], sent[9]], None));
    // Numbers that no longer exist, or do not exist yet, are accepted.
    let known = [vec![0], sent[..9].to_vec(), vec![u64::MAX - 1, u64::MAX]].concat();
    assert_eq!(read(0, &known, 100), (vec![sent[9]], None));
    let many: Vec<u64> = (0..20_000).filter(|number| *number != sent[4]).collect();
    assert_eq!(read(0, &many, 100), (vec![sent[4]], None));
}

pub fn s4_a_page_names_the_start_of_the_next(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let sent: Vec<u64> = (0..7).map(|_| subject.sent(message("a", None, "x"))).collect();
    let asked: Vec<u64> = (0..7).map(|_| subject.requested("a", 60_000, "?")).collect();
    for rows in 1..=8 {
        let (mut inbox, mut requests, mut loaded) = (Vec::new(), Vec::new(), Vec::new());
        let mut from = Some(0);
        while let Some(number) = from {
            let page = subject.inbox_page(session, number, &[], PageLimit::rows(rows)).unwrap();
            assert!(page.rows.len() <= rows);
            inbox.extend(numbers(&page.rows));
            from = page.next;
        }
        let mut from = Some(0);
        while let Some(number) = from {
            let page = subject.request_page(session, ShardSet::ALL, number, PageLimit::rows(rows)).unwrap();
            assert!(page.rows.len() <= rows);
            requests.extend(page.rows.iter().map(|request| request.number));
            from = page.next;
        }
        let page = subject.load_page(&a, 0, PageLimit::rows(rows)).unwrap().inbox;
        loaded.extend(numbers(&page.rows));
        assert_eq!((&inbox, &requests), (&sent, &asked), "in pages of {rows}");
        assert_eq!(loaded, sent[..rows.min(7)]);
        assert_eq!(page.next.is_some(), rows < 7, "in pages of {rows}");
        assert!(page.next.is_none_or(|next| next > loaded[rows - 1] && next <= sent[rows]));
    }
}

pub fn s4_pages_are_bounded_in_bytes(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    let sizes = [100, 100, 100, 5_000, 100];
    let body = |size: usize| "x".repeat(size);
    subject.write(session, start(&a).turn(1, &body(100)));
    for (number, size) in (2..).zip(&sizes[1..]) {
        subject.write(session, member(&a).turn(number, &body(*size)));
    }
    let sent = subject.write(session, member(&a).sending(sizes.map(|size| outgoing(&a, None, &body(size)))));
    let sent: Vec<u64> = sent.into_iter().flatten().collect();
    let asked: Vec<u64> = sizes.iter().map(|size| subject.requested("a", 60_000, &body(*size))).collect();
    // A page ends before the row that does not fit; a row that is too large is a page of its own.
    for (from, limit, rows) in [
        (0, bytes_of(10, 299), 2),
        (0, bytes_of(10, 300), 3),
        (0, bytes_of(2, 300), 2),
        (0, bytes_of(10, 5_299), 3),
        (0, bytes_of(10, 5_300), 4),
        (3, bytes_of(10, 300), 1),
        (3, bytes_of(10, 0), 1),
        (0, bytes_of(10, u64::MAX), 5),
    ] {
        let expected = from..from + rows;
        let page = subject.inbox_page(session, sent[from], &[], limit).unwrap();
        assert_eq!(numbers(&page.rows), sent[expected.clone()], "{limit:?} from {from}");
        assert_eq!(page.next.is_none(), expected.end == 5, "{limit:?} from {from}");
        let page = subject.request_page(session, ShardSet::ALL, asked[from], limit).unwrap();
        let read: Vec<u64> = page.rows.iter().map(|request| request.number).collect();
        assert_eq!(read, asked[expected.clone()], "{limit:?} from {from}");
        let turns = subject.turn_rows(&a, 1, from as u64, limit);
        assert_eq!(turns.len(), rows, "{limit:?} from {from}");
        if from == 0 {
            let page = subject.load_page(&a, 0, limit).unwrap().inbox;
            assert_eq!(numbers(&page.rows), sent[expected], "{limit:?}");
        }
    }
}

pub fn s4_loading_returns_all_turns_and_their_checksums(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    let turns = [(1, "first"), (2, ""), (3, "third")].map(|(number, body)| turn_row(1, number, body));
    subject.write(session, start(&a).turn(1, "first"));
    subject.write(session, member(&a).turn(2, ""));
    subject.write(session, member(&a).turn(3, "third"));
    let page = PageLimit::rows(1);
    assert_eq!(subject.load_page(&a, 0, page).unwrap().turns, turns);
    assert_eq!(subject.load_page(&a, 2, page).unwrap().turns, turns[2..]);
    assert_eq!(subject.turn_rows(&a, 1, 0, PageLimit::rows(10)), turns);
    assert_eq!(subject.turn_rows(&a, 1, 1, PageLimit::rows(1)), turns[1..2]);
}

pub fn s4_blocked_instances_come_by_key_in_pages(make: Make<'_>) {
    let subject = Subject::new(make);
    let first = subject.own_all();
    let rows: Vec<InstanceRow> = (1..=40)
        .map(|number| InstanceRow {
            blocked: (number % 2 == 0).then(blocked),
            status: if number % 5 == 0 { Status::Failed } else { Status::Running },
            ..row(number, &format!("order-{number}"))
        })
        .collect();
    subject.commit(first, rows.iter().map(|row| member(row).inserting(row.clone())));
    let expected: Vec<_> = rows
        .iter()
        .filter(|row| row.blocked.is_some() && !row.status.is_final())
        .map(|row| (row.key, row.shard))
        .collect();
    assert_eq!(subject.blocked(first, None, 100), expected);
    assert_eq!(subject.blocked(first, None, 3), expected[..3]);
    assert_eq!(subject.blocked(first, Some(expected[2].0), 100), expected[3..]);
    let shard = expected[0].1;
    let of_shard = subject.try_blocked(first, [shard].into_iter().collect(), None, 100).unwrap();
    assert!(of_shard.contains(&expected[0]) && of_shard.iter().all(|(_, of)| *of == shard));
    let (unblock, end) =
        (RowChange { blocked: Some(None), ..RowChange::default() }, status(Status::Terminated));
    let by_key = |place: usize| rows.iter().find(|row| row.key == expected[place].0).expect("a row");
    subject.write(first, member(by_key(0)).changing(unblock));
    subject.write(first, member(by_key(1)).changing(end));
    assert_eq!(subject.blocked(first, None, 100), expected[2..]);
}

pub fn s4_pages_of_some_shards_are_full_despite_rows_of_others(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let rows: Vec<InstanceRow> = (1..=30)
        .map(|number| InstanceRow {
            owed: true,
            wake_at_ms: Some(1_000 + number),
            ..row(number, &format!("order-{number}"))
        })
        .collect();
    subject.commit(session, rows.iter().map(|row| member(row).inserting(row.clone())));
    let shards: Vec<ShardId> = [28, 29].map(|place: usize| rows[place].shard).into();
    let shards: ShardSet = shards.into_iter().collect();
    let mine: Vec<&InstanceRow> = rows.iter().filter(|row| shards.contains(row.shard)).collect();
    let keys: Vec<_> = mine.iter().map(|row| row.key).collect();
    let due = subject.try_due(session, shards, 9_000, None, mine.len()).unwrap();
    assert_eq!(due.iter().map(|due| due.key).collect::<Vec<_>>(), keys);
    let owed = subject.try_owed(session, shards, None, mine.len()).unwrap();
    assert_eq!(owed.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
    for row in &rows {
        subject.sent(urgent(&row.id, None, "x"));
        subject.requested(&row.id, 60_000, "?");
    }
    let limit = PageLimit::rows(mine.len());
    let query = InboxQuery { shards, from: 0, known: [].into(), limit };
    let page = wait_for(|reply| subject.store().read_inbox(session, query, reply)).unwrap();
    assert_eq!((page.rows.iter().map(|row| row.key).collect::<Vec<_>>(), page.next), (keys.clone(), None));
    let page = subject.request_page(session, shards, 0, limit).unwrap();
    assert_eq!((page.rows.iter().map(|row| row.key).collect::<Vec<_>>(), page.next), (keys, None));
}
