//! The PostgreSQL server that tests start: found, or installed where that is allowed.
//!
//! Tests start servers of their own and need only the programs. On a machine without them, and with the right to install
//! packages, the distribution's package is installed; elsewhere one line says what to do. Nothing is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, Failure, announce};

const STEP: &str = "postgres";

/// What names a server to use instead.
const URL_VARIABLE: &str = "PERENNIAL_TEST_POSTGRES";

const MISSING: &str = "no PostgreSQL server is installed; install it (Debian and Ubuntu: sudo apt-get install postgresql), or \
     name one in PERENNIAL_TEST_POSTGRES=postgres://user:password@host/database";

/// Makes sure that tests can start a server.
pub(crate) fn provide() -> Result<(), Failure> {
    if std::env::var_os(URL_VARIABLE).is_some() {
        announce(STEP, format_args!("the server that {URL_VARIABLE} names"));
        return Ok(());
    }
    if let Some(bin) = find() {
        announce(STEP, bin.display());
        return Ok(());
    }
    if !may_install() {
        return Err(Failure::new(STEP, MISSING));
    }
    let mut update = Command::new("apt-get");
    update.args(["update", "--quiet"]);
    command::run(STEP, update)?;
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--quiet", "--no-install-recommends", "postgresql"]);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    command::run(STEP, install)?;
    find().map(drop).ok_or_else(|| Failure::new(STEP, MISSING))
}

/// Where the programs are: in PATH, or in Debian's directories. The test kit looks in the same places.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    std::env::split_paths(&path).chain(debian).find(|bin| is_complete(bin))
}

fn is_complete(bin: &Path) -> bool {
    ["initdb", "postgres", "pg_isready"].iter().all(|program| bin.join(program).is_file())
}

/// Whether packages can be installed: by root, on Debian or one of its kin.
fn may_install() -> bool {
    let identity = Command::new("id").arg("-u").output();
    let is_root = identity.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    is_root && command::has("apt-get", &["--version"])
}

#[cfg(test)]
mod tests {
    use super::{MISSING, is_complete};
    use std::path::Path;

    #[test]
    fn one_line_says_what_to_install() {
        assert!(!MISSING.contains('\n') && MISSING.contains("apt-get install postgresql"));
        assert!(!is_complete(Path::new("/nowhere")));
    }
}
