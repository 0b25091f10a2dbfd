//! `cargo xtask chaos`: nodes as processes, under load and under faults.
//!
//! All arguments after `chaos` are passed to the director; `cargo xtask chaos --help` lists them. The node program is built
//! with it, and found beside it.

use crate::command::{self, Failure, cargo};
use crate::postgres;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let is_embedded =
        arguments.iter().any(|argument| argument.ends_with("sqlite") || argument.starts_with("--power-loss"));
    if !is_embedded {
        postgres::provide()?;
    }
    let package = ["--locked", "--quiet", "--release", "--package", "perennial-chaos"];
    let mut build = cargo(&["build"]);
    build.args(package).arg("--bins");
    command::run("chaos", build)?;
    let mut command = cargo(&["run"]);
    command.args(package).args(["--bin", "perennial-chaos", "--"]).args(arguments);
    command::run("chaos", command)
}
