//! Hostile histories against real code: the bytes as turns, and the bytes as choices of how to break a good history.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_testkit::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    // How far the bytes came matters to the test that runs the same bodies, not here.
    let _ = fuzzing::replay(bytes);
    let _ = fuzzing::replay_mutated(bytes);
});
