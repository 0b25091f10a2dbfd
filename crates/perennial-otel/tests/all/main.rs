//! Tests of the traces, with real runtimes, real processes and a real OTLP export.

mod calls;
mod collected;
mod crash;
mod family;
mod mounted;
mod otlp;
mod quiet;
mod shop;
