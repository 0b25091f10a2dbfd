//! Nodes as real processes over a real server.

mod faults;
