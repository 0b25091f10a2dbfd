//! PostgreSQL figures for comparison: the schemas of runs, statistics of the server, and a plain program that writes
//! the same rows without the engine.
//!
//! Shape `hello` inserts two turn rows and an instance row and updates the instance row, in batches of 128 instances.
//! Each batch is one call of a function with a few statements over arrays. It runs with one connection, and with two
//! concurrent ones. Shape `step` inserts one turn row per transaction.

use std::time::Instant;

use futures::future::try_join_all;
use tokio_postgres::{Client, NoTls};

use crate::figures::Report;
use crate::fleet::Outcome;

const BATCH: u64 = 128;
/// The approximate size of a turn with an activity's result and the next schedule.
const TURN_BYTES: usize = 300;
const SCHEMA: &str = "bench_bare";

async fn connect(server: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("connection lost: {error}");
        }
    });
    Ok(client)
}

pub(crate) async fn drop_schema(server: &str, name: &str) -> Outcome<()> {
    let client = connect(server).await?;
    Ok(client.batch_execute(&format!("DROP SCHEMA IF EXISTS {name} CASCADE")).await?)
}

/// Drops the schemas whose names begin with `prefix`, one at a time: many at once need more locks than a server has.
pub(crate) async fn drop_schemas(server: &str, prefix: &str) -> Outcome<()> {
    let client = connect(server).await?;
    let found = "SELECT quote_ident(nspname) FROM pg_namespace WHERE starts_with(nspname, $1)";
    for row in client.query(found, &[&prefix]).await? {
        client.batch_execute(&format!("DROP SCHEMA {} CASCADE", row.get::<_, String>(0))).await?;
    }
    Ok(())
}

/// The size of all tables and indexes of a schema.
pub(crate) async fn disk_bytes(server: &str, name: &str) -> Outcome<u64> {
    let sizes = "SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c \
         JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
    let bytes: i64 = connect(server).await?.query_one(sizes, &[&name]).await?.get(0);
    Ok(bytes.unsigned_abs())
}

/// Number of transactions that the database has ended. The server updates the count with a delay of up to a second.
pub(crate) async fn transactions(server: &str) -> Outcome<u64> {
    let ended = "SELECT (xact_commit + xact_rollback)::bigint FROM pg_stat_database WHERE datname = current_database()";
    let ended: i64 = connect(server).await?.query_one(ended, &[]).await?.get(0);
    Ok(ended.unsigned_abs())
}

pub(crate) async fn bare(server: &str, runs: usize, scale: u64) -> Outcome<Vec<Report>> {
    let mut reports = Vec::new();
    for connections in [1, 2] {
        let mut rates = Vec::new();
        for _ in 0..runs {
            create(server).await?;
            rates.push(hello(server, connections, 256 / scale.min(16)).await?);
        }
        let report = Report::new("bare", "postgres", "instances/s", rates);
        reports.push(report.with("shape", "hello").with("batch", BATCH).with("connections", connections));
    }
    let mut rates = Vec::new();
    for _ in 0..runs {
        create(server).await?;
        rates.push(step(&connect(server).await?, 2_000 / scale).await?);
    }
    reports.push(Report::new("bare", "postgres", "steps/s", rates).with("shape", "step"));
    drop_schema(server, SCHEMA).await?;
    Ok(reports)
}

async fn create(server: &str) -> Outcome<()> {
    drop_schema(server, SCHEMA).await?;
    let plan = "SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan";
    let schema = format!(
        "CREATE SCHEMA {SCHEMA}; SET search_path = {SCHEMA};
         CREATE TABLE instances (key uuid NOT NULL PRIMARY KEY, id text COLLATE \"C\" NOT NULL, name text NOT NULL,
             version text NOT NULL, status smallint NOT NULL, execution bigint NOT NULL, owed boolean NOT NULL,
             created_ms bigint NOT NULL) WITH (fillfactor = 50);
         CREATE UNIQUE INDEX instances_by_id ON instances (id);
         CREATE TABLE turns (key uuid NOT NULL, execution bigint NOT NULL, number bigint NOT NULL, body bytea NOT NULL,
             PRIMARY KEY (key, execution, number));
         CREATE FUNCTION begin_batch(keys uuid[], ids text[], bodies bytea[]) RETURNS void LANGUAGE plpgsql {plan}
         AS $$ BEGIN
             INSERT INTO instances SELECT k, i, 'hello', '1.0.0', 1, 1, true, 0 FROM unnest(keys, ids) AS u (k, i);
             INSERT INTO turns SELECT k, 1, 1, b FROM unnest(keys, bodies) AS u (k, b);
         END $$;
         CREATE FUNCTION end_batch(keys uuid[], bodies bytea[]) RETURNS void LANGUAGE plpgsql {plan}
         AS $$ BEGIN
             INSERT INTO turns SELECT k, 1, 2, b FROM unnest(keys, bodies) AS u (k, b);
             UPDATE instances SET status = 2, owed = false FROM unnest(keys) AS u (k) WHERE key = k;
         END $$;"
    );
    Ok(connect(server).await?.batch_execute(&schema).await?)
}

async fn hello(server: &str, connections: u64, batches: u64) -> Outcome<f64> {
    let clients = try_join_all((0..connections).map(|_| connect(server))).await?;
    let begun = Instant::now();
    let share = batches / connections;
    try_join_all(clients.iter().zip(0..).map(|(client, number)| write(client, number, share))).await?;
    Ok((share * connections * BATCH) as f64 / begun.elapsed().as_secs_f64())
}

async fn write(client: &Client, number: u64, batches: u64) -> Outcome<()> {
    let begin = client.prepare(&format!("SELECT {SCHEMA}.begin_batch($1, $2, $3)")).await?;
    let end = client.prepare(&format!("SELECT {SCHEMA}.end_batch($1, $2)")).await?;
    let bodies = vec![vec![b'x'; TURN_BYTES]; BATCH as usize];
    for batch in 0..batches {
        let instances = (number * batches + batch) * BATCH..(number * batches + batch + 1) * BATCH;
        let keys: Vec<uuid::Uuid> =
            instances.clone().map(|index| uuid::Uuid::from_u128(index.into())).collect();
        let ids: Vec<String> = instances.map(|index| format!("hello-{index}")).collect();
        client.query(&begin, &[&keys, &ids, &bodies]).await?;
        client.query(&end, &[&keys, &bodies]).await?;
    }
    Ok(())
}

async fn step(client: &Client, count: u64) -> Outcome<f64> {
    let turn = format!("INSERT INTO {SCHEMA}.turns (key, execution, number, body) VALUES ($1, 1, $2, $3)");
    let turn = client.prepare(&turn).await?;
    let (key, body) = (uuid::Uuid::max(), vec![b'x'; TURN_BYTES]);
    let begun = Instant::now();
    for number in 1..=i64::try_from(count)? {
        client.execute(&turn, &[&key, &number, &body]).await?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
