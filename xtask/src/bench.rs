//! `cargo xtask bench`: the load generator, in release mode.
//!
//! All arguments after `bench` are passed to it; `cargo xtask bench --help` lists workloads and options.

use crate::command::{self, Failure, cargo};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command =
        cargo(&["run", "--locked", "--quiet", "--release", "--package", "perennial-load", "--"]);
    command.args(arguments);
    command::run("bench", command)
}
