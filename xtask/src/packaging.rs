//! Checks the packages to be published: every crate with its files, a manifest that the registry accepts, and
//! dependencies that can be published before it. Nothing is uploaded. Building from the packages is part of
//! the release (`RELEASING.md`).

use crate::command::{self, Failure, cargo};

pub(crate) fn check() -> Result<(), Failure> {
    let mut arguments =
        vec!["package", "--workspace", "--no-verify", "--allow-dirty", "--offline", "--quiet"];
    for unpublished in ["xtask", "perennial-load"] {
        arguments.extend(["--exclude", unpublished]);
    }
    command::run("packages", cargo(&arguments))
}
