//! Other processes run tasks, ask and clean up while a runtime owns the file.

use crate::support::{Place, answered, hints, wait_for};
use perennial_core::Payload;
use perennial_core::store::{
    Commit, CommitOutcome, Conflict, DeleteOutcome, InstanceRow, RequestOutcome, RequestReply, RowChange,
    Served, SessionId, Status, Swept, TaskChange, TaskRenewal, TaskReport, TaskRow,
};
use perennial_testkit::conformance::Subject;
use perennial_testkit::conformance::instances::{self, Build, bytes, member, message, row, start, status};

const HOLDER: SessionId = SessionId(77);

fn task(row: &InstanceRow, event: u64) -> TaskRow {
    TaskRow { tag: Some("gpu".to_owned()), ..instances::task(row, event) }
}

fn putting(commit: Commit, tasks: impl IntoIterator<Item = TaskRow>) -> Commit {
    let tasks = tasks.into_iter().map(|task| TaskChange::Put(Box::new(task))).collect();
    Commit { tasks, ..commit }
}

fn served() -> Served {
    Served { names: ["charge".to_owned()].into(), tags: ["gpu".to_owned()].into(), ..Served::default() }
}

fn take(subject: &Subject, limit: usize) -> Vec<TaskRow> {
    answered(|reply| subject.store().take_tasks(HOLDER, served(), limit, 1_000, reply)).unwrap()
}

#[test]
fn s5_a_guest_takes_renews_and_finishes_tasks_and_the_owner_gets_a_hint() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let a = row(1, "a");
    assert_eq!(take(&guest, 10), [], "there is nothing yet");
    let looks = hints(&guest);
    owner.write(session, putting(start(&a), [task(&a, 2), task(&a, 3), task(&a, 4)]));
    wait_for(&looks);
    let taken = take(&guest, 2);
    let events: Vec<u64> = taken.iter().map(|task| task.id.event.0).collect();
    assert_eq!(events, [2, 3]);
    let details = Payload::from_json("\"half\"").unwrap();
    let half = TaskReport { details: Some(details.clone()), ..TaskReport::of(taken[0].id) };
    let renewing = vec![half, TaskReport::of(task(&a, 4).id)];
    let renewed = answered(|reply| guest.store().renew_tasks(HOLDER, renewing, 1_000, reply));
    assert_eq!(renewed, Ok(vec![TaskRenewal::Kept, TaskRenewal::Gone]));
    assert_eq!(owner.load(&a, 0).unwrap().tasks[0].details, Some(details));
    let hints = hints(&owner);
    let finished = answered(|reply| guest.store().finish_task(HOLDER, taken[0].id, 1, bytes("done"), reply));
    assert_eq!(finished, Ok(true));
    wait_for(&hints);
    let inbox = owner.inbox(session, 0, 10);
    assert_eq!(inbox.iter().map(|row| row.body.clone()).collect::<Vec<_>>(), [bytes("done")]);
    answered(|reply| guest.store().give_back_tasks(HOLDER, vec![taken[1].id], reply)).unwrap();
    assert_eq!(take(&owner, 10).iter().map(|task| task.id.event.0).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn s5_looking_for_tasks_where_none_are_queued_does_not_wait_for_the_file() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    let other = place.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for subject in [&owner, &guest] {
        assert_eq!(take(subject, 10), []);
        assert_eq!(subject.sweep_some(100), Swept::default());
    }
    other.execute_batch("COMMIT").unwrap();
}

#[test]
fn s6_a_guest_requests_something_and_hears_of_the_reply() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    assert_eq!(guest.request("nobody", u64::MAX, "x"), RequestOutcome::NoInstance);
    let (request_hints, reply_hints) = (hints(&owner), hints(&guest));
    let number = guest.requested("a", u64::MAX, "how far?");
    wait_for(&request_hints);
    let requests = owner.requests(session, 0, 10);
    assert_eq!(requests.iter().map(|it| (it.number, it.key)).collect::<Vec<_>>(), [(number, a.key)]);
    assert_eq!(guest.reply_to(number), None);
    // Its own request was a hint, too.
    wait_for(&reply_hints);
    while reply_hints.try_recv().is_ok() {}
    let replies = vec![RequestReply { number, body: bytes("half") }];
    owner.write(session, Commit { replies, ..member(&a) });
    wait_for(&reply_hints);
    assert_eq!(guest.reply_to(number), Some(bytes("half")));
    assert!(!guest.withdraw(number));
    let second = guest.requested("a", u64::MAX, "and now?");
    assert!(guest.withdraw(second));
    assert_eq!(owner.requests(session, 0, 10), []);
}

#[test]
fn s7_a_guest_reads_and_writes_settings() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    owner.write_setting("retention", Some("7 days"));
    assert_eq!(guest.setting("retention"), Some(bytes("7 days")));
    guest.write_setting("retention", Some("1 day"));
    assert_eq!(owner.setting("retention"), Some(bytes("1 day")));
}

#[test]
fn s7_deleting_a_large_instance_leaves_its_turns_to_sweeps() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    owner.commit(session, (2..=5_000).map(|number| member(&a).turn(number, "x")));
    owner.write(session, member(&a).changing(status(Status::Completed)));
    let turns = || -> i64 {
        place.connection().query_row("SELECT count(*) FROM turns", [], |row| row.get(0)).unwrap()
    };
    // A guest deletes it, and the owner knows at once that there is nothing to go on from.
    let guest = place.guest();
    assert_eq!(guest.delete([&a]), [DeleteOutcome::Deleted]);
    assert_eq!(turns(), 4_000, "no transaction deletes all of them");
    let late = owner.commit(session, [member(&a).turn(5_001, "late")]);
    assert_eq!(late, [CommitOutcome::Conflict(Conflict::MissingTurn)]);
    for left in [3_500, 3_000] {
        assert_eq!(owner.sweep_some(500), Swept { rows: 500, more: true });
        assert_eq!(turns(), left);
    }
    guest.sweep();
    assert_eq!(turns(), 0);
    let graves: i64 =
        place.connection().query_row("SELECT count(*) FROM graves", [], |row| row.get(0)).unwrap();
    assert_eq!(graves, 0);
}

#[test]
fn i18_a_guest_deletes_what_has_ended_and_no_row_of_it_stays() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let attributes = [("customer".to_owned(), Payload::from_json("7").unwrap())];
    let a = InstanceRow { attributes: attributes.into(), ..row(1, "a") };
    let b = row(2, "b");
    owner.write(session, putting(start(&a), [task(&a, 2)]));
    let continued = RowChange { execution: Some(2), ..RowChange::default() };
    owner.write(session, member(&a).changing(continued));
    owner.write(session, start(&b));
    owner.sent(message("a", None, "x"));
    guest.requested("a", u64::MAX, "how far?");
    let rows_of = |instance: &InstanceRow| -> Vec<(String, i64)> {
        let connection = place.connection();
        let sql = "SELECT DISTINCT name FROM sqlite_schema WHERE type = 'table'
                   AND name <> 'graves' AND EXISTS (SELECT 1 FROM pragma_table_info(sqlite_schema.name) AS c WHERE c.name = 'key')";
        let mut tables = connection.prepare(sql).unwrap();
        let tables: Vec<String> =
            tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let count = |table: String| {
            let sql = format!("SELECT count(*) FROM {table} WHERE key = ?1");
            let rows = connection.query_row(&sql, [instance.key.as_bytes()], |row| row.get(0)).unwrap();
            (table, rows)
        };
        tables.into_iter().map(count).collect()
    };
    let before = rows_of(&a);
    assert!(before.len() >= 6 && before.iter().all(|(_, rows)| *rows == 1), "{before:?}");
    assert_eq!(guest.delete([&a, &b]), [DeleteOutcome::NotEnded, DeleteOutcome::NotEnded]);
    let ended = RowChange { ended_ms: Some(Some(5)), ..status(Status::Failed) };
    owner.write(session, member(&a).turn(2, "ended").changing(ended));
    let nobody = row(9, "nobody");
    assert_eq!(
        guest.delete([&b, &a, &nobody, &a]),
        [DeleteOutcome::NotEnded, DeleteOutcome::Deleted, DeleteOutcome::Gone, DeleteOutcome::Gone]
    );
    assert!(rows_of(&a).iter().all(|(_, rows)| *rows == 0), "{:?}", rows_of(&a));
    assert_eq!(owner.find("b"), Some(b));
    // The id is free again.
    owner.write(session, start(&row(3, "a")));
}
