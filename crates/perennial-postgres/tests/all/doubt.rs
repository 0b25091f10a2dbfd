//! Commits whose response was lost, and servers that stop.

use perennial_core::store::{Commit, SessionRole, StoreError};
use perennial_testkit::conformance::instances::{Build, bytes, member, message, outgoing, row, start};
use perennial_testkit::conformance::{answer_of, new_session, waiting};
use perennial_testkit::postgres::{ServerOptions, TestServer};

use crate::support::{Path, Sql, Wire, subject};

#[test]
fn n10_a_commit_whose_answer_was_lost_is_in_doubt_and_settled_by_the_same_bytes() {
    for path in Path::BOTH {
        let url = TestServer::shared().new_schema();
        let beside = subject(&url);
        let (wire, through) = Wire::to(&format!("{url}&hints=off&connections=1"));
        let store = subject(&through);
        let session = store.own_all();
        let (a, b) = (row(1, "a"), row(2, "b"));
        // Prepares the statement, so that the next one is sent at once.
        store.write(session, path.of(start(&b)));
        let to_b = |member: Commit| match path {
            Path::Statement => member,
            Path::Function => member.sending([outgoing(&b, None, "hello")]),
        };
        let turn = to_b(start(&a));
        wire.lose_answers();
        let lost = store.try_commit(session, [turn.clone()]);
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
        // The connection is cut after the commit was sent, so the commit is written anyway.
        while beside.find("a").is_none() {
            std::thread::yield_now();
        }
        wire.mend();
        let new = new_session(SessionRole::Lane, 60_000);
        let replaced = store.replace(session, new.clone()).unwrap();
        assert!(replaced.shards.iter().all(|shard| shard.epoch == 2));
        let again = store.commit(new.id, [turn]);
        assert_eq!(again, [path.durable()]);
        assert_eq!(store.turns(&a, 1, 0, 10), [bytes("started")]);
        let sent = usize::from(path == Path::Function);
        assert_eq!(store.load(&b, 0).unwrap().inbox.len(), sent, "what it sent was sent once");
    }
}

#[test]
fn n10_a_backend_that_is_terminated_leaves_the_commit_in_doubt_and_nothing_written() {
    for path in Path::BOTH {
        let url = TestServer::shared().new_schema();
        let store = subject(&url);
        let session = store.own_all();
        let a = row(1, "a");
        store.write(session, start(&a));
        let sql = Sql::in_schema(&url);
        // The batch waits for a lock that another transaction holds.
        sql.begin_turn(&a, 2);
        let (reply, answer) = waiting();
        let batch = store.with_epochs(session, [path.of(member(&a).turn(2, "second"))]);
        store.store().commit(session, batch.clone(), reply);
        let beside = Sql::connect(&url);
        beside.wait_for_waiters(1, &path.pattern(&url));
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE wait_event_type = 'Lock' AND query LIKE $1";
        beside.query(kill, &[&format!("%{}%", path.pattern(&url))]);
        let lost = answer_of(&answer);
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
        sql.run("ROLLBACK");
        assert_eq!(store.turns(&a, 1, 0, 10).len(), 1, "it was rolled back");
        assert_eq!(store.commit(session, batch.iter().cloned()), [path.durable()]);
    }
}

#[test]
fn g32_a_server_that_crashes_and_comes_back_has_lost_nothing_that_was_acknowledged() {
    let server = TestServer::start(&ServerOptions::default());
    let store = subject(&server.new_schema());
    let session = store.own_all();
    let a = row(1, "a");
    store.write(session, start(&a));
    for turn in 2..5 {
        store.write(session, member(&a).turn(turn, "went on"));
        let number = store.sent(message("a", None, "hello"));
        server.kill();
        let down = store.try_commit(session, [member(&a).turn(turn + 1, "went on")]);
        assert!(matches!(down, Err(StoreError::Unavailable(_) | StoreError::Unknown(_))), "{down:?}");
        server.start_again();
        assert_eq!(store.turns(&a, 1, 0, 10).len(), usize::try_from(turn).unwrap());
        assert_eq!(store.load(&a, 0).unwrap().inbox.last().unwrap().number, number);
    }
    // A server that does not sync only causes a warning; both kinds are used.
    assert_eq!(store.renew(session).map(|lease| lease.expires_ms > lease.now_ms), Ok(true));
}
