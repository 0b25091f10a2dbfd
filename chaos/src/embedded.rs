//! Runs over one SQLite file: one process owns it at a time, callers in this process use it from outside, and faults hit
//! the owner and the disk.
//!
//! The file lock decides who owns the file. A process that tries while another one lives, even a paused one, must be
//! refused; when the owner is killed, the process that waits takes over at once.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use perennial::Client;
use perennial_testkit::Rng;

use crate::callers::Callers;
use crate::faults::{Deck, Fault};
use crate::fleet::Fleet;
use crate::log::Log;
use crate::node::{FAILED, NOT_STARTED, NodeOptions};
use crate::plan::{Course, Outcome, Plan};
use crate::small_disk::SmallDisk;
use crate::sqlite_snapshot;
use crate::verdict;

/// How long instances may take to finish after the last fault.
const HEALING_PATIENCE: Duration = Duration::from_secs(90);
/// How long a process may take to start, to be refused, to stop or to notice a full disk.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the director looks.
const TICK: Duration = Duration::from_millis(20);
/// Number of consecutive ticks without an unfinished instance after which a run is over.
const QUIET_TICKS: usize = 25;
/// How much more a process may write to a file where no small disk can be mounted.
const LEFT_BYTES: u64 = 64 << 10;

/// The state of one run.
struct Director {
    course: Course,
    rng: Rng,
    deck: Deck,
    fleet: Fleet,
    file: PathBuf,
    /// `None` if this process may not mount one: then processes get a limit on the size of files.
    disk: Option<SmallDisk>,
}

/// Runs a plan on a new file. The number of nodes in the plan is not used: there is one owner.
///
/// # Panics
///
/// If the first process does not start, or files cannot be written.
pub async fn run(plan: Plan) -> Outcome {
    let mut rng = Rng::new(plan.seed);
    let deck = Deck::new(rng.fork(), Fault::OF_FILE);
    let logs = tempfile::tempdir().expect("a temporary directory");
    let store = tempfile::tempdir().expect("a temporary directory");
    let disk = SmallDisk::mount(store.path()).ok();
    let file = store.path().join("chaos.db");
    let template = NodeOptions {
        url: format!("sqlite:{}", file.display()),
        name: String::new(),
        lease_ms: u64::try_from(plan.lease.as_millis()).expect("a short time"),
        directory: logs.path().to_owned(),
        release: 1,
        worker: false,
        special: false,
        tag: Vec::new(),
        calls: true,
        file_limit: None,
        grace_ms: 2_000,
        relaxed: false,
        lives_ms: None,
        lives_from: 0,
    };
    let callers_log = Log::open(&template.callers_log(), "director").expect("the log can be opened");
    let effects = Log::open(&template.effects_log(), "director").expect("the log can be opened");
    let fleet = Fleet::new(plan.program.clone(), template);
    let mut director = Director { course: Course::new(plan), rng, deck, fleet, file, disk };
    director.start(None).await;
    let client = Client::open(&director.fleet.template().url).expect("the store is there");
    let callers = Callers::new(vec![client], callers_log.clone());
    let lives = callers.begin(Duration::from_millis(20));
    director.inject().await;
    director.heal(&callers, lives).await;
    director.stop().await;
    let Director { file, deck, course: Course { plan, mut outcome, .. }, .. } = director;
    match sqlite_snapshot::read(&file) {
        Ok(snapshot) => {
            outcome.endings = verdict::endings(&snapshot);
            let (asked, ran) = (callers_log.entries(), effects.entries());
            outcome.problems.extend(verdict::problems(snapshot, &asked, &ran));
            outcome.repeated_runs = crate::log::client_log(&[], &ran).repeated_runs();
        }
        Err(problem) => outcome.problems.push(format!("the file cannot be read: {problem}")),
    }
    outcome.problems.extend(callers.problems());
    let missing = deck.missing();
    if !missing.is_empty() {
        outcome.problems.push(format!("faults that never happened: {missing:?}"));
    }
    outcome.faults = deck.counts().clone();
    outcome.repeated_requests = callers.errors();
    if !outcome.problems.is_empty() || plan.keeps_logs {
        // The file goes with its disk.
        let _ = std::fs::copy(&file, logs.path().join("chaos.db"));
        outcome.logs = Some(logs.keep());
    }
    outcome
}

impl Director {
    /// Starts a process, which has to become the owner.
    async fn start(&mut self, file_limit: Option<u64>) -> u64 {
        let options = NodeOptions { file_limit, ..self.fleet.template().clone() };
        let number = self.fleet.add_with(options);
        self.owns(number).await;
        number
    }

    /// Waits until a process owns the file.
    async fn owns(&mut self, number: u64) {
        let ready = tokio::time::timeout(PATIENCE, self.fleet.node(number).ready()).await;
        if ready != Ok(true) {
            self.course.problem(format!("node {number} does not become the owner"));
        }
    }

    /// The number of the process that owns the file, which is started if it has ended.
    async fn owner(&mut self) -> u64 {
        for (number, status, _) in self.fleet.take_ended() {
            self.course.problem(format!("node {number} ended by itself ({status})"));
        }
        match self.fleet.at_work().first() {
            Some(number) => *number,
            None => self.start(None).await,
        }
    }

    async fn inject(&mut self) {
        while !self.course.is_over(self.deck.total()) {
            let owner = self.owner().await;
            let pause = self.rng.between(self.course.plan.pause_ms.0, self.course.plan.pause_ms.1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let fault = self.deck.draw();
            let detail = self.apply(fault, owner).await;
            self.deck.count(fault);
            self.course.say(format_args!("{:4} {fault}: {detail}", self.deck.total()));
        }
    }

    async fn apply(&mut self, fault: Fault, owner: u64) -> String {
        match fault {
            Fault::KillNode => {
                self.kill(owner).await;
                format!("node {owner}")
            }
            Fault::StopNode => {
                self.stop().await;
                format!("node {owner}")
            }
            Fault::PauseOwner => {
                let percent = u32::try_from(self.rng.between(120, 250)).unwrap_or(120);
                let time = self.course.plan.lease * percent / 100;
                self.fleet.node(owner).pause();
                let rival = self.fleet.add();
                tokio::time::sleep(time).await;
                self.fleet.node(owner).resume();
                self.is_refused(rival).await;
                format!("node {owner} for {time:?}")
            }
            Fault::ReplaceOwner => {
                self.fleet.node(owner).pause();
                let next = self.fleet.add();
                tokio::time::sleep(Duration::from_millis(self.rng.between(0, 500))).await;
                self.kill(owner).await;
                let begun = Instant::now();
                self.owns(next).await;
                format!("node {owner} by node {next} in {:.0?}", begun.elapsed())
            }
            Fault::FullDisk => self.fill_disk(owner).await,
            other => unreachable!("{other} is not a fault of a file"),
        }
    }

    async fn kill(&mut self, number: u64) {
        if let Some(mut node) = self.fleet.remove(number) {
            node.kill().await;
        }
    }

    /// Checks that a process that tried to own the file beside its owner was refused.
    async fn is_refused(&mut self, rival: u64) {
        let Some(mut node) = self.fleet.remove(rival) else { return };
        let code = node.end_within(PATIENCE).await.and_then(|status| status.code());
        if node.is_ready() || code != Some(i32::from(NOT_STARTED)) {
            self.course.problem(format!("node {rival} was not refused beside the owner: {code:?}"));
        }
    }

    /// Lets the owner run into a full disk: it has to stop by itself. Then there is room again.
    async fn fill_disk(&mut self, owner: u64) -> String {
        let (number, is_filled) = match &self.disk {
            Some(disk) => (owner, disk.fill()),
            None => {
                self.kill(owner).await;
                let limit = self.largest_file() + LEFT_BYTES;
                (self.start(Some(limit)).await, Ok(()))
            }
        };
        if let Err(error) = is_filled {
            self.course.problem(format!("the disk cannot be filled: {error}"));
        }
        let begun = Instant::now();
        let ended = match self.fleet.remove(number) {
            Some(mut node) => node.end_within(PATIENCE).await,
            None => None,
        };
        if ended.and_then(|status| status.code()) != Some(i32::from(FAILED)) {
            self.course.problem(format!("node {number} did not stop on a full disk: {ended:?}"));
        }
        if let Some(disk) = &self.disk {
            disk.empty().expect("what was written can be deleted");
        }
        format!("node {number} stopped after {:.0?}", begun.elapsed())
    }

    /// The size of the largest file that a process writes.
    fn largest_file(&self) -> u64 {
        let template = self.fleet.template();
        let log = PathBuf::from(format!("{}-wal", self.file.display()));
        let files = [self.file.clone(), log, template.effects_log(), template.callers_log()];
        let sizes = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len());
        sizes.max().unwrap_or(0)
    }

    /// Waits until everything has finished without further faults.
    async fn heal(&mut self, callers: &Callers, mut lives: tokio::task::JoinSet<()>) {
        self.course.say("healing");
        let begun = Instant::now();
        self.owner().await;
        callers.stop();
        std::fs::write(self.fleet.template().quiet_file(), "").expect("a file can be written");
        let finished = async {
            while let Some(life) = lives.join_next().await {
                life.expect("a caller does not panic");
            }
            let mut quiet = 0;
            while quiet < QUIET_TICKS {
                let open = sqlite_snapshot::unfinished(&self.file);
                quiet = if open.as_ref().is_ok_and(Vec::is_empty) { quiet + 1 } else { 0 };
                tokio::time::sleep(TICK).await;
            }
        };
        let is_over = tokio::time::timeout(HEALING_PATIENCE, finished).await.is_ok();
        self.course.outcome.healing = begun.elapsed();
        if !is_over {
            let open = sqlite_snapshot::unfinished(&self.file).unwrap_or_default();
            let first: Vec<_> = open.iter().take(10).collect();
            self.course.problem(format!("I17: {} instances never finish: {first:?}", open.len()));
        }
    }

    /// Stops the owner gracefully.
    async fn stop(&mut self) {
        for number in self.fleet.numbers() {
            let Some(mut node) = self.fleet.remove(number) else { continue };
            node.terminate();
            let ended = node.end_within(PATIENCE).await;
            if !ended.is_some_and(|status| status.success()) {
                self.course.problem(format!("node {number} did not stop gracefully: {ended:?}"));
            }
        }
    }
}
