//! Tests of commands that take any store, on PostgreSQL. They are the files of the tests on SQLite.

mod support {
    pub(crate) use crate::support::*;
    pub(crate) type Shop = ShopOn<Schema>;
}

#[path = "changing.rs"]
mod changing;
#[path = "codecs.rs"]
mod codecs;
#[path = "completing.rs"]
mod completing;
#[path = "executions.rs"]
mod executions;
#[path = "exit_codes.rs"]
mod exit_codes;
#[path = "mistakes.rs"]
mod mistakes;
#[path = "reading_commands.rs"]
mod reading_commands;
#[path = "repairing.rs"]
mod repairing;
