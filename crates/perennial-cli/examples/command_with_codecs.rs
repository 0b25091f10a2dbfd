//! The `perennial` command for a store whose large payloads lie in a directory. It takes the same arguments.

use std::process::ExitCode;

use perennial::codec::{BlobDirectory, Codecs, Offload};

fn main() -> ExitCode {
    let directory = std::env::var("SHOP_BLOBS").unwrap_or_else(|_| "blobs".to_owned());
    match BlobDirectory::open(&directory) {
        Ok(blobs) => perennial_cli::run(Codecs::default().with(Offload::above(64, blobs))),
        Err(error) => {
            eprintln!("error: the blobs of the shop in {directory}: {error}");
            ExitCode::FAILURE
        }
    }
}
