//! Bytes as arguments of the command, one per line.

use std::ffi::OsString;

/// Parses the arguments. An error must be a text that can be shown on a terminal.
pub(crate) fn run(input: &[u8]) -> bool {
    let words = input.split(|byte| *byte == b'\n').map(word);
    match perennial_cli::parsed(words) {
        Ok(()) => true,
        Err(complaint) => {
            let is_shown = |c: char| c == '\n' || !c.is_control();
            assert!(complaint.chars().all(is_shown), "{complaint:?}");
            false
        }
    }
}

#[cfg(unix)]
fn word(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}

#[cfg(not(unix))]
fn word(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}
