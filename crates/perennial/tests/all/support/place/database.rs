//! A schema of the server that all tests share.
//!
//! Tests call this from async code, so each statement runs on a thread and a connection of its own.

use std::sync::Arc;
use std::thread;

use perennial_core::store::Store;
use perennial_postgres::PostgresOptions;
use perennial_testkit::invariants::Snapshot;
use perennial_testkit::postgres::TestServer;
use tokio_postgres::Client;
use tokio_postgres::types::FromSqlOwned;

use self::snapshot::Problem;
use crate::support::now_ms;

#[allow(unreachable_pub, reason = "another crate exports it")]
#[path = "../../../../../../chaos/src/snapshot.rs"]
mod snapshot;

pub(super) struct Schema {
    url: String,
}

impl Schema {
    pub(super) fn new() -> Schema {
        Schema { url: TestServer::shared().new_schema() }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    fn name(&self) -> &str {
        self.url.rsplit_once("schema=").expect("the URL names a schema").1
    }

    pub(super) fn make(&self) {
        drop(perennial_postgres::open(&self.url, PostgresOptions::default()).unwrap());
    }

    pub(super) fn store(&self, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Arc<dyn Store> {
        Arc::new(perennial_postgres::open(&self.url, PostgresOptions::default().clock(now_ms)).unwrap())
    }

    pub(super) fn exists(&self) -> bool {
        self.number(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", self.name())) > 0
    }

    pub(super) fn execute(&self, sql: &str) -> u64 {
        self.with(async |client| client.execute(sql, &[]).await.map_err(|error| format!("{error:?}")))
    }

    pub(super) fn number(&self, sql: &str) -> i64 {
        self.value(sql)
    }

    pub(super) fn text(&self, sql: &str) -> Option<String> {
        self.value(sql)
    }

    pub(super) fn bytes(&self, sql: &str) -> Vec<u8> {
        self.value(sql)
    }

    fn value<T: FromSqlOwned + Send>(&self, sql: &str) -> T {
        self.with(async |client| {
            let row = client.query_one(sql, &[]).await;
            row.map(|row| row.get(0)).map_err(|error| format!("{error:?}"))
        })
    }

    /// All columns of all tables.
    pub(super) fn stored_text(&self) -> String {
        const COLUMNS: &str = "SELECT table_name::text, column_name::text, data_type::text \
             FROM information_schema.columns WHERE table_schema = $1";
        self.with(async |client| {
            let mut text = String::new();
            let columns =
                client.query(COLUMNS, &[&self.name()]).await.map_err(|error| format!("{error:?}"))?;
            for column in columns {
                let (table, name, type_): (String, String, String) =
                    (column.get(0), column.get(1), column.get(2));
                let shown = match &*type_ {
                    "bytea" => format!("encode({name}, 'escape')"),
                    _ => format!("{name}::text"),
                };
                let all = format!("SELECT coalesce(string_agg({shown}, chr(10)), '') FROM {table}");
                let all = client.query_one(&all, &[]).await.map_err(|error| format!("{error:?}"))?;
                text.push_str(&format!("{table}.{name}\n{}\n", all.get::<_, String>(0)));
            }
            Ok(text)
        })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let name = self.name();
        self.with(async |mut client| snapshot::read(&mut client, name).await)
    }

    pub(super) fn owned_until_ms(&self) -> u64 {
        let live = format!("SELECT count(*) FROM sessions WHERE expires_ms > {}", now_ms());
        if self.number(&live) > 0 { now_ms() } else { 0 }
    }

    fn with<T: Send>(&self, query: impl AsyncFnOnce(Client) -> Result<T, Problem> + Send) -> T {
        thread::scope(|scope| {
            let queried = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let client = snapshot::connect(&self.url).await?;
                    let path = format!("SET search_path TO {}", self.name());
                    client.batch_execute(&path).await.map_err(|error| format!("{error:?}"))?;
                    query(client).await
                })
            });
            queried.join().unwrap().unwrap_or_else(|problem| panic!("{problem}"))
        })
    }
}
