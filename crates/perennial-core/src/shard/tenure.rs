//! Tenures: which ownership of a shard something belongs to.

/// One uninterrupted ownership of a shard by a lane. Results of turns, attempts and loads name the tenure that
/// requested them, so that results for an earlier tenure are never attributed to a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure(pub u64);
