//! Installs packages of the distribution where that is allowed: on Debian and its kin, as root.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{self, Failure};

/// The package manager, and whether it may be used.
pub(crate) struct Installer {
    pub(crate) program: PathBuf,
    pub(crate) is_root: bool,
}

impl Installer {
    pub(crate) fn of_this_machine() -> Installer {
        Installer { program: "apt-get".into(), is_root: is_root() }
    }

    /// Finds something, after installing its packages if it is missing and that is allowed.
    pub(crate) fn find_or_install<T>(
        &self,
        step: &'static str,
        packages: &[&str],
        find: impl Fn() -> Result<T, String>,
    ) -> Result<T, Failure> {
        match find() {
            Err(_) if self.may_install() => {
                self.install(step, packages)?;
                find().map_err(|hint| Failure::new(step, hint))
            }
            found => found.map_err(|hint| Failure::new(step, hint)),
        }
    }

    fn may_install(&self) -> bool {
        self.is_root && command::has(&self.program.to_string_lossy(), &["--version"])
    }

    fn install(&self, step: &'static str, packages: &[&str]) -> Result<(), Failure> {
        let mut update = Command::new(&self.program);
        update.args(["update", "--quiet"]);
        command::run(step, update)?;
        let mut install = Command::new(&self.program);
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(packages);
        install.env("DEBIAN_FRONTEND", "noninteractive");
        command::run(step, install)
    }
}

fn is_root() -> bool {
    let identity = Command::new("id").arg("-u").output();
    identity.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
