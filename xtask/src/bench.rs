//! `cargo xtask bench`: the load generator, in release mode.
//!
//! Everything after `bench` goes to it as it is; `cargo xtask bench --help` lists workloads and options.

use crate::command::{self, Failure, cargo};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command =
        cargo(&["run", "--locked", "--quiet", "--release", "--package", "perennial-load", "--"]);
    command.args(arguments);
    command::run("bench", command)
}
