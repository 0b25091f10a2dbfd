//! The integration tests of the crate, in one binary, so that they are linked once.

mod support;

mod conformance;
mod damage;
mod doubt;
mod encryption;
mod fencing;
mod hints;
mod injection;
mod model;
mod opening;
mod plain_batches;
mod plans;
mod sends;
mod warnings;
