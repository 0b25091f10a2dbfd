//! The integration tests of the crate, in one program: they link once.

mod support;

mod conformance;
mod doubt;
mod encryption;
mod fencing;
mod hints;
mod injection;
mod model;
mod opening;
mod plans;
mod warnings;
