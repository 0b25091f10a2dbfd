//! Rules of the house that no other tool checks.
//!
//! Unsafe code is forbidden and undocumented items are noticed once, in the workspace's lints; the licence and the
//! oldest compiler are stated once, too. That covers a crate only if its manifest takes them over, which cargo leaves
//! to the crate; so what is said once and every member's manifest are looked at.

use std::fs;
use std::path::Path;

use crate::metadata::Package;

/// What the workspace breaks, one line each.
pub(crate) fn violations(workspace_root: &Path, packages: &[Package]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut demand = |manifest: &Path, holds: fn(&str) -> bool, rule: &str| match fs::read_to_string(manifest)
    {
        Ok(text) if holds(&text) => {}
        Ok(_) => violations.push(format!("{}: {rule}", manifest.display())),
        Err(error) => violations.push(format!("{}: {error}", manifest.display())),
    };
    demand(
        &workspace_root.join("Cargo.toml"),
        forbids_unsafe_code,
        "`[workspace.lints.rust]` must hold `unsafe_code = \"forbid\"`",
    );
    demand(
        &workspace_root.join("Cargo.toml"),
        misses_docs,
        "`[workspace.lints.rust]` must hold `missing_docs = \"warn\"`",
    );
    for member in packages.iter().filter(|package| package.is_member) {
        demand(&member.manifest, inherits_lints, "`[lints]` must hold `workspace = true`");
        demand(
            &member.manifest,
            inherits_terms,
            "`[package]` must hold `license.workspace = true` and `rust-version.workspace = true`",
        );
    }
    violations
}

fn forbids_unsafe_code(manifest: &str) -> bool {
    has_entry(manifest, "workspace.lints.rust", "unsafe_code", "\"forbid\"")
}

/// Linting turns warnings into errors.
fn misses_docs(manifest: &str) -> bool {
    has_entry(manifest, "workspace.lints.rust", "missing_docs", "\"warn\"")
}

fn inherits_terms(manifest: &str) -> bool {
    ["license.workspace", "rust-version.workspace"]
        .iter()
        .all(|key| has_entry(manifest, "package", key, "true"))
}

fn inherits_lints(manifest: &str) -> bool {
    has_entry(manifest, "lints", "workspace", "true") || has_entry(manifest, "", "lints.workspace", "true")
}

/// Whether a table of a manifest has this entry, on a line of its own. The empty name stands for what comes
/// before the first table. Enough TOML for manifests as people write them; an exotic spelling is refused,
/// never waved through.
fn has_entry(manifest: &str, table: &str, key: &str, value: &str) -> bool {
    let mut current_table = "";
    for line in manifest.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            current_table = header.strip_suffix(']').unwrap_or(header).trim();
        } else if current_table == table
            && let Some((found_key, found_value)) = line.split_once('=')
            && found_key.trim() == key
            && found_value.trim() == value
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{forbids_unsafe_code, inherits_lints, inherits_terms, misses_docs};

    #[test]
    fn inherited_lints_are_recognised() {
        assert!(inherits_lints("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"));
        assert!(inherits_lints("[lints] # ours\n  workspace=true # all of them\n[dependencies]\n"));
        assert!(inherits_lints("lints.workspace = true\n[package]\nname = \"a\"\n"));
    }

    #[test]
    fn lints_that_are_not_inherited_are_noticed() {
        assert!(!inherits_lints(""));
        assert!(!inherits_lints("[package]\nname = \"a\"\n"));
        assert!(!inherits_lints("[lints]\n# workspace = true\n"));
        assert!(!inherits_lints("[lints]\nworkspace = false\n"));
        assert!(!inherits_lints("[lints.rust]\nworkspace = true\n"));
        assert!(!inherits_lints("[lints]\n[dependencies]\nworkspace = true\n"));
        assert!(!inherits_lints("[package]\nlints.workspace = true\n"));
    }

    #[test]
    fn p6_what_is_not_documented_is_noticed() {
        assert!(misses_docs("[workspace.lints.rust]\nmissing_docs = \"warn\"\n"));
        assert!(!misses_docs("[workspace.lints.rust]\nmissing_docs = \"allow\"\n"));
        assert!(!misses_docs("[workspace.lints.rust]\n"));
    }

    #[test]
    fn p7_a_member_states_its_licence_and_its_compiler() {
        assert!(inherits_terms("[package]\nlicense.workspace = true\nrust-version.workspace = true\n"));
        assert!(!inherits_terms("[package]\nlicense.workspace = true\n"));
        assert!(!inherits_terms("[package]\nrust-version.workspace = true\n"));
    }

    #[test]
    fn p7_only_forbid_bans_unsafe_code() {
        assert!(forbids_unsafe_code("[workspace.lints.rust]\nunsafe_code = \"forbid\"\n"));
        assert!(!forbids_unsafe_code("[workspace.lints.rust]\nunsafe_code = \"deny\"\n"));
        assert!(!forbids_unsafe_code("[workspace.lints.clippy]\nunsafe_code = \"forbid\"\n"));
    }
}
