//! Runs a target on many inputs, on all cores, and watches for panics and hangs.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::mutator::Mutator;
use crate::target::Target;

/// How long one input may take. Far more than any needs, so that only a hang is noticed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often progress is printed.
const EVERY: Duration = Duration::from_secs(10);
/// How many inputs are counted at once.
const COUNTED: u64 = 64;

/// Panics of any thread, those of stores and servers included.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// What a campaign does.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The target.
    pub target: Target,
    /// How many inputs at least.
    pub executions: u64,
    /// How long at most.
    pub time: Option<Duration>,
    /// The seed of the inputs: each thread has a stream of its own.
    pub seed: u64,
    /// How many threads.
    pub threads: usize,
    /// Whether progress is printed.
    pub is_verbose: bool,
}

/// What a campaign found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many inputs were run.
    pub executions: u64,
    /// How many of them were accepted.
    pub accepted: u64,
    /// How long it took.
    pub time: Duration,
    /// Where inputs are that panicked or hang.
    pub failures: Vec<PathBuf>,
}

/// What a worker is doing.
struct Desk {
    done: AtomicU64,
    accepted: AtomicU64,
    input: Mutex<Vec<u8>>,
    since: Mutex<Instant>,
}

/// Runs a campaign. A hang ends it.
///
/// # Panics
///
/// If threads or files cannot be made.
pub fn run(campaign: &Campaign) -> Outcome {
    let corpus = campaign.target.corpus();
    watch_panics();
    let begun = Instant::now();
    let is_over = AtomicBool::new(false);
    let failures = Mutex::new(Vec::new());
    let desks: Vec<Desk> = (0..campaign.threads.max(1))
        .map(|_| Desk {
            done: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            input: Mutex::default(),
            since: Mutex::new(Instant::now()),
        })
        .collect();
    let total = |count: fn(&Desk) -> &AtomicU64| -> u64 {
        desks.iter().map(|desk| count(desk).load(Ordering::Relaxed)).sum()
    };
    thread::scope(|scope| {
        for (number, desk) in (0_u64..).zip(&desks) {
            let (corpus, is_over, failures, target) = (&corpus, &is_over, &failures, campaign.target);
            let seed = campaign.seed.wrapping_mul(1_000_003).wrapping_add(number << 40);
            scope.spawn(move || work(target, Mutator::new(corpus, seed), desk, is_over, failures));
        }
        let mut said = Instant::now();
        loop {
            thread::sleep(Duration::from_millis(20));
            let done = total(|desk| &desk.done);
            let is_late = campaign.time.is_some_and(|time| begun.elapsed() >= time);
            if done >= campaign.executions || is_late || !failures.lock().expect("no panic here").is_empty() {
                is_over.store(true, Ordering::Relaxed);
                break;
            }
            for desk in &desks {
                if desk.since.lock().expect("no panic here").elapsed() > PATIENCE {
                    let input = desk.input.lock().expect("no panic here").clone();
                    eprintln!("an input hangs: {}", keep(campaign.target, &input).display());
                    // The thread cannot be ended.
                    std::process::exit(1);
                }
            }
            if campaign.is_verbose && said.elapsed() >= EVERY {
                said = Instant::now();
                let rate = done as f64 / begun.elapsed().as_secs_f64();
                eprintln!("{:>8} {done} executions, {rate:.0}/s", campaign.target.name());
            }
        }
    });
    Outcome {
        executions: total(|desk| &desk.done),
        accepted: total(|desk| &desk.accepted),
        time: begun.elapsed(),
        failures: failures.into_inner().expect("no panic here"),
    }
}

fn work(
    target: Target,
    mut mutator: Mutator<'_>,
    desk: &Desk,
    is_over: &AtomicBool,
    failures: &Mutex<Vec<PathBuf>>,
) {
    let mut input = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut accepted = 0;
        for _ in 0..COUNTED {
            mutator.next(&mut input);
            *desk.since.lock().expect("no panic here") = Instant::now();
            desk.input.lock().expect("no panic here").clone_from(&input);
            let before = PANICS.load(Ordering::Relaxed);
            let ran = catch_unwind(AssertUnwindSafe(|| target.run(&input)));
            accepted += u64::from(ran.as_ref().is_ok_and(|accepted| *accepted));
            if ran.is_err() || PANICS.load(Ordering::Relaxed) != before {
                failures.lock().expect("no panic here").push(keep(target, &input));
                is_over.store(true, Ordering::Relaxed);
                break;
            }
        }
        desk.done.fetch_add(COUNTED, Ordering::Relaxed);
        desk.accepted.fetch_add(accepted, Ordering::Relaxed);
    }
    // A thread that has finished does not hang.
    *desk.since.lock().expect("no panic here") = Instant::now() + PATIENCE * 1_000;
}

/// Writes an input to a file.
fn keep(target: Target, input: &[u8]) -> PathBuf {
    thread_local!(static KEPT: RefCell<u32> = const { RefCell::new(0) });
    let number = KEPT.with_borrow_mut(|kept| {
        *kept += 1;
        *kept
    });
    let name = format!("perennial-fuzz-{}-{}-{number}", target.name(), std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, input).expect("a temporary file");
    path
}

fn watch_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            shown(panic);
        }));
    });
}
