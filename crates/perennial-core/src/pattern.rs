//! Patterns over the names of activities and orchestrations.

use std::collections::BTreeSet;
use std::fmt;

use crate::code::ErrorCode;
use crate::instance::{NameError, check_name};

/// A prefix pattern: `http.*` matches all names that begin with `http.`, and `*` matches all names.
///
/// ```
/// use perennial_core::NamePattern;
///
/// let pattern = NamePattern::parse("http.*").unwrap();
/// assert!(pattern.covers("http.get") && !pattern.covers("https.get"));
/// assert!(NamePattern::parse("http").is_err(), "a pattern ends with a star");
/// assert!(NamePattern::parse("*.get").is_err(), "and has no other");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamePattern {
    prefix: String,
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It does not end with a star, or contains another one.
    #[error(
        "{prefix}: a pattern is a prefix of names followed by one star, as in \"http.*\"", prefix = self.code().prefix())]
    NotAPrefix,
    /// No valid name begins like this.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl NamePattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<NamePattern, PatternError> {
        let prefix = text.strip_suffix('*').filter(|prefix| !prefix.contains('*'));
        let prefix = prefix.ok_or(PatternError::NotAPrefix)?;
        if !prefix.is_empty() {
            check_name(prefix)?;
        }
        Ok(NamePattern { prefix: prefix.to_owned() })
    }

    /// Whether the pattern matches a name.
    pub fn covers(&self, name: &str) -> bool {
        name.starts_with(&self.prefix)
    }

    /// The prefix of all matching names.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", self.prefix)
    }
}

/// Whether a text is a name, or a pattern that matches it. Names may contain stars, so the name itself is compared first.
pub(crate) fn names(text: &str, name: &str) -> bool {
    text == name || text.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix))
}

/// Whether a name begins with one of the prefixes.
pub(crate) fn covers(prefixes: &BTreeSet<String>, name: &str) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
}

impl PatternError {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidName
    }
}

crate::error_model!(PatternError);
