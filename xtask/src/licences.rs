//! The allowed licences of packages in the dependency graph.
//!
//! A manifest states its licence as an SPDX expression, or in cargo's older form with a slash for "or". A
//! package passes if allowed licences alone can satisfy the expression. Expressions that cannot be parsed are
//! refused. `deny.toml` has the same list, for cargo-deny where that is installed; a test compares the two.

use spdx::{Expression, Licensee, ParseMode};

use crate::metadata::Package;

/// The licences that are acceptable for users of Perennial, whatever they build. An exception is part of the
/// name.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The packages with licences that are not allowed, one line each.
pub(crate) fn violations(packages: &[Package]) -> Vec<String> {
    packages.iter().filter_map(violation).collect()
}

fn violation(package: &Package) -> Option<String> {
    let complaint = match package.licence.as_deref().map(|licence| (licence, is_allowed(licence))) {
        None => "states no licence".to_owned(),
        Some((licence, Err(reason))) => format!("licence `{licence}` cannot be parsed: {reason}"),
        Some((_, Ok(true))) => return None,
        Some((licence, Ok(false))) => format!("licence `{licence}` is not allowed"),
    };
    Some(format!("{} {}: {complaint}", package.name, package.version))
}

/// Whether allowed licences can satisfy an expression.
pub(crate) fn is_allowed(licence: &str) -> Result<bool, String> {
    let mode = ParseMode { allow_slash_as_or_operator: true, ..ParseMode::STRICT };
    let expression = Expression::parse_mode(licence, mode).map_err(|error| error.reason.to_string())?;
    let allowed: Vec<Licensee> = ALLOWED
        .iter()
        .map(|name| Licensee::parse(name).expect("the list contains only SPDX licences"))
        .collect();
    Ok(expression.evaluate(|wanted| allowed.iter().any(|one| one.satisfies(wanted))))
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, is_allowed, violations};
    use crate::command::workspace_root;
    use crate::metadata::Package;

    #[test]
    fn p7_allowed_licences_have_to_satisfy_the_expression() {
        for licence in [
            "MIT",
            "GPL-3.0-only OR MIT",
            "MIT/Apache-2.0",
            "MIT AND ISC",
            "MIT OR ISC AND GPL-3.0-only",
            "ISC AND ((GPL-3.0-only AND MIT) OR (Apache-2.0))",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(is_allowed(licence), Ok(true), "{licence}");
        }
        for licence in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR ISC) AND GPL-3.0-only",
            "GPL-2.0-only WITH Classpath-exception-2.0",
            "MIT WITH LLVM-exception",
        ] {
            assert_eq!(is_allowed(licence), Ok(false), "{licence}");
        }
    }

    #[test]
    fn p7_what_cannot_be_read_is_refused() {
        for licence in ["", "MIT OR", "OR MIT", "MIT ISC", "(MIT OR ISC", "my own"] {
            assert!(is_allowed(licence).is_err(), "{licence}");
        }
    }

    #[test]
    fn p7_a_violation_names_the_package_and_the_reason() {
        let package = |name: &str, licence: Option<&str>| Package {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            licence: licence.map(str::to_owned),
            manifest: "Cargo.toml".into(),
            is_member: false,
        };
        let packages = [
            package("fine", Some("MIT OR Apache-2.0")),
            package("copyleft", Some("GPL-3.0-only")),
            package("silent", None),
        ];
        assert_eq!(
            violations(&packages),
            ["copyleft 1.2.3: licence `GPL-3.0-only` is not allowed", "silent 1.2.3: states no licence"]
        );
    }

    #[test]
    fn p7_cargo_deny_goes_by_the_same_list() {
        let text = std::fs::read_to_string(workspace_root().join("deny.toml")).unwrap();
        let deny: toml::Table = text.parse().unwrap();
        let allowed = deny["licenses"]["allow"].as_array().unwrap();
        let allowed: Vec<&str> = allowed.iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(allowed, ALLOWED);
    }
}
