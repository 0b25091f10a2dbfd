//! `cargo xtask ui`: builds the dashboard into the server's crate. `cargo xtask lint` builds it again and compares.
//!
//! The built files are committed, so that building and installing Perennial needs no Node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::command::{self, Failure, announce, workspace_root};
use crate::{dashboard_rules, node};

const STEP: &str = "dashboard";

fn dist() -> PathBuf {
    workspace_root().join("crates/perennial-server/dist")
}

/// The types of the API, generated from the document.
fn types() -> PathBuf {
    workspace_root().join("ui/src/api/schema.d.ts")
}

pub(crate) fn run() -> Result<(), Failure> {
    node::provide(STEP)?;
    node::install_dependencies(STEP)?;
    generate_types(&types())?;
    build(&dist())?;
    rules()
}

fn generate_types(target: &Path) -> Result<(), Failure> {
    let (document, target) =
        ("../crates/perennial-server/openapi.json", target.to_string_lossy().into_owned());
    command::run(STEP, node::npm(&["exec", "--", "openapi-typescript", document, "--output", &target]))
}

fn build(target: &Path) -> Result<(), Failure> {
    command::run(STEP, node::npm(&["run", "check"]))?;
    let target = target.to_string_lossy().into_owned();
    command::run(STEP, node::npm(&["exec", "--", "vite", "build", "--outDir", &target, "--emptyOutDir"]))
}

/// Checks everything about the dashboard that does not need a browser.
pub(crate) fn check() -> Result<(), Failure> {
    rules()?;
    if let Err(missing) = node::find() {
        // On a developer's machine it is enough that the continuous integration builds the files again.
        if std::env::var_os("CI").is_none() {
            announce(STEP, format_args!("not built again: {missing}"));
            return Ok(());
        }
        return Err(Failure::new(STEP, missing));
    }
    node::install_dependencies(STEP)?;
    let fresh = std::env::temp_dir().join(format!("perennial-dashboard-{}", std::process::id()));
    let compared = compare(&fresh);
    let _ = std::fs::remove_dir_all(&fresh);
    compared
}

fn compare(fresh: &Path) -> Result<(), Failure> {
    let io = |error: std::io::Error| Failure::new(STEP, error);
    std::fs::create_dir_all(fresh).map_err(io)?;
    generate_types(&fresh.join("schema.d.ts"))?;
    let built = fresh.join("dist");
    build(&built)?;
    let mut differences = differences(&files(&dist()).map_err(io)?, &files(&built).map_err(io)?);
    let read = |path: &Path| std::fs::read(path).map_err(io);
    if read(&types())? != read(&fresh.join("schema.d.ts"))? {
        differences.push("ui/src/api/schema.d.ts".to_owned());
    }
    match differences.is_empty() {
        true => Ok(()),
        false => {
            let files = differences.join(", ");
            Err(Failure::new(
                STEP,
                format!("not what the sources build: {files}; run `cargo xtask ui` and commit"),
            ))
        }
    }
}

fn rules() -> Result<(), Failure> {
    announce(STEP, "sizes of built files and sources, and dependencies");
    let io = |error: std::io::Error| Failure::new(STEP, error);
    let ui = workspace_root().join("ui");
    let read = |name: &str| std::fs::read_to_string(ui.join(name)).map_err(io);
    let mut violations = dashboard_rules::sizes(&files(&dist()).map_err(io)?);
    violations.extend(dashboard_rules::dependencies(&read("package.json")?, &read("package-lock.json")?));
    for part in ["src", "tests"] {
        let below = files(&ui.join(part)).map_err(io)?;
        let named = below.into_iter().map(|(name, bytes)| (format!("{part}/{name}"), bytes)).collect();
        violations.extend(dashboard_rules::shapes(&named));
    }
    for violation in &violations {
        eprintln!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        count => Err(Failure::new(STEP, format_args!("{count} violations"))),
    }
}

/// All files below a directory, by their relative paths with slashes.
fn files(root: &Path) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                found.insert(name, std::fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

/// The names of files that only one side has, or that differ.
fn differences(committed: &BTreeMap<String, Vec<u8>>, built: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let names = committed.keys().chain(built.keys().filter(|name| !committed.contains_key(*name)));
    names.filter(|name| committed.get(*name) != built.get(*name)).map(|name| format!("dist/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d56_a_changed_a_missing_and_a_further_file_are_all_differences() {
        let files = |given: &[(&str, &str)]| {
            given
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
                .collect::<BTreeMap<_, _>>()
        };
        let committed = files(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let built = files(&[("a", "1"), ("b", "x"), ("d", "4")]);
        assert_eq!(differences(&committed, &built), ["dist/b", "dist/c", "dist/d"]);
        assert!(differences(&built, &built).is_empty());
    }
}
