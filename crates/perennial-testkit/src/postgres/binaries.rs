//! Finds the installed PostgreSQL programs.

use std::path::{Path, PathBuf};

/// The message if no server is installed.
const HINT: &str = "no PostgreSQL server is installed: `initdb` and `postgres` are neither in PATH nor in \
     /usr/lib/postgresql/*/bin. Install it (Debian and Ubuntu: apt-get install postgresql), or name a server in \
     PERENNIAL_TEST_POSTGRES=postgres://user:password@host/database";

/// Returns the directory with the server's programs: the first one in PATH that has them, or else the newest version in
/// the directories that distributions use.
pub(super) fn find() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).find(|directory| is_complete(directory));
    in_path.or_else(|| newest("/usr/lib/postgresql")).or_else(other_places).ok_or_else(|| HINT.to_owned())
}

fn is_complete(directory: &Path) -> bool {
    ["initdb", "postgres", "pg_isready"].iter().all(|program| directory.join(program).is_file())
}

/// Debian installs each version in a directory of its own.
fn newest(root: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(root).ok()?.flatten();
    let numbered = |entry: std::fs::DirEntry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin")))
    };
    let complete = versions.filter_map(numbered).filter(|(_, bin)| is_complete(bin));
    complete.max().map(|(_, bin)| bin)
}

fn other_places() -> Option<PathBuf> {
    let places = ["/usr/pgsql-17/bin", "/usr/pgsql-16/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin"];
    places.into_iter().map(PathBuf::from).find(|directory| is_complete(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_in_one_line_what_to_install() {
        assert!(!HINT.contains('\n') && HINT.contains("apt-get install postgresql"));
    }

    #[test]
    fn a_directory_without_the_programs_is_passed_over() {
        assert!(!is_complete(Path::new("/")) && newest("/nowhere").is_none());
    }
}
