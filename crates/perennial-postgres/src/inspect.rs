//! Inspects a server and a schema without opening the store: nothing is created, migrated or written.

use std::sync::Arc;

use perennial_core::shard::{BodyError, Message};
use perennial_core::store::{NodeInfo, StoreError};
use tokio_postgres::Client;
use tokio_postgres::error::Error;
use tokio_postgres::types::Type;

use crate::connection::Connection;
use crate::options::{PostgresOptions, Target};
use crate::schema;

/// Maximum number of messages that are checked.
const MAX_CHECKED_MESSAGES: i64 = 10_000;
/// Maximum number of findings that are listed per kind.
const MAX_LISTED: usize = 20;
/// Settings that must be on for acknowledged commits to survive a crash.
const SAFETY: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];

/// The result of inspecting a server and the schema of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The version of the server, such as `15.4`.
    pub server: String,
    /// The name of the schema.
    pub schema_name: String,
    /// The version of the schema; 0 if there is no store in it.
    pub schema: u32,
    /// The schema version that this build creates and requires.
    pub known_schema: u32,
    /// Settings of the server that are off, so that a crash can lose or damage acknowledged commits.
    pub unsafe_settings: Vec<String>,
    /// Whether the server has checksums of its pages.
    pub has_data_checksums: bool,
    /// The server's clock at the time of the inspection, in milliseconds since 1970.
    pub now_ms: u64,
    /// The content of the schema; `None` if this build does not support its version.
    pub content: Option<Content>,
}

/// Facts about the content of a schema that the store's interface does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// The live nodes, each with the number of shards it owns.
    pub nodes: Vec<(NodeInfo, u64)>,
    /// Number of sessions that expired without being ended, because their nodes died.
    pub expired: u64,
    /// Number of shards owned by live nodes.
    pub owned_shards: u64,
    /// Total size of tables and indexes, in bytes.
    pub bytes: u64,
    /// The id of the most overdue instance, and the time at which it was due.
    pub oldest_overdue: Option<(String, u64)>,
    /// Messages that cannot be decoded, up to a limit: number, id of the instance, and whether a newer engine wrote the
    /// message.
    pub unreadable: Vec<(u64, String, bool)>,
    /// Number of instances with an activity to run.
    pub owed: u64,
    /// Activities that wait for a process that can run them: name, tag and count, up to a limit.
    pub queued: Vec<(String, Option<String>, u64)>,
    /// Number of messages that a runtime would take immediately, up to a limit.
    pub waiting: u64,
}

/// Inspects the server and the schema of a URL. The store may be in use.
///
/// ```no_run
/// # async fn look() -> Result<(), perennial_core::store::StoreError> {
/// let found = perennial_postgres::inspect("postgres://localhost/shop").await?;
/// println!("PostgreSQL {}, schema version {}", found.server, found.schema);
/// # Ok(())
/// # }
/// ```
pub async fn inspect(url: &str) -> Result<Inspection, StoreError> {
    let target = Arc::new(Target::parse(url, PostgresOptions::default().create(false).read_only(true))?);
    let mut connection = Connection::open(&target).await?;
    let client = connection.client();
    let explained = |error: Error| schema::explain(&target, &error);
    let server = "SELECT current_setting('server_version'), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let row = client.query_typed_one(server, &[]).await.map_err(explained)?;
    let (server, now_ms): (String, i64) = (row.get(0), row.get(1));
    let mut unsafe_settings = Vec::new();
    for name in SAFETY {
        let row = client
            .query_typed_one("SELECT current_setting($1)", &[(&name, Type::TEXT)])
            .await
            .map_err(explained)?;
        if row.get::<_, &str>(0) == "off" {
            unsafe_settings.push(name.to_owned());
        }
    }
    let checksums = "SELECT current_setting('data_checksums')";
    let row = client.query_typed_one(checksums, &[]).await.map_err(explained)?;
    let has_data_checksums = row.get::<_, &str>(0) == "on";
    let version = schema::stored_version(client, &target).await?;
    let content = match version {
        schema::VERSION => Some(content(client, &target).await.map_err(explained)?),
        _ => None,
    };
    Ok(Inspection {
        server,
        schema_name: target.options.schema.clone(),
        schema: u32::try_from(version).unwrap_or_default(),
        known_schema: u32::try_from(schema::VERSION).unwrap_or_default(),
        unsafe_settings,
        has_data_checksums,
        now_ms: now_ms.cast_unsigned(),
        content,
    })
}

async fn content(client: &Client, target: &Target) -> Result<Content, Error> {
    let named = |sql: &str| sql.replace("@.", &format!("{}.", target.quoted_schema()));
    let sessions = "SELECT s.role, s.node::text, s.info, s.expires_ms >= @.now_ms(), \
         (SELECT count(*) FROM @.shards AS h WHERE h.session = s.id) FROM @.sessions AS s ORDER BY s.node";
    let mut found = Content::default();
    let mut last = None;
    for row in client.query_typed(&named(sessions), &[]).await? {
        let (role, node, is_live): (String, String, bool) = (row.get(0), row.get(1), row.get(3));
        match (role.as_str(), is_live) {
            ("maintenance", _) => continue,
            (_, false) => found.expired += 1,
            (_, true) => {
                // A node has one session of its own and one per lane; it is listed once.
                if last.as_ref() != Some(&node) {
                    found.nodes.push((NodeInfo::decode(row.get(2)), 0));
                }
                let shards = row.get::<_, i64>(4).cast_unsigned();
                found.owned_shards += shards;
                if let Some((_, owned)) = found.nodes.last_mut() {
                    *owned += shards;
                }
                last = Some(node);
            }
        }
    }
    let bytes = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
    let row = client.query_typed_one(bytes, &[(&target.options.schema, Type::TEXT)]).await?;
    found.bytes = row.get::<_, i64>(0).cast_unsigned();
    let overdue = "SELECT id, wake_at_ms FROM @.instances \
         WHERE wake_at_ms < @.now_ms() AND status < 2 AND blocked IS NULL ORDER BY wake_at_ms LIMIT 1";
    let row = client.query_typed_opt(&named(overdue), &[]).await?;
    found.oldest_overdue = row.map(|row| (row.get(0), row.get::<_, i64>(1).cast_unsigned()));
    let owed = "SELECT count(*) FROM @.instances WHERE owed AND status < 2";
    found.owed = client.query_typed_one(&named(owed), &[]).await?.get::<_, i64>(0).cast_unsigned();
    let queued = "SELECT name, tag, count(*) FROM @.tasks WHERE state = 0 GROUP BY name, tag ORDER BY name, tag LIMIT $1";
    let rows = client.query_typed(&named(queued), &[(&(MAX_LISTED as i64), Type::INT8)]).await?;
    found.queued =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get::<_, i64>(2).cast_unsigned())).collect();
    let waiting = "SELECT count(*) FROM (SELECT 1 FROM @.inbox AS b JOIN @.instances AS i ON i.key = b.key \
         WHERE i.blocked IS NULL AND NOT (i.status = 0 AND i.wake_at_ms IS NOT NULL AND i.wake_at_ms > @.now_ms()) \
         LIMIT $1) AS w";
    let row = client.query_typed_one(&named(waiting), &[(&MAX_CHECKED_MESSAGES, Type::INT8)]).await?;
    found.waiting = row.get::<_, i64>(0).cast_unsigned();
    let messages = "SELECT b.number, coalesce((SELECT i.id FROM @.instances AS i WHERE i.key = b.key), ''), b.body \
         FROM @.inbox AS b ORDER BY b.shard, b.number LIMIT $1";
    for row in client.query_typed(&named(messages), &[(&MAX_CHECKED_MESSAGES, Type::INT8)]).await? {
        if let Err(error) = Message::decode(row.get(2))
            && found.unreadable.len() < MAX_LISTED
        {
            let is_newer = matches!(error, BodyError::NewerEngine { .. });
            found.unreadable.push((row.get::<_, i64>(0).cast_unsigned(), row.get(1), is_newer));
        }
    }
    Ok(found)
}
