//! The `perennial` command. The implementation is in the library of this crate.

use std::process::ExitCode;

use perennial::codec::Codecs;

fn main() -> ExitCode {
    perennial_cli::run(Codecs::default())
}
