//! No statement scans a whole table, whether the table is empty, small or large. The server's log shows it:
//! auto_explain logs the plan of every statement, including those inside functions.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use perennial_core::SHARDS;
use perennial_core::store::{
    Criteria, EndPlace, InboxQuery, InstanceRow, MovedRow, MovedTable, NewRequest, Outgoing, PageLimit,
    RowChange, SessionId, SessionRole, ShardSet, Status, TaskReport, attribute,
};
use perennial_testkit::conformance::instances::{
    Build, attributes, bytes, key, member, message, outgoing, row, start, start_request, starting, status,
    task,
};
use perennial_testkit::conformance::{Subject, new_session, wait_for};
use perennial_testkit::postgres::{ServerOptions, TestServer};

use crate::support::{Sql, subject};

const PATIENCE: Duration = Duration::from_secs(20);

/// Tables that always stay small: a sequential scan is the best plan for them.
const SMALL: [&str; 3] = ["sessions", "shards", "meta"];

fn explaining_server() -> TestServer {
    let options = ServerOptions::default()
        .unsynced()
        .set("track_functions", "all")
        .set("session_preload_libraries", "auto_explain")
        .set("auto_explain.log_min_duration", "0")
        .set("auto_explain.log_nested_statements", "on")
        .set("auto_explain.log_analyze", "on")
        .set("auto_explain.log_timing", "off")
        .set("autovacuum", "off")
        // So that a million instances are inserted soon.
        .set("shared_buffers", "256MB")
        .set("max_wal_size", "4GB")
        .set("wal_level", "minimal")
        .set("max_wal_senders", "0");
    TestServer::start(&options)
}

/// Makes every call that nodes and clients make often.
fn call_everything(store: &Subject) {
    let session = store.own_all();
    let node = new_session(SessionRole::Node, 60_000);
    store.open(node.clone()).unwrap();
    store.renew(session).unwrap();
    store.directory();
    let (mut a, b, c) = (row(9_000_001, "plan-a"), row(9_000_002, "plan-b"), row(9_000_003, "plan-c"));
    a.attributes = attributes(&[("customer", "\"plan\"")]);
    store.write(session, start(&a).putting([task(&a, 2), task(&a, 3)]));
    store.write(session, start(&b).sending([outgoing(&a, Some("k"), "hi"), starting(&c, "start", None)]));
    write_plain_batches(store, session);
    let to_id = Outgoing::ToId {
        id: "plan-b".to_owned(),
        dedupe: Some("l".to_owned()),
        urgent: true,
        body: bytes("x"),
        report: None,
    };
    let change = RowChange {
        wake_at_ms: Some(Some(5)),
        owed: Some(true),
        attributes: Some(attributes(&[("customer", "\"other\"")])),
        ..RowChange::default()
    };
    let mut fires = member(&a).turn(2, "second").changing(change).sending([to_id]);
    let waiting = store.load(&a, 0).unwrap().inbox[0].number;
    fires.fired_ms = Some(1);
    store.write(session, fires.consuming([waiting]));
    store.sent(message("plan-a", Some("m"), "hello"));
    store.sent(start_request(&row(9_000_004, "plan-d"), "start"));
    read_everything(store, session, &a);
    let served = perennial_core::store::Served {
        names: ["charge".to_owned()].into(),
        tags: ["gpu".to_owned()].into(),
        prefixes: ["sh".to_owned()].into(),
    };
    let taken = store.take(node.id, &served, 10, 60_000);
    assert_eq!(taken.len(), 2);
    store.report_tasks(node.id, vec![TaskReport::of(taken[0].id)], 60_000);
    assert!(store.finish(node.id, taken[0].id, taken[0].attempt, "done"));
    store.give_back(node.id, vec![taken[1].id]);
    store.held(node.id);
    list_everything(store);
    let ended = || RowChange { ended_ms: Some(Some(7)), ..status(Status::Completed) };
    store.write(session, member(&b).turn(2, "ended").changing(ended()));
    let replacing = |outgoing| match outgoing {
        Outgoing::Start { row, body, otherwise, started, .. } => {
            Outgoing::Start { row, body, otherwise, started, replaces_ended: true }
        }
        other => other,
    };
    let another = row(9_000_005, "plan-b");
    store.write(session, member(&a).turn(3, "third").sending([replacing(starting(&another, "again", None))]));
    store.write(session, member(&another).turn(1, "ended").changing(ended()));
    assert_eq!(store.delete([&another]).len(), 1);
    own_everything(store, session, &a);
}

/// Commits with each form of the statement for plain batches.
fn write_plain_batches(store: &Subject, session: SessionId) {
    let rows: Vec<_> = (9_000_010..9_000_030).map(|number| row(number, &format!("plan-{number}"))).collect();
    let waits = || RowChange { wake_at_ms: Some(Some(u64::MAX >> 1)), ..RowChange::default() };
    let (some, others) = rows.split_at(10);
    store.commit(session, some.iter().map(start));
    store.commit(session, some.iter().map(|row| member(row).turn(2, "second")));
    store.commit(session, some.iter().map(|row| member(row).turn(3, "third").changing(waits())));
    let mixed = some.iter().map(|row| member(row).turn(4, "fourth").changing(waits()));
    store.commit(session, mixed.chain(others.iter().map(start)));
    for number in 5..7 {
        store.write(session, member(&some[0]).turn(number, "went on"));
        store.write(session, member(&some[1]).turn(number, "went on").changing(waits()));
    }
}

/// Makes the calls about ownership and upkeep.
fn own_everything(store: &Subject, session: SessionId, a: &InstanceRow) {
    store.sweep_executions(10, 0);
    let prune = |reply| store.store().prune_executions(session, a.shard, a.key, 2, 10, reply);
    wait_for(prune).unwrap();
    store.write_setting("plan", Some("set"));
    store.note(session, vec![(a.shard, Some(bytes("note")))], true).unwrap();
    store.shard_owner(a.shard);
    let next = new_session(SessionRole::Lane, 60_000);
    let id = next.id;
    store.replace(session, next).unwrap();
    store.release(id, [a.shard].into_iter().collect()).unwrap();
    store.end(id).unwrap();
}

fn read_everything(store: &Subject, session: SessionId, a: &InstanceRow) {
    let (shards, page) = (store.shards_of(session), PageLimit { rows: 100, bytes: 1 << 20 });
    let query = InboxQuery { shards, from: 0, known: [1, 2, 3].into(), limit: page };
    wait_for(|reply| store.store().read_inbox(session, query, reply)).unwrap();
    store.due(session, 100, None, 100);
    store.owed(session, None, 100);
    store.try_blocked(session, ShardSet::ALL, None, 100).unwrap();
    store.turns(a, 1, 1, 100);
    let request = NewRequest {
        instance: "plan-a".to_owned(),
        key: None,
        patience_ms: 60_000,
        after: None,
        body: bytes("how far?"),
    };
    wait_for(|reply| store.store().put_request(request, reply)).unwrap();
    wait_for(|reply| store.store().read_requests(session, shards, 0, page, reply)).unwrap();
    wait_for(|reply| store.store().read_reply(1, reply)).unwrap();
    wait_for(|reply| store.store().withdraw_request(1, reply)).unwrap();
}

fn list_everything(store: &Subject) {
    let all = Criteria::default;
    for filter in [
        all(),
        Criteria { newest_first: true, ..all() },
        Criteria { statuses: vec![Status::Running, Status::Failed], ..all() },
        Criteria { name: Some("nobody".to_owned()), ..all() },
        Criteria { id_prefix: Some("plan-".to_owned()), ..all() },
        Criteria { blocked: Some(true), ..all() },
        Criteria { parent: Some(key(9_000_001)), ..all() },
        Criteria { ended_before_ms: Some(5), ..all() },
        Criteria { ended_from_ms: Some(5), ended_before_ms: Some(9), ..all() },
        Criteria { ended_from_ms: Some(0), by_end: Some(EndPlace::first()), ..all() },
        Criteria { conditions: vec![attribute("customer").equal_to("other")], ..all() },
        Criteria { conditions: vec![attribute("customer").starts_with("oth")], ..all() },
    ] {
        store.list(&filter, None, 10);
        store.count(&filter, 100);
    }
    store.stats();
    wait_for(|reply| store.store().list_tasks(None, 10, reply)).unwrap();
    for table in MovedTable::ALL.into_iter().filter(|table| *table != MovedTable::Counters) {
        let page =
            |after| wait_for(|reply| store.store().export_rows(table, after, PageLimit::rows(10), reply));
        let after = page(None).unwrap().last().map(MovedRow::key);
        page(after).unwrap();
    }
}

/// Fills a schema with `instances` instances, most of them completed.
fn fill(sql: &Sql, instances: u64) {
    // Indexes are built much faster than they are extended row by row.
    let indexes = "SELECT indexdef, indexname FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'instances' \
         AND indexname NOT LIKE '%_pkey'";
    let indexes = sql.query(indexes, &[]);
    for index in &indexes {
        sql.run(&format!("DROP INDEX {}", index.get::<_, &str>(1)));
    }
    insert(sql, instances);
    for index in &indexes {
        sql.run(index.get(0));
    }
}

fn insert(sql: &Sql, instances: u64) {
    sql.run(&format!(
        "INSERT INTO instances SELECT lpad(to_hex(n), 32, '0')::uuid, 'order-' || n, n % {SHARDS}, 'checkout', '1.0.0',
             CASE WHEN n % 50 = 0 THEN 1 WHEN n % 97 = 0 THEN 3 ELSE 2 END, 1, n % 500 = 0,
             CASE WHEN n % 100 = 0 THEN n + 1000000000000 END, CASE WHEN n % 5000 = 0 THEN '{{}}' END, NULL, NULL, NULL, n,
             CASE WHEN n % 50 <> 0 THEN n + 100 END, NULL, false, 0 FROM generate_series(1, {instances}) AS n;
         INSERT INTO turns SELECT lpad(to_hex(n), 32, '0')::uuid, 1, t, 0, 'x' FROM generate_series(1, {instances}) AS n,
             generate_series(1, 2) AS t;
         INSERT INTO inbox SELECT n % {SHARDS}, nextval('inbox_numbers'), lpad(to_hex(n), 32, '0')::uuid, 1, true, false,
             NULL, 'x' FROM generate_series(1, {instances}, 10) AS n;
         INSERT INTO attributes SELECT lpad(to_hex(n), 32, '0')::uuid, 'customer', decode(to_hex(n + 16), 'hex')
             FROM generate_series(1, {instances}, 10) AS n WHERE length(to_hex(n + 16)) % 2 = 0;
         INSERT INTO tasks SELECT lpad(to_hex(n), 32, '0')::uuid, 1, 2, n % {SHARDS}, 0, NULL, false, 1, NULL, 1, NULL, 0, NULL,
             'elsewhere', NULL, NULL, NULL, NULL FROM generate_series(1, {instances}, 100) AS n;"
    ));
}

/// Maximum number of rows that a filter may remove. Scanning a whole index is as bad as scanning the table.
const MAX_ROWS_REMOVED: u64 = 3_000;

/// Returns the log lines that show a scan of a whole table, other than the small ones, or a filter that removes many
/// rows.
fn whole_reads(server: &TestServer, from: usize) -> Vec<String> {
    let log = fs::read_to_string(server.log()).unwrap();
    let is_large = |line: &&str| !SMALL.iter().any(|table| line.contains(&format!("Seq Scan on {table} ")));
    let passes_over = |line: &&str| {
        let removed =
            line.trim().strip_prefix("Rows Removed by Filter: ").and_then(|rows| rows.parse::<u64>().ok());
        removed.is_some_and(|rows| rows > MAX_ROWS_REMOVED)
    };
    let lines: Vec<&str> = log[from..].lines().collect();
    let is_odd = |line: &&str| (line.contains("Seq Scan on ") && is_large(line)) || passes_over(line);
    let statement = |place: usize| lines[..place].iter().rev().find(|line| line.contains("Query Text:"));
    let odd = lines.iter().enumerate().filter(|(_, line)| is_odd(line));
    odd.map(|(place, line)| format!("{} in {}", line.trim(), statement(place).unwrap_or(&"").trim()))
        .collect()
}

/// The functions of the schema that were not called. Functions that the planner inlines are never counted.
fn uncalled(sql: &Sql) -> Vec<String> {
    let uncalled = "SELECT proname::text FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang \
         WHERE p.pronamespace = current_schema()::regnamespace AND l.lanname <> 'sql' \
         AND NOT EXISTS (SELECT 1 FROM pg_stat_user_functions AS f WHERE f.funcid = p.oid) ORDER BY 1";
    sql.query(uncalled, &[]).iter().map(|row| row.get(0)).collect()
}

fn log_length(server: &TestServer) -> usize {
    fs::read_to_string(server.log()).unwrap().len()
}

#[test]
fn s7_no_statement_reads_a_whole_table_however_large_it_is() {
    let server = explaining_server();
    let instances = std::env::var("PERENNIAL_PLAN_ROWS").ok().and_then(|rows| rows.parse().ok());
    for rows in [0, 10, instances.unwrap_or(1_000_000)] {
        let url = server.new_schema();
        let store = subject(&url);
        let sql = Sql::in_schema(&url);
        if rows > 0 {
            // The store is used while it is empty, so that plans made then are kept.
            store.find("a");
            fill(&sql, rows);
        }
        let from = log_length(&server);
        call_everything(&store);
        assert_eq!(whole_reads(&server, from), Vec::<String>::new(), "with {rows} instances, never analyzed");
        if rows > 0 {
            sql.run("ANALYZE");
            let from = log_length(&server);
            let again = subject(&url);
            again.find("plan-a");
            list_everything(&again);
            let session = again.own_all();
            read_everything(&again, session, &row(9_000_001, "plan-a"));
            again.write(session, member(&row(9_000_001, "plan-a")).turn(4, "fourth"));
            assert_eq!(whole_reads(&server, from), Vec::<String>::new(), "with {rows} instances, analyzed");
        }
        drop(store);
        // A connection reports its calls when it ends, at the latest.
        let begun = Instant::now();
        while !uncalled(&sql).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "not explained: {:?}", uncalled(&sql));
            thread::sleep(Duration::from_millis(20));
        }
        let explained = fs::read_to_string(server.log()).unwrap();
        assert!(
            explained[from..].contains("INSERT INTO turns"),
            "statements inside of functions are explained"
        );
    }
}
