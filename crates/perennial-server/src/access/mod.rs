//! Who sends a request: tokens, sessions, and the checks that keep other web pages out.

mod failures;
mod origin;
mod sessions;
mod tokens;

pub(crate) use failures::Failures;
pub(crate) use origin::{check_host, check_origin, is_allowed_origin};
pub(crate) use sessions::{COOKIE, Sessions};
pub use tokens::{NewToken, TokenFile, TokenFileError};

/// 256 random bits, as 64 hexadecimal digits.
pub(crate) fn random_secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    hex(&bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
