//! `perennial demo`: orders, workers that are killed repeatedly, and a final count. One worker on an embedded store, or several
//! on PostgreSQL.

mod director;
mod ledger;
mod orders;
mod place;
mod serving;
mod worker;

pub(crate) use director::{Demo, run};
pub(crate) use worker::run as run_worker;
