//! Conditions on attributes that select the instances of a list.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::code::ErrorCode;
use crate::history::Payload;

use super::order_key::{order_key, ordered_type, text_key};

/// A condition on one attribute. An instance without the attribute never matches.
///
/// Values are compared within their type: numbers numerically and exactly; text by Unicode code points, independent of
/// locale; `false` is less than `true`. A value of a different type does not match. Null, lists and objects can only be
/// compared for equality, by their JSON text.
///
/// ```
/// use perennial_core::store::{Condition, attribute};
///
/// let condition: Condition = "city^=Os".parse()?;
/// assert_eq!(condition, attribute("city").starts_with("Os"));
/// let condition: Condition = "total>=99.5".parse()?;
/// assert_eq!(condition, attribute("total").at_least(99.5));
/// # Ok::<(), perennial_core::store::FilterError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The attribute's name.
    pub attribute: String,
    /// The comparison with its value.
    pub comparison: Comparison,
}

/// How a value is compared. See [`Condition`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Comparison {
    /// Equal by value: `1` equals `1.0`. [`Criteria::attributes`](super::Criteria::attributes) compares JSON text
    /// instead.
    Equal(Payload),
    /// Less than this.
    LessThan(Payload),
    /// Less than or equal to this.
    AtMost(Payload),
    /// Greater than this.
    GreaterThan(Payload),
    /// Greater than or equal to this.
    AtLeast(Payload),
    /// Text that begins with this.
    StartsWith(String),
}

/// Names the attribute of a [`Condition`].
pub fn attribute(name: impl Into<String>) -> AttributeName {
    AttributeName(name.into())
}

/// The attribute of a condition that is being built. See [`attribute`].
#[derive(Clone, Debug)]
#[must_use]
pub struct AttributeName(String);

impl AttributeName {
    /// See [`Comparison::Equal`].
    pub fn equal_to(self, value: impl Into<Value>) -> Condition {
        self.is(Comparison::Equal(Payload::from(value.into())))
    }

    /// See [`Comparison::LessThan`].
    pub fn less_than(self, value: impl Into<Value>) -> Condition {
        self.is(Comparison::LessThan(Payload::from(value.into())))
    }

    /// See [`Comparison::AtMost`].
    pub fn at_most(self, value: impl Into<Value>) -> Condition {
        self.is(Comparison::AtMost(Payload::from(value.into())))
    }

    /// See [`Comparison::GreaterThan`].
    pub fn greater_than(self, value: impl Into<Value>) -> Condition {
        self.is(Comparison::GreaterThan(Payload::from(value.into())))
    }

    /// See [`Comparison::AtLeast`].
    pub fn at_least(self, value: impl Into<Value>) -> Condition {
        self.is(Comparison::AtLeast(Payload::from(value.into())))
    }

    /// See [`Comparison::StartsWith`].
    pub fn starts_with(self, prefix: impl Into<String>) -> Condition {
        self.is(Comparison::StartsWith(prefix.into()))
    }

    fn is(self, comparison: Comparison) -> Condition {
        Condition { attribute: self.0, comparison }
    }
}

impl Condition {
    /// Whether a value of the attribute matches.
    pub fn holds(&self, value: &Payload) -> bool {
        self.comparison.keys().contains(&order_key(value))
    }
}

impl Comparison {
    /// The range of order keys of the values that match.
    pub fn keys(&self) -> KeyRange {
        let bounded = |value: &Payload, range: fn(Vec<u8>, u8, u8) -> KeyRange| {
            let key = order_key(value);
            match ordered_type(&key) {
                Some((first, end)) => range(key, first, end),
                None => KeyRange::empty(),
            }
        };
        match self {
            Comparison::Equal(value) => KeyRange::one(order_key(value)),
            Comparison::LessThan(value) => {
                bounded(value, |key, first, _| KeyRange { from: vec![first], before: key })
            }
            Comparison::AtMost(value) => {
                bounded(value, |key, first, _| KeyRange { from: vec![first], before: following(key) })
            }
            Comparison::GreaterThan(value) => {
                bounded(value, |key, _, end| KeyRange { from: following(key), before: vec![end] })
            }
            Comparison::AtLeast(value) => {
                bounded(value, |key, _, end| KeyRange { from: key, before: vec![end] })
            }
            Comparison::StartsWith(prefix) => {
                let from = text_key(prefix);
                let mut before = from.clone();
                // Neither a byte of UTF-8 nor a type byte has the largest value, so incrementing cannot overflow.
                if let Some(last) = before.last_mut() {
                    *last += 1;
                }
                KeyRange { from, before }
            }
        }
    }
}

/// The smallest key greater than this one.
fn following(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// A half-open range of order keys. See [`order_key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key in the range.
    pub from: Vec<u8>,
    /// The first key after the range.
    pub before: Vec<u8>,
}

impl KeyRange {
    /// A range that contains one key.
    pub fn one(key: Vec<u8>) -> KeyRange {
        KeyRange { before: following(key.clone()), from: key }
    }

    fn empty() -> KeyRange {
        KeyRange { from: Vec::new(), before: Vec::new() }
    }

    /// Whether a key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && *key < *self.before
    }

    /// The only key in the range, if it contains exactly one.
    pub fn only(&self) -> Option<&[u8]> {
        let is_one = self.before.strip_suffix(&[0]).is_some_and(|key| *key == *self.from);
        is_one.then_some(&*self.from)
    }

    /// The intersection of two ranges.
    #[must_use]
    pub fn and(self, other: KeyRange) -> KeyRange {
        KeyRange { from: self.from.max(other.from), before: self.before.min(other.before) }
    }
}

/// A text that is not a valid condition or filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{prefix}: {0}", prefix = self.code().prefix())]
pub struct FilterError(String);

impl FilterError {
    /// An error with a description of the problem.
    pub fn new(problem: impl Into<String>) -> FilterError {
        FilterError(problem.into())
    }

    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::BadFilter
    }
}

crate::error_model!(FilterError);

/// Writes the condition as text that parses to the same condition.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, value) = match &self.comparison {
            Comparison::Equal(value) => ("=", value),
            Comparison::LessThan(value) => ("<", value),
            Comparison::AtMost(value) => ("<=", value),
            Comparison::GreaterThan(value) => (">", value),
            Comparison::AtLeast(value) => (">=", value),
            Comparison::StartsWith(prefix) => {
                let is_plain =
                    !prefix.starts_with(['"', '=', '<', '>']) && !prefix.contains(char::is_whitespace);
                let prefix =
                    if is_plain { prefix.clone() } else { Payload::from(&**prefix).as_json().to_owned() };
                return write!(f, "{}^={prefix}", self.attribute);
            }
        };
        write!(f, "{}{operator}{}", self.attribute, value.as_json())
    }
}

impl FromStr for Condition {
    type Err = FilterError;

    /// Parses `NAME=VALUE`, `NAME^=PREFIX`, `NAME>VALUE`, `NAME>=VALUE`, `NAME<VALUE` or `NAME<=VALUE`. A value is
    /// JSON, or otherwise plain text; a prefix is plain text or a JSON string. Whitespace around either side is
    /// ignored.
    fn from_str(text: &str) -> Result<Condition, FilterError> {
        let wrong = || FilterError("write it as NAME=VALUE, NAME^=PREFIX, or with <, <=, > or >=".to_owned());
        let place = text.find(['=', '^', '<', '>']).ok_or_else(wrong)?;
        let (name, rest) = (text[..place].trim(), &text[place..]);
        let operators = ["^=", "<=", ">=", "=", "<", ">"];
        let operator = operators.into_iter().find(|operator| rest.starts_with(operator)).ok_or_else(wrong)?;
        let value = rest[operator.len()..].trim();
        if name.is_empty() || name.ends_with('!') || value.starts_with(['=', '<', '>']) {
            return Err(wrong());
        }
        let payload = || value_of(value);
        let comparison = match operator {
            "^=" => Comparison::StartsWith(match value.starts_with('"') {
                true => payload()?.to_text(),
                false => value.to_owned(),
            }),
            "<=" => Comparison::AtMost(payload()?),
            ">=" => Comparison::AtLeast(payload()?),
            "<" => Comparison::LessThan(payload()?),
            ">" => Comparison::GreaterThan(payload()?),
            _ => Comparison::Equal(payload()?),
        };
        Ok(attribute(name).is(comparison))
    }
}

/// Parses JSON, or otherwise plain text. Text that begins like JSON has to be valid JSON: a typing error must not
/// silently become a string.
fn value_of(text: &str) -> Result<Payload, FilterError> {
    match Payload::from_json(text) {
        Ok(value) => Ok(value),
        Err(error) if text.starts_with(['{', '[', '"']) => {
            Err(FilterError(format!("this is not JSON: {error}")))
        }
        Err(_) => Ok(Payload::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(condition: &str, json: &str) -> bool {
        let condition: Condition = condition.parse().unwrap();
        condition.holds(&Payload::from_json(json).unwrap())
    }

    #[test]
    fn s15_each_operator_holds_for_what_it_says() {
        for (operator, less, equal, greater) in [
            ("<", true, false, false),
            ("<=", true, true, false),
            (">", false, false, true),
            (">=", false, true, true),
            ("=", false, true, false),
        ] {
            let expected = [less, equal, greater];
            let numbers = ["-5.25", "7", "7.01"].map(|json| holds(&format!("total{operator}7.0"), json));
            assert_eq!(numbers, expected, "{operator} over numbers");
            let texts =
                ["\"Os\"", "\"Oslo\"", "\"Oslo \""].map(|json| holds(&format!("c{operator}Oslo"), json));
            assert_eq!(texts, expected, "{operator} over text");
        }
        assert_eq!(
            ["\"Oslo\"", "\"Os\"", "\"OS\"", "\"Bergen\""].map(|city| holds("city^=Os", city)),
            [true, true, false, false]
        );
        assert!(holds("open>=false", "true") && !holds("open<true", "true"));
    }

    #[test]
    fn s15_values_of_another_type_never_match() {
        let others = ["null", "true", "7", "\"7\"", "[7]", "{\"a\":7}"];
        for (bound, own) in [("7", "7"), ("\"7\"", "\"7\""), ("true", "true")] {
            for operator in ["<=", ">="] {
                let matching: Vec<&str> =
                    others.into_iter().filter(|json| holds(&format!("a{operator}{bound}"), json)).collect();
                assert_eq!(matching, [own], "{operator} {bound}");
            }
        }
        for condition in ["a<=null", "a>=null", "a>=[1]", "a<[9]", "a>={}"] {
            assert!(others.iter().all(|json| !holds(condition, json)), "{condition}");
        }
        assert!(holds("a=null", "null") && holds("a=[7]", "[7]") && !holds("a=[7]", "[ 7]"));
        assert!(!holds("a^=7", "7"), "only text has a beginning");
    }

    #[test]
    fn s15_a_text_is_read_as_a_condition() {
        let parsed = |text: &str| text.parse::<Condition>();
        assert_eq!(parsed("total >= 5"), Ok(attribute("total").at_least(5)));
        assert_eq!(parsed("zip^=01"), Ok(attribute("zip").starts_with("01")));
        assert_eq!(parsed("zip^=\" 01\""), Ok(attribute("zip").starts_with(" 01")));
        assert_eq!(parsed("city="), Ok(attribute("city").equal_to("")));
        assert_eq!(parsed("city<New York"), Ok(attribute("city").less_than("New York")));
        assert_eq!(parsed("list=[1]"), Ok(attribute("list").equal_to(json!([1]))));
        assert_eq!(parsed("open>false"), Ok(attribute("open").greater_than(false)));
        assert_eq!(parsed("note=a>b"), Ok(attribute("note").equal_to("a>b")));
        assert_eq!(parsed("n<=-1.5"), Ok(attribute("n").at_most(-1.5)));
        for wrong in ["city", "=5", "a!=5", "a==5", "a=>5", "a^5", "", "a=<5", "a=[1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(parsed("a=[1").unwrap_err().to_string().contains("this is not JSON: "));
    }

    #[test]
    fn s15_conditions_on_one_attribute_are_one_range() {
        let keys = |text: &str| text.parse::<Condition>().unwrap().comparison.keys();
        let key = |json: &str| order_key(&Payload::from_json(json).unwrap());
        let both = keys("n>=5").and(keys("n<=5"));
        assert_eq!(both.only(), Some(&key("5")[..]));
        assert_eq!(keys("n=5").only(), Some(&key("5.0")[..]));
        assert_eq!(keys("n>=5").only(), None);
        let between = keys("n>5").and(keys("n<7"));
        assert!(between.contains(&key("6")) && !between.contains(&key("5")) && !between.contains(&key("7")));
        let nothing = keys("n>7").and(keys("n<5"));
        assert!(!nothing.contains(&key("6")) && nothing.only().is_none());
    }
}
