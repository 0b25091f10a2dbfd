//! Metrics of the runtime (O1 to O4, O9). A recorder belongs to a process, so these tests are a program of their own, and
//! run one after another.

mod gauges;
mod labels;
mod quiet;
mod recorder;
mod shop;
mod work;
