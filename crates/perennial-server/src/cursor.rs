//! Places in lists, as opaque text.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use perennial::{ErrorCode, InstanceKey};
use sha2::{Digest, Sha256};

use crate::problem::Problem;

const VERSION: u8 = 1;

/// Writes a place in the list of a route with certain parameters.
pub(crate) fn encode(list: &str, place: &[u8]) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&fingerprint(list));
    bytes.extend_from_slice(place);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a place in the same list.
pub(crate) fn decode(list: &str, cursor: &str) -> Result<Vec<u8>, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap_or_default();
    match bytes.split_first() {
        Some((&VERSION, rest)) if rest.len() >= 4 && rest[..4] == fingerprint(list) => Ok(rest[4..].to_vec()),
        Some((&VERSION, rest)) if rest.len() >= 4 => Err(wrong("it belongs to a list with other parameters")),
        _ => Err(wrong("it was not made by this API")),
    }
}

/// The key of an instance as a place.
pub(crate) fn instance_key(place: &[u8]) -> Result<InstanceKey, Problem> {
    let bytes: [u8; 16] = place.try_into().map_err(|_| wrong("it was not made by this API"))?;
    Ok(InstanceKey::from_bytes(bytes))
}

pub(crate) fn wrong(why: &str) -> Problem {
    Problem::new(ErrorCode::BadCursor, format!("the cursor cannot be used: {why}"))
}

fn fingerprint(list: &str) -> [u8; 4] {
    let digest = Sha256::digest(list.as_bytes());
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h25_a_cursor_is_read_back_in_its_own_list_alone() {
        let cursor = encode("instances status=running", b"0123456789abcdef");
        assert_eq!(decode("instances status=running", &cursor).unwrap(), b"0123456789abcdef");
        assert!(decode("instances status=failed", &cursor).is_err());
        for wrong in ["", "x", "AAAA", "!!!", &cursor[1..], &cursor[..4]] {
            assert!(decode("instances status=running", wrong).is_err(), "{wrong}");
        }
        assert!(instance_key(b"short").is_err());
    }
}
