//! An activity that takes its process down again and again is poison after the limit; its neighbours, which are
//! interrupted with it each time, finish. Real processes die here: this binary, run again as a worker.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perennial::history::Job;
use perennial::{
    ActivityContext, ActivityError, OrchestrationContext, Payload, Runtime, RuntimeBuilder, RuntimeOptions,
    Status,
};
use perennial_testkit::invariants::ClientLog;

use crate::support::{PATIENCE, Place, failed, soon};

/// Names the database of the worker process.
const DATABASE: &str = "PERENNIAL_POISON_DATABASE";
/// How many interruptions an activity survives, by default.
const MAX_INTERRUPTIONS: usize = 5;
const NEIGHBOURS: usize = 20;

type Outcome = Result<Payload, Payload>;

/// Calls one activity, and returns its outcome.
async fn caller(ctx: OrchestrationContext, name: Payload) -> Outcome {
    let name: String = name.decode().map_err(failed)?;
    match ctx.schedule_activity(name, Payload::null()).await {
        Ok(result) => Ok(result),
        Err(ActivityError::Poisoned) => Ok(Payload::from("poison")),
        Err(other) => Err(failed(other)),
    }
}

async fn abort(_: ActivityContext, _: Payload) -> Outcome {
    // The others are under way, too.
    tokio::time::sleep(Duration::from_millis(50)).await;
    std::process::abort()
}

fn runtime(url: &str) -> RuntimeBuilder {
    let mut options = RuntimeOptions::default();
    // A process that has lived for this long without it is well, and so is an attempt.
    options.shard.healthy = Duration::from_millis(500);
    let runtime = Runtime::open(url).options(options);
    runtime.orchestration("caller", "1.0.0", caller).activity("abort", abort).activity(
        "nap",
        |_: ActivityContext, _: Payload| async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok::<_, Payload>(Payload::from("rested"))
        },
    )
}

#[test]
#[ignore = "it is a process of the test of poison"]
fn worker_process() {
    let Some(database) = std::env::var_os(DATABASE) else { return };
    let url = format!("sqlite:{}", PathBuf::from(database).display());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = runtime(&url).start().await.unwrap();
        let client = runtime.client();
        for id in ids() {
            client.wait(&id).await.unwrap();
        }
        runtime.shutdown().await.unwrap();
    });
}

fn ids() -> Vec<String> {
    let neighbours = (0..NEIGHBOURS).map(|number| format!("neighbour-{number}"));
    neighbours.chain(["deadly".to_owned()]).collect()
}

fn spawn_worker(place: &Place) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "poison::worker_process", "--nocapture"])
        .env(DATABASE, place.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits for a worker to end, and tells whether it ended well.
fn ended_well(mut worker: Child) -> bool {
    let since = Instant::now();
    loop {
        if let Some(status) = worker.try_wait().unwrap() {
            return status.success();
        }
        if since.elapsed() > PATIENCE {
            worker.kill().unwrap();
            panic!("a worker neither died nor finished");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_an_activity_that_kills_its_process_is_poison_after_the_limit_and_its_neighbours_finish() {
    let place = Place::new();
    let guest = place.guest();
    let mut log = ClientLog::default();
    for id in ids() {
        let name = if id == "deadly" { "abort" } else { "nap" };
        guest.start("caller", &id, name).await.unwrap();
        log.started(id);
    }
    let mut deaths = 0;
    while !ended_well(spawn_worker(&place)) {
        deaths += 1;
        assert!(deaths <= 3 * MAX_INTERRUPTIONS, "it kills for ever");
    }
    assert_eq!(
        deaths,
        MAX_INTERRUPTIONS + 2,
        "the first one counts nothing, and one more than is allowed is too many"
    );
    assert_eq!(soon(guest.result("deadly")).await.unwrap().as_json(), r#""poison""#);
    let history = guest.history("deadly").await.unwrap();
    let jobs: Vec<&Job> = history.turns.iter().flat_map(|turn| turn.jobs()).map(|(_, job)| job).collect();
    assert!(
        matches!(jobs[..], [Job::ActivityFailed { error: ActivityError::Poisoned, attempts: 1, .. }]),
        "{jobs:?}"
    );
    for id in ids().iter().filter(|id| *id != "deadly") {
        assert_eq!(guest.status(id).await.unwrap().status, Status::Completed);
        assert_eq!(soon(guest.result(id)).await.unwrap().as_json(), r#""rested""#, "{id}");
    }
    place.check(&log, &Runtime::open("memory:").orchestration("caller", "1.0.0", caller).handlers());
}
