//! The PostgreSQL server that tests start: found, or installed where that is allowed.
//!
//! Tests start servers of their own and need only the programs. On a machine without them, and with the right to install
//! packages, the distribution's package is installed; elsewhere one line says what to do. Nothing is skipped.

use crate::command::{Failure, announce};
use crate::installer::Installer;

#[path = "../../crates/perennial-testkit/src/postgres/binaries.rs"]
mod binaries;

const STEP: &str = "postgres";

const PACKAGES: &[&str] = &["postgresql"];

/// What names a server to use instead.
const URL_VARIABLE: &str = "PERENNIAL_TEST_POSTGRES";

/// Makes sure that tests can start a server.
pub(crate) fn provide() -> Result<(), Failure> {
    if std::env::var_os(URL_VARIABLE).is_some() {
        announce(STEP, format_args!("the server that {URL_VARIABLE} names"));
        return Ok(());
    }
    let bin = Installer::of_this_machine().find_or_install(STEP, PACKAGES, binaries::find)?;
    announce(STEP, bin.display());
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::binaries::EmptyMachine;
    use super::{Installer, PACKAGES, STEP};

    /// A package manager that logs its calls, and does `install` when it is asked to install the package.
    fn package_manager(machine: &EmptyMachine, is_root: bool, install: &str) -> Installer {
        let (program, root) = (machine.root.join("apt-get"), machine.root.display());
        let script = format!(
            "#!/bin/sh\necho \"$DEBIAN_FRONTEND:$*\" >> {root}/calls\ncase \"$1\" in install)\ncd {root}\n{install}\n;; esac\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        Installer { program, is_root }
    }

    const INSTALL: &str =
        "mkdir -p versions/15/bin && cd versions/15/bin && touch initdb postgres pg_isready";

    #[test]
    fn root_installs_the_missing_package_and_then_finds_it() {
        let machine = EmptyMachine::new("root");
        let installer = package_manager(&machine, true, INSTALL);
        let found = installer.find_or_install(STEP, PACKAGES, || machine.find()).unwrap();
        assert_eq!(found, machine.root.join("versions/15/bin"));
        let calls = fs::read_to_string(machine.root.join("calls")).unwrap();
        let made: Vec<(&str, &str)> = calls.lines().filter_map(|line| line.split_once(':')).collect();
        let expected =
            ["--version", "update --quiet", "install --yes --quiet --no-install-recommends postgresql"];
        assert_eq!(made.iter().map(|(_, arguments)| *arguments).collect::<Vec<_>>(), expected);
        assert_eq!(made[2].0, "noninteractive");
        installer.find_or_install(STEP, PACKAGES, || machine.find()).unwrap();
        assert_eq!(
            fs::read_to_string(machine.root.join("calls")).unwrap(),
            calls,
            "nothing is installed twice"
        );
    }

    #[test]
    fn without_the_right_to_install_one_line_says_what_to_install() {
        let machine = EmptyMachine::new("user");
        let installer = package_manager(&machine, false, INSTALL);
        let failure = installer.find_or_install(STEP, PACKAGES, || machine.find()).unwrap_err().to_string();
        assert!(!failure.contains('\n') && failure.contains("sudo apt-get install postgresql"), "{failure}");
        assert!(!machine.root.join("calls").exists(), "nothing was tried");
        // Another distribution.
        let elsewhere = Installer { program: machine.root.join("no-such-program"), is_root: true };
        let failure = elsewhere.find_or_install(STEP, PACKAGES, || machine.find()).unwrap_err().to_string();
        assert!(failure.contains("sudo apt-get install postgresql"), "{failure}");
    }

    #[test]
    fn an_installation_that_fails_or_brings_nothing_is_reported() {
        let machine = EmptyMachine::new("broken");
        let broken = package_manager(&machine, true, "exit 100");
        let failure = broken.find_or_install(STEP, PACKAGES, || machine.find()).unwrap_err().to_string();
        assert!(failure.starts_with("step `postgres` failed: exit status: 100"), "{failure}");
        let empty = package_manager(&machine, true, "true");
        let failure = empty.find_or_install(STEP, PACKAGES, || machine.find()).unwrap_err().to_string();
        assert!(failure.contains("no PostgreSQL server is installed"), "{failure}");
    }
}
