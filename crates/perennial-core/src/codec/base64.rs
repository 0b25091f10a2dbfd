//! Base64 with the standard alphabet and padding, as bytes are embedded in JSON.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// The bytes of a text; nothing if it is not just what [`encode`] gives.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let last = text.len().saturating_sub(4);
    for (place, chunk) in text.chunks(4).enumerate() {
        let padding =
            if place * 4 == last { chunk.iter().rev().take_while(|byte| **byte == b'=').count() } else { 0 };
        if padding > 2 {
            return None;
        }
        let mut bits = 0;
        for digit in &chunk[..4 - padding] {
            bits = bits << 6 | value(*digit)?;
        }
        bits <<= 6 * padding;
        let group = bits.to_be_bytes();
        if group[4 - padding..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&group[1..4 - padding]);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_bytes_of_any_length_are_read_back_from_base64() {
        assert_eq!(encode(b"Man"), "TWFu");
        assert_eq!(encode(b"Ma"), "TWE=");
        assert_eq!(encode(b"M"), "TQ==");
        let bytes: Vec<u8> = (0..=255).collect();
        for length in 0..bytes.len() {
            assert_eq!(decode(&encode(&bytes[..length])).as_deref(), Some(&bytes[..length]));
        }
    }

    #[test]
    fn s10_base64_that_was_changed_is_refused() {
        for text in ["TWF", "T===", "TQ=A", "TR==", "TWF=", "TW u", "=QAA", "TQ==TWFu"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
