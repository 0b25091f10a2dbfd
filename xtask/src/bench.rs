//! `cargo xtask bench`: the load generator, in release mode.
//!
//! All arguments after `bench` are passed to it; `cargo xtask bench --help` lists workloads and options. `--peers` builds
//! the programs in `bench/peers` and has them run on the same server.

use std::ffi::OsString;

use crate::command::{self, Failure, cargo, workspace_root};

/// The programs of `bench/peers`.
const PEERS: [&str; 1] = ["peer-dbos"];

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command =
        cargo(&["run", "--locked", "--quiet", "--release", "--package", "perennial-load", "--"]);
    command.args(arguments.iter().filter(|argument| *argument != "--peers"));
    if arguments.iter().any(|argument| argument == "--peers") {
        for program in build_peers()? {
            command.arg("--peer").arg(program);
        }
    }
    command::run("bench", command)
}

/// Builds the peers and returns the paths of their programs.
fn build_peers() -> Result<Vec<OsString>, Failure> {
    let peers = workspace_root().join("bench/peers");
    let target = peers.join("target");
    let mut build = cargo(&["build", "--locked", "--release", "--manifest-path", "bench/peers/Cargo.toml"]);
    build.arg("--target-dir").arg(&target);
    command::run("build peers", build)?;
    Ok(PEERS.map(|name| target.join("release").join(name).into_os_string()).to_vec())
}
