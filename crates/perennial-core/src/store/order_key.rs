//! Encodes attribute values as bytes that sort like the values.
//!
//! A store indexes attributes by these bytes, and every comparison of a [`Condition`](super::Condition) is a range of
//! them: one index serves equality, prefixes and ranges, and all stores agree on the order without knowing JSON.
//!
//! The first byte is the type, so that values of different types are never in the same range. Within a type: `false`
//! before `true`; numbers by exact value, regardless of how they are written; text by Unicode code points.

use crate::history::Payload;

const NULL: u8 = 0x10;
const BOOLEAN: u8 = 0x20;
const NUMBER: u8 = 0x30;
const TEXT: u8 = 0x40;
/// Lists and objects. They have no useful order, and are equal if their JSON text is.
const OTHER: u8 = 0x50;

/// The sign of a number.
const NEGATIVE: u8 = 1;
const ZERO: u8 = 2;
const POSITIVE: u8 = 3;

/// Returns bytes that sort like the values of attributes, compared as unsigned bytes with a prefix before longer keys.
///
/// Equal values have equal bytes: `1`, `1.0` and `10e-1` are the same number, and `"x"` and `"\u0078"` the same text.
/// Stores keep these bytes in an index, so the encoding never changes between releases.
///
/// ```
/// use perennial_core::Payload;
/// use perennial_core::store::order_key;
///
/// let key = |json: &str| order_key(&Payload::from_json(json).unwrap());
/// assert!(key("-2") < key("-1.5") && key("9") < key("10"));
/// assert_eq!(key("1"), key("1.0"));
/// assert!(key("\"Bergen\"") < key("\"Oslo\"") && key("\"Os\"") < key("\"Oslo\""));
/// ```
pub fn order_key(value: &Payload) -> Vec<u8> {
    let json = value.as_json();
    match json.as_bytes()[0] {
        b'n' => vec![NULL],
        b'f' => vec![BOOLEAN, 0],
        b't' => vec![BOOLEAN, 1],
        b'-' | b'0'..=b'9' => number_key(json),
        b'"' => match value.decode::<String>() {
            Ok(text) => text_key(&text),
            // An unpaired surrogate is valid JSON, but not valid text.
            Err(_) => other_key(json),
        },
        _ => other_key(json),
    }
}

/// The key of a text.
pub(super) fn text_key(text: &str) -> Vec<u8> {
    [&[TEXT], text.as_bytes()].concat()
}

fn other_key(json: &str) -> Vec<u8> {
    [&[OTHER], json.as_bytes()].concat()
}

/// The smallest type byte of `key`'s type and the one after it, if the type is ordered.
pub(super) fn ordered_type(key: &[u8]) -> Option<(u8, u8)> {
    matches!(key[0], BOOLEAN | NUMBER | TEXT).then(|| (key[0], key[0] + 1))
}

/// A number as its sign, then the position of its first digit, then its digits without leading and trailing zeros. It
/// is never converted to a float, so that large integers and decimal fractions keep their order.
fn number_key(json: &str) -> Vec<u8> {
    let (is_negative, unsigned) = match json.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, json),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, saturated(exponent)),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0');
    let leading_zeros = digits.len() - significant.len();
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return vec![NUMBER, ZERO];
    }
    let length = |text: usize| i64::try_from(text).unwrap_or(i64::MAX);
    // The value is 0.SIGNIFICANT times ten to this power.
    let place = exponent.saturating_add(length(whole.len()) - length(leading_zeros));
    // With the sign bit flipped, negative positions sort before positive ones. The last byte terminates the digits and
    // sorts below any digit.
    let place = (place.cast_unsigned() ^ (1 << 63)).to_be_bytes();
    let magnitude = [&place[..], significant.as_bytes(), &[0]].concat();
    let mut key = vec![NUMBER, if is_negative { NEGATIVE } else { POSITIVE }];
    // Negative numbers with a larger magnitude sort first.
    key.extend(magnitude.into_iter().map(|byte| if is_negative { !byte } else { byte }));
    key
}

/// An exponent; one that is out of range is clamped.
fn saturated(exponent: &str) -> i64 {
    let limit = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
    exponent.parse().map_or(limit, |exponent: i64| exponent.clamp(i64::MIN / 2, i64::MAX / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(json: &str) -> Vec<u8> {
        order_key(&Payload::from_json(json).unwrap())
    }

    #[test]
    fn s15_keys_are_in_the_order_of_the_values() {
        let ascending = [
            "null",
            "false",
            "true",
            "-1e400",
            "-9007199254740993",
            "-9007199254740992",
            "-10",
            "-9.5",
            "-9",
            "-1.25",
            "-1.2",
            "-1",
            "-0.5",
            "-0.05",
            "-1e-400",
            "0",
            "1e-400",
            "0.05",
            "0.1",
            "0.25",
            "0.5",
            "1",
            "1.05",
            "1.5",
            "2",
            "9",
            "10",
            "10.000000000000000000001",
            "99",
            "100",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551615",
            "18446744073709551616",
            "123456789012345678901234567890",
            "1e400",
            "1e99999999999999999999",
            "\"\"",
            "\"\\u0000\"",
            "\" \"",
            "\"10\"",
            "\"9\"",
            "\"Z\"",
            "\"a\"",
            "\"aa\"",
            "\"b\"",
            "\"ä\"",
            "\"\\uffff\"",
            "\"😀\"",
        ];
        for (place, value) in ascending.iter().enumerate() {
            for (other_place, other) in ascending.iter().enumerate() {
                assert_eq!(key(value).cmp(&key(other)), place.cmp(&other_place), "{value} and {other}");
            }
        }
    }

    #[test]
    fn s15_one_value_has_one_key_however_it_is_written() {
        let alike = [
            &["0", "-0", "0.0", "0e5", "-0.00E-7"][..],
            &["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000"],
            &["-1200", "-1.2e3", "-12E2", "-1200.00"],
            &["0.001", "1e-3", "0.1e-2"],
            &["\"x\"", "\"\\u0078\""],
            &["\"😀\"", "\"\\ud83d\\ude00\""],
        ];
        for values in alike {
            for value in values {
                assert_eq!(key(value), key(values[0]), "{value} and {}", values[0]);
            }
        }
        assert_ne!(key("\"1\""), key("1"));
        assert_ne!(key("[1,2]"), key("[1, 2]"), "lists are compared as text");
        assert_eq!(key("\"\\ud800\"")[0], OTHER, "half a character is not text");
    }

    /// Stores have these bytes in their indexes.
    #[test]
    fn s15_keys_stay_as_they_are() {
        assert_eq!(key("true"), [0x20, 1]);
        assert_eq!(key("12.5"), [0x30, 3, 0x80, 0, 0, 0, 0, 0, 0, 2, b'1', b'2', b'5', 0]);
        assert_eq!(key("-7"), [0x30, 1, 0x7f, 255, 255, 255, 255, 255, 255, 254, !b'7', 255]);
        assert_eq!(key("\"Os\""), [0x40, b'O', b's']);
        assert_eq!(key("[]"), [0x50, b'[', b']']);
        assert_eq!(key("null"), [0x10]);
    }
}
