//! The tests of the dashboard in a browser, and its pictures. Both run against the fixture program: a real server on a real
//! store, with a runtime beside it.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{self, Failure, cargo, workspace_root};
use crate::node;

const STEP: &str = "browser";

/// Programs that the tests need.
pub(crate) struct Browser {
    program: PathBuf,
}

impl Browser {
    /// Finds the programs, or installs them where that is allowed.
    pub(crate) fn provide() -> Result<Browser, Failure> {
        node::provide(STEP)?;
        let program = node::provide_browser(STEP)?;
        node::install_dependencies(STEP)?;
        Ok(Browser { program })
    }

    /// Runs the tests. The fixture has to be built.
    pub(crate) fn test(&self) -> Result<(), Failure> {
        let mut tests = self.node(&["--test", "--test-concurrency=2", "--test-reporter=spec"]);
        tests.args(test_files()?);
        command::run(STEP, tests)
    }

    fn node(&self, arguments: &[&str]) -> Command {
        let mut node = Command::new("node");
        node.current_dir(workspace_root().join("ui")).args(arguments);
        node.env("PERENNIAL_TEST_CHROMIUM", &self.program).env("PERENNIAL_TEST_FIXTURE", fixture());
        node
    }
}

/// Older versions of Node expand no patterns.
fn test_files() -> Result<Vec<String>, Failure> {
    let directory = workspace_root().join("ui/tests/browser");
    let entries = std::fs::read_dir(directory).map_err(|error| Failure::new(STEP, error))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(".test.mjs"))
        .map(|name| format!("tests/browser/{name}"))
        .collect();
    names.sort();
    Ok(names)
}

/// The fixture program, beside this one.
fn fixture() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name("examples").join("dashboard_fixture")
}

/// `cargo xtask screenshots [DIRECTORY]`: a picture of every page, tab, empty and error state.
pub(crate) fn screenshots(arguments: &[String]) -> Result<(), Failure> {
    let directory = match arguments {
        [] => std::env::temp_dir().join("perennial-screenshots"),
        [directory] => std::env::current_dir().unwrap_or_default().join(directory),
        _ => return Err(Failure::new("screenshots", "one directory at most")),
    };
    let browser = Browser::provide()?;
    command::run(
        STEP,
        cargo(&["build", "--locked", "--package", "perennial-server", "--example", "dashboard_fixture"]),
    )?;
    let mut node = browser.node(&["tests/browser/screenshots.mjs"]);
    node.arg(&directory);
    command::run("screenshots", node)
}
