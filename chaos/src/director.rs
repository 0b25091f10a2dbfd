//! The director of a run: starts the server, the nodes and the callers, injects faults, heals, and checks the result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use perennial::Client;
use perennial_testkit::Rng;
use perennial_testkit::postgres::{ServerOptions, TestServer};

use crate::callers::Callers;
use crate::faults::{Deck, Fault};
use crate::fleet::{Fleet, NodeProcess};
use crate::log::Log;
use crate::node::{FAILED, NodeOptions};
use crate::plan::{Course, Outcome, Plan};
use crate::proxy::{Cut, Proxy};
use crate::snapshot;
use crate::verdict;

/// How long instances may take to finish after the last fault.
const HEALING_PATIENCE: Duration = Duration::from_secs(90);
/// How long a node may take to stop: its grace period, plus time for the store.
const STOPPING_PATIENCE: Duration = Duration::from_secs(20);
/// How often the director checks the nodes.
const TICK: Duration = Duration::from_millis(20);
/// Number of consecutive ticks without an unfinished instance after which a run is over.
const QUIET_TICKS: usize = 25;

/// A server, a proxy and nodes, for runs and for tests.
#[derive(Debug)]
pub struct Stage {
    /// A private server, which stops when the stage is dropped.
    pub server: TestServer,
    /// The proxy in front of the server.
    pub proxy: Proxy,
    /// The nodes.
    pub fleet: Fleet,
    /// The callers' log.
    pub callers: Log,
    /// The log of effects.
    pub effects: Log,
    directory: tempfile::TempDir,
}

/// The schema of the store.
pub const SCHEMA: &str = "perennial";

impl Stage {
    /// Starts a server and a proxy. Nodes are added to the fleet.
    ///
    /// # Panics
    ///
    /// If the server or the proxy cannot be started.
    pub async fn new(program: &Path, lease: Duration) -> Stage {
        // The server logs statements that wait for a lock longer than this.
        let options =
            ServerOptions::default().unsynced().set("log_lock_waits", "on").set("deadlock_timeout", "300ms");
        let server = tokio::task::spawn_blocking(move || TestServer::start(&options));
        let server = server.await.expect("the server starts");
        let proxy = Proxy::start(server.port()).await.expect("a port is free");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        let template = NodeOptions {
            url: via(server.url(), &proxy),
            name: String::new(),
            lease_ms: u64::try_from(lease.as_millis()).expect("a short time"),
            directory: path.to_owned(),
            release: 1,
            worker: false,
            special: false,
            tag: Vec::new(),
            calls: false,
            file_limit: None,
            grace_ms: 2_000,
            relaxed: false,
            lives_ms: None,
            lives_from: 0,
        };
        let callers = Log::open(&template.callers_log(), "director").expect("the log can be opened");
        let effects = Log::open(&template.effects_log(), "director").expect("the log can be opened");
        let fleet = Fleet::new(program.to_owned(), template);
        Stage { server, proxy, fleet, callers, effects, directory }
    }

    /// Adds nodes, and waits until all of them are ready.
    ///
    /// # Panics
    ///
    /// If a node does not start.
    pub async fn add_nodes(&mut self, count: usize) -> Vec<u64> {
        let numbers: Vec<u64> = (0..count).map(|_| self.fleet.add()).collect();
        for number in &numbers {
            self.ready(*number).await;
        }
        numbers
    }

    /// Waits until a node is ready.
    ///
    /// # Panics
    ///
    /// If the node ends before.
    pub async fn ready(&mut self, number: u64) {
        assert!(
            self.fleet.node(number).ready().await,
            "node {number} does not start: {}",
            self.journal(number)
        );
    }

    /// The diagnostic log of a node.
    pub fn journal(&self, number: u64) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("node-{number}.log"))).unwrap_or_default()
    }

    /// A client that connects directly, without the proxy.
    ///
    /// # Panics
    ///
    /// If the store cannot be opened.
    pub fn client(&self) -> Client {
        Client::open(self.server.url()).expect("the store is there")
    }

    /// A connection to the database.
    ///
    /// # Panics
    ///
    /// If the server does not respond.
    pub async fn database(&self) -> tokio_postgres::Client {
        snapshot::connect(self.server.url()).await.expect("the server answers")
    }

    /// The current owners of the shards.
    ///
    /// # Panics
    ///
    /// If the server does not respond.
    pub async fn owners(&self) -> snapshot::Owners {
        snapshot::owners(&self.database().await, SCHEMA).await.expect("the server answers")
    }

    /// Stops a node gracefully and waits until it has ended.
    ///
    /// # Panics
    ///
    /// If the node does not end gracefully.
    pub async fn stop(&mut self, number: u64) {
        let mut node = self.fleet.remove(number).expect("a node of the fleet");
        node.terminate();
        let ended = node.end_within(STOPPING_PATIENCE).await;
        assert!(
            ended.is_some_and(|ended| ended.success()),
            "node {number}: {ended:?}: {}",
            self.journal(number)
        );
    }

    /// Checks the database against the logs. Returns all problems, and the number of instances by final status.
    pub async fn problems(&self) -> (Vec<String>, BTreeMap<&'static str, usize>) {
        let snapshot = match snapshot::read(&mut self.database().await, SCHEMA).await {
            Ok(snapshot) => snapshot,
            Err(problem) => {
                return (vec![format!("the database cannot be read: {problem}")], BTreeMap::new());
            }
        };
        let endings = verdict::endings(&snapshot);
        (verdict::problems(snapshot, &self.callers.entries(), &self.effects.entries()), endings)
    }

    /// Keeps the logs after the run, and returns their directory.
    pub fn keep(self) -> PathBuf {
        let Stage { directory, server, .. } = self;
        // The server's log helps to explain problems.
        let _ = std::fs::copy(server.log(), directory.path().join("server.log"));
        directory.keep()
    }
}

/// The URL of a server, through a proxy.
fn via(url: &str, proxy: &Proxy) -> String {
    let (rest, path) = url.rsplit_once('/').expect("a URL with a database");
    let (rest, _) = rest.rsplit_once(':').expect("a URL with a port");
    format!("{rest}:{}/{path}", proxy.port())
}

/// The state of one run.
struct Director {
    course: Course,
    stage: Stage,
    rng: Rng,
    deck: Deck,
    resumes: Vec<(Instant, u64)>,
    heals: Vec<(Instant, Fault)>,
    leaving: Vec<(u64, NodeProcess, Instant)>,
    server_faults: usize,
}

/// Runs a plan.
pub async fn run(plan: Plan) -> Outcome {
    let mut rng = Rng::new(plan.seed);
    let deck = Deck::new(rng.fork(), Fault::OF_SERVER);
    let mut stage = Stage::new(&plan.program, plan.lease).await;
    let first = NodeOptions { calls: true, ..stage.fleet.template().clone() };
    let first: Vec<u64> = (0..plan.nodes.0).map(|_| stage.fleet.add_with(first.clone())).collect();
    for number in first {
        stage.ready(number).await;
    }
    let proxied = Client::open(&stage.fleet.template().url).expect("the store is there");
    let callers = Callers::new(vec![proxied, stage.client()], stage.callers.clone());
    let lives = callers.begin(Duration::from_millis(20));
    let mut director = Director {
        stage,
        rng,
        deck,
        resumes: Vec::new(),
        heals: Vec::new(),
        leaving: Vec::new(),
        server_faults: 0,
        course: Course::new(plan),
    };
    director.inject().await;
    director.heal(&callers, lives).await;
    director.judge(&callers).await
}

impl Director {
    async fn inject(&mut self) {
        while !self.course.is_over(self.deck.total()) {
            let pause = self.rng.between(self.course.plan.pause_ms.0, self.course.plan.pause_ms.1);
            let next = Instant::now() + Duration::from_millis(pause);
            while Instant::now() < next {
                self.tend().await;
                tokio::time::sleep(TICK).await;
            }
            let fault = self.deck.draw();
            if let Some(detail) = self.apply(fault).await {
                self.deck.count(fault);
                self.course.say(format_args!("{:4} {fault}: {detail}", self.deck.total()));
            }
        }
    }

    /// A random node that is ready; `None` if it is the only one.
    fn victim(&mut self) -> Option<u64> {
        let at_work = self.stage.fleet.at_work();
        (at_work.len() > 1).then(|| *self.rng.pick(&at_work))
    }

    /// A random time, as a percentage of the lease.
    fn around_lease(&mut self, low_percent: u64, high_percent: u64) -> Duration {
        self.course.plan.lease * u32::try_from(self.rng.between(low_percent, high_percent)).unwrap_or(100)
            / 100
    }

    async fn apply(&mut self, fault: Fault) -> Option<String> {
        match fault {
            Fault::KillNode => {
                let victim = self.victim()?;
                self.stage.fleet.remove(victim)?.kill().await;
                Some(format!("node {victim}"))
            }
            Fault::PauseNode => {
                let (victim, time) = (self.victim()?, self.around_lease(120, 250));
                self.stage.fleet.node(victim).pause();
                self.resumes.push((Instant::now() + time, victim));
                Some(format!("node {victim} for {time:?}"))
            }
            Fault::AddNode => {
                let room = self.stage.fleet.numbers().len() < self.course.plan.nodes.1;
                room.then(|| format!("node {}", self.add()))
            }
            Fault::StopNode => {
                let victim = self.victim()?;
                let node = self.stage.fleet.remove(victim)?;
                node.terminate();
                self.leaving.push((victim, node, Instant::now()));
                Some(format!("node {victim}"))
            }
            Fault::ServerImmediate | Fault::ServerKill | Fault::ServerRestart => {
                self.server_faults += 1;
                let away = Duration::from_millis(self.rng.between(0, 600));
                let server = &self.stage.server;
                tokio::task::block_in_place(|| {
                    match fault {
                        Fault::ServerImmediate => server.kill(),
                        Fault::ServerKill => server.kill_first_process(),
                        _ => server.stop(),
                    }
                    std::thread::sleep(away);
                    server.start_again();
                });
                Some(format!("for {away:?}"))
            }
            Fault::Backends => {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
                let row = self.stage.database().await.query_one(sql, &[]).await.ok()?;
                Some(format!("{} of them", row.get::<_, i64>(0)))
            }
            Fault::Refuse => {
                self.server_faults += 1;
                let time = self.around_lease(20, 180);
                self.stage.proxy.refuse(true);
                self.heals.push((Instant::now() + time, fault));
                Some(format!("for {time:?}"))
            }
            Fault::CutBefore | Fault::CutAfter => {
                let connections = usize::try_from(self.rng.between(1, 4)).unwrap_or(1);
                self.stage
                    .proxy
                    .cut(if fault == Fault::CutBefore { Cut::Before } else { Cut::After }, connections);
                Some(format!("{connections} of them"))
            }
            Fault::PauseOwner | Fault::ReplaceOwner | Fault::FullDisk => {
                unreachable!("faults of a file are not in the deck of a server")
            }
            Fault::Delay => {
                let delay = Duration::from_millis(self.rng.between(20, 200));
                let time = self.around_lease(30, 150);
                self.stage.proxy.delay(delay);
                self.heals.push((Instant::now() + time, fault));
                Some(format!("by {delay:?} for {time:?}"))
            }
        }
    }

    fn add(&mut self) -> u64 {
        let options = NodeOptions { calls: true, ..self.stage.fleet.template().clone() };
        self.stage.fleet.add_with(options)
    }

    /// Ends faults whose time is over, and replaces nodes that have ended, as a supervisor does.
    async fn tend(&mut self) {
        let now = Instant::now();
        for (_, number) in self.resumes.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.stage.fleet.node(number).resume();
        }
        for (_, fault) in self.heals.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            match fault {
                Fault::Refuse => self.stage.proxy.refuse(false),
                _ => self.stage.proxy.delay(Duration::ZERO),
            }
        }
        self.tend_leaving();
        for (number, status, had_worked) in self.stage.fleet.take_ended() {
            self.resumes.retain(|(_, other)| *other != number);
            if had_worked {
                let code = status.code();
                let why = if code == Some(i32::from(FAILED)) { "its runtime stopped" } else { "it ended" };
                self.course.problem(format!("node {number}: {why} by itself ({status})"));
            } else {
                self.course.outcome.not_started += 1;
            }
        }
        while self.stage.fleet.numbers().len() < self.course.plan.nodes.0 {
            self.add();
        }
    }

    fn tend_leaving(&mut self) {
        let mut problems = Vec::new();
        let (is_strict, patience) = (self.server_faults == 0, STOPPING_PATIENCE);
        self.leaving.retain_mut(|(number, node, since)| match node.ended() {
            Some(status) => {
                // While the server is down, a node cannot write everything.
                if !status.success() && is_strict {
                    problems.push(format!("node {number} did not stop gracefully: {status}"));
                }
                false
            }
            None if since.elapsed() > patience => {
                problems.push(format!("node {number} does not stop"));
                false
            }
            None => true,
        });
        problems.into_iter().for_each(|problem| self.course.problem(problem));
    }

    /// Ends all faults, and waits until everything has finished.
    async fn heal(&mut self, callers: &Callers, mut lives: tokio::task::JoinSet<()>) {
        self.course.say("healing");
        let begun = Instant::now();
        self.stage.proxy.heal();
        self.heals.clear();
        for (_, number) in std::mem::take(&mut self.resumes) {
            self.stage.fleet.node(number).resume();
        }
        callers.stop();
        std::fs::write(self.stage.fleet.template().quiet_file(), "").expect("a file can be written");
        let finished = async {
            while let Some(life) = lives.join_next().await {
                life.expect("a caller does not panic");
            }
            // A caller inside a node may have been about to start its last instance.
            let mut quiet = 0;
            while quiet < QUIET_TICKS {
                let open = snapshot::unfinished(&self.stage.database().await, SCHEMA).await;
                quiet = if open.as_ref().is_ok_and(Vec::is_empty) { quiet + 1 } else { 0 };
                tokio::time::sleep(TICK).await;
            }
        };
        let deadline = tokio::time::sleep(HEALING_PATIENCE);
        let is_over = tokio::select! {
            () = finished => true,
            () = deadline => false,
        };
        self.course.outcome.healing = begun.elapsed();
        if !is_over {
            let open = snapshot::unfinished(&self.stage.database().await, SCHEMA).await.unwrap_or_default();
            let first: Vec<_> = open.iter().take(10).collect();
            self.course.problem(format!("I17: {} instances never finish: {first:?}", open.len()));
        }
        self.tend().await;
    }

    async fn judge(mut self, callers: &Callers) -> Outcome {
        self.server_faults = 0;
        for number in self.stage.fleet.numbers() {
            let mut node = self.stage.fleet.remove(number).expect("a node of the fleet");
            if !node.ready().await {
                self.course.problem(format!("node {number} did not start after the faults"));
                continue;
            }
            node.terminate();
            self.leaving.push((number, node, Instant::now()));
        }
        while !self.leaving.is_empty() {
            self.tend_leaving();
            tokio::time::sleep(TICK).await;
        }
        let (problems, endings) = self.stage.problems().await;
        self.course.outcome.problems.extend(callers.problems());
        self.course.outcome.problems.extend(problems);
        let missing = self.deck.missing();
        if !missing.is_empty() {
            self.course.outcome.problems.push(format!("faults that never happened: {missing:?}"));
        }
        self.course.outcome.endings = endings;
        self.course.outcome.faults = self.deck.counts().clone();
        self.course.outcome.cuts = self.stage.proxy.cuts();
        self.course.outcome.repeated_requests = callers.errors();
        let effects = self.stage.effects.entries();
        self.course.outcome.repeated_runs = crate::log::client_log(&[], &effects).repeated_runs();
        if !self.course.outcome.problems.is_empty() || self.course.plan.keeps_logs {
            self.course.outcome.logs = Some(self.stage.keep());
        }
        self.course.outcome
    }
}
