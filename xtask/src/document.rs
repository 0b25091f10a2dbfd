//! The OpenAPI document of the HTTP API, checked by a validator that is not ours.
//!
//! The validator is a package of Python's index, installed once into `target`. Where that is not possible, the step is
//! skipped with one line: a machine without Python, or without a network, can still lint.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::{self, Failure, announce};

/// The document, relative to the workspace's root.
const DOCUMENT: &str = "crates/perennial-server/openapi.json";
const VALIDATOR: &str = "openapi-spec-validator==0.9.0";
/// Where the validator is installed, relative to the workspace's root.
const HOME: &str = "target/openapi-validator";

pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    let program = root.join(HOME).join("bin/openapi-spec-validator");
    if !program.is_file()
        && let Err(problem) = install(root)
    {
        announce("openapi", format_args!("skipped, {VALIDATOR} cannot be installed: {problem}"));
        return Ok(());
    }
    let mut validate = Command::new(program);
    validate.current_dir(root).arg(DOCUMENT);
    command::run("openapi", validate)
}

fn install(root: &Path) -> Result<(), &'static str> {
    let home = root.join(HOME);
    let quietly = |mut command: Command| {
        let run = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    };
    let mut environment = Command::new("python3");
    environment.args(["-m", "venv"]).arg(&home);
    if !quietly(environment) {
        return Err("python3 cannot make a virtual environment");
    }
    let mut pip = Command::new(home.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--timeout", "20", VALIDATOR]);
    if quietly(pip) { Ok(()) } else { Err("pip has no access to its index") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_where_the_step_looks() {
        assert!(command::workspace_root().join(DOCUMENT).is_file());
    }
}
