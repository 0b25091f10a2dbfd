//! The HTTP API over real sockets, mounted in an application and served beside the owner of a store.

mod access;
mod activities;
mod attacks;
mod changes;
mod contract;
mod dashboard;
mod dashboards;
mod health;
mod instances;
mod kills;
mod lists;
mod logs;
mod matrix;
mod metric_documents;
#[cfg(feature = "prometheus")]
mod metrics;
mod mutated;
mod reading;
mod slow_callers;
mod stopping;
mod streams;
mod wire;
mod world;
