//! The integration tests of the crate, in one program: they link once.

mod support;

mod conformance;
mod damage;
mod durability;
mod gathering;
mod guests;
mod guests_work;
mod migrating;
mod model;
mod opening;
mod ownership;
mod read_only;
mod surroundings;
