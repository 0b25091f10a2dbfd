//! The Rust files of the workspace, parsed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Failure;

const STEP: &str = "sources";

pub(crate) struct Source {
    /// Relative to the workspace's root, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
}

/// All Rust files of the workspace, except the cases of compile tests, which contain errors on purpose, and
/// the programs recorded by releases, which are never edited.
pub(crate) fn read(workspace_root: &Path) -> Result<Vec<Source>, Failure> {
    let mut paths = Vec::new();
    for directory in ["crates", "bench", "chaos", "xtask", "fuzz"] {
        collect(&workspace_root.join(directory), &mut paths).map_err(|error| Failure::new(STEP, error))?;
    }
    paths.sort();
    let read = |path: PathBuf| {
        let shown = path.strip_prefix(workspace_root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let text =
            fs::read_to_string(&path).map_err(|error| Failure::new(STEP, format!("{shown}: {error}")))?;
        let syntax =
            syn::parse_file(&text).map_err(|error| Failure::new(STEP, format!("{shown}: {error}")))?;
        Ok(Source { path: shown, text, syntax })
    };
    paths.into_iter().map(read).collect()
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !matches!(&*name, "target" | "recorded" | "compile" | "ui" | "corpus") {
                collect(&path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}
