//! Node, npm and Chromium, for the dashboard: found, or installed where that is allowed. Nothing is skipped.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{self, Failure, announce, workspace_root};
use crate::installer::Installer;

/// The oldest Node that builds the dashboard, as `ui/package.json` states it.
const OLDEST: (u32, u32) = (20, 19);

/// The names of the browser's program in distributions.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/// Names a browser to use instead.
const BROWSER_VARIABLE: &str = "PERENNIAL_TEST_CHROMIUM";

/// Makes sure that Node and npm are there.
pub(crate) fn provide(step: &'static str) -> Result<(), Failure> {
    let version = Installer::of_this_machine().find_or_install(step, &["nodejs", "npm"], find)?;
    announce(step, format_args!("node {version}"));
    Ok(())
}

/// The version of Node, or one line that says what is missing.
pub(crate) fn find() -> Result<String, String> {
    let hint = "Node 20.19 or newer with npm is needed (Debian and Ubuntu: sudo apt-get install nodejs npm)";
    let version = Command::new("node").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match version {
        Ok(version) if is_new_enough(&version) && command::has("npm", &["--version"]) => Ok(version),
        Ok(version) if !version.is_empty() => Err(format!("{hint}; installed is Node {version}")),
        _ => Err(hint.to_owned()),
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers =
        version.trim_start_matches('v').split('.').map_while(|number| number.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= OLDEST)
}

/// Makes sure that a browser is there, and returns its program.
pub(crate) fn provide_browser(step: &'static str) -> Result<PathBuf, Failure> {
    let browser = Installer::of_this_machine().find_or_install(step, &["chromium"], find_browser)?;
    announce(step, browser.display());
    Ok(browser)
}

fn find_browser() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(BROWSER_VARIABLE) {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|directory| BROWSERS.map(|browser| directory.join(browser)))
        .find(|program| program.is_file());
    found.ok_or_else(|| {
        format!(
            "the tests of the dashboard need Chromium (Debian and Ubuntu: sudo apt-get install chromium), or its path in \
             {BROWSER_VARIABLE}"
        )
    })
}

/// A command of npm in the directory of the dashboard.
pub(crate) fn npm(arguments: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(workspace_root().join("ui")).args(arguments);
    npm
}

/// Installs the dependencies of the dashboard exactly as the lock file names them, unless they are.
pub(crate) fn install_dependencies(step: &'static str) -> Result<(), Failure> {
    let ui = workspace_root().join("ui");
    let installed =
        std::fs::metadata(ui.join("node_modules/.package-lock.json")).and_then(|file| file.modified());
    let wanted = std::fs::metadata(ui.join("package-lock.json")).and_then(|file| file.modified());
    if matches!((installed, wanted), (Ok(installed), Ok(wanted)) if installed > wanted) {
        return Ok(());
    }
    command::run(step, npm(&["ci", "--no-audit", "--no-fund"]))
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn d56_an_old_node_is_not_enough() {
        for version in ["v20.19.0", "v22.1.3", "20.20.2"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["v20.18.9", "v18.20.4", "", "v", "v20"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
