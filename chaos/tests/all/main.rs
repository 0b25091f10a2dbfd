//! Nodes as real processes over a real server.

mod checker;
mod faults;
mod handover;
mod membership;
mod power_loss;
mod support;
mod tasks;
mod upgrade;
