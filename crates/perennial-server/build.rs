//! Compresses the files of the dashboard, so that the binary carries them. They are committed: building needs no Node.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("dist");
    let out = PathBuf::from(variable("OUT_DIR"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=dist");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    let mut table = String::from("&[\n");
    for (number, path) in paths.iter().enumerate() {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let packed = out.join(format!("dashboard-{number}.gz"));
        fs::write(&packed, gzip(&bytes)).unwrap_or_else(|error| panic!("{}: {error}", packed.display()));
        let name = path.strip_prefix(&root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        let _ = writeln!(
            table,
            "    File {{ path: {name:?}, etag: \"\\\"{:016x}\\\"\", gzip: include_bytes!({packed:?}) }},",
            fnv1a(&bytes)
        );
    }
    table.push(']');
    let file = out.join("dashboard.rs");
    fs::write(&file, table).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Lists all files below a directory.
fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(&path, paths),
            false => paths.push(path),
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_else(|error| panic!("gzip: {error}"))
}

/// A digest that tells one version of a file from the next.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
