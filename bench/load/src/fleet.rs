//! The stores and the orchestrations of the workloads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use perennial::{ActivityContext, OrchestrationContext, Payload, Runtime, RuntimeOptions};
use tempfile::TempDir;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The location of the stores of a run.
pub(crate) struct Place {
    kind: Kind,
    name: String,
}

enum Kind {
    Temporary(TempDir),
    File(PathBuf),
    Memory,
}

impl Place {
    pub(crate) fn new(url: Option<String>) -> Outcome<Place> {
        Ok(match url.as_deref() {
            None => Place { kind: Kind::Temporary(TempDir::new()?), name: "sqlite".to_owned() },
            Some("memory:") => Place { kind: Kind::Memory, name: "memory".to_owned() },
            Some(url) => match url.strip_prefix("sqlite:") {
                Some(path) => Place { kind: Kind::File(PathBuf::from(path)), name: "sqlite".to_owned() },
                None => return Err(format!("unknown store {url:?}: use sqlite:PATH or memory:").into()),
            },
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A new store for one run.
    pub(crate) fn fresh(&self, name: &str) -> Site {
        match &self.kind {
            Kind::Memory => Site { url: "memory:".to_owned(), path: None },
            Kind::Temporary(directory) => Site::file(directory.path().join(format!("{name}.db"))),
            Kind::File(path) => Site::file(path.clone()),
        }
    }
}

/// One store, removed when it is dropped.
pub(crate) struct Site {
    pub(crate) url: String,
    pub(crate) path: Option<PathBuf>,
}

impl Site {
    fn file(path: PathBuf) -> Site {
        Site { url: format!("sqlite:{}", path.display()), path: Some(path) }
    }

    /// The size of all its files.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        self.path.as_deref().map_or(0, |path| files(path).into_iter().map(size).sum())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            for file in files(path) {
                // A missing file need not be removed.
                let _ = std::fs::remove_file(file);
            }
        }
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
