//! `cargo xtask test`: everything that has to hold, set-up included.
//!
//! Needs cargo alone; cargo-nextest is used where it is installed. Benches are compiled, never measured: a
//! figure taken beside other work says nothing. The tests come last, so that their summary closes the output.
//! The first step that fails ends the run, because the next one would only report the same broken build.

use crate::command::{self, Failure, cargo};

pub(crate) fn run() -> Result<(), Failure> {
    command::run("benches", cargo(&["build", "--locked", "--workspace", "--all-features", "--benches"]))?;
    if command::has_cargo_subcommand("nextest") {
        // Nextest leaves doc tests to cargo.
        command::run(
            "doc tests",
            cargo(&["test", "--locked", "--workspace", "--all-features", "--no-fail-fast", "--doc"]),
        )?;
        command::run(
            "tests",
            cargo(&["nextest", "run", "--locked", "--workspace", "--all-features", "--no-fail-fast"]),
        )
    } else {
        command::run("tests", cargo(&["test", "--locked", "--workspace", "--all-features", "--no-fail-fast"]))
    }
}
