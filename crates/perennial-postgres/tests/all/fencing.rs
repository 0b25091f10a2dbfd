//! Concurrent batches and takeovers, and conflicting transactions.

use std::thread;

use perennial_core::SHARDS;
use perennial_core::store::{CommitOutcome, RowChange, SessionRole, Status};
use perennial_testkit::conformance::instances::{Build, member, outgoing, row, start, status};
use perennial_testkit::conformance::{answer_of, new_session, waiting};
use perennial_testkit::postgres::TestServer;

use crate::support::{Path, Sql, durable, schema_of, subject};

#[test]
fn s1_whoever_ends_a_session_waits_for_its_batch() {
    for path in Path::BOTH {
        let url = TestServer::shared().new_schema();
        let (store, sql) = (subject(&url), Sql::in_schema(&url));
        let session = store.own_all();
        let a = row(1, "a");
        store.write(session, start(&a));
        sql.begin_turn(&a, 2);
        let (reply, batch) = waiting();
        let commits = store.with_epochs(session, [path.of(member(&a).turn(2, "second"))]);
        store.store().commit(session, commits, reply);
        let beside = Sql::connect(&url);
        beside.wait_for_waiters(1, &path.pattern(&url));
        let new = new_session(SessionRole::Lane, 60_000);
        let (reply, replaced) = waiting();
        store.store().replace_session(session, new.clone(), reply);
        beside.wait_for_waiters(1, &format!("{}\".replace_session", schema_of(&url)));
        // A renewal does not wait: its lock conflicts neither with the batch's nor with the takeover's. It succeeds, or
        // fails because the session has ended.
        sql.run("ROLLBACK");
        assert_eq!(answer_of(&batch), Ok(vec![path.durable()]), "the batch was first");
        assert_eq!(answer_of(&replaced).unwrap().shards.len(), SHARDS);
        let late = path.of(member(&a).turn(3, "third"));
        assert_eq!(store.commit(session, [late]), [CommitOutcome::Fenced]);
        assert_eq!(store.turns(&a, 1, 0, 10).len(), 2);
    }
}

#[test]
fn s1_a_batch_that_waited_for_the_end_of_its_session_writes_nothing() {
    for path in Path::BOTH {
        let url = TestServer::shared().new_schema();
        let (store, sql) = (subject(&url), Sql::in_schema(&url));
        let session = store.own_all();
        let (a, b) = (row(1, "a"), row(2, "b"));
        store.write(session, start(&a));
        // Does what a takeover does, without committing.
        sql.run(
            "BEGIN; DELETE FROM sessions; \
             UPDATE shards SET session = gen_random_uuid(), epoch = epoch + 1",
        );
        let (reply, batch) = waiting();
        let ended = RowChange { ended_ms: Some(Some(7)), ..status(Status::Completed) };
        let members = [path.of(start(&b)), path.of(member(&a).turn(2, "second").changing(ended))];
        store.store().commit(session, store.with_epochs(session, members), reply);
        Sql::connect(&url).wait_for_waiters(1, &path.pattern(&url));
        sql.run("COMMIT");
        assert_eq!(answer_of(&batch), Ok(vec![CommitOutcome::Fenced; 2]));
        assert_eq!((store.turns(&a, 1, 0, 10).len(), store.find("b")), (1, None));
        assert_eq!(store.find("a").unwrap().status, a.status);
    }
}

#[test]
fn s1_a_renewal_does_not_wait_for_a_batch() {
    for path in Path::BOTH {
        let url = TestServer::shared().new_schema();
        let (store, sql) = (subject(&url), Sql::in_schema(&url));
        let session = store.own_all();
        let a = row(1, "a");
        store.write(session, start(&a));
        sql.begin_turn(&a, 2);
        let (reply, batch) = waiting();
        let second = path.of(member(&a).turn(2, "second"));
        store.store().commit(session, store.with_epochs(session, [second]), reply);
        Sql::connect(&url).wait_for_waiters(1, &path.pattern(&url));
        store.renew(session).unwrap();
        sql.run("ROLLBACK");
        assert_eq!(answer_of(&batch), Ok(vec![path.durable()]));
    }
}

#[test]
fn s2_the_same_bytes_at_the_same_time_are_durable_twice_and_written_once() {
    let url = TestServer::shared().new_schema();
    let store = subject(&url);
    let session = store.own_all();
    for number in 1..=20 {
        let a = row(number, &format!("order-{number}"));
        let batch = [start(&a), member(&a).turn(2, "second").changing(status(Status::Completed))];
        let outcomes: Vec<_> = thread::scope(|scope| {
            let commits: Vec<_> =
                (0..4).map(|_| scope.spawn(|| store.commit(session, batch.clone()))).collect();
            commits.into_iter().map(|commit| commit.join().unwrap()).collect()
        });
        assert_eq!(outcomes, vec![vec![durable(), durable()]; 4]);
        assert_eq!(store.turns(&a, 1, 0, 10).len(), 2);
    }
}

/// Two lanes repeatedly send to each other's instances in opposite orders.
#[test]
fn s2_batches_that_meet_all_go_through() {
    let url = TestServer::shared().new_schema();
    let (one, other) = (subject(&url), subject(&url));
    let sessions = [one.open_session(60_000), other.open_session(60_000)];
    let mine = one.claim(sessions[0], SHARDS / 2).unwrap();
    other.claim(sessions[1], SHARDS).unwrap();
    let rows: Vec<_> = (1..=64).map(|number| row(number, &format!("order-{number}"))).collect();
    let (of_one, of_other): (Vec<_>, Vec<_>) = rows.iter().partition(|row| mine.contains(&row.shard));
    for (store, session, rows) in [(&one, sessions[0], &of_one), (&other, sessions[1], &of_other)] {
        let outcomes = store.commit(session, rows.iter().map(|row| start(row)));
        assert_eq!(outcomes, vec![durable(); rows.len()]);
    }
    const ROUNDS: u64 = 30;
    thread::scope(|scope| {
        for (store, session, own, others) in
            [(&one, sessions[0], &of_one, &of_other), (&other, sessions[1], &of_other, &of_one)]
        {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Each timer that fires locks its instance against senders.
                    let members = own.iter().zip(others.iter().rev()).map(|(own, other)| {
                        let mut member =
                            member(own).turn(round + 2, "next").sending([outgoing(other, None, "hi")]);
                        member.fired_ms = Some(1);
                        member.change = RowChange { owed: Some(round % 2 == 0), ..RowChange::default() };
                        member
                    });
                    for outcome in store.commit(session, members) {
                        assert!(matches!(outcome, CommitOutcome::Durable { .. }), "{outcome:?}");
                    }
                }
            });
        }
    });
    let received: usize = rows.iter().map(|row| one.load(row, 0).unwrap().inbox.len()).sum();
    assert_eq!(received, 2 * of_one.len().min(of_other.len()) * usize::try_from(ROUNDS).unwrap());
}

/// Many callers start the same ids, each in a different order.
#[test]
fn g17_of_many_starts_of_the_same_ids_one_each_succeeds() {
    let url = TestServer::shared().new_schema();
    let store = subject(&url);
    let started: Vec<u64> = thread::scope(|scope| {
        let senders: Vec<_> = (0..4_u64)
            .map(|sender| {
                let store = &store;
                scope.spawn(move || {
                    let numbers = (0..40).map(|n| if sender % 2 == 0 { n } else { 39 - n });
                    let requests = numbers.map(|n| {
                        let row = row(sender * 100 + n + 1, &format!("order-{n}"));
                        perennial_testkit::conformance::instances::start_request(&row, "start")
                    });
                    let outcomes = store.try_send(requests.collect()).unwrap();
                    let sent = |outcome: &&_| matches!(outcome, perennial_core::store::SendOutcome::Sent(_));
                    outcomes.iter().filter(sent).count() as u64
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    assert_eq!(started.iter().sum::<u64>(), 40, "{started:?}");
}

#[test]
fn n7_nodes_that_claim_at_the_same_time_share_all_shards() {
    let url = TestServer::shared().new_schema();
    let dead = subject(&url);
    let gone = new_session(SessionRole::Lane, 2_000);
    dead.open(gone.clone()).unwrap();
    assert_eq!(dead.claim(gone.id, SHARDS).unwrap().len(), SHARDS);
    // The lease has expired by the server's clock. The first claim ends the session.
    let is_over = || {
        let directory = dead.directory();
        directory.sessions.iter().all(|session| session.expires_ms < directory.now_ms)
    };
    while !is_over() {
        thread::yield_now();
    }
    let nodes: Vec<_> = (0..8).map(|_| subject(&format!("{url}&hints=off&connections=1"))).collect();
    let claimed: Vec<_> = thread::scope(|scope| {
        let claims: Vec<_> = nodes
            .iter()
            .map(|node| {
                scope.spawn(move || {
                    let session = node.open_session(60_000);
                    let mut rows = Vec::new();
                    // Later claims find some shards taken, and try again.
                    while rows.len() < SHARDS / 8 {
                        rows = node.claim_rows(session, SHARDS / 8).unwrap();
                    }
                    rows
                })
            })
            .collect();
        claims.into_iter().flat_map(|claim| claim.join().unwrap()).collect()
    });
    let mut shards: Vec<u8> = claimed.iter().map(|row| row.shard.0).collect();
    shards.sort_unstable();
    assert_eq!(shards, (0..=u8::MAX).collect::<Vec<_>>(), "each has one owner");
    assert!(claimed.iter().all(|row| row.epoch == 2 && row.unclean_ends == 1), "the end counts once");
}

#[test]
fn g13_a_timer_waits_for_a_message_that_is_on_its_way() {
    let url = TestServer::shared().new_schema();
    let (store, sender) = (subject(&url), Sql::in_schema(&url));
    let session = store.own_all();
    let a = row(1, "a");
    store.write(session, start(&a));
    // Does what a sender does: locks the instance and reads the clock, without committing.
    let key = a.key.to_string();
    sender.run(&format!(
        "BEGIN; SELECT 1 FROM instances WHERE key = '{key}' FOR KEY SHARE;
         INSERT INTO inbox SELECT shard, nextval('inbox_numbers'), key, now_ms(), false, false, NULL, 'x'
         FROM instances WHERE key = '{key}'"
    ));
    let mut fires = member(&a).turn(2, "fired");
    fires.fired_ms = Some(store.directory().now_ms + 1);
    let (reply, outcome) = waiting();
    store.store().commit(session, store.with_epochs(session, [fires]), reply);
    Sql::connect(&url).wait_for_waiters(1, &format!("{}\".commit_batch", schema_of(&url)));
    sender.run("COMMIT");
    let conflict = CommitOutcome::Conflict(perennial_core::store::Conflict::EarlierMessage);
    assert_eq!(answer_of(&outcome), Ok(vec![conflict]));
}
