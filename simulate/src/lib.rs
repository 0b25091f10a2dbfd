//! The simulator over many seeds: `cargo xtask simulate` runs it.
//!
//! A [`campaign`] takes seed after seed on all cores, beginning with the [`corpus`] of past failures. A seed that fails
//! is made smaller and stored as a case. [`flaw_table`] measures how soon planted bugs are noticed.

pub mod arguments;
pub mod campaign;
pub mod corpus;
pub mod flaw_table;
pub mod outcome;
mod progress;
