//! Power failures: a process runs a load over a SQLite file while everything it does to its files is recorded, and for many
//! moments of that recording, the disk that a power failure would have left is opened by the real product.
//!
//! It has to open without complaint, everything that was acknowledged before the failure has to be there, everything has to
//! finish, nothing may be done twice, and all invariants have to hold. In some recordings a write or a sync of the first
//! process fails, and a second one continues with its files.

mod healing;
mod recorder;
mod recording;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use perennial_testkit::Rng;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::node::{FAILED, NOT_STARTED, NOT_STOPPED, NodeOptions};
use healing::heal;
use recorder::{FailingCall, Failure, Recorder};
use recording::Recording;

/// How many disks are opened at the same time.
const AT_ONCE: usize = 6;

/// What a run does.
#[derive(Clone, Debug)]
pub struct PowerLoss {
    /// The path of the node program.
    pub program: PathBuf,
    /// The seed of all random choices; the recordings are of real processes, and differ.
    pub seed: u64,
    /// How many power failures.
    pub cycles: usize,
    /// How many of them each recording is used for.
    pub cuts_per_recording: usize,
    /// The syncs that fail, one in each recording in turn; if there are none, every second recording has a random failure.
    pub failing_syncs: Vec<u64>,
    /// Lets the load run without synced commits: the check has to find losses.
    pub relaxed: bool,
    /// How long everything may take to finish after a power failure.
    pub patience: Duration,
    /// Whether progress is printed.
    pub is_verbose: bool,
}

impl PowerLoss {
    /// A run that waits long enough for busy machines.
    pub fn new(program: &Path, seed: u64, cycles: usize) -> PowerLoss {
        let patience = Duration::from_secs(90);
        PowerLoss {
            program: program.to_owned(),
            seed,
            cycles,
            cuts_per_recording: 40,
            failing_syncs: Vec::new(),
            relaxed: false,
            patience,
            is_verbose: true,
        }
    }
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct PowerOutcome {
    /// How many power failures were survived or not.
    pub cycles: usize,
    /// How many processes were recorded.
    pub recordings: usize,
    /// How many calls were recorded, and how many of them were syncs.
    pub calls: (usize, usize),
    /// How many writes or syncs failed: syncs, writes, and writes on a full disk.
    pub failures: [usize; 3],
    /// How many requests had been acknowledged before the failures.
    pub acknowledged: usize,
    /// How many sectors that were not synced were lost, and how many were there.
    pub sectors: (usize, usize),
    /// What went wrong.
    pub problems: Vec<String>,
    /// Where the disks of problems are.
    pub kept: Option<PathBuf>,
}

/// A directory in memory if there is one: nothing in it has to survive this process.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

/// Runs a plan.
///
/// # Panics
///
/// If there is no C compiler, or temporary files cannot be written.
pub async fn run(plan: PowerLoss) -> PowerOutcome {
    let recorder = Recorder::compile();
    let (mut rng, mut outcome, begun) = (Rng::new(plan.seed), PowerOutcome::default(), Instant::now());
    while outcome.cycles < plan.cycles {
        let directory = scratch();
        let turn = outcome.recordings;
        let failure = match plan.failing_syncs.get(turn % plan.failing_syncs.len().max(1)) {
            Some(number) => Some(Failure { call: FailingCall::Sync, number: *number, repeats: false }),
            None => (turn % 2 == 1).then(|| draw_failure(&mut rng, turn / 2)),
        };
        outcome.recordings += 1;
        let recording = match record(&plan, &recorder, directory.path(), failure).await {
            Ok(recording) => Arc::new(recording),
            Err(problem) => {
                outcome.problems.push(format!("recording {} ({failure:?}): {problem}", outcome.recordings));
                let journal = std::fs::read_to_string(directory.path().join("journal")).unwrap_or_default();
                journal.lines().rev().take(5).for_each(|line| eprintln!("  {line}"));
                if outcome.problems.len() > 20 {
                    break;
                }
                continue;
            }
        };
        if let Some(failure) = failure {
            outcome.failures[failure.call as usize] += 1;
        }
        outcome.calls.0 += recording.len();
        outcome.calls.1 += recording.syncs();
        let cuts = plan.cuts_per_recording.min(plan.cycles - outcome.cycles);
        check(&recording, cuts, plan.patience, &mut rng, &mut outcome).await;
        if plan.is_verbose {
            let (count, problems) = (outcome.cycles, outcome.problems.len());
            let rate = count as f64 / begun.elapsed().as_secs_f64();
            let calls = recording.len();
            eprintln!(
                "{count:6} power failures, {problems} problems, {rate:.1}/s; recorded {calls} calls, {failure:?}"
            );
        }
    }
    outcome
}

/// Opens the disks that some power failures leave.
async fn check(
    recording: &Arc<Recording>,
    cuts: usize,
    patience: Duration,
    rng: &mut Rng,
    outcome: &mut PowerOutcome,
) {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut healings = JoinSet::new();
    for _ in 0..cuts {
        let (slots, recording, mut rng) = (Arc::clone(&slots), Arc::clone(recording), rng.fork());
        healings.spawn(async move {
            let _slot = slots.acquire().await.expect("it is not closed");
            let cut = recording.draw_cut(&mut rng);
            let remains = recording.remains(cut, &mut rng);
            let directory = scratch();
            let problems = heal(directory.path(), &remains, patience).await;
            (cut, remains, directory, problems)
        });
    }
    while let Some(healed) = healings.join_next().await {
        let (cut, remains, directory, problems) = healed.expect("a check does not panic");
        outcome.cycles += 1;
        outcome.acknowledged += healing::acknowledged(&remains.callers);
        outcome.sectors.0 += remains.lost_sectors;
        outcome.sectors.1 += remains.kept_sectors;
        if problems.is_empty() {
            continue;
        }
        let kept = directory.keep();
        for (name, bytes) in &remains.files {
            // The disk as it was found, beside what became of it.
            let _ = std::fs::write(kept.join(format!("found-{name}")), bytes);
        }
        let place = format!("cut {cut} of {} ({})", recording.len(), kept.display());
        outcome.problems.extend(problems.into_iter().map(|problem| format!("{place}: {problem}")));
        outcome.kept = Some(kept);
    }
}

/// Draws a call that fails; all kinds come in turn.
fn draw_failure(rng: &mut Rng, turn: usize) -> Failure {
    let call = [FailingCall::Sync, FailingCall::Write, FailingCall::WriteOnFullDisk][turn % 3];
    let repeats = match call {
        FailingCall::Sync => false,
        FailingCall::Write => rng.percent(50),
        // A disk stays full.
        FailingCall::WriteOnFullDisk => true,
    };
    let number = match call {
        // The first ones create the store.
        FailingCall::Sync if rng.percent(40) => rng.between(1, 10),
        FailingCall::Sync => rng.between(1, 80),
        FailingCall::Write | FailingCall::WriteOnFullDisk => rng.between(1, 2_500),
    };
    Failure { call, number, repeats }
}

/// Runs and records a process, or one that fails and the one that continues after it.
async fn record(
    plan: &PowerLoss,
    recorder: &Recorder,
    root: &Path,
    failure: Option<Failure>,
) -> Result<Recording, String> {
    for name in ["store", "logs"] {
        std::fs::create_dir(root.join(name)).map_err(|error| error.to_string())?;
    }
    let record = root.join("record");
    let options = |run: u64| NodeOptions {
        relaxed: plan.relaxed,
        lives_ms: Some(700),
        lives_from: run * 1_000,
        ..node_options(root, &format!("run-{run}"))
    };
    if failure.is_some() {
        let ended = recorder.run(&plan.program, &options(1), root, &record, failure).await?;
        let codes = [0, NOT_STARTED, FAILED, NOT_STOPPED].map(i32::from);
        if !ended.code().is_some_and(|code| codes.contains(&code)) {
            return Err(format!("the process ended with {ended}"));
        }
    }
    let ended = recorder.run(&plan.program, &options(2), root, &record, None).await?;
    if !ended.success() {
        return Err(format!("the process without faults ended with {ended}"));
    }
    Recording::read(root, &record)
}

/// Options of a node over the store below a directory.
fn node_options(root: &Path, name: &str) -> NodeOptions {
    NodeOptions {
        url: format!("sqlite:{}", root.join("store/chaos.db").display()),
        name: name.to_owned(),
        lease_ms: 10_000,
        directory: root.join("logs"),
        release: 1,
        worker: false,
        special: false,
        tag: Vec::new(),
        calls: false,
        file_limit: None,
        grace_ms: 5_000,
        relaxed: false,
        lives_ms: None,
        lives_from: 0,
    }
}
