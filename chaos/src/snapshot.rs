//! Reads all rows of a PostgreSQL store in one snapshot, with its own SQL and without the store's code.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::history::{EventId, ParentLink};
use perennial_core::store::{Blocked, InboxRow, InstanceRow, SessionId, Status, TaskId, TaskRow, TaskState};
use perennial_core::{Attributes, InstanceKey, Payload, ShardId};
use perennial_testkit::invariants::{Snapshot, StoredInstance, StoredRows, StoredTask};
use tokio_postgres::{NoTls, Row};
use uuid::Uuid;

/// The stored turns of executions, by number of the execution.
type Executions = BTreeMap<u64, Vec<Arc<[u8]>>>;

/// The description of a problem.
pub type Problem = String;

/// Connects to the server directly, without the proxy.
pub async fn connect(url: &str) -> Result<tokio_postgres::Client, Problem> {
    // The parameters are options of the store, which the server does not know.
    let url = url.split('?').next().unwrap_or(url);
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        // Users of the client get the same error.
        let _ = connection.await;
    });
    Ok(client)
}

/// The owners of the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// Number of shards that each node owns, by the node's name.
    pub shards: BTreeMap<String, i64>,
    /// Number of shards without an owner.
    pub free: i64,
}

/// Reads the owners of the shards.
pub async fn owners(client: &tokio_postgres::Client, schema: &str) -> Result<Owners, Problem> {
    let sql = format!(
        "SELECT n.info, count(*) FROM {schema}.shards s LEFT JOIN {schema}.sessions l ON l.id = s.session \
         LEFT JOIN {schema}.sessions n ON n.id = l.node GROUP BY n.id, n.info"
    );
    let rows = client.query(&sql, &[]).await.map_err(|error| error.to_string())?;
    let mut owners = Owners { shards: BTreeMap::new(), free: 0 };
    for row in rows {
        match row.get::<_, Option<&[u8]>>(0) {
            Some(info) => {
                let info: serde_json::Value = serde_json::from_slice(info).unwrap_or_default();
                let name = info["name"].as_str().unwrap_or("?").to_owned();
                *owners.shards.entry(name).or_default() += row.get::<_, i64>(1);
            }
            None => owners.free += row.get::<_, i64>(1),
        }
    }
    Ok(owners)
}

/// The ids of instances that have not ended.
pub async fn unfinished(client: &tokio_postgres::Client, schema: &str) -> Result<Vec<String>, Problem> {
    let sql = format!("SELECT id FROM {schema}.instances WHERE status < 2 ORDER BY id");
    let rows = client.query(&sql, &[]).await.map_err(|error| error.to_string())?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Reads all tables in one transaction.
pub async fn read(client: &mut tokio_postgres::Client, schema: &str) -> Result<Snapshot, Problem> {
    let begin = client.build_transaction().read_only(true);
    let begin = begin.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let transaction = begin.start().await.map_err(|error| error.to_string())?;
    let rows = async |columns: &str, table: &str, order: &str| {
        let sql = format!("SELECT {columns} FROM {schema}.{table} ORDER BY {order}");
        transaction.query(&sql, &[]).await.map_err(|error| format!("{table}: {error}"))
    };
    let instances = rows("*", "instances", "created_ms, key").await?;
    let turns = rows("key, execution, number, body", "turns", "key, execution, number").await?;
    let inbox = rows("*", "inbox", "number").await?;
    let tasks = rows("*", "tasks", "key, execution, event").await?;
    let mut others = Vec::new();
    for table in ["requests", "attributes", "continuations"] {
        for row in rows("key", table, "key").await? {
            others.push((table.to_owned(), key(&row, "key")));
        }
    }
    let deadlines = "(SELECT deadline_ms FROM {} UNION ALL SELECT deadline_ms FROM {})";
    let deadlines = deadlines.replacen("{}", &format!("{schema}.requests"), 1);
    let deadlines = deadlines.replacen("{}", &format!("{schema}.replies"), 1);
    let sql = format!("SELECT deadline_ms FROM {deadlines} AS all_of_them");
    let deadlines = transaction.query(&sql, &[]).await.map_err(|error| error.to_string())?;

    let turn = |row: &Row| TurnOfExecution {
        key: key(row, "key"),
        execution: number(row, "execution"),
        number: number(row, "number"),
        body: bytes(row, "body"),
    };
    Ok(assemble(Tables {
        instances: instances.iter().map(instance_row).collect::<Result<_, _>>()?,
        turns: turns.iter().map(turn).collect(),
        inbox: inbox.iter().map(inbox_row).collect(),
        tasks: tasks.iter().map(task_row).collect(),
        deadlines_ms: deadlines.iter().map(|row| number(row, "deadline_ms")).collect(),
        others,
    }))
}

/// The rows of all tables, as they were read.
pub(crate) struct Tables {
    /// Oldest first.
    pub(crate) instances: Vec<InstanceRow>,
    /// In order.
    pub(crate) turns: Vec<TurnOfExecution>,
    pub(crate) inbox: Vec<InboxRow>,
    pub(crate) tasks: Vec<TaskRow>,
    /// The deadlines of all requests and replies.
    pub(crate) deadlines_ms: Vec<u64>,
    /// The keys that rows of other tables name, with the table.
    pub(crate) others: Vec<(String, InstanceKey)>,
}

/// A stored turn.
pub(crate) struct TurnOfExecution {
    pub(crate) key: InstanceKey,
    pub(crate) execution: u64,
    pub(crate) number: u64,
    pub(crate) body: Arc<[u8]>,
}

/// Puts the rows of each instance together.
pub(crate) fn assemble(tables: Tables) -> Snapshot {
    let Tables { instances, turns, inbox, tasks, deadlines_ms, others } = tables;
    let mut snapshot = Snapshot::default();
    let mut by_key: BTreeMap<InstanceKey, Executions> = BTreeMap::new();
    let mut stored = StoredRows { others, request_deadlines_ms: deadlines_ms, ..StoredRows::default() };
    for TurnOfExecution { key, execution, number, body } in turns {
        by_key.entry(key).or_default().entry(execution).or_default().push(body);
        stored.turns.push((key, execution, number));
    }
    stored.inbox = inbox.iter().map(|row| (row.key, Arc::clone(&row.body))).collect();
    stored.tasks = tasks.iter().map(StoredTask::from).collect();
    for row in instances {
        let mut executions = by_key.remove(&row.key).unwrap_or_default();
        for execution in 1..=row.execution {
            executions.entry(execution).or_default();
        }
        let of_it = |task: &&TaskRow| task.id.key == row.key && task.id.execution == row.execution;
        let tasks = Some(tasks.iter().filter(of_it).cloned().collect());
        let inbox = Some(inbox.iter().filter(|message| message.key == row.key).cloned().collect());
        snapshot.instances.push(StoredInstance { row, executions, inbox, tasks });
    }
    snapshot.rows = Some(stored);
    snapshot
}

fn key(row: &Row, column: &str) -> InstanceKey {
    InstanceKey::from_bytes(*row.get::<_, Uuid>(column).as_bytes())
}

fn number(row: &Row, column: &str) -> u64 {
    row.get::<_, i64>(column).cast_unsigned()
}

fn maybe_number(row: &Row, column: &str) -> Option<u64> {
    row.get::<_, Option<i64>>(column).map(i64::cast_unsigned)
}

fn small(row: &Row, column: &str) -> u32 {
    u32::try_from(row.get::<_, i64>(column)).unwrap_or(u32::MAX)
}

fn bytes(row: &Row, column: &str) -> Arc<[u8]> {
    Arc::from(row.get::<_, &[u8]>(column))
}

fn shard(row: &Row) -> ShardId {
    ShardId(u8::try_from(row.get::<_, i16>("shard")).expect("one of 256 shards"))
}

fn json<T: serde::de::DeserializeOwned>(row: &Row, column: &str) -> Result<Option<T>, Problem> {
    let text: Option<&str> = row.get(column);
    text.map(serde_json::from_str).transpose().map_err(|error| format!("{column}: {error}"))
}

fn payload(row: &Row, column: &str) -> Option<Payload> {
    row.get::<_, Option<&str>>(column).map(|text| Payload::from_json(text).expect("payloads are JSON"))
}

fn instance_row(row: &Row) -> Result<InstanceRow, Problem> {
    let status = usize::try_from(row.get::<_, i16>("status")).unwrap_or(usize::MAX);
    Ok(InstanceRow {
        key: key(row, "key"),
        id: row.get("id"),
        shard: shard(row),
        name: row.get("name"),
        version: row.get("version"),
        status: *Status::ALL.get(status).ok_or_else(|| format!("there is no status {status}"))?,
        execution: number(row, "execution"),
        owed: row.get("owed"),
        wake_at_ms: maybe_number(row, "wake_at_ms"),
        blocked: json::<Blocked>(row, "blocked")?,
        full: row.get("is_full"),
        attributes: json::<Attributes>(row, "attributes")?.unwrap_or_default(),
        published: payload(row, "published"),
        parent: json::<ParentLink>(row, "parent")?,
        created_ms: number(row, "created_ms"),
        ended_ms: maybe_number(row, "ended_ms"),
        checksum: row.get::<_, i32>("checksum").cast_unsigned(),
    })
}

fn inbox_row(row: &Row) -> InboxRow {
    InboxRow {
        number: number(row, "number"),
        key: key(row, "key"),
        shard: shard(row),
        arrived_ms: number(row, "arrived_ms"),
        urgent: row.get("urgent"),
        body: bytes(row, "body"),
    }
}

fn task_row(row: &Row) -> TaskRow {
    let session = |column| row.get::<_, Option<Uuid>>(column).map(|id| SessionId(id.as_u128()));
    let state = match (row.get::<_, i16>("state"), session("holder")) {
        (1, Some(holder)) => TaskState::Leased { holder, cancelled: row.get("cancelled") },
        (2, _) => TaskState::Waiting,
        _ => TaskState::Queued,
    };
    TaskRow {
        id: TaskId {
            key: key(row, "key"),
            execution: number(row, "execution"),
            event: EventId(number(row, "event")),
        },
        shard: shard(row),
        attempt: small(row, "attempt"),
        state,
        due_ms: maybe_number(row, "due_ms"),
        since_ms: maybe_number(row, "since_ms"),
        details: payload(row, "details"),
        heard_ms: maybe_number(row, "heard_ms"),
        interruptions: small(row, "interruptions"),
        begun: session("begun"),
        past: Default::default(),
        name: row.get("name"),
        tag: row.get("tag"),
        work: row.get::<_, Option<&[u8]>>("work").map(Arc::from),
    }
}
