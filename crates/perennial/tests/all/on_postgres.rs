//! Tests that restart runtimes on a store, on PostgreSQL. They are the files of the tests on SQLite.

mod support {
    pub(crate) use crate::support::*;

    /// A schema instead of a file.
    pub(crate) struct Place(crate::support::Place);

    impl Place {
        pub(crate) fn new() -> Place {
            Place(crate::support::Place::on_postgres())
        }
    }

    impl std::ops::Deref for Place {
        type Target = crate::support::Place;

        fn deref(&self) -> &crate::support::Place {
            &self.0
        }
    }
}

#[path = "blobs.rs"]
mod blobs;
#[path = "codec_leaks.rs"]
mod codec_leaks;
#[path = "codec_troubles.rs"]
mod codec_troubles;
#[path = "codecs.rs"]
mod codecs;
#[path = "damaged_rows.rs"]
mod damaged_rows;
#[path = "deleting.rs"]
mod deleting;
#[path = "explaining.rs"]
mod explaining;
#[path = "explaining_events.rs"]
mod explaining_events;
#[path = "explaining_full.rs"]
mod explaining_full;
#[path = "explaining_many.rs"]
mod explaining_many;
#[path = "filters.rs"]
mod filters;
#[path = "guests.rs"]
mod guests;
#[path = "maintenance.rs"]
mod maintenance;
#[path = "memory.rs"]
mod memory;
#[path = "neighbours.rs"]
mod neighbours;
#[path = "operations.rs"]
mod operations;
#[path = "preflight.rs"]
mod preflight;
#[path = "repairs.rs"]
mod repairs;
#[path = "results.rs"]
mod results;
#[path = "searching.rs"]
mod searching;
#[path = "starvation.rs"]
mod starvation;
#[path = "stopping.rs"]
mod stopping;
#[path = "tokens.rs"]
mod tokens;
#[path = "trouble.rs"]
mod trouble;
