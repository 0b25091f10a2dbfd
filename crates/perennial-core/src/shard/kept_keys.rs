//! Deduplication keys for messages without one that are written into the inbox, so that repeating a commit appends
//! nothing twice.

use crate::instance::ShardId;

pub(super) struct KeptKeys {
    /// Distinguishes these keys from those of other owners of the shard.
    nonce: u128,
    shard: ShardId,
    count: u64,
}

impl KeptKeys {
    pub(super) fn new(nonce: u128, shard: ShardId) -> KeptKeys {
        KeptKeys { nonce, shard, count: 0 }
    }

    /// A new key. Keys given by callers never begin like it.
    pub(super) fn next(&mut self) -> String {
        self.count += 1;
        format!("~{:x}.{}.{}", self.nonce, self.shard.0, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_keys_differ_from_each_other_and_from_those_of_other_owners() {
        let mut keys = KeptKeys::new(0xab, ShardId(3));
        assert_eq!([keys.next(), keys.next()], ["~ab.3.1", "~ab.3.2"]);
        assert_ne!(KeptKeys::new(0xac, ShardId(3)).next(), "~ab.3.1");
        assert_ne!(KeptKeys::new(0xab, ShardId(4)).next(), "~ab.3.1");
    }
}
