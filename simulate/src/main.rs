//! The program behind `cargo xtask simulate`. Exit codes: 0 clean, 1 a violation or something unreached, 2 wrong
//! arguments.

use std::process::ExitCode;

use clap::Parser;
use perennial_simulate::arguments::{Arguments, Job};
use perennial_simulate::{campaign, corpus, flaw_table};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.job() {
        Job::Case(file) => corpus::repeat(&file),
        Job::Flaws(samples) => Ok(flaw_table::print(&arguments, samples)),
        Job::Campaign(until) => campaign::run(&arguments, until),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(complaint) => {
            eprintln!("error: {complaint}");
            ExitCode::from(2)
        }
    }
}
