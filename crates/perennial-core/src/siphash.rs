//! SipHash-2-4: a keyed hash whose values tell nothing about those of other inputs to somebody who has not got the key.
//!
//! The standard library has it for hash maps alone, with keys that nobody can give.

/// The hash of some bytes under a key.
pub(crate) fn siphash(key: u128, bytes: &[u8]) -> u64 {
    let (low, high) = (key as u64, (key >> 64) as u64);
    let mut state = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let words = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    last[7] = bytes.len() as u8;
    for word in words.chain([&last[..]]) {
        let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        state[3] ^= word;
        (0..2).for_each(|_| round(&mut state));
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::siphash;

    /// The vectors of its authors: the key 00 01 … 0f, and the first n of the bytes 00 01 02 ….
    #[test]
    fn it_is_siphash_2_4() {
        let key = u128::from_le_bytes(std::array::from_fn(|number| number as u8));
        let bytes: Vec<u8> = (0..16).collect();
        let expected = [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ];
        for (length, hash) in expected {
            assert_eq!(siphash(key, &bytes[..length]), hash, "{length} bytes");
        }
    }
}
