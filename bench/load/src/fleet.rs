//! The stores and the orchestrations of the workloads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use perennial::{ActivityContext, OrchestrationContext, Payload, Runtime, RuntimeOptions};
use perennial_testkit::postgres::{ServerOptions, TestServer};
use tempfile::TempDir;

use crate::postgres;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The location of the stores of a run.
pub(crate) struct Place {
    kind: Kind,
    name: String,
    /// The number of lanes; 0 for the default.
    pub(crate) lanes: usize,
}

enum Kind {
    Temporary(TempDir),
    File(PathBuf),
    Memory,
    Postgres { url: String, _server: Option<Box<TestServer>> },
}

impl Place {
    pub(crate) fn new(url: Option<String>, lanes: usize) -> Outcome<Place> {
        let (kind, name) = match url.as_deref() {
            None => (Kind::Temporary(TempDir::new()?), "sqlite"),
            Some("memory:") => (Kind::Memory, "memory"),
            Some("postgres:") => {
                let server = TestServer::try_start(&ServerOptions::default())?;
                (Kind::Postgres { url: server.url().to_owned(), _server: Some(Box::new(server)) }, "postgres")
            }
            Some(url) if is_postgres(url) => {
                (Kind::Postgres { url: url.to_owned(), _server: None }, "postgres")
            }
            Some(url) => match url.strip_prefix("sqlite:") {
                Some(path) => (Kind::File(PathBuf::from(path)), "sqlite"),
                None => {
                    let known = "sqlite:PATH, memory:, postgres: or postgres://…";
                    return Err(format!("unknown store {url:?}: use {known}").into());
                }
            },
        };
        Ok(Place { kind, name: name.to_owned(), lanes })
    }

    /// The URL of the PostgreSQL server, if the stores are there.
    pub(crate) fn server(&self) -> Option<&str> {
        match &self.kind {
            Kind::Postgres { url, .. } => Some(url),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A new store for one run.
    pub(crate) fn fresh(&self, name: &str) -> Site {
        let site = match &self.kind {
            Kind::Memory => Site { url: "memory:".to_owned(), place: SitePlace::Memory, lanes: 0 },
            Kind::Temporary(directory) => Site::file(directory.path().join(format!("{name}.db"))),
            Kind::File(path) => Site::file(path.clone()),
            Kind::Postgres { url, .. } => Site::schema(url, &format!("bench_{}", name.replace('-', "_"))),
        };
        Site { lanes: self.lanes, ..site }
    }

    /// The store at the server's URL, which names its schema.
    pub(crate) fn existing(&self) -> Site {
        let url = self.server().unwrap_or_default().to_owned();
        Site { url, place: SitePlace::Memory, lanes: self.lanes }
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// One store, removed when a run is over.
pub(crate) struct Site {
    pub(crate) url: String,
    place: SitePlace,
    pub(crate) lanes: usize,
}

enum SitePlace {
    Memory,
    File(PathBuf),
    Schema { server: String, name: String },
}

impl Site {
    fn file(path: PathBuf) -> Site {
        Site { url: format!("sqlite:{}", path.display()), place: SitePlace::File(path), lanes: 0 }
    }

    fn schema(server: &str, name: &str) -> Site {
        let separator = if server.contains('?') { '&' } else { '?' };
        let place = SitePlace::Schema { server: server.to_owned(), name: name.to_owned() };
        Site { url: format!("{server}{separator}schema={name}"), place, lanes: 0 }
    }

    /// Whether a store outlives its runtime.
    pub(crate) fn is_durable(&self) -> bool {
        !matches!(self.place, SitePlace::Memory)
    }

    /// Its size on disk.
    pub(crate) async fn disk_bytes(&self) -> Outcome<u64> {
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        Ok(match &self.place {
            SitePlace::Memory => 0,
            SitePlace::File(path) => files(path).into_iter().map(size).sum(),
            SitePlace::Schema { server, name } => postgres::disk_bytes(server, name).await?,
        })
    }

    /// Removes what an earlier run left, or this one.
    pub(crate) async fn clear(&self) -> Outcome<()> {
        match &self.place {
            SitePlace::Memory => {}
            SitePlace::File(path) => {
                for file in files(path) {
                    // A missing file need not be removed.
                    let _ = std::fs::remove_file(file);
                }
            }
            SitePlace::Schema { server, name } => postgres::drop_schema(server, name).await?,
        }
        Ok(())
    }
}

fn files(path: &Path) -> Vec<PathBuf> {
    ["", "-wal", "-shm", "-lock"].map(|suffix| PathBuf::from(format!("{}{suffix}", path.display()))).to_vec()
}

/// A runtime with all orchestrations of the workloads.
pub(crate) async fn runtime(site: &Site) -> Outcome<Runtime> {
    let mut options = RuntimeOptions::default();
    options.shard.execution.shadow_replay = false;
    options.shard.max_resident = 10_000;
    options.lanes = site.lanes;
    let runtime = Runtime::open(&site.url)
        .options(options)
        .orchestration("hello", "1.0.0", |ctx: OrchestrationContext, input: Payload| async move {
            ctx.schedule_activity("echo", input).await.map_err(|_| Payload::null())
        })
        .orchestration("sequence", "1.0.0", sequence)
        .orchestration("fanout", "1.0.0", |ctx: OrchestrationContext, input: Payload| async move {
            let width: u64 = input.decode().map_err(|_| Payload::null())?;
            let results = ctx.join((0..width).map(|_| ctx.schedule_activity("echo", Payload::null()))).await;
            Ok::<_, Payload>(Payload::from(serde_json::Value::from(results.len())))
        })
        .orchestration("signal", "1.0.0", |ctx: OrchestrationContext, _: Payload| async move {
            Ok::<_, Payload>(ctx.schedule_wait("go").await)
        })
        .orchestration("sleeper", "1.0.0", |ctx: OrchestrationContext, input: Payload| async move {
            let ms: u64 = input.decode().map_err(|_| Payload::null())?;
            let due_ms = ctx.now().as_millis() + ms;
            ctx.schedule_timer(Duration::from_millis(ms)).await;
            let late_ms = ctx.now().as_millis() - due_ms;
            Ok::<_, Payload>(Payload::from(serde_json::Value::from(late_ms)))
        })
        .activity("echo", |_: ActivityContext, input: Payload| async move { Ok::<_, Payload>(input) })
        .start()
        .await?;
    Ok(runtime)
}

async fn sequence(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let steps: u64 = input.decode().map_err(|_| Payload::null())?;
    for _ in 0..steps {
        ctx.schedule_activity("echo", Payload::null()).await.map_err(|_| Payload::null())?;
    }
    Ok(Payload::null())
}

pub(crate) fn number(number: u64) -> Payload {
    Payload::from(serde_json::Value::from(number))
}
