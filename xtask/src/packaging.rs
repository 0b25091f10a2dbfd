//! What would be published: every crate with its files, its manifest as the registry wants it, and dependencies that can be
//! published before it. Nothing leaves this machine. Building from the packages is left to the release (`RELEASING.md`).

use crate::command::{self, Failure, cargo};

pub(crate) fn check() -> Result<(), Failure> {
    let mut arguments =
        vec!["package", "--workspace", "--no-verify", "--allow-dirty", "--offline", "--quiet"];
    for unpublished in ["xtask", "perennial-load"] {
        arguments.extend(["--exclude", unpublished]);
    }
    command::run("packages", cargo(&arguments))
}
