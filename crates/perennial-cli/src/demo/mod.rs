//! `perennial demo`: orders on an embedded store, a worker that is killed repeatedly, and a final count.

mod director;
mod ledger;
mod orders;
mod worker;

pub(crate) use director::{Demo, run};
pub(crate) use worker::run as run_worker;
