//! A small shop on a file, and the real `perennial` command.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use perennial::codec::Codecs;
use perennial::prelude::*;
use perennial::store::shown_url;
use perennial_testkit::postgres::TestServer;
use tempfile::TempDir;

/// The maximum duration of a command.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[activity]
async fn charge(ctx: ActivityContext, cents: u64) -> Result<u64, String> {
    if ctx.attempt() == 1 { Err("the bank did not answer".to_owned()) } else { Ok(cents) }
}

#[orchestration(version = "1.0.0")]
async fn parcel(_: OrchestrationContext, item: String) -> Result<String, String> {
    Ok(format!("{item}, wrapped"))
}

#[orchestration(version = "1.2.0")]
async fn checkout(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    ctx.set_status("charging");
    ctx.schedule_activity(charge, cents)
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(3))
        .await?;
    let approved = ExternalEvent::<bool>::named("approved");
    let waited = ctx.timeout(Duration::from_secs(3_600), ctx.schedule_wait(approved)).await;
    if waited != Ok(true) {
        return Err("not approved".to_owned());
    }
    let wrapped = ctx.schedule_sub_orchestration(parcel, "a rose".to_owned()).await;
    wrapped.map_err(|error| error.to_string())
}

/// Counts until it is ended.
#[orchestration(version = "1.0.0")]
async fn counter(ctx: OrchestrationContext, from: i64) -> Result<i64, String> {
    let count = ctx.state(from);
    ctx.on_query("count", &count, |count, ()| count.read(|count| *count));
    ctx.on_update("add", &count, |count, by: i64| async move {
        Ok(count.update(|count| {
            *count += by;
            *count
        }))
    })
    .validate(|_, by| if *by > 0 { Ok(()) } else { Err("only upwards".to_owned()) });
    ctx.schedule_wait("stop").await;
    Ok(count.read(|count| *count))
}

#[orchestration(version = "1.0.0")]
async fn broken(_: OrchestrationContext) -> Result<(), String> {
    panic!("the code is broken")
}

/// Adds two numbers, after an event starts it.
#[orchestration(version = "1.0.0")]
async fn adder(ctx: OrchestrationContext) -> Result<u64, String> {
    ctx.schedule_wait("begin").await;
    let first = ctx.schedule_wait(ExternalEvent::<u64>::named("n")).await;
    Ok(first + ctx.schedule_wait(ExternalEvent::<u64>::named("n")).await)
}

/// Continues as new this many times, and then waits until it is stopped.
#[orchestration(version = "1.0.0")]
async fn rounds(ctx: OrchestrationContext, left: u32) -> Result<u32, String> {
    if left > 0 {
        return ctx.continue_as_new(left - 1).await;
    }
    ctx.schedule_wait("stop").await;
    Ok(left)
}

/// Writes its token to a file, and is completed with it later.
#[activity]
async fn approval(ctx: ActivityContext, mailbox: String) -> Result<Later<bool>, String> {
    std::fs::write(mailbox, ctx.completion_token() + "\n").map_err(|error| error.to_string())?;
    Ok(Later::Pending)
}

#[orchestration(version = "1.0.0")]
async fn approved(ctx: OrchestrationContext, mailbox: String) -> Result<bool, String> {
    Ok(ctx
        .schedule_activity(approval, mailbox)
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2))
        .total_timeout(Duration::from_secs(3_600))
        .await?)
}

/// Where a shop has its store.
pub(crate) trait Place {
    /// The URL of an empty store, which may be in this directory.
    fn new_store(directory: &Path) -> String;
}

/// A file.
pub(crate) struct File;

impl Place for File {
    fn new_store(directory: &Path) -> String {
        format!("sqlite:{}", directory.join("shop.db").display())
    }
}

/// A schema of the PostgreSQL server that the tests share.
pub(crate) struct Schema;

impl Place for Schema {
    fn new_store(_: &Path) -> String {
        TestServer::shared().new_schema()
    }
}

/// A store on a file, with or without its runtime. Tests of commands that take any store run on PostgreSQL as well: see
/// `on_postgres`.
pub(crate) type Shop = ShopOn<File>;

pub(crate) struct ShopOn<P> {
    directory: TempDir,
    url: String,
    pub(crate) runtime: Option<Runtime>,
    place: PhantomData<P>,
}

impl<P: Place> ShopOn<P> {
    /// An open shop without instances.
    pub(crate) async fn open() -> ShopOn<P> {
        let directory = tempfile::tempdir().unwrap();
        let url = P::new_store(directory.path());
        let mut shop = ShopOn { directory, url, runtime: None, place: PhantomData };
        shop.reopen().await;
        shop
    }

    /// Starts the shop's program again.
    pub(crate) async fn reopen(&mut self) {
        self.reopen_with(Codecs::default()).await;
    }

    /// The same with encoded payloads.
    pub(crate) async fn reopen_with(&mut self, codecs: Codecs) {
        self.runtime = None;
        let runtime = Runtime::open(self.url())
            .codecs(codecs)
            .register(checkout)
            .register(parcel)
            .register(counter)
            .register(broken)
            .register(adder)
            .register(rounds)
            .register(approved)
            .register(approval)
            .register(charge);
        self.runtime = Some(runtime.start().await.unwrap());
    }

    /// A closed shop: a checkout that completed, one that failed, a counter that waits, and a broken
    /// instance.
    pub(crate) async fn stocked() -> ShopOn<P> {
        let mut shop = ShopOn::open().await;
        let client = shop.client();
        // The event is sent with the start, so that it is always in the first turn.
        let decided =
            |yes: &str| StartOptions::default().or_raise("approved", Payload::from_json(yes).unwrap());
        let named = decided("true").attribute("customer", "ada");
        client.start_with("checkout", "order-1", Payload::from_json("1200").unwrap(), named).await.unwrap();
        client.wait("order-1").await.unwrap();
        let refused = decided("false");
        client.start_with("checkout", "order-2", Payload::from_json("500").unwrap(), refused).await.unwrap();
        client.wait("order-2").await.unwrap();
        client.start(counter, "counter-1", 7).await.unwrap();
        client.start(broken, "broken-1", ()).await.unwrap();
        shop.runtime.take().unwrap().shutdown().await.unwrap();
        shop
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The file, or one in a directory of the shop's own.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    /// Every file of the store, with its content.
    pub(crate) fn files(&self) -> BTreeMap<OsString, Vec<u8>> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap().map(Result::unwrap);
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
    }

    pub(crate) fn client(&self) -> Client {
        self.runtime.as_ref().unwrap().client()
    }

    /// Runs the command on this store.
    pub(crate) async fn run(&self, arguments: &[&str]) -> CommandResult {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let url = self.url();
        tokio::task::spawn_blocking(move || run(&arguments, &[("PERENNIAL_STORE", &url)])).await.unwrap()
    }

    /// The output of a command that must succeed, with variable parts masked.
    pub(crate) async fn masked(&self, arguments: &[&str]) -> String {
        let result = self.run(arguments).await;
        assert_eq!((result.code, &*result.stderr), (0, ""), "{}", result.stdout);
        result.stdout.replace(&self.url(), "[store]").replace(&shown_url(&self.url()), "[store]")
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run(arguments: &[impl AsRef<str>], environment: &[(&str, &str)]) -> CommandResult {
    run_program(Path::new(env!("CARGO_BIN_EXE_perennial")), arguments, environment)
}

/// Runs an example of this package.
pub(crate) fn run_example(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> CommandResult {
    let beside = Path::new(env!("CARGO_BIN_EXE_perennial")).with_file_name("examples");
    run_program(&beside.join(name), arguments, environment)
}

fn run_program(program: &Path, arguments: &[impl AsRef<str>], environment: &[(&str, &str)]) -> CommandResult {
    let mut child = Command::new(program)
        .args(arguments.iter().map(AsRef::as_ref))
        .env_remove("PERENNIAL_STORE")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut errors = String::new();
    stderr.read_to_string(&mut errors).unwrap();
    CommandResult { code: status.code().unwrap_or(-1), stdout: read.join().unwrap(), stderr: errors }
}

/// Masks variable parts: times, keys, durations, and column widths.
pub(crate) fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"support/mod\.rs:\d+", "support/mod.rs:[line]");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[moment]");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[second]");
    settings.add_filter(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "[key]");
    settings.add_filter(r"\b(\d+ ms|\d+\.\d\d s)\b", "[span]");
    settings.add_filter(r"tried \d+ times?", "tried [n] times");
    settings.add_filter(r" {2,}", "  ");
    settings
}
