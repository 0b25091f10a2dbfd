//! Cases of past failures, as files.

use std::fs;
use std::path::{Path, PathBuf};

use perennial_testkit::simulator::Case;

use crate::outcome;

/// The cases in a directory, by file name. A directory that does not exist has none.
///
/// # Errors
///
/// If a file cannot be read, or is not a case.
pub fn read(directory: &Path) -> Result<Vec<(PathBuf, Case)>, String> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let of_directory = |error: std::io::Error| format!("{}: {error}", directory.display());
    let entries = fs::read_dir(directory).map_err(of_directory)?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<PathBuf>, _>>()
        .map_err(of_directory)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.into_iter().map(|file| Ok((file.clone(), read_case(&file)?))).collect()
}

fn read_case(file: &Path) -> Result<Case, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let case: Case = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    case.simulation().map_err(|unknown| format!("{}: {unknown}", file.display()))?;
    Ok(case)
}

/// A case as the text of a file.
pub fn text_of(case: &Case) -> String {
    serde_json::to_string_pretty(case).expect("a case encodes")
}

/// Stores a case, and returns its file.
///
/// # Errors
///
/// If it cannot be written.
pub fn write(directory: &Path, case: &Case) -> Result<PathBuf, String> {
    let invariant = case.violation.split([':', ' ']).next().unwrap_or("case");
    let file = directory.join(format!("{}-{}.json", invariant.to_lowercase(), case.seed));
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&file, text_of(case) + "\n"));
    written.map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

/// Runs the case of a file, and prints what happened. Returns whether it was clean.
///
/// # Errors
///
/// If the file cannot be read, or is not a case.
pub fn repeat(file: &Path) -> Result<bool, String> {
    let case = read_case(file)?;
    match outcome::run_keeping(&case, usize::MAX) {
        Ok(finished) => {
            println!("clean: trace {:016x}, {} steps", finished.trace_hash, finished.steps);
            Ok(true)
        }
        Err(failure) => {
            if let outcome::Failure::Violation(mishap) = &failure {
                println!("{}", mishap.trace.join("\n"));
            }
            println!("{}", failure.headline());
            Ok(false)
        }
    }
}
