//! Other processes run tasks, ask and clean up while a runtime owns the file.

mod support;

use perennial_core::Payload;
use perennial_core::store::{
    Ask, AskAnswer, AskOutcome, Commit, DeleteOutcome, InstanceRow, RowChange, Served, SessionId, Status,
    StoreError, TaskChange, TaskRenewal, TaskRow,
};
use perennial_testkit::conformance::Subject;
use perennial_testkit::conformance::instances::{self, Build, bytes, member, message, row, start, status};
use support::{Place, answered, hints, wait_for};

const HOLDER: SessionId = SessionId(77);

fn task(row: &InstanceRow, event: u64) -> TaskRow {
    TaskRow { tag: Some("gpu".to_owned()), ..instances::task(row, event) }
}

fn putting(commit: Commit, tasks: impl IntoIterator<Item = TaskRow>) -> Commit {
    let tasks = tasks.into_iter().map(|task| TaskChange::Put(Box::new(task))).collect();
    Commit { tasks, ..commit }
}

fn served() -> Served {
    Served { names: ["charge".to_owned()].into(), tags: ["gpu".to_owned()].into() }
}

fn take(subject: &Subject, limit: usize) -> Vec<TaskRow> {
    answered(|reply| subject.store().take_tasks(HOLDER, served(), limit, 1_000, reply)).unwrap()
}

fn ask(subject: &Subject, id: &str, body: &str) -> AskOutcome {
    let ask = Ask { instance: id.to_owned(), deadline_ms: u64::MAX, body: bytes(body) };
    answered(|reply| subject.store().ask(ask, reply)).unwrap()
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
    let renewing = vec![(taken[0].id, Some(details.clone())), (task(&a, 4).id, None)];
    let renewed = answered(|reply| guest.store().renew_tasks(HOLDER, renewing, 1_000, reply));
    assert_eq!(renewed, Ok(vec![TaskRenewal::Kept, TaskRenewal::Gone]));
    assert_eq!(owner.load(a.key, 0).unwrap().tasks[0].details, Some(details));
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
        answered(|reply| subject.store().sweep_asks(reply)).unwrap();
    }
    other.execute_batch("COMMIT").unwrap();
}

#[test]
fn s6_a_guest_asks_and_hears_of_the_answer() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    assert_eq!(ask(&guest, "nobody", "x"), AskOutcome::NoInstance);
    let (asked_hints, answer_hints) = (hints(&owner), hints(&guest));
    let AskOutcome::Asked(number) = ask(&guest, "a", "how far?") else { panic!("it is asked") };
    wait_for(&asked_hints);
    let asks = answered(|reply| owner.store().read_asks(session, 0, 10, reply)).unwrap();
    assert_eq!(asks.iter().map(|ask| (ask.number, ask.key)).collect::<Vec<_>>(), [(number, a.key)]);
    let answer = || answered(|reply| guest.store().read_answer(number, reply)).unwrap();
    assert_eq!(answer(), None);
    // Its own request was a hint, too.
    wait_for(&answer_hints);
    while answer_hints.try_recv().is_ok() {}
    let answers = vec![AskAnswer { number, body: bytes("half") }];
    owner.write(session, Commit { answers, ..member(&a) });
    wait_for(&answer_hints);
    assert_eq!(answer(), Some(bytes("half")));
    assert_eq!(answered(|reply| guest.store().withdraw_ask(number, reply)), Ok(false));
    let AskOutcome::Asked(second) = ask(&guest, "a", "and now?") else { panic!("it is asked") };
    assert_eq!(answered(|reply| guest.store().withdraw_ask(second, reply)), Ok(true));
    assert_eq!(answered(|reply| owner.store().read_asks(session, 0, 10, reply)), Ok(vec![]));
}

#[test]
fn s1_a_guest_writes_no_notes_but_reads_them() {
    let place = Place::new();
    let (owner, guest) = (place.owner(), place.guest());
    let session = owner.own_all();
    let write = |subject: &Subject, note| {
        answered(|reply| subject.store().write_note(session, "suspects", Some(bytes(note)), reply))
    };
    assert_eq!(write(&owner, "a, b"), Ok(()));
    let refused = write(&guest, "none");
    assert!(matches!(refused, Err(StoreError::InUse(_))), "{refused:?}");
    assert_eq!(answered(|reply| guest.store().read_note("suspects", reply)), Ok(Some(bytes("a, b"))));
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
    owner.write(session, start(&b));
    owner.sent(message("a", None, "x"));
    ask(&guest, "a", "how far?");
    let rows_of = |instance: &InstanceRow| -> Vec<(String, i64)> {
        let connection = place.connection();
        let sql = "SELECT DISTINCT name FROM sqlite_schema WHERE type = 'table'
                   AND EXISTS (SELECT 1 FROM pragma_table_info(sqlite_schema.name) AS c WHERE c.name = 'key')";
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
    let delete = |keys| answered(|reply| guest.store().delete(keys, reply)).unwrap();
    assert_eq!(delete(vec![a.key, b.key]), [DeleteOutcome::NotEnded, DeleteOutcome::NotEnded]);
    let ended = RowChange { ended_ms: Some(5), ..status(Status::Failed) };
    owner.write(session, member(&a).turn(2, "ended").changing(ended));
    let nobody = row(9, "nobody").key;
    assert_eq!(
        delete(vec![b.key, a.key, nobody, a.key]),
        [DeleteOutcome::NotEnded, DeleteOutcome::Deleted, DeleteOutcome::Gone, DeleteOutcome::Gone]
    );
    assert!(rows_of(&a).iter().all(|(_, rows)| *rows == 0), "{:?}", rows_of(&a));
    assert_eq!(owner.find("b"), Some(b));
    // The id is free again.
    owner.write(session, start(&row(3, "a")));
}
