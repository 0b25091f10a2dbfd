//! The features that generated programs may use.

/// Optional features of generated programs. Activities and sequences are always used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Timers.
    pub timers: bool,
    /// Waits for external events.
    pub events: bool,
    /// Programs as sub-orchestrations.
    pub children: bool,
    /// Programs started as top-level instances.
    pub starts: bool,
    /// Events to other instances.
    pub sent_events: bool,
    /// Units besides the root: parallel branches, spawned and shielded blocks.
    pub units: bool,
    /// Joins within a unit.
    pub joins: bool,
    /// Selects and races, whose losers are cancelled.
    pub races: bool,
    /// Operations with a timeout.
    pub timeouts: bool,
    /// Futures that are awaited later, elsewhere or never.
    pub holds: bool,
    /// Branches and loops that depend on results.
    pub branching: bool,
    /// Event handlers, and waits for the state that they change.
    pub handlers: bool,
    /// Update handlers.
    pub updates: bool,
    /// Recorded calls: time, UUIDs, side effects.
    pub system_calls: bool,
    /// Random numbers from the recorded seed.
    pub random: bool,
    /// Reads of the turn time, the size of the history, and whether cancellation was requested.
    pub looks: bool,
    /// Patch gates.
    pub patches: bool,
    /// Status and attributes.
    pub status: bool,
    /// Cancellation handled by the program.
    pub cancellation: bool,
    /// Continue-as-new, at the end and in the middle.
    pub continue_as_new: bool,
    /// Ends with an error.
    pub failures: bool,
}

impl Features {
    /// All features.
    pub fn all() -> Features {
        Features::every(true)
    }

    /// No features: sequences of activities only.
    pub fn none() -> Features {
        Features::every(false)
    }

    fn every(on: bool) -> Features {
        Features {
            timers: on,
            events: on,
            children: on,
            starts: on,
            sent_events: on,
            units: on,
            joins: on,
            races: on,
            timeouts: on,
            holds: on,
            branching: on,
            handlers: on,
            updates: on,
            system_calls: on,
            random: on,
            looks: on,
            patches: on,
            status: on,
            cancellation: on,
            continue_as_new: on,
            failures: on,
        }
    }
}

impl Default for Features {
    fn default() -> Features {
        Features::all()
    }
}
