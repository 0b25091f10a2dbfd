//! Finds the installed PostgreSQL programs. The development commands (`xtask`) include this file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The message if no server is installed.
const HINT: &str = "no PostgreSQL server is installed: `initdb` and `postgres` are neither in PATH nor in \
     /usr/lib/postgresql/*/bin. Install it (Debian and Ubuntu: sudo apt-get install postgresql), or name a server in \
     PERENNIAL_TEST_POSTGRES=postgres://user:password@host/database";

/// The directories that other distributions use.
const OTHERS: [&str; 4] =
    ["/usr/pgsql-17/bin", "/usr/pgsql-16/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin"];

/// The directories that may contain the server's programs.
#[derive(Debug)]
pub(super) struct Places<'a> {
    path: &'a OsStr,
    /// Has a directory for each version, as on Debian.
    versions: &'a Path,
    others: &'a [&'a str],
}

/// Returns the directory with the server's programs on this machine.
pub(super) fn find() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Places { path: &path, versions: Path::new("/usr/lib/postgresql"), others: &OTHERS }.find()
}

impl Places<'_> {
    /// Returns the first directory in PATH with the server's programs, or else that of the newest version.
    pub(super) fn find(&self) -> Result<PathBuf, String> {
        let in_path = std::env::split_paths(self.path).find(|directory| is_complete(directory));
        let in_others = || self.others.iter().map(PathBuf::from).find(|directory| is_complete(directory));
        in_path.or_else(|| newest(self.versions)).or_else(in_others).ok_or_else(|| HINT.to_owned())
    }
}

fn is_complete(directory: &Path) -> bool {
    ["initdb", "postgres", "pg_isready"].iter().all(|program| directory.join(program).is_file())
}

/// Debian installs each version in a directory of its own.
fn newest(root: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(root).ok()?.flatten();
    let numbered = |entry: std::fs::DirEntry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin")))
    };
    let complete = versions.filter_map(numbered).filter(|(_, bin)| is_complete(bin));
    complete.max().map(|(_, bin)| bin)
}

/// A machine that has no programs at first, in a directory of its own.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct EmptyMachine {
    pub(super) root: PathBuf,
}

#[cfg(test)]
impl EmptyMachine {
    pub(super) fn new(name: &str) -> EmptyMachine {
        let root = std::env::temp_dir().join(format!("perennial-machine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        EmptyMachine { root }
    }

    pub(super) fn find(&self) -> Result<PathBuf, String> {
        Places { path: self.root.as_os_str(), versions: &self.root.join("versions"), others: &[] }.find()
    }
}

#[cfg(test)]
impl Drop for EmptyMachine {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_in_one_line_what_to_install() {
        let machine = EmptyMachine::new("bare");
        let hint = machine.find().unwrap_err();
        assert!(!hint.contains('\n') && hint.contains("apt-get install postgresql"), "{hint}");
    }

    #[test]
    fn the_newest_complete_version_is_found_unless_one_is_in_the_path() {
        let machine = EmptyMachine::new("versions");
        let install = |directory: &Path, programs: &[&str]| {
            std::fs::create_dir_all(directory).unwrap();
            programs.iter().for_each(|program| std::fs::write(directory.join(program), "").unwrap());
        };
        let bin = |version: &str| machine.root.join("versions").join(version).join("bin");
        let all = ["initdb", "postgres", "pg_isready"];
        install(&bin("9"), &all);
        install(&bin("15"), &all);
        install(&bin("16"), &all[1..]);
        assert_eq!(machine.find(), Ok(bin("15")), "16 is not complete, and 9 is older");
        install(&machine.root, &all);
        assert_eq!(machine.find(), Ok(machine.root.clone()));
    }
}
