//! The `perennial` command. What it does is in the library beside it.

use std::process::ExitCode;

use perennial::codec::Codecs;

fn main() -> ExitCode {
    perennial_cli::run(Codecs::default())
}
