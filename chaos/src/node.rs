//! A node process: a runtime over the store with the load's handlers, and a caller inside it.
//!
//! It prints `ready` on standard output once the runtime has started, stops gracefully on SIGTERM, and exits with code
//! 3 if the runtime stopped by itself. A supervisor would restart it then, but none of the injected faults may cause
//! that.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use perennial::prelude::*;
use tokio::signal::unix::{SignalKind, signal};

use crate::callers::{Callers, Inside};
use crate::journal::Journal;
use crate::kinds;
use crate::log::Log;

/// The exit code of a node that could not start.
pub const NOT_STARTED: u8 = 2;
/// The exit code of a node whose runtime stopped by itself.
pub const FAILED: u8 = 3;
/// The exit code of a node that could not write everything when it stopped.
pub const NOT_STOPPED: u8 = 4;
/// The exit code of a node whose callers got answers that nothing explains.
pub const WRONG_ANSWERS: u8 = 5;

/// Options of a node process.
#[derive(Clone, Debug, Parser)]
#[command(name = "perennial-chaos-node", about = "A node of the chaos test.")]
pub struct NodeOptions {
    /// The URL of the store.
    #[arg(long)]
    pub url: String,
    /// The name of the node.
    #[arg(long)]
    pub name: String,
    /// The lease of its sessions, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    pub lease_ms: u64,
    /// The log directory.
    #[arg(long)]
    pub directory: PathBuf,
    /// The release of the program: 1 or 2.
    #[arg(long, default_value_t = 1)]
    pub release: u32,
    /// Runs activities only, and owns no shards.
    #[arg(long)]
    pub worker: bool,
    /// Has the activity `special`, which other nodes do not have.
    #[arg(long)]
    pub special: bool,
    /// A tag of the node; may be repeated.
    #[arg(long)]
    pub tag: Vec<String>,
    /// Starts instances itself, through the runtime's own client.
    #[arg(long)]
    pub calls: bool,
    /// The size in bytes beyond which the process cannot write to any file.
    #[arg(long)]
    pub file_limit: Option<u64>,
    /// The grace period of a graceful stop, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    pub grace_ms: u64,
    /// Does not sync commits.
    #[arg(long)]
    pub relaxed: bool,
    /// Runs all callers inside this process for so many milliseconds, lets what they began finish, and stops.
    #[arg(long)]
    pub lives_ms: Option<u64>,
    /// The number of the first instance of these callers.
    #[arg(long, default_value_t = 0)]
    pub lives_from: u64,
}

impl NodeOptions {
    /// The command line arguments for these options.
    pub fn arguments(&self) -> Vec<String> {
        let NodeOptions { url, name, lease_ms, directory, release, worker, special, tag, calls, .. } = self;
        let mut arguments = vec![
            format!("--url={url}"),
            format!("--name={name}"),
            format!("--lease-ms={lease_ms}"),
            format!("--directory={}", directory.display()),
            format!("--release={release}"),
            format!("--grace-ms={}", self.grace_ms),
        ];
        let flags = [
            (*worker, "--worker"),
            (*special, "--special"),
            (*calls, "--calls"),
            (self.relaxed, "--relaxed"),
        ];
        arguments.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned()));
        arguments.extend(tag.iter().map(|tag| format!("--tag={tag}")));
        arguments.extend(self.file_limit.map(|bytes| format!("--file-limit={bytes}")));
        arguments.extend(self.lives_ms.map(|ms| format!("--lives-ms={ms}")));
        arguments.push(format!("--lives-from={}", self.lives_from));
        arguments
    }

    /// The path of the callers' log.
    pub fn callers_log(&self) -> PathBuf {
        self.directory.join("callers")
    }

    /// The file whose existence tells callers inside nodes to stop.
    pub fn quiet_file(&self) -> PathBuf {
        self.directory.join("quiet")
    }

    /// The path of the log of effects.
    pub fn effects_log(&self) -> PathBuf {
        self.directory.join("effects")
    }
}

/// Runs a node until it is told to stop.
pub async fn run(options: NodeOptions) -> ExitCode {
    Journal::install(tracing::Level::INFO);
    if let Some(bytes) = options.file_limit {
        limit_files(bytes);
    }
    let runtime = match build(&options).start().await {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("not started: {error}");
            return ExitCode::from(NOT_STARTED);
        }
    };
    let mut stop = signal(SignalKind::terminate()).expect("tokio's signals are enabled");
    println!("ready");
    let inside = options.calls.then(|| {
        let log = Log::open(&options.callers_log(), &options.name).expect("the log can be opened");
        tokio::spawn(Inside::new(runtime.client(), log, options.quiet_file()).run())
    });
    let mut problems = Vec::new();
    tokio::select! {
        _ = stop.recv() => {}
        found = lives(&options, runtime.client()), if options.lives_ms.is_some() => problems = found,
        error = runtime.failed() => {
            eprintln!("failed: {error}");
            return ExitCode::from(FAILED);
        }
    }
    let stopped = runtime.shutdown_within(Duration::from_millis(options.grace_ms)).await;
    if let Some(inside) = inside {
        inside.abort();
    }
    problems.iter().for_each(|problem| eprintln!("problem: {problem}"));
    match stopped {
        Ok(()) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(WRONG_ANSWERS),
        Err(error) => {
            eprintln!("not stopped: {error}");
            ExitCode::from(NOT_STOPPED)
        }
    }
}

/// Runs callers in this process, and returns the answers that nothing explains.
async fn lives(options: &NodeOptions, client: Client) -> Vec<String> {
    let log = Log::open(&options.callers_log(), &options.name).expect("the log can be opened");
    let callers = Callers::new(vec![client], log);
    let mut lives = callers.begin_from(options.lives_from, Duration::from_millis(5));
    tokio::time::sleep(Duration::from_millis(options.lives_ms.unwrap_or(0))).await;
    callers.stop();
    while let Some(life) = lives.join_next().await {
        life.expect("a caller does not panic");
    }
    callers.problems()
}

/// Lets writes beyond a size fail, as on a full disk.
fn limit_files(bytes: u64) {
    // The signal of a write that fails this way would end the process; with a handler, the write returns an error.
    let ignored = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    std::mem::forget(ignored.expect("tokio's signals are enabled"));
    let limit = rustix::process::Rlimit { current: Some(bytes), maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).expect("a limit can be lowered");
}

/// A runtime with the load's handlers and activities.
pub(crate) fn build(options: &NodeOptions) -> perennial::RuntimeBuilder {
    let mut settings = RuntimeOptions {
        relaxed: options.relaxed,
        node: options.name.clone(),
        lease: Duration::from_millis(options.lease_ms),
        turn_threads: 2,
        tags: options.tag.clone(),
        owns_shards: !options.worker,
        activity_cancel_grace: Duration::from_millis(500),
        ..RuntimeOptions::default()
    };
    // Activities do not cause the kills. The limits are high, so that interrupted instances are not quarantined or
    // blocked.
    settings.shard.healthy = Duration::from_millis(200);
    settings.shard.quarantine_after = 1_000;
    settings.shard.max_interruptions = 1_000_000;
    let runtime = kinds::register(Runtime::open(options.url.as_str()).options(settings), options.release);
    activities(runtime, options)
}

fn activities(runtime: perennial::RuntimeBuilder, options: &NodeOptions) -> perennial::RuntimeBuilder {
    let effects = Log::open(&options.effects_log(), &options.name).expect("the log can be opened");
    let log = || effects.clone();
    let (one, two, booked, unbooked, tried, napped, special, place) =
        (log(), log(), log(), log(), log(), log(), log(), log());
    let name = options.name.clone();
    let mut runtime = runtime
        .activity("add_one", move |ctx: ActivityContext, value: u64| {
            one.note_run(&ctx);
            async move {
                tokio::time::sleep(Duration::from_millis(1 + value % 10)).await;
                Ok::<u64, String>(value + 1)
            }
        })
        .activity("book", move |ctx: ActivityContext, what: String| {
            booked.note_run(&ctx);
            async move { if what == "moon" { Err("no rooms".to_owned()) } else { Ok(what) } }
        })
        .activity("unbook", move |ctx: ActivityContext, what: String| {
            unbooked.note_run(&ctx);
            async move { Ok::<String, String>(what) }
        })
        .activity("flaky", move |ctx: ActivityContext, value: u64| {
            tried.note_run(&ctx);
            async move { if ctx.attempt() < 3 { Err("not yet".to_owned()) } else { Ok(value) } }
        })
        .activity("nap", move |ctx: ActivityContext, ms: u64| {
            napped.note_run(&ctx);
            let log = napped.clone();
            async move {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(ms),
                    () = ctx.cancelled() => {
                        log.note("cancelled", &[ctx.instance()]);
                        Err("cancelled".to_owned())
                    }
                }
            }
        })
        .activity("where_am_i", move |ctx: ActivityContext, (): ()| {
            place.note_run(&ctx);
            let name = name.clone();
            async move { Ok::<String, String>(name) }
        });
    if options.release >= 2 {
        runtime = runtime.activity("add_two", move |ctx: ActivityContext, value: u64| {
            two.note_run(&ctx);
            async move { Ok::<u64, String>(value + 2) }
        });
    }
    if options.special {
        let name = options.name.clone();
        runtime = runtime.activity("special", move |ctx: ActivityContext, (): ()| {
            special.note_run(&ctx);
            let name = name.clone();
            async move { Ok::<String, String>(name) }
        });
    }
    runtime
}
