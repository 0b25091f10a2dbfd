//! Tests of the traces, with real runtimes, real processes and a real OTLP export.

mod collected;
mod crash;
mod family;
mod otlp;
mod quiet;
mod shop;
