//! A node of the chaos test. See `perennial_chaos::node`.

use std::process::ExitCode;

use clap::Parser;
use perennial_chaos::node::{NodeOptions, run};

fn main() -> ExitCode {
    let options = NodeOptions::parse();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    tokio.expect("a runtime of tokio").block_on(run(options))
}
