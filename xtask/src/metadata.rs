//! The packages of this workspace and all their dependencies, according to cargo, for all features and
//! platforms, including tests and build scripts.

use std::path::PathBuf;

use serde_json::Value;

use crate::command::{self, Failure, cargo};

const STEP: &str = "metadata";

/// One package of the dependency graph, ours or not.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence expression of its manifest.
    pub(crate) licence: Option<String>,
    pub(crate) manifest: PathBuf,
    /// Whether it belongs to this workspace.
    pub(crate) is_member: bool,
}

/// All packages of the graph.
pub(crate) fn packages() -> Result<Vec<Package>, Failure> {
    let output =
        command::read(STEP, cargo(&["metadata", "--locked", "--format-version", "1", "--all-features"]))?;
    let metadata: Value = serde_json::from_slice(&output).map_err(|error| Failure::new(STEP, error))?;
    decode(&metadata).ok_or_else(|| Failure::new(STEP, "the output does not have format version 1"))
}

fn decode(metadata: &Value) -> Option<Vec<Package>> {
    let members = metadata["workspace_members"].as_array()?;
    let package = |package: &Value| {
        Some(Package {
            name: package["name"].as_str()?.to_owned(),
            version: package["version"].as_str()?.to_owned(),
            licence: package["license"].as_str().map(str::to_owned),
            manifest: package["manifest_path"].as_str()?.into(),
            is_member: members.contains(&package["id"]),
        })
    };
    metadata["packages"].as_array()?.iter().map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::decode;
    use serde_json::json;

    #[test]
    fn members_are_told_from_dependencies() {
        let metadata = json!({
            "workspace_members": ["ours 1"],
            "packages": [
                {"id": "ours 1", "name": "ours", "version": "1.0.0", "license": "MIT", "manifest_path": "a"},
                {"id": "else 2", "name": "else", "version": "2.0.0", "license": null, "manifest_path": "b"},
            ],
        });
        let packages = decode(&metadata).unwrap();
        let seen: Vec<_> = packages
            .iter()
            .map(|package| (package.name.as_str(), package.licence.as_deref(), package.is_member))
            .collect();
        assert_eq!(seen, [("ours", Some("MIT"), true), ("else", None, false)]);
    }

    #[test]
    fn an_unknown_shape_is_not_taken_for_an_empty_workspace() {
        assert!(decode(&json!({})).is_none());
        assert!(decode(&json!({"workspace_members": [], "packages": [{}]})).is_none());
    }
}
