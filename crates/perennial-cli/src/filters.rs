//! The arguments that choose instances, for commands that list or change many.

use clap::Args;
use perennial::{Condition, Filter, Payload, Status};

use crate::arguments::payload;

/// The arguments of [`Filters`].
pub(crate) const FILTERS: [&str; 11] = [
    "status",
    "name",
    "at_version",
    "prefix",
    "blocked",
    "paused",
    "attributes",
    "conditions",
    "parent",
    "newest",
    "terms",
];

/// The arguments that set a field which a text of [`Filters::terms`] can set, too.
const FIELDS: [&str; 7] = ["status", "name", "at_version", "prefix", "blocked", "paused", "parent"];

/// A choice of instances. All given conditions must hold.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filters {
    /// Status: pending, running, completed, failed, cancelled, terminated
    #[arg(long, value_delimiter = ',', value_parser = status)]
    pub(crate) status: Vec<Status>,
    /// The orchestration
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The orchestration's version
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) at_version: Option<String>,
    /// A prefix of the id
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Only blocked instances
    #[arg(long)]
    pub(crate) blocked: bool,
    /// Only paused instances
    #[arg(long)]
    pub(crate) paused: bool,
    /// The value of an attribute; VALUE is JSON or text
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, Payload)>,
    /// A condition on an attribute: NAME^=PREFIX, NAME=VALUE, or with <, <=, >, >=
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) conditions: Vec<Condition>,
    /// The children of this instance
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Newest first
    #[arg(long)]
    pub(crate) newest: bool,
    /// All conditions as text, such as "status=running name=order attr.customer=7"
    // With a second value for a field, one of them would be ignored, and the command would do more than was asked for.
    #[arg(long = "filter", value_name = "TERMS", conflicts_with_all = FIELDS)]
    pub(crate) terms: Option<Filter>,
}

impl Filters {
    /// Whether any condition is given.
    pub(crate) fn is_given(&self) -> bool {
        self.terms.is_some()
            || !self.status.is_empty()
            || self.name.is_some()
            || self.at_version.is_some()
            || self.prefix.is_some()
            || self.blocked
            || self.paused
            || !self.attributes.is_empty()
            || !self.conditions.is_empty()
            || self.parent.is_some()
    }
}

fn status(text: &str) -> Result<Status, String> {
    Status::from_name(text).ok_or_else(|| match text {
        "blocked" | "paused" => format!("a {text} instance is pending or running; use --{text}"),
        _ => format!("expected one of {}", Status::ALL.map(Status::name).join(", ")),
    })
}

pub(crate) fn attribute(text: &str) -> Result<(String, Payload), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), payload(value)?))
}
