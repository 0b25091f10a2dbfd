//! Tenures: which ownership of a shard something belongs to.

/// One uninterrupted ownership of a shard by a lane. Results of turns, attempts and loads name the tenure that asked
/// for them, so that nothing of an earlier one is taken for a later one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure(pub u64);
