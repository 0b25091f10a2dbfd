//! The checkers of I6, I16 and I18 notice what is wrong between a row and the world around it: activities that never
//! ran, rows that nobody claims, neighbours that suffer. The rows are made by hand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use perennial::history::ActivityError;
use perennial::history::{Decision, EventKind, Job};
use perennial::history::{Ending, EventId};
use perennial::{Payload, TimeoutKind};
use perennial_core::shard::{Message, Start};
use perennial_core::store::{Blocked, MemoryStore, TaskId, TurnRow};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::invariants::{
    ClientLog, Snapshot, StoredInstance, StoredTask, stalled, stored_breaches, unswept,
};

use crate::hand_made::{decided, event, instance, key, numbers, send, snapshot, started, turns};
use crate::support::Place;

/// An instance that sleeps until 500.
fn sleeper(number: u64, id: &str) -> StoredInstance {
    let begin = EventKind::Started(Box::new(started("sleeper")));
    let timer = decided(Decision::TimerCreated { due_ms: 500 });
    let mut sleeper = instance(number, id, &[turns(vec![(10, vec![begin, timer])])]);
    sleeper.row.wake_at_ms = Some(500);
    sleeper
}

fn blocked(mut instance: StoredInstance) -> StoredInstance {
    let (code, reason) = ("PER-0201".to_owned(), "PER-0201 panic".to_owned());
    instance.row.blocked = Some(Blocked { code, reason, since_ms: 1, attempts: 1, ..Blocked::default() });
    instance
}

fn found(snapshot: &Snapshot, log: &ClientLog) -> Vec<&'static str> {
    numbers(&stored_breaches(snapshot, log))
}

#[test]
fn i18_rows_of_an_instance_that_does_not_exist_are_noticed() {
    let sound = snapshot(vec![sleeper(1, "s")]);
    let log = ClientLog::default();
    assert_eq!(found(&sound, &log), [""; 0]);
    let left_behind = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = sound.clone();
        change(&mut snapshot);
        found(&snapshot, &log)
    };
    let rows = |snapshot: &mut Snapshot| snapshot.rows.take().unwrap();
    assert_eq!(left_behind(&|it| it.instances.clear()), ["I18"], "its turn is left");
    let with_message = |message: Message| {
        left_behind(&|it| {
            let mut left = rows(it);
            left.inbox.push((key(2), message.encode()));
            it.rows = Some(left);
        })
    };
    assert_eq!(with_message(Message::Job(event("late"))), ["I18"]);
    assert_eq!(
        with_message(Message::Start(Box::new(Start::new(started("sleeper"))))),
        [""; 0],
        "it is to be inserted yet"
    );
    let with_other = left_behind(&|it| {
        let mut left = rows(it);
        left.others.extend([("things".to_owned(), key(1)), ("things".to_owned(), key(2))]);
        it.rows = Some(left);
    });
    assert_eq!(with_other, ["I18"]);
    let with_task = left_behind(&|it| {
        let mut left = rows(it);
        let id = TaskId { key: key(2), execution: 1, event: EventId(2) };
        left.tasks.push(StoredTask { id, is_marked: true });
        it.rows = Some(left);
    });
    assert_eq!(with_task, ["I18"]);
}

#[test]
fn i18_what_is_left_behind_in_the_tables_of_a_store_is_found() {
    let store = MemoryStore::new(|| 1);
    assert_eq!(found(&Snapshot::read_memory(&store).unwrap(), &ClientLog::default()), [""; 0]);
    let left = TurnRow { execution: 1, number: 1, bytes: Arc::from(*b"left behind"), checksum: 0 };
    store.tables().turns.insert((key(1), 1, 1), left);
    assert_eq!(found(&Snapshot::read_memory(&store).unwrap(), &ClientLog::default()), ["I18"]);

    let statements = [
        "INSERT INTO turns VALUES (zeroblob(16), 1, 1, x'00', 0)",
        "INSERT INTO inbox (key, shard, body) VALUES (zeroblob(16), 1, x'00')",
        "INSERT INTO tasks (key, execution, event, shard, state, cancelled, attempt, interruptions, name) \
         VALUES (zeroblob(16), 1, 2, 1, 2, 0, 1, 0, 'work')",
        "CREATE TABLE things (key BLOB, thing TEXT); INSERT INTO things VALUES (zeroblob(16), 'left behind')",
    ];
    for statement in statements {
        let place = Place::new();
        drop(SqliteStore::open_guest(place.path(), SqliteOptions::default()).unwrap());
        assert_eq!(found(&place.snapshot(), &ClientLog::default()), [""; 0]);
        place.connection().execute_batch(statement).unwrap();
        assert_eq!(found(&place.snapshot(), &ClientLog::default()), ["I18"], "{statement}");
        // Nor does a test get away with it that forgets to look.
        let given_up = catch_unwind(AssertUnwindSafe(|| drop(place)));
        let complaint = given_up.unwrap_err().downcast::<String>().unwrap();
        assert!(complaint.contains("I18 broken"), "{complaint}");
    }
}

#[test]
fn i18_a_request_that_was_not_swept_is_noticed() {
    let place = Place::new();
    // Somebody owns it who could have swept.
    let _owner = SqliteStore::open(place.path(), SqliteOptions::default()).unwrap();
    let asked = "INSERT INTO replies (number, deadline_ms, body) VALUES (7, 1000, x'00')";
    place.connection().execute_batch(asked).unwrap();
    let rows = place.snapshot();
    assert_eq!(unswept(&rows, 1_500, 500), []);
    assert_eq!(numbers(&unswept(&rows, 1_501, 500)), ["I18"]);
    let complaint = catch_unwind(AssertUnwindSafe(|| drop(place))).unwrap_err().downcast::<String>().unwrap();
    assert!(complaint.contains("its deadline at 1000"), "{complaint}");
}

#[test]
fn i18_what_was_deleted_and_is_there_is_noticed() {
    let sound = snapshot(vec![sleeper(1, "s")]);
    let mut log = ClientLog::default();
    log.started("s");
    log.deleted("s");
    assert_eq!(found(&sound, &log), ["I18"]);
    assert_eq!(found(&snapshot(Vec::new()), &log), [""; 0], "its start no longer counts");
    log.started("s");
    assert_eq!(found(&sound, &log), [""; 0], "it was started again");
    assert_eq!(found(&snapshot(Vec::new()), &log), ["I2"]);
}

#[test]
fn i6_an_error_of_an_activity_that_never_ran_is_noticed_and_a_timeout_is_none() {
    let failed = |error: ActivityError| {
        let begin = EventKind::Started(Box::new(started("caller")));
        let call = Decision::ActivityScheduled {
            name: "a".to_owned(),
            id: None,
            input: Payload::null(),
            options: None,
        };
        let job = Job::ActivityFailed {
            source_event_id: EventId(2),
            error,
            attempts: 1,
            trail: Default::default(),
        };
        let end = EventKind::Ended(Ending::OrchestrationCompleted { output: Payload::null() });
        let given = vec![(10, vec![begin, decided(call)]), (20, vec![EventKind::Job(job), end])];
        snapshot(vec![instance(1, "c", &[turns(given)])])
    };
    let mut log = ClientLog::default();
    log.ran("c", 2, EventId(2));
    let (own, queued) =
        (failed(ActivityError::Application("e".into())), failed(ActivityError::Timeout(TimeoutKind::Queue)));
    assert_eq!(
        (found(&own, &log), found(&queued, &log)),
        (vec!["I6"], vec![]),
        "it ran in another execution"
    );
    log.ran("c", 1, EventId(2));
    assert_eq!(found(&own, &log), [""; 0]);
}

#[test]
fn i16_a_neighbour_that_is_blocked_is_noticed() {
    let rows = snapshot(vec![blocked(sleeper(1, "troubled")), blocked(sleeper(2, "neighbour"))]);
    let mut log = ClientLog::default();
    assert_eq!(found(&rows, &log), [""; 0], "nobody said who is in trouble");
    log.troubled("troubled");
    assert_eq!(found(&rows, &log), ["I16"]);
    log.troubled("neighbour");
    assert_eq!(found(&rows, &log), [""; 0]);
}

#[test]
fn i16_a_neighbour_that_could_go_on_and_does_not_is_noticed() {
    let rows = snapshot(vec![blocked(sleeper(1, "troubled")), sleeper(2, "neighbour")]);
    assert_eq!(stalled(&rows, 499), []);
    let late: Vec<String> = stalled(&rows, 500).into_iter().map(|breach| breach.instance).collect();
    assert_eq!(late, ["neighbour"], "its timer is due; who is blocked is excused");
    let (mut reader, mut troubled) = (sleeper(2, "neighbour"), blocked(sleeper(1, "troubled")));
    send(&mut reader, &Message::Job(event("unread")));
    send(&mut troubled, &Message::Job(event("kept")));
    let unread = stalled(&snapshot(vec![troubled, reader]), 499);
    assert_eq!(unread.iter().map(|breach| breach.instance.as_str()).collect::<Vec<_>>(), ["neighbour"]);
}

#[test]
fn i16_who_has_ended_waits_for_nothing() {
    let begin = EventKind::Started(Box::new(started("sleeper")));
    let end = EventKind::Ended(Ending::OrchestrationCompleted { output: Payload::null() });
    let mut ended = instance(1, "s", &[turns(vec![(10, vec![begin, end])])]);
    send(&mut ended, &Message::Job(event("late")));
    assert_eq!(stalled(&snapshot(vec![ended]), 1_000), []);
}
