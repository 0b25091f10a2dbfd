//! House rules that no other tool checks.
//!
//! The workspace's lints forbid unsafe code and warn about undocumented items, and the workspace states the
//! licence and the minimum compiler version. They apply to a crate only if its manifest inherits them, which
//! cargo leaves to the crate; so this checks the workspace's settings and every member's manifest.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::metadata::Package;

/// The violations in the workspace, one line each.
pub(crate) fn violations(workspace_root: &Path, packages: &[Package]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut demand = |manifest: &Path, holds: fn(&Table) -> bool, rule: &str| match read(manifest) {
        Ok(table) if holds(&table) => {}
        Ok(_) => violations.push(format!("{}: {rule}", manifest.display())),
        Err(error) => violations.push(format!("{}: {error}", manifest.display())),
    };
    demand(
        &workspace_root.join("Cargo.toml"),
        forbids_unsafe_code,
        "`[workspace.lints.rust]` must contain `unsafe_code = \"forbid\"`",
    );
    demand(
        &workspace_root.join("Cargo.toml"),
        misses_docs,
        "`[workspace.lints.rust]` must contain `missing_docs = \"warn\"`",
    );
    for member in packages.iter().filter(|package| package.is_member) {
        demand(&member.manifest, inherits_lints, "`[lints]` must contain `workspace = true`");
        demand(
            &member.manifest,
            inherits_terms,
            "`[package]` must contain `license.workspace = true` and `rust-version.workspace = true`",
        );
        demand(
            &member.manifest,
            describes_itself,
            "`[package]` must contain description, readme, keywords and categories, or `publish = false`",
        );
    }
    violations
}

fn read(manifest: &Path) -> Result<Table, String> {
    let text = fs::read_to_string(manifest).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: toml::de::Error| error.to_string())
}

fn forbids_unsafe_code(manifest: &Table) -> bool {
    entry(manifest, &["workspace", "lints", "rust", "unsafe_code"]) == Some(&"forbid".into())
}

/// `lint` turns warnings into errors.
fn misses_docs(manifest: &Table) -> bool {
    entry(manifest, &["workspace", "lints", "rust", "missing_docs"]) == Some(&"warn".into())
}

fn inherits_terms(manifest: &Table) -> bool {
    ["license", "rust-version"]
        .iter()
        .all(|key| entry(manifest, &["package", key, "workspace"]) == Some(&true.into()))
}

fn inherits_lints(manifest: &Table) -> bool {
    entry(manifest, &["lints", "workspace"]) == Some(&true.into())
}

/// The fields that crates.io displays. An unpublished member does not need them.
fn describes_itself(manifest: &Table) -> bool {
    let is_published = entry(manifest, &["package", "publish"]) != Some(&false.into());
    !is_published
        || ["description", "readme", "keywords", "categories"]
            .iter()
            .all(|key| entry(manifest, &["package", key]).is_some())
}

/// The value at a path of keys.
fn entry<'a>(manifest: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (last, tables) = path.split_last()?;
    let table = tables.iter().try_fold(manifest, |table, key| table.get(*key)?.as_table())?;
    table.get(*last)
}

#[cfg(test)]
mod tests {
    use super::{describes_itself, forbids_unsafe_code, inherits_lints, inherits_terms, misses_docs};

    #[track_caller]
    fn holds(rule: fn(&toml::Table) -> bool, manifest: &str) -> bool {
        rule(&manifest.parse().unwrap())
    }

    #[test]
    fn p7_a_member_takes_over_the_lints_of_the_workspace() {
        assert!(holds(inherits_lints, "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"));
        assert!(holds(inherits_lints, "lints.workspace = true\n[package]\nname = \"a\"\n"));
        assert!(!holds(inherits_lints, ""));
        assert!(!holds(inherits_lints, "[lints]\nworkspace = false\n"));
        assert!(!holds(inherits_lints, "[lints.rust]\nworkspace = true\n"));
        assert!(!holds(inherits_lints, "[package]\nlints.workspace = true\n"));
    }

    #[test]
    fn p6_what_is_not_documented_is_noticed() {
        assert!(holds(misses_docs, "[workspace.lints.rust]\nmissing_docs = \"warn\"\n"));
        assert!(!holds(misses_docs, "[workspace.lints.rust]\nmissing_docs = \"allow\"\n"));
        assert!(!holds(misses_docs, "[workspace.lints.rust]\n"));
    }

    #[test]
    fn p7_a_member_states_its_licence_and_its_compiler() {
        assert!(holds(
            inherits_terms,
            "[package]\nlicense.workspace = true\nrust-version.workspace = true\n"
        ));
        assert!(!holds(inherits_terms, "[package]\nlicense.workspace = true\n"));
        assert!(!holds(inherits_terms, "[package]\nrust-version.workspace = true\n"));
    }

    #[test]
    fn p7_only_forbid_bans_unsafe_code() {
        assert!(holds(forbids_unsafe_code, "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n"));
        assert!(!holds(forbids_unsafe_code, "[workspace.lints.rust]\nunsafe_code = \"deny\"\n"));
        assert!(!holds(forbids_unsafe_code, "[workspace.lints.clippy]\nunsafe_code = \"forbid\"\n"));
    }

    #[test]
    fn p7_a_published_member_says_what_it_is() {
        let described = "[package]\ndescription = \"a\"\nreadme = \"b\"\nkeywords = []\n";
        assert!(holds(describes_itself, &format!("{described}categories = []\n")));
        assert!(!holds(describes_itself, described));
        assert!(holds(describes_itself, "[package]\npublish = false\n"));
    }
}
