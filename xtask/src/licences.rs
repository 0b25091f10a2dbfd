//! Which licences a package of the dependency graph may have.
//!
//! A manifest states its licence as an SPDX expression, or in cargo's older form with a slash for "or". A
//! package passes if allowed licences alone can satisfy the expression. What cannot be read is refused.

use crate::metadata::Package;

/// The licences that users of Perennial can live with, whatever they build. An exception is part of the name.
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

/// The packages that may not be used, one line each.
pub(crate) fn violations(packages: &[Package]) -> Vec<String> {
    packages.iter().filter_map(violation).collect()
}

fn violation(package: &Package) -> Option<String> {
    let complaint = match package.licence.as_deref().map(|licence| (licence, Expression::parse(licence))) {
        None => "states no licence".to_owned(),
        Some((licence, Err(error))) => format!("licence `{licence}` cannot be read: {error}"),
        Some((_, Ok(expression))) if expression.is_satisfied_by(ALLOWED) => return None,
        Some((licence, Ok(_))) => format!("licence `{licence}` is not allowed"),
    };
    Some(format!("{} {}: {complaint}", package.name, package.version))
}

/// A licence expression. `WITH` binds closest, then `AND`, then `OR`.
#[derive(Debug, PartialEq, Eq)]
enum Expression {
    /// One licence, with its exception if it has one.
    Licence(String),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

impl Expression {
    fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text);
        let mut parser = Parser { tokens: &tokens };
        let expression = parser.any()?;
        match parser.tokens.first() {
            None => Ok(expression),
            Some(token) => Err(format!("`{token}` is not expected here")),
        }
    }

    fn is_satisfied_by(&self, allowed: &[&str]) -> bool {
        match self {
            // `+` offers the later versions as well, so the one we know is among the choices.
            Self::Licence(name) => allowed.contains(&name.strip_suffix('+').unwrap_or(name)),
            Self::All(parts) => parts.iter().all(|part| part.is_satisfied_by(allowed)),
            Self::Any(parts) => parts.iter().any(|part| part.is_satisfied_by(allowed)),
        }
    }
}

/// Words and parentheses; the slash of the older form reads as `OR`.
fn tokens(text: &str) -> Vec<String> {
    text.replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ")
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// Reads an expression from the front of its tokens, one method per level of binding.
struct Parser<'a> {
    tokens: &'a [String],
}

impl Parser<'_> {
    fn any(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.all()?];
        while self.accept("OR") {
            parts.push(self.all()?);
        }
        Ok(single_or(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.one()?];
        while self.accept("AND") {
            parts.push(self.one()?);
        }
        Ok(single_or(parts, Expression::All))
    }

    fn one(&mut self) -> Result<Expression, String> {
        if self.accept("(") {
            let inner = self.any()?;
            return if self.accept(")") { Ok(inner) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let licence = self.name()?;
        if self.accept("WITH") {
            let exception = self.name()?;
            return Ok(Expression::Licence(format!("{licence} WITH {exception}")));
        }
        Ok(Expression::Licence(licence))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.tokens.split_first() {
            None => Err("it ends where a name is expected".to_owned()),
            Some((token, _)) if matches!(token.as_str(), "(" | ")" | "AND" | "OR" | "WITH") => {
                Err(format!("`{token}` stands where a name is expected"))
            }
            Some((token, rest)) => {
                self.tokens = rest;
                Ok(token.clone())
            }
        }
    }

    fn accept(&mut self, expected: &str) -> bool {
        match self.tokens.split_first() {
            Some((token, rest)) if token == expected => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }
}

fn single_or(mut parts: Vec<Expression>, combine: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 { parts.remove(0) } else { combine(parts) }
}

#[cfg(test)]
mod tests {
    use super::{Expression, Package, violations};

    const GOOD: &[&str] = &["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"];

    #[track_caller]
    fn assert_allowed(licence: &str) {
        assert!(Expression::parse(licence).unwrap().is_satisfied_by(GOOD), "{licence}");
    }

    #[track_caller]
    fn assert_refused(licence: &str) {
        assert!(!Expression::parse(licence).unwrap().is_satisfied_by(GOOD), "{licence}");
    }

    #[track_caller]
    fn assert_unreadable(licence: &str, complaint: &str) {
        assert_eq!(Expression::parse(licence).unwrap_err(), complaint, "{licence}");
    }

    #[test]
    fn a_single_licence_must_be_on_the_list() {
        assert_allowed("MIT");
        assert_refused("GPL-3.0-only");
        assert_refused("MIT-Modern-Variant");
        assert_refused("mit");
    }

    #[test]
    fn of_a_choice_one_allowed_licence_is_enough() {
        assert_allowed("MIT OR Apache-2.0");
        assert_allowed("GPL-3.0-only OR MIT");
        assert_allowed("GPL-2.0-only OR LGPL-2.1-or-later OR ISC");
        assert_refused("GPL-3.0-only OR LGPL-3.0-only");
    }

    #[test]
    fn a_slash_is_a_choice() {
        assert_allowed("MIT/Apache-2.0");
        assert_allowed("GPL-3.0-only / MIT");
        assert_refused("GPL-2.0/GPL-3.0");
    }

    #[test]
    fn of_a_conjunction_every_licence_must_be_allowed() {
        assert_allowed("MIT AND ISC");
        assert_refused("MIT AND GPL-3.0-only");
        assert_refused("GPL-3.0-only AND MIT");
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert_allowed("MIT OR ISC AND GPL-3.0-only");
        assert_allowed("GPL-3.0-only AND ISC OR MIT");
        assert_refused("GPL-3.0-only OR ISC AND GPL-2.0-only");
    }

    #[test]
    fn parentheses_change_what_binds() {
        assert_refused("(MIT OR ISC) AND GPL-3.0-only");
        assert_allowed("(MIT OR GPL-3.0-only) AND ISC");
        assert_allowed("ISC AND ((GPL-3.0-only AND MIT) OR (Apache-2.0))");
        assert_allowed("(MIT/GPL-3.0-only) AND ISC");
        assert_allowed("(MIT)");
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        assert_allowed("Apache-2.0 WITH LLVM-exception");
        assert_allowed("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only");
        assert_allowed("ISC AND Apache-2.0 WITH LLVM-exception");
        assert_refused("GPL-2.0-only WITH Classpath-exception-2.0");
        assert_refused("MIT WITH LLVM-exception");
    }

    #[test]
    fn or_later_includes_the_version_we_allow() {
        assert_allowed("Apache-2.0+");
        assert_refused("GPL-2.0+");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        assert_unreadable("", "it ends where a name is expected");
        assert_unreadable("MIT OR", "it ends where a name is expected");
        assert_unreadable("OR MIT", "`OR` stands where a name is expected");
        assert_unreadable("MIT ISC", "`ISC` is not expected here");
        assert_unreadable("(MIT OR ISC", "a parenthesis is not closed");
        assert_unreadable("MIT) OR ISC", "`)` is not expected here");
        assert_unreadable("Apache-2.0 WITH", "it ends where a name is expected");
        assert_unreadable("(MIT) WITH LLVM-exception", "`WITH` is not expected here");
        assert_unreadable("MIT or ISC", "`or` is not expected here");
        assert_unreadable("()", "`)` stands where a name is expected");
    }

    #[test]
    fn a_violation_names_the_package_and_the_reason() {
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
            package("garbled", Some("MIT AND")),
        ];
        assert_eq!(
            violations(&packages),
            [
                "copyleft 1.2.3: licence `GPL-3.0-only` is not allowed",
                "silent 1.2.3: states no licence",
                "garbled 1.2.3: licence `MIT AND` cannot be read: it ends where a name is expected",
            ]
        );
    }
}
