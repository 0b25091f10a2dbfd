//! Filters for listing instances.

use std::fmt;
use std::str::FromStr;

use perennial_core::store::{Comparison, Condition, Criteria, FilterError, Status};
use perennial_core::{InstanceKey, Payload, Timestamp};
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::error::ClientError;
use crate::typed::RunTarget;

/// Selects and orders instances for a list. An instance has to meet all conditions; a new filter selects all
/// instances.
///
/// ```
/// use perennial::prelude::*;
/// use perennial::{Filter, attribute};
///
/// #[orchestration]
/// async fn order(_: OrchestrationContext, cents: u64) -> Result<u64, String> {
///     Ok(cents)
/// }
///
/// let filter = Filter::new()
///     .orchestration(order)
///     .status(Status::Completed)
///     .attribute("customer", 7)
///     .condition(attribute("city").starts_with("Os"));
/// // The same filter as text, for the command line and URLs.
/// let text = "status=completed name=order attr.customer=7 attr.city^=Os";
/// assert_eq!(text.parse::<Filter>()?, filter);
/// assert_eq!(filter.to_string(), text);
/// # Ok::<(), perennial::FilterError>(())
/// ```
///
/// # As text
///
/// Terms are separated by spaces. A value that contains spaces is written as a JSON string.
///
/// | term | meaning |
/// |---|---|
/// | `status=running,failed` | one of these statuses |
/// | `name=order` | the orchestration |
/// | `version=1.2.0` | its version |
/// | `id_prefix=order-` | how the id begins |
/// | `blocked=true`, `paused=false` | whether it is blocked or paused |
/// | `parent=KEY` | the children of the instance with this key |
/// | `attr.city=Oslo` | an attribute by value; also `^=` (prefix), `<`, `<=`, `>`, `>=` |
/// | `created_from=2026-11-16` | started then or later; RFC 3339, a date, or milliseconds since 1970 |
/// | `ended_from=…` | ended then or later |
/// | `created_before=…`, `ended_before=…` | started or ended before then |
/// | `order=newest` | newest first; `order=oldest` is the default |
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Filter {
    criteria: Criteria,
    /// Set if the value given for an attribute cannot be written as JSON.
    problem: Option<String>,
}

impl Filter {
    /// Selects all instances, oldest first.
    pub fn new() -> Filter {
        Filter::default()
    }

    /// Selects instances of an orchestration: a marked function, an [`Orchestration`](crate::Orchestration)
    /// or a name.
    pub fn orchestration<T: RunTarget<K>, K>(mut self, orchestration: T) -> Filter {
        self.criteria.name = Some(orchestration.name().into_owned());
        self
    }

    /// Selects instances of this version of their orchestration.
    pub fn version(mut self, version: impl Into<String>) -> Filter {
        self.criteria.version = Some(version.into());
        self
    }

    /// Selects instances with this status. Further calls add statuses.
    pub fn status(self, status: Status) -> Filter {
        self.statuses([status])
    }

    /// Selects instances with one of these statuses. Further calls add statuses.
    pub fn statuses(mut self, statuses: impl IntoIterator<Item = Status>) -> Filter {
        for status in statuses {
            if !self.criteria.statuses.contains(&status) {
                self.criteria.statuses.push(status);
            }
        }
        self
    }

    /// Selects instances whose id begins with this prefix.
    pub fn id_prefix(mut self, prefix: impl Into<String>) -> Filter {
        self.criteria.id_prefix = Some(prefix.into());
        self
    }

    /// Selects instances that are blocked, or those that are not.
    pub fn blocked(mut self, blocked: bool) -> Filter {
        self.criteria.blocked = Some(blocked);
        self
    }

    /// Selects instances that are paused, alone or together with their orchestration, or those that are not.
    /// A paused instance is also blocked.
    pub fn paused(mut self, paused: bool) -> Filter {
        self.criteria.paused = Some(paused);
        self
    }

    /// Selects children of the instance with this key.
    pub fn parent(mut self, parent: InstanceKey) -> Filter {
        self.criteria.parent = Some(parent);
        self
    }

    /// Selects instances whose attribute has this value: `1` equals `1.0`. If the value cannot be written as
    /// JSON, the call that gets the filter returns the error.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Serialize) -> Filter {
        let attribute = name.into();
        match Payload::encode(&value) {
            Ok(value) => self.condition(Condition { attribute, comparison: Comparison::Equal(value) }),
            Err(error) => {
                self.problem.get_or_insert_with(|| format!("attribute {attribute:?}: {error}"));
                self
            }
        }
    }

    /// Selects instances that meet a condition on an attribute. See [`attribute`](crate::attribute).
    pub fn condition(self, condition: Condition) -> Filter {
        self.conditions([condition])
    }

    /// Selects instances that meet all these conditions on attributes.
    pub fn conditions(mut self, conditions: impl IntoIterator<Item = Condition>) -> Filter {
        self.criteria.conditions.extend(conditions);
        self
    }

    /// Selects instances that were started at this time or later.
    pub fn created_from(mut self, time: impl Into<Timestamp>) -> Filter {
        self.criteria.created_from_ms = Some(time.into().as_millis());
        self
    }

    /// Selects instances that were started before this time.
    pub fn created_before(mut self, time: impl Into<Timestamp>) -> Filter {
        self.criteria.created_before_ms = Some(time.into().as_millis());
        self
    }

    /// Selects instances that ended at this time or later.
    pub fn ended_from(mut self, time: impl Into<Timestamp>) -> Filter {
        self.criteria.ended_from_ms = Some(time.into().as_millis());
        self
    }

    /// Selects instances that ended before this time.
    pub fn ended_before(mut self, time: impl Into<Timestamp>) -> Filter {
        self.criteria.ended_before_ms = Some(time.into().as_millis());
        self
    }

    /// Sets whether the newest instances come first. Default: `false`.
    pub fn newest_first(mut self, newest_first: bool) -> Filter {
        self.criteria.newest_first = newest_first;
        self
    }

    /// The criteria as a store gets them.
    pub fn criteria(&self) -> &Criteria {
        &self.criteria
    }

    /// The criteria, or the error of the first value that could not be written.
    pub(crate) fn into_criteria(self) -> Result<Criteria, ClientError> {
        match self.problem {
            Some(problem) => Err(ClientError::unwritable("", problem)),
            None => Ok(self.criteria),
        }
    }

    fn with(self, term: &Term<'_>) -> Result<Filter, FilterError> {
        if let Some(name) = term.field.strip_prefix("attr.") {
            let condition: Condition = format!("{name}{}{}", term.operator, term.value).parse()?;
            return Ok(self.condition(condition));
        }
        if term.operator != "=" {
            return Err(term.problem(
                "only attributes can be compared with anything but `=`; write an attribute as attr.NAME",
            ));
        }
        Ok(match term.field {
            "status" => self.statuses(term.statuses()?),
            "name" => self.orchestration(term.text()?),
            "version" => self.version(term.text()?),
            "id_prefix" => self.id_prefix(term.text()?),
            "blocked" => self.blocked(term.truth()?),
            "paused" => self.paused(term.truth()?),
            "parent" => self.parent(term.text()?.parse().map_err(|_| term.problem("this is not a key"))?),
            "created_from" | "created_from_ms" => self.created_from(term.time()?),
            "created_before" | "created_before_ms" => self.created_before(term.time()?),
            "ended_from" | "ended_from_ms" => self.ended_from(term.time()?),
            "ended_before" | "ended_before_ms" => self.ended_before(term.time()?),
            "order" => match term.value {
                "newest" => self.newest_first(true),
                "oldest" => self.newest_first(false),
                _ => return Err(term.problem("the value is `newest` or `oldest`")),
            },
            _ => return Err(term.problem(FIELDS)),
        })
    }
}

const FIELDS: &str = "the fields are status, name, version, id_prefix, blocked, paused, parent, created_from, \
                      created_before, ended_from, ended_before, order and attr.NAME";

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let (mut filter, mut rest) = (Filter::new(), text.trim_start());
        while !rest.is_empty() {
            let (term, after) = Term::first(rest)?;
            filter = filter.with(&term)?;
            rest = after.trim_start();
        }
        Ok(filter)
    }
}

/// One term of the text form.
struct Term<'a> {
    field: &'a str,
    operator: &'static str,
    value: &'a str,
}

impl<'a> Term<'a> {
    /// Splits the first term off a text.
    fn first(text: &'a str) -> Result<(Term<'a>, &'a str), FilterError> {
        let whole = || text.split_whitespace().next().unwrap_or_default();
        let wrong = || FilterError::new(format!("{:?} is not FIELD=VALUE", whole()));
        let place = text.find(|c: char| "=^<>".contains(c) || c.is_whitespace()).ok_or_else(wrong)?;
        let (field, rest) = text.split_at(place);
        let operators = ["^=", "<=", ">=", "=", "<", ">"];
        let operator = operators.into_iter().find(|operator| rest.starts_with(operator)).ok_or_else(wrong)?;
        let rest = &rest[operator.len()..];
        // Lists and objects are values of attributes; elsewhere the text means itself.
        let is_value = field.starts_with("attr.") && operator != "^=";
        let is_json = rest.starts_with('"') || is_value && rest.starts_with(['[', '{']);
        let end = if is_json {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
            match values.next() {
                Some(Ok(_)) => values.byte_offset(),
                _ => return Err(FilterError::new(format!("{:?}: the value is not JSON", whole()))),
            }
        } else {
            rest.find(char::is_whitespace).unwrap_or(rest.len())
        };
        let (value, after) = rest.split_at(end);
        if field.is_empty() || after.starts_with(|c: char| !c.is_whitespace()) {
            return Err(wrong());
        }
        Ok((Term { field, operator, value }, after))
    }

    fn problem(&self, what: &str) -> FilterError {
        FilterError::new(format!("{:?}: {what}", format!("{}{}{}", self.field, self.operator, self.value)))
    }

    fn text(&self) -> Result<String, FilterError> {
        if !self.value.starts_with('"') {
            return Ok(self.value.to_owned());
        }
        serde_json::from_str(self.value).map_err(|error| self.problem(&error.to_string()))
    }

    fn statuses(&self) -> Result<Vec<Status>, FilterError> {
        let status = |name: &str| {
            let found = Status::ALL.into_iter().find(|status| status.name() == name);
            let known = || Status::ALL.map(|status| status.name()).join(", ");
            found.ok_or_else(|| self.problem(&format!("the statuses are {}", known())))
        };
        self.value.split(',').map(status).collect()
    }

    fn truth(&self) -> Result<bool, FilterError> {
        self.value.parse().map_err(|_| self.problem("the value is `true` or `false`"))
    }

    fn time(&self) -> Result<Timestamp, FilterError> {
        match self.value.parse() {
            Ok(millis) => Ok(Timestamp::from_millis(millis)),
            Err(_) => self.text()?.parse().map_err(|_| {
                self.problem(
                    "a time is written as 2026-11-16, 2026-11-16T12:00:00Z or milliseconds since 1970",
                )
            }),
        }
    }
}

/// The filter as text that parses as the same filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Criteria { statuses, name, version, id_prefix, blocked, paused, parent, .. } = &self.criteria;
        let Criteria { created_from_ms, created_before_ms, ended_from_ms, ended_before_ms, .. } =
            self.criteria;
        let time = |millis: u64| Timestamp::from_millis(millis).to_string();
        let names = statuses.iter().map(|status| status.name()).collect::<Vec<_>>().join(",");
        let single = [
            ("status", Some(names).filter(|names| !names.is_empty())),
            ("name", name.as_deref().map(quoted)),
            ("version", version.as_deref().map(quoted)),
            ("id_prefix", id_prefix.as_deref().map(quoted)),
            ("blocked", blocked.map(|blocked| blocked.to_string())),
            ("paused", paused.map(|paused| paused.to_string())),
            ("parent", parent.map(|parent| parent.to_string())),
            ("created_from", created_from_ms.map(time)),
            ("created_before", created_before_ms.map(time)),
            ("ended_from", ended_from_ms.map(time)),
            ("ended_before", ended_before_ms.map(time)),
            ("order", self.criteria.newest_first.then(|| "newest".to_owned())),
        ];
        let single = single.into_iter().filter_map(|(field, value)| Some(format!("{field}={}", value?)));
        let conditions = self.criteria.conditions.iter().map(|condition| format!("attr.{condition}"));
        f.write_str(&single.chain(conditions).collect::<Vec<_>>().join(" "))
    }
}

/// Quotes a text as the value of a term, if necessary.
fn quoted(text: &str) -> String {
    let is_plain = !text.is_empty() && !text.starts_with('"') && !text.contains(char::is_whitespace);
    if is_plain { text.to_owned() } else { Payload::from(text).as_json().to_owned() }
}
