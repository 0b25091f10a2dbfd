//! One connection: how it is made, and how statements run on it.
//!
//! Statements name tables and functions as `@.name`; the schema is put in when they are prepared.

use std::sync::Arc;

use futures_util::future::{join_all, join3};
use perennial_core::log;
use perennial_core::store::StoreError;
use rustc_hash::FxHashMap;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use crate::options::{Target, describe};
use crate::tls;

/// What a statement is given: a value, and its type, which need not be asked for then.
pub(crate) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// Whoever set other defaults for the role or the database did not mean this program. Plans are made on empty tables, too,
/// and have to be those for full ones. Functions have settings of their own.
const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; \
     SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0; SET jit = off; SET statement_timeout = 0; \
     SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET bytea_output = 'hex'";

pub(crate) struct Connection {
    client: Client,
    statements: FxHashMap<&'static str, Statement>,
    target: Arc<Target>,
    /// A call is under way. If its future is dropped, nobody knows what is on the wire.
    is_busy: bool,
}

impl Connection {
    pub(crate) async fn open(target: &Arc<Target>) -> Result<Connection, StoreError> {
        let client = connect(target).await?;
        if !target.options.pooler {
            let unavailable = |error: Error| StoreError::Unavailable(describe(&error));
            let mut settings = SETTINGS.to_owned();
            if target.options.relaxed {
                settings.push_str("; SET synchronous_commit = off");
            }
            if target.options.read_only {
                settings.push_str("; SET default_transaction_read_only = on");
            }
            client.batch_execute(&settings).await.map_err(unavailable)?;
        }
        let target = Arc::clone(target);
        Ok(Connection { client, statements: FxHashMap::default(), target, is_busy: false })
    }

    /// Whether it can be used again.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_busy && !self.client.is_closed()
    }

    /// Runs a statement in a transaction of its own, and reads all rows: when this returns, it is committed.
    pub(crate) async fn query(
        &mut self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.is_busy = true;
        let rows = self.run(sql, arguments).await;
        // After an error that the server told it waits for the next statement, unless it has ended the session.
        self.is_busy = rows.as_ref().is_err_and(is_lost);
        rows
    }

    /// The same, with a plan for these arguments: worth it where the best one depends on them.
    pub(crate) async fn query_planned(
        &mut self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.is_busy = true;
        let rows = self.client.query_typed(&self.of_schema(sql), arguments).await;
        self.is_busy = rows.as_ref().is_err_and(is_lost);
        rows
    }

    async fn run(&mut self, sql: &'static str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Error> {
        if self.target.options.pooler {
            return self.client.query_typed(&self.of_schema(sql), arguments).await;
        }
        let statement = self.statement(sql, arguments).await?;
        let values: Vec<&(dyn ToSql + Sync)> = arguments.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    /// Runs statements that see the same moment. They are sent together.
    pub(crate) async fn snapshot<const N: usize>(
        &mut self,
        queries: [(&'static str, &[Argument<'_>]); N],
    ) -> Result<[Vec<Row>; N], Error> {
        self.is_busy = true;
        let read = self.run_snapshot(queries).await;
        // The transaction is open after an error.
        self.is_busy = read.is_err();
        read
    }

    async fn run_snapshot<const N: usize>(
        &mut self,
        queries: [(&'static str, &[Argument<'_>]); N],
    ) -> Result<[Vec<Row>; N], Error> {
        if self.target.options.pooler {
            let mut read = [const { Vec::new() }; N];
            self.client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
            for (rows, (sql, arguments)) in read.iter_mut().zip(queries) {
                *rows = self.client.query_typed(&self.of_schema(sql), arguments).await?;
            }
            self.client.batch_execute("COMMIT").await?;
            return Ok(read);
        }
        let mut prepared = Vec::with_capacity(N);
        for (sql, arguments) in queries {
            prepared.push(self.statement(sql, arguments).await?);
        }
        let values =
            queries.map(|(_, arguments)| arguments.iter().map(|(value, _)| *value).collect::<Vec<_>>());
        let client = &self.client;
        let reads = prepared.iter().zip(&values).map(|(statement, values)| client.query(statement, values));
        // Requests go out in the order in which their futures are polled first.
        let (begun, read, ended) = join3(
            client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            join_all(reads),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun?;
        let mut rows = [const { Vec::new() }; N];
        for (place, read) in rows.iter_mut().zip(read) {
            *place = read?;
        }
        ended?;
        Ok(rows)
    }

    async fn statement(&mut self, sql: &'static str, arguments: &[Argument<'_>]) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let types: Vec<Type> = arguments.iter().map(|(_, type_)| type_.clone()).collect();
        let statement = self.client.prepare_typed(&self.of_schema(sql), &types).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    fn of_schema(&self, sql: &str) -> String {
        sql.replace("@.", &format!("{}.", self.target.quoted_schema()))
    }

    /// The client itself, for what happens once.
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// Whether an error leaves no session to go on with.
pub(crate) fn is_lost(error: &Error) -> bool {
    let severity = error.as_db_error().map(|answer| answer.parsed_severity());
    severity.is_none_or(|severity| matches!(severity, Some(Severity::Fatal | Severity::Panic)))
}

/// Connects, and leaves the connection to a task.
async fn connect(target: &Target) -> Result<Client, StoreError> {
    let tls = tls::connector(target)
        .map_err(|problem| StoreError::CannotOpen(format!("{}: {problem}", target.shown)))?;
    let connected = target.config.connect(tls).await;
    let (client, connection) = connected.map_err(|error| refusal(target, &error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(target: log::STORE, error = describe(&error), "connection to PostgreSQL lost");
        }
    });
    Ok(client)
}

/// Why there is no connection. A server that does not answer may answer later; a login that it refuses stays refused.
pub(crate) fn refusal(target: &Target, error: &Error) -> StoreError {
    let text = format!("{}: {}", target.shown, describe(error));
    match error.as_db_error().map(|answer| answer.code().code().to_owned()) {
        // The login, or the database: 28000, 28P01, 3D000.
        Some(code) if code.starts_with("28") || code == "3D000" => StoreError::CannotOpen(text),
        _ => StoreError::Unavailable(text),
    }
}
