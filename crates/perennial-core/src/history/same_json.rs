//! Compares JSON texts by value: object members unordered, numbers exact as decimals.
//!
//! Only used when the bytes differ, for example because a `HashMap` was serialised in another order. Nothing is
//! rounded: numbers beyond the range of `f64` or `i64` are different if their digits are.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Values nested more deeply than this are considered different if their bytes differ; a decoder would reject them
/// anyway.
const MAX_DEPTH: usize = 128;

/// Compares two valid JSON texts.
pub(super) fn same_json(left: &str, right: &str) -> bool {
    same_at_depth(left, right, 0)
}

fn same_at_depth(left: &str, right: &str, depth: usize) -> bool {
    if left == right {
        return true;
    }
    if depth == MAX_DEPTH {
        return false;
    }
    let same = |left: &RawValue, right: &RawValue| same_at_depth(left.get(), right.get(), depth + 1);
    match (first_byte(left), first_byte(right)) {
        (b'{', b'{') => match (members(left), members(right)) {
            (Some(left), Some(right)) => {
                left.len() == right.len()
                    && left.iter().zip(&right).all(|(left, right)| left.0 == right.0 && same(left.1, right.1))
            }
            _ => false,
        },
        (b'[', b'[') => match (parse::<Vec<&RawValue>>(left), parse::<Vec<&RawValue>>(right)) {
            (Some(left), Some(right)) => {
                left.len() == right.len() && left.iter().zip(&right).all(|(left, right)| same(left, right))
            }
            _ => false,
        },
        (b'"', b'"') => {
            let (left, right) = (parse::<Cow<'_, str>>(left), parse::<Cow<'_, str>>(right));
            left.is_some() && left == right
        }
        (b'-' | b'0'..=b'9', b'-' | b'0'..=b'9') => {
            let (left, right) = (Decimal::parse(left.trim()), Decimal::parse(right.trim()));
            left.is_some() && left == right
        }
        _ => left.trim() == right.trim(),
    }
}

fn first_byte(json: &str) -> u8 {
    json.trim_start().bytes().next().unwrap_or_default()
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    serde_json::from_str(json).ok()
}

/// The members of an object ordered by key; members with the same key keep their order.
fn members(json: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

    impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct MembersVisitor;

            impl<'de> Visitor<'de> for MembersVisitor {
                type Value = Members<'de>;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                    let mut members = Vec::new();
                    while let Some(member) = map.next_entry()? {
                        members.push(member);
                    }
                    Ok(Members(members))
                }
            }

            deserializer.deserialize_map(MembersVisitor)
        }
    }

    let Members(mut members) = parse(json)?;
    members.sort_by(|left, right| left.0.cmp(&right.0));
    Some(members)
}

/// A JSON number as sign, significant digits and the power of ten of the last digit: `1`, `1.0` and `10e-1` are equal.
#[derive(PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// `None` for an exponent beyond `i64`; such a number is equal only to the same text.
    fn parse(text: &str) -> Option<Decimal> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, fraction].concat();
        let significant = digits.trim_end_matches('0');
        let dropped = digits.len() - significant.len();
        let exponent = exponent.checked_sub(fraction.len() as i64)?.checked_add(dropped as i64)?;
        let digits = significant.trim_start_matches('0').to_owned();
        Some(if digits.is_empty() {
            Decimal { negative, digits, exponent: 0 }
        } else {
            Decimal { negative, digits, exponent }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::same_json;

    #[test]
    fn e6_payloads_compare_as_json_with_objects_unordered() {
        assert!(same_json(
            r#"{"a":1,"b":[{"x":null,"y":"é"}]}"#,
            r#"{"b":[{"y":"\u00e9","x":null}], "a":1}"#
        ));
        assert!(!same_json(r#"{"a":1,"b":2}"#, r#"{"a":1}"#));
        assert!(!same_json(r#"{"a":1,"a":2}"#, r#"{"a":2}"#));
        assert!(!same_json(r#"[1,2]"#, r#"[2,1]"#));
        assert!(!same_json(r#""1""#, "1"));
        assert!(!same_json("null", "false"));
    }

    #[test]
    fn e6_numbers_compare_exactly() {
        assert!(same_json("[1]", "[1.0]"));
        assert!(same_json("[100]", "[1e2]"));
        assert!(same_json("[0.10]", "[1E-1]"));
        assert!(same_json("[0]", "[0e999]"));
        assert!(!same_json("[0]", "[-0]"));
        assert!(!same_json("[12345678901234567890123]", "[12345678901234567890124]"));
        assert!(!same_json("[0.1]", "[0.10000000000000000555]"));
        assert!(!same_json("[1e9223372036854775808]", "[1e9223372036854775809]"));
    }

    #[test]
    fn deep_values_are_compared_without_exhausting_the_stack() {
        let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(!same_json(&deep("1"), &deep("2")));
    }
}
