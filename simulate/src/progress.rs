//! The progress line and the summary of a campaign.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::campaign::{LONG, Seen, rate};

/// The pause between two looks at the workers.
const LOOK: Duration = Duration::from_millis(100);
/// The pauses between two progress lines, on a terminal and elsewhere.
const LINE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How fast a campaign is.
pub(crate) struct Rate {
    pub(crate) seeds_per_s: f64,
    pub(crate) hours_per_s: f64,
    pub(crate) steps_per_s: f64,
}

/// Shows what was seen so far, until all workers have ended.
pub(crate) fn show(seen: &Mutex<Seen>, began: Instant, have_ended: impl Fn() -> bool) {
    let is_terminal = std::io::stderr().is_terminal();
    let pause = if is_terminal { LINE.0 } else { LINE.1 };
    let mut next = began + pause;
    while !have_ended() {
        std::thread::sleep(LOOK);
        if Instant::now() < next {
            continue;
        }
        next += pause;
        let line = line_of(&seen.lock().expect("no thread panics with the lock"), began.elapsed());
        if is_terminal {
            eprint!("\r{line}   ");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }
    if is_terminal {
        eprintln!();
    }
}

fn line_of(seen: &Seen, elapsed: Duration) -> String {
    let rate = rate(seen, elapsed.as_secs_f64().max(0.001));
    format!(
        "{} s: {} seeds, {:.0} seeds/s, {:.1} simulated hours/s, {} failed, {} not met",
        elapsed.as_secs(),
        seen.finished,
        rate.seeds_per_s,
        rate.hours_per_s,
        seen.failures.len(),
        perennial_testkit::simulator::unreached(&seen.tally).len(),
    )
}

/// Prints what was seen.
pub(crate) fn print_summary(seen: &Seen, elapsed: Duration, threads: usize) {
    let rate = rate(seen, elapsed.as_secs_f64().max(0.001));
    for (what, count) in seen.tally.iter() {
        println!("{count:>12} {what}");
    }
    println!(
        "\n{} seeds in {:.1} s on {threads} threads: {:.0} seeds/s, {:.1} simulated hours/s, {:.0} steps/s",
        seen.finished,
        elapsed.as_secs_f64(),
        rate.seeds_per_s,
        rate.hours_per_s,
        rate.steps_per_s,
    );
    println!("{} seeds ran twice with the same trace", seen.twice);
    let missing = perennial_testkit::simulator::unreached(&seen.tally);
    match (seen.finished < LONG, missing.is_empty()) {
        (_, true) => println!("everything that a long run has to meet was met"),
        (true, false) => println!("not met, in too few seeds to count: {}", missing.join(", ")),
        (false, false) => println!("NOT MET: {}", missing.join(", ")),
    }
    println!("{} failures", seen.failures.len());
}
