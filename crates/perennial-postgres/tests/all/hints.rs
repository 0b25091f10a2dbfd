//! Hints between processes. Each process is simulated by a store with connections of its own.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use perennial_core::store::{Changes, ShardSet};
use perennial_testkit::conformance::Subject;
use perennial_testkit::conformance::instances::{message, row, start};
use perennial_testkit::postgres::TestServer;

use crate::support::{Sql, schema_of, subject};

const PATIENCE: Duration = Duration::from_secs(60);

fn hints(subject: &Subject) -> mpsc::Receiver<Changes> {
    let (sender, hints) = mpsc::channel();
    subject.store().watch(Arc::new(move |changes| sender.send(*changes).unwrap_or_default()));
    hints
}

/// Waits until `listeners` connections listen on the schema's channel.
fn wait_for_listeners(sql: &Sql, url: &str, listeners: usize) {
    let listening = "SELECT pid FROM pg_stat_activity WHERE query LIKE $1";
    let pattern = format!("%LISTEN \"perennial:{}\"%", schema_of(url));
    while sql.query(listening, &[&pattern]).len() < listeners {
        std::thread::yield_now();
    }
}

#[test]
fn n12_a_message_of_one_process_is_hinted_to_another() {
    let url = TestServer::shared().new_schema();
    let (owner, sender) = (subject(&url), subject(&url));
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let heard = hints(&owner);
    wait_for_listeners(&Sql::connect(&url), &url, 2);
    for _ in 0..20 {
        sender.sent(message("a", None, "hello"));
        let changes = heard.recv_timeout(PATIENCE).expect("a hint comes");
        assert_eq!(changes, Changes { inbox: [a.shard].into_iter().collect(), ..Changes::default() });
    }
}

#[test]
fn n12_what_gathers_is_one_hint() {
    let url = TestServer::shared().new_schema();
    let (owner, sender) = (subject(&url), subject(&url));
    let session = owner.own_all();
    let rows: Vec<_> = (1..=50).map(|number| row(number, &format!("order-{number}"))).collect();
    owner.commit(session, rows.iter().map(start));
    let heard = hints(&owner);
    wait_for_listeners(&Sql::connect(&url), &url, 2);
    sender.try_send(rows.iter().map(|row| message(&row.id, None, "hello")).collect()).unwrap();
    let (mut shards, mut told) = (ShardSet::EMPTY, 0);
    while rows.iter().any(|row| !shards.contains(row.shard)) {
        shards.extend_from(&heard.recv_timeout(PATIENCE).expect("every shard is named").inbox);
        told += 1;
    }
    assert_eq!(told, 1);
}

#[test]
fn n12_after_the_connection_was_lost_everything_may_have_changed() {
    let url = TestServer::shared().new_schema();
    let owner = subject(&url);
    let heard = hints(&owner);
    let sql = Sql::connect(&url);
    wait_for_listeners(&sql, &url, 1);
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE $1";
    sql.query(kill, &[&format!("%LISTEN \"perennial:{}\"%", schema_of(&url))]);
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(Changes::ALL));
}

#[test]
fn n12_without_hints_nobody_listens_and_nothing_is_lost() {
    let url = TestServer::shared().new_schema();
    let (owner, sender) = (subject(&format!("{url}&hints=off")), subject(&format!("{url}&hints=off")));
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    sender.sent(message("a", None, "hello"));
    assert_eq!(owner.load(&a, 0).unwrap().inbox.len(), 1);
    let listening = "SELECT pid FROM pg_stat_activity WHERE query LIKE $1";
    let pattern = format!("%LISTEN \"perennial:{}\"%", schema_of(&url));
    assert_eq!(Sql::connect(&url).query(listening, &[&pattern]).len(), 0);
}

#[test]
fn n12_what_is_told_while_the_connection_is_lost_arrives_after_all() {
    let url = TestServer::shared().new_schema();
    let (owner, sender) = (subject(&url), subject(&url));
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let sql = Sql::connect(&url);
    // Only the sender's connection is lost, so a received hint comes from the sender.
    let listening =
        "SELECT pid FROM pg_stat_activity WHERE query LIKE $1 ORDER BY backend_start DESC LIMIT 1";
    let pattern = format!("%LISTEN \"perennial:{}\"%", schema_of(&url));
    wait_for_listeners(&sql, &url, 2);
    let heard = hints(&owner);
    for _ in 0..10 {
        while sql.query(listening, &[&pattern]).is_empty() {
            std::thread::yield_now();
        }
        let kill = format!("SELECT pg_terminate_backend(pid) FROM ({listening}) AS last");
        sql.query(&kill, &[&pattern]);
        sender.sent(message("a", None, "hello"));
        let changes = heard.recv_timeout(PATIENCE).expect("a hint comes");
        assert!(changes.inbox.contains(a.shard), "{changes:?}");
        while heard.try_recv().is_ok() {}
    }
}

#[test]
fn n12_without_hints_something_may_have_changed_every_second() {
    let url = TestServer::shared().new_schema();
    let owner = subject(&format!("{url}&hints=off"));
    let heard = hints(&owner);
    let anything = Changes { owners: ShardSet::EMPTY, ..Changes::ALL };
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(anything));
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(anything));
}
