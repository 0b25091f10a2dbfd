//! `cargo xtask test`: all tests, with their set-up.
//!
//! Needs cargo, the programs of a PostgreSQL server, Node and Chromium; cargo-nextest is used if it is installed. Benchmarks
//! are compiled but not run: a figure taken beside other work is meaningless. The tests in Rust run last, so that their
//! summary ends the output.
//! The first failing step ends the run, because later ones would only report the same broken build.

use crate::browser::Browser;
use crate::command::{self, Failure, cargo};
use crate::postgres;

pub(crate) fn run() -> Result<(), Failure> {
    postgres::provide()?;
    let browser = Browser::provide()?;
    // The examples are compiled for the tests anyway; the one of the dashboard is what its tests run against.
    let benches = ["build", "--locked", "--workspace", "--all-features", "--benches", "--examples"];
    command::run("benches", cargo(&benches))?;
    browser.test()?;
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
