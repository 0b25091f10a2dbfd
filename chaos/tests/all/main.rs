//! Nodes as real processes over a real server.

mod faults;
mod handover;
mod membership;
mod support;
mod tasks;
mod upgrade;
