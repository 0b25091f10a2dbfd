//! `cargo xtask simulate`: the simulator over many seeds.
//!
//! All arguments after `simulate` are passed on; `cargo xtask simulate --help` lists them.

use crate::command::{self, Failure, cargo};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command =
        cargo(&["run", "--locked", "--quiet", "--release", "--package", "perennial-simulate", "--"]);
    command.args(arguments);
    command::run("simulate", command)
}
