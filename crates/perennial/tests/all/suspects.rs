//! An instance whose turn takes the process down, time and again, is found among its neighbours and blocked; they finish
//! (G29).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use perennial::{
    ActivityContext, Client, Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder, Status,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;

use crate::support::{PATIENCE, Place, at, event, failed, relaxed, soon};
use crate::workers::{DIRECTORY, Worker};

type Outcome = Result<Payload, Payload>;

/// The code of the culprit: `good` or `bad`.
const CODE: &str = "PERENNIAL_SUSPECTS_CODE";
const NEIGHBOURS: usize = 40;
/// A process may be restarted this often until it stays up.
const MAX_RESTARTS: usize = 30;

async fn neighbour(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("echo", "first").await.map_err(failed)?;
    ctx.schedule_timer(Duration::from_millis(5)).await;
    ctx.schedule_activity("echo", Payload::from("fine")).await.map_err(failed)
}

/// Goes wrong at the place that its input names, unless its code is good.
async fn culprit(ctx: OrchestrationContext, place: Payload, is_bad: bool) -> Outcome {
    let place: String = place.decode().map_err(failed)?;
    let takes_it_down = |here: &str| {
        if is_bad && place == here {
            std::process::abort();
        }
    };
    takes_it_down("first turn");
    ctx.schedule_activity("echo", "before").await.map_err(failed)?;
    takes_it_down("after a result");
    if ctx.is_replaying() {
        takes_it_down("replay");
    }
    Ok(ctx.schedule_wait(event("go")).await)
}

async fn good(ctx: OrchestrationContext, place: Payload) -> Outcome {
    culprit(ctx, place, false).await
}

async fn bad(ctx: OrchestrationContext, place: Payload) -> Outcome {
    culprit(ctx, place, true).await
}

fn runtime(url: String) -> RuntimeBuilder {
    let options = relaxed();
    Runtime::open(url)
        .options(options)
        .orchestration("neighbour", "1.0.0", neighbour)
        .activity("echo", |_: ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
}

fn handlers() -> Handlers {
    Runtime::open("memory:")
        .orchestration("neighbour", "1.0.0", neighbour)
        .orchestration("culprit", "1.0.0", good)
        .handlers()
}

/// While this is there, workers stop in good order.
fn stop_file(directory: &Path) -> PathBuf {
    directory.join("stop")
}

#[test]
#[ignore = "it is a process of the tests here"]
fn worker_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let is_good = std::env::var(CODE).unwrap() == "good";
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async move {
        let runtime = runtime(format!("sqlite:{}", directory.join("shop.db").display()));
        let runtime = match is_good {
            true => runtime.orchestration("culprit", "1.0.0", good),
            false => runtime.orchestration("culprit", "1.0.0", bad),
        };
        let runtime = runtime.start().await.unwrap();
        while !stop_file(&directory).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        runtime.shutdown().await.unwrap();
    });
}

struct Scene {
    place: Place,
    guest: Client,
    log: ClientLog,
    tokio: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Scene {
        let place = Place::new();
        let guest = place.guest();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Scene { place, guest, log: ClientLog::default(), tokio }
    }

    fn directory(&self) -> PathBuf {
        self.place.path().parent().unwrap().to_owned()
    }

    fn spawn(&self, code: &str) -> Worker {
        Worker::spawn("suspects::worker_process", &self.directory(), &[(CODE, code.to_owned())])
    }

    fn start(&mut self, name: &str, id: &str, input: &str) {
        self.tokio.block_on(self.guest.start_with(name, id, input, at("1.0.0"))).unwrap();
        self.log.started(id);
    }

    fn start_neighbours(&mut self, name: &str, count: usize) {
        (0..count).for_each(|number| self.start("neighbour", &format!("{name}-{number}"), ""));
    }

    fn statuses(&self) -> Vec<(String, Status, bool)> {
        let rows = self.tokio.block_on(self.guest.list(Filter::new(), None, 1_000)).unwrap().rows;
        rows.into_iter().map(|row| (row.id, row.status, row.blocked.is_some())).collect()
    }

    /// Whether the neighbours have finished, and the culprits are blocked.
    fn is_settled(&self, culprits: &BTreeSet<&str>) -> bool {
        self.statuses().iter().all(|(id, status, is_blocked)| {
            if culprits.contains(id.as_str()) { *is_blocked } else { *status == Status::Completed }
        })
    }

    /// Starts the worker again each time it ends, until it stays up and everybody is where they should be.
    fn restart_until_settled(&self, culprits: &BTreeSet<&str>) -> (Worker, usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut worker = self.spawn("bad");
        let mut restarts = 0;
        while !self.is_settled(culprits) {
            if let Some(status) = worker.ended() {
                assert!(!status.success(), "it stopped in good order: nothing told it to");
                restarts += 1;
                assert!(
                    restarts <= MAX_RESTARTS * culprits.len(),
                    "{restarts} restarts: {:?}",
                    self.statuses()
                );
                worker = self.spawn("bad");
            }
            assert!(Instant::now() < deadline, "after {restarts} restarts: {:?}", self.statuses());
            thread::sleep(Duration::from_millis(5));
        }
        (worker, restarts)
    }

    fn blocked(&self, id: &str) -> perennial_core::store::Blocked {
        self.tokio.block_on(self.guest.status(id)).unwrap().blocked.expect("it is blocked")
    }

    fn stop(&self, mut worker: Worker) {
        std::fs::write(stop_file(&self.directory()), "").unwrap();
        let ended = worker.end_within(PATIENCE).expect("it stops in good order");
        assert!(ended.success(), "{ended}");
        std::fs::remove_file(stop_file(&self.directory())).unwrap();
    }

    /// The culprit is found; a new deployment leaves it alone; with fixed code it finishes once it is
    /// retried.
    fn find_and_cure(mut self, id: &str) {
        let (mut worker, restarts) = self.restart_until_settled(&BTreeSet::from([id]));
        println!("found after {restarts} restarts");
        let blocked = self.blocked(id);
        assert_eq!(blocked.code, "PER-0302");
        assert!(blocked.reason.contains("takes the process down"), "{}", blocked.reason);

        // The same code again, and fixed code: nothing requested a retry.
        worker.kill();
        for code in ["bad", "good"] {
            let mut worker = self.spawn(code);
            self.start_neighbours(code, 3);
            self.tokio.block_on(soon(self.guest.result(&format!("{code}-2")))).unwrap();
            assert_eq!(worker.ended(), None, "the {code} code was run");
            assert_eq!(self.blocked(id), blocked, "a deployment of {code} code tried it");
            self.stop(worker);
        }

        let worker = self.spawn("good");
        self.tokio.block_on(self.guest.retry(id)).unwrap();
        self.tokio.block_on(self.guest.raise_event(id, "go", "gone").into_future()).unwrap();
        self.log.raised("test", id, "go", "gone");
        let result = self.tokio.block_on(soon(self.guest.result(id))).unwrap();
        assert_eq!(result.as_json(), r#""gone""#);
        self.stop(worker);
        self.place.check(&self.log, &handlers());
    }
}

#[test]
fn g29_a_first_turn_that_takes_the_process_down_is_found_among_its_neighbours() {
    let mut scene = Scene::new();
    scene.start_neighbours("before", NEIGHBOURS / 2);
    scene.start("culprit", "culprit", "first turn");
    scene.start_neighbours("after", NEIGHBOURS / 2);
    scene.find_and_cure("culprit");
}

#[test]
fn g29_a_turn_after_a_result_that_takes_the_process_down_is_found_among_its_neighbours() {
    let mut scene = Scene::new();
    scene.start_neighbours("before", NEIGHBOURS / 2);
    scene.start("culprit", "culprit", "after a result");
    scene.start_neighbours("after", NEIGHBOURS / 2);
    scene.find_and_cure("culprit");
}

#[test]
fn g29_a_replay_that_takes_the_process_down_is_found_among_its_neighbours() {
    let mut scene = Scene::new();
    scene.start("culprit", "culprit", "replay");
    let worker = scene.spawn("good");
    let waits = async {
        while scene.guest.history("culprit").await.unwrap().turns.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    scene.tokio.block_on(soon(waits));
    scene.stop(worker);
    scene.start_neighbours("before", NEIGHBOURS / 2);
    scene.tokio.block_on(scene.guest.raise_event("culprit", "noise", "").into_future()).unwrap();
    scene.start_neighbours("after", NEIGHBOURS / 2);
    scene.find_and_cure("culprit");
}

#[test]
fn g29_two_that_take_the_process_down_are_both_found() {
    let mut scene = Scene::new();
    scene.start("culprit", "one", "first turn");
    scene.start_neighbours("n", 10);
    scene.start("culprit", "two", "after a result");
    let (worker, restarts) = scene.restart_until_settled(&BTreeSet::from(["one", "two"]));
    println!("found after {restarts} restarts");
    assert_eq!([scene.blocked("one").code, scene.blocked("two").code], ["PER-0302", "PER-0302"]);
    scene.stop(worker);
}
