//! What the compiler says to misuse, and what it has to infer by itself (P1).
//!
//! After a change that is meant, `TRYBUILD=overwrite cargo test -p perennial-macros` writes what it says now.

#[test]
fn p1_the_compiler_refuses_misuse_in_words_that_say_what_to_do_and_infers_the_rest() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
