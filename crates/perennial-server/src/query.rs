//! The parameters of a request, checked against those of its route: a misspelled filter must not show everything.

use perennial::InstanceKey;

use crate::problem::{self, Problem};
use crate::segment::percent_decode;

/// A parameter that a route takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// The name; a name that ends with `.` takes any name that begins with it.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Whether it can be given several times.
    pub(crate) many: bool,
    pub(crate) about: &'static str,
}

/// What a parameter's value may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    Flag,
    Number(u64, u64),
    Key,
    Json,
    OneOf(&'static [&'static str]),
    /// Names of a list, separated by commas.
    SomeOf(&'static [&'static str]),
}

/// A parameter that is given at most once.
pub(crate) const fn parameter(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, many: false, about }
}

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Query {
    given: Vec<(String, String)>,
}

impl Query {
    /// Parses the query of a URL and checks every value.
    pub(crate) fn parse(query: Option<&str>, allowed: &[Parameter]) -> Result<Query, Problem> {
        let mut given: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (text(name)?, text(value)?);
            let known = allowed.iter().find(|parameter| parameter.takes(&name));
            let Some(parameter) = known else {
                let names: Vec<&str> = allowed.iter().map(|parameter| parameter.name).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(Problem::bad_request(format!(
                    "unknown parameter {name:?}; this route takes {names}"
                )));
            };
            if !parameter.many && given.iter().any(|(other, _)| *other == name) {
                return Err(Problem::bad_request(format!("the parameter {name:?} is given twice")));
            }
            parameter.kind.check(&name, &value)?;
            given.push((name, value));
        }
        Ok(Query { given })
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter that can be given several times.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.given.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The values of parameters whose names begin with a prefix, each with the rest of its name.
    pub(crate) fn beginning<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.given.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).map(|value| value == "true" || value.is_empty())
    }

    pub(crate) fn key(&self, name: &str) -> Result<Option<InstanceKey>, Problem> {
        self.text(name).map(problem::key).transpose()
    }

    /// The parameters in a fixed order, without some, to recognise a list by.
    pub(crate) fn canonical(&self, without: &[&str]) -> String {
        let given = self.given.iter().filter(|(name, _)| !without.contains(&name.as_str()));
        let mut pairs: Vec<String> = given.map(|(name, value)| format!("{name}={value}")).collect();
        pairs.sort();
        pairs.join("&")
    }

    /// The members of a list that is separated by commas.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.text(name)
            .map(|list| list.split(',').filter(|part| !part.is_empty()).collect())
            .unwrap_or_default()
    }
}

impl Parameter {
    fn takes(&self, name: &str) -> bool {
        match self.name.ends_with('.') {
            true => name.len() > self.name.len() && name.starts_with(self.name),
            false => name == self.name,
        }
    }
}

impl Kind {
    fn check(self, name: &str, value: &str) -> Result<(), Problem> {
        let wrong =
            |expected: String| Problem::bad_request(format!("{name}={value:?}: the value is {expected}"));
        match self {
            Kind::Text => Ok(()),
            Kind::Flag if ["", "true", "false"].contains(&value) => Ok(()),
            Kind::Flag => Err(wrong("`true` or `false`".to_owned())),
            Kind::Number(low, high) => match value.parse::<u64>() {
                Ok(number) if (low..=high).contains(&number) && !value.starts_with('+') => Ok(()),
                _ => Err(wrong(format!("a number from {low} to {high}"))),
            },
            Kind::Key => problem::key(value).map(drop),
            Kind::Json => match perennial::Payload::from_json(value) {
                Ok(_) => Ok(()),
                Err(_) => Err(wrong("JSON, such as 7 or \"Oslo\"".to_owned())),
            },
            Kind::OneOf(names) if names.contains(&value) => Ok(()),
            Kind::OneOf(names) => Err(wrong(format!("one of {}", names.join(", ")))),
            Kind::SomeOf(names) => match value.split(',').find(|part| !names.contains(part)) {
                None => Ok(()),
                Some(_) => Err(wrong(format!("some of {}, separated by commas", names.join(", ")))),
            },
        }
    }
}

fn text(part: &str) -> Result<String, Problem> {
    let decoded = percent_decode(part.as_bytes(), true).and_then(|bytes| String::from_utf8(bytes).ok());
    decoded
        .ok_or_else(|| Problem::bad_request(format!("the query part {part:?} is not percent-encoded UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[Parameter] = &[
        parameter("limit", Kind::Number(1, 500), ""),
        parameter("blocked", Kind::Flag, ""),
        parameter("attr.", Kind::Json, ""),
        parameter("status", Kind::SomeOf(&["running", "failed"]), ""),
        Parameter { many: true, ..parameter("instance", Kind::Text, "") },
    ];

    #[test]
    fn h15_unknown_repeated_and_malformed_parameters_are_refused_by_name() {
        let refused = |query: &str| format!("{:?}", Query::parse(Some(query), ALLOWED).unwrap_err());
        assert!(refused("limmit=5").contains("limmit"));
        assert!(refused("limit=5&limit=6").contains("twice"));
        for wrong in
            ["limit=0", "limit=501", "limit=+5", "limit=", "blocked=yes", "attr.=1", "attr.a=x", "status=up"]
        {
            assert!(Query::parse(Some(wrong), ALLOWED).is_err(), "{wrong}");
        }
        assert!(Query::parse(Some("attr.a=1&attr.a=2"), ALLOWED).is_err());
        assert!(Query::parse(Some("limit=%zz"), ALLOWED).is_err());
        assert!(Query::parse(Some("instance=%FF"), ALLOWED).is_err());
    }

    #[test]
    fn h15_parameters_are_decoded() {
        let query = "limit=7&instance=a%20b&instance=c+d&attr.city=%22Oslo%22&blocked&status=running,failed";
        let query = Query::parse(Some(query), ALLOWED).unwrap();
        assert_eq!((query.number("limit"), query.flag("blocked")), (Some(7), Some(true)));
        assert_eq!(query.all("instance").collect::<Vec<_>>(), ["a b", "c d"]);
        assert_eq!(query.beginning("attr.").collect::<Vec<_>>(), [("city", "\"Oslo\"")]);
        assert_eq!(query.list("status"), ["running", "failed"]);
        assert_eq!(Query::parse(None, ALLOWED).unwrap().text("limit"), None);
    }
}
