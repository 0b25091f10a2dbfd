//! N19: moving all rows to another store.

use perennial_core::store::attribute;
use perennial_core::store::{
    Criteria, Imported, InstanceRow, MemoryStore, MoveMark, MoveSide, MovedKey, MovedRow, MovedTable,
    PageLimit, RowChange, RowDigest, SendOutcome, SessionId, SessionRole, ShardSet, Status, StoreError,
    TaskRow, TaskState,
};
use perennial_core::{Payload, ShardId};

use super::commits::full_row;
use super::instances::{
    Build, attributes, bytes, member, message, outgoing, row, start, start_request, status, task, turn_row,
    urgent,
};
use super::subject::{Make, Subject, new_session, wait_for};

/// All rows of a table, read in pages.
fn table(subject: &Subject, table: MovedTable, limit: PageLimit) -> Vec<MovedRow> {
    let mut rows: Vec<MovedRow> = Vec::new();
    loop {
        let after = rows.last().map(MovedRow::key);
        let page = wait_for(|reply| subject.store().export_rows(table, after, limit, reply)).expect("a page");
        if page.is_empty() {
            return rows;
        }
        assert!(page.len() <= limit.rows.max(1), "a page of {}", page.len());
        assert!(page.iter().all(|row| row.table() == table), "a page of {table:?} has other rows");
        rows.extend(page);
        assert!(rows.len() < 1_000_000, "the export of {table:?} does not end");
    }
}

/// All rows, each table sorted by key.
fn export(subject: &Subject) -> Vec<MovedRow> {
    let mut rows = Vec::new();
    for of in MovedTable::ALL {
        let mut rows_of = table(subject, of, PageLimit::rows(1_000));
        rows_of.sort_by_key(MovedRow::key);
        rows.extend(rows_of);
    }
    rows
}

fn import(subject: &Subject, session: SessionId, rows: Vec<MovedRow>) -> Result<Imported, StoreError> {
    wait_for(|reply| subject.store().import_rows(session, rows, reply))
}

/// Imports rows table by table, and returns how many were written.
fn import_all(subject: &Subject, session: SessionId, rows: &[MovedRow]) -> usize {
    let mut written = 0;
    for of in MovedTable::ALL {
        let rows: Vec<MovedRow> = rows.iter().filter(|row| row.table() == of).cloned().collect();
        let imported = import(subject, session, rows).expect("the rows are imported");
        assert_eq!(imported.differs, None);
        written += imported.written;
    }
    written
}

fn maintenance(subject: &Subject) -> SessionId {
    let new = new_session(SessionRole::Maintenance, 60_000);
    let id = new.id;
    subject.open(new).expect("no lane is live");
    id
}

/// A store with rows of all kinds that was released by its owner.
fn filled(make: Make<'_>) -> Subject {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b, c, later) = (row(1, "a"), row(2, "b"), row(3, "c"), row(4, "later"));
    let full = full_row();
    subject.write(session, member(&full).inserting(full.clone()));
    subject.write(session, start(&a));
    let continued = RowChange { execution: Some(2), ..RowChange::default() };
    subject.clock.advance(5);
    subject.write(session, member(&a).turn_of(2, 1, "again\0\u{e9}").changing(continued));
    subject.write(session, start(&b).sending([outgoing(&a, Some("k"), "hello"), outgoing(&a, None, "")]));
    subject.sent(message("a", Some("k\u{2028}"), "event"));
    subject.sent(urgent("b", None, "stop"));
    let parked = InstanceRow { wake_at_ms: Some(1_900_000_000_000), ..later };
    assert!(matches!(subject.send(start_request(&parked, "start")), SendOutcome::Sent(_)));
    let consumed = subject.sent(message("b", None, "the last number"));
    subject.write(session, member(&b).turn(2, "took it").consuming([consumed]));
    let tasks = [
        task(&a, 2),
        TaskRow {
            state: TaskState::Leased { holder: SessionId(u128::MAX - 7), cancelled: true },
            due_ms: Some(1_700_000_123_456),
            since_ms: None,
            details: Some(Payload::from_json("{\"step\": 3}").expect("JSON")),
            tag: Some("gpu".to_owned()),
            ..task(&a, 3)
        },
        TaskRow { state: TaskState::Waiting, due_ms: Some(7), work: None, interruptions: 2, ..task(&a, 4) },
    ];
    subject.write(session, member(&a).turn_of(2, 2, "tasks").putting(tasks));
    let found = RowChange {
        attributes: Some(attributes(&[("customer", "\"ada\""), ("n", "1.50")])),
        ..status(Status::Completed)
    };
    subject.write(session, start(&c).changing(found));
    subject.write_setting("paused_orchestrations", Some("{}"));
    subject.note(session, vec![(ShardId(3), Some(bytes("a note")))], false).expect("a note");
    // One shard is released, the others are lost with their owner.
    subject.release(session, ShardSet::from_iter([ShardId(7)])).expect("a release");
    subject.clock.advance(100_000);
    let next = maintenance(&subject);
    subject.claim(next, 256).expect("the claim ends the expired session");
    subject.end(next).expect("an end");
    subject
}

pub fn n19_an_export_is_the_same_after_an_import(make: Make<'_>) {
    let subject = filled(make);
    let rows = export(&subject);
    for of in MovedTable::ALL {
        assert!(rows.iter().any(|row| row.table() == of), "the test has no rows of {of:?}");
    }
    let clock = subject.clock.clone();
    let model = Subject::over(MemoryStore::new(move || clock.now_ms()));
    for other in [model, Subject::new(make)] {
        let session = maintenance(&other);
        other.claim(session, 256).expect("a claim leaves no trace in shards");
        assert_eq!(import_all(&other, session, &rows), rows.len());
        assert_eq!(import_all(&other, session, &rows), 0, "everything is there");
        assert_eq!(export(&other), rows);
        // The rows serve as those of the first store do.
        other.end(session).expect("an end");
        subject.clock.advance(200_000);
        other.clock.advance(200_000);
        let lane = other.own_all();
        for id in ["a", "b", "c", "later"] {
            let (loaded, moved) = (subject.find(id).expect("a row"), other.find(id).expect("a row"));
            assert_eq!(loaded, moved);
            assert_eq!(subject.load(&moved, 0), other.load(&moved, 0));
        }
        let by_attribute = Criteria { conditions: vec![attribute("n").equal_to(1.5)], ..Criteria::default() };
        let ada = other.list(&by_attribute, None, 10);
        assert_eq!(ada.rows.iter().map(|row| &*row.id).collect::<Vec<_>>(), ["c"], "attributes are indexed");
        assert!(matches!(other.send(message("a", Some("k"), "again")), SendOutcome::Duplicate(_)));
        let owned = other.claim_rows(lane, 256).expect("a claim");
        let noted = owned.iter().find(|row| row.shard == ShardId(3)).expect("shard 3");
        assert_eq!((noted.note.clone(), noted.unclean_ends), (Some(bytes("a note")), 1));
        assert_eq!(noted.gaps.len(), 1, "the time without an owner includes the move");
    }
}

pub fn n19_pages_have_each_row_once(make: Make<'_>) {
    let subject = filled(make);
    let rows = export(&subject);
    let mut digest = RowDigest::default();
    rows.iter().for_each(|row| digest.add(row));
    for limit in [PageLimit::rows(1), PageLimit::rows(2), PageLimit { rows: 1_000, bytes: 1 }] {
        let mut paged = RowDigest::default();
        for of in MovedTable::ALL {
            table(&subject, of, limit).iter().for_each(|row| paged.add(row));
        }
        assert_eq!(paged, digest, "with {limit:?}");
    }
}

pub fn n19_a_stored_row_that_differs_is_named_and_kept(make: Make<'_>) {
    let subject = filled(make);
    let rows = export(&subject);
    let a = subject.find("a").expect("a row");
    let session = maintenance(&subject);
    let other_turn = MovedRow::Turn(a.key, turn_row(2, 1, "another"));
    let other_instance = MovedRow::Instance(Box::new(InstanceRow { owed: !a.owed, ..a.clone() }));
    // Another instance has the id.
    let same_id = MovedRow::Instance(Box::new(InstanceRow { key: row(99, "x").key, ..a }.sealed()));
    let mut changed = vec![other_turn, other_instance, same_id];
    for row in &rows {
        changed.extend(match row.clone() {
            MovedRow::Message(mut message) => {
                message.row.arrived_ms += 1;
                Some(MovedRow::Message(message))
            }
            MovedRow::Task(mut task) => {
                task.attempt += 1;
                Some(MovedRow::Task(task))
            }
            MovedRow::Continuation(key, execution, at_ms) => {
                Some(MovedRow::Continuation(key, execution, at_ms + 1))
            }
            MovedRow::Shard(mut shard) => {
                shard.unclean_ends += 1;
                Some(MovedRow::Shard(shard))
            }
            MovedRow::Setting(name, _) => Some(MovedRow::Setting(name, bytes("other"))),
            _ => None,
        });
    }
    for row in changed {
        let imported = import(&subject, session, vec![row.clone()]).expect("it is compared");
        assert_eq!(imported, Imported { written: 0, differs: Some(row.key()) });
    }
    assert_eq!(export(&subject), rows);
}

pub fn n19_numbers_continue_after_the_last_one_that_was_moved(make: Make<'_>) {
    let subject = filled(make);
    let rows = export(&subject);
    let Some(MovedRow::LastMessage(last)) = rows.last() else { panic!("the counter comes last: {rows:?}") };
    let highest = rows.iter().filter_map(|row| match row.key() {
        MovedKey::Message(_, number, _) => Some(number),
        _ => None,
    });
    assert!(highest.max().is_some_and(|highest| highest <= *last));
    let other = Subject::new(make);
    let session = maintenance(&other);
    import_all(&other, session, &rows);
    let number = other.sent(message("a", None, "new"));
    assert!(number > *last, "{number} follows {last}");
    // A counter that is behind is not set back.
    let imported = import(&other, session, vec![MovedRow::LastMessage(1)]).expect("it is compared");
    assert_eq!(imported, Imported::default());
    assert!(other.sent(message("a", None, "newer")) > number);
}

pub fn n19_a_session_that_is_gone_imports_nothing(make: Make<'_>) {
    let subject = filled(make);
    let rows = export(&subject);
    let other = Subject::new(make);
    let session = maintenance(&other);
    let lane = other.own_all();
    for of in MovedTable::ALL {
        let rows: Vec<MovedRow> = rows.iter().filter(|row| row.table() == of).cloned().collect();
        assert_eq!(import(&other, session, rows), Err(StoreError::SessionGone), "{of:?}");
    }
    other.end(lane).expect("an end");
    assert_eq!(table(&other, MovedTable::Instances, PageLimit::rows(10)), []);
    assert_eq!(table(&other, MovedTable::Counters, PageLimit::rows(10)), [MovedRow::LastMessage(0)]);
}

pub fn n19_rows_of_deleted_instances_stay_behind(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    subject.write(session, start(&b));
    subject.write(session, start(&a));
    let turns = (2..=3_000).map(|number| member(&a).turn(number, "turn"));
    for outcomes in turns.collect::<Vec<_>>().chunks(500) {
        subject.commit(session, outcomes.to_vec());
    }
    subject.write(session, member(&a).changing(status(Status::Completed)));
    subject.delete([&a]);
    let turns = table(&subject, MovedTable::Turns, PageLimit::rows(1_000));
    assert_eq!(turns, [MovedRow::Turn(b.key, turn_row(1, 1, "started"))]);
}

pub fn n19_a_store_with_the_mark_of_a_move_refuses_nodes_and_lanes(make: Make<'_>) {
    let subject = Subject::new(make);
    let mark = MoveMark {
        id: "1".to_owned(),
        side: MoveSide::Source,
        other: "postgres://db/shop".to_owned(),
        is_done: true,
    };
    let text = String::from_utf8(mark.encode().to_vec()).expect("JSON");
    let lane = subject.open_session(60_000);
    subject.write_setting(MoveMark::SETTING, Some(&text));
    let refused = |opened: Result<(), StoreError>| match opened {
        Err(StoreError::CannotOpen(reason)) => assert!(reason.contains("postgres://db/shop"), "{reason}"),
        other => panic!("it should be refused: {other:?}"),
    };
    for role in [SessionRole::Node, SessionRole::Lane] {
        refused(subject.open(new_session(role, 60_000)).map(drop));
    }
    refused(subject.replace(lane, new_session(SessionRole::Lane, 60_000)).map(drop));
    subject.end(lane).expect("an end");
    let visitor = maintenance(&subject);
    refused(subject.open(new_session(SessionRole::Lane, 60_000)).map(drop));
    subject.renew(visitor).expect("a refused lane does not end the maintenance");
    let settings = table(&subject, MovedTable::Settings, PageLimit::rows(10));
    assert_eq!(settings, [], "the mark is not moved");
    subject.write_setting(MoveMark::SETTING, None);
    subject.open_session(60_000);
}
