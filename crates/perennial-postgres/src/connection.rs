//! One connection: how it is opened, and how statements run on it.
//!
//! Statements refer to tables and functions as `@.name`. The schema's name is substituted when a statement is prepared.

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

/// A statement's argument with its type. Giving the type saves the round trip that would query it.
pub(crate) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// Overrides defaults that were set for the role or the database on behalf of other programs. Sequential scans are off
/// because plans may be made while tables are still empty, and are kept when the tables have grown. The schema's
/// functions have settings of their own.
const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; \
     SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0; SET jit = off; SET statement_timeout = 0; \
     SET lock_timeout = 0; SET plan_cache_mode = force_generic_plan; SET idle_in_transaction_session_timeout = 0; \
     SET bytea_output = 'hex'";

pub(crate) struct Connection {
    client: Client,
    statements: FxHashMap<&'static str, Statement>,
    target: Arc<Target>,
    /// A call is in progress. If its future is dropped, the state of the protocol is unknown, and the connection cannot
    /// be used again.
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

    /// Returns whether another call can use this connection.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_busy && !self.client.is_closed()
    }

    /// Runs a statement in a transaction of its own and reads all rows. The transaction is committed when this returns.
    pub(crate) async fn query(
        &mut self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.is_busy = true;
        let rows = self.run(sql, arguments).await;
        // After an error response the server accepts the next statement, unless it ended the session.
        self.is_busy = rows.as_ref().is_err_and(is_lost);
        rows
    }

    /// Runs a statement that returns no rows, in a transaction of its own. Returns the number of rows that it wrote.
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<u64, Error> {
        self.is_busy = true;
        let written = async {
            let statement = self.statement(sql, arguments).await?;
            self.client.execute_raw(&statement, arguments.iter().map(|(value, _)| *value)).await
        };
        let written = written.await;
        self.is_busy = written.as_ref().is_err_and(is_lost);
        written
    }

    /// Like `query`, but the statement is planned for these arguments. Use it where the best plan depends on them.
    pub(crate) async fn query_planned(
        &mut self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.is_busy = true;
        let rows = self.run_planned(sql, arguments).await;
        self.is_busy = rows.as_ref().is_err_and(is_lost);
        rows
    }

    async fn run_planned(&mut self, sql: &str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Error> {
        let (client, sql) = (&self.client, self.of_schema(sql));
        let read = client.query_typed(&sql, arguments);
        if self.target.options.pooler {
            return read.await;
        }
        // tokio-postgres sends requests in the order in which their futures are first polled. After an error, COMMIT ends
        // the transaction, too.
        let (begun, rows, ended) = join3(
            client.batch_execute("BEGIN READ ONLY; SET LOCAL plan_cache_mode = force_custom_plan"),
            read,
            client.batch_execute("COMMIT"),
        )
        .await;
        begun?;
        let rows = rows?;
        ended.map(|()| rows)
    }

    async fn run(&mut self, sql: &'static str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Error> {
        if self.target.options.pooler {
            return self.client.query_typed(&self.of_schema(sql), arguments).await;
        }
        let statement = self.statement(sql, arguments).await?;
        let values: Vec<&(dyn ToSql + Sync)> = arguments.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    /// Runs several statements on one snapshot. They are pipelined.
    pub(crate) async fn snapshot<const N: usize>(
        &mut self,
        queries: [(&'static str, &[Argument<'_>]); N],
    ) -> Result<[Vec<Row>; N], Error> {
        self.is_busy = true;
        let read = self.run_snapshot(queries).await;
        // After an error the transaction is still open, so the connection is discarded.
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
        // tokio-postgres sends requests in the order in which their futures are first polled.
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

    /// The underlying client, for statements that run once per connection.
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// Returns whether the session is unusable after this error.
pub(crate) fn is_lost(error: &Error) -> bool {
    let severity = error.as_db_error().map(|answer| answer.parsed_severity());
    severity.is_none_or(|severity| matches!(severity, Some(Severity::Fatal | Severity::Panic)))
}

/// Connects, and spawns a task that drives the connection.
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

/// Classifies an error while connecting. A server that does not respond may respond later; a rejected login is
/// permanent.
pub(crate) fn refusal(target: &Target, error: &Error) -> StoreError {
    let text = format!("{}: {}", target.shown, describe(error));
    match error.as_db_error().map(|answer| answer.code().code().to_owned()) {
        // Invalid authorization (28000, 28P01) or no such database (3D000).
        Some(code) if code.starts_with("28") || code == "3D000" => StoreError::CannotOpen(text),
        _ => StoreError::Unavailable(text),
    }
}
