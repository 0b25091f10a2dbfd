//! What the compiler says to misuse, and what it has to infer by itself (P1).
//!
//! After a change that is meant, `TRYBUILD=overwrite cargo test -p perennial --test compile` writes what it says now.

#[test]
fn p1_misuse_is_refused_with_words_that_say_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

#[test]
fn p1_literals_tuples_names_and_no_arguments_are_inferred() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}
