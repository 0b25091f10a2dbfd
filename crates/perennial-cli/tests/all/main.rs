//! The integration tests of the crate, in one program: they link once.
#![allow(clippy::duplicate_mod, reason = "`on_postgres` runs tests of other files on another store")]

mod completing;
mod skipping;
mod support;

mod changing;
mod codecs;
mod demo;
mod doctor;
mod executions;
mod exit_codes;
#[cfg(feature = "otel")]
mod exporting;
mod help;
mod hostile;
mod likely_errors;
mod mistakes;
mod moving;
mod on_postgres;
mod postgres;
mod read_only;
mod reading_commands;
mod repairing;
mod serving;
mod verify;
