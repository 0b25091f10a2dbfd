//! `cargo xtask test`: all tests, with their set-up.
//!
//! Needs cargo and the programs of a PostgreSQL server; cargo-nextest is used if it is installed. Benchmarks are compiled
//! but not run: a figure taken beside other work is meaningless. The tests run last, so that their summary ends the output.
//! The first failing step ends the run, because later ones would only report the same broken build.

use crate::command::{self, Failure, cargo};
use crate::postgres;

pub(crate) fn run() -> Result<(), Failure> {
    postgres::provide()?;
    command::run("benches", cargo(&["build", "--locked", "--workspace", "--all-features", "--benches"]))?;
    if command::has_cargo_subcommand("nextest") {
        // Nextest does not run doc tests.
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
