//! A process that runs a mixed load is killed (-9) at random moments, again and again. In the end nothing that was
//! acknowledged is lost, nothing is done twice that may be done once, and every invariant holds.
//!
//! `PERENNIAL_CRASH_KILLS` sets how often (default 50), `PERENNIAL_CRASH_SEED` repeats a run's moments.

mod crash_load;
mod support;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use perennial::{Client, ClientError, Filter, Payload, Status};
use perennial_testkit::Chance;

use crash_load::{Load, expected_output, handlers};
use support::Place;

/// Names the directory of the worker process, and its part in the test.
const DIRECTORY: &str = "PERENNIAL_CRASH_DIRECTORY";
const DRAIN: &str = "PERENNIAL_CRASH_DRAIN";
/// How many executions the worker keeps in memory per shard: with none, each is replayed for each of its turns.
const RESIDENT: &str = "PERENNIAL_CRASH_RESIDENT";
/// How many letters each instance of `mail` waits for.
const LETTERS: usize = 3;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn spawn_worker(load: &Load, drain: bool, resident: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "worker_process", "--nocapture"])
        .env(DIRECTORY, load.directory())
        .env(RESIDENT, resident.to_string())
        .stdout(Stdio::null());
    if drain {
        command.env(DRAIN, "yes");
    }
    command.spawn().unwrap()
}

#[test]
#[ignore = "it is a process of the crash test"]
fn worker_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let load = Load::at(directory.into());
    let drain = std::env::var_os(DRAIN).is_some();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(load.work(drain, usize::try_from(number(RESIDENT, 1_000)).unwrap()));
}

/// A client in the test's own process, which lives on: it starts instances and sends them letters while their owner
/// dies and comes back.
struct Correspondent {
    client: Client,
    started: usize,
    /// The instance it writes to, and the next letter.
    next: Option<(String, usize)>,
}

impl Correspondent {
    /// Sends one thing, and writes down that it was acknowledged.
    async fn send(&mut self, load: &Load) -> Result<(), ClientError> {
        let (id, letter) = match self.next.take() {
            Some(next) => next,
            None => {
                let id = format!("mail-{}", self.started);
                self.started += 1;
                self.client.start_versioned("mail", "1.0.0", &id, Payload::null()).await?;
                load.note_start(&id);
                (id, 0)
            }
        };
        if letter == LETTERS {
            return Ok(());
        }
        let payload = format!("letter {letter}");
        self.client.raise_event(&id, "letter", payload.as_str()).await?;
        load.note_event("correspondent", &id, "letter", &payload);
        self.next = Some((id, letter + 1));
        Ok(())
    }

    /// How many instances have not ended.
    async fn unfinished(&self) -> usize {
        let filter = Filter { statuses: vec![Status::Pending, Status::Running], ..Filter::default() };
        self.client.list(filter, None, 10_000).await.unwrap().rows.len()
    }
}

#[test]
fn kill_minus_9_at_any_moment_loses_nothing_and_doubles_nothing() {
    let kills = number("PERENNIAL_CRASH_KILLS", 50);
    let seed = number("PERENNIAL_CRASH_SEED", u64::from(std::process::id()));
    println!("PERENNIAL_CRASH_SEED={seed} PERENNIAL_CRASH_KILLS={kills}");
    let mut chance = Chance::new(seed);
    let place = Place::new();
    let load = Load::at(place.path().parent().unwrap().to_owned());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::open(&load.url()).unwrap();
    let mut correspondent = Correspondent { client, started: 0, next: None };

    let mut kills_under_load = 0;
    for kill in 0..kills {
        let mut worker = spawn_worker(&load, false, *chance.pick(&[0, 1_000]));
        let moment = Instant::now() + Duration::from_millis(chance.between(10, 500));
        while Instant::now() < moment {
            let sent = tokio.block_on(correspondent.send(&load));
            sent.unwrap_or_else(|error| panic!("the correspondent was refused after {kill} kills: {error}"));
            thread::sleep(Duration::from_millis(chance.between(1, 20)));
            assert_eq!(worker.try_wait().unwrap(), None, "the worker ended by itself after {kill} kills");
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
        kills_under_load += u64::from(tokio.block_on(correspondent.unfinished()) > 0);
    }
    // The last letters; then a worker that may finish.
    while correspondent.next.is_some() {
        tokio.block_on(correspondent.send(&load)).unwrap();
    }
    let mut last = spawn_worker(&load, true, 1_000);
    let deadline = Instant::now() + Duration::from_secs(120);
    let ended = loop {
        if let Some(status) = last.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            last.kill().unwrap();
            let unfinished = tokio.block_on(correspondent.unfinished());
            panic!(
                "seed {seed}: {unfinished} instances never finished; the store is kept in {:?}",
                keep(&place)
            );
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert!(ended.success(), "seed {seed}: the last worker failed");

    let log = load.client_log();
    let snapshot = place.snapshot();
    perennial_testkit::invariants::assert_invariants(&snapshot, &log, &handlers());
    let mut acknowledged = 0;
    for id in log.starts() {
        acknowledged += 1;
        let row = &snapshot.instance(id).unwrap().row;
        assert_eq!(row.status, Status::Completed, "seed {seed}: {id}");
        let output = tokio.block_on(correspondent.client.result(id)).unwrap();
        assert_eq!(output.as_json(), expected_output(id), "seed {seed}: {id}");
    }
    println!(
        "{kills} kills, {kills_under_load} of them with work under way; {acknowledged} instances, {} activities ran again",
        log.repeated_runs()
    );
    assert!(kills_under_load * 2 > kills, "most kills met nothing under way: {kills_under_load} of {kills}");
    assert!(kills < 50 || log.repeated_runs() > 0, "no kill interrupted an activity");
    assert!(acknowledged > kills, "too little was done: {acknowledged} instances");
}

/// Keeps the files of a failed run, and says where.
fn keep(place: &Place) -> std::path::PathBuf {
    let from = place.path().parent().unwrap().to_owned();
    let to = std::env::temp_dir().join(format!("perennial-crash-{}", std::process::id()));
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to
}
