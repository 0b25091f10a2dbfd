//! A hundred thousand finished instances, and a million to search: rows made by one statement each (G33).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use perennial::Timestamp;
use perennial::client::Count;
use perennial::history::{Ending, EventId};
use perennial::history::{EventKind, Started, Turn};
use perennial::{
    ActivityContext, Filter, OrchestrationContext, Payload, Prune, Runtime, RuntimeBuilder, Status, attribute,
};
use perennial_core::Handlers;
use perennial_core::history::{FORMAT, encode_turn};
use perennial_testkit::invariants::ClientLog;

use crate::support::{Place, event, failed, relaxed, soon};

type Outcome = Result<Payload, Payload>;

async fn order(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.schedule_activity("pack", input).await.map_err(failed)
}

async fn waits(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait(event("go")).await)
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime.orchestration("order", "1.0.0", order).orchestration("waits", "1.0.0", waits)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

async fn runtime(place: &Place) -> Runtime {
    orchestrations(Runtime::open(place.url()).options(relaxed()))
        .activity("pack", |_: ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
        .start()
        .await
        .unwrap()
}

/// Fills a file with rows as the store writes them, by one statement for each table. Status, time of ending and region
/// are SQL, and may use `n`.
fn fill(place: &Place, rows: u64, [status, ended_ms, region]: [&str; 3]) {
    let connection = place.connection();
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; BEGIN;
             WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {rows} - 1)
             INSERT INTO instances (key, id, shard, name, version, status, execution, owed, attributes, created_ms,
                                    ended_ms)
             SELECT unhex(printf('%012x7%03x8%015x', 1500000000000 + n, 0, n)), printf('made-%07d', n), 0, 'order',
                    '1.0.0', {status}, 1, 0, printf('{{\"region\":\"%d\"}}', {region}), 1500000000000 + n, {ended_ms}
             FROM n;
             INSERT INTO attributes (key, name, order_key)
             SELECT key, 'region', CAST('@' || json_extract(attributes, '$.region') AS BLOB)
             FROM instances WHERE id LIKE 'made-%';
             COMMIT"
        ))
        .unwrap();
}

/// How many rows a table has.
fn rows(place: &Place, table: &str) -> u64 {
    let count = format!("SELECT count(*) FROM {table}");
    place.connection().query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_a_hundred_thousand_finished_instances_are_pruned_under_load_and_no_running_one_is_touched() {
    const FINISHED: u64 = 100_000;
    const WAITING: usize = 50;
    let place = Place::new();
    let first = runtime(&place).await;
    let mut log = ClientLog::default();
    let waiting: Vec<String> = (0..WAITING).map(|n| format!("waiting-{n}")).collect();
    for id in &waiting {
        first.client().start("waits", id, ()).await.unwrap();
        log.started(id);
    }
    first.shutdown().await.unwrap();
    fill(&place, FINISHED, ["2", "1600000000000", "n % 7"]);
    let ended = EventKind::Ended(Ending::OrchestrationCompleted { output: Payload::null() });
    let events = [EventKind::Started(Box::new(Started::new("order", "1.0.0", (), 1))), ended];
    let events =
        (1..).map(EventId).zip(events).map(|(id, kind)| perennial::history::Event { id, kind }).collect();
    let turn = Turn { format: FORMAT, number: 1, at_ms: 1_600_000_000_000, draws: 0, events };
    let body = encode_turn(&turn);
    place
        .connection()
        .execute("INSERT INTO turns SELECT key, 1, 1, ?1, 0 FROM instances WHERE id LIKE 'made-%'", [body])
        .unwrap();

    let second = runtime(&place).await;
    let client = second.client();
    let old = Filter::new().ended_before(Timestamp::from_millis(1_700_000_000_000));
    assert_eq!(client.count(old.clone()).await.unwrap(), Count { rows: Count::EXACT, more: true });
    // Load, for as long as it takes.
    let is_pruned = Arc::new(AtomicBool::new(false));
    let load = |worker: usize| {
        let (client, is_pruned) = (second.client(), Arc::clone(&is_pruned));
        tokio::spawn(async move {
            let mut done = Vec::new();
            while !is_pruned.load(Ordering::Relaxed) {
                let id = format!("load-{worker}-{}", done.len());
                client.start("order", &id, id.as_str()).await.unwrap();
                assert_eq!(client.result(&id).await.unwrap(), Payload::from(id.as_str()));
                done.push(id);
            }
            done
        })
    };
    let loads: Vec<_> = (0..4).map(load).collect();
    let (mut last, mut calls) = (0, 0);
    let prune = Prune::all().older_than(Duration::from_secs(3_600));
    let pruned = client.prune(prune, |progress| {
        assert!(progress.done >= last);
        (last, calls) = (progress.done, calls + 1);
    });
    let report = tokio::time::timeout(Duration::from_secs(300), pruned).await.unwrap().unwrap();
    is_pruned.store(true, Ordering::Relaxed);
    assert_eq!((report.seen, report.done, report.failed), (FINISHED, FINISHED, 0));
    assert!(calls >= 1_000, "it goes in small steps: {calls}");
    let done: Vec<String> = join_all(loads).await.into_iter().flat_map(Result::unwrap).collect();
    assert!(done.len() > 20, "there was load: {}", done.len());
    done.iter().for_each(|id| log.started(id));
    assert_eq!(client.count(old).await.unwrap(), Count { rows: 0, more: false });
    assert_eq!(rows(&place, "instances"), (done.len() + WAITING) as u64);
    assert_eq!(rows(&place, "attributes"), 0);
    for id in &waiting {
        client.raise_event(id, "go", id.as_str()).await.unwrap();
        assert_eq!(soon(client.result(id)).await.unwrap(), Payload::from(id.as_str()));
    }
    second.shutdown().await.unwrap();
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_a_million_instances_are_searched_by_attribute_in_pages_through_the_index() {
    const INSTANCES: u64 = 1_000_000;
    const REGIONS: u64 = 500;
    let place = Place::new();
    // Whoever opens it first makes the tables.
    runtime(&place).await.shutdown().await.unwrap();
    fill(&place, INSTANCES, ["1", "NULL", "n % 500"]);
    let client = place.guest();
    let filter = Filter::new().attribute("region", "123");
    let mut expected: Vec<String> =
        (0..INSTANCES / REGIONS).map(|n| format!("made-{:07}", n * REGIONS + 123)).collect();
    // Only one of these regions begins with 123, and only one is between these two.
    let prefix = vec![attribute("region").starts_with("123")];
    let between = vec![attribute("region").greater_than("122"), attribute("region").less_than("124")];
    let conditioned = [prefix, between].map(|conditions| Filter::new().conditions(conditions));
    let searched = [&filter, &conditioned[0], &conditioned[1]];
    for (newest_first, filter) in searched.into_iter().flat_map(|filter| [(false, filter), (true, filter)]) {
        assert_eq!(client.count(filter.clone()).await.unwrap().rows, INSTANCES / REGIONS);
        let filter = filter.clone().newest_first(newest_first);
        let (mut ids, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = soon(client.list(filter.clone(), after, 150)).await.unwrap();
            ids.extend(page.rows.into_iter().map(|row| row.id));
            (after, pages) = (page.next, pages + 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!((ids, pages), (expected.clone(), 14));
        expected.reverse();
    }
    let none = filter.status(Status::Failed);
    assert_eq!(client.count(none).await.unwrap().rows, 0);
    let all = client.count(Filter::new()).await.unwrap();
    assert_eq!(all, Count { rows: Count::EXACT, more: true }, "it does not count a million");

    // The schema gives this search an index in the order of the list, whatever SQLite knows of the rows.
    let connection = place.connection();
    for (behind, order) in [(">", "ASC"), ("<", "DESC")] {
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT instances.id FROM attributes JOIN instances ON instances.key = attributes.key \
             WHERE attributes.name = 'region' AND attributes.order_key = CAST('@123' AS BLOB) AND attributes.key {behind} x'00' \
             ORDER BY attributes.key {order} LIMIT 150"
        );
        let mut statement = connection.prepare(&sql).unwrap();
        let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let plan = steps.map(Result::unwrap).collect::<Vec<_>>().join("; ");
        assert!(
            plan.contains(&format!(
                "COVERING INDEX attributes_by_order (name=? AND order_key=? AND key{behind}?)"
            )) && plan.contains("instances_by_key (key=?)")
                && !plan.contains("SCAN")
                && !plan.contains("B-TREE"),
            "{plan}"
        );
    }
    // Rows made by hand have no histories to check.
    drop(connection);
    std::fs::remove_file(place.path()).unwrap();
}
