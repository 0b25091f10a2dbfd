//! Crates that must be usable in one build with the library.
//!
//! SQLite is a native library, and cargo allows only one package that links it. A program can use sqlx with
//! Perennial only if the version ranges of both allow the same `libsqlite3-sys`; cargo checks that even if
//! sqlx's own SQLite driver is not enabled. So this resolves a program with both, which reads the registry's
//! index and compiles nothing.

use std::fs;
use std::path::Path;

use crate::command::{Failure, announce, cargo};

const STEP: &str = "neighbours";

/// Crates that are used together with the library, as lines of a manifest.
const NEIGHBOURS: &[&str] = &[
    r#"sqlx = { version = "0.8", features = ["postgres", "runtime-tokio"] }"#,
    r#"sqlx = { version = "0.8", features = ["sqlite", "runtime-tokio"] }"#,
    r#"sqlx = { version = "0.9", features = ["sqlite", "runtime-tokio"] }"#,
    r#"rusqlite = { version = "0.32", features = ["bundled"] }"#,
];

/// Resolves a program with each of them.
pub(crate) fn check(workspace_root: &Path) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for neighbour in NEIGHBOURS {
        announce(STEP, format_args!("the library with {neighbour}"));
        match resolve(workspace_root, neighbour) {
            Ok(()) => {}
            Err(problem) if is_conflict(&problem) => {
                eprintln!("{problem}");
                failures.push(*neighbour);
            }
            // Without access to the registry, this cannot be checked.
            Err(problem) => {
                let reason = problem.lines().next().unwrap_or("no output from cargo").to_owned();
                announce(STEP, format_args!("skipped, the registry cannot be read: {reason}"));
                break;
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(STEP, failures.join("; "))) }
}

fn resolve(workspace_root: &Path, neighbour: &str) -> Result<(), String> {
    let directory = std::env::temp_dir().join(format!("perennial-neighbours-{}", std::process::id()));
    let outcome = write(&directory, workspace_root, neighbour).and_then(|()| {
        let mut command = cargo(&["generate-lockfile"]);
        command.current_dir(&directory);
        command.output().map_err(|error| error.to_string())
    });
    let _ = fs::remove_dir_all(&directory);
    match outcome? {
        output if output.status.success() => Ok(()),
        output => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn write(directory: &Path, workspace_root: &Path, neighbour: &str) -> Result<(), String> {
    let library = workspace_root.join("crates/perennial");
    let manifest = format!(
        "[package]\nname = \"neighbours\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         perennial = {{ path = {library:?} }}\n{neighbour}\n"
    );
    fs::create_dir_all(directory.join("src")).map_err(|error| error.to_string())?;
    fs::write(directory.join("src/main.rs"), "fn main() {}\n").map_err(|error| error.to_string())?;
    fs::write(directory.join("Cargo.toml"), manifest).map_err(|error| error.to_string())
}

/// Whether cargo found the versions but cannot combine them.
fn is_conflict(problem: &str) -> bool {
    problem.contains("failed to select a version") || problem.contains("links to the native library")
}

#[cfg(test)]
mod tests {
    use super::is_conflict;
    use crate::command::workspace_root;

    #[test]
    fn p7_a_conflict_is_told_from_a_registry_that_is_away() {
        assert!(is_conflict("error: failed to select a version for `libsqlite3-sys`."));
        assert!(!is_conflict("error: failed to get `sqlx` as a dependency\n\nCaused by:\n  download failed"));
    }

    /// Checks that the range includes every version that neighbours need; `lint` checks that cargo can
    /// resolve them.
    #[test]
    fn p7_the_range_of_rusqlite_goes_from_what_sqlx_0_8_needs_to_the_newest() {
        let manifest = std::fs::read_to_string(workspace_root().join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let range = manifest["workspace"]["dependencies"]["rusqlite"]["version"].as_str().unwrap();
        // sqlx 0.8 needs libsqlite3-sys 0.30, which only rusqlite 0.32 uses; sqlx 0.9 accepts those up to
        // rusqlite 0.39.
        assert_eq!(range, ">=0.32, <0.42");
    }
}
