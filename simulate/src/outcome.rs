//! One run: it finishes, violates an invariant, or panics.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use perennial_testkit::simulator::{Case, Finished, Mishap};

/// The lines of a trace that are kept.
const LINES: usize = 150;

/// A run that went wrong.
#[derive(Clone, Debug)]
pub enum Failure {
    /// An invariant was violated.
    Violation(Box<Mishap>),
    /// The engine or the simulator panicked, with this message.
    Panic(String),
    /// The same case gave two different traces.
    Unrepeatable(u64, u64),
}

impl Failure {
    /// One line about it.
    pub fn headline(&self) -> String {
        match self {
            Failure::Violation(mishap) => mishap.what.clone(),
            Failure::Panic(message) => format!("panic: {message}"),
            Failure::Unrepeatable(one, other) => {
                format!("the same seed gave the traces {one:016x} and {other:016x}")
            }
        }
    }
}

thread_local! {
    /// The message and place of the last panic of this thread, while a run is watched.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_WATCHED: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs a case and catches its panics.
///
/// # Errors
///
/// If it fails. A case that cannot be run because it names something unknown counts as a panic with that message.
pub fn run(case: &Case) -> Result<Finished, Failure> {
    run_keeping(case, LINES)
}

/// Like [`run`], with this many lines of the trace.
///
/// # Errors
///
/// As [`run`].
pub fn run_keeping(case: &Case, lines: usize) -> Result<Finished, Failure> {
    watch_panics();
    IS_WATCHED.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| Ok(case.simulation()?.keeping_lines(lines).run())));
    IS_WATCHED.set(false);
    match outcome {
        Ok(Ok(Ok(finished))) => Ok(finished),
        Ok(Ok(Err(mishap))) => Err(Failure::Violation(Box::new(mishap))),
        Ok(Err(unknown)) => Err(Failure::Panic(unknown)),
        Err(_) => Err(Failure::Panic(PANICKED.take().unwrap_or_default())),
    }
}

/// Runs a case twice, and compares the traces.
///
/// # Errors
///
/// If one of the runs fails, or they differ.
pub fn run_twice(case: &Case) -> Result<Finished, Failure> {
    let (one, other) = (run(case)?, run(case)?);
    if one.trace_hash == other.trace_hash {
        Ok(one)
    } else {
        Err(Failure::Unrepeatable(one.trace_hash, other.trace_hash))
    }
}

/// Keeps panics of watched runs off the screen, and remembers their messages.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_WATCHED.with_borrow(|is_watched| *is_watched) {
                PANICKED.set(Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
}
