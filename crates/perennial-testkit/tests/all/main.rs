//! The integration tests of the crate, in one program: they link once.
//!
//! Most need the feature `environment`; those of stores do not.

mod json_lines_store;

mod async_store;
mod own_store;

#[cfg(feature = "environment")]
mod crash_everywhere;
#[cfg(feature = "environment")]
mod environment;
#[cfg(feature = "environment")]
mod environment_asking;
#[cfg(feature = "environment")]
mod environment_clock;
#[cfg(feature = "environment")]
mod environment_limits;
#[cfg(feature = "environment")]
mod environment_mocks;
#[cfg(feature = "environment")]
mod environment_registrations;
#[cfg(feature = "environment")]
mod recorded_histories;
#[cfg(feature = "environment")]
mod replay_check;
