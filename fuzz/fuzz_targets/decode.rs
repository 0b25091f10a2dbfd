//! Any bytes as turns: decoding says what is wrong, and what decodes is the same after another round.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_testkit::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    // How far the bytes came matters to the test that runs the same body, not here.
    let _ = fuzzing::decode(bytes);
});
