//! Which instances a list shows.

use std::fmt;
use std::str::FromStr;

use perennial_core::store::{Comparison, Condition, Criteria, FilterError, Status};
use perennial_core::{InstanceKey, Payload, Timestamp};
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::error::ClientError;
use crate::typed::RunTarget;

/// Which instances a list shows, and in which order. Everything that is asked for has to hold; a new filter shows all.
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
/// // The same as text, as the command and URLs have it.
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
/// | `created_before=…`, `ended_before=…` | started or ended before then |
/// | `order=newest` | newest first; `order=oldest` is the default |
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Filter {
    criteria: Criteria,
    /// Why an attribute cannot be compared with what was given, if so.
    problem: Option<String>,
}

impl Filter {
    /// All instances, oldest first.
    pub fn new() -> Filter {
        Filter::default()
    }

    /// Only instances of an orchestration: a marked function, an [`Orchestration`](crate::Orchestration) or a name.
    pub fn orchestration<T: RunTarget<K>, K>(mut self, orchestration: T) -> Filter {
        self.criteria.name = Some(orchestration.name().into_owned());
        self
    }

    /// Only instances of this version of their orchestration.
    pub fn version(mut self, version: impl Into<String>) -> Filter {
        self.criteria.version = Some(version.into());
        self
    }

    /// Only instances with this status, or one of those that were asked for before.
    pub fn status(self, status: Status) -> Filter {
        self.statuses([status])
    }

    /// Only instances with one of these statuses, or of those that were asked for before.
    pub fn statuses(mut self, statuses: impl IntoIterator<Item = Status>) -> Filter {
        for status in statuses {
            if !self.criteria.statuses.contains(&status) {
                self.criteria.statuses.push(status);
            }
        }
        self
    }

    /// Only instances whose id begins like this.
    pub fn id_prefix(mut self, prefix: impl Into<String>) -> Filter {
        self.criteria.id_prefix = Some(prefix.into());
        self
    }

    /// Only instances that are blocked, or only those that are not.
    pub fn blocked(mut self, blocked: bool) -> Filter {
        self.criteria.blocked = Some(blocked);
        self
    }

    /// Only instances that are paused, alone or with their orchestration, or only those that are not. What is paused is
    /// blocked, too.
    pub fn paused(mut self, paused: bool) -> Filter {
        self.criteria.paused = Some(paused);
        self
    }

    /// Only children of the instance with this key.
    pub fn parent(mut self, parent: InstanceKey) -> Filter {
        self.criteria.parent = Some(parent);
        self
    }

    /// Only instances whose attribute has this value: `1` equals `1.0`. A value that cannot be written as JSON is
    /// reported by the call that the filter is given to.
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

    /// Only instances for which a test of an attribute holds. See [`attribute`](crate::attribute).
    pub fn condition(self, condition: Condition) -> Filter {
        self.conditions([condition])
    }

    /// Only instances for which all these tests of attributes hold.
    pub fn conditions(mut self, conditions: impl IntoIterator<Item = Condition>) -> Filter {
        self.criteria.conditions.extend(conditions);
        self
    }

    /// Only instances that were started at this time or later.
    pub fn created_from(mut self, time: impl Into<Timestamp>) -> Filter {
        self.criteria.created_from_ms = Some(time.into().as_millis());
        self
    }

    /// Only instances that were started before this time.
    pub fn created_before(mut self, time: impl Into<Timestamp>) -> Filter {
        self.criteria.created_before_ms = Some(time.into().as_millis());
        self
    }

    /// Only instances that ended before this time.
    pub fn ended_before(mut self, time: impl Into<Timestamp>) -> Filter {
        self.criteria.ended_before_ms = Some(time.into().as_millis());
        self
    }

    /// Whether the newest instances come first. Default: the oldest do.
    pub fn newest_first(mut self, newest_first: bool) -> Filter {
        self.criteria.newest_first = newest_first;
        self
    }

    /// What is asked for, as stores get it.
    pub fn criteria(&self) -> &Criteria {
        &self.criteria
    }

    /// What is asked for, unless it cannot be.
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
            return Err(term.problem("only attributes can be compared with anything but `=`"));
        }
        Ok(match term.field {
            "status" => self.statuses(term.statuses()?),
            "name" => self.orchestration(term.text()?),
            "version" => self.version(term.text()?),
            "id_prefix" => self.id_prefix(term.text()?),
            "blocked" => self.blocked(term.truth()?),
            "paused" => self.paused(term.truth()?),
            "parent" => self.parent(term.text()?.parse().map_err(|_| term.problem("it is not a key"))?),
            "created_from" | "created_from_ms" => self.created_from(term.time()?),
            "created_before" | "created_before_ms" => self.created_before(term.time()?),
            "ended_before" | "ended_before_ms" => self.ended_before(term.time()?),
            "order" => match term.value {
                "newest" => self.newest_first(true),
                "oldest" => self.newest_first(false),
                _ => return Err(term.problem("it is `newest` or `oldest`")),
            },
            _ => return Err(term.problem(FIELDS)),
        })
    }
}

const FIELDS: &str = "the fields are status, name, version, id_prefix, blocked, paused, parent, created_from, \
                      created_before, ended_before, order and attr.NAME";

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

/// One term of a filter's text.
struct Term<'a> {
    field: &'a str,
    operator: &'static str,
    value: &'a str,
}

impl<'a> Term<'a> {
    /// The first term of a text, and what comes after it.
    fn first(text: &'a str) -> Result<(Term<'a>, &'a str), FilterError> {
        let whole = || text.split_whitespace().next().unwrap_or_default();
        let wrong = || FilterError::new(format!("{:?} is not FIELD=VALUE", whole()));
        let place = text.find(|c: char| "=^<>".contains(c) || c.is_whitespace()).ok_or_else(wrong)?;
        let (field, rest) = text.split_at(place);
        let operators = ["^=", "<=", ">=", "=", "<", ">"];
        let operator = operators.into_iter().find(|operator| rest.starts_with(operator)).ok_or_else(wrong)?;
        let rest = &rest[operator.len()..];
        let end = if rest.starts_with(['"', '[', '{']) {
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
        self.value.parse().map_err(|_| self.problem("it is `true` or `false`"))
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
        let Criteria { created_from_ms, created_before_ms, ended_before_ms, .. } = self.criteria;
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
            ("ended_before", ended_before_ms.map(time)),
            ("order", self.criteria.newest_first.then(|| "newest".to_owned())),
        ];
        let single = single.into_iter().filter_map(|(field, value)| Some(format!("{field}={}", value?)));
        let conditions = self.criteria.conditions.iter().map(|condition| format!("attr.{condition}"));
        f.write_str(&single.chain(conditions).collect::<Vec<_>>().join(" "))
    }
}

/// A text as the value of a term.
fn quoted(text: &str) -> String {
    let is_plain = !text.is_empty() && !text.starts_with('"') && !text.contains(char::is_whitespace);
    if is_plain { text.to_owned() } else { Payload::from(text).as_json().to_owned() }
}
