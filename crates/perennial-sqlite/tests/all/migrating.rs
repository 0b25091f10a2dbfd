//! A database that an earlier version made is brought to this one when it is opened.

use std::sync::Barrier;
use std::thread;

use crate::support::Place;
use perennial_core::history::{EventId, ParentLink};
use perennial_core::store::{Criteria, DeleteOutcome, InstanceRow, PageLimit, Status, attribute};
use perennial_core::{Attributes, Payload};
use perennial_testkit::conformance::Subject;
use perennial_testkit::conformance::instances::{Build, bytes, member, message, row};
use rusqlite::{Connection, params};

/// The tables of versions 1 to 4, as they made them.
const VERSION_1: &str = include_str!("../../src/migrations/1.sql");
const VERSION_2: &str = include_str!("../../src/migrations/2.sql");
const VERSION_3: &str = include_str!("../../src/migrations/3.sql");
const VERSION_4: &str = include_str!("../../src/migrations/4.sql");

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let attribute = |(name, json): &(&str, &str)| ((*name).to_owned(), Payload::from_json(*json).unwrap());
    pairs.iter().map(attribute).collect()
}

/// A parent, its child with attributes, and one that has ended.
fn rows() -> [InstanceRow; 3] {
    let parent = row(1, "parent");
    let link = ParentLink {
        instance: "parent".to_owned(),
        key: parent.key.to_string(),
        execution: 1,
        event_id: EventId(2),
    };
    let child = InstanceRow {
        parent: Some(link),
        // The text is compared, so its spaces count.
        attributes: attributes(&[("customer", "\"x\""), ("size", "[1,  2.50]")]),
        ..row(2, "child")
    }
    .sealed();
    let ended = InstanceRow {
        status: Status::Completed,
        attributes: attributes(&[("customer", "\"x\"")]),
        ..row(3, "ended")
    };
    [parent, child, ended]
}

/// A database of version 1, with these rows, a turn of each, and a message to the first.
fn make_version_1(place: &Place) {
    let connection: Connection = place.connection();
    connection.execute_batch("PRAGMA journal_mode=WAL").unwrap();
    connection.execute_batch(VERSION_1).unwrap();
    connection.execute_batch("PRAGMA application_id=1348825701; PRAGMA user_version=1").unwrap();
    for row in rows() {
        let key = row.key.as_bytes();
        let text = |attributes: &Attributes| {
            let pairs = attributes.iter().map(|(name, value)| format!("\"{name}\":{}", value.as_json()));
            (!attributes.is_empty()).then(|| format!("{{{}}}", pairs.collect::<Vec<_>>().join(",")))
        };
        let parent = row.parent.as_ref().map(|link| {
            format!(
                "{{\"instance\":\"{}\",\"key\":\"{}\",\"execution\":1,\"event_id\":2}}",
                link.instance, link.key
            )
        });
        connection
            .execute(
                "INSERT INTO instances (key, id, shard, name, version, status, execution, owed, attributes, parent,
                                        created_ms)
                 VALUES (?1, ?2, ?3, 'checkout', '1.0.0', ?4, 1, 0, ?5, ?6, ?7)",
                params![
                    key,
                    row.id,
                    row.shard.0,
                    if row.status == Status::Completed { 2 } else { 1 },
                    text(&row.attributes),
                    parent,
                    row.created_ms as i64
                ],
            )
            .unwrap();
        connection.execute("INSERT INTO turns VALUES (?1, 1, 1, x'31')", [key]).unwrap();
    }
    connection
        .execute("INSERT INTO inbox (number, key, shard, body) SELECT 7, key, shard, x'6d' FROM instances WHERE id = 'parent'", [])
        .unwrap();
}

fn ids(subject: &Subject, filter: &Criteria) -> Vec<String> {
    subject.list(filter, None, 10).rows.into_iter().map(|row| row.id).collect()
}

fn having(pairs: &[(&str, &str)]) -> Criteria {
    Criteria { attributes: attributes(pairs), ..Criteria::default() }
}

#[test]
fn s9_a_database_of_version_1_is_brought_to_this_one_with_all_its_rows() {
    let place = Place::new();
    make_version_1(&place);
    let owner = place.owner();
    let [parent, child, mut ended] = rows();
    assert_eq!(owner.find("parent"), Some(parent.clone()));
    assert_eq!(owner.find("child"), Some(child.clone()));
    let found = owner.find("ended").unwrap();
    assert!(
        found.ended_ms > Some(ended.created_ms),
        "it counts as ended when it was brought here: {found:?}"
    );
    ended.ended_ms = found.ended_ms;
    assert_eq!(found, ended);
    assert_eq!(ids(&owner, &having(&[("customer", "\"x\"")])), ["child", "ended"]);
    assert_eq!(ids(&owner, &having(&[("size", "[1,  2.50]")])), ["child"]);
    assert_eq!(ids(&owner, &having(&[("size", "[1, 2.50]")])), Vec::<String>::new());
    assert_eq!(ids(&owner, &Criteria { parent: Some(parent.key), ..Criteria::default() }), ["child"]);
    let before = |ended_before_ms| Criteria { ended_before_ms, ..Criteria::default() };
    assert_eq!(ids(&owner, &before(ended.ended_ms)), Vec::<String>::new());
    assert_eq!(ids(&owner, &before(ended.ended_ms.map(|at_ms| at_ms + 1))), ["ended"]);
    // It goes on where it was.
    let session = owner.own_all();
    let inbox = owner.inbox(session, 0, 10);
    assert_eq!(inbox.iter().map(|row| (row.number, row.key)).collect::<Vec<_>>(), [(7, parent.key)]);
    assert_eq!((inbox[0].arrived_ms, inbox[0].urgent), (0, false), "it arrived before every other");
    let turns = owner.turn_rows(&parent, 1, 0, PageLimit::rows(10));
    assert_eq!(turns.iter().map(|turn| (turn.number, turn.checksum)).collect::<Vec<_>>(), [(1, 0)]);
    owner.write(session, member(&parent).turn(2, "second").consuming([7]));
    assert_eq!(owner.sent(message("parent", None, "x")), 8);
    assert_eq!(owner.load(&parent, 0).unwrap().turns, [bytes("1"), bytes("second")]);
    assert_eq!(owner.delete([&ended]), [DeleteOutcome::Deleted]);
    assert_eq!(ids(&owner, &having(&[("customer", "\"x\"")])), ["child"]);
}

#[test]
fn s9_a_row_that_version_1_left_corrupt_stands_in_nobodys_way() {
    let place = Place::new();
    make_version_1(&place);
    let broken = "UPDATE instances SET attributes = '{not json', parent = 'nor this' WHERE id = 'child'";
    place.connection().execute_batch(broken).unwrap();
    let owner = place.owner();
    assert_eq!(ids(&owner, &having(&[("customer", "\"x\"")])), ["ended"]);
    assert_eq!(ids(&owner, &Criteria::default()), ["parent", "child", "ended"]);
}

#[test]
fn s9_of_fifty_who_open_an_older_database_one_migrates_it() {
    let place = Place::new();
    make_version_1(&place);
    let together = Barrier::new(50);
    thread::scope(|scope| {
        let opening: Vec<_> = (0..50)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    // An owner would hold the others up until it is gone, and be told so.
                    place.try_guest()
                })
            })
            .collect();
        for opened in opening {
            assert_eq!(ids(&Subject::over(opened.join().unwrap().unwrap()), &Criteria::default()).len(), 3);
        }
    });
    let (version, attributes): (i64, i64) = place
        .connection()
        .query_row(
            "SELECT (SELECT user_version FROM pragma_user_version), count(*) FROM attributes",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((version, attributes), (5, 3));
}

#[test]
fn s9_a_database_of_version_2_keeps_requests_and_tasks_and_gives_up_sessions_and_notes() {
    let place = Place::new();
    make_version_1(&place);
    place
        .connection()
        .execute_batch(&format!(
            "{VERSION_2};
             INSERT INTO sessions VALUES (x'07', 'node', 1000, 1);
             INSERT INTO shards SELECT shard, x'07' FROM instances;
             INSERT INTO notes VALUES ('suspects', x'00');
             INSERT INTO asks (number, key, shard, deadline_ms, body)
             SELECT 5, key, shard, 9000000000000, x'3f' FROM instances WHERE id = 'parent';
             INSERT INTO asks (number, key, shard, deadline_ms, body)
             SELECT 9, key, shard, 9000000000000, x'3f' FROM instances WHERE id = 'parent';
             DELETE FROM asks WHERE number = 9;
             INSERT INTO answers VALUES (3, 9000000000000, x'21');
             INSERT INTO tasks (key, execution, event, shard, state, cancelled, attempt, interruptions, name)
             SELECT key, 1, 2, shard, 0, 0, 1, 0, 'charge' FROM instances WHERE id = 'parent';
             PRAGMA user_version=2"
        ))
        .unwrap();
    let owner = place.owner();
    let session = owner.own_all();
    assert!(owner.claim_rows(session, 0).unwrap().iter().all(|owned| owned.epoch == 1));
    let requests = owner.requests(session, 0, 10);
    assert_eq!(requests.iter().map(|it| (it.number, it.after)).collect::<Vec<_>>(), [(5, None)]);
    assert_eq!(owner.reply_to(3), Some(bytes("!")));
    assert_eq!(owner.requested("parent", 1_000, "?"), 10, "no number is given twice");
    let [parent, ..] = rows();
    assert_eq!(owner.load(&parent, 0).unwrap().tasks.len(), 1);
    assert_eq!(owner.setting("suspects"), None);
    // The same again changes nothing.
    drop(owner);
    assert_eq!(place.owner().find("parent"), Some(parent));
}

#[test]
fn s16_a_database_of_version_3_is_searched_by_ranges_once_it_is_brought_here() {
    let place = Place::new();
    make_version_1(&place);
    place
        .connection()
        .execute_batch(&format!(
            "{VERSION_2}; {VERSION_3};
             INSERT INTO attributes (key, name, value) SELECT key, 'customer', '\"x\"' FROM instances WHERE id <> 'parent';
             PRAGMA user_version=3"
        ))
        .unwrap();
    let owner = place.owner();
    let searching = |condition| Criteria { conditions: vec![condition], ..Criteria::default() };
    assert_eq!(ids(&owner, &searching(attribute("customer").starts_with("x"))), ["child", "ended"]);
    assert_eq!(ids(&owner, &searching(attribute("customer").less_than("y"))), ["child", "ended"]);
    assert_eq!(ids(&owner, &searching(attribute("customer").greater_than("x"))), [""; 0]);
    assert_eq!(ids(&owner, &having(&[("size", "[1,  2.50]")])), ["child"]);
}

#[test]
fn s9_tasks_of_version_4_are_sealed_again_and_damaged_ones_stay_damaged() {
    // CRC-32 over the kinds, lengths and bytes of the sixteen columns that version 4 had, as it wrote it.
    fn sealed(key: &[u8; 16], shard: u8, name: &str) -> i64 {
        let integer = |number: i64| (1_u8, number.to_le_bytes().to_vec());
        let null = || (0_u8, Vec::new());
        let values = [
            (4, key.to_vec()),
            integer(1),
            integer(2),
            integer(i64::from(shard)),
            integer(0),
            null(),
            integer(0),
            integer(1),
            null(),
            null(),
            integer(0),
            (3, name.as_bytes().to_vec()),
            null(),
            null(),
            null(),
            null(),
        ];
        let mut hasher = crc32fast::Hasher::new();
        for (kind, bytes) in values {
            hasher.update(&[kind]);
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(&bytes);
        }
        i64::from(hasher.finalize())
    }
    let place = Place::new();
    make_version_1(&place);
    let [parent, child, _] = rows();
    let connection = place.connection();
    connection
        .execute_batch(&format!("{VERSION_2}; {VERSION_3}; {VERSION_4}; PRAGMA user_version=4"))
        .unwrap();
    for (row, name, sealed_name) in [(&parent, "charge", "charge"), (&child, "charged", "charge")] {
        connection
            .execute(
                "INSERT INTO tasks (key, execution, event, shard, state, cancelled, attempt, interruptions, name, \
                 checksum) VALUES (?1, 1, 2, ?2, 0, 0, 1, 0, ?3, ?4)",
                params![
                    row.key.as_bytes(),
                    row.shard.0,
                    name,
                    sealed(row.key.as_bytes(), row.shard.0, sealed_name)
                ],
            )
            .unwrap();
    }
    drop(connection);
    let owner = place.owner();
    let task = owner.load(&parent, 0).unwrap().tasks.remove(0);
    assert_eq!((task.name.as_str(), task.since_ms, task.heard_ms), ("charge", None, None));
    let listed: Vec<String> = owner.list_tasks(None, 10).into_iter().map(|task| task.name).collect();
    assert_eq!(listed, ["charge"], "the one that was changed is damaged as before");
}
