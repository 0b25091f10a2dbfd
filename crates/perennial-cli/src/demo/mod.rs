//! `perennial demo`: orders on an embedded file, a worker that is killed again and again, and the count at the end.

mod director;
mod ledger;
mod orders;
mod worker;

pub(crate) use director::{Demo, run};
pub(crate) use worker::run as run_worker;
