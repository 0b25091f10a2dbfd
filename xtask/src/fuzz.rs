//! `cargo xtask fuzz`: hostile inputs for everything that reads bytes.
//!
//! All arguments after `fuzz` are passed to the fuzzer; `cargo xtask fuzz --help` lists them. If all named targets need only
//! the core, only that is compiled.

use crate::command::{self, Failure, cargo};

/// The targets that need no store, command or server.
const CORE: [&str; 3] = ["decode", "replay", "messages"];

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let named: Vec<&String> = arguments.iter().take_while(|argument| !argument.starts_with('-')).collect();
    let is_core = !named.is_empty() && named.iter().all(|name| CORE.contains(&name.as_str()));
    let mut command = cargo(&["run", "--locked", "--quiet", "--release", "--package", "perennial-fuzzer"]);
    if is_core {
        command.arg("--no-default-features");
    }
    command.arg("--").args(arguments);
    command::run("fuzz", command)
}
